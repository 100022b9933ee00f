"""Attention by plain sums: scores added up width by width, normaliser and values by math.fsum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def attend(q: Any, k: Any, v: Any) -> Matrix:
    """softmax(q k^T / sqrt(d)) v in binary64; q (queries, d), k (n, d), v (n, e); returns (queries, e)."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    root = math.sqrt(q.shape[1])
    columns = [np.ascontiguousarray(v[:, j]) for j in range(v.shape[1])]
    out = np.empty((len(q), v.shape[1]))
    for i, query in enumerate(q):
        scores = np.zeros(len(k))
        for j, value in enumerate(query):
            scores += value * k[:, j]
        scores /= root
        weights = np.exp(scores - scores.max())
        total = math.fsum(weights.tolist())
        out[i] = [math.fsum((weights * column).tolist()) / total for column in columns]
    return out


def relative_l2(a: Any, b: Any) -> float:
    """sqrt(sum (a-b)^2) / sqrt(sum b^2), both sums correctly rounded."""
    over = math.fsum(float(d) * float(d) for d in (np.asarray(a) - np.asarray(b)).ravel())
    under = math.fsum(float(x) * float(x) for x in np.asarray(b).ravel())
    return math.sqrt(over) / math.sqrt(under)
