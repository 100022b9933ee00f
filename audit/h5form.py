"""The form of an HDF5 file (FORMAT 4), read without the HDF5 library.

Only what the contract allows is understood: superblock 0, old-style groups, contiguous datasets of ten types, two text attributes.
Whatever else the file holds is refused by name before any of it is followed, so a hostile file meets a reader that has no plugins,
links, filters or external storage at all. Source of the layout: the HDF5 file format specification, version 1.1 objects.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from audit.findings import Damaged

UNDEFINED = 0xFFFFFFFFFFFFFFFF
SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAX_OBJECTS = 20_000
MAX_MESSAGES = 64
MAX_PIECE = 1 << 20
"""No piece of metadata may claim more bytes than this."""

TYPES: dict[bytes, str] = {
    bytes.fromhex("11203f000800000000004000340b0034ff03000000000000"): "<f8",
    bytes.fromhex("11201f000400000000002000170800177f00000000000000"): "<f4",
}
for _size in (1, 2, 4, 8):
    for _sign, _letter in ((0x08, "i"), (0x00, "u")):
        _key = struct.pack("<BBBBIHHxxxx", 0x10, _sign, 0, 0, _size, 0, 8 * _size)
        TYPES[_key] = ("|" if _size == 1 else "<") + _letter + str(_size)

MESSAGES = {
    0x02: "a new-style group",
    0x06: "a link message",
    0x07: "external storage",
    0x0A: "a new-style group",
    0x0B: "a filter",
    0x0E: "an old modification time",
    0x12: "a modification time",
    0x15: "dense attributes",
}
CLASSES = {
    0: "an integer of another form", 1: "a float of another form", 2: "a time", 3: "a text", 4: "a bit field", 5: "opaque", 6: "compound",
    7: "a reference", 8: "an enumeration", 9: "of variable length", 10: "an array",
}  # fmt: skip
Read = Callable[[int, int], bytes]


@dataclass(slots=True)
class Dataset:
    """Where a dataset lies and what its header says."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    attributes: dict[str, str] = field(default_factory=dict)


