"""The teaching network against a plain matrix formula, and against what was published of experiment 06."""

import math

import numpy as np
import pytest

from audit.teaching import EMPTY, FEW, Network, draw, error, sums


def plain(tokens, seed, window=None):
    embedding, qkv = draw(seed)
    at = np.arange(len(tokens))
    angle = at[:, None] / 10000 ** (2 * np.arange(8) / 16)
    x = embedding[tokens] + np.stack([np.sin(angle), np.cos(angle)], 2).reshape(len(tokens), 16)
    seen = (at[None] <= at[:, None]) & (at[None] > at[:, None] - (window or 10**6))
    for q, k, v in qkv:
        scores = np.where(seen, (x @ q) @ (x @ k).T / 4, -np.inf)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        x = np.tanh(x + shares / shares.sum(1, keepdims=True) @ (x @ v))
    return x


@pytest.mark.parametrize("window", [None, 4])
def test_full_pass_agrees_with_the_matrix_formula(window):
    tokens = [7 * i % 32 for i in range(13)]
    got = Network.of_seed(19).run(tokens, window=window)
    assert np.abs(np.array(got.states) - plain(tokens, 19, window)).max() < 1e-14
    assert (got.projected_rows, got.score_elements) == (13 * 6, 13 * 13 * 2)


@pytest.mark.parametrize("count", [FEW - 1, 2 * FEW + 1])
def test_sums_side_by_side_are_correctly_rounded(count):
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=(37, count)) * 10.0 ** rng.integers(-9, 9, (37, count)), rng.normal(size=(37, 1))
    one[1] = -one[0] * two[0] / two[1]  # large terms that leave almost nothing
    assert sums(one, two).tolist() == [math.fsum(column) for column in (one * two).T.tolist()]
    assert (sums(one, two) != (one * two).sum(axis=0)).any()


def test_draw_order_is_embedding_then_qkv_of_each_layer():
    embedding, qkv = draw(7)
    rng = np.random.default_rng(7)
    assert (embedding == rng.normal(0, 0.3, 512).reshape(32, 16)).all()
    assert (qkv == rng.normal(0, 0.25, 1536).reshape(2, 3, 16, 16)).all()


def test_cache_continues_a_pass_and_a_window_keeps_its_last_rows():
    network, tokens = Network.of_seed(41), [3, 10, 17, 24, 31, 6, 13]
    cache = EMPTY
    for place, token in enumerate(tokens):
        step = network.run([token], cache, window=3)
        cache = step.cache
        assert error(step.states, network.run(tokens, window=3).states[place : place + 1]) < 1e-15
        assert step.score_elements == 2 * min(place + 1, 4)
    assert (cache.positions, cache.next_position) == ((4, 5, 6), 7)


def test_published_errors_of_a_stale_prefix():
    published = {7: 0.088204, 19: 0.060447, 41: 0.058312}
    for seed, wanted in published.items():
        network = Network.of_seed(seed)
        stale = network.run(range(9, 13), network.run(range(1, 9)).cache).states
        fresh = network.run([1, 2, 20, 4, 5, 6, 7, 8, 9, 10, 11, 12]).states[-4:]
        assert round(error(stale, fresh), 6) == wanted


def test_a_cache_of_another_network_is_not_taken_for_ones_own():
    one, (embedding, qkv) = Network.of_seed(7), draw(7)
    qkv[0, 1, 0, 0] += 0.5
    other = Network(embedding, qkv)
    own = other.run([9, 10], other.run([1, 2]).cache).states
    foreign = other.run([9, 10], one.run([1, 2]).cache).states
    assert error(own, foreign) > 1e-4


def test_mask_positions_and_missing_mask_are_faults_that_show():
    network, tokens = Network.of_seed(7), [3, 10, 17, 24, 31]
    right = network.run(tokens).states
    assert error(network.run(tokens, causal=False).states, right) > 1e-3
    cache = network.run(tokens[:2]).cache
    assert error(network.run(tokens[2:], cache, query_positions=[0, 1, 2]).states, right[2:]) > 1e-3
    cropped, wrong = network.run(tokens).cache.crop(3), network.run(tokens).cache.crop(3, 5)
    assert (cropped.positions, cropped.next_position, wrong.next_position, len(cropped)) == ((0, 1, 2), 3, 5, 3)
    assert (
        error(network.run(tokens[3:], cropped).states, right[3:]) < 1e-15 < 1e-3 < error(network.run(tokens[3:], wrong).states, right[3:])
    )
    assert network.run(tokens[3:], network.run(tokens[:3]).cache) is not network.run(tokens[3:], cropped)
