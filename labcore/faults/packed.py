"""Documents packed in one row whose boundaries are lost on the way to attention (BR-06).

Faulty: `causal_only`, with positions running through or reset at each document. Twin: `block_diagonal`. Control: one document.
Resetting the positions alone does not isolate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore import masks
from labcore.attention import attend

Floats = NDArray[np.float64]


def causal_only(owner: NDArray[np.int64]) -> masks.Mask:
    """Faulty: one causal triangle over the row. [1, slot, slot]"""
    slots = np.arange(len(owner))
    return masks.causal(slots[None], slots)


def block_diagonal(owner: NDArray[np.int64]) -> masks.Mask:
    """Correct: causal AND own document. [1, slot, slot]"""
    return masks.both(causal_only(owner), masks.block_diagonal(owner, int(owner.max()) + 1)[owner, 0][None])


def numbered(owner: NDArray[np.int64], numbering: str) -> NDArray[np.int64]:
    """Positions of the slots: "contiguous" through the row, or "reset" at each document."""
    slots = np.arange(len(owner))
    return slots if numbering == "contiguous" else np.asarray(slots - np.array([np.flatnonzero(owner == o)[0] for o in owner]))


def rotate(x: Floats, positions: Any) -> Floats:
    """Rotary positions: pairs (i, i + half) turned by p / 10000**(2i/width). x [..., token, width], positions [token]."""
    half = x.shape[-1] // 2
    angle = np.asarray(positions, np.float64)[:, None] / 10000.0 ** (np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def run(x: Floats, projections: Floats, table: Floats, positions: NDArray[np.int64], rotary: bool, visible: masks.Mask) -> Floats:
    """Outputs [head, token, head_dim]. x [token, width], projections [3, head, width, head_dim], table [position, width] of learned
    absolute positions, added to x unless rotary."""
    states = x if rotary else x + table[positions]
    # One row at a time through the same sum: a row's projection must not depend on its neighbours.
    q, k, v = (sum(states[:, i, None] * w[:, None, i] for i in range(states.shape[1])) for w in projections)
    if rotary:
        q, k = rotate(q, positions), rotate(k, positions)
    return attend(q, k, v, visible)[0]
