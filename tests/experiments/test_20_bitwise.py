"""20: a small run passes the audit on any machine; values beyond rounding, and decisions that do not follow from the bits, do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments import small

NAME = "20_bitwise"
pytestmark = pytest.mark.torch


@pytest.fixture
def made():
    return small.protocol(
        NAME, seeds=[19], path=["alone", "again", "left_padded", "batch_2", "sdpa_math"], others=[2], request=[3],
        fixed_path=["alone", "chunked", "left_padded", "batch_7", "two_threads"], condition=["same-prefix", "edited-prefix"],
    )  # fmt: skip


@pytest.fixture
def experiment(monkeypatch):
    """The module that a run will load, for changes to it."""
    import labcore.runner
    from labcore.loading import load

    module = load(small.ROOT / "experiments" / NAME / "experiment.py")
    monkeypatch.setattr(labcore.runner, "load", lambda path: module)
    return module


def test_small_run_is_derived_again(tmp_path, made):
    outcome = small.judged(tmp_path, made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    controls = outcome.document["controls"]
    assert controls["fixed_order_is_invariant"]["values"]["unequal"] == 0
    assert controls["contamination_is_seen"]["values"]["least"] == 1
    assert controls["no_false_alarm_of_the_perturbation_test"]["values"]["alarms"] == 0


def test_a_padding_token_that_is_seen_is_found(tmp_path, made, experiment, monkeypatch):
    right = experiment.advance
    monkeypatch.setattr(experiment, "advance", lambda net, x, cache=None, pad=0, **how: right(net, x, cache, 0, **how))
    outcome = small.judged(tmp_path, made)
    assert any(f["rule"] == "R302" and f["where"].startswith("bits_float32/") for f in outcome.document["findings"])


def test_a_decision_that_the_bits_do_not_give_is_found(tmp_path, made, experiment, monkeypatch):
    right = experiment.alarms

    def silent(protocol, dtype):
        batch = right(protocol, dtype)
        return batch.__class__(batch.block, batch.arrays, dict.fromkeys(batch.decisions, [False] * 2))

    monkeypatch.setattr(experiment, "alarms", silent)
    assert "R303" in small.rules(small.judged(tmp_path, made))


def test_ulp_distance_counts_neighbours(experiment):
    x = np.array([1.0, -0.0, 5e-324, -2.5])
    assert experiment.ulps(x, np.nextafter(x, np.inf)) == 1
    assert experiment.ulps(x, np.nextafter(np.nextafter(x, -np.inf), -np.inf)) == 2
    assert experiment.ulps(np.array([0.0]), np.array([-0.0])) == 0
    half = np.array([0x3C00, 0x8001], np.uint16)
    assert experiment.ulps(half, np.array([0x3C02, 0x0001], np.uint16)) == 2
