"""The ledgers (FORMAT 10): a chain of lines, HEAD's a beginning of it, and the kept runs that it names."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.findings import Damaged, Findings
from audit.schema import EXPERIMENT
from audit.strictjson import NotJson, parse, write_line

TRACKED = ("kept", "superseded", "frozen")
LOCAL = (*TRACKED, "ran", "reproduced", "failed", "interrupted", "leftover", "audited", "replicated", "removed")
KEYS = {"n", "previous", "time", "event", "experiment", "run", "manifest", "text"}
TIME = re.compile(r"[0-9]{4}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z")
RUN = re.compile(r"[0-9a-f]{12}")
DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Folder:
    """A kept run's folder, as found on disk."""

    experiment: str
    run: str
    manifest: str


def lines(data: bytes, name: str, events: tuple[str, ...], findings: Findings) -> list[dict[str, Any]]:
    """The lines of a ledger up to the first damaged one, which is a finding (L501)."""
    result: list[dict[str, Any]] = []
    previous = "0" * 64
    for raw in data.split(b"\n")[:-1] if data.endswith(b"\n") or not data else data.split(b"\n"):
        line = raw + b"\n"
        why = _wrong(line, len(result), previous, events)
        if why:
            findings.add("L501", f"{name}[{len(result)}]", why)
            return result
        result.append(parse(raw))
        previous = hashlib.sha256(line).hexdigest()
    if data and not data.endswith(b"\n"):
        findings.add("L501", name, "the last line has no line break")
    return result


def _wrong(line: bytes, number: int, previous: str, events: tuple[str, ...]) -> str:
    """Why a line is not good; empty where it is."""
    try:
        value = parse(line)
    except NotJson as error:
        return f"not JSON: {error}"
    if not isinstance(value, dict) or value.keys() != KEYS:
        return "other keys than a ledger line has"
    texts = KEYS - {"n"}
    if type(value["n"]) is not int or not all(isinstance(value[key], str) for key in texts):
        return "a value of another type"
    if write_line(value) != line:
        return "not canonical"
    if value["n"] != number:
        return f"the number is {value['n']}, wanted {number}"
    if value["previous"] != previous:
        return "does not follow the line before"
    if not TIME.fullmatch(value["time"]) or value["event"] not in events:
        return f"the time {value['time']!r} or the event {value['event']!r}"
    for key, form in (("experiment", EXPERIMENT), ("run", RUN), ("manifest", DIGEST)):
        if value[key] and not form.fullmatch(value[key]):
            return f"{key} is {value[key]!r}"
    if value["event"] in ("kept", "superseded") and not all(value[key] for key in ("experiment", "run", "manifest")):
        return f"{value['event']} without experiment, run or manifest"
    return ""


def tail(data: bytes, head: bytes | None, name: str, findings: Findings) -> None:
    """HEAD's ledger must be a beginning of this one."""
    if head is not None and not data.startswith(head):
        findings.add("L502", name, "HEAD's ledger is not a beginning of this one", f"{len(data)} bytes", f"{len(head)} bytes in HEAD")


def current(entries: list[dict[str, Any]]) -> tuple[dict[str, tuple[str, str]], set[tuple[str, str]]]:
    """Experiment -> (run, manifest) that is kept, and all (experiment, run) that ever were."""
    kept: dict[str, tuple[str, str]] = {}
    ever: set[tuple[str, str]] = set()
    for entry in entries:
        experiment, run = entry["experiment"], entry["run"]
        if entry["event"] == "kept":
            kept[experiment] = (run, entry["manifest"])
            ever.add((experiment, run))
        elif entry["event"] == "superseded" and kept.get(experiment, ("", ""))[0] == run:
            del kept[experiment]
    return kept, ever


def folders(entries: list[dict[str, Any]], found: list[Folder], findings: Findings) -> None:
    """The kept runs on disk are those that the ledger names."""
    kept, ever = current(entries)
    for experiment in sorted({item.experiment for item in found}):
        runs = sorted(item.run for item in found if item.experiment == experiment)
        if len(runs) > 1:
            findings.add("L506", f"evidence/{experiment}", f"{len(runs)} kept runs: {', '.join(runs)}")
    for item in found:
        where = f"evidence/{item.experiment}/{item.run}"
        run, manifest = kept.get(item.experiment, ("", ""))
        if item.run == run:
            if item.manifest != manifest:
                findings.add("L503", where, "another manifest than its ledger line names", item.manifest, manifest)
        elif (item.experiment, item.run) in ever:
            findings.add("L505", where, "was superseded", item.run, run or "none is kept")
        else:
            findings.add("L503", where, "has no ledger line")
    there = {(item.experiment, item.run) for item in found}
    for experiment, (run, _) in sorted(kept.items()):
        if (experiment, run) not in there:
            findings.add("L504", f"evidence/{experiment}/{run}", "is kept by the ledger, but is not here")


def read(path: Path) -> bytes | None:
    """A ledger's bytes, or None where there is none; Damaged (L501) where it cannot be read."""
    try:
        if path.is_symlink() or path.stat().st_size > MAX_BYTES:
            raise Damaged("L501", path.name, "is a link, or larger than any ledger")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Damaged("L501", path.name, f"cannot be read: {error.strerror}") from None
