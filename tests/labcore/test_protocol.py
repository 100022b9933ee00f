"""The protocol's schema: what it accepts, and by which line it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from labcore import canonical
from labcore.errors import Refused
from labcore.protocol import load, parse

GOOD: dict[str, Any] = {
    "schema": "1",
    "experiment": "90_toy",
    "question": "?",
    "seeds": [7, 19],
    "tolerance": 1e-12,
    "rederive": "all",
    "settings": {"width": 5},
    "factors": {"condition": ["a", "b", "c"]},
    "blocks": {
        "main": {
            "factors": ["seed", "condition"],
            "arrays": {"x": {"dtype": "<f8", "shape": ["case", 5], "axes": ["case", "width"], "unit": "1"}},
            "metrics": {"size": {"op": "max_abs", "of": ["x"]}},
            "decisions": ["reused"],
            "counts": ["rows_used"],
        }
    },
    "controls": {"c": {"measure": "SELECT 1 AS one", "holds": "one = 1", "note": ""}},
    "claims": {"D01": {"measure": "SELECT 1 AS one", "reproduced": "one = 1", "note": ""}},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    at = data
    *parents, last = path.split("/")
    for part in parents:
        at = at[part]
    at[last] = value
    return data


def test_rows_are_the_product_of_the_factors_the_last_moving_fastest() -> None:
    protocol = parse(GOOD, "x")
    rows = list(protocol.rows("main"))
    assert len(rows) == protocol.row_count("main") == 6
    assert rows[1] == {"seed": 7, "condition": "b"} and rows[3] == {"seed": 19, "condition": "a"}


def test_defaults_are_left_out_and_the_identity_is_stable() -> None:
    protocol = parse(GOOD, "x")
    assert protocol.resolved == GOOD
    assert parse(protocol.resolved, "x").sha256 == protocol.sha256
    assert parse(changed("blocks/main/rows", "csv"), "x").sha256 == protocol.sha256
    assert parse(changed("question", "!"), "x").sha256 != protocol.sha256


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("sedes", [1], "did you mean 'seeds'"),
        ("blocks/main/metric", {}, "did you mean 'metrics'"),
        ("blocks/main/arrays/x/dtyp", "<f8", "did you mean 'dtype'"),
        ("blocks/main/arrays/x/dtype", "<f16", "dtype"),
        ("blocks/main/arrays/x/shape", [5, "case"], "'case' first"),
        ("blocks/main/arrays/x/shape", ["case", 0], "sizes positive"),
        ("blocks/main/arrays/x/axes", ["case"], "1 axes for 2 dimensions"),
        ("blocks/main/arrays/x/bits", "float16", "wanted <u2"),
        ("blocks/main/metrics/size/op", "biggest", "biggest"),
        ("blocks/main/metrics/size/of", ["y"], "unknown array 'y'"),
        ("blocks/main/metrics/size/of", ["x", "x"], "wants 1"),
        ("blocks/main/metrics/size/bound", 1.0, "only `own`"),
        ("blocks/main/factors", ["sead"], "unknown factor 'sead'"),
        ("blocks/main/factors", ["seed", "seed"], "stands twice"),
        ("blocks/main/rows", "none", "no metrics"),
        ("blocks/main/decisions", ["size"], "stands twice"),
        ("blocks/main/counts", ["row"], "'row' is not allowed"),
        ("seeds", [], "at least one"),
        ("seeds", [1, 1], "distinct"),
        ("seeds", [-1], "none negative"),
        ("seeds", [1.5], "int"),
        ("seeds", [2**63], "below 2"),
        ("factors/condition", [2**63], "64 bits"),
        ("tolerance", -1.0, "from 0"),
        ("rederive", 0, "positive"),
        ("rederive", "some", "some"),
        ("factors/condition", ["a", "a"], "distinct"),
        ("factors/condition", ["a", 1], "one type"),
        ("factors/condition", [], "at least one"),
        ("factors/Condition", ["a"], "not allowed"),
        ("controls", {}, "at least one"),
        ("claims/D01", {"note": "?"}, "wanted a measure"),
        ("claims/D01", {"measure": "SELECT 1", "note": ""}, "needs reproduced"),
        ("claims/D01", {"measure": "SELECT 1", "reproduced": "1", "open": "x", "note": ""}, "neither"),
        ("claims/D01", {"reproduced": "1", "open": "x", "note": ""}, "without a measure"),
        ("experiment", "6_toy", "NN_name"),
        ("schema", "2", "2"),
    ],
)
def test_a_fault_is_refused_by_name(path: str, value: Any, words: str) -> None:
    with pytest.raises(Refused) as error:
        parse(changed(path, value), "here.json")
    text = str(error.value)
    assert text.startswith("here.json: ") and words in text and "\n" not in text


def test_a_column_has_one_role() -> None:
    data = copy.deepcopy(GOOD)
    data["blocks"]["other"] = {"counts": ["reused"]}
    with pytest.raises(Refused, match="one role"):
        parse(data, "x")


def test_a_file_must_be_canonical(tmp_path: Any) -> None:
    path = tmp_path / "protocol.json"
    path.write_bytes(canonical.dumps(GOOD))
    assert load(path) == parse(GOOD, "x")
    path.write_bytes(canonical.dumps(GOOD).replace(b"\n ", b"\n  "))
    with pytest.raises(Refused, match="canonical"):
        load(path)
    with pytest.raises(Refused, match="no such file"):
        load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b"[" * 100 + b"]" * 100, "deeper"),
        (b"[" * 100000 + b"]" * 100000, "deeper"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"{", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_hostile_json_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        canonical.loads(text, "x.json")
