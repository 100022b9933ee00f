"""What stands in an archive of format 1, and which of it follows from the rest. Shared by freezing and by checking.

<experiment>-<run>[.draft]/bagit.txt, bag-info.txt, manifest-sha256.txt, tagmanifest-sha256.txt
.../data/<experiment>/<run>/    the run's folder: sealed/, audit.json (as judged outside of any repository), figures/
.../data/auditor/audit/         the auditor's sources, as far as this experiment's audit imports them
.../data/                       archive.json, protocol.json, FORMAT.md, LICENSE, README.txt, verify.py, CITATION.cff,
                                .zenodo.json, datacite.json, ro-crate-metadata.json
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labcore import bag, canonical, metadata, provenance, swhid
from labcore.errors import Refused
from labcore.metadata import Facts

FORMAT = "1"
TAGS = ("bagit.txt", "bag-info.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt")
FIXED = ("FORMAT.md", "LICENSE", "verify.py")
GENERATED = ("archive.json", "protocol.json", "README.txt", "CITATION.cff", ".zenodo.json", "datacite.json", "ro-crate-metadata.json")
TOP = re.compile(r"([0-9]{2}_[a-z0-9_]+)-([0-9a-f]{12})(\.draft)?")
FIGURE = re.compile(r"figures/[A-Za-z0-9._-]+\.(svg|png)")
AUDITOR = re.compile(r"auditor/audit/([a-z0-9_]+/)?[A-Za-z0-9_]+\.py")

README = """{title}

{summary}

This folder is a BagIt 1.0 bag. Its evidence lies in data/{experiment}/{run}; data/FORMAT.md says what every byte of it means.

Without the suite:  python3 data/verify.py      (needs NumPy and h5py; it runs the auditor in data/auditor, so read that first)
With the suite:     make verify FILE=ARCHIVE    (runs nothing that lies in the archive)

