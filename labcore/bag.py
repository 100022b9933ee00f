"""BagIt: write a 1.0 bag's tag files, and check any bag as strictly as the standard allows.

`check` judges a whole bag behind a `Files` (a folder, or an archive's members): it collects nothing and raises at the first
departure, naming the file. Source: RFC 8493. What the standard merely discourages (an unlisted tag file, MD5 alone) is accepted
here and refused by the archive's own rules (labcore/contents.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from labcore.errors import Refused

DECLARATION = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
ALGORITHMS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128}
ENCODINGS = ("UTF-8", "UTF-16", "ISO-8859-1", "US-ASCII")
MANIFEST = re.compile(r"(tag)?manifest-([a-z0-9]+)\.txt")
LIMIT = 16 << 20
ESCAPES = {"%0A": "\n", "%0D": "\r", "%25": "%"}


class Mismatch(Refused):
    """A file whose bytes are not those that a manifest names: the bag is well-formed, but not intact."""


class Files(Protocol):
    """What a bag is made of, by relative path."""

    def names(self) -> list[str]:
        """All files."""

    def read(self, name: str) -> bytes:
        """A small file's bytes; raises Refused where it is too large."""

    def digest(self, name: str, algorithm: str) -> str:
        """A file's digest in hex."""

    def size(self, name: str) -> int:
        """A file's bytes."""


@dataclass(frozen=True)
class Bag:
    """A checked bag: payload and tag files that a manifest covers, the algorithms, and bag-info's fields in order."""

    version: str
    payload: dict[str, str]
    tags: dict[str, str]
    algorithms: list[str]
    info: list[tuple[str, str]]


