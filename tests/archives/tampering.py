"""Kinds of tampering with a frozen, signed archive, and which check finds each: the matrix of docs/archives.md.

`found`: by which step of `verify` when nothing but the archive is at hand. "only a signature": an author re-made everything so that it
fits together; the archive then verifies as unsigned, and the old signature, kept beside it, is found wrong. "refused" and the steps'
names otherwise.
"""

import base64
import gzip
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore import attest, canonical, tape
from tests.archives import forge

ONLY = "only a signature"


@dataclass(frozen=True)
class Tampering:
    """One kind: the archive's bytes, its envelope (None: none), and what finds it."""

    kind: str
    data: bytes
    envelope: bytes | None
    found: str


class Bench:
    """The good archive and the means to forge."""

    def __init__(self, frozen: Any, place: Path) -> None:
        self.frozen, self.place = frozen, place
        self.data = frozen.path.read_bytes()
        self.envelope = frozen.path.with_name(frozen.path.name + attest.SUFFIX).read_bytes()
        with frozen.path.open("rb") as handle:
            self.members, self.date = tape.read(handle.fileno(), "x")
        self.top = self.members[0].name.partition("/")[0]
        self.files = forge.members(frozen.path)
        self.inner = f"data/90_toy/{frozen.run.name}/"
        self.count = 0

    def at(self, name: str) -> tape.Member:
        return next(member for member in self.members if member.name.endswith(name))

    def flip(self, place: int, mask: int = 1) -> bytes:
        return self.data[:place] + bytes([self.data[place] ^ mask]) + self.data[place + 1 :]

    def pack(self, files: dict[str, bytes], top: str = "") -> bytes:
        return forge.pack(top or self.top, files, self.date)

    def changed(self, name: str, old: bytes, new: bytes, *, again: bool) -> bytes:
        """One file edited; `again`: all of the bag's digests made anew."""
        assert old in self.files[name], name
        files = {**self.files, name: self.files[name].replace(old, new, 1)}
        return self.pack(forge.rebag(files) if again else files)

    def contents(self) -> Iterator[tuple[tape.Member, bytes]]:
        for member in self.members:
            yield member, self.data[member.offset : member.offset + member.size]

    def header(self, name: str, /, **fields: bytes) -> bytes:
        """One member's header changed."""
        entries = []
        for member, content in self.contents():
            own = fields if member.name.endswith(name) else {}
            entries.append((forge.header(member.name.encode(), content, self.date, **own), content))
        return forge.raw(entries)

    def forged(self, change: Callable[[forge.Forged], Any], audit: Any = None) -> bytes:
        """The run changed, sealed and frozen again by its author, with an audit that says what the author likes."""
        self.count += 1
        place = self.place / f"forged{self.count}"
        place.mkdir()
        copy = forge.Forged(self.frozen.run, place, self.frozen.root)
        change(copy)
        data = copy.seal().archive(audit)[1]
        shutil.rmtree(place)
        return data

    def signed(self, statement: dict[str, Any], key: Path) -> bytes:
        return attest.sign(statement, key)


def kinds(frozen: Any, place: Path) -> Iterator[Tampering]:
    """All kinds."""
    bench = Bench(frozen, place)
    for part in (_bytes, _files, _form, _remade, _consistent, _signatures):
        yield from part(bench)


