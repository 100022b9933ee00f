"""Findings: what is kept, counted and sorted; and the lines that a reader sees of them."""

import pytest

from audit.findings import MANY, RULES, Damaged, Findings
from audit.report import claims_table, controls_lines, finding_line, levels_line, run_line


def test_what_comes_after_many_of_one_place_is_counted():
    findings = Findings()
    for row in range(MANY + 3):
        findings.add("M201", f"a/b[{row}]", "text")
    findings.add("M201", "a/c[0]", "text")
    findings.add("S103", "manifest.json", "note", severity="note")
    assert findings.errors == MANY + 4
    found = findings.sorted()
    assert len(found) == MANY + 3 and found[-1].rule == "S103"
    assert [item.text for item in found if "more" in item.text] == ["3 more findings of this rule here"]
    assert [item.where for item in found][:2] == ["a/b", "a/b[0]"]


def test_a_note_alone_is_no_error():
    findings = Findings()
    findings.add("S103", "x", "text", severity="note")
    assert findings.errors == 0 and len(findings.sorted()) == 1
    with pytest.raises(KeyError):
        findings.add("S999", "x", "text")


def test_values_are_plain():
    findings = Findings()
    findings.damaged(Damaged("S102", "run", "text", float("nan"), [1, 2]))
    findings.add("S102", "run", "text", "x" * 500, True)
    one, two = (item.document() for item in findings.sorted())
    assert {one["stored"], two["stored"]} == {"nan", "x" * 200} and {one["recomputed"], two["recomputed"]} == {"[1, 2]", True}
    assert str(Damaged("S102", "run", "why")) == "why"


def test_every_rule_is_in_the_contract():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "evidence" / "FORMAT.md").read_text("utf-8")
    listed = {line.split("|")[1].strip() for line in text.splitlines() if line[:3] in ("| S", "| M", "| R", "| V", "| L")}
    assert listed == set(RULES)


FINDING = {"rule": "M201", "severity": "error", "where": "a/b[1]", "stored": 1.23456789, "recomputed": "", "text": "wrong"}


def test_a_finding_on_a_line():
    assert finding_line(FINDING) == f"  M201 a/b[1]: wrong; stored 1.23457, recomputed   ({RULES['M201']})"
    plain = {**FINDING, "stored": "", "severity": "note", "text": RULES["M201"]}
    assert finding_line(plain) == f"  M201 [note] a/b[1]: {RULES['M201']}"
    assert "; stored , recomputed NULL" in finding_line({**plain, "recomputed": None})


def document(**more):
    base = {
        "experiment": "99_tiny",
        "run": "0" * 12,
        "kind": "confirmatory",
        "verdict": "VERIFIED",
        "findings": [],
        "levels": {"1": "checked", "2": "not checked: why"},
        "rederived": {"rows": 3, "of": 4, "arrays": 2, "given": 1, "largest_difference": 1e-10},
        "controls": {"seen": {"holds": True, "values": {"least": 0.5}, "note": ""}, "unseen": {"holds": False, "values": {}, "note": ""}},
        "claims": {"X1": {"verdict": "reproduced", "values": {"n": 3, "x": None}, "rule": "n = 3", "note": "n" * 95}},
    }
    return {**base, **more}


def test_a_run_on_a_line():
    text = "no finding, 3/4 rows and 2 arrays re-derived, 1 given, differences within 1e-10"
    assert run_line(document()).endswith("VERIFIED     " + text)
    assert " 1 finding," in run_line(document(findings=[FINDING])) and " 2 findings," in run_line(document(findings=[FINDING] * 2))
    assert run_line(document(experiment="", kind="")).split()[:3] == ["-", "0" * 12, "-"]
    assert levels_line(document()) == ["  level 2: not checked: why"]
    assert controls_lines(document()) == ["  control seen: holds (least = 0.5)", "  control unseen: DOES NOT HOLD ()"]


def test_the_table_of_claims():
    assert claims_table([], False) == [] and claims_table([(document(claims={}), True)], True) == []
    short = claims_table([(document(), True)], False)
    assert short == ["", "claims", "  X1  99_tiny  reproduced  " + "n" * 87 + "...", "  1 claims: 1 reproduced"]
    full = claims_table([(document(), True)], True)
    assert full[2:5] == ["  X1  99_tiny  reproduced  " + "n" * 95, "      n = 3, x = NULL", "      n = 3"]
    other = document(claims={"X0": {"verdict": "open", "values": {}, "rule": "why", "note": "n" * 90}})
    both = claims_table([(document(), False), (other, True)], False)
    assert both[2:] == ["  X0  99_tiny  open  " + "n" * 90, "  1 claims: 1 open"]
    another = claims_table([(document(experiment="98_other"), False), (other, True)], False)
    assert another[-1] == "  2 claims: 1 open, 1 reproduced" and another[2].startswith("  X0  99_tiny   open")
