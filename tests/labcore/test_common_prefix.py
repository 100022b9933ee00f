"""The longest-common-prefix store: cuts against brute force, exact states, independence of requests, refusals."""

import random

import numpy as np
import pytest

from labcore.common_prefix import CommonPrefixStore
from labcore.faults import stale_next_position
from labcore.network import Weights, advance, draw

WEIGHTS = draw([3, 5])


def filled(window=None):
    store = CommonPrefixStore()
    store.remember(WEIGHTS, [1, 2, 3, 4, 5, 6, 7], "owner", window)
    store.remember(WEIGHTS, [1, 2, 3, 9, 10], "owner", window)
    return store


@pytest.mark.parametrize("window", [None, 3])
def test_random_queries_are_exact(window):
    rng, store = random.Random(11), filled(window)
    stored = ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 9, 10])
    for _ in range(97):
        ids = rng.choice(stored)[: rng.randint(1, 7)] + [rng.randrange(32) for _ in range(rng.randrange(5))]
        states, cut = store.serve(WEIGHTS, ids, "owner", window)
        shared = [next((i for i, (a, b) in enumerate(zip(ids, one, strict=False)) if a != b), min(len(ids), len(one))) for one in stored]
        if window is None:
            assert cut == min(max(shared), len(ids) - 1)
        else:
            assert cut == max((len(one) for one, n in zip(stored, shared, strict=True) if n == len(one) < len(ids)), default=0)
        fresh, _ = advance(WEIGHTS, ids, window=window)
        assert np.abs(states - fresh[:, cut:]).max() <= 1e-12


def test_newest_of_equals_and_strictly_longer():
    store = filled()
    newest, oldest = store.entries[1], store.entries[0]
    assert store.find(WEIGHTS, [1, 2, 3, 30, 31], "owner") == (newest, 3)
    assert store.find(WEIGHTS, [1, 2, 3, 4, 31], "owner") == (oldest, 4)


def test_first_in_first_out():
    store = filled()
    store.remember(WEIGHTS, [20, 21], "owner")
    assert [entry.length for entry in store.entries] == [5, 2]


def test_conditions_and_scopes_are_apart():
    store, other = filled(), Weights(WEIGHTS.embedding, WEIGHTS.qkv.copy())
    other.qkv[1, 1, 2, 7, 7] += 1e-9
    query = [1, 2, 3, 4, 5, 6, 7, 8]
    assert store.find(WEIGHTS, query, "owner")[1] == 7
    for arguments in ((WEIGHTS, query, "reader"), (other, query, "owner"), (WEIGHTS, query, "owner", 9)):
        assert store.find(*arguments) == (None, 0)


def test_a_request_leaves_no_trace():
    store, query = filled(), [1, 2, 3, 4, 5, 6, 7, 8, 9]
    before = store.serve(WEIGHTS, query, "owner")[0]
    store.serve(WEIGHTS, [1, 2, 3, 4, 30, 30, 30], "owner")[0][:] = 1e9
    assert np.array_equal(store.serve(WEIGHTS, query, "owner")[0], before)


def test_stale_position_errs_only_behind_a_real_crop():
    entry, query = filled().entries[0], np.array([1, 2, 3, 4, 5, 6, 7, 8, 9])
    fresh, _ = advance(WEIGHTS, query)
    assert np.abs(stale_next_position.faulty(WEIGHTS, entry.cache, query, 4) - fresh[:, 4:]).max() > 1e-3
    assert np.abs(stale_next_position.faulty(WEIGHTS, entry.cache, query, 7) - fresh[:, 7:]).max() <= 1e-12


def test_refusals_change_nothing():
    store = filled()
    held = list(store.entries)
    for ids in ([], [1.0], [True], ["1"], "1", [32], [-1]):
        with pytest.raises((TypeError, ValueError), match="ids"):
            store.remember(WEIGHTS, ids, "owner")
    for scope in ("", None, 3):
        with pytest.raises((TypeError, ValueError), match="scope"):
            store.remember(WEIGHTS, [1], scope)
    with pytest.raises(ValueError, match="did not make"):
        store.resume(filled().entries[0], WEIGHTS, [1, 2, 3], 2)
    for capacity in (0, -1, True, 2.0):
        with pytest.raises((TypeError, ValueError), match="capacity"):
            CommonPrefixStore(capacity)
    assert store.entries == held