def _bytes(b: Bench) -> Iterator[Tampering]:
    for kind, name in (
        ("a bit of the arrays", "sealed/arrays.h5"),
        ("a bit of the results", "sealed/results.csv"),
        ("a bit of the manifest", "sealed/manifest.json"),
        ("a bit of the sources", "sealed/sources.zip"),
        ("a bit of the audit", "audit.json"),
        ("a bit of the auditor", "audit/metrics.py"),
    ):
        member = b.at(name)
        yield Tampering(kind, b.flip(member.offset + member.size // 2), b.envelope, "bag")
    listed = b.at("/manifest-sha256.txt")
    digit = next(n for n in range(64) if chr(b.data[listed.offset + n]).isdigit())
    yield Tampering("a bit of a digest in a manifest", b.flip(listed.offset + digit), b.envelope, "bag")
    yield Tampering("a bit of a tag file", b.flip(b.at("/bag-info.txt").offset), b.envelope, "bag")
    yield Tampering("a bit of a header", b.flip(b.members[3].offset - 400), b.envelope, "refused")
    hidden = next(m for m in b.members if m.size % 512)
    yield Tampering("bytes hidden in padding", b.flip(hidden.offset + hidden.size), b.envelope, "refused")
    yield Tampering("bytes behind the end", b.data + bytes(tape.RECORD), b.envelope, "refused")
    yield Tampering("another archive behind it", b.data + b.data, b.envelope, "refused")
    yield Tampering("the archive cut", b.data[: -tape.RECORD], b.envelope, "refused")
    yield Tampering("the archive compressed", gzip.compress(b.data, 1, mtime=0), b.envelope, "refused")


def _files(b: Bench) -> Iterator[Tampering]:
    name = f"{b.inner}sealed/results.csv"
    yield Tampering("a file added", b.pack({**b.files, "data/more.txt": b"x"}), b.envelope, "refused")
    yield Tampering("a file removed", b.pack({n: d for n, d in b.files.items() if n != name}), b.envelope, "refused")
    renamed = {n.replace("results.csv", "result.csv"): d for n, d in b.files.items()}
    yield Tampering("a file renamed", b.pack(renamed), b.envelope, "refused")
    pair = {name: b.files["data/LICENSE"], "data/LICENSE": b.files[name]}
    yield Tampering("two files swapped", b.pack({**b.files, **pair}), b.envelope, "bag")
    yield Tampering("a file emptied", b.pack({**b.files, name: b""}), b.envelope, "bag")
    yield Tampering("a tag file added", b.pack({**b.files, "notes.txt": b"x"}), b.envelope, "refused")
    without = {n: d for n, d in b.files.items() if n != "tagmanifest-sha256.txt"}
    yield Tampering("the tag manifest removed", b.pack(without), b.envelope, "refused")
    yield Tampering("a fetch.txt added", b.pack({**b.files, "fetch.txt": b"http://example.org/x - data/x\n"}), b.envelope, "refused")
    weaker = {n: d for n, d in without.items() if n != "manifest-sha256.txt"} | {"manifest-md5.txt": b""}
    yield Tampering("manifests weakened to MD5", b.pack(weaker), b.envelope, "refused")


def _form(b: Bench) -> Iterator[Tampering]:
    yield Tampering("a file's mode", b.header("verify.py", mode=b"0000755\0"), b.envelope, "refused")
    yield Tampering("a file's owner", b.header("verify.py", owner=b"0001750\0"), b.envelope, "refused")
    yield Tampering("a file's date", b.header("verify.py", date=b"00000000001\0"), b.envelope, "refused")
    yield Tampering("a file's device numbers", b.header("verify.py", device=b"0000001\0"), b.envelope, "refused")
    yield Tampering(
        "a file's size in base-256", b.header("verify.py", size=_base256(len(b.files["data/verify.py"]))), b.envelope, "refused"
    )
    halves = b.top.encode(), b"data/verify.py"
    yield Tampering("a file's name in two parts", b.header("verify.py", prefix=halves[0], name=halves[1]), b.envelope, "refused")
    later = [(forge.header(m.name.encode(), d, b.date + 1), d) for m, d in b.contents()]
    yield Tampering("all files' dates", forge.raw(later), b.envelope, "metadata")
    yield Tampering("a file made sparse", b.header("verify.py", type=b"S"), b.envelope, "refused")
    yield Tampering("a file made a symbolic link", b.header("verify.py", type=b"2", link=b"/bin/sh"), b.envelope, "refused")
    yield Tampering("a file made a hard link", b.header("verify.py", type=b"1", link=b"LICENSE"), b.envelope, "refused")
    entries = [(b.data[m.offset - 512 : m.offset], b.data[m.offset : m.offset + m.size]) for m in b.members]
    empty = (forge.header(f"{b.top}/data/empty/".encode(), b"", b.date, type=b"5"), b"")
    record = b"30 path=90_toy/data/verify.py\n"
    pax = (forge.header(b"pax", record, b.date, type=b"x"), record)
    yield Tampering("a pax header added", forge.raw([*entries[:-1], pax, entries[-1]]), b.envelope, "refused")
    yield Tampering("an empty folder added", forge.raw([*entries[:3], empty, *entries[3:]]), b.envelope, "refused")
    yield Tampering("the order of the files", forge.raw([entries[1], entries[0], *entries[2:]]), b.envelope, "refused")
    lines = b.files["manifest-sha256.txt"].splitlines(True)
    other = forge.retag({**b.files, "manifest-sha256.txt": b"".join(lines[::-1])})
    yield Tampering("a manifest's lines reordered, tags re-made", b.pack(other), b.envelope, "metadata")
    capitals = b"".join(line[:64].upper() + line[64:] for line in lines)
    other = forge.retag({**b.files, "manifest-sha256.txt": capitals})
    yield Tampering("a manifest's digests in capitals, tags re-made", b.pack(other), b.envelope, "metadata")
    other = forge.retag({**b.files, "manifest-sha256.txt": b"".join(lines).replace(b"\n", b"\r\n")})
    yield Tampering("a manifest's line ends, tags re-made", b.pack(other), b.envelope, "metadata")
    info = b.files["bag-info.txt"]
    other = forge.retag({**b.files, "bag-info.txt": info + b"Contact-Name: somebody\n"})
    yield Tampering("a field of bag-info.txt added, tags re-made", b.pack(other), b.envelope, "metadata")
    other = forge.retag({**b.files, "bag-info.txt": info + next(line for line in info.splitlines(True) if b"Oxum" in line)})
    yield Tampering("a field of bag-info.txt twice, tags re-made", b.pack(other), b.envelope, "refused")
    yield Tampering("the top folder renamed", b.pack(b.files, "90_toy-000000000000"), b.envelope, "refused")


def _remade(b: Bench) -> Iterator[Tampering]:
    """The digests are made anew, but not everything follows."""
    audit = f"{b.inner}audit.json"
    yield Tampering("a claim's verdict, digests re-made", b.changed(audit, b"reproduced", b"qualified", again=True), b.envelope, "audit")
    yield Tampering(
        "a citation, digests re-made", b.changed("data/CITATION.cff", b"VERIFIED", b"verified", again=True), b.envelope, "metadata"
    )
    spaced = b.changed(audit, b"{\n", b"{ \n", again=True)
    yield Tampering("a blank in the audit, digests re-made", spaced, b.envelope, "audit")
    crate = b.changed("data/ro-crate-metadata.json", b"reference evidence", b"certified evidence", again=True)
    yield Tampering("RO-Crate metadata, digests re-made", crate, b.envelope, "metadata")
    protocol = b.changed("data/protocol.json", b"Z01", b"Z99", again=True)
    yield Tampering("the protocol's copy, digests re-made", protocol, b.envelope, "metadata")
    arrays = f"{b.inner}sealed/arrays.h5"
    yield Tampering("arrays, the bag re-made", b.pack(forge.rebag({**b.files, arrays: _flipped(b.files[arrays])})), b.envelope, "audit")

    def result(run: forge.Forged) -> None:
        text = (run.sealed / "results.csv").read_text().splitlines()[2].rsplit(",", 1)[1]
        run.csv(text, "0.75")

    yield Tampering("a result, everything re-made", b.forged(result), None, "audit")

    def array(run: forge.Forged) -> None:
        run.array("main/output", lambda values: values.__setitem__((0, 0), values[0, 0] + 1e-9))

    yield Tampering("an array, everything re-made", b.forged(array), None, "audit")

    def both(run: forge.Forged) -> None:
        for name in ("main/output", "main/alone"):
            run.array(name, lambda values: values.__setitem__((0, 0), 0.25))

    yield Tampering("an input and its output alike, everything re-made", b.forged(both), None, "audit")

    def seeds(run: forge.Forged) -> None:
        run.protocol(lambda value: value.__setitem__("seeds", [8, 19, 41]))
        path = run.sealed / "results.csv"
        path.write_text(path.read_text().replace(",7,", ",8,"))
        run.manifest["data"]["results_sha256"] = forge.sha(path.read_bytes())

    yield Tampering("a seed's number, everything re-made", b.forged(seeds), None, "audit")
    gap = bytearray(b.files[arrays])
    gap[gap.find(b"SNOD") + 8 + 40 * 2 + 17] = 1  # an unused place in the table of links

    def hide(run: forge.Forged) -> None:
        (run.sealed / "arrays.h5").write_bytes(bytes(gap))

    yield Tampering("a byte hidden in an HDF5 file's gap, everything re-made", b.forged(hide), None, "hdf5")

    def explore(run: forge.Forged) -> None:
        run.manifest |= {"kind": "exploratory", "overrides": ["seeds=[7,19,41]"]}

    yield Tampering("an exploratory run not marked as a draft", b.forged(explore), None, "metadata")
    other = b.forged(lambda run: run.protocol(lambda value: value.__setitem__("question", "another")))
    name = b.place / "other.tar"
    name.write_bytes(other)
    theirs = forge.members(name)
    mixed = {n: d for n, d in b.files.items() if not n.startswith(b.inner)}
    mixed |= {n.replace(_run(theirs), b.frozen.run.name): d for n, d in theirs.items() if "/sealed/" in n or n.endswith("/audit.json")}
    both_runs = b.files | {n: d for n, d in theirs.items() if _run(theirs) in n}
    yield Tampering("another run put beside it, digests re-made", b.pack(forge.rebag(both_runs)), b.envelope, "refused")
    yield Tampering("another run put in its place, digests re-made", b.pack(forge.rebag(mixed)), b.envelope, "audit")


def _run(files: dict[str, bytes]) -> str:
    return str(json.loads(files["data/archive.json"])["run"])


def _flipped(data: bytes) -> bytes:
    return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]


def _consistent(b: Bench) -> Iterator[Tampering]:
    """The author re-makes everything, and nothing inside contradicts it."""

    def rule(run: forge.Forged) -> None:
        run.protocol(lambda value: value["claims"]["Z01"].__setitem__("reproduced", "worst <= 9.0"))

    yield Tampering("a claim's rule, everything re-made", b.forged(rule), b.envelope, ONLY)

    def origin(run: forge.Forged) -> None:
        run.manifest["recorded"] |= {"start": "2020-01-01T00:00:00Z", "end": "2020-01-01T00:00:01Z"}

    yield Tampering("the dates, everything re-made", b.forged(origin), b.envelope, ONLY)

    def machine(run: forge.Forged) -> None:
        run.manifest["recorded"]["environment"]["cpu"] = "another"

    yield Tampering("the machine, everything re-made", b.forged(machine), b.envelope, ONLY)

    def source(run: forge.Forged) -> None:
        with zipfile.ZipFile(run.sealed / "sources.zip") as archive:
            text = archive.read("experiments/90_toy/experiment.py")
        run.source("experiments/90_toy/experiment.py", text + b"# other code\n")

    yield Tampering("the sources, everything re-made", b.forged(source), b.envelope, ONLY)
    auditor = b.files["data/auditor/audit/metrics.py"] + b"# other code\n"
    files = {**b.files, "data/auditor/audit/metrics.py": auditor}
    yield Tampering("the archived auditor, everything re-made", _refrozen(b, files), b.envelope, ONLY)
    files = {**b.files, "data/LICENSE": b"All rights reserved.\n"}
    yield Tampering("the licence, everything re-made", _refrozen(b, files), b.envelope, ONLY)

    def figure(run: forge.Forged) -> None:
        (run.run / "figures").mkdir(exist_ok=True)
        (run.run / "figures" / "errors.svg").write_text("<svg><!-- another story --></svg>")

    yield Tampering("a figure, everything re-made", b.forged(figure), b.envelope, ONLY)
    files = {**b.files, "data/verify.py": b"print('VERIFIED')\n"}
    yield Tampering("verify.py, everything re-made", _refrozen(b, files), b.envelope, ONLY)


def _refrozen(b: Bench, files: dict[str, bytes]) -> bytes:
    """Programs in the archive replaced, and all that names their digests made anew."""
    from labcore import contents, swhid
    from labcore.metadata import Facts

    facts: Facts = b.frozen.done.facts
    others = {n[5:]: d for n, d in files.items() if n.startswith("data/") and n[5:] not in contents.GENERATED}
    tree = swhid.directory({n[8:]: swhid.content(d) for n, d in others.items() if n.startswith("auditor/")})
    payload = others | contents.generated(facts, {n: (len(d), forge.sha(d)) for n, d in others.items()}, tree)
    named = {f"data/{n}": d for n, d in payload.items()}
    return b.pack({**named, **contents.tag_files(facts, {n: (len(d), forge.sha(d)) for n, d in named.items()})})


ORDER = 2**252 + 27742317777372353535851937790883648493


def _malleable(envelope: bytes) -> bytes:
    """The signature's second half with the group's order added: equal in the group, and to be refused (RFC 8032, 5.1.7)."""
    value = json.loads(envelope)
    signature = base64.b64decode(value["signatures"][0]["sig"])
    half = int.from_bytes(signature[32:], "little") + ORDER
    value["signatures"][0]["sig"] = base64.b64encode(signature[:32] + half.to_bytes(32, "little")).decode()
    return canonical.dumps(value)


def _base256(size: int) -> bytes:
    return b"\x80" + size.to_bytes(11, "big")


def _signatures(b: Bench) -> Iterator[Tampering]:
    stranger = b.place / "stranger.pem"
    attest.make_key(stranger, b.place / "stranger.pub")
    statement = json.loads(base64.b64decode(json.loads(b.envelope)["payload"]))
    older = {**statement, "subject": [{"name": b.frozen.path.name, "digest": {"sha256": "0" * 64}}]}
    yield Tampering("an older signature put beside it", b.data, b.signed(older, b.frozen.key), "signature")
    yield Tampering("the signature removed", b.data, None, "unsigned")
    yield Tampering("signed by another key", b.data, b.signed(statement, stranger), "unsigned")
    edited = json.loads(b.envelope)
    lie = {**statement, "predicate": {**statement["predicate"], "kind": "exploratory"}}
    edited["payload"] = base64.b64encode(canonical.dumps(lie)).decode()
    yield Tampering("the signed statement edited", b.data, canonical.dumps(edited), "signature")
    yield Tampering("a signed statement that says something else", b.data, b.signed(lie, b.frozen.key), "signature")
    yield Tampering("the signature in another form of the same number", b.data, _malleable(b.envelope), "signature")
    yield Tampering("the envelope torn", b.data, b.envelope[:-40], "signature")


def main(arguments: list[str]) -> int:
    """FOLDER: write the archives of all kinds, and kinds.json, for other judges (tools/oracles.py --tampered FOLDER)."""
    from tests.archives.conftest import frozen_at

    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, frozen_at(Path(place)) as frozen:
        names = {"the untouched archive": "untouched.tar"}
        shutil.copy(frozen.path, folder / "untouched.tar")
        (Path(place) / "forge").mkdir()
        for kind in kinds(frozen, Path(place) / "forge"):
            if kind.data != frozen.path.read_bytes():
                names[kind.kind] = f"{len(names)}.tar"
                (folder / names[kind.kind]).write_bytes(kind.data)
    (folder / "kinds.json").write_text(json.dumps(names, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
