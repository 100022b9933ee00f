"""BR-14, 19, 26, 29, 30: over 200 seeds the check fires on the faulty variant, and on neither the correct one nor the control."""

import pytest

from labcore.faults import consecutive_slots, late_write, stale_index, unextended_batch

SEEDS = range(200)
FIRES = [
    ("BR-14", consecutive_slots, "faulty", lambda v: v["foreign_slots"] == 3 and v["error"] > 0.1 and v["reached"] > 0.1),
    ("BR-19", unextended_batch, "faulty", lambda v: v["rows"] == 1 and v["own_error"] > 0 and v["reached"] > 0),
    ("BR-26", stale_index, "faulty", lambda v: v == {"foreign_rows": 3.0, "hit": 1.0}),
    ("BR-29", late_write, "freed_at_once", lambda v: v["overwritten"] == 2 and v["leaked"] == 0),
    ("BR-30", late_write, "waits_for_ever", lambda v: v == {"overwritten": 0.0, "leaked": 3.0, "third_refused": 1.0}),
]
QUIET = [
    ("BR-14", consecutive_slots, "correct", {"foreign_slots": 0.0, "error": 0.0, "reached": 0.0}),
    ("BR-14", consecutive_slots, "control", {"foreign_slots": 0.0, "error": 0.0, "reached": 0.0}),
    ("BR-19", unextended_batch, "correct", {"rows": 2.0, "own_error": 0.0, "reached": 0.0}),
    ("BR-19", unextended_batch, "control", {"rows": 2.0, "own_error": 0.0, "reached": 0.0}),
    ("BR-26", stale_index, "correct", {"foreign_rows": 0.0, "hit": 0.0}),
    ("BR-26", stale_index, "control", {"foreign_rows": 0.0, "hit": 1.0}),
    ("BR-29", late_write, "correct", {"overwritten": 0.0, "leaked": 0.0, "third_refused": 0.0}),
    ("BR-29", late_write, "control", {"overwritten": 0.0, "leaked": 0.0, "third_refused": 0.0}),
    ("BR-30", late_write, "control_waits", {"overwritten": 0.0, "leaked": 0.0, "third_refused": 0.0}),
]


@pytest.mark.parametrize(("report", "module", "name", "fires"), FIRES)
def test_faulty_fires_on_every_seed(report, module, name, fires):
    assert all(fires(getattr(module, name)(seed)) for seed in SEEDS)


@pytest.mark.parametrize(("report", "module", "name", "wanted"), QUIET)
def test_correct_and_control_are_quiet_on_every_seed(report, module, name, wanted):
    assert all(getattr(module, name)(seed) == wanted for seed in SEEDS)


def test_the_fix_of_one_holds_for_the_other():
    for alive in (True, False):
        assert late_write.correct(7, alive) == {"overwritten": 0.0, "leaked": 0.0, "third_refused": 0.0}


def test_a_row_out_of_range_is_an_error():
    with pytest.raises(IndexError, match="row 2 of a batch of 2"):
        unextended_batch.row_checked(unextended_batch.np.zeros((2, 4)), 2)
