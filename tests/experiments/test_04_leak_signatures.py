"""04: a small run passes the audit; a classifier that looks away does not."""

import numpy as np

import labcore.leak_signatures
from tests.experiments import small

NAME = "04_leak_signatures"
FEW = {
    "seeds": [11], "length": [3, 7], "scale": [0.5, 8.0], "cached": [4, 16, 64], "own": [3], "others": [1, 7], "threshold": [0.0, 1e-3],
    "presence": [0.3, 0.9], "history": [7],
}  # fmt: skip


def test_small_run_is_derived_again(tmp_path):
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    assert all(control["holds"] for control in outcome.document["controls"].values())


def test_a_classifier_that_looks_away_is_found(tmp_path, monkeypatch):
    right = labcore.leak_signatures.classify

    def lenient(rows, own, threshold, presence):
        names = right(rows, own, threshold, presence)
        return np.where(names == 4, 0, names)  # intermittent leaks called clean

    monkeypatch.setattr(labcore.leak_signatures, "classify", lenient)
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert {"R304", "R305"} <= small.rules(outcome)
