"""A keyed store that reuses the longest common prefix: a stored cache, cropped where the new sequence departs from it.

Rules. The key holds the scope and every condition that enters a state. Tokens are compared one by one. At least the last token is
computed, because its state is what the caller wants. Under a window the dropped keys cannot be had back, so only a whole stored
sequence may be continued. Entries are searched from the newest, and only a strictly longer match replaces one that was found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labcore.matchers import check_positive, check_scope, common, identity, pack
from labcore.network import Cache, Counter, Floats, Weights, advance, check_ids, check_window
from labcore.prefix import signatures


def key_of(weights: Weights, scope: str, window: int | None = None) -> str:
    """Everything but the tokens that decides a state, each field tagged: scope, and the signature of all g networks with the window."""
    return identity(scope=check_scope(scope), networks=" ".join(signatures(weights, check_window(window))))


@dataclass(frozen=True, eq=False)
class Stored:
    """A sequence (packed ids) and the cache after it, under one key."""

    key: str
    packed: bytes
    cache: Cache

    @property
    def length(self) -> int:
        """Tokens."""
        return self.cache.next_position


@dataclass
class CommonPrefixStore:
    """At most `capacity` sequences, first in, first out. Caches are computed here; there is no way to put one in.

    remember mutates the store. find and serve do not. serve hands out states, never a stored cache.
    """

    capacity: int = 2
    entries: list[Stored] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_positive("capacity", self.capacity)

    def remember(self, weights: Weights, ids: Any, scope: str, window: int | None = None) -> Stored:
        """Compute the sequence's cache and keep it; the oldest entry leaves if the store is full."""
        key, tokens = key_of(weights, scope, window), check_ids(ids)
        _, cache = advance(weights, tokens, window=window)
        entry = Stored(key, pack(tokens), cache)
        self.entries = [*self.entries, entry][-self.capacity :]
        return entry

    def find(self, weights: Weights, ids: Any, scope: str, window: int | None = None) -> tuple[Stored | None, int]:
        """(entry, cut): the entry to continue and how many of its tokens to keep; (None, 0) on a miss."""
        key, tokens = key_of(weights, scope, window), check_ids(ids)
        packed, best, cut = pack(tokens), None, 0
        for entry in reversed(self.entries):
            if entry.key != key:
                continue
            shared = min(common(packed, entry.packed), len(tokens) - 1)
            if window is not None and shared < entry.length:
                continue
            if shared > cut:
                best, cut = entry, shared
        return best, cut

    def serve(
        self, weights: Weights, ids: Any, scope: str, window: int | None = None, counter: Counter | None = None
    ) -> tuple[Floats, int]:
        """States [g, n - cut, d] of the tokens that had to be computed, and cut."""
        entry, cut = self.find(weights, ids, scope, window)
        return self.resume(entry, weights, check_ids(ids), cut, window, counter), cut

    def resume(
        self, entry: Stored | None, weights: Weights, ids: Any, cut: int, window: int | None = None, counter: Counter | None = None
    ) -> Floats:
        """States of ids[cut:] behind the first `cut` tokens of an entry of this store. ValueError for an entry of another."""
        if entry is None:
            return advance(weights, ids, None, window, counter)[0]
        if not any(entry is own for own in self.entries):
            raise ValueError("entry: got a cache that this store did not make; wanted one that `find` returned")
        return advance(weights, ids[cut:], entry.cache.crop(cut), window, counter)[0]
