"""A mask applied after softmax, or before it with a finite fill.

`VARIANTS[name](scores, visible)` gives the coefficients that reach the values, [..., query, key]. Twin: `before`. Control: nothing is
hidden, where all variants agree. Fills: SMALL is what an untrained eye takes for minus infinity in a plot, LARGE is in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.attention import softmax

Floats = NDArray[Any]
Mask = NDArray[np.bool_]
SMALL, LARGE = -10.0, -10000.0


def before(scores: Floats, visible: Mask) -> Floats:
    """Hidden logits are left out (minus infinity)."""
    return softmax(scores, visible)


def after(scores: Floats, visible: Mask) -> Floats:
    """Softmax over all keys, then hidden weights are multiplied by 0."""
    return np.asarray(softmax(scores, np.ones_like(visible)) * visible)


def after_renormalised(scores: Floats, visible: Mask) -> Floats:
    """As `after`, then each row is divided by its sum."""
    weights = after(scores, visible)
    return np.asarray(weights / sum(weights[..., j, None] for j in range(weights.shape[-1])))


def add_small(scores: Floats, visible: Mask) -> Floats:
    """SMALL is added to hidden logits."""
    return softmax(scores + np.where(visible, 0.0, SMALL), np.ones_like(visible))


def replace_small(scores: Floats, visible: Mask) -> Floats:
    """Hidden logits are replaced by SMALL."""
    return softmax(np.where(visible, scores, SMALL), np.ones_like(visible))


def add_large(scores: Floats, visible: Mask) -> Floats:
    """LARGE is added to hidden logits."""
    return softmax(scores + np.where(visible, 0.0, LARGE), np.ones_like(visible))


VARIANTS: dict[str, Callable[[Floats, Mask], Floats]] = {
    f.__name__: f for f in (before, after, after_renormalised, add_small, replace_small, add_large)
}


def printed(q: Floats, k_a: Floats, k_b: Floats, v_a: Floats, v_b: Floats) -> tuple[Floats, Floats, Floats]:
    """Two requests as an article prints them: keys and values joined along axis 1, a 0/1 mask [2, 3, 6] with three ones a row for
    each request, softmax over everything, then the mask as a factor. Returns output, coefficients and the joined keys.

    Raises ValueError where the shapes do not fit. Twin: `repaired`.
    """
    joined_k, joined_v = np.concatenate([k_a, k_b], axis=1), np.concatenate([v_a, v_b], axis=1)
    mask = np.zeros((2, 3, 6))
    mask[0, :, :3] = 1
    mask[1, :, 3:] = 1
    scores = q @ joined_k.swapaxes(-2, -1) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    coefficients = powers / powers.sum(-1, keepdims=True) * mask
    return coefficients @ joined_v, coefficients, joined_k


def repaired(q: Floats, k_a: Floats, k_b: Floats, v_a: Floats, v_b: Floats) -> tuple[Floats, Floats, Floats]:
    """The same cache with one copy of each key, causal AND block-diagonal, before the softmax. q [2, 3, d], the rest [1, 3, d]."""
    from labcore import masks
    from labcore.attention import attend

    joined_k, joined_v = np.concatenate([k_a, k_b], axis=1), np.concatenate([v_a, v_b], axis=1)
    slots = np.arange(6)
    visible = masks.both(masks.causal(slots.reshape(2, 3), slots), masks.block_diagonal(masks.owners([3, 3]), 2))
    output, weights = attend(q, joined_k, joined_v, visible)
    return output, weights, joined_k
