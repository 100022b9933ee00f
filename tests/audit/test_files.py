"""Files read once: digests of a file and of parts of it, with values looked at as they pass, for small files and large ones."""

import hashlib
import os

import numpy as np
import pytest

from audit import files
from audit.files import Blob
from audit.findings import Damaged, Findings
from audit.schema import ArraySpec
from audit.values import Scan

SPANS = [(7, 4001), (4008, 0), (4011, 8 * 777), (12000, 3), (60_000, 9_999)]


@pytest.fixture(params=["alone", "in memory", "in pieces"])
def kind(request, monkeypatch):
    monkeypatch.setattr(files, "PIECE", 1013)
    if request.param != "alone":
        monkeypatch.setattr(files, "ALONE", 10)
    if request.param == "in pieces":
        monkeypatch.setattr(files, "SMALL", 10)


def test_digests_and_what_passes_by(kind, tmp_path):
    data = np.random.default_rng(2).bytes(70_001)
    (tmp_path / "x.h5").write_bytes(data)
    blob = Blob(tmp_path / "x.h5")
    seen: dict[int, bytes] = {}
    whole, parts = blob.digests(SPANS, lambda place, piece: seen.update({place: seen.get(place, b"") + bytes(piece)}))
    assert whole == hashlib.sha256(data).hexdigest() == blob.digest()
    assert parts == [hashlib.sha256(data[at : at + count]).hexdigest() for at, count in SPANS]
    assert all(seen.get(place, b"") == data[at : at + count] for place, (at, count) in enumerate(SPANS))
    assert blob.read(69_000, 1001) == data[69_000:] and bytes(blob.view(5, 9)) == data[5:14]
    for bad in ((69_001, 1001), (70_001, 1)):
        with pytest.raises(Damaged, match=r"there|ends"):
            blob.read(*bad)
    blob.close()


def test_spans_alone_where_the_digest_is_known(kind, tmp_path, monkeypatch):
    data = np.random.default_rng(3).bytes(70_001)
    (tmp_path / "archive").write_bytes(b"before" + data + b"behind")
    with (tmp_path / "archive").open("rb") as archive:
        monkeypatch.setitem(files.GIVEN, tmp_path / "x.h5", (archive.fileno(), 6, len(data), "known"))
        blob = Blob(tmp_path / "x.h5")
    for spans in (SPANS, [(7, 4000), (9, 4000), (5000, 9000), (65_000, 5001)], SPANS[:1], []):
        seen = [b""] * len(spans)

        def look(place, piece, seen=seen):
            seen[place] += bytes(piece)

        assert blob.digests(spans, look) == ("known", [hashlib.sha256(data[at : at + count]).hexdigest() for at, count in spans])
        assert seen == [data[at : at + count] for at, count in spans]
    blob.close()


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SMALL", 10)
    monkeypatch.setattr(files, "ALONE", 10)
    path = tmp_path / "x.h5"
    path.write_bytes(bytes(5000))
    blob = Blob(path)
    os.truncate(path, 3000)
    with pytest.raises(Damaged, match="ends at 3000"):
        blob.digests()
    blob.close()


def test_what_is_not_a_plain_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("results.csv")
    (tmp_path / "results.csv").write_bytes(bytes(100))
    monkeypatch.setitem(files.LIMITS, "results.csv", 99)
    for name in ("folder", "pipe", "link", "results.csv", "missing"):
        with pytest.raises(Damaged) as caught:
            Blob(tmp_path / name)
        assert caught.value.rule == "S119"


def test_a_file_of_just_the_size_allowed(tmp_path, monkeypatch):
    (tmp_path / "results.csv").write_bytes(bytes(100))
    monkeypatch.setitem(files.LIMITS, "results.csv", 100)
    blob = Blob(tmp_path / "results.csv")
    assert blob.size == 100
    blob.close()
    blob.close()


def spec(dtype: str, bits: str = "", nan: bool = False) -> ArraySpec:
    return ArraySpec(dtype, ("case",), ("case",), "1", bits, nan)


@pytest.mark.parametrize("step", [1, 3, 8, 64, 10_000])
def test_numbers_that_are_not_finite_are_found_wherever_pieces_cut(step):
    values = np.arange(101.0)
    values[[0, 17, 18, 100]] = [np.nan, np.inf, -np.inf, np.nan]
    scan, data = Scan(spec("<f8")), memoryview(values.tobytes())
    for start in range(0, len(data), step):
        scan.feed(data[start : start + step])
    assert scan.bad == [0, 17, 18, 100]
    findings = Findings()
    scan.report("block/array", (101, 1), findings)
    assert [item.where for item in findings.kept] == ["block/array[0,0]", "block/array[17,0]", "block/array[18,0]", "block/array[100,0]"]


def test_a_sum_that_overflows_is_no_finding():
    scan = Scan(spec("<f8"))
    scan.feed(memoryview(np.full(9, 1e308).tobytes()))
    assert scan.bad == []


@pytest.mark.parametrize(
    ("dtype", "bits", "values", "bad"),
    [
        ("<u2", "float16", [0x7BFF, 0x7C00, 0xFC01, 0x8000], [1, 2]),
        ("<u2", "bfloat16", [0x7F7F, 0x7F80, 0xFFC0, 0x8000], [1, 2]),
        ("|u1", "float8_e4m3", [0x7E, 0x7F, 0xFF, 0xFE], [1, 2]),
        ("|u1", "bool", [0, 1, 2, 255], [2, 3]),
        ("<f4", "", [1, np.nan, np.inf, 0], [1, 2]),
    ],
)
def test_patterns(dtype, bits, values, bad):
    scan = Scan(spec(dtype, bits))
    scan.feed(memoryview(np.array(values, dtype).tobytes()))
    assert scan.bad == bad and not scan.idle


def test_what_needs_no_look():
    assert Scan(spec("<i8")).idle and Scan(spec("<f8", nan=True)).idle and Scan(spec("<u2", "float16", nan=True)).idle
    assert not Scan(spec("|u1", "bool", nan=True)).idle
