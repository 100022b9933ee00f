"""The form of an HDF5 file, field by field: each number of a small file moved to where the reader must refuse it, and why it says so."""

import struct

import h5py
import numpy as np
import pytest

from audit.findings import Damaged
from audit.h5form import MAX_OBJECTS, Parser
from tests.audit.reseal import attribute


class File:
    """The bytes of a file with one array `block/array` [2, 3], and where its parts stand."""

    def __init__(self, path) -> None:
        with h5py.File(path, "w", libver="earliest") as file:
            item = file.create_dataset("block/array", data=np.arange(6.0).reshape(2, 3), track_times=False)
            attribute(item, "axes", "case x")
            attribute(item, "unit", "1")
            self.array = h5py.h5o.get_info(item.id).addr
            self.group = h5py.h5o.get_info(file["block"].id).addr
        self.data = path.read_bytes()
        self.tree, self.heap = struct.unpack_from("<QQ", self.data, self.group + 24)
        self.leaf = struct.unpack_from("<Q", self.data, self.tree + 32)[0]

    def message(self, kind: int) -> int:
        """Where the first message of a kind begins in the array's header."""
        at = self.array + 16
        while struct.unpack_from("<H", self.data, at)[0] != kind:
            at += 8 + struct.unpack_from("<H", self.data, at + 2)[0]
        return at

    def with_(self, at: int, form: str, *values: object) -> bytes:
        part = struct.pack(form, *values)
        return self.data[:at] + part + self.data[at + len(part) :]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return File(tmp_path_factory.mktemp("h5") / "arrays.h5")


def parse(data: bytes):
    return Parser("arrays.h5", len(data), lambda offset, count: data[offset : offset + count]).blocks()


def refused(data: bytes, text: str, rule: str = "S113") -> None:
    with pytest.raises(Damaged) as caught:
        parse(data)
    assert text in caught.value.text and caught.value.rule == rule


def test_the_file_itself_is_fine(file):
    item = parse(file.data)["block"]["array"]
    assert (item.dtype, item.shape, item.attributes) == ("<f8", (2, 3), {"axes": "case x", "unit": "1"})


@pytest.mark.parametrize("at", range(8, 16))
def test_superblock_versions_and_sizes(file, at):
    refused(file.with_(at, "<B", file.data[at] + 1), "superblock 0")


@pytest.mark.parametrize(("at", "text"), [(24, "user block"), (32, "user block"), (40, "its superblock says"), (48, "user block")])
def test_superblock_addresses(file, at, text):
    refused(file.with_(at, "<Q", 8), text)


def test_a_file_of_less_than_a_superblock(file):
    refused(file.data[:95], "not an HDF5 file", "S119")
    refused(file.data[:96], "says")


@pytest.mark.parametrize("at", [1 << 40, (1 << 64) - 1])
def test_addresses_beyond_the_end(file, at):
    for place in (64, file.group + 24, file.group + 32, file.tree + 32):
        refused(file.with_(place, "<Q", at), "are not there", "S119")


def test_object_headers(file):
    refused(file.with_(file.array, "<B", 2), "version 1")
    refused(file.with_(file.array + 4, "<I", 2), "2 links to one object")
    count = struct.unpack_from("<H", file.data, file.array + 2)[0]
    for wrong in (count - 1, count + 1):
        refused(file.with_(file.array + 2, "<H", wrong), "number of messages")
    length = struct.unpack_from("<I", file.data, file.array + 8)[0]
    refused(file.with_(file.array + 8, "<I", length - 4), "cut")
    refused(file.with_(file.array + 8, "<I", length + 4), "cut")
    refused(file.with_(file.array + 8, "<I", 1 << 30), "are not there", "S119")
    refused(file.with_(file.message(0x0C) + 2, "<H", 60_000), "cut")


def test_a_continuation_is_followed_and_counted(file):
    """The last message, padding, is made a continuation to a copy of the shape's message behind everything."""
    shape = file.message(0x01)
    more = file.data[shape : shape + 8 + struct.unpack_from("<H", file.data, shape + 2)[0]]
    padding = file.message(0x00)
    data = file.with_(padding, "<H6xQQ", 0x10, len(file.data), len(more))
    data = data[: padding + 2] + file.data[padding + 2 : padding + 8] + data[padding + 8 :]
    end = len(data) + len(more)
    data = data[:40] + struct.pack("<Q", end) + data[48:] + more
    refused(data, "number of messages")
    count = struct.unpack_from("<H", data, file.array + 2)[0]
    refused(data[: file.array + 2] + struct.pack("<H", count + 1) + data[file.array + 4 :], "only a plain contiguous array")
    itself = struct.pack("<HH4xQQ", 0x10, len(more) - 8, len(file.data), len(more)) + more[24:]
    refused(data[: -len(more)] + itself, "too many")