def tag_files(payload: Mapping[str, str], info: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """The tag files of a 1.0 bag over SHA-256 digests of the payload (paths begin with data/)."""
    text = "".join(f"{label}: {value}\n" for label, value in info)
    files = {"bagit.txt": DECLARATION, "bag-info.txt": text.encode(), "manifest-sha256.txt": manifest(payload)}
    files["tagmanifest-sha256.txt"] = manifest({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    return files


def manifest(digests: Mapping[str, str]) -> bytes:
    """A manifest's lines, sorted by path."""
    return "".join(f"{digest}  {_escape(name)}\n" for name, digest in sorted(digests.items())).encode()


def check(files: Files, where: str) -> Bag:
    """Judge a bag. Raises Refused where it is not valid, Mismatch where only a digest is wrong."""
    present = files.names()
    _apart(present, where)
    version, encoding = _declaration(files, present, where)
    if not any(name.startswith("data/") for name in present) and not _has_folder(files, "data"):
        raise Refused(f"{where}: no folder data/; wanted a payload, even an empty one")
    found = {name: match for name in present if "/" not in name and (match := MANIFEST.fullmatch(name))}
    for name, match in found.items():
        if match[2] not in ALGORITHMS:
            raise Refused(f"{where}: {name}: unknown algorithm {match[2]!r}; known: {', '.join(ALGORITHMS)}")
    payload = {match[2]: _lines(files, name, encoding, version, where) for name, match in found.items() if not match[1]}
    tags = {match[2]: _lines(files, name, encoding, version, where) for name, match in found.items() if match[1]}
    if not payload:
        raise Refused(f"{where}: no payload manifest (manifest-sha256.txt)")
    _fetch(files, present, encoding, where)
    here = {name for name in present if name.startswith("data/")}
    for algorithm, listed in sorted(payload.items()):
        name = f"manifest-{algorithm}.txt"
        _outside(listed, name, where)
        _complete(listed, here, name, where, whole=version == "1.0")
    covered = {path for listed in payload.values() for path in listed}
    for path in sorted(here - covered):
        raise Refused(f"{where}: {path}: stands in no payload manifest")
    for algorithm, listed in sorted(tags.items()):
        _tag_manifest(listed, f"tagmanifest-{algorithm}.txt", set(present), {name for name, m in found.items() if not m[1]}, version, where)
    info = _info(files, present, encoding, where)
    for kind, group in (("manifest", payload), ("tagmanifest", tags)):
        for algorithm, listed in sorted(group.items()):
            for path, digest in sorted(listed.items()):
                if files.digest(path, algorithm) != digest:
                    raise Mismatch(f"{where}: {path}: does not have the {algorithm.upper()} that {kind}-{algorithm}.txt names")
    _oxum(info, files, here, where)
    merged = {path: digest for listed in tags.values() for path, digest in listed.items()}
    best = max(payload, key=lambda name: ALGORITHMS[name])
    return Bag(version, payload[best], merged, sorted(payload), info)


def _has_folder(files: Files, name: str) -> bool:
    return isinstance(files, Folder) and (files.root / name).is_dir()


def _apart(names: Iterable[str], where: str) -> None:
    """Names that some file system takes for one another."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if first != name:
            raise Refused(f"{where}: {first!r} and {name!r} differ in case or in Unicode form only")


def _declaration(files: Files, present: list[str], where: str) -> tuple[str, str]:
    if "bagit.txt" not in present:
        raise Refused(f"{where}: no bagit.txt; not a bag")
    data = files.read("bagit.txt")
    if data.startswith(b"\xef\xbb\xbf"):
        raise Refused(f"{where}: bagit.txt: starts with a byte-order mark")
    try:
        lines = _split(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise Refused(f"{where}: bagit.txt: not UTF-8") from None
    wanted = (r"BagIt-Version: ?([0-9]+\.[0-9]+)", r"Tag-File-Character-Encoding: ?(\S+)")
    if len(lines) != 2:
        raise Refused(f"{where}: bagit.txt: got {len(lines)} lines; wanted the version and the encoding")
    values = []
    for line, form in zip(lines, wanted, strict=True):
        match = re.fullmatch(form, line)
        if not match:
            raise Refused(f"{where}: bagit.txt: got the line {line[:60]!r}; wanted {form.split(':')[0]}: ...")
        values.append(match[1])
    if values[0] not in ("0.97", "1.0"):
        raise Refused(f"{where}: bagit.txt: version {values[0]}; this reader knows 0.97 and 1.0")
    if values[0] == "1.0" and any(": " not in line for line in lines):
        raise Refused(f"{where}: bagit.txt: wanted a space behind the colon")
    if values[1].upper() not in ENCODINGS:
        raise Refused(f"{where}: bagit.txt: encoding {values[1]!r}; wanted one of {', '.join(ENCODINGS)}")
    return values[0], values[1].upper()


def _split(text: str) -> list[str]:
    """Lines ended by LF, CR or CRLF; nothing else ends a line."""
    lines = re.split(r"\r\n|\n|\r", text)
    return lines[:-1] if lines[-1] == "" else lines


def _text(files: Files, name: str, encoding: str, where: str) -> str:
    data = files.read(name)
    if encoding == "UTF-8" and data.startswith(b"\xef\xbb\xbf"):
        raise Refused(f"{where}: {name}: starts with a byte-order mark")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise Refused(f"{where}: {name}: not {encoding}, which bagit.txt declares") from None


def _lines(files: Files, name: str, encoding: str, version: str, where: str) -> dict[str, str]:
    """A manifest's path -> digest."""
    algorithm = MANIFEST.fullmatch(name)
    length = ALGORITHMS[algorithm[2]] if algorithm else 0
    listed: dict[str, str] = {}
    for number, line in enumerate(_split(_text(files, name, encoding, where)), 1):
        if line.strip() == "":
            continue
        match = re.fullmatch(r"([0-9A-Fa-f]+)[ \t]+(\*?)(.+)", line)
        if not match or len(match[1]) != length:
            raise Refused(f"{where}: {name} line {number}: wanted {length} hexadecimal digits, white space and a path")
        path = _unescape(match[3]) if version == "1.0" else match[3]
        path = path[2:] if path.startswith("./") else path
        _inside(path, f"{where}: {name} line {number}")
        if path in listed:
            raise Refused(f"{where}: {name}: {path!r} stands twice")
        listed[path] = match[1].lower()
    _apart(listed, f"{where}: {name}")
    return listed


def _escape(path: str) -> str:
    return path.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D")


def _unescape(path: str) -> str:
    return re.sub("%0A|%0D|%25", lambda match: ESCAPES[match[0].upper()], path, flags=re.IGNORECASE)


def _inside(path: str, where: str) -> None:
    if path.startswith(("/", "~")) or re.match("[A-Za-z]:", path) or "\\" in path or "\0" in path:
        raise Refused(f"{where}: got the path {path!r}; wanted one inside the bag")
    if not path or {"", ".", ".."} & set(path.split("/")):
        raise Refused(f"{where}: got the path {path!r}; wanted one without '.', '..' or empty parts")


def _outside(listed: Mapping[str, str], name: str, where: str) -> None:
    for path in listed:
        if not path.startswith("data/"):
            raise Refused(f"{where}: {name}: {path!r} lies outside of data/")


def _complete(listed: Mapping[str, str], here: set[str], name: str, where: str, *, whole: bool) -> None:
    for path in sorted(listed.keys() - here):
        raise Refused(f"{where}: {path}: is listed in {name}, but missing")
    for path in sorted(here - listed.keys()) if whole else ():
        raise Refused(f"{where}: {path}: is not listed in {name}")


def _tag_manifest(listed: Mapping[str, str], name: str, present: set[str], manifests: set[str], version: str, where: str) -> None:
    for path in sorted(listed):
        if path.startswith("data/"):
            raise Refused(f"{where}: {name}: lists {path!r}, which is payload")
        if path.startswith("tagmanifest-"):
            raise Refused(f"{where}: {name}: lists {path!r}; a tag manifest lists none of its kind")
        if path not in present:
            raise Refused(f"{where}: {path}: is listed in {name}, but missing")
    for path in sorted(manifests - listed.keys()) if version == "1.0" else ():
        raise Refused(f"{where}: {name}: does not list {path}")


def _fetch(files: Files, present: list[str], encoding: str, where: str) -> None:
    if "fetch.txt" not in present:
        return
    for number, line in enumerate(_split(_text(files, "fetch.txt", encoding, where)), 1):
        match = re.fullmatch(r"(\S+)[ \t]+([0-9]+|-)[ \t]+(.+)", line)
        if not match:
            raise Refused(f"{where}: fetch.txt line {number}: wanted an address, a length or '-', and a path")
        path = _unescape(match[3])
        _inside(path, f"{where}: fetch.txt line {number}")
        if not path.startswith("data/"):
            raise Refused(f"{where}: fetch.txt line {number}: {path!r} lies outside of data/")
        if path not in present:
            raise Refused(f"{where}: {path}: is to be fetched, and nothing is fetched here")


def _info(files: Files, present: list[str], encoding: str, where: str) -> list[tuple[str, str]]:
    if "bag-info.txt" not in present:
        return []
    fields: list[tuple[str, str]] = []
    for number, line in enumerate(_split(_text(files, "bag-info.txt", encoding, where)), 1):
        if line[:1] in (" ", "\t") and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.strip()}")
            continue
        match = re.fullmatch(r"([^\s:][^:]*?)[ \t]*:[ \t]*(.*)", line)
        if not match:
            raise Refused(f"{where}: bag-info.txt line {number}: got {line[:60]!r}; wanted 'Label: value'")
        fields.append((match[1], match[2]))
    return fields


def _oxum(info: list[tuple[str, str]], files: Files, here: set[str], where: str) -> None:
    sums = [value for label, value in info if label.lower() == "payload-oxum"]
    if len(sums) > 1:
        raise Refused(f"{where}: bag-info.txt: Payload-Oxum stands {len(sums)} times")
    for value in sums:
        wanted = f"{sum(files.size(name) for name in here)}.{len(here)}"
        if value != wanted:
            raise Refused(f"{where}: bag-info.txt: Payload-Oxum is {value!r}; the payload has {wanted}")


class Folder:
    """A bag's folder as `Files`: plain files only, no link followed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """All files; refuses links and special files."""
        found = []
        for folder, folders, names in os.walk(self.root, onerror=_raise):
            for path in (Path(folder, name) for name in [*folders, *names]):
                if path.is_symlink():
                    raise Refused(f"{self.root.name}: {path.relative_to(self.root)}: a symbolic link; wanted plain files")
                if path.is_file():
                    found.append(path.relative_to(self.root).as_posix())
                elif not path.is_dir():
                    raise Refused(f"{self.root.name}: {path.relative_to(self.root)}: not a plain file")
        return sorted(found)

    def read(self, name: str) -> bytes:
        """A tag file's bytes."""
        if self.size(name) > LIMIT:
            raise Refused(f"{self.root.name}: {name}: {self.size(name)} bytes; a tag file has at most {LIMIT}")
        return (self.root / name).read_bytes()

    def digest(self, name: str, algorithm: str) -> str:
        """A file's digest, read in pieces."""
        with (self.root / name).open("rb") as handle:
            return hashlib.file_digest(handle, algorithm).hexdigest()

    def size(self, name: str) -> int:
        """A file's bytes."""
        return (self.root / name).stat().st_size


def _raise(error: OSError) -> None:
    raise error