class Parser:
    """Walks one file from its superblock; every read is checked against the file's size."""

    def __init__(self, name: str, size: int, read: Read) -> None:
        self.name, self.size, self._read = name, size, read
        self.objects: set[int] = set()

    def refuse(self, text: str, where: str = "") -> Damaged:
        """The finding that the form is not that of section 4."""
        return Damaged("S113", f"{self.name}{':' + where if where else ''}", text)

    def piece(self, offset: int, count: int) -> bytes:
        """`count` bytes at `offset`, or Damaged (S119) where the file does not have them."""
        if count > MAX_PIECE or offset + count > self.size:
            raise Damaged("S119", self.name, f"{count} bytes of metadata at {offset} are not there: {self.size} bytes in all")
        return self._read(offset, count)

    def blocks(self) -> dict[str, dict[str, Dataset]]:
        """Group -> dataset name -> dataset, in the file's order."""
        head = self.piece(0, min(self.size, 96))
        if len(head) < 96 or head[:8] != SIGNATURE:
            if any(self._read(at, 8) == SIGNATURE for at in (512, 1024, 2048, 4096) if at + 8 <= self.size):
                raise self.refuse("a user block")
            raise Damaged("S119", self.name, "not an HDF5 file")
        if head[8:16] != bytes((0, 0, 0, 0, 0, 8, 8, 0)):
            raise self.refuse("superblock 0 with addresses of 8 bytes is wanted")
        base, free, end, driver = struct.unpack_from("<QQQQ", head, 24)
        if base != 0 or free != UNDEFINED or driver != UNDEFINED:
            raise self.refuse("a user block, free-space or driver information")
        if end != self.size:
            raise self.refuse(f"the file has {self.size} bytes, its superblock says {end}")
        root = struct.unpack_from("<Q", head, 64)[0]
        result: dict[str, dict[str, Dataset]] = {}
        for group, address in self.members(root, "/"):
            result[group] = {}
            for name, place in self.members(address, group):
                result[group][name] = self.dataset(place, f"{group}/{name}")
        self._apart(result)
        return result

    def _apart(self, blocks: dict[str, dict[str, Dataset]]) -> None:
        """No two datasets may share bytes."""
        spans = sorted(
            (item.offset, item.nbytes, f"{g}/{n}") for g, members in blocks.items() for n, item in members.items() if item.nbytes
        )
        for (start, count, first), (following, _, second) in itertools.pairwise(spans):
            if start + count > following:
                raise self.refuse(f"shares bytes with {second}", first)

    def _once(self, address: int, where: str) -> None:
        """No object and no node of a tree stands in two places, so every walk ends."""
        if address in self.objects:
            raise self.refuse("linked twice", where)
        self.objects.add(address)
        if len(self.objects) > MAX_OBJECTS:
            raise Damaged("S119", self.name, f"more than {MAX_OBJECTS} objects")

    def messages(self, address: int, where: str) -> list[tuple[int, bytes]]:
        """The messages of an object header, those of its continuations included."""
        self._once(address, where)
        version, count, links, length = struct.unpack("<BxHII4x", self.piece(address, 16))
        if version != 1:
            raise self.refuse("not an object header of version 1", where)
        if links != 1:
            raise self.refuse(f"{links} links to one object", where)
        spans: list[tuple[int, int]] = [(address + 16, length)]
        found: list[tuple[int, bytes]] = []
        for place, size in spans:
            data, at = self.piece(place, size), 0
            while at < size:
                if at + 8 > size:
                    raise self.refuse("a message is cut", where)
                kind, extent = struct.unpack_from("<HH", data, at)
                body = data[at + 8 : at + 8 + extent]
                if len(body) != extent or len(found) > MAX_MESSAGES or len(spans) > MAX_MESSAGES:
                    raise self.refuse("a message is cut, or there are too many", where)
                if kind == 0x10:
                    spans.append(struct.unpack("<QQ", body[:16].ljust(16, b"\0")))
                if kind not in (0x10, 0x00):
                    found.append((kind, body))
                count -= 1
                at += 8 + extent
        if count != 0:
            raise self.refuse("the number of messages is wrong", where)
        return found

    def members(self, address: int, where: str) -> list[tuple[str, int]]:
        """Names and object addresses in a group."""
        found = self.messages(address, where)
        if [kind for kind, _ in found] != [0x11]:
            others = [MESSAGES.get(kind, f"message {kind:#x}") for kind, _ in found if kind != 0x11]
            raise self.refuse(f"a group that is only links is wanted; got {', '.join(others) or 'no links'}", where)
        if len(found[0][1]) != 16:
            raise self.refuse("a group's message is not of its size", where)
        tree, heap = struct.unpack("<QQ", found[0][1])
        tag, size, _, data = struct.unpack("<8sQQQ", self.piece(heap, 32))
        if tag != b"HEAP\0\0\0\0":
            raise self.refuse("no heap of names", where)
        names = self.piece(data, size)
        result: list[tuple[str, int]] = []
        self._tree(tree, names, where, result, 9)
        if [name for name, _ in result] != sorted({name for name, _ in result}, key=str.encode):
            raise self.refuse("names are not sorted, or stand twice", where)
        return result

    def _tree(self, address: int, names: bytes, where: str, result: list[tuple[str, int]], above: int) -> None:
        self._once(address, where)
        tag, kind, level, used = struct.unpack("<4sBBH16x", self.piece(address, 24))
        if tag != b"TREE" or kind != 0 or level >= above:
            raise self.refuse("the tree of links is damaged", where)
        for place in range(used):
            child = struct.unpack("<8xQ", self.piece(address + 24 + 16 * place, 16))[0]
            if level:
                self._tree(child, names, where, result, level)
            else:
                self._leaf(child, names, where, result)

    def _leaf(self, address: int, names: bytes, where: str, result: list[tuple[str, int]]) -> None:
        self._once(address, where)
        tag, used = struct.unpack("<6sH", self.piece(address, 8))
        if tag != b"SNOD\x01\0":
            raise self.refuse("the table of links is damaged", where)
        table = self.piece(address + 8, 40 * used)
        for entry in range(used):
            at, target, cache = struct.unpack_from("<QQI", table, 40 * entry)
            stop = names.find(b"\0", at)
            if at >= len(names) or stop < 0:
                raise self.refuse("a name is cut", where)
            try:
                name = names[at:stop].decode("ascii")
            except UnicodeDecodeError:
                raise self.refuse("a name is not ASCII", where) from None
            if cache == 2:
                raise self.refuse("a soft link", f"{where}/{name}")
            if len(result) > MAX_OBJECTS:
                raise Damaged("S119", self.name, f"more than {MAX_OBJECTS} links")
            result.append((name, target))

    def dataset(self, address: int, where: str) -> Dataset:
        """The dataset at `address`."""
        parts: dict[int, bytes] = {}
        attributes: dict[str, str] = {}
        for kind, body in self.messages(address, where):
            if kind == 0x0C:
                name, text = self._attribute(body, where)
                if name in attributes:
                    raise self.refuse(f"the attribute {name!r} stands twice", where)
                attributes[name] = text
            elif kind in (0x01, 0x03, 0x05, 0x08) and kind not in parts:
                parts[kind] = body
            else:
                raise self.refuse(f"only a plain contiguous array is wanted; got {MESSAGES.get(kind, f'message {kind:#x}')}", where)
        if not {0x01, 0x03, 0x08} <= parts.keys():
            raise self.refuse("not a dataset", where)
        dtype = TYPES.get(parts[0x03])
        if dtype is None:
            got = "shared" if not parts[0x03] else CLASSES.get(parts[0x03][0] & 15, "unknown")
            raise self.refuse(f"a type that is none of the ten little-endian numbers: {got}", where)
        shape = self._shape(parts[0x01], where)
        offset, nbytes = self._layout(parts[0x08], where)
        wanted = int(dtype[2])
        for size in shape:
            wanted *= size
        if nbytes != wanted or (nbytes and (offset < 96 or offset + nbytes > self.size)):
            raise self.refuse(f"stored in {nbytes} bytes at {offset}; {wanted} inside the file are wanted", where)
        return Dataset(dtype, shape, offset if nbytes else 0, nbytes, attributes)

    def _shape(self, body: bytes, where: str) -> tuple[int, ...]:
        version, rank, flags = body[:3].ljust(3, b"\xff")
        if version != 1 or flags not in (0, 1) or rank > 16 or len(body) < 8 + 8 * rank * (1 + flags):
            raise self.refuse("the shape's message is damaged or of another version", where)
        sizes = struct.unpack_from(f"<{rank}Q", body, 8)
        if flags and struct.unpack_from(f"<{rank}Q", body, 8 + 8 * rank) != sizes:
            raise self.refuse("the shape may grow", where)
        return sizes

    def _layout(self, body: bytes, where: str) -> tuple[int, int]:
        if body[:1] != b"\x03" or len(body) < 18:
            raise self.refuse("the layout's message is damaged or of another version", where)
        if body[1] != 1:
            raise self.refuse(f"the layout is {('compact', 'contiguous', 'chunked', 'virtual')[min(body[1], 3)]}, not contiguous", where)
        offset, nbytes = struct.unpack_from("<QQ", body, 2)
        if offset == UNDEFINED and nbytes:
            raise self.refuse("declared, but never written", where)
        return offset, nbytes

    def _attribute(self, body: bytes, where: str) -> tuple[str, str]:
        if len(body) < 8 or body[0] != 1:
            raise self.refuse("an attribute of another version", where)
        sizes = struct.unpack_from("<HHH", body, 2)
        parts, at = [], 8
        for size in sizes:
            parts.append(body[at : at + size])
            at += (size + 7) // 8 * 8
        name, kind, space = parts
        length = struct.unpack_from("<I", kind, 4)[0] if len(kind) == 8 else 0
        text = body[at : at + length]
        if kind[:4] != b"\x13\x11\0\0" and kind[:4] != b"\x13\x10\0\0":
            raise self.refuse(f"the attribute {name!r} is not a fixed-length UTF-8 text", where)
        if space != b"\x01" + bytes(7) or len(text) != length or length == 0:
            raise self.refuse(f"the attribute {name!r} is not one text", where)
        try:
            return name.rstrip(b"\0").decode("ascii"), (b"" if text == b"\0" else text).decode("utf-8")
        except UnicodeDecodeError:
            raise self.refuse("an attribute is not UTF-8", where) from None