def test_groups(file):
    refused(file.with_(file.group + 16, "<H", 0x02), "new-style group")
    refused(file.with_(file.group + 16, "<H", 0x0C), "message 0xc")
    refused(file.with_(file.tree, "<4s", b"TREX"), "tree of links")
    refused(file.with_(file.tree + 4, "<B", 1), "tree of links")
    refused(file.with_(file.tree + 5, "<B", 9), "tree of links")
    refused(file.with_(file.tree + 5, "<B", 8), "")  # a leaf is no node
    refused(file.with_(file.leaf, "<4s", b"SNOX"), "table of links")
    refused(file.with_(file.leaf + 4, "<B", 2), "table of links")
    refused(file.with_(file.heap, "<4s", b"HEAX"), "heap of names")
    refused(file.with_(file.leaf + 6, "<H", 2), "", "S113")
    refused(file.with_(file.leaf + 24, "<I", 2), "a soft link")
    length = struct.unpack_from("<Q", file.data, file.heap + 8)[0]
    for at in (length, length + 1, 1 << 60):
        refused(file.with_(file.leaf + 8, "<Q", at), "a name is cut")


def test_a_tree_of_itself_ends(file):
    node = file.with_(file.tree + 5, "<B", 1)
    refused(node[: file.tree + 32] + struct.pack("<Q", file.tree) + node[file.tree + 40 :], "linked twice")


def test_a_leaf_of_two_nodes_is_refused(file):
    two = file.with_(file.tree + 6, "<H", 2)
    refused(two[: file.tree + 48] + struct.pack("<Q", file.leaf) + two[file.tree + 56 :], "linked twice")


def test_shapes(file):
    at = file.message(0x01) + 8
    refused(file.with_(at, "<B", 2), "shape's message")
    refused(file.with_(at + 1, "<B", 17), "shape's message")
    refused(file.with_(at + 1, "<B", 3), "shape's message")
    refused(file.with_(at + 2, "<B", 2), "shape's message")
    refused(file.with_(at + 24, "<Q", 9), "may grow")
    refused(file.with_(at + 24, "<Q", (1 << 64) - 1), "may grow")
    refused(file.with_(at + 2, "<B8xQ", 0, 5)[: at + 8] + struct.pack("<Q", 5) + file.data[at + 16 :], "")
    fixed = parse(file.with_(at + 2, "<B", 0))["block"]["array"]
    assert fixed.shape == (2, 3)


def test_layouts(file):
    at = file.message(0x08) + 8
    refused(file.with_(at, "<B", 4), "layout's message")
    for kind, name in ((0, "compact"), (2, "chunked"), (3, "virtual"), (9, "virtual")):
        refused(file.with_(at + 1, "<B", kind), name)
    for wrong in (47, 49, 0):
        refused(file.with_(at + 10, "<Q", wrong), "48 inside the file")


@pytest.mark.parametrize(("place", "value"), [(0, 0x21), (1, 0x21), (4, 4), (8, 1), (10, 63), (12, 0), (16, 0)])
def test_a_type_is_known_byte_by_byte(file, place, value):
    refused(file.with_(file.message(0x03) + 8 + place, "<B", value), "none of the ten")


def test_messages_that_a_dataset_needs(file):
    for kind in (0x01, 0x03, 0x08):
        refused(file.with_(file.message(kind), "<H", 0x00), "not a dataset")


def test_attributes(file):
    at = file.message(0x0C) + 8
    for version in (0, 2, 3):
        refused(file.with_(at, "<B", version), "another version")
    refused(file.with_(at + 4, "<H", 7), "not one text")
    refused(file.with_(at + 16, "<B", 0x11), "fixed-length UTF-8")
    refused(file.with_(at + 17, "<B", 0x12), "fixed-length UTF-8")
    refused(file.with_(at + 20, "<I", 0), "not one text")
    refused(file.with_(at + 20, "<I", 1000), "not one text")
    refused(file.with_(at + 24, "<B", 2), "not one text")
    refused(file.with_(at + 25, "<B", 1), "not one text")
    padded = parse(file.with_(at + 17, "<B", 0x10))["block"]["array"]
    assert padded.attributes["axes"] == "case x"


def test_more_objects_than_anyone_lists():
    parser = Parser("arrays.h5", 1 << 20, lambda offset, count: struct.pack("<BxHII4x", 1, 0, 1, 0)[:count])
    for number in range(MAX_OBJECTS):
        assert parser.messages(16 * number, "x") == []
    with pytest.raises(Damaged, match="more than 20000 objects") as caught:
        parser.messages(16 * MAX_OBJECTS, "x")
    assert caught.value.rule == "S119"
