"""The teaching network: equal to its loop, equal to itself in every way of feeding, and strict with its inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labcore import network
from labcore.network import Cache, Counter, Weights
from labcore.network_loop import LoopNetwork

SEEDS = [7, 19, 41]
IDS = [(5 * i + 2) % 32 for i in range(13)]


def close(a, b, within=1e-13):
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= within


def test_draw_takes_the_stream_matrix_by_matrix():
    weights = network.draw([7, 19])
    loop = LoopNetwork(19)
    assert weights.embedding[1].tobytes() == loop.embedding.tobytes()
    assert weights.qkv[1].tobytes() == np.array(loop.layers).tobytes()


@pytest.mark.parametrize("window", [None, 1, 4, 5])
@pytest.mark.parametrize("start", [0, 3])
def test_batched_equals_the_loop(window, start):
    weights = network.draw(SEEDS)
    states, _ = network.advance(weights, IDS, network.empty(3, start), window)
    for g, seed in enumerate(SEEDS):
        close(states[g], LoopNetwork(seed).states(IDS, window, start))


def test_networks_of_a_batch_do_not_meet():
    weights = network.draw(range(11))
    tokens = np.random.default_rng(0).integers(0, 32, (11, 7))
    together, cache = network.advance(weights, tokens)
    for g in range(11):
        alone, own = network.advance(weights.take([g]), tokens[g])
        assert alone.tobytes() == together[g].tobytes()
        assert own.k.tobytes() == cache.k[g].tobytes()
    changed = Weights(weights.embedding.copy(), weights.qkv.copy())
    changed.embedding[3:], changed.qkv[3:] = np.nan, np.nan
    assert network.advance(changed, tokens)[0][:3].tobytes() == together[:3].tobytes()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from([None, 1, 3, 4, 40]), st.integers(0, 10**6))
def test_any_chunking_equals_the_full_pass(chunks, window, seed):
    weights = network.draw([seed])
    ids = np.random.default_rng(seed).integers(0, 32, sum(chunks))
    full, end = network.advance(weights, ids, window=window)
    cache, parts, place = None, [], 0
    for size in chunks:
        states, cache = network.advance(weights, ids[place : place + size], cache, window)
        parts.append(states)
        place += size
    close(np.concatenate(parts, axis=1), full)
    assert cache.positions.tolist() == end.positions.tolist()
    assert cache.next_position == len(ids)
    close(cache.k, end.k)
    close(cache.v, end.v)


def test_cache_keeps_the_last_window_rows_in_memory_of_its_own():
    weights = network.draw([7])
    _, cache = network.advance(weights, IDS, window=5)
    assert cache.positions.tolist() == [8, 9, 10, 11, 12]
    assert cache.k.shape == (1, 2, 5, 16)
    assert cache.k.base is None
    assert cache.kv_bytes == 2 * 2 * 5 * 16 * 8


def test_advance_leaves_the_given_cache_alone():
    weights = network.draw([7])
    _, cache = network.advance(weights, IDS)
    before = cache.k.tobytes() + cache.v.tobytes() + cache.positions.tobytes()
    _, after = network.advance(weights, [3, 4], cache)
    assert cache.k.tobytes() + cache.v.tobytes() + cache.positions.tobytes() == before
    assert not np.shares_memory(cache.k, after.k)


def test_crop_goes_back_to_an_earlier_state_and_copies():
    weights = network.draw([7])
    _, whole = network.advance(weights, IDS)
    _, short = network.advance(weights, IDS[:5])
    cut = whole.crop(5)
    close(cut.k, short.k)
    assert cut.next_position == 5
    assert not np.shares_memory(cut.k, whole.k)
    assert whole.crop(0).next_position == 0
    close(network.advance(weights, IDS, whole.crop(0))[0], network.advance(weights, IDS)[0])
    for wrong in (-1, 14):
        with pytest.raises(ValueError, match="crop"):
            whole.crop(wrong)
    _, window = network.advance(weights, IDS, window=4)
    with pytest.raises(ValueError, match="keeps 4 of 13"):
        window.crop(12)


def test_counters_count_rows_and_cells():
    weights, counter = network.draw([7, 19]), Counter()
    _, cache = network.advance(weights, IDS[:8], counter=counter)
    assert (counter.projected_rows, counter.score_elements) == (8 * 3 * 2, 8 * 8 * 2)
    network.advance(weights, IDS[8:], cache, counter=counter)
    assert (counter.projected_rows, counter.score_elements) == (13 * 3 * 2, (64 + 5 * 13) * 2)


def test_positions_are_absolute_sinusoids():
    table = network.sinusoid(np.arange(3, 6))
    assert table[0, 0] == np.sin(3.0)
    assert table[2, 1] == np.cos(5.0)
    assert table[1, 6] == np.sin(4 / 10000 ** (6 / 16))


@pytest.mark.parametrize(
    ("ids", "error", "text"),
    [
        ([], ValueError, "none"),
        ([1, 2.0], TypeError, r"ids\[1\]: got float"),
        ([True], TypeError, "bool"),
        ([np.bool_(True)], TypeError, "bool"),
        (["1"], TypeError, "str"),
        ("12", TypeError, "str"),
        (b"12", TypeError, "bytes"),
        ([-1], ValueError, "wanted 0 to 31"),
        ([32], ValueError, "wanted 0 to 31"),
        ([2**70], ValueError, "wanted 0 to 31"),
        ([[1, 2]], TypeError, "list"),
        (3, TypeError, "int"),
        (None, TypeError, "NoneType"),
        (np.array([1.0]), TypeError, "float64"),
        (np.array([True]), TypeError, "bool"),
        (np.array(["1"]), TypeError, "<U1"),
        (np.array([1], object), TypeError, "object"),
        (np.array(1), ValueError, "0 dimensions"),
        (np.zeros((1, 1, 1), int), ValueError, "3 dimensions"),
        (np.zeros((1, 2)), TypeError, "float64"),
        (np.zeros((3, 2), int), ValueError, r"wanted \[1, n\]"),
        (np.zeros((1, 0), int), ValueError, r"wanted \[1, n\]"),
        (np.full((1, 2), 32), ValueError, "wanted 0 to 31"),
        (np.full((1, 2), -1), ValueError, "wanted 0 to 31"),
    ],
)
def test_ids_are_refused(ids, error, text):
    with pytest.raises(error, match=text):
        network.advance(network.draw([7]), ids)


@pytest.mark.parametrize("ids", [[3, 4], (3, 4), np.array([3, 4], np.uint8), [np.int16(3), 4], np.array([[3, 4]], np.int32)])
def test_ids_are_taken(ids):
    weights = network.draw([7])
    assert network.advance(weights, ids)[0].tobytes() == network.advance(weights, np.array([3, 4]))[0].tobytes()


@pytest.mark.parametrize(("window", "error"), [(0, ValueError), (-4, ValueError), (4.0, TypeError), (True, TypeError), ("4", TypeError)])
def test_window_is_refused(window, error):
    with pytest.raises(error, match="window"):
        network.advance(network.draw([7]), [1], window=window)


def test_broken_caches_are_refused():
    weights = network.draw([7])
    _, cache = network.advance(weights, IDS)
    with pytest.raises(ValueError, match="next position 14"):
        network.advance(weights, [1], Cache(cache.k, cache.v, cache.positions, 14))
    with pytest.raises(ValueError, match="contiguous"):
        network.advance(weights, [1], Cache(cache.k, cache.v, cache.positions[::-1].copy(), 13))
    with pytest.raises(ValueError, match="wanted both"):
        network.advance(weights, [1], Cache(cache.k[:, :, 1:], cache.v, cache.positions, 13))
    with pytest.raises(ValueError, match="wanted both"):
        network.advance(network.draw(SEEDS), [1], cache)
    with pytest.raises(ValueError, match="contiguous"):
        network.advance(weights, [1], network.empty(1, -1))


def test_narrow_positions_that_wrap_are_no_neighbours():
    with pytest.raises(ValueError, match="contiguous"):
        network.check_positions(np.array([254, 255, 0], np.uint8), "positions")


def test_a_query_that_sees_nothing_is_an_error():
    with pytest.raises(ValueError, match="query at position 9 sees none"):
        network.visible(np.array([2, 9]), np.arange(4), 3)
    with pytest.raises(ValueError, match="query at position 0 sees none"):
        network.visible(np.array([0]), np.array([3, 4]))
