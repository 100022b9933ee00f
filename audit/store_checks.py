"""The seventeen checks of 06 on the model store: does a store with a planted fault fail them?

What each checks is taken from its name; three were narrowed to what they look at (`newest-first`: the first look alone;
`hit-does-not-refresh`: the older entry alone; `miss-stores-nothing`: the entries alone) after a first comparison with a run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from audit.prefix_store import Model, Refused, Store

OWN = Model()
PREFIX, SUFFIX, NEW = [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12], [20, 21, 22, 23]
A, B, C = [1, 2, 3], [4, 5, 6], [7, 8, 9]


def fails(fault: str, check: str) -> bool:
    """Whether the check fails on a store with the fault."""
    store = Store(fault)
    try:
        return not CHECKS[check](store)
    except Refused:
        return True


def _right(answer: tuple[bool, Any, int], model: Model, window: int | None, prefix: list[int], suffix: list[int]) -> bool:
    return bool(answer[1] == (model, window, tuple(prefix), tuple(suffix), model, window))


def _refuses(act: Callable[[], Any]) -> bool:
    try:
        act()
    except Refused:
        return True
    return False


def _misses(stored_window: int | None = None, **changed: Any) -> Callable[[Store], bool]:
    """After one entry was stored, a request that differs in `changed` misses."""

    def check(store: Store) -> bool:
        stored: dict[str, Any] = {"scope": "reader-a", "model": OWN, "prefix": PREFIX, "window": stored_window}
        store.remember(**stored)
        return not store.resume(**{**stored, **changed}, suffix=SUFFIX)[0]

    return check


def repeated_suffixes(store: Store) -> bool:
    """Two suffixes in a row from one entry: both hit, both as if alone."""
    store.remember("reader-a", OWN, PREFIX)
    answers = [(store.resume("reader-a", OWN, PREFIX, suffix), suffix) for suffix in (SUFFIX, NEW)]
    return all(answer[0] and _right(answer, OWN, None, PREFIX, suffix) for answer, suffix in answers)


def eviction(store: Store) -> bool:
    """Three entries: the first is gone, the others are there."""
    for prefix in (A, B, C):
        store.remember("reader-a", OWN, prefix)
    return [store.resume("reader-a", OWN, prefix, SUFFIX)[0] for prefix in (A, B, C)] == [False, True, True]


def hit_does_not_refresh(store: Store) -> bool:
    """A hit on the older of two entries does not save it from the third."""
    store.remember("reader-a", OWN, A)
    store.remember("reader-a", OWN, B)
    store.resume("reader-a", OWN, A, SUFFIX)
    store.remember("reader-a", OWN, C)
    return not store.resume("reader-a", OWN, A, SUFFIX)[0]


def newest_first(store: Store) -> bool:
    """The newest entry is found at the first look."""
    store.remember("reader-a", OWN, A)
    store.remember("reader-a", OWN, B)
    return store.resume("reader-a", OWN, B, SUFFIX)[2] == 1


def miss_stores_nothing(store: Store) -> bool:
    """A miss leaves the entries as they are."""
    store.remember("reader-a", OWN, A)
    store.resume("reader-a", OWN, B, SUFFIX)
    return len(store.entries) == 1


CHECKS: dict[str, Callable[[Store], bool]] = {
    "repeated-suffixes": repeated_suffixes,
    "edited-prefix": _misses(prefix=[1, 2, 20, 4, 5, 6, 7, 8]),
    "edited-weights": _misses(model=Model(first="changed")),
    "edited-window": _misses(window=4),
    "edited-scope": _misses(scope="reader-b"),
    "float-ids": lambda store: _refuses(lambda: store.remember("reader-a", OWN, [1.0, 2.0])),
    "eviction": eviction,
    "scope-input": lambda store: all(_refuses(partial(store.remember, scope, OWN, PREFIX)) for scope in ("", None, 7)),
    "hit-does-not-refresh": hit_does_not_refresh,
    "newest-first": newest_first,
    "last-layer-weights": _misses(model=Model(last="changed")),
    "other-window": _misses(stored_window=4, window=5),
    "permuted-prefix": _misses(prefix=[2, 1, 3, 4, 5, 6, 7, 8]),
    "far-id": _misses(prefix=[17, 2, 3, 4, 5, 6, 7, 8]),
    "bool-ids": lambda store: _refuses(lambda: store.remember("reader-a", OWN, [True, True])),
    "scope-case": _misses(scope="Reader-A"),
    "miss-stores-nothing": miss_stores_nothing,
}
