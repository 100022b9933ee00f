"""A keyed store of prefix caches: whole-prefix match, two entries, first in first out, searched newest first.

A state computed for one request may be continued by another only if all that enters it is the same. The key says so:

    (scope, signature(weights, window), prefix ids)

The suffix is not part of it: going on differently from the same prefix is what reuse is for. Scope is not numeric: it marks whose state
this is, and two equal states of two scopes are still two. It is a plain text given by the caller, so it partitions but authenticates
nobody; see `faults/caller_scope.py`.

| call | changes the store | wanted before | gives |
|---|---|---|---|
| `remember` | appends one entry, drops the oldest beyond the capacity | valid scope, ids, window, one network | nothing |
| `resume` | never (a hit does not refresh, a miss stores nothing) | the same | new arrays: nothing that the store holds |
| `held` | never | | copies of the keys, oldest first |

K and V are computed here from weights and ids; no call takes them from outside and none hands them out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from labcore import network
from labcore.network import Cache, Counter, Floats, Weights

CAPACITY = 2
Key = tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class Continuation:
    """States of the suffix [n, d]; whether a stored cache was used; work of this call; entries compared before the answer."""

    states: Floats
    reused: bool
    projected_rows: int
    score_elements: int
    compared: int


@dataclass(frozen=True)
class Entry:
    """What the store holds under a key; never handed out."""

    key: Key
    cache: Cache


def check_scope(scope: Any) -> str:
    """A text that is not empty. TypeError or ValueError otherwise."""
    if not isinstance(scope, str):
        raise TypeError(f"scope: got {type(scope).__name__} {scope!r}; wanted text")
    if not scope:
        raise ValueError("scope: got an empty text; wanted a name")
    return scope


def signature(weights: Weights, window: int | None) -> str:
    """SHA-256 over all that enters a state besides the ids: implementation, shapes and bytes of the weights, position rule, window.

    Each part carries its name and length, so that no two lists of parts have the same bytes. One network ([1, ...]).
    """
    if len(weights.embedding) != 1 or len(weights.qkv) != 1:
        raise ValueError(f"weights: got {len(weights.embedding)} networks; wanted 1")
    return _signature(weight_digests(weights)[0], window)


def signatures(weights: Weights, window: int | None) -> list[str]:
    """`signature` of each of g networks."""
    return [_signature(digest, window) for digest in weight_digests(weights)]


def weight_digests(weights: Weights) -> list[str]:
    """SHA-256 over dtype, shape and bytes of each of g networks' weights: the costly part of a signature."""
    return [
        _digest(f"{e.dtype.str} {e.shape} {w.dtype.str} {w.shape}\n", e, w) for e, w in zip(weights.embedding, weights.qkv, strict=True)
    ]


@lru_cache(1024)
def _signature(weight_digest: str, window: int | None) -> str:
    digest = _without_weights(window).copy()
    digest.update(_part("weights", weight_digest))
    return digest.hexdigest()


@cache
def _without_weights(window: int | None) -> hashlib._Hash:
    parts = {
        "implementation": network.source_digest(),
        "layers": str(network.LAYERS),
        "width": str(network.WIDTH),
        "positions": network.POSITION_RULE,
        "window": "none" if window is None else str(window),
    }
    return hashlib.sha256(b"".join(_part(name, text) for name, text in parts.items()))


def _part(name: str, text: str) -> bytes:
    return f"{name} {len(text)} {text}\n".encode()


def _digest(head: str, *arrays: Any) -> str:
    digest = hashlib.sha256(head.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def make_key(scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
    """The key of one network's prefix. Checks first, converts after."""
    ids = network.check_ids(prefix)
    return check_scope(scope), signature(weights, network.check_window(window)), tuple(ids.tolist())


def keys(scope: Any, digests: list[str], prefix: Any, window: int | None) -> list[Key]:
    """`make_key` of each of g networks, from their `weight_digests`, with a common prefix, window and scope."""
    ids, owner, width = tuple(network.check_ids(prefix).tolist()), check_scope(scope), network.check_window(window)
    return [(owner, _signature(digest, width), ids) for digest in digests]


class PrefixStore:
    """The store. The table above says what each call changes.

    >>> store, weights = PrefixStore(), network.draw([7])
    >>> store.remember("reader-a", weights, [1, 2, 3])
    >>> store.resume("reader-a", weights, [1, 2, 3], [9, 10]).reused
    True
    >>> store.resume("reader-b", weights, [1, 2, 3], [9, 10]).reused
    False
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: got {capacity!r}; wanted a positive integer")
        self.capacity = capacity
        self._entries: list[Entry] = []

    def held(self) -> list[Key]:
        """Keys of the entries, oldest first."""
        return [entry.key for entry in self._entries]

    def resident_bytes(self) -> int:
        """Bytes of K and V of all entries."""
        return sum(entry.cache.kv_bytes for entry in self._entries)

    def digests(self) -> list[str]:
        """SHA-256 of each entry's K, V and positions, oldest first: shows whether stored bytes changed without handing them out."""
        return [_digest("", entry.cache.k, entry.cache.v, entry.cache.positions) for entry in self._entries]

    def remember(self, scope: str, weights: Weights, prefix: Any, window: int | None = None) -> None:
        """Compute the cache of a prefix and append it as the newest entry. A key that is already there is stored again."""
        key = self._key(scope, weights, prefix, window)
        _, cache = network.advance(weights, self._ids(prefix), window=window)
        self._admit(Entry(key, cache))

    def resume(self, scope: str, weights: Weights, prefix: Any, suffix: Any, window: int | None = None) -> Continuation:
        """States of the suffix behind the prefix: from the newest entry with this key, else by a full pass over both."""
        key = self._key(scope, weights, prefix, window)
        after = self._ids(suffix)
        compared, entry = self._find(key)
        counter = Counter()
        if entry is None:
            states = self._recompute(weights, np.concatenate([self._ids(prefix), after]), window, counter)
        else:
            states = self._continue(entry, weights, after, window, counter)
        return Continuation(states[0, -len(after) :].copy(), entry is not None, counter.projected_rows, counter.score_elements, compared)

    # The steps, apart so that each planted fault of `faults/prefix_stores.py` replaces one.

    def _ids(self, ids: Any) -> network.Ints:
        return network.check_ids(ids)

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return make_key(scope, weights, prefix, window)

    def _find(self, key: Key) -> tuple[int, Entry | None]:
        for compared, entry in enumerate(reversed(self._entries), start=1):
            if entry.key == key:
                return compared, entry
        return len(self._entries), None

    def _admit(self, entry: Entry) -> None:
        self._entries.append(entry)
        del self._entries[: -self.capacity]

    def _continue(self, entry: Entry, weights: Weights, after: network.Ints, window: int | None, counter: Counter) -> Floats:
        return network.advance(weights, after, entry.cache, window, counter)[0]

    def _recompute(self, weights: Weights, both: network.Ints, window: int | None, counter: Counter) -> Floats:
        return network.advance(weights, both, window=window, counter=counter)[0]
