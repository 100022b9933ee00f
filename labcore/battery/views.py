"""Views of every kind, drawn; and the textbook's attention, one query at a time, as the specification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.battery.interfaces import View

Array = NDArray[Any]


def view(kind: str, n: int, m: int, rng: np.random.Generator, blind: int = 0) -> View:
    """A view of n queries on m keys. n <= m; "packed" has n = m. blind: so many queries see nothing (kind "any" only).

    >>> view("causal", 2, 4, np.random.default_rng(0)).allowed.astype(int).tolist()
    [[1, 1, 1, 0], [1, 1, 1, 1]]
    """
    keys = np.arange(m)
    queries = np.arange(m - n, m)
    owner = np.zeros(m, np.int64)
    length, window = m, 0
    if kind == "packed":
        count = int(rng.integers(2, min(4, m) + 1))
        cuts = np.sort(rng.choice(np.arange(1, m), size=count - 1, replace=False))
        owner = np.searchsorted(cuts, keys, side="right").astype(np.int64)
        first = np.concatenate([[0], cuts])[owner]
        allowed = (owner[:, None] == owner[None, :]) & (keys[None, :] <= keys[:, None])
        return View(allowed, kind, keys - first, keys - first, owner, owner, m)
    if kind == "padded":
        length = int(rng.integers(n, m)) if m > n else m
        queries = np.arange(length - n, length)
    allowed = keys[None, :] <= queries[:, None]
    if kind == "window":
        window = int(rng.integers(1, m + 1))
        allowed &= keys[None, :] > queries[:, None] - window
    if kind == "full":
        allowed = np.ones((n, m), bool)
    if kind == "any":
        allowed = rng.random((n, m)) < 0.5
        allowed[np.arange(n), rng.integers(0, m, n)] = True
        allowed[rng.permutation(n)[:blind]] = False
    return View(allowed, kind, queries, keys, np.zeros(n, np.int64), owner, length, window)


def rows(seen: View, pick: Array) -> View:
    """The same keys, some of the queries."""
    return View(
        seen.allowed[pick],
        seen.kind,
        seen.query_positions[pick],
        seen.key_positions,
        seen.query_owner[pick],
        seen.key_owner,
        seen.length,
        seen.window,
    )


def part(seen: View, owner: int) -> tuple[View, Array]:
    """One request of a packed view as if it stood alone, and the indices of its tokens."""
    own = np.flatnonzero(seen.key_owner == owner)
    zero = np.zeros(len(own), np.int64)
    positions = np.arange(len(own))
    return View(seen.allowed[np.ix_(own, own)], "causal", positions, positions, zero, zero, len(own)), own


def textbook(q: Array, k: Array, v: Array, allowed: Array) -> Array:
    """softmax(q k / sqrt(d)) v over allowed keys alone, zeros where there are none; float64. q [h, n, d]; k, v [g, m, d]; allowed
    [n, m]."""
    repeat = len(q) // len(k)
    out = np.zeros(q.shape)
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = np.repeat(k, repeat, axis=0), np.repeat(v, repeat, axis=0)
    for row in range(q.shape[1]):
        keys = np.flatnonzero(allowed[row])
        if len(keys):
            scores = np.einsum("hd,hmd->hm", q[:, row], k[:, keys]) / math.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, row] = np.einsum("hm,hmd->hd", weights / weights.sum(axis=1, keepdims=True), v[:, keys])
    return out
