"""12: a small run passes the audit, a wrong state or count does not; the two networks agree; published fault numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from audit.derive import e12
from labcore.faults import bf16_positions, context_shift, left_padding
from labcore.placed_network import draw, moved, run
from labcore.positions import RULES, rotate
from tests.experiments import small

NAME = "12_position_alignment"
FEW = {"seeds": [7], "rule": ["alibi"], "shift": [0, 4]}


def test_a_small_run_is_rederived(tmp_path):
    assert small.rules(small.judged(tmp_path, small.protocol(NAME, **FEW))) == set()


def tampered(batch):
    """A state off by ten times its bound, a log-probability by a thousand, a count by one."""
    changes = {"contexts": ("total_two", 1e-11), "trained": ("misaligned", 1e-7)}
    if batch.block in changes:
        name, step = changes[batch.block]
        values = batch.arrays[name].copy()
        values[-1].flat[-1] += step
        return dataclasses.replace(batch, arrays={**batch.arrays, name: values})
    if batch.block == "bf16":
        return dataclasses.replace(batch, counts={**batch.counts, "places_apart": [768]})
    return batch


def test_wrong_values_are_found(tmp_path, monkeypatch):
    small.tamper(monkeypatch, tampered)
    findings = small.judged(tmp_path, small.protocol(NAME, **FEW)).document["findings"]
    for rule, name in (("R302", "total_two"), ("R302", "misaligned"), ("R304", "places_apart")):
        assert any(item["rule"] == rule and name in item["where"] for item in findings), (rule, name)


@pytest.mark.parametrize("rule", RULES)
def test_the_two_networks_agree_and_chunks_are_the_whole(rule):
    ids, places = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], list(range(2, 13))
    model = draw(5)
    states, _ = run(model, rule, ids, places)
    theirs, _ = e12.Model.of_seeds([5]).run(rule, ids, [places])
    assert np.abs(states - np.array(theirs)).max() <= 1e-12
    _, cache = run(model, rule, ids[:4], places[:4])
    behind, _ = run(model, rule, ids[4:], places[4:], cache)
    assert np.abs(behind - states[:, :, 4:]).max() <= 1e-12


def test_moving_there_and_back():
    _, cache = run(draw(5), "rope", [3, 1, 4, 1, 5], np.arange(5))
    back = moved(moved(cache, "rope", 31), "rope", -31)
    assert np.abs(back.k - cache.k).max() <= 1e-14 and np.array_equal(back.positions, cache.positions)


def test_published_fault_numbers():
    assert len(np.unique(bf16_positions.rounded(np.arange(4096)))) == 769
    assert bf16_positions.rounded([256, 257, 15962]).tolist() == [256, 256, 15936]
    assert all(e12.to_bf16(n) == bf16_positions.rounded([n])[0] for n in range(0, 40000, 37))
    assert left_padding.by_mask(np.zeros(6), 2).tolist() == [0, 0, 0, 1, 2, 3]
    keys = np.random.default_rng(1).normal(size=(13, 2, 8))
    exact = rotate(keys, np.full(13, -64))

    def error(values):
        return np.linalg.norm(values - exact) / np.linalg.norm(exact)

    assert error(context_shift.in_steps(keys, 64, "int4")) > 0.4 > 0.25 > error(context_shift.at_once(keys, 64, "int4"))
    assert error(context_shift.in_steps(keys, 64, "float16")) < 0.02
