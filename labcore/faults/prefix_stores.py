"""Faults: keyed prefix stores with one mistake each. Correct twin: `prefix.PrefixStore`; control: a request that repeats what was stored.

The first eight are those that the eight checks of `store_checks.ARTICLE` were written for, in the same order; the others are mistakes
that such a list can miss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labcore import network
from labcore.network import Counter, Floats, Ints, Weights
from labcore.prefix import Continuation, Entry, Key, PrefixStore


class ExtendsInPlace(PrefixStore):
    """A hit hands the stored cache itself to the request, which extends it: the next one starts behind the first one's suffix."""

    def _continue(self, entry: Entry, weights: Weights, after: Ints, window: int | None, counter: Counter) -> Floats:
        states, longer = network.advance(weights, after, entry.cache, window, counter)
        self._entries[self._entries.index(entry)] = Entry(entry.key, longer)
        return states


class PrefixLeftOut(PrefixStore):
    """Only the number of ids is in the key."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        key = super()._key(scope, weights, prefix, window)
        return key[0], key[1], (len(key[2]),)


class WeightsLeftOut(PrefixStore):
    """No weight is in the key."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        none = Weights(np.zeros_like(weights.embedding), np.zeros_like(weights.qkv))
        return super()._key(scope, none, prefix, window)


class WindowLeftOut(PrefixStore):
    """The window is not in the key."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return super()._key(scope, weights, prefix, None)


class ScopeLeftOut(PrefixStore):
    """The scope is checked but not in the key."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return "anyone", *super()._key(scope, weights, prefix, window)[1:]


class ConvertsFirst(PrefixStore):
    """Ids are made integers before anyone looks at their type: 1.0, True and "1" are 1."""

    def _ids(self, ids: Any) -> Ints:
        return super()._ids([int(value) for value in ids])

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return super()._key(scope, weights, [int(value) for value in prefix], window)


class NeverEvicts(PrefixStore):
    """The capacity is not kept."""

    def _admit(self, entry: Entry) -> None:
        self._entries.append(entry)


class ScopeUnchecked(PrefixStore):
    """Any object serves as a scope, by its text."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return super()._key(str(scope) or "none", weights, prefix, window)


class RefreshesOnHit(PrefixStore):
    """A hit makes its entry the newest: least recently used instead of first in, first out."""

    def _continue(self, entry: Entry, weights: Weights, after: Ints, window: int | None, counter: Counter) -> Floats:
        self._entries.remove(entry)
        self._entries.append(entry)
        return super()._continue(entry, weights, after, window, counter)


class SearchesOldestFirst(PrefixStore):
    """The oldest entry is compared first. Same answers, other work."""

    def _find(self, key: Key) -> tuple[int, Entry | None]:
        for compared, entry in enumerate(self._entries, start=1):
            if entry.key == key:
                return compared, entry
        return len(self._entries), None


class FirstLayerHashed(PrefixStore):
    """The signature covers the embedding and the first layer only."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        qkv = weights.qkv.copy()
        qkv[:, 1:] = 0
        return super()._key(scope, Weights(weights.embedding, qkv), prefix, window)


class WindowAsFlag(PrefixStore):
    """The key says whether there is a window, not how wide."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return super()._key(scope, weights, prefix, None if network.check_window(window) is None else 1)


class IdsSorted(PrefixStore):
    """The key forgets the order of the ids."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        key = super()._key(scope, weights, prefix, window)
        return key[0], key[1], tuple(sorted(key[2]))


class IdsInFourBits(PrefixStore):
    """The key keeps the last four bits of each id."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        key = super()._key(scope, weights, prefix, window)
        return key[0], key[1], tuple(value % 16 for value in key[2])


class AcceptsBool(PrefixStore):
    """True and False pass as 1 and 0."""

    def _ids(self, ids: Any) -> Ints:
        return super()._ids([int(value) if isinstance(value, bool) else value for value in ids])

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return super()._key(scope, weights, [int(value) if isinstance(value, bool) else value for value in prefix], window)


class ScopeFolded(PrefixStore):
    """The scope's case is not in the key."""

    def _key(self, scope: Any, weights: Weights, prefix: Any, window: int | None) -> Key:
        return super()._key(scope.lower() if isinstance(scope, str) else scope, weights, prefix, window)


class StoresMisses(PrefixStore):
    """A miss also stores its prefix, so that asking evicts."""

    def resume(self, scope: str, weights: Weights, prefix: Any, suffix: Any, window: int | None = None) -> Continuation:
        got = super().resume(scope, weights, prefix, suffix, window)
        if not got.reused:
            self.remember(scope, weights, prefix, window)
        return got


STORES: dict[str, type[PrefixStore]] = {
    "none": PrefixStore,
    "extends-in-place": ExtendsInPlace,
    "prefix-left-out": PrefixLeftOut,
    "weights-left-out": WeightsLeftOut,
    "window-left-out": WindowLeftOut,
    "scope-left-out": ScopeLeftOut,
    "converts-first": ConvertsFirst,
    "never-evicts": NeverEvicts,
    "scope-unchecked": ScopeUnchecked,
    "refreshes-on-hit": RefreshesOnHit,
    "searches-oldest-first": SearchesOldestFirst,
    "first-layer-hashed": FirstLayerHashed,
    "window-as-flag": WindowAsFlag,
    "ids-sorted": IdsSorted,
    "ids-in-four-bits": IdsInFourBits,
    "accepts-bool": AcceptsBool,
    "scope-folded": ScopeFolded,
    "stores-misses": StoresMisses,
}
