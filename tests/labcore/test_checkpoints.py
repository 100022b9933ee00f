"""The checkpoint store against a model that keeps every full sequence: right hits, exact states, never over budget."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labcore.checkpoints import CheckpointStore, cache_bytes, longest_checkpoint
from labcore.eviction import ADMIT, EVICT, SKIP
from labcore.faults.loose_keys import LengthOnly, Unscoped
from labcore.network import advance, draw

WEIGHTS = draw([13])
TOKEN = 528
BASES = [[(5 * i + base) % 32 for i in range(23)] for base in range(3)]


@settings(max_examples=11, deadline=None, database=None)
@given(st.integers(0, 2**32), st.sampled_from(["fifo", "lru", "lfu", "count_lru", "size_aware"]), st.sampled_from(["all", "longest"]))
def test_against_full_sequences(seed, policy, keep):
    rng, budget = random.Random(seed), 29 * TOKEN
    store, held = CheckpointStore(budget, keep, policy), {}
    for _ in range(29):
        base, length = rng.choice(BASES), rng.randint(1, 23)
        ids = base[:length] if rng.random() < 0.7 else [*base[: length // 2], *(rng.randrange(32) for _ in range(5))]
        scope = rng.choice("ab")
        want = max((n for s, n in ((s, len(k)) for (s, k) in held if s == scope and tuple(ids[: len(k)]) == k) if n < len(ids)), default=0)
        served = store.serve(WEIGHTS, ids, scope)
        assert served.cut == want
        assert np.abs(served.states - advance(WEIGHTS, ids)[0][:, want:]).max() <= 1e-12
        for event in served.events:
            key = event.key.scope, tuple(np.frombuffer(event.key.packed, "<i4").tolist())
            assert event.nbytes == TOKEN * len(key[1])
            if event.kind == ADMIT:
                held[key] = event.nbytes
            elif event.kind == EVICT:
                del held[key]
        assert served.resident_bytes == sum(held.values()) == sum(map(cache_bytes, store.caches.values())) <= budget


def test_published_numbers_of_one_request():
    store = CheckpointStore(8192)
    ids = [*range(1, 9), 21, 22, 23, 24]
    first, second = (store.serve(WEIGHTS, ids, "owner") for _ in range(2))
    assert (first.cut, first.counter.projected_rows, first.counter.score_elements, first.copied_bytes) == (0, 72, 192, 12 * TOKEN)
    assert (second.cut, second.counter.projected_rows, second.counter.score_elements, second.copied_bytes) == (8, 24, 96, 8 * TOKEN)
    assert [event.kind for event in CheckpointStore(4096).serve(WEIGHTS, ids, "owner").events] == [ADMIT, SKIP]


def test_the_deepest_place_leaves_a_token():
    assert all(longest_checkpoint(n) < n and longest_checkpoint(n) % 4 == 0 for n in range(1, 40))


def test_loose_keys_take_foreign_states_and_agreeing_requests_do_not():
    ids = [*range(1, 9), 21, 22]
    store = Unscoped(10**6)
    assert [store.serve_counted(WEIGHTS, ids, scope)[1] for scope in "aab"] == [False, False, True]
    other = [*range(13, 21), 21, 22]
    store = LengthOnly(10**6)
    assert [store.serve_counted(WEIGHTS, one, "a")[1] for one in (ids, ids, other)] == [False, False, True]
    served, _ = store.serve_counted(WEIGHTS, other, "a")
    assert np.abs(served.states - advance(WEIGHTS, other)[0][:, served.cut :]).max() > 1e-3


def test_refusals():
    for budget in (0, -5, True, 1.5):
        with pytest.raises((TypeError, ValueError), match="budget"):
            CheckpointStore(budget)
    with pytest.raises(ValueError, match="'some'"):
        CheckpointStore(99, "some")
    store = CheckpointStore(9999)
    for ids, scope in (([], "a"), ([1.0], "a"), ([40], "a"), ([1, 2, 3, 4, 5], ""), ([1, 2, 3, 4, 5], None)):
        with pytest.raises((TypeError, ValueError)):
            store.serve(WEIGHTS, ids, scope)
    assert store.budget.resident == 0 and not store.caches
