"""Attention of one query at a time, by products added up key by key, and plain lists; what is hidden is never touched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = list[float]


def scores(query: Any, keys: Any, scale: float = 1.0) -> Row:
    """scale * q.k / sqrt(width) for each key; query [width], keys [n, width]."""
    q = np.asarray(query, np.float64)
    row: Row = (scale * (np.asarray(keys, np.float64) * q).sum(axis=1) / math.sqrt(len(q))).tolist()
    return row


def weigh(row: Sequence[float], seen: Iterable[bool]) -> Row:
    """Softmax over the seen places, 0 elsewhere; all 0 if none is seen."""
    places = [j for j, flag in enumerate(seen) if flag]
    out = [0.0] * len(row)
    if not places:
        return out
    top = max(row[j] for j in places)
    powers = {j: math.exp(row[j] - top) for j in places}
    total = math.fsum(powers.values())
    for j in places:
        out[j] = powers[j] / total
    return out


def pour(weights: Sequence[float], values: Any) -> Row:
    """Sum of weights times values [n, width], over the places whose weight is not 0."""
    places = [j for j, w in enumerate(weights) if w != 0]
    table: NDArray[np.float64] = np.asarray(values, np.float64)[places]
    part = table * np.array([weights[j] for j in places])[:, None] if places else np.zeros((0, np.shape(values)[1]))
    return [math.fsum(column) for column in part.T.tolist()]


def entropy(weights: Sequence[float]) -> float:
    """-sum p ln p in nats of weights brought to sum 1."""
    total = math.fsum(weights)
    return -math.fsum(w / total * math.log(w / total) for w in weights if w > 0)


def mass(weights: Sequence[float], places: Iterable[bool]) -> float:
    """Sum of the weights at the marked places."""
    return math.fsum(w for w, flag in zip(weights, places, strict=True) if flag)
