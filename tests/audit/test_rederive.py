"""Level 3: what a derive module gives is compared exactly or within its bound, and what it does not give is missed."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from audit import rederive
from audit.findings import Findings
from audit.rows import chosen, sample
from audit.schema import check
from audit.study import Derived, Study
from tests.audit import tiny


def study(evidence=None, rederive_rows="all"):
    evidence = evidence or tiny.evidence()
    evidence.protocol["rederive"] = rederive_rows
    plan = check(evidence.protocol)
    arrays = {**evidence.arrays, **evidence.timings}

    def read(block, array, rows=None):
        values = arrays[f"{block}/{array}"]
        return values.copy() if rows is None else values[list(rows)]

    columns = {}
    for block in ("main", "scaled"):
        lines = [line for line in evidence.lines if line[1] == block]
        part = plan.blocks[block]
        for name in [*part.decisions, *part.counts, *part.metrics]:
            cells = [line[evidence.column(name)].replace("true", "1").replace("false", "0") for line in lines]
            values = [float(cell) if "." in cell else int(cell) for cell in cells]
            columns[block, name] = list(map(bool, values)) if name in part.decisions else values
    return Study(plan, read, chosen(plan, "ab" * 32), columns)


def outcome(derive, bounds=None, given=None, **options):
    module = SimpleNamespace(__name__="audit.derive.e99", BOUNDS=bounds or {}, GIVEN=given or {}, derive=derive)
    findings = Findings()
    result = rederive.run(study(**options), module, findings)
    return result, findings.kept


def found(*items, bounds=None):
    """The findings but R306 for these derived values alone."""
    return [(item.rule, item.where) for item in outcome(lambda _: iter(items), bounds)[1] if item.rule != "R306"]


def y(change=0.0, rows=range(12)):
    return 2 * tiny.evidence().arrays["main/x"][list(rows)] + change


def test_all_of_it_is_good():
    result, findings = outcome(tiny.derive, tiny.MODULE.BOUNDS, tiny.MODULE.GIVEN)
    assert findings == []
    document = result.document(20)
    assert (document["rows"], document["of"], document["arrays"], document["given"]) == (16, 20, 6, 4)
    assert 0 < result.largest < 1e-10 and document["largest_difference"] == 1e-10
    assert result.own["main", "third"].keys() == set(range(12))


def test_what_is_neither_derived_nor_given_is_missed():
    _, findings = outcome(lambda _: iter(()), None, {"main/x": "input"})
    missed = {item.where for item in findings if item.rule == "R306"}
    wanted = {f"main/{name}" for name in ("y", "half", "ragged", "mask", "large", "bits_set", "third")}
    assert missed == wanted | {"scaled/z", "weights/w", "weights/table", "weights/one", "clock/seconds"}
    _, findings = outcome(lambda _: iter([Derived("main", range(11), {"y": y(rows=range(11))})]))
    assert "in 1 rows, first 11" in next(item.text for item in findings if item.where == "main/y")


def test_a_sample_needs_its_rows_and_no_others():
    view = study(rederive_rows=3)
    rows = view.chosen("main")
    assert len(rows) == 3 and view.chosen("weights") == range(2) and rows != [0, 1, 2]
    result, findings = outcome(tiny.derive, tiny.MODULE.BOUNDS, tiny.MODULE.GIVEN, rederive_rows=3)
    assert findings == [] and result.document(20)["rows"] == 3 + 3
    _, findings = outcome(lambda _: iter([Derived("main", rows[:2], {"y": y(rows=rows[:2])})]), rederive_rows=3)
    assert "in 1 rows" in next(item.text for item in findings if item.where == "main/y")


def test_the_sample_is_that_of_the_smallest_digests():
    manifest, rows = "cd" * 32, range(101)
    ordered = sorted(rows, key=lambda row: hashlib.sha256(f"{manifest} main {row}".encode()).digest())
    assert sample(101, 7, manifest, "main") == sorted(ordered[:7])
    assert sample(7, 7, manifest, "main") == range(7) and sample(101, "all", manifest, "main") == rows


def test_exact_arrays_are_compared_to_the_byte():
    assert found(Derived("main", None, {"y": y()})) == []
    low = y()
    low[3, 2] = np.nextafter(low[3, 2], 9)
    assert found(Derived("main", None, {"y": low})) == [("R301", "main/y[3,2]")]
    assert found(Derived("main", [5, 3], {"y": low[[5, 3]]})) == [("R301", "main/y[3,2]")]
    evidence = tiny.evidence()
    evidence.arrays["weights/one"] = np.array(0.0)
    _, findings = outcome(lambda _: iter([Derived("weights", None, {"one": -0.0})]), evidence=evidence)
    assert [(item.rule, item.where) for item in findings if item.rule != "R306"] == [("R301", "weights/one[]")]


def test_bounded_arrays_may_differ_by_their_bound():
    bounds = {"main/y": (1e-9, "reason")}
    assert found(Derived("main", None, {"y": y(9e-10)}), bounds=bounds) == []
    assert {rule for rule, _ in found(Derived("main", None, {"y": y(2e-9)}), bounds=bounds)} == {"R302"}
    one = y()
    one[7, 4] += 1.5e-9
    assert found(Derived("main", None, {"y": one}), bounds=bounds) == [("R302", "main/y[7,4]")]
    one[7, 4] = np.nan
    assert found(Derived("main", None, {"y": one}), bounds=bounds) == [("R302", "main/y[7,4]")]
    one[7, 4] = np.inf
    assert found(Derived("main", None, {"y": one}), bounds=bounds) == [("R302", "main/y[7,4]")]


def test_bounds_on_bit_patterns_are_bounds_on_the_numbers():
    half = tiny.evidence().arrays["main/half"]
    moved = half.copy()
    moved[0, 0] += 1
    step = abs(half.view("<f2").astype(float) - moved.view("<f2").astype(float))[0, 0]
    assert found(Derived("main", None, {"half": moved}), bounds={"main/half": (step, "")}) == []
    assert found(Derived("main", None, {"half": moved}), bounds={"main/half": (step / 2, "")}) == [("R302", "main/half[0,0]")]
    assert found(Derived("main", None, {"half": half}), bounds={"main/half": (0.0, "")}) == []


def test_another_shape_is_a_finding_and_floats_round_to_the_stored_width():
    assert found(Derived("main", None, {"ragged": np.zeros((12, 6), int)})) == [("R301", "main/ragged")]
    assert found(Derived("scaled", None, {"z": [0.5 + 1e-12, 1.5, 2.5, 3.5]})) == []
    assert found(Derived("weights", None, {"table": []})) == [("R301", "weights/table")]


def test_decisions_counts_and_own_metrics():
    x = tiny.evidence().arrays["main/x"]
    large, bits = [bool(v) for v in x[:, 0] > 0], [int(v) for v in (x[:, :2] > 0).sum(1)]
    third = [float(v) / 3 for v in x[:, 0]]
    assert found(Derived("main", None, decisions={"large": large}, counts={"bits_set": bits}, own={"third": third})) == []
    assert found(Derived("main", None, own={"third": [v + 9e-10 for v in third]})) == []
    result, _ = outcome(lambda _: iter([Derived("main", None, own={"third": [v + 9e-10 * (row != 5) for row, v in enumerate(third)]})]))
    assert result.own["main", "third"] == dict(enumerate(third)), "within its bound the stored value stands"
    assert found(Derived("main", [4], decisions={"large": [not large[4]]})) == [("R303", "main/large[4]")]
    assert found(Derived("main", [4], counts={"bits_set": [bits[4] + 1]})) == [("R304", "main/bits_set[4]")]
    assert found(Derived("main", [4], own={"third": [third[4] + 2e-9]})) == [("R305", "main/third[4]")]
    evidence = tiny.evidence()
    evidence.protocol["blocks"]["main"]["metrics"]["third"]["bound"] = 0.5
    for gap, wanted in ((0.5, set()), (0.5000001, {"R305"})):
        for line in evidence.lines[1:13]:
            line[evidence.column("third")] = "1.0"
        _, findings = outcome(lambda _, gap=gap: iter([Derived("main", [4], own={"third": [1.0 + gap]})]), evidence=evidence)
        assert {item.rule for item in findings} - {"R306"} == wanted
    assert found(Derived("main", [4], own={"third": [float("nan")]})) == [("R305", "main/third[4]")]
    assert found(Derived("main", [4], own={"third": [float("inf")]})) == [("R305", "main/third[4]")]
    assert found(Derived("main", np.array([4]), decisions={"large": x[[4], 0] > 0}, counts={"bits_set": np.array([bits[4]])})) == []


UNFIT = {
    "an unknown block": Derived("nothing"),
    "an unknown array": Derived("main", None, {"z": y()}),
    "an unknown decision": Derived("main", [0], decisions={"small": [True]}),
    "a metric that is not its own": Derived("main", [0], own={"gap": [1.0]}),
    "a row beyond the end": Derived("main", [12], {"y": y(rows=[0])}),
    "a row before the beginning": Derived("main", [-1], {"y": y(rows=[0])}),
    "rows of an array that has none": Derived("weights", [0], {"table": range(4)}),
    "floats for integers": Derived("weights", None, {"table": [0.0, 1.0, 2.0, 3.0]}),
    "integers that do not fit": Derived("main", None, {"mask": np.full((12, 2), 256)}),
    "texts": Derived("weights", None, {"table": list("abcd")}),
    "too few decisions": Derived("main", [0, 1], decisions={"large": [True]}),
    "a number for a decision": Derived("main", [0], decisions={"large": [1]}),
    "a float for a count": Derived("main", [0], counts={"bits_set": [1.0]}),
    "a boolean for a count": Derived("main", [0], counts={"bits_set": [True]}),
    "a text for an own metric": Derived("main", [0], own={"third": ["1"]}),
}


@pytest.mark.parametrize("item", UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_the_protocol_is_r307(item):
    assert [rule for rule, _ in found(item)] == ["R307"]


def test_a_module_that_fails_is_r307_with_its_place():
    def derive(_):
        yield Derived("main", None, {"y": y()})
        raise ZeroDivisionError("by zero")

    result, findings = outcome(derive)
    assert [item.rule for item in findings] == ["R307"] and "ZeroDivisionError: by zero (test_rederive.py:" in findings[0].text
    assert result.arrays == {"main/y"}


def test_what_overflows_in_a_derivation_is_no_warning():
    def derive(view):
        big = np.full((12, 5), 1e308)
        yield Derived("main", None, {"y": big * 10 - big * 10})

    _, findings = outcome(derive, {"main/y": (1e-9, "")})
    assert {item.rule for item in findings} == {"R302", "R306"}


def test_modules_are_found_by_number(monkeypatch):
    assert rederive.load("06_stale_prefix").__name__ == "audit.derive.e06"
    with pytest.raises(rederive.Unfit, match="no module for 97_nothing"):
        rederive.load("97_nothing")

    def fails(name):
        raise SyntaxError("bad")

    monkeypatch.setattr(rederive.importlib, "import_module", fails)
    with pytest.raises(rederive.Unfit, match="cannot be loaded: SyntaxError"):
        rederive.load("06_stale_prefix")


def test_a_study_hands_out_rows_values_and_columns():
    view = study()
    assert view.rows("main")[1] == {"seed": 3, "kind": "plain", "flag": False} and view.seeds == [3, 5] and view.settings == {"factor": 2.0}
    assert view.read("main", "x", [3, 1]).shape == (2, 5)
    assert np.array_equal(view.decoded("main", "half", [0])[0], view.read("main", "half", [0])[0].view("<f2").astype(float))
    assert view.column("main", "large") == view.stored("main", "large") and view.stored("main", "none") is None
    with pytest.raises(KeyError, match="not an array"):
        view.read("main", "z")
