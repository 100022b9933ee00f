"""A store of whole-prefix checkpoints within a byte budget, and the service of one request from it.

A request is computed in pieces that end at multiples of `PIECE` tokens. After each piece that ends below the request's length the cache
so far may be kept. The longest stored proper prefix of a request is copied and continued. Checkpoints share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labcore.common_prefix import key_of
from labcore.eviction import ADMIT, EVICT, Budget, Event
from labcore.matchers import WIDTH, pack
from labcore.network import LAYERS, Cache, Counter, Floats, Weights, advance, check_ids
from labcore.timing import Stopwatch

PIECE = 4
KEEP = ("all", "longest")


class Key(NamedTuple):
    """What a checkpoint is of: the scope for reading, the key of all conditions, the packed ids."""

    scope: str
    conditions: str
    packed: bytes


class Served(NamedTuple):
    """states [g, n - cut, d]; copied_bytes: of the copy taken on a hit and of each stored copy; resident_bytes: after the request."""

    states: Floats
    cut: int
    counter: Counter
    events: list[Event]
    copied_bytes: int
    resident_bytes: int


def cache_bytes(cache: Cache) -> int:
    """Bytes that one network keeps: K, V and the int64 positions of the keys of every layer."""
    return (cache.kv_bytes // len(cache.k)) + LAYERS * cache.positions.nbytes


def longest_checkpoint(length: int) -> int:
    """Where the last checkpoint of a request of this length lies: at least one token stays to be computed.

    >>> [longest_checkpoint(n) for n in (1, 4, 5, 12, 13)]
    [0, 0, 4, 8, 12]
    """
    return (length - 1) // PIECE * PIECE


@dataclass
class CheckpointStore:
    """Checkpoints within `capacity` bytes. `serve` mutates the store and hands out states only; stored caches are never written.

    keep: "all" checkpoints of a request, or only the "longest". policy, next_use: see eviction.
    """

    capacity: int
    keep: str = "all"
    policy: str = "lru"
    next_use: Callable[[Hashable], int] | None = None
    budget: Budget = field(init=False)
    caches: dict[Hashable, Cache] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.keep not in KEEP:
            raise ValueError(f"keep: got {self.keep!r}; wanted {' or '.join(KEEP)}")
        self.budget = Budget(self.capacity, self.policy, self.next_use)

    def key(self, scope: str, conditions: str, packed: bytes) -> Key:
        """What a checkpoint is found by."""
        return Key(scope, conditions, packed)

    def find(self, scope: str, conditions: str, packed: bytes) -> Key | None:
        """The longest stored proper prefix. Compares ids, because the key holds them."""
        for length in range(longest_checkpoint(len(packed) // WIDTH), 0, -PIECE):
            key = self.key(scope, conditions, packed[: length * WIDTH])
            if key in self.budget:
                return key
        return None

    def serve(self, weights: Weights, ids: Any, scope: str, watch: Stopwatch | None = None) -> Served:
        """The states of a request. watch: takes the time of hashing, lookup, copies, compute and admission."""
        watch = watch or Stopwatch()
        tokens, counter, events, copied = check_ids(ids), Counter(), [], 0
        with watch("hashing"):
            conditions, packed = key_of(weights, scope), pack(tokens)
        with watch("lookup"):
            hit = self.find(scope, conditions, packed)
            if hit is not None:
                self.budget.touch(hit)
        cache = None
        if hit is not None:
            with watch("copies"):
                cache = self.caches[hit].copy()
                copied += cache_bytes(cache)
        at = cut = 0 if cache is None else cache.next_position
        parts = []
        while at < len(tokens):
            end = min((at // PIECE + 1) * PIECE, len(tokens))
            with watch("compute"):
                states, cache = advance(weights, tokens[at:end], cache, None, counter)
            parts.append(states)
            at = end
            if at < len(tokens) and (self.keep == "all" or at == longest_checkpoint(len(tokens))):
                key = self.key(scope, conditions, packed[: at * WIDTH])
                with watch("admission"):
                    happened = self.budget.admit(key, cache_bytes(cache))
                    for event in happened:
                        if event.kind == EVICT:
                            del self.caches[event.key]
                events += happened
                if happened and happened[-1].kind == ADMIT:
                    with watch("copies"):
                        self.caches[key] = cache.copy()
                        copied += cache_bytes(cache)
        return Served(np.concatenate(parts, axis=1), cut, counter, events, copied, self.budget.resident)
