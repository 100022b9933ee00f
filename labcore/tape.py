"""One deterministic tar: plain files in USTAR headers whose every byte follows from name, size and one date; read as strictly.

Reading never trusts a header: the whole list is checked, against the file's size, before any content is touched. What could
be written in another way (modes, owners, folders, links, long names, compression, padding) is refused, each with its own reason, so
that a list of names and contents has exactly one archive.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from labcore.errors import Refused

BLOCK, RECORD, PIECE = 512, 10240, 1 << 22
MAX_MEMBERS, MAX_SIZE = 4096, 8**11 - 1
PART = re.compile(r"[A-Za-z0-9._-]+")
KINDS = {
    "1": "a hard link", "2": "a symbolic link", "3": "a character device", "4": "a block device", "5": "a folder entry", "6": "a pipe",
    "7": "a contiguous file", "x": "a pax header", "g": "a global pax header", "L": "a GNU long name", "K": "a GNU long link",
    "S": "a GNU sparse file", "D": "a GNU folder dump", "M": "a continued volume", "V": "a volume label",
}  # fmt: skip
FORMS = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip",
    b"\x89HDF": "HDF5", b"7z\xbc\xaf": "7z",
}  # fmt: skip
FIELDS = (
    ("name", 0, 100), ("mode", 100, 108), ("owner", 108, 116), ("group", 116, 124), ("size", 124, 136), ("date", 136, 148),
    ("checksum", 148, 156), ("type", 156, 157), ("link", 157, 257), ("magic", 257, 265), ("owner's name", 265, 297),
    ("group's name", 297, 329), ("device", 329, 345), ("prefix", 345, 500), ("padding", 500, 512),
)  # fmt: skip


@dataclass(frozen=True)
class Member:
    """A file in the archive: its content is `size` bytes at `offset`."""

    name: str
    offset: int
    size: int


def header(name: str, size: int, date: int) -> bytes:
    """The one USTAR header of a plain file: mode 0644, owner 0, no names; `date` in seconds.

    >>> len(header("a/b", 3, 0))
    512
    """
    prefix, short = _split(name)
    if not 0 <= size <= MAX_SIZE:
        raise Refused(f"{name}: got {size} bytes; a tar of this form holds files up to {MAX_SIZE}")
    parts = [
        short.ljust(100, b"\0"), b"0000644\0", b"0000000\0", b"0000000\0", b"%011o\0" % size, b"%011o\0" % date, b" " * 8, b"0",
        bytes(100), b"ustar\x0000", bytes(32), bytes(32), bytes(16), prefix.ljust(155, b"\0"), bytes(12),
    ]  # fmt: skip
    block = b"".join(parts)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _split(name: str) -> tuple[bytes, bytes]:
    """Prefix and name: the name's field takes 100 bytes, the folders before it may go into 155 more."""
    data = name.encode("ascii")
    if len(data) <= 100:
        return b"", data
    cut = data.rfind(b"/", 0, 156)
    if cut < 0 or len(data) - cut - 1 > 100 or cut + 1 == len(data):
        raise Refused(f"{name}: got a name of {len(data)} bytes; wanted at most 155 of folders and 100 behind the last of them")
    return data[:cut], data[cut + 1 :]


def padding(size: int, unit: int = BLOCK) -> int:
    """Bytes from `size` to the next multiple of `unit`."""
    return -size % unit


def write(out: IO[bytes], members: Mapping[str, bytes | Path], date: int) -> None:
    """Write the archive of these names and contents; files given as paths are read in pieces."""
    check_names(sorted(members), "the archive")
    total = 0
    for name in sorted(members):
        content = members[name]
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        out.write(header(name, size, date))
        if isinstance(content, bytes):
            out.write(content)
        else:
            _copy(content, out, size)
        out.write(bytes(padding(size)))
        total += BLOCK + size + padding(size)
    out.write(bytes(2 * BLOCK + padding(total + 2 * BLOCK, RECORD)))


def _copy(path: Path, out: IO[bytes], size: int) -> None:
    with path.open("rb") as handle:
        left = size
        while left and (piece := handle.read(min(left, PIECE))):
            out.write(piece)
            left -= len(piece)
        if left or handle.read(1):
            raise Refused(f"{path}: changed while it was being read")


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse names that could leave the folder, meet each other on some file system, or stand out of order."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    before = ""
    for name in names:
        _check_name(name, where)
        folded = name.casefold()
        if folded in seen:
            twice = "stands twice" if seen[folded] == name else f"differs from {seen[folded]!r} in upper and lower case only"
            raise Refused(f"{where}: the name {name!r} {twice}; wanted each file once")
        if name < before:
            raise Refused(f"{where}: {name!r} comes after {before!r}; wanted the members sorted")
        before = seen[folded] = name
        for end in (place for place, letter in enumerate(name) if letter == "/"):
            first = folders.setdefault(folded[:end], name[:end])
            if first != name[:end]:
                raise Refused(f"{where}: the folders {first!r} and {name[:end]!r} differ in upper and lower case only")
    for folded, folder in folders.items():
        if folded in seen:
            raise Refused(f"{where}: {folder!r} is a file and a folder; wanted one of them")


