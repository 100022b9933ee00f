"""Scaled dot-product attention that selects before it multiplies: the float64 reference of the mask experiments.

What a query may not see is taken out before any number of it is used, so NaN in a hidden slot stays there. Sums run over the
width and over the keys one term after the other, so that hidden keys, which add exact zeros, cannot change the order in which the
visible ones are added: a request in a shared cache equals the request alone bit for bit, on any machine with IEEE arithmetic.

Axes: q [..., query, width], k [..., key, width], v [..., key, value], visible [..., query, key]; leading axes broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


class SeesNothing(ValueError):
    """A query without a visible key: no attention is defined for it."""


def attend(q: Floats, k: Floats, v: Floats, visible: NDArray[np.bool_], scale: float = 1.0) -> tuple[Floats, Floats]:
    """Output [..., query, value] and weights [..., query, key] of queries over the visible keys, in the dtype of q.

    scale multiplies the logits q.k / sqrt(width). Raises SeesNothing naming the first such query. Mutates nothing.

    >>> q, k, v = np.ones((1, 1, 2)), np.zeros((1, 3, 2)), np.array([[[1.0], [3.0], [np.nan]]])
    >>> attend(q, k, v, np.array([[[True, True, False]]]))[0].tolist()
    [[[2.0]]]
    """
    weights = softmax(logits(q, k, scale), visible)
    return mix(weights, v, visible), weights


def logits(q: Floats, k: Floats, scale: float = 1.0) -> Floats:
    """scale * q.k / sqrt(width), [..., query, key]; terms added in the order of the width."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"axis width: got {k.shape[-1]} in k; wanted {q.shape[-1]} as in q")
    total = np.zeros((*np.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2]), q.dtype)
    with np.errstate(invalid="ignore", over="ignore"):  # hidden slots may hold anything
        for i in range(q.shape[-1]):
            total += q[..., :, None, i] * k[..., None, :, i]
        return np.asarray(total * np.asarray(scale / np.sqrt(q.shape[-1]), q.dtype))


def softmax(scores: Floats, visible: NDArray[np.bool_]) -> Floats:
    """Weights over the visible keys of each row, [..., query, key]; exactly 0 elsewhere. Raises SeesNothing."""
    if visible.dtype != bool:
        raise TypeError(f"visible: got dtype {visible.dtype}; wanted bool (True is visible)")
    if visible.shape[-2:] != scores.shape[-2:]:
        raise ValueError(f"axes query, key: got {visible.shape[-2:]} in visible; wanted {scores.shape[-2:]}")
    seen = np.broadcast_to(visible, np.broadcast_shapes(visible.shape, scores.shape))
    empty = np.argwhere(~seen.any(-1))
    if len(empty):
        raise SeesNothing(f"axis key: query {tuple(empty[0].tolist())} sees none of {scores.shape[-1]} keys; wanted at least 1")
    chosen = np.where(seen, scores, np.asarray(-np.inf, scores.dtype))
    powers = np.exp(chosen - chosen.max(-1, keepdims=True))
    return np.asarray(powers / _add_up(powers)[..., None])


def mix(weights: Floats, v: Floats, visible: NDArray[np.bool_]) -> Floats:
    """Sum of weights times visible values, [..., query, value]; terms added in the order of the keys."""
    total = np.zeros((*np.broadcast_shapes(weights.shape[:-2], v.shape[:-2]), weights.shape[-2], v.shape[-1]), weights.dtype)
    zero = np.zeros((), v.dtype)
    for j in range(v.shape[-2]):
        total += weights[..., :, j, None] * np.where(visible[..., :, j, None], v[..., None, j, :], zero)
    return total


def entropy(weights: Floats) -> Floats:
    """Position entropy in nats of each row of weights, normalised to sum 1: -sum p ln p with 0 ln 0 = 0. [..., key] -> [...]."""
    share = weights / weights.sum(-1, keepdims=True)
    return np.asarray(-np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=-1))


def _add_up(values: Floats) -> Floats:
    total = np.zeros(values.shape[:-1], values.dtype)
    for j in range(values.shape[-1]):
        total += values[..., j]
    return total
