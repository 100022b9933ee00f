"""Check an archive from anyone, step by step, and lend its run's folder to who asked.

Nothing in it is executed; nothing is opened before its digest matched; nothing is written outside of a temporary place that the next
start clears if this process is killed. A step that cannot be done says `not checked`.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labcore import attest, bag, canonical, confined, contents, ledger, passing, swhid, tape
from labcore.errors import FINDING, GOOD, Refused
from labcore.metadata import Facts
from labcore.workspace import Workspace, growing

if TYPE_CHECKING:
    from labcore.sealed import Sealed

BIG = 256 << 20
"""Above this size the SWHID is computed only where one is asked for, and the archive's own SHA-256 only where there is something to hold
it against (a citation, an envelope, the ledger): each costs one more digest of every byte, and its files have theirs in any case."""
EARLY = 32 << 20
"""Above this size the auditor's process starts while the archive is hashed; below, only once it is needed."""
DECIDED = ("schema", "experiment", "run", "kind", "manifest", "verdict", "findings", "controls", "claims")
"""What an archived audit of another auditor's version must share with this one's."""
MALFORMED = {"S103", "S104", "S106", "S108", "S113", "S119"}
"""The auditor's rules on form: evidence that breaks them is refused rather than judged."""


@dataclass
class Wanted:
    """What the caller holds against the archive: digests from a citation, further public keys, a signature required.

    identity: compute SHA-256 and SWHID of a large archive even though there is nothing to hold them against.
    """

    sha256: str = ""
    swhid: str = ""
    keys: list[Path] = field(default_factory=list)
    signed: bool = False
    identity: bool = False