def _check_name(name: str, where: str) -> None:
    shown = repr(name if len(name) <= 80 else name[:77] + "...")
    if not name:
        raise Refused(f"{where}: got a member without a name")
    if name.startswith("/"):
        raise Refused(f"{where}: got the absolute path {shown}; wanted a path inside the archive")
    if "\\" in name or ":" in name:
        raise Refused(f"{where}: got {shown}; a backslash or a colon leaves the folder on some systems")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise Refused(f"{where}: got {shown}; wanted a name without control characters")
    if not name.isascii():
        raise Refused(f"{where}: got {shown}; wanted ASCII letters, digits, '.', '_' and '-' in a name")
    for part in name.split("/"):
        if part == "..":
            raise Refused(f"{where}: got {shown}; a parent folder in a path leaves the archive")
        if part in ("", "."):
            raise Refused(f"{where}: got {shown}; wanted a path without empty parts or '.'")
        if not PART.fullmatch(part) or part.endswith(".") or len(part) > 100:
            raise Refused(f"{where}: got {shown}; wanted ASCII letters, digits, '.', '_' and '-' in a name, no '.' at its end")


def read(descriptor: int, where: str) -> tuple[list[Member], int]:
    """The members and their common date. Reads headers and padding only. Raises Refused at the first byte that is not canonical."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{where}: not a regular file; wanted an archive")
    size = status.st_size
    head = os.pread(descriptor, BLOCK, 0)
    if not head:
        raise Refused(f"{where}: an empty file; wanted an archive")
    for magic, form in FORMS.items():
        if head.startswith(magic):
            raise Refused(f"{where}: a {form} file; wanted an uncompressed tar")
    if size % RECORD:
        raise Refused(f"{where}: {size} bytes, no multiple of {RECORD}; the archive is cut, or bytes were added")
    members: list[Member] = []
    date, at = None, 0
    while True:
        block = os.pread(descriptor, BLOCK, at)
        if len(block) < BLOCK:
            raise Refused(f"{where}: ends at byte {at} without an end mark; the archive is cut")
        if not any(block):
            break
        member, stamp = _member(block, at, size, where)
        if date not in (None, stamp):
            raise Refused(f"{where}: {member.name}: got the date {stamp}; the members before have {date}")
        date = stamp
        members.append(member)
        if len(members) > MAX_MEMBERS:
            raise Refused(f"{where}: more than {MAX_MEMBERS} members")
        at = member.offset + member.size
        if any(os.pread(descriptor, padding(member.size), at)):
            raise Refused(f"{where}: {member.name}: bytes hidden in the padding behind it")
        at += padding(member.size)
    _end(descriptor, at, size, where)
    if not members:
        raise Refused(f"{where}: an archive without members")
    check_names([member.name for member in members], where)
    return members, date or 0


def _end(descriptor: int, at: int, size: int, where: str) -> None:
    wanted = at + 2 * BLOCK + padding(at + 2 * BLOCK, RECORD)
    if size != wanted:
        follow = any(os.pread(descriptor, min(size - wanted, PIECE), wanted)) if size > wanted else False
        raise Refused(
            f"{where}: {size} bytes; the members end the archive at {wanted}" + ("; bytes follow that are not zero" if follow else "")
        )
    if any(os.pread(descriptor, size - at, at)):
        raise Refused(f"{where}: bytes that are not zero behind the end mark")


def _member(block: bytes, at: int, size: int, where: str) -> tuple[Member, int]:
    if block[257:265] == b"ustar  \0":
        raise Refused(f"{where}: a GNU header at byte {at}; wanted USTAR")
    if block[257:265] != b"ustar\x0000":
        raise Refused(f"{where}: no USTAR header at byte {at}")
    blank = block[:148] + b" " * 8 + block[156:]
    if block[148:156] != b"%06o\0 " % sum(blank):
        raise Refused(f"{where}: the header at byte {at} does not have its checksum")
    try:
        prefix, short = (block[a:b].rstrip(b"\0").decode("ascii") for a, b in ((345, 500), (0, 100)))
    except UnicodeDecodeError:
        raise Refused(f"{where}: a name at byte {at} is not ASCII") from None
    name = f"{prefix}/{short}" if prefix else short
    kind = chr(block[156])
    if kind != "0":
        shown = repr(name if len(name) <= 80 else name[:77] + "...")
        raise Refused(f"{where}: {shown} is {KINDS.get(kind, f'of type {kind!r}')}; wanted plain files only")
    _check_name(name, where)
    numbers = {field: _octal(block[a:b], field, f"{where}: {name}") for field, a, b in FIELDS if field in ("size", "date")}
    wanted = header(name, numbers["size"], numbers["date"])
    for field, a, b in FIELDS:
        if block[a:b] != wanted[a:b] and field != "checksum":
            raise Refused(f"{where}: {name}: the header's {field} is {_shown(block[a:b])}; wanted {_shown(wanted[a:b])}")
    offset = at + BLOCK
    if offset + numbers["size"] > size:
        raise Refused(f"{where}: {name}: claims {numbers['size']} bytes; {size - offset} are left in the archive")
    return Member(name, offset, numbers["size"]), numbers["date"]


def _octal(data: bytes, field: str, where: str) -> int:
    if not re.fullmatch(rb"[0-7]{11}\0", data):
        raise Refused(f"{where}: the header's {field} is {_shown(data)}; wanted eleven octal digits")
    return int(data[:11], 8)


def _shown(data: bytes) -> str:
    text = repr(data.rstrip(b"\0"))[1:]
    return text if len(text) <= 60 else text[:57] + "..."
