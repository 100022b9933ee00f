"""Trimming a growing cache (BR-15) and a wrapped window ring (BR-17).

Faulty: `relative_crop` reads a length that is not positive as relative, `reset_in_place` leaves zero keys, `ring_prefix` slices physical
rows. Twins: `crop`, a new cache, `ring_tokens`. Controls: a crop by fewer tokens than there are; a ring that has not wrapped.
"""

from __future__ import annotations

import numpy as np

from labcore.network import Cache, Floats, Ints, Weights, attend, embed


def relative_crop(length: int, argument: int) -> int:
    """Faulty: tokens left of `length` after crop(argument).

    >>> [relative_crop(3, a) for a in (0, -5, -2, 2)]
    [3, 1, 1, 2]
    """
    if argument > 0:
        return min(argument, length)
    tokens = list(range(length))
    return len(tokens[: length + argument]) if argument else length


def crop(length: int, argument: int) -> int:
    """Tokens left after crop(argument): that many if not negative, else that many fewer, never below none.

    >>> [crop(3, a) for a in (0, -5, -2, 2)]
    [0, 0, 1, 2]
    """
    return min(argument, length) if argument >= 0 else max(length + argument, 0)


def reset_in_place(cache: Cache) -> Cache:
    """Faulty: all keys and values become zero; there are as many as before."""
    return Cache(np.zeros_like(cache.k), np.zeros_like(cache.v), cache.positions.copy(), cache.next_position)


def weights_after(weights: Weights, cache: Cache, ids: Ints) -> Floats:
    """First-layer attention of the last of the new tokens, numbered from 0, over the cache's keys and theirs: [g, m]."""
    g, new = len(weights.embedding), np.arange(len(ids))
    x = embed(weights, np.broadcast_to(ids, (g, len(ids))), new)
    k = np.concatenate([cache.k[:, 0], x @ weights.qkv[:, 0, 1]], axis=1)
    q = (x @ weights.qkv[:, 0, 0])[:, -1]
    scores = (k * q[:, None]).sum(axis=2) / np.sqrt(x.shape[2])
    share = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def states_after(weights: Weights, cache: Cache, ids: Ints) -> Floats:
    """States [g, n, d] of new tokens, numbered from 0, that see all keys of the cache and each other causally."""
    g, n, m = len(weights.embedding), len(ids), len(cache.positions)
    seen = np.concatenate([np.ones((n, m), bool), np.tril(np.ones((n, n), bool))], axis=1)
    return attend(weights, embed(weights, np.broadcast_to(ids, (g, n)), np.arange(n)), seen, cache)[0]


def ring(window: int, writes: int) -> list[int]:
    """Which token each physical row holds after so many writes; -1: none.

    >>> ring(4, 6)
    [4, 5, 2, 3]
    """
    rows = [-1] * window
    for token in range(writes):
        rows[token % window] = token
    return rows


def ring_prefix(window: int, writes: int, length: int) -> list[int]:
    """Faulty: the first physical rows, taken for the first tokens."""
    return ring(window, writes)[:length]


def ring_tokens(window: int, writes: int, length: int) -> list[int]:
    """The first tokens if all of them are still there, else none."""
    held = ring(window, writes)
    return list(range(length)) if all(token in held for token in range(length)) else []
