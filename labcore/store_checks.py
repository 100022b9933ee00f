"""Seventeen checks of a keyed prefix store, each a small story with a yes or no at its end.

The first eight (ARTICLE) are the list that the article about the store names; the other nine (OURS) close the gaps that planted faults
showed. `fails(make, name)` tells whether a store fails a check; an error that the store should not raise is a failure too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labcore import network
from labcore.network import Weights
from labcore.prefix import PrefixStore

IDS, AFTER, OTHER = [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12], [20, 21, 22, 23]
BASE = network.draw([7])
Make = Callable[[], PrefixStore]


def changed(layer: int, projection: int) -> Weights:
    """BASE with 0.5 added to element [0, 0] of one matrix."""
    qkv = BASE.qkv.copy()
    qkv[0, layer, projection, 0, 0] += 0.5
    return Weights(BASE.embedding, qkv)


def _stored(make: Make, ids: list[int] = IDS, scope: str = "reader-a", window: int | None = None) -> PrefixStore:
    store = make()
    store.remember(scope, BASE, ids, window)
    return store


def _hit(store: PrefixStore, ids: Any = IDS, scope: Any = "reader-a", weights: Weights = BASE, window: int | None = None) -> bool:
    return store.resume(scope, weights, ids, AFTER, window).reused


def _refuses(store: PrefixStore, ids: Any = IDS, scope: Any = "reader-a") -> bool:
    try:
        store.resume(scope, BASE, ids, AFTER)
    except (TypeError, ValueError):
        return True
    return False


def repeated_suffixes(make: Make) -> bool:
    """Two suffixes in turn behind one entry, then the first again: each as a full pass gives it."""
    store = _stored(make)
    for after in (AFTER, OTHER, AFTER):
        got = store.resume("reader-a", BASE, IDS, after)
        fresh, _ = network.advance(BASE, IDS + after)
        if not got.reused or np.abs(got.states - fresh[0, -4:]).max() > 1e-12:
            return False
    return True


def edited_prefix(make: Make) -> bool:
    """The third id becomes 20: a miss."""
    return not _hit(_stored(make), [1, 2, 20, 4, 5, 6, 7, 8])


def edited_weights(make: Make) -> bool:
    """First layer's W_K [0, 0] changed: a miss."""
    return not _hit(_stored(make), weights=changed(0, 1))


def edited_window(make: Make) -> bool:
    """No window, then 4: a miss."""
    return not _hit(_stored(make), window=4)


def edited_scope(make: Make) -> bool:
    """reader-a, then reader-b: a miss."""
    return not _hit(_stored(make), scope="reader-b")


def float_ids(make: Make) -> bool:
    """The same ids as floats: refused."""
    return _refuses(_stored(make), [float(value) for value in IDS])


def eviction(make: Make) -> bool:
    """Three prefixes in turn: the first is gone, the other two are there."""
    store = make()
    for first in (1, 2, 3):
        store.remember("reader-a", BASE, [first, 4, 5])
    return [_hit(store, [first, 4, 5]) for first in (1, 2, 3)] == [False, True, True]


def scope_input(make: Make) -> bool:
    """A scope that is empty, None or a number: refused."""
    store = _stored(make)
    return all(_refuses(store, scope=scope) for scope in ("", None, 3))


def hit_does_not_refresh(make: Make) -> bool:
    """Store 1, store 2, use 1, store 3: 1 is gone all the same."""
    store = make()
    store.remember("reader-a", BASE, [1, 4, 5])
    store.remember("reader-a", BASE, [2, 4, 5])
    _hit(store, [1, 4, 5])
    store.remember("reader-a", BASE, [3, 4, 5])
    return not _hit(store, [1, 4, 5])


def newest_first(make: Make) -> bool:
    """Of two entries the newer is found after one comparison."""
    store = _stored(make, [1, 4, 5])
    store.remember("reader-a", BASE, [2, 4, 5])
    return store.resume("reader-a", BASE, [2, 4, 5], AFTER).compared == 1


def last_layer_weights(make: Make) -> bool:
    """Last layer's W_V [0, 0] changed: a miss."""
    return not _hit(_stored(make), weights=changed(1, 2))


def other_window(make: Make) -> bool:
    """Window 4, then 5: a miss."""
    return not _hit(_stored(make, window=4), window=5)


def permuted_prefix(make: Make) -> bool:
    """The first two ids change places: a miss."""
    return not _hit(_stored(make), [2, 1, 3, 4, 5, 6, 7, 8])


def far_id(make: Make) -> bool:
    """The first id becomes 17, which ends in the same four bits: a miss."""
    return not _hit(_stored(make), [17, 2, 3, 4, 5, 6, 7, 8])


def bool_ids(make: Make) -> bool:
    """True in place of 1: refused."""
    return _refuses(_stored(make), [True, 2, 3, 4, 5, 6, 7, 8])


def scope_case(make: Make) -> bool:
    """Reader-A is not reader-a: a miss."""
    return not _hit(_stored(make), scope="Reader-A")


def miss_stores_nothing(make: Make) -> bool:
    """After two misses the entry is still there, and it alone."""
    store = _stored(make)
    before = store.held()
    _hit(store, [9, 9])
    _hit(store, [8, 8])
    return store.held() == before


ARTICLE: dict[str, Callable[[Make], bool]] = {
    "repeated-suffixes": repeated_suffixes,
    "edited-prefix": edited_prefix,
    "edited-weights": edited_weights,
    "edited-window": edited_window,
    "edited-scope": edited_scope,
    "float-ids": float_ids,
    "eviction": eviction,
    "scope-input": scope_input,
}
OURS: dict[str, Callable[[Make], bool]] = {
    "hit-does-not-refresh": hit_does_not_refresh,
    "newest-first": newest_first,
    "last-layer-weights": last_layer_weights,
    "other-window": other_window,
    "permuted-prefix": permuted_prefix,
    "far-id": far_id,
    "bool-ids": bool_ids,
    "scope-case": scope_case,
    "miss-stores-nothing": miss_stores_nothing,
}


def fails(make: Make, name: str) -> bool:
    """Whether a store made by `make` fails a check."""
    try:
        return not (ARTICLE | OURS)[name](make)
    except (TypeError, ValueError, IndexError):
        return True