@dataclass
class Checked:
    """What the steps gave. steps: (step, text); findings: what is wrong. folder: the run's folder, while it is lent."""

    path: Path
    steps: list[tuple[str, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    sha256: str = ""
    swhid: str = ""
    signature: str = "not checked"
    facts: Facts | None = None
    folder: Path | None = None
    members: dict[str, tape.Member] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return "NOT VERIFIED" if self.findings else "VERIFIED"

    @property
    def code(self) -> int:
        return FINDING if self.findings else GOOD

    def say(self, step: str, text: str) -> None:
        self.steps.append((step, text))

    def find(self, step: str, text: str) -> None:
        self.findings.append(text)
        self.say(step, text)


class _Members:
    """The archive's members as a bag's files; digests come from the one pass."""

    def __init__(self, where: str, members: Mapping[str, tape.Member], digests: passing.Digests, top: str) -> None:
        self.where, self.members, self.digests, self.top = where, members, digests, top

    def names(self) -> list[str]:
        return [name[len(self.top) + 1 :] for name in self.members]

    def read(self, name: str) -> bytes:
        data = self.digests.held.get(f"{self.top}/{name}")
        if data is None:
            raise Refused(f"{self.where}: {name}: {self.size(name)} bytes; at most {passing.HELD} are read of a file of this kind")
        return data

    def digest(self, name: str, algorithm: str) -> str:
        assert algorithm == "sha256"
        return self.digests.members[f"{self.top}/{name}"]

    def size(self, name: str) -> int:
        return self.members[f"{self.top}/{name}"].size


@contextmanager
def opened(workspace: Workspace, path: Path, wanted: Wanted | None = None, *, whole: bool = False) -> Iterator[Checked]:
    """Check an archive; inside the block, `folder` holds its run. whole: large files too (they are judged in place otherwise).

    Raises Refused where the archive is malformed. Findings do not raise: look at `findings` before using `folder`.
    """
    wanted = wanted or Wanted()
    checked = Checked(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(f"{path}: no such file; wanted an archive, such as those in evidence/archives/") from None
    try:
        before = os.fstat(descriptor)
        with growing(workspace.local / "archives") as place:
            with confined.Child(place, descriptor) as child:
                _check(workspace, checked, descriptor, child, wanted)
            passing.unchanged(before, descriptor, path.name)
            if whole and checked.folder is not None:
                _complete(checked, descriptor)
                passing.unchanged(before, descriptor, path.name)
            yield checked
    finally:
        os.close(descriptor)


@contextmanager
def run_of(workspace: Workspace, path: Path) -> Iterator[Sealed]:
    """The run in an archive, for programs that use it: refused unless the archive is VERIFIED. Says who signed it."""
    from labcore.sealed import Sealed

    with opened(workspace, path, whole=True) as checked:
        if checked.findings or checked.folder is None:
            raise Refused(f"{path.name}: NOT VERIFIED, so nothing of it is used: {(checked.findings or ['not judged'])[0]}")
        print(f"{path.name}: VERIFIED, {checked.signature}{f'; sha256:{checked.sha256}' if checked.sha256 else ''}", flush=True)
        yield Sealed(checked.folder)


def _check(workspace: Workspace, checked: Checked, descriptor: int, child: confined.Child, wanted: Wanted) -> None:
    where = checked.path.name
    members, date = tape.read(descriptor, where)
    top = _top(members, where)
    size = os.fstat(descriptor).st_size
    if size > EARLY:
        child.start()
    always = size <= BIG or wanted.identity
    whole = always or bool(wanted.sha256 or _frozen(workspace, top)) or _envelope(checked.path).exists()
    digests = passing.digests(descriptor, members, where, blobs=always or bool(wanted.swhid), whole=whole)
    checked.members, checked.sha256 = {member.name: member for member in members}, digests.sha256
    named = f"sha256:{digests.sha256}" if whole else "a large archive, its own SHA-256 not computed: nothing here to hold it against"
    checked.say("archive", f"{named}; {size} bytes, {len(members)} files")
    if wanted.sha256 and wanted.sha256.removeprefix("sha256:").lower() != digests.sha256:
        checked.find("archive", f"{where}: its SHA-256 is not the wanted {wanted.sha256[:80]}")
    files = _Members(where, checked.members, digests, top)
    payload = _bag(checked, files, where)
    if checked.findings:
        checked.say("audit", "not checked: the archive's bytes are not those that were frozen")
        return
    _identity(checked, digests, top, wanted, where)
    own: dict[str, bytes] = {}
    _judge(checked, child, files, payload, top, size, date, lambda: own.update(_own(workspace, top)))
    if checked.facts is not None:
        _signature(workspace, checked, wanted)
        _ledger(workspace, checked)
        _installed(checked, files, own)
    if wanted.signed and checked.signature != "signed":
        checked.find("signature", f"{where}: {checked.signature}; a signature by a trusted key was asked for")


def _top(members: list[tape.Member], where: str) -> str:
    tops = {member.name.partition("/")[0] for member in members}
    if len(tops) != 1 or any("/" not in member.name for member in members):
        raise Refused(f"{where}: got the top folders {', '.join(sorted(tops)[:3])}; wanted one folder that holds everything")
    top = tops.pop()
    if not contents.TOP.fullmatch(top):
        raise Refused(f"{where}: got the top folder {top!r}; wanted <experiment>-<run>")
    return top


def _bag(checked: Checked, files: _Members, where: str) -> dict[str, tuple[int, str]]:
    """The archive's own rules on tag files, then the standard's; the payload as path -> size, SHA-256."""
    names = set(files.names())
    tags = {name for name in names if not name.startswith("data/")}
    if "fetch.txt" in tags:
        raise Refused(f"{where}: fetch.txt: an archive is whole; nothing of it lies elsewhere")
    if "bagit.txt" in tags and not tags & {"manifest-sha256.txt", "manifest-sha512.txt"}:
        found = ", ".join(sorted(name for name in tags if "manifest" in name)) or "none"
        raise Refused(f"{where}: got the manifests {found}; wanted manifest-sha256.txt")
    if "manifest-sha256.txt" in tags and "tagmanifest-sha256.txt" not in tags:
        raise Refused(f"{where}: tagmanifest-sha256.txt: is missing, so that the tag files are not covered")
    for name in sorted(tags - set(contents.TAGS)):
        raise Refused(f"{where}: {name}: is no tag file of an archive of format {contents.FORMAT}")
    if "bagit.txt" in tags and files.read("bagit.txt").startswith(b"BagIt-Version: 0."):
        raise Refused(f"{where}: bagit.txt: an archive is a BagIt 1.0 bag")
    try:
        found_bag = bag.check(files, where)
    except bag.Mismatch as error:
        checked.find("bag", str(error))
        return {}
    for name in sorted({"bag-info.txt", "bagit.txt"} - found_bag.tags.keys()):
        raise Refused(f"{where}: {name}: is not covered by tagmanifest-sha256.txt")
    payload = {name[5:]: (files.size(name), digest) for name, digest in found_bag.payload.items()}
    checked.say("bag", f"BagIt 1.0: {len(payload)} payload files and {len(tags)} tag files, every SHA-256")
    return payload


def _identity(checked: Checked, digests: passing.Digests, top: str, wanted: Wanted, where: str) -> None:
    if not digests.blobs:
        checked.say("swhid", "not checked: a large archive; SWHID=... asks for it")
        return
    checked.swhid = swhid.directory({name[len(top) + 1 :]: blob for name, blob in digests.blobs.items()})
    if wanted.swhid and wanted.swhid != checked.swhid:
        checked.find("swhid", f"{where}: its tree is {checked.swhid}, not the wanted {wanted.swhid[:80]}")
    else:
        checked.say("swhid", checked.swhid)


def _judge(
    checked: Checked,
    child: confined.Child,
    files: _Members,
    payload: dict[str, tuple[int, str]],
    top: str,
    size: int,
    date: int,
    meanwhile: Callable[[], object],
) -> None:
    """Lay out the run's folder, let the confined child audit it, and compare all that follows from manifest and audit."""
    where = checked.path.name
    match = contents.TOP.fullmatch(top)
    assert match
    experiment, run = match[1], match[2]
    inner = f"{experiment}/{run}/"
    manifest = _json(files, f"data/{inner}sealed/manifest.json", payload, where)
    described = _json(files, "data/archive.json", payload, where)
    if described.get("format") != contents.FORMAT:
        raise Refused(f"{where}: data/archive.json: format {str(described.get('format'))[:40]!r}; this suite reads {contents.FORMAT}")
    if not isinstance(manifest.get("files"), dict):
        raise Refused(f"{where}: data/{inner}sealed/manifest.json: no list of files")
    contents.check_payload(payload, manifest, experiment, run, where)
    stored = _json(files, f"data/{inner}audit.json", payload, where)
    folder = child.scratch / experiment / run
    given: dict[str, tuple[int, int, str]] = {}
    for name, (count, digest) in payload.items():
        if not name.startswith(inner):
            continue
        target = folder / name[len(inner) :]
        target.parent.mkdir(parents=True, exist_ok=True)
        data = files.digests.held.get(f"{top}/data/{name}")
        target.write_bytes(data or b"")
        if data is None:
            given[name[len(inner) :]] = (checked.members[f"{top}/data/{name}"].offset, count, digest)
    answer = child.judge(folder, given, where, size, meanwhile)
    document = answer["document"]
    malformed = [finding for finding in document["findings"] if finding["rule"] in MALFORMED]
    if malformed:
        first = malformed[0]
        raise Refused(f"{where}: {first['where']}: {first['text']} ({first['rule']})")
    for name, reason in answer["hdf5"].items():
        if reason:
            checked.find("hdf5", f"{where}: {name}: {reason}")
    if answer["hdf5"] and not checked.findings:
        checked.say("hdf5", f"{', '.join(sorted(answer['hdf5']))}: canonical bytes")
    _audited(checked, document, stored, where)
    if canonical.dumps(stored) != files.read(f"data/{inner}audit.json"):
        checked.find("audit", f"{where}: audit.json: not in canonical form")
    if stored.get("auditor") != {"version": _text(described, "auditor", "version")}:
        checked.find("audit", f"{where}: audit.json: another auditor than archive.json names")
    checked.folder = folder
    _follows(checked, files, payload, manifest, document, described, top, date)


def _json(files: _Members, name: str, payload: Mapping[str, Any], where: str) -> dict[str, Any]:
    if name[5:] not in payload:
        raise Refused(f"{where}: {name}: is missing; an archive of format {contents.FORMAT} holds it")
    value = canonical.loads(files.read(name), f"{where}: {name}")
    if not isinstance(value, dict):
        raise Refused(f"{where}: {name}: wanted a JSON object")
    return value


def _audited(checked: Checked, document: Mapping[str, Any], stored: Mapping[str, Any], where: str) -> None:
    levels = [level for level in "1234" if document["levels"][level] == "checked"]
    for finding in document["findings"]:
        if finding["severity"] == "error":
            checked.findings.append(f"{where}: {finding['where']}: {finding['text']} ({finding['rule']})")
    auditor = document["auditor"]["version"]
    checked.say("audit", f"{document['verdict']}: levels {', '.join(levels)} by auditor {auditor}, {len(document['findings'])} findings")
    same: Callable[[Any, Any], bool] = operator.eq
    if stored.get("auditor") == document["auditor"]:
        compared = document.keys() | stored.keys()
    else:
        # Another version may word its levels otherwise and compute a float in another order; what it decided must stand.
        compared, same = set(DECIDED), _close
        checked.say("audit", f"the archived audit is of another auditor ({str(stored.get('auditor'))[:40]}); what it decided is compared")
    for key in sorted(key for key in compared if not same(document.get(key), stored.get(key))):
        checked.find("audit", f"{where}: audit.json: its {key} is not what the auditor finds")
        return


def _close(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same but for the last digits of floats."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if float in (type(one), type(other)) and {type(one), type(other)} <= {int, float}:
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def _follows(
    checked: Checked,
    files: _Members,
    payload: dict[str, tuple[int, str]],
    manifest: dict[str, Any],
    document: dict[str, Any],
    described: dict[str, Any],
    top: str,
    date: int,
) -> None:
    """Everything that follows from manifest and audit must be, to the byte, what freezing writes."""
    where = checked.path.name
    facts_audit = {**document, "auditor": {"version": _text(described, "auditor", "version")}}
    draft = described.get("draft")
    if not isinstance(draft, list) or not all(isinstance(reason, str) for reason in draft):
        raise Refused(f"{where}: data/archive.json: draft is no list of reasons")
    sealed = f"{manifest['experiment']}/{manifest['run']}/sealed/"
    facts = Facts(manifest, facts_audit, _tree(files, f"data/{sealed}", _text(described, "sealed", "swhid")), draft)
    others = {name: entry for name, entry in payload.items() if name not in contents.GENERATED}
    auditor = _tree(files, "data/auditor/", _text(described, "auditor", "swhid"))
    wanted = {f"data/{name}": data for name, data in contents.generated(facts, others, auditor).items()}
    wanted |= contents.tag_files(facts, {f"data/{name}": entry for name, entry in payload.items()})
    for name, data in sorted(wanted.items()):
        if name[5:] not in payload and name.startswith("data/"):
            raise Refused(f"{where}: {name}: is missing; an archive of format {contents.FORMAT} holds it")
        if files.read(name) != data:
            checked.find("metadata", f"{where}: {name}: is not what freezing this run writes")
    if contents.top(facts) != top:
        checked.find("metadata", f"{where}: the top folder is {top}; this run freezes as {contents.top(facts)}")
    if date != contents.seconds(facts):
        checked.find("metadata", f"{where}: the members' date is not the run's end")
    if not draft and (manifest["kind"] != "confirmatory" or document["verdict"] != "VERIFIED"):
        checked.find("metadata", f"{where}: not marked as a draft, though it is {manifest['kind']} and {document['verdict']}")
    if not checked.findings:
        checked.say("metadata", f"{len(wanted)} files follow from manifest and audit, to the byte")
    if any("/figures/" in name for name in payload):
        checked.say("figures", "not checked: they are not drawn again")
    for reason in draft:
        checked.say("draft", reason)
    checked.facts = facts


def _text(value: Mapping[str, Any], part: str, key: str) -> str:
    inner = value.get(part)
    return str(inner.get(key, "")) if isinstance(inner, dict) else ""


def _tree(files: _Members, prefix: str, stated: str) -> str:
    """The SWHID of a folder in the archive; as it is stated where it holds a file too large to be named (see BIG)."""
    start = f"{files.top}/{prefix}"
    blobs, held = files.digests.blobs, files.digests.held
    names = [name for name in files.members if name.startswith(start)]
    if not all(name in blobs or name in held for name in names):
        return stated
    return swhid.directory({name[len(start) :]: blobs.get(name) or swhid.content(held[name]) for name in names})


def _signature(workspace: Workspace, checked: Checked, wanted: Wanted) -> None:
    assert checked.facts is not None
    facts = checked.facts
    keys = [*sorted((workspace.evidence / "keys").glob("*.pub")), *wanted.keys]
    envelope = _envelope(checked.path)
    result = attest.check(envelope, keys, checked.sha256)
    checked.signature = result.state
    if result.state == "wrong":
        checked.find("signature", result.text)
        return
    if result.statement is not None:
        own = attest.predicate(facts.manifest, facts.audit, facts.draft, checked.swhid, contents.FORMAT)
        keys_wrong = [key for key in sorted(own.keys() | result.statement.keys()) if own.get(key) != result.statement.get(key)]
        if not checked.swhid and "swhid" in keys_wrong:
            keys_wrong.remove("swhid")
        if keys_wrong:
            checked.signature = "wrong"
            checked.find("signature", f"{envelope.name}: the statement's {keys_wrong[0]} is not the archive's")
            return
    checked.say("signature", f"{result.state}: {result.text}")


def _envelope(path: Path) -> Path:
    return path.with_name(path.name + attest.SUFFIX)


def _frozen(workspace: Workspace, top: str) -> list[dict[str, Any]]:
    """The ledger's lines of frozen archives of this run."""
    match = contents.TOP.fullmatch(top)
    return [line for line in ledger.read(workspace.ledger) if line["event"] == "frozen" and match and line["run"] == match[2]]


def _ledger(workspace: Workspace, checked: Checked) -> None:
    assert checked.facts is not None
    lines = _frozen(workspace, contents.top(checked.facts))
    own = [line["n"] for line in lines if f"sha256:{checked.sha256}" in line["text"].split()]
    inside = checked.path.resolve().parent == (workspace.evidence / "archives").resolve()
    if inside and checked.path.name != (wanted := f"{contents.top(checked.facts)}.tar"):
        checked.find("ledger", f"{checked.path.name}: is the archive {wanted}; one in evidence/archives/ bears its own name")
    if own:
        checked.say("ledger", f"frozen here: line {own[-1]} of evidence/LEDGER.jsonl")
    elif lines or (inside and not checked.facts.draft):
        text = f"{checked.path.name}: evidence/LEDGER.jsonl names no frozen archive with this SHA-256"
        (checked.find if inside else checked.say)("ledger", text)
    else:
        checked.say("ledger", "not in this ledger")


def _own(workspace: Workspace, top: str) -> dict[str, bytes]:
    """The installed programs and texts that an archive holds too: path in data/ -> bytes."""
    auditor = contents.auditor(workspace.root, top.partition("-")[0])
    return {**contents.fixed(workspace.root), **{f"auditor/{name}": data for name, data in auditor.items()}}


def _installed(checked: Checked, files: _Members, own: Mapping[str, bytes]) -> None:
    """Say where the programs and texts in the archive are not the installed ones: a note, since they change in time."""
    there = {name[5:] for name in files.names() if name.startswith("data/auditor/")} | set(contents.FIXED)
    odd = sorted(name for name in there | own.keys() if name not in there or name not in own or files.read(f"data/{name}") != own[name])
    checked.say(
        "programs", f"not the installed ones: {', '.join(odd[:4])}" if odd else "verify.py, FORMAT.md, LICENSE, auditor: the installed"
    )


def _complete(checked: Checked, descriptor: int) -> None:
    """Copy the large files of the run's folder out of the archive."""
    assert checked.folder is not None
    for name, member in checked.members.items():
        inner = name.partition("/data/")[2]
        target = checked.folder.parents[1] / inner
        if checked.folder in target.parents and target.stat().st_size != member.size:
            with target.open("wb") as out:
                at, end = member.offset, member.offset + member.size
                while at < end:
                    piece = os.pread(descriptor, min(tape.PIECE, end - at), at)
                    out.write(piece)
                    at += len(piece)