A matching digest says that no byte changed since the digests were made, not who made them. A signature says who vouches for
the archive. An audit says that the reported numbers follow from the stored arrays, and the arrays from seeds and inputs.
"""


def top(facts: Facts) -> str:
    """The archive's one folder, and its file's name without .tar."""
    return f"{facts.experiment}-{facts.run}{'.draft' if facts.draft else ''}"


def seconds(facts: Facts) -> int:
    """The date of all members: the run's end."""
    end = str(facts.manifest["recorded"]["end"])
    try:
        return calendar.timegm(time.strptime(end, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        raise Refused(f"manifest.json: recorded.end: got {end[:40]!r}; wanted a time such as 2026-01-31T12:00:00Z") from None


def generated(facts: Facts, others: Mapping[str, tuple[int, str]], auditor: str) -> dict[str, bytes]:
    """The files in data/ that follow from the rest. others: path in data/ -> size, SHA-256; auditor: SWHID of data/auditor."""
    manifest = canonical.dumps(facts.manifest)
    files = {
        "archive.json": canonical.dumps(
            {
                "format": FORMAT,
                "experiment": facts.experiment,
                "run": facts.run,
                "draft": facts.draft,
                "auditor": {"version": facts.audit["auditor"]["version"], "swhid": auditor},
                "sealed": {"swhid": facts.sealed, "manifest": canonical.sha256(manifest)},
            }
        ),
        "protocol.json": canonical.dumps(facts.manifest["protocol"]["resolved"]),
        "README.txt": README.format(title=facts.title, summary=facts.summary, experiment=facts.experiment, run=facts.run).encode(),
        "CITATION.cff": metadata.citation_cff(facts),
        ".zenodo.json": metadata.zenodo(facts),
        "datacite.json": metadata.datacite(facts),
    }
    listed = {**others, **{name: (len(data), canonical.sha256(data)) for name, data in files.items()}}
    files["ro-crate-metadata.json"] = metadata.crate(facts, listed)
    return files


def tag_files(facts: Facts, payload: Mapping[str, tuple[int, str]]) -> dict[str, bytes]:
    """The bag's tag files. payload: path from data/ on -> size, SHA-256."""
    info = [
        ("Source-Organization", metadata.AUTHORS),
        ("External-Description", facts.title),
        ("External-Identifier", facts.sealed),
        ("Bagging-Date", facts.day),
        ("Payload-Oxum", f"{sum(size for size, _ in payload.values())}.{len(payload)}"),
        ("Bag-Software-Agent", f"archive format {FORMAT}"),
    ]
    return bag.tag_files({name: digest for name, (_, digest) in payload.items()}, info)


def assemble(run: Path, root: Path, facts: Facts, audit: bytes) -> dict[str, bytes | Path]:
    """All members of the archive of a run's folder: name -> bytes, or the file that holds them."""
    place = f"{facts.experiment}/{facts.run}"
    files: dict[str, bytes | Path] = {f"{place}/sealed/{path.name}": path for path in sorted((run / "sealed").iterdir())}
    files |= {f"{place}/figures/{path.name}": path for path in sorted((run / "figures").glob("*"))}
    for path in files.values():
        if isinstance(path, Path) and (path.is_symlink() or not path.is_file()):
            raise Refused(f"{path}: a link or special file; wanted plain files")
    files[f"{place}/audit.json"] = audit
    files |= {f"auditor/{name}": data for name, data in auditor(root, facts.experiment).items()}
    files |= fixed(root)
    check_payload(files, facts.manifest, facts.experiment, facts.run, run.name)
    described = {name: (_size(content), _sha256(content)) for name, content in files.items()}
    own = swhid.directory({name[8:]: swhid.content(_bytes(data)) for name, data in files.items() if name.startswith("auditor/")})
    files |= generated(facts, described, own)
    payload = {f"data/{name}": content for name, content in files.items()}
    tags = tag_files(facts, {name: described.get(name[5:]) or (_size(c), _sha256(c)) for name, c in payload.items()})
    return {f"{top(facts)}/{name}": content for name, content in {**payload, **tags}.items()}


def fixed(root: Path) -> dict[str, bytes]:
    """The files that are the same in all archives of one format."""
    places = {"FORMAT.md": root / "evidence" / "FORMAT.md", "LICENSE": root / "LICENSE", "verify.py": root / "labcore/frozen/verify.py"}
    return {name: path.read_bytes() for name, path in places.items()}


def auditor(root: Path, experiment: str) -> dict[str, bytes]:
    """The auditor's files that an audit of this experiment imports: path from audit/ on -> bytes."""
    waiting = ["audit.__main__", f"audit.derive.e{experiment[:2]}"]
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        parts = module.split(".")
        packages = [root.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts) + 1)]
        for path in [*packages, root.joinpath(*parts).with_suffix(".py")]:
            name = path.relative_to(root).as_posix()
            if path.is_file() and name not in found:
                found[name] = path.read_bytes()
                waiting += [other for other in provenance.imports(found[name], name) if other.split(".")[0] == "audit"]
    return dict(sorted(found.items()))


def check_payload(names: Mapping[str, Any], manifest: Mapping[str, Any], experiment: str, run: str, where: str) -> None:
    """Refuse a payload that lacks a file of the format, or holds one that the format does not know. names: paths in data/."""
    place = f"{experiment}/{run}/"
    needed = {f"{place}sealed/manifest.json", f"{place}audit.json", "auditor/audit/__main__.py", *FIXED}
    needed |= {f"{place}sealed/{name}" for name in manifest.get("files", {})}
    for name in sorted(needed - names.keys()):
        raise Refused(f"{where}: data/{name}: is missing; an archive of format {FORMAT} holds it")
    for name in sorted(names.keys() - needed - set(GENERATED)):
        inner = name.removeprefix(place)
        if not (AUDITOR.fullmatch(name) or (inner != name and FIGURE.fullmatch(inner))):
            raise Refused(f"{where}: data/{name}: is no file of an archive of format {FORMAT}")


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _sha256(content: bytes | Path) -> str:
    return canonical.sha256(content) if isinstance(content, bytes) else canonical.sha256_file(content)


def _bytes(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def sealed_swhid(sealed: Path) -> str:
    """The SWHID of a sealed folder on the disk."""
    return swhid.directory({path.name: _blob(path) for path in sorted(sealed.iterdir())})


def _blob(path: Path) -> str:
    digest = swhid.start(path.stat().st_size)
    with path.open("rb") as handle:
        while piece := handle.read(1 << 22):
            digest.update(piece)
    return str(digest.hexdigest())
