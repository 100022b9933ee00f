"""The keyed store: what it reuses, what it refuses, what it never changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labcore import network
from labcore.network import Weights
from labcore.prefix import PrefixStore, make_key, signature, signatures

PREFIX, SUFFIX = [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12]
BASE = network.draw([7])


def changed() -> Weights:
    weights = Weights(BASE.embedding.copy(), BASE.qkv.copy())
    weights.qkv[0, 0, 1, 0, 0] += 0.5
    return weights


@pytest.fixture
def store():
    store = PrefixStore()
    store.remember("reader-a", BASE, PREFIX)
    return store


def test_hit_continues_the_cache(store):
    got = store.resume("reader-a", BASE, PREFIX, SUFFIX)
    fresh, _ = network.advance(BASE, PREFIX + SUFFIX)
    assert (got.reused, got.projected_rows, got.score_elements) == (True, 24, 4 * 12 * 2)
    assert np.abs(got.states - fresh[0, -4:]).max() <= 1e-12


@pytest.mark.parametrize(
    ("scope", "weights", "prefix", "window"),
    [
        ("reader-b", BASE, PREFIX, None),
        ("reader-a", changed(), PREFIX, None),
        ("reader-a", BASE, [1, 2, 20, 4, 5, 6, 7, 8], None),
        ("reader-a", BASE, PREFIX[:7], None),
        ("reader-a", BASE, PREFIX, 4),
        ("reader-a", BASE, PREFIX, 8),
    ],
)
def test_miss_recomputes_and_stores_nothing(store, scope, weights, prefix, window):
    before = store.held(), store.digests()
    got = store.resume(scope, weights, prefix, SUFFIX, window)
    fresh, _ = network.advance(weights, prefix + SUFFIX, window=window)
    assert (got.reused, got.projected_rows) == (False, (len(prefix) + 4) * 6)
    assert got.states.tobytes() == fresh[0, -4:].tobytes()
    assert (store.held(), store.digests()) == before


def test_two_suffixes_do_not_meet(store):
    before = store.digests()
    first = store.resume("reader-a", BASE, PREFIX, SUFFIX).states
    second = store.resume("reader-a", BASE, PREFIX, [20, 21, 22]).states
    first[:] = np.nan
    assert store.digests() == before
    assert store.resume("reader-a", BASE, PREFIX, [20, 21, 22]).states.tobytes() == second.tobytes()


def test_first_in_first_out_and_a_hit_does_not_refresh(store):
    store.remember("reader-a", BASE, [2, 3])
    assert store.resume("reader-a", BASE, PREFIX, SUFFIX).compared == 2
    assert store.resume("reader-a", BASE, [2, 3], SUFFIX).compared == 1
    assert store.resume("reader-a", BASE, PREFIX, SUFFIX).reused
    store.remember("reader-a", BASE, [4, 5])
    assert [key[2] for key in store.held()] == [(2, 3), (4, 5)]
    assert not store.resume("reader-a", BASE, PREFIX, SUFFIX).reused


@pytest.mark.parametrize("ids", [[1.0, 2.0], [True, 2], ["1"], [], [32], [-1], np.array([1.0])])
def test_ids_are_checked_before_the_key(store, ids):
    for call in (lambda: store.resume("reader-a", BASE, ids, SUFFIX), lambda: store.resume("reader-a", BASE, PREFIX, ids)):
        with pytest.raises((TypeError, ValueError), match="ids"):
            call()
    with pytest.raises((TypeError, ValueError), match="ids"):
        store.remember("reader-a", BASE, ids)


@pytest.mark.parametrize("scope", ["", None, 3, b"reader-a"])
def test_scope_is_checked(store, scope):
    with pytest.raises((TypeError, ValueError), match="scope"):
        store.resume(scope, BASE, PREFIX, SUFFIX)


@pytest.mark.parametrize("capacity", [0, -1, True, 2.0])
def test_capacity_is_checked(capacity):
    with pytest.raises(ValueError, match="capacity"):
        PrefixStore(capacity)


def test_many_networks_are_refused(store):
    with pytest.raises(ValueError, match="wanted 1"):
        store.remember("reader-a", network.draw([7, 19]), PREFIX)


def test_the_store_keeps_no_memory_of_the_caller():
    ids, store = np.array(PREFIX), PrefixStore()
    weights = Weights(BASE.embedding.copy(), BASE.qkv.copy())
    store.remember("reader-a", weights, ids)
    before = store.digests()
    ids[:], weights.qkv[:] = 0, 0
    assert store.digests() == before
    assert store.resume("reader-a", BASE, PREFIX, SUFFIX).reused


def test_signature_sees_every_weight_and_every_setting():
    ours = signature(BASE, None)
    assert ours == signature(Weights(BASE.embedding.copy(), BASE.qkv.copy()), None)
    assert signature(BASE, 4) not in (ours, signature(BASE, 5))
    for name in ("embedding", "qkv"):
        flat = getattr(BASE, name).reshape(-1)
        for place in (0, 37, flat.size - 1):
            other = Weights(BASE.embedding.copy(), BASE.qkv.copy())
            view = getattr(other, name).reshape(-1)
            view[place] = np.nextafter(view[place], 1)
            assert signature(other, None) != ours
    assert signatures(network.draw([19, 7]), None)[1] == ours


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("rm"), st.sampled_from(["a", "b"]), st.integers(1, 3), st.sampled_from([None, 4])), max_size=8))
def test_store_follows_a_list_of_keys(calls):
    store, model = PrefixStore(), []
    for kind, scope, length, window in calls:
        key = make_key(scope, BASE, PREFIX[:length], window)
        if kind == "m":
            store.remember(scope, BASE, PREFIX[:length], window)
            model = [*model, key][-2:]
        else:
            assert store.resume(scope, BASE, PREFIX[:length], [9], window).reused == (key in model)
        assert store.held() == model
