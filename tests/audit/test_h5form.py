"""The reader of HDF5's form against the HDF5 library, and against bytes changed at random."""

import random
import struct

import h5py
import numpy as np
import pytest

from audit.findings import Damaged
from audit.h5form import Parser
from tests.audit.reseal import attribute

DTYPES = ["<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1"]


def parse(data: bytes):
    return Parser("arrays.h5", len(data), lambda offset, count: data[offset : offset + count]).blocks()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file with more links than one node holds, all dtypes, empty and scalar arrays."""
    target = tmp_path_factory.mktemp("h5") / "arrays.h5"
    rng = np.random.default_rng(5)
    with h5py.File(target, "w", libver="earliest") as file:
        for block in range(23):
            group = file.create_group(f"block{block:02}")
            for array in range(317 if block == 7 else block % 13):
                shape = tuple(rng.integers(0 if array % 7 == 3 else 1, 4, size=array % 5))
                values = np.asarray(rng.integers(0, 100, size=shape)).astype(DTYPES[array % 10])
                item = group.create_dataset(f"a{array:03}", data=values, track_times=False)
                attribute(item, "axes", " ".join(["é"] * len(shape)))
                attribute(item, "unit", "1" * (array % 9))
    return target


def test_agrees_with_the_library(path):
    data = path.read_bytes()
    blocks = parse(data)
    with h5py.File(path) as file:
        assert list(blocks) == list(file)
        for name, members in blocks.items():
            assert list(members) == list(file[name])
            for array, item in members.items():
                there = file[name][array]
                assert (item.dtype, item.shape, item.nbytes) == (there.dtype.str, there.shape, there.nbytes)
                assert data[item.offset : item.offset + item.nbytes] == there[()].tobytes()
                assert item.attributes == {key: there.attrs[key].decode() for key in there.attrs}


def test_every_cut_is_refused(path):
    data = path.read_bytes()
    for length in [0, 1, 7, 8, 95, 96, 97, 500, len(data) // 2, len(data) - 1]:
        with pytest.raises(Damaged):
            parse(data[:length])


def test_changed_bytes_are_refused_or_read_inside_the_file(tmp_path):
    """No change of a byte makes the reader fail otherwise, or hand out a span beyond the end."""
    path = tmp_path / "small.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        item = file.create_dataset("block/array", data=np.arange(6.0).reshape(2, 3), track_times=False)
        attribute(item, "axes", "case x")
        attribute(item, "unit", "1")
    data = path.read_bytes()
    rng = random.Random(3)
    refused = 0
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] = rng.randrange(256)
        try:
            for members in parse(bytes(changed)).values():
                for item in members.values():
                    assert item.offset >= 0 and item.offset + item.nbytes <= len(data)
        except Damaged as error:
            refused += error.rule in ("S113", "S119")
    assert refused > 400


@pytest.fixture
def small(tmp_path):
    """One array of 48 bytes; (bytes of the file, where its address stands, its address)."""
    path = tmp_path / "small.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        item = file.create_dataset("block/array", data=np.arange(6.0), track_times=False)
        attribute(item, "axes", "case")
        attribute(item, "unit", "1")
        offset = item.id.get_offset()
    data = path.read_bytes()
    return data, data.index(struct.pack("<QQ", offset, 48)), offset


def moved(small, at):
    data, place, _ = small
    return parse(data[:place] + struct.pack("<Q", at) + data[place + 8 :])


def test_an_array_lies_behind_the_superblock_and_inside_the_file(small):
    size = len(small[0])
    for at in (96, small[2], size - 48):
        assert moved(small, at)["block"]["array"].offset == at
    for at in (0, 95, size - 47, size, 1 << 62, (1 << 64) - 2):
        with pytest.raises(Damaged, match="inside the file"):
            moved(small, at)
    with pytest.raises(Damaged, match="never written"):
        moved(small, (1 << 64) - 1)


def test_a_user_block_is_named_as_such(small):
    for length in (512, 1024, 2048, 4096):
        with pytest.raises(Damaged, match="a user block"):
            parse(bytes(length) + small[0])
        with pytest.raises(Damaged, match="not an HDF5 file"):
            parse(bytes(length) + small[0][:7])


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (b"axes\0", b"unit\0", "stands twice"),
        (b"\x13\x11\0\0", b"\x13\x01\0\0", "not a fixed-length UTF-8 text"),
        (b"\x0c\0\x28\0\0", b"\x12\0\x28\0\0", "a modification time"),
        (b"\x0c\0\x28\0\0", b"\x0b\0\x28\0\0", "a filter"),
        (b"\x0c\0\x28\0\0", b"\x77\0\x28\0\0", "message 0x77"),
        (b"\x03\x01", b"\x03\x02", "chunked"),
        (b"case", b"cas\xff", "not UTF-8"),
        (b"array\0", b"arra\xff\0", "not ASCII"),
    ],
)
def test_what_is_refused_is_named(small, old, new, text):
    data = small[0]
    assert old in data
    place = small[1] - 2 if old == b"\x03\x01" else data.rindex(old)
    with pytest.raises(Damaged, match=text):
        parse(data[:place] + new + data[place + len(old) :])
