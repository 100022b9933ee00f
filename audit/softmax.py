"""Attention by sums that are its own: scores by einsum's loops, no matrix product; normaliser and values by pairwise sums."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
_AT_ONCE = 1 << 18
"""Products of weights and values that are held at a time, where one query needs no more."""


class Sums(NamedTuple):
    """What queries gather over some keys: the largest score, sum of exp(score - top), and that sum weighted by the values.

    top, total: [..., query]; values: [..., query, e].
    """

    top: Matrix
    total: Matrix
    values: Matrix

    def output(self) -> Matrix:
        return self.values / self.total[..., None]


def partial(q: Any, k: Any, v: Any, seen: Any = None) -> Sums:
    """The sums of queries q [..., query, d] over keys k [..., n, d] and values v [..., n, e], where seen [query, n] is true."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("...qd,...nd->...qn", q, k) / math.sqrt(q.shape[-1])
    if seen is not None:
        scores[..., ~np.asarray(seen)] = -np.inf
    top = scores.max(axis=-1)
    weights = np.exp(scores - top[..., None])
    columns = np.ascontiguousarray(np.swapaxes(v, -1, -2))
    values = np.empty((*weights.shape[:-1], v.shape[-1]))
    step = max(1, _AT_ONCE // max(1, columns.size))
    for i in range(0, weights.shape[-2], step):
        values[..., i : i + step, :] = (weights[..., i : i + step, None, :] * columns[..., None, :, :]).sum(axis=-1)
    return Sums(top, weights.sum(axis=-1), values)


def attend(q: Any, k: Any, v: Any, seen: Any = None) -> Matrix:
    """softmax(q k^T / sqrt(d)) v in binary64; [..., query, e]."""
    return partial(q, k, v, seen).output()


def together(*parts: Sums) -> Matrix:
    """The output over disjoint sets of keys, from the sums of each."""
    top = np.maximum.reduce([part.top for part in parts])
    factors = [np.exp(part.top - top) for part in parts]
    total = sum(f * part.total for f, part in zip(factors, parts, strict=True))
    return np.asarray(sum(f[..., None] * part.values for f, part in zip(factors, parts, strict=True)) / np.asarray(total)[..., None])


def through(rows: Matrix, matrix: Matrix) -> Matrix:
    """Rows [..., n, a] times a matrix [..., a, b], one product after the other rather than by a library's product."""
    result = rows[..., 0, None] * matrix[..., None, 0, :]
    for column in range(1, matrix.shape[-2]):
        result += rows[..., column, None] * matrix[..., None, column, :]
    return result


def relative_l2(a: Any, b: Any) -> float:
    """sqrt(sum (a-b)^2) / sqrt(sum b^2), both sums correctly rounded."""
    gap, size = np.asarray(a, np.float64) - b, np.asarray(b, np.float64)
    return math.sqrt(math.fsum((gap * gap).ravel().tolist())) / math.sqrt(math.fsum((size * size).ravel().tolist()))
