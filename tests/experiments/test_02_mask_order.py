"""02: a small run passes the audit; a late mask that lets a value through does not."""

import labcore.faults.late_masks as late
from tests.experiments import small

NAME = "02_mask_order"
FEW = {"seeds": [11], "scale": [0.3, 3.0], "foreign": [1, 7]}


def test_small_run_is_derived_again(tmp_path):
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    assert all(control["holds"] for control in outcome.document["controls"].values())


def test_a_value_let_through_is_found(tmp_path, monkeypatch):
    right = late.VARIANTS["after"]
    monkeypatch.setitem(late.VARIANTS, "after", lambda s, m: right(s, m) + 1e-9 * ~m)
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert "R302" in small.rules(outcome)
