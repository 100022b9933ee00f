"""05: correct paths agree to 1e-12, faulty ones do not, counts are what arithmetic says."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from audit.greedy import decode, exactly
from audit.teaching import Network
from labcore import metrics, network
from labcore.faults import first_key_triangle, no_mask, reset_position
from labcore.loading import load
from labcore.network_loop import LoopNetwork
from labcore.recall_training import Trained, draw_words
from tests.experiments import small

NAME = "05_cache_equivalence"
CORRECT = ("causal_future_error", "prefix_error", "cache_error", "chunk_error", "sliding_error")
FAULTY = ("unmasked_future_change", "wrong_chunk_mask_error", "reset_position_error", "cropped_recompute_error")


@pytest.fixture(scope="module")
def experiment():
    return load(small.ROOT / "experiments" / NAME / "experiment.py")


@pytest.fixture(scope="module")
def made():
    return small.protocol(NAME)


@pytest.fixture(scope="module")
def published(experiment, made):
    return next(batch for batch in experiment.published(made) if batch.block == "published")


def test_correct_paths_agree_and_faulty_ones_do_not(made, published):
    errors = metrics.compute(made.blocks["published"], published.arrays)
    for name in CORRECT:
        assert max(errors[name]) <= 1e-12, name
    for name in FAULTY:
        assert min(errors[name]) > 1e-2, name


def test_counts(published):
    counts = {name: set(values) for name, values in published.counts.items()}
    assert counts == {
        "prefix_projected_rows": {sum(range(1, 25)) * 6},
        "cached_projected_rows": {24 * 6},
        "prefix_score_elements": {sum(n * n for n in range(1, 25)) * 2},
        "cached_score_elements": {sum(range(1, 25)) * 2},
        "full_kv_bytes": {2 * 2 * 24 * 16 * 8},
        "window_kv_bytes": {2 * 2 * 4 * 16 * 8},
    }


def test_ids_and_full_passes_by_the_loop(published):
    ids = [(7 * i + 3) % 32 for i in range(24)]
    changed = ids[:12] + [(i + 1) % 32 for i in ids[12:]]
    assert published.arrays["tokens"].tolist() == [ids] * 3
    assert published.arrays["changed_tokens"].tolist() == [changed] * 3
    for row, seed in enumerate([7, 19, 41]):
        loop = LoopNetwork(seed)
        for name, want in {
            "full": loop.states(ids),
            "causal_changed": loop.states(changed)[:12],
            "window_full": loop.states(ids, 4),
            "cropped_last": loop.states(ids[-4:], 4, 20)[-1],
            "right_chunk": loop.states(ids)[5:8],
        }.items():
            assert np.abs(published.arrays[name][row] - want).max() <= 1e-13, name


def test_faults_agree_with_the_correct_network_where_they_must():
    """The control of each fault: there it shows nothing."""
    weights, ids = network.draw([7, 19]), np.tile([3, 10, 17, 24, 31], (2, 1))
    full, _ = network.advance(weights, ids)
    assert np.abs(first_key_triangle.faulty(weights, ids, network.empty(2)) - full).max() <= 1e-13
    assert np.abs(reset_position.faulty(weights, ids)[:, 0] - full[:, 0]).max() <= 1e-13
    assert np.abs(no_mask.faulty(weights, ids[:, :1]) - full[:, :1]).max() <= 1e-13


def test_a_single_query_with_the_first_key_triangle_sees_key_zero_only():
    weights, ids = network.draw([7]), np.array([[3, 10, 17, 24, 31]])
    _, cache = network.advance(weights, ids[:, :4])
    got = first_key_triangle.faulty(weights, ids[:, 4:], cache)
    altered = network.Cache(cache.k.copy(), cache.v.copy(), cache.positions, cache.next_position)
    altered.k[:, :, 1:], altered.v[:, :, 1:] = 9.0, -9.0
    assert np.abs(first_key_triangle.faulty(weights, ids[:, 4:], altered) - got).max() == 0.0


def test_triangles(experiment, made):
    batch = experiment.triangle(made)
    errors = metrics.compute(made.blocks["triangle"], batch.arrays)["anchor_error"]
    for row, factors in enumerate(made.rows("triangle")):
        wrong = factors["anchor"] == "first-key" and factors["cached"] > 0
        assert (errors[row] > 1e-3) if wrong else (errors[row] <= 1e-12)
        assert batch.counts["mask_rows"][row] == factors["new"]
        assert batch.counts["mask_columns"][row] == factors["new"] + factors["cached"]
    assert first_key_triangle.triangle(2, 3).sum() == 3
    assert network.visible(np.array([3, 4]), np.arange(5)).sum() == 9


@pytest.mark.torch
def test_torch_anchors_is_causal_at_the_first_key():
    import torch

    rng = np.random.default_rng(3)
    q, k, v = (torch.from_numpy(rng.normal(size=(1, 1, n, 16))) for n in (2, 5, 5))
    attention = torch.nn.functional.scaled_dot_product_attention
    got = attention(q, k, v, is_causal=True)
    first = attention(q, k, v, attn_mask=torch.from_numpy(first_key_triangle.triangle(2, 3)))
    last = attention(q, k, v, attn_mask=torch.from_numpy(network.visible(np.array([3, 4]), np.arange(5))))
    assert float((got - first).abs().max()) <= 1e-12
    assert float((got - last).abs().max()) > 1e-3


def test_steps(experiment, made):
    batch = experiment.steps(made)
    errors = metrics.compute(made.blocks["steps"], batch.arrays)["cache_error"]
    assert max(errors) <= 1e-12
    for row, factors in enumerate(made.rows("steps")):
        length, heads = factors["step"] + 1, factors["heads"]
        assert batch.arrays["k_shape"][row].tolist() == [3, heads, length, 16 // heads]
        assert batch.counts["score_elements"][row] == 2 * heads * length


def test_exponents_of_short_sequences(experiment, made):
    short = made.settings | {"lengths": [8, 16, 32]}
    batch = experiment.scaling(msgspec.structs.replace(made, settings=short))
    assert batch.arrays["count"][0].tolist() == [n * (n + 1) // 2 * 6 for n in (8, 16, 32)]
    assert batch.arrays["count"][1].tolist() == [n * (n + 1) * (2 * n + 1) // 3 for n in (8, 16, 32)]
    assert batch.own["exponent"][2] == pytest.approx(1.0, abs=1e-12)


def test_loops_and_shares(experiment):
    assert experiment.loops(np.array([9, 9, 1, 2, 3, 4, 1, 2, 3, 4]))
    assert experiment.loops(np.array([5] * 8))
    assert not experiment.loops(np.array([1, 2, 3, 4, 5, 1, 2, 3]))
    assert experiment.share(np.array([True, False, True, True])) == 0.75


@pytest.mark.parametrize("rule", ["true-positions", "reset-to-0"])
def test_the_auditor_says_what_the_cached_network_says(experiment, rule):
    rng, weights = np.random.default_rng(11), network.draw([11])
    model = Trained(weights, rng.normal(size=(16, 32)))
    words = draw_words(rng, 13, 5)
    said = experiment.continued(model, words, 6, rule).tolist()
    parts = weights.embedding[0], weights.qkv[0]
    reset = rule == "reset-to-0"
    assert decode(words, 6, *parts, model.readout, reset) == said
    assert exactly(Network(*parts), model.readout, words[3].tolist(), 6, reset) == said[3]
    assert decode(words, 6, *parts, model.readout, not reset) != said
