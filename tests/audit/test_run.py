"""A whole synthetic run: VERIFIED as it is, and each level reports on its own damage."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from audit import rederive
from audit.run import audit
from tests.audit import tiny
from tests.audit.reseal import canonical


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setattr(rederive, "load", lambda experiment: tiny.MODULE)


def rules(run: Path) -> set[str]:
    return {item["rule"] for item in audit(run).document["findings"] if item["severity"] == "error"}


def test_undamaged_run_is_verified(tmp_path):
    document = audit(tiny.evidence().seal(tmp_path)).document
    assert document["findings"] == []
    assert document["verdict"] == "VERIFIED"
    assert {name: claim["verdict"] for name, claim in document["claims"].items()} == {
        "X01": "reproduced",
        "X02": "open",
        "X03": "out-of-reach",
        "X04": "qualified",
    }
    assert document["rederived"]["rows"] == 16 and document["rederived"]["of"] == 20
    assert document["controls"]["gap_is_seen"]["holds"] is True
    assert json.loads(canonical(document)) == document


def test_timings_lie_in_their_own_file(tmp_path):
    run = tiny.evidence().seal(tmp_path)
    (run / "sealed" / "timings.h5").unlink()
    assert rules(run) == {"S104"}


def test_a_measured_time_outside_of_its_file(tmp_path):
    evidence = tiny.evidence()
    evidence.arrays["clock/seconds"] = evidence.timings["clock/seconds"]
    assert rules(evidence.seal(tmp_path)) == {"S110", "S113"}


def test_times_change_no_name_but_are_sealed(tmp_path):
    evidence = tiny.evidence()
    one = evidence.seal(tmp_path / "one")
    evidence.timings["clock/seconds"] = evidence.timings["clock/seconds"] * 2
    other = evidence.seal(tmp_path / "other")
    assert one.name == other.name and rules(other) == set()
    shutil.copy(other / "sealed" / "timings.h5", one / "sealed" / "timings.h5")
    assert rules(one) == {"S105", "S111"}


def test_a_time_that_is_not_finite(tmp_path):
    evidence = tiny.evidence()
    evidence.timings["clock/seconds"][1, 2] = np.nan
    assert rules(evidence.seal(tmp_path)) == {"S118", "M202"}


def test_a_boolean_of_two_and_a_free_dimension_of_two_lengths(tmp_path):
    evidence = tiny.evidence()
    evidence.arrays["main/mask"][3, 1] = 2
    assert rules(evidence.seal(tmp_path)) == {"R301", "S118"}
    evidence = tiny.evidence()
    spec = evidence.protocol["blocks"]["main"]["arrays"]
    spec["x"]["shape"] = ["case", "length"]
    assert rules(evidence.seal(tmp_path)) == {"S112"}


def test_an_exploratory_run_decides_no_claim(tmp_path):
    evidence = tiny.evidence()
    evidence.manifest |= {"kind": "exploratory", "overrides": ["seeds=[3,5]"]}
    document = audit(evidence.seal(tmp_path)).document
    assert document["verdict"] == "VERIFIED" and document["claims"] == {} and document["controls"]["gap_is_seen"]["holds"]


def test_what_cannot_be_checked_is_said(tmp_path):
    evidence = tiny.evidence()
    del evidence.arrays["main/x"]
    document = audit(evidence.seal(tmp_path)).document
    assert document["levels"] == {
        "1": "checked",
        **dict.fromkeys("234", "not checked: main/x cannot be read"),
        **dict.fromkeys(("committed_protocol", "committed_sources"), "not checked: outside a repository"),
    }
    assert document["rederived"]["rows"] == 0 and document["claims"] == {}


def test_an_own_metric_beyond_its_bound_and_one_that_is_nan(tmp_path):
    evidence = tiny.evidence()
    at = evidence.column("third")
    evidence.lines[1][at] = repr(float(evidence.lines[1][at]) + 1e-6)
    assert rules(evidence.seal(tmp_path)) == {"R305"}


def test_integers_that_binary64_may_not_hold(tmp_path):
    evidence = tiny.evidence()
    spec = evidence.protocol["blocks"]["scaled"]
    spec["arrays"]["long"] = tiny.array("<i8", "case")
    spec["metrics"]["top"] = {"op": "max", "of": ["long"]}
    evidence.arrays["scaled/long"] = np.array([1, 2, 3, 2**53 + 2])
    for place, line in enumerate(evidence.lines):
        line.append("top" if place == 0 else repr(float(evidence.arrays["scaled/long"][place - 13])) if line[1] == "scaled" else "")
    assert rules(evidence.seal(tmp_path)) >= {"M202", "R306"}


def test_many_findings_of_one_rule_are_counted(tmp_path):
    evidence = tiny.evidence()
    evidence.arrays["main/ragged"] += 1
    found = audit(evidence.seal(tmp_path)).document["findings"]
    assert [item["rule"] for item in found] == ["R301"] * 21
    assert "64 more findings of this rule here" in {item["text"] for item in found}


def texts(run: Path) -> set[str]:
    return {f"{item['where']}: {item['text']}" for item in audit(run).document["findings"]}


def test_files_and_groups_missing_or_too_many_are_told_apart(tmp_path):
    run = tiny.evidence().seal(tmp_path)
    (run / "sealed" / "sources.zip").rename(run / "sealed" / "notes")
    assert texts(run) == {"sources.zip: is missing", "notes: is not declared"}
    evidence = tiny.evidence()
    evidence.arrays["zzz/array"] = np.zeros(1)
    assert "arrays.h5:zzz: is no block of this file" in texts(evidence.seal(tmp_path))
    run = tiny.evidence().seal(tmp_path)
    with h5py.File(run / "sealed" / "arrays.h5", "r+", libver="earliest") as file:
        del file["weights"]
    assert "arrays.h5:weights: the block has no group" in texts(run)
