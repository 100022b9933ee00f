"""Planted faults of the store, the checks that see them, bound scopes and the store in another process."""

from __future__ import annotations

import numpy as np
import pytest

from labcore import network, store_checks
from labcore.faults.open_stores import CopyStore, OpenStore, found_in_process
from labcore.faults.prefix_stores import STORES
from labcore.scopes import Authority, BoundStore, Handle
from labcore.store_process import RemoteStore

ARTICLE = list(store_checks.ARTICLE)
ALL = [*store_checks.ARTICLE, *store_checks.OURS]


def failing(fault: str) -> list[str]:
    return [name for name in ALL if store_checks.fails(STORES[fault], name)]


def test_the_correct_store_fails_nothing():
    assert failing("none") == []


@pytest.mark.parametrize(("fault", "check"), list(zip(list(STORES)[1:9], ARTICLE, strict=True)))
def test_each_check_of_the_article_fails_on_its_fault(fault, check):
    assert check in failing(fault)


@pytest.mark.parametrize("fault", list(STORES)[1:])
def test_every_planted_fault_is_seen_by_some_check(fault):
    assert failing(fault)


def test_faults_that_the_eight_do_not_see():
    unseen = [fault for fault in STORES if fault != "none" and not set(failing(fault)) & set(ARTICLE)]
    assert unseen == [
        "refreshes-on-hit", "searches-oldest-first", "first-layer-hashed", "window-as-flag", "ids-sorted", "ids-in-four-bits",
        "accepts-bool", "scope-folded",
    ]  # fmt: skip


def test_bound_scopes():
    weights, authority = network.draw([7]), Authority(bytes(16))
    store, a, b = BoundStore(authority), authority.issue("a"), authority.issue("b")
    store.remember(a, weights, [1, 2])
    assert store.resume(a, weights, [1, 2], [3]).reused
    assert not store.resume(b, weights, [1, 2], [3]).reused
    for forged in (Handle("a", b.tag), Handle("a", ""), "a", Authority(bytes([1] * 16)).issue("a")):
        with pytest.raises(PermissionError):
            store.resume(forged, weights, [1, 2], [3])
    with pytest.raises(ValueError, match="at least 16"):
        Authority(b"short")


def test_open_and_copying_stores():
    weights = network.draw([7])
    for kind, changes in ((OpenStore, True), (CopyStore, False)):
        store = kind()
        store.remember("a", weights, [1, 2])
        before = store.digests()
        store.caches()[0].v.fill(0.0)
        assert (store.digests() != before) == changes
        assert any(cache.next_position == 2 for cache in found_in_process())


def test_store_in_another_process():
    with RemoteStore() as store:
        store.remember("a", 7, [17, 5, 29])
        states, reused = store.resume("a", 7, [17, 5, 29], [9, 10])
        assert reused
        fresh, _ = network.advance(network.draw([7]), [17, 5, 29, 9, 10])
        assert np.abs(states - fresh[0, 3:]).max() <= 1e-13
        assert not store.resume("b", 7, [17, 5, 29], [9])[1]
        with pytest.raises(ValueError, match="wanted 0 to 31"):
            store.resume("a", 7, [17, 5, 99], [9])
    with pytest.raises((ValueError, ConnectionError, BrokenPipeError)):
        store.resume("a", 7, [17], [9])
