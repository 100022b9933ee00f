"""Sealing: streaming in pieces gives the same bytes as at once, and what does not fit the protocol is refused."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from labcore import canonical
from labcore.batch import Batch
from labcore.bits import decode
from labcore.errors import Refused
from labcore.evidence import Writer, run_name
from labcore.metrics import compute
from labcore.protocol import Protocol, parse
from labcore.sealed import Sealed

RECORD = {"kind": "exploratory", "overrides": [], "differing": [], "recorded": {}}


def protocol(seeds: list[int], width: int = 5, events: str | int = "event") -> Protocol:
    array = {"dtype": "<f8", "shape": ["case", width], "axes": ["case", "width"], "unit": "1"}
    blocks = {
        "main": {
            "factors": ["seed", "text"],
            "arrays": {"x": array, "y": array, "b": {**array, "dtype": "|u1", "bits": "bool"}},
            "metrics": {"error": {"op": "max_abs_error", "of": ["x", "y"]}, "mine": {"op": "own"}},
            "decisions": ["reused"],
            "counts": ["used"],
        },
        "log": {
            "rows": "none",
            "arrays": {n: {"dtype": "<i8", "shape": [events], "axes": ["event"], "unit": "1"} for n in ("at", "what")},
        },
        "clock": {"rows": "timing", "arrays": {"seconds": {"dtype": "<f8", "shape": ["case", 3], "axes": ["case", "repeat"], "unit": "s"}}},
    }
    data = {
        "schema": "1",
        "experiment": "90_toy",
        "question": "?",
        "seeds": seeds,
        "tolerance": 0.0,
        "rederive": "all",
        "settings": {},
        "blocks": blocks,
        "factors": {"text": ["plain", 'a, "quoted"\nline', "häßlich"]},
        "controls": {"c": {"measure": "SELECT 1", "holds": "1", "note": ""}},
        "claims": {},
    }
    return parse(data, "x")


def batch(p: Protocol, rows: slice = slice(None), **changes: Any) -> Batch:
    n = p.row_count("main")
    width = p.blocks["main"].arrays["x"].shape[1]
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, width))
    y = x + rng.normal(size=(n, width)) * 1e-3
    parts: dict[str, Any] = {
        "arrays": {"x": x[rows], "y": y[rows], "b": (x > 0)[rows]},
        "decisions": {"reused": (x[:, 0] > 0)[rows]},
        "counts": {"used": np.arange(n)[rows]},
        "own": {"mine": (x[:, 0] * 2)[rows]},
    }
    for part, values in changes.items():
        parts[part] = {**parts[part], **values}
    return Batch("main", **parts)


LOG = Batch("log", {"at": np.arange(4), "what": np.array([1, 2, 3, 5])})
CLOCK = Batch("clock", {"seconds": np.array([[1e-3, 2e-3, 3e-3]])})


def seal(folder: Path, p: Protocol, *batches: Batch) -> dict[str, Any]:
    folder.mkdir()
    with Writer(p, folder) as writer:
        for item in batches:
            writer.add(item)
        return writer.seal({"a.py": b"pass\n", "b/c.py": b""}, RECORD)


def test_pieces_and_order_of_blocks_do_not_change_a_byte(tmp_path: Path) -> None:
    p = protocol([7, 19, 41])
    seal(tmp_path / "a", p, batch(p), LOG, CLOCK)
    seal(tmp_path / "b", p, CLOCK, batch(p, slice(0, 2)), LOG, batch(p, slice(2, 7)), batch(p, slice(7, None)))
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["arrays.h5", "manifest.json", "results.csv", "sources.zip", "timings.h5"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_shapes_that_the_protocol_fixes_are_written_in_place_with_the_same_bytes(tmp_path: Path) -> None:
    free, fixed = protocol([7, 19, 41]), protocol([7, 19, 41], events=4)
    pieces = [batch(free, slice(0, 2)), LOG, batch(free, slice(2, None)), CLOCK]
    seal(tmp_path / "a", free, *pieces)
    seal(tmp_path / "b", fixed, *pieces)
    for name in ("arrays.h5", "timings.h5", "results.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    (tmp_path / "c").mkdir()
    with Writer(fixed, tmp_path / "c") as writer:
        assert (tmp_path / "c" / "arrays.h5").stat().st_size == (tmp_path / "b" / "arrays.h5").stat().st_size, "room is had first"
        with pytest.raises(Refused, match="wanted"):
            writer.add(Batch("log", {"at": np.arange(5), "what": np.arange(5)}))


def test_the_files_hold_what_was_given(tmp_path: Path) -> None:
    p = protocol([7, 19])
    given = batch(p)
    manifest = seal(tmp_path / "a", p, given, LOG, CLOCK)
    with h5py.File(tmp_path / "a" / "arrays.h5") as file:
        assert sorted(file) == ["log", "main"]
        assert np.array_equal(file["main/x"][()], given.arrays["x"]) and file["main/b"].dtype == np.uint8
        assert dict(file["main/x"].attrs) == {"axes": b"case width", "unit": b"1"}
        assert file["log/what"][()].tolist() == [1, 2, 3, 5]
        assert all(file[path].chunks is None and file[path].compression is None for path in ("main/x", "log/at"))
    with h5py.File(tmp_path / "a" / "timings.h5") as file:
        assert sorted(file) == ["clock"]
    with (tmp_path / "a" / "results.csv").open(newline="", encoding="utf-8") as handle:
        lines = list(csv.DictReader(handle))
    assert [line["case"] for line in lines] == [str(n) for n in range(6)]
    assert [line["text"] for line in lines][:3] == p.values("text")
    assert [float(line["mine"]) for line in lines] == list(given.own["mine"])
    error = np.abs(given.arrays["x"] - given.arrays["y"]).max(axis=1)
    assert [float(line["error"]) for line in lines] == error.tolist()
    assert {line["reused"] for line in lines} <= {"true", "false"}
    digest = manifest["data"]["arrays"]["main/x"]["sha256"]
    assert digest == canonical.sha256(given.arrays["x"].astype("<f8").tobytes())
    assert manifest["run"] == run_name(p.sha256, manifest["data"]["arrays"], manifest["files"]["results.csv"])
    assert "clock/seconds" in manifest["timings"] and "clock/seconds" not in manifest["data"]["arrays"]


def test_a_block_is_read_without_the_others_and_with_its_line_breaks(tmp_path: Path) -> None:
    p = protocol([7, 19])
    given = batch(p)
    (tmp_path / "run").mkdir()
    seal(tmp_path / "run" / "sealed", p, given, LOG, CLOCK)
    table = Sealed(tmp_path / "run").table("main")
    assert table["text"] == [*p.values("text")] * 2 and table["row"] == list(range(6))
    assert table["mine"] == list(given.own["mine"]) and table["used"] == list(given.counts["used"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: data.index(b"\n") + 1],
        lambda data: data[: len(data) // 2],
        lambda data: data[: data[:-1].rindex(b"\n5,") + 1],  # whole lines are lacking
        lambda data: data.replace(b"\n", b"\n\n", 1),
        lambda data: data.replace(b",main,", b',"main,', 1),
        lambda data: data.replace(b'"', b"", 1),
        lambda data: data.replace(b"main", b"ma\xffn", 1),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path: Path, damage: Any) -> None:
    p = protocol([7, 19])
    (tmp_path / "run").mkdir()
    seal(tmp_path / "run" / "sealed", p, batch(p), LOG, CLOCK)
    path = tmp_path / "run" / "sealed" / "results.csv"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Refused, match=r"results\.csv: main cannot be read .* says what is wrong"):
        Sealed(tmp_path / "run").table("main")


def test_damaged_arrays_are_refused_in_one_line(tmp_path: Path) -> None:
    p = protocol([7, 19])
    (tmp_path / "run").mkdir()
    seal(tmp_path / "run" / "sealed", p, batch(p), LOG, CLOCK)
    path = tmp_path / "run" / "sealed" / "arrays.h5"
    for data in (b"", path.read_bytes()[:-1000], b"\0" + path.read_bytes()[1:]):
        path.write_bytes(data)
        with pytest.raises(Refused, match=r"arrays\.h5: .* says what is wrong"):
            Sealed(tmp_path / "run").array("main", "x")


def test_large_arrays_are_copied_whole(tmp_path: Path) -> None:
    p = protocol([7, 19], 100_003)
    given = batch(p)
    seal(tmp_path / "a", p, given, LOG, CLOCK)
    with h5py.File(tmp_path / "a" / "arrays.h5") as file:
        assert np.array_equal(file["main/y"][()], given.arrays["y"])


def test_times_do_not_enter_the_name(tmp_path: Path) -> None:
    p = protocol([7])
    a = seal(tmp_path / "a", p, batch(p), LOG, CLOCK)
    b = seal(tmp_path / "b", p, batch(p), LOG, Batch("clock", {"seconds": np.ones((1, 3))}))
    assert a["run"] == b["run"] and a["files"]["timings.h5"] != b["files"]["timings.h5"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: [batch(p, slice(0, 2)), LOG, CLOCK], "got 2 rows"),
        (lambda p: [batch(p), batch(p), LOG, CLOCK], "more than 6 rows"),
        (lambda p: [batch(p), CLOCK], "log/at: got 0 rows"),
        (lambda p: [batch(p), LOG, CLOCK, Batch("other")], "'other'"),
        (lambda p: [batch(p, counts={"used": np.arange(6) + 0.5})], "a count is an integer"),
        (lambda p: [batch(p, decisions={"reused": np.arange(6)})], "true or false"),
        (lambda p: [batch(p, own={"mine": [math.nan] * 6})], "a finite number"),
        (lambda p: [batch(p, counts={"used": [1, 2]})], "rows differ"),
        (lambda p: [batch(p, arrays={"b": np.full((6, 5), 2, np.uint8)})], "got 2"),
        (lambda p: [batch(p, arrays={"x": np.full((6, 5), np.inf)})], "got inf"),
        (lambda p: [batch(p, arrays={"x": np.zeros((6, 5), int)})], "got dtype int64"),
        (lambda p: [Batch("log", {"at": np.arange(4), "what": np.arange(5)}), batch(p), CLOCK], "dimension event"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    p = protocol([7, 19])
    with pytest.raises(Refused, match="."[:0] + words.replace("(", r"\(")):
        seal(tmp_path / "a", p, *make(p))
    assert not (tmp_path / "a" / "manifest.json").exists()


def test_metrics_are_what_their_names_say() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(3, 2, 7)), rng.normal(size=(3, 2, 7))
    b[1] = a[1]
    of = {"a": {"dtype": "<f8", "shape": ["case", 2, 7], "axes": ["x", "y", "z"], "unit": "1"}}
    of["b"] = of["a"]
    ops = {
        "max_abs_error": ["a", "b"], "rmse": ["a", "b"], "relative_l2": ["a", "b"], "equal": ["a", "b"],
        "max_abs": ["a"], "max": ["a"], "min": ["a"], "sum": ["a"], "mean": ["a"],
        "count_nonzero": ["a"], "count_nan": ["a"], "size": ["a"], "nbytes": ["a"],
    }  # fmt: skip
    data = protocol([7]).resolved
    data["blocks"] = {"main": {"factors": ["text"], "arrays": of, "metrics": {f"m_{op}": {"op": op, "of": n} for op, n in ops.items()}}}
    got = compute(parse(data, "x").blocks["main"], {"a": a, "b": b})
    flat = a.reshape(3, -1)
    assert got["m_max_abs_error"] == np.abs(a - b).reshape(3, -1).max(axis=1).tolist() and got["m_max_abs_error"][1] == 0.0
    assert got["m_equal"] == [0, 1, 0] and got["m_size"] == [14] * 3 and got["m_nbytes"] == [112] * 3
    assert np.allclose(got["m_rmse"], np.sqrt(((a - b) ** 2).reshape(3, -1).mean(axis=1)), rtol=1e-14)
    assert np.allclose(
        got["m_relative_l2"], np.linalg.norm((a - b).reshape(3, -1), axis=1) / np.linalg.norm(b.reshape(3, -1), axis=1), rtol=1e-14
    )
    assert got["m_sum"] == [math.fsum(row) for row in flat] and np.allclose(got["m_mean"], flat.mean(axis=1), rtol=1e-13)
    assert (got["m_max"], got["m_min"]) == (flat.max(axis=1).tolist(), flat.min(axis=1).tolist())
    assert got["m_max_abs"] == np.abs(flat).max(axis=1).tolist() and got["m_count_nan"] == [0] * 3 and got["m_count_nonzero"] == [14] * 3


def test_bit_patterns_decode_exactly() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    half = decode(patterns, "float16")
    assert half[0x3C00] == 1.0 and half[1] == 2.0**-24 and np.isinf(half[0x7C00]) and half[0xFBFF] == -65504.0
    brain = decode(patterns, "bfloat16")
    assert brain[0x3F80] == 1.0 and brain[0x4380] == 256.0 and np.isnan(brain[0x7FC0])
    small = decode(np.arange(256, dtype=np.uint8), "float8_e4m3")
    assert small[0x7E] == 448.0 and small[1] == 2.0**-9 and np.isnan(small[[0x7F, 0xFF]]).all() and small[0x38] == 1.0
