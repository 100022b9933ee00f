"""After the oldest tokens are dropped, the rest moves to lower positions (BR-35).

Faulty: keys left as they were, or moved step by step in few bits. Twins: keys rotated back once, or from a copy in high precision. Control
for both: nothing dropped.
"""

from __future__ import annotations

import numpy as np

from labcore.positions import Floats, rotate

PRECISIONS = ("float16", "int4")


def stored(keys: Floats, precision: str) -> Floats:
    """Keys [m, h, d] as a cache of this precision gives them back: float16, or int4 with one scale for each head of a token."""
    if precision == "float16":
        return keys.astype(np.float16).astype(np.float64)
    scale = np.abs(keys).max(axis=-1, keepdims=True) / 7
    return np.asarray(np.clip(np.rint(keys / scale), -7, 7) * scale)


def in_steps(keys: Floats, shift: int, precision: str) -> Floats:
    """Faulty: rotated back by one place `shift` times, stored after each."""
    for _ in range(shift):
        keys = stored(rotate(stored(keys, precision), np.full(len(keys), -1)), precision)
    return keys


def at_once(keys: Floats, shift: int, precision: str) -> Floats:
    """Rotated back once from the stored keys, stored once."""
    return stored(rotate(stored(keys, precision), np.full(len(keys), -shift)), precision)
