"""The protocol's check: every rule of section 3 refuses its own breach."""

import copy

import pytest

from audit.findings import Damaged
from audit.schema import check
from tests.audit import tiny


def put(path: str, value):
    """A change that puts a value at a dotted path, or removes it where the value is `...`."""

    def change(protocol):
        *parents, last = path.split(".")
        for key in parents:
            protocol = protocol[key]
        if value is ...:
            del protocol[last]
        else:
            protocol[last] = value

    return change


BROKEN = {
    "schema": put("schema", "2"),
    "experiment": put("experiment", "tiny"),
    "experiment with a path": put("experiment", "99_../x"),
    "question": put("question", " "),
    "no seeds": put("seeds", []),
    "a negative seed": put("seeds", [-1]),
    "a boolean seed": put("seeds", [True]),
    "a seed twice": put("seeds", [1, 1]),
    "tolerance an integer": put("tolerance", 1),
    "tolerance negative": put("tolerance", -1.0),
    "rederive nothing": put("rederive", 0),
    "rederive some": put("rederive", "some"),
    "rederive a float": put("rederive", 2.0),
    "settings": put("settings", []),
    "no blocks": put("blocks", {}),
    "a key missing": put("claims", ...),
    "a key more": put("remark", 1),
    "factor values of two kinds": put("factors.kind", ["a", 1]),
    "factor values one and true": put("factors.size", [1, True]),
    "factor values lists": put("factors.kind", [["a"]]),
    "factor without values": put("factors.kind", []),
    "factor twice the same value": put("factors.kind", ["a", "a"]),
    "factor named seed": put("factors.seed", [1]),
    "factor named case": put("factors.case", [1]),
    "factor in capitals": put("factors.Kind", ["a"]),
    "block named row": put("blocks.row", {}),
    "block of an unknown factor": put("blocks.main.factors", ["nothing"]),
    "block with a factor twice": put("blocks.main.factors", ["seed", "seed"]),
    "block of unknown rows": put("blocks.main.rows", "some"),
    "block of default rows": put("blocks.main.rows", "csv"),
    "block on no machine": put("blocks.main.machine", False),
    "block on machine 1": put("blocks.main.machine", 1),
    "default decisions": put("blocks.scaled.decisions", []),
    "array of a long double": put("blocks.main.arrays.x.dtype", "<f16"),
    "array of a big-endian dtype": put("blocks.main.arrays.x.dtype", ">f8"),
    "array of no list": put("blocks.main.arrays.x.shape", {"case": 1}),
    "array of the shape of a text": put("blocks.weights.arrays.one.shape", ""),
    "array without case": put("blocks.main.arrays.x.shape", [12, 5]),
    "array with case inside": put("blocks.main.arrays.x.shape", ["case", "case"]),
    "array of width 0": put("blocks.main.arrays.x.shape", ["case", 0]),
    "array of width true": put("blocks.main.arrays.x.shape", ["case", True]),
    "array with a free dimension row": put("blocks.main.arrays.x.shape", ["case", "row"]),
    "array with too few axes": put("blocks.main.arrays.x.axes", ["case"]),
    "array with a space in an axis": put("blocks.main.arrays.x.axes", ["case", "a b"]),
    "array with an empty axis": put("blocks.main.arrays.x.axes", ["case", ""]),
    "array without unit": put("blocks.main.arrays.x.unit", ...),
    "array with NUL in its unit": put("blocks.main.arrays.x.unit", "\0"),
    "array of unknown bits": put("blocks.main.arrays.half.bits", "float12"),
    "array of bits that do not fit": put("blocks.main.arrays.half.bits", "bool"),
    "array of no bits": put("blocks.main.arrays.x.bits", None),
    "array of empty bits": put("blocks.main.arrays.x.bits", ""),
    "array of nan false": put("blocks.main.arrays.x.nan", False),
    "array of nan 1": put("blocks.main.arrays.x.nan", 1),
    "metric of an unknown operation": put("blocks.main.metrics.gap.op", "median"),
    "metric of one array too few": put("blocks.main.metrics.gap.of", ["x"]),
    "metric of an unknown array": put("blocks.main.metrics.gap.of", ["x", "w"]),
    "metric with a bound": put("blocks.main.metrics.gap.bound", 1e-9),
    "metric with a bound 0": put("blocks.main.metrics.third.bound", 0.0),
    "metric of default arrays": put("blocks.main.metrics.third.of", []),
    "metric named seed": put("blocks.main.metrics.seed", {"op": "size", "of": ["x"]}),
    "decision named case": put("blocks.main.decisions", ["case"]),
    "decision in capitals": put("blocks.main.decisions", ["Large"]),
    "decision twice": put("blocks.main.decisions", ["large", "large"]),
    "count named as a decision": put("blocks.main.counts", ["large"]),
    "count named as a factor": put("blocks.main.counts", ["kind"]),
    "name of two roles over blocks": put("blocks.scaled.metrics", {"large": {"op": "max", "of": ["z"]}}),
    "metrics without rows": put("blocks.weights.metrics", {"top": {"op": "max", "of": ["w"]}}),
    "decisions of times": put("blocks.clock.decisions", ["fast"]),
    "no controls": put("controls", {}),
    "control without measure": put("controls.gap_is_seen.measure", ...),
    "control with a number": put("controls.gap_is_seen.note", 1),
    "control in capitals": put("controls.Gap", {"measure": "", "holds": "", "note": ""}),
    "claim named by a path": put("claims.x/y", {"open": "", "note": ""}),
    "claim without rules": put("claims.X01", {"measure": "SELECT 1 AS a", "note": ""}),
    "claim with rules but no measure": put("claims.X02.reproduced", "1"),
    "claim open and measured": put("claims.X01.open", "?"),
    "claim open and out of reach": put("claims.X02.out_of_reach", "?"),
    "claim without note": put("claims.X02.note", ...),
    "claim with a key more": put("claims.X02.remark", ""),
}


