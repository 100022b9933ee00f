"""Attention by plain sums: scores added up width by width, normaliser and values by math.fsum."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class Sums(NamedTuple):
    """What one query gathers over some keys: the largest score, sum of exp(score - top), and that sum weighted by the values."""

    top: float
    total: float
    values: list[float]

    def output(self) -> list[float]:
        return [value / self.total for value in self.values]


def gather(query: Any, k: Any, columns: list[Matrix], root: float) -> Sums:
    """One query over keys k (n, d) and values given as columns of n."""
    scores = np.zeros(len(k))
    for j, value in enumerate(query):
        scores += value * k[:, j]
    scores /= root
    top = float(scores.max())
    weights = np.exp(scores - top)
    return Sums(top, math.fsum(weights.tolist()), [math.fsum((weights * column).tolist()) for column in columns])


def partial(q: Any, k: Any, v: Any) -> list[Sums]:
    """The sums of each query of q (queries, d) over k (n, d), v (n, e)."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    columns = [np.ascontiguousarray(v[:, j]) for j in range(v.shape[1])]
    return [gather(query, k, columns, math.sqrt(q.shape[1])) for query in q]


def attend(q: Any, k: Any, v: Any) -> Matrix:
    """softmax(q k^T / sqrt(d)) v in binary64; returns (queries, e)."""
    return np.array([sums.output() for sums in partial(q, k, v)])


def together(*parts: Sums) -> list[float]:
    """The output over disjoint sets of keys, from the sums of each."""
    top = max(part.top for part in parts)
    factors = [math.exp(part.top - top) for part in parts]
    total = math.fsum(f * part.total for f, part in zip(factors, parts, strict=True))
    columns = zip(*(part.values for part in parts), strict=True)
    return [math.fsum(f * x for f, x in zip(factors, column, strict=True)) / total for column in columns]


def relative_l2(a: Any, b: Any) -> float:
    """sqrt(sum (a-b)^2) / sqrt(sum b^2), both sums correctly rounded."""
    over = math.fsum(float(d) * float(d) for d in (np.asarray(a) - np.asarray(b)).ravel())
    under = math.fsum(float(x) * float(x) for x in np.asarray(b).ravel())
    return math.sqrt(over) / math.sqrt(under)
