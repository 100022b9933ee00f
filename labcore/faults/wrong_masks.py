"""Nine ways to get the isolation mask wrong, and the right one.

Layout: requests of equal length stand one after the other in a shared cache; each request's queries are its own slots.
Every variant takes scores [request, head, query, key] and the owner of each slot [key], and gives what reaches the values:
coefficients [request, head, query, key] (softmax weights, or what the variant makes of them). `VARIANTS` names them all.
Twin: `correct`. Control: a cache with one request, where no variant but `sum_as_factor` and `axes_swapped` changes anything
(and `no_mask`, which also gives up causality).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.attention import softmax
from labcore.masks import Mask, block_diagonal, causal

Floats = NDArray[Any]


def square(owner: NDArray[np.int64]) -> Mask:
    """The correct mask over all slots as queries and as keys, [slot, slot]: causal AND block-diagonal."""
    slots = np.arange(len(owner))
    mine = block_diagonal(owner, int(owner.max()) + 1)[owner, 0]
    return np.asarray(causal(slots[None], slots)[0] & mine)


def correct(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """Causal AND block-diagonal."""
    return _hard(scores, _rows(square(owner), owner))


def no_mask(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """Every query sees every slot."""
    return _hard(scores, _rows(np.ones((len(owner), len(owner)), bool), owner))


def causal_only(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """Causal in the order of the cache: later requests see earlier ones."""
    slots = np.arange(len(owner))
    return _hard(scores, _rows(causal(slots[None], slots)[0], owner))


def padding_as_isolation(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """All slots hold tokens, so a padding mask hides none; causal by the position within each request."""
    position = _position(owner)
    return _hard(scores, _rows(causal(position[None], position)[0], owner))


def sum_as_keep(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """The 0/1 masks are added and whatever is above 0 is kept: an OR."""
    return _hard(scores, _rows(_sum(owner) > 0, owner))


def sum_as_factor(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """The 0/1 masks are added and the sum multiplies the weights after softmax."""
    return np.asarray(no_mask(scores, owner) * _rows(_sum(owner), owner)[:, None].astype(scores.dtype))


def axes_swapped(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """The correct mask with query and key exchanged: each query sees its own request's future."""
    return _hard(scores, _rows(square(owner).T, owner))


def batch_over_heads(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """The mask [request, query, key] meets logits [request, head, query, key] without a head axis, as many heads as requests:
    head h of every request gets the mask of request h."""
    mask = _rows(square(owner), owner)
    return softmax(scores, np.broadcast_to(mask, scores.shape))


def boundary_off_by_one(scores: Floats, owner: NDArray[np.int64]) -> Floats:
    """Each request's range of slots is one too wide at both ends."""
    slots = np.arange(len(owner))
    first, last = (np.array([f(slots[owner == r]) for r in owner]) for f in (np.min, np.max))
    wide = (slots >= first[:, None] - 1) & (slots <= last[:, None] + 1)
    return _hard(scores, _rows(causal(slots[None], slots)[0] & wide, owner))


VARIANTS: dict[str, Callable[[Floats, NDArray[np.int64]], Floats]] = {
    f.__name__: f
    for f in (
        correct, no_mask, causal_only, padding_as_isolation, sum_as_factor, sum_as_keep, axes_swapped, batch_over_heads,
        boundary_off_by_one,
    )
}  # fmt: skip


def _rows(mask: NDArray[Any], owner: NDArray[np.int64]) -> NDArray[Any]:
    """[slot, slot] -> [request, query, slot]: each request's own slots as its queries."""
    return mask.reshape(int(owner.max()) + 1, -1, len(owner))


def _hard(scores: Floats, mask: Mask) -> Floats:
    return softmax(scores, mask[:, None])


def _sum(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    slots = np.arange(len(owner))
    return np.asarray(causal(slots[None], slots)[0].astype(np.int64) + (owner[:, None] == owner))


def _position(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    first = np.array([np.flatnonzero(owner == r)[0] for r in owner])
    return np.asarray(np.arange(len(owner)) - first)
