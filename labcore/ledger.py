"""Append-only ledgers (evidence/FORMAT.md section 10): each line holds the hash of the line before."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Any

from labcore import canonical
from labcore.errors import Refused

START = "0" * 64


def now() -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def append(path: Path, event: str, experiment: str, run: str = "", manifest: str = "", text: str = "") -> None:
    """Add one line, locked and synced. Refuses a ledger whose last line is torn or unreadable, and leaves it as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        last = _last_line(handle, path)
        line = canonical.line(
            {
                "n": canonical.loads(last, str(path))["n"] + 1 if last else 0,
                "previous": canonical.sha256(last) if last else START,
                "time": now(),
                "event": event,
                "experiment": experiment,
                "run": run,
                "manifest": manifest,
                "text": text,
            }
        )
        size = os.fstat(handle.fileno()).st_size
        try:
            handle.write(line)
            handle.flush()
            os.fsync(handle.fileno())
        except OSError:
            # A full disk may have taken half a line: nothing is better than half.
            os.truncate(handle.fileno(), size)
            raise


def _last_line(handle: Any, path: Path) -> bytes:
    size = os.fstat(handle.fileno()).st_size
    if size == 0:
        return b""
    step = 4096
    while True:
        start = max(0, size - step)
        tail = os.pread(handle.fileno(), size - start, start)
        if not tail.endswith(b"\n"):
            raise Refused(f"{path}: its last line is torn (no line break at byte {size}); wanted a whole ledger. `make audit` says more")
        lines = tail.splitlines(keepends=True)
        if len(lines) > 1 or start == 0:
            return bytes(lines[-1])
        step *= 2


def read(path: Path) -> list[dict[str, Any]]:
    """All lines, oldest first; [] where there is no ledger. The auditor checks the chain."""
    if not path.is_file():
        return []
    return [dict(canonical.loads(line, f"{path} line {n}")) for n, line in enumerate(path.read_bytes().splitlines(), 1)]


def kept(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Experiment -> the run that is kept now, by the ledger."""
    runs: dict[str, str] = {}
    for line in lines:
        if line["event"] == "kept":
            runs[line["experiment"]] = line["run"]
        elif line["event"] == "superseded" and runs.get(line["experiment"]) == line["run"]:
            del runs[line["experiment"]]
    return runs