def test_the_unbroken_protocol_passes():
    plan = check(tiny.protocol())
    assert [plan.count(name) for name in ("main", "scaled", "weights", "clock")] == [12, 4, 2, 2]
    assert list(plan.rows("scaled")) == [(0.5, 1), (0.5, 20), (1e-300, 1), (1e-300, 20)]
    assert plan.of_kind("csv") == ["main", "scaled"] and plan.of_kind("none", "timing") == ["clock", "weights"]


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_broken(change):
    protocol = copy.deepcopy(tiny.protocol())
    change(protocol)
    with pytest.raises(Damaged) as caught:
        check(protocol)
    assert caught.value.rule == "S106" and caught.value.where.startswith("protocol")


def test_the_least_that_is_allowed():
    protocol = tiny.protocol()
    protocol |= {"tolerance": 0.0, "rederive": 1, "seeds": [0]}
    protocol["blocks"]["weights"]["arrays"]["table"]["shape"] = [1]
    assert check(protocol).count("main") == 6


def test_factors_are_integers_of_64_bits():
    protocol = tiny.protocol()
    protocol["factors"]["size"] = [-(2**63), 2**63 - 1]
    assert check(protocol).count("scaled") == 4
    for value in (2**63, -(2**63) - 1):
        protocol["factors"]["size"] = [value]
        with pytest.raises(Damaged, match="64 bits"):
            check(protocol)


def test_a_protocol_that_is_no_object():
    for value in ([], None, "x", 1):
        with pytest.raises(Damaged):
            check(value)


def test_integers_in_metrics_are_marked_where_binary64_may_not_hold_them():
    protocol = tiny.protocol()
    protocol["blocks"]["main"]["arrays"]["long"] = tiny.array("<i8", "case")
    protocol["blocks"]["main"]["metrics"] |= {"top": {"op": "max", "of": ["long"]}, "bytes": {"op": "nbytes", "of": ["long"]}}
    metrics = check(protocol).blocks["main"].metrics
    assert (metrics["top"].wide, metrics["bytes"].wide, metrics["gap"].wide) == (True, False, False)
