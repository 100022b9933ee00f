"""Two paths compared bit for bit although their sums are split differently, as cold and warm kernels or other batch sizes do (BR-34).

Nothing is leaked here: floating-point addition is not associative, and the comparison is the fault. Faulty: `faulty`, one path sums 64 keys
in one piece, the other in pieces of 16. Twin: `correct`, both in pieces of 16, equal to the last bit. Control: `control`, as few keys as
fit one piece, where the two splits are one and a short test sees nothing. `contaminated` shows, for thresholds, what one foreign row does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

KEYS, WIDTH, PIECE = 64, 64, 16


def mixed(weights: NDArray[Any], v: NDArray[Any], piece: int) -> NDArray[Any]:
    """Sum of weights (keys) times rows of v (keys, width) in their dtype: key by key within a piece, then piece by piece.

    >>> mixed(np.array([0.5, 0.5], np.float32), np.array([[2], [4]], np.float32), 1).tolist()
    [3.0]
    """
    total = np.zeros(v.shape[1], v.dtype)
    for start in range(0, len(v), piece):
        part = np.zeros_like(total)
        for row in range(start, min(start + piece, len(v))):
            part = part + weights[row] * v[row]
        total = total + part
    return total


def scene(seed: int, dtype: str, keys: int, cold: int, warm: int, foreign: bool = False) -> dict[str, float]:
    """differing: outputs of 64 whose bits differ between the two paths; largest: the largest difference."""
    rng = np.random.default_rng(seed)
    scores, v, other = rng.standard_normal(keys), rng.standard_normal((keys, WIDTH)).astype(dtype), rng.standard_normal(WIDTH).astype(dtype)
    weights = (np.exp(scores) / np.exp(scores).sum()).astype(dtype)
    one = mixed(weights, v, cold)
    if foreign:
        v[keys // 3] = other
    two = mixed(weights, v, warm)
    gap = np.abs(one.astype(np.float64) - two.astype(np.float64))
    return {"differing": float((gap > 0).sum()), "largest": float(gap.max())}


def faulty(seed: int, dtype: str = "float32") -> dict[str, float]:
    """Pieces of 64 against pieces of 16."""
    return scene(seed, dtype, KEYS, KEYS, PIECE)


def correct(seed: int, dtype: str = "float32") -> dict[str, float]:
    """Pieces of 16 on both paths."""
    return scene(seed, dtype, KEYS, PIECE, PIECE)


def control(seed: int, dtype: str = "float32") -> dict[str, float]:
    """As many keys as one piece holds, summed as in `faulty`."""
    return scene(seed, dtype, PIECE, KEYS, PIECE)


def contaminated(seed: int, dtype: str = "float32") -> dict[str, float]:
    """Pieces of 16 on both paths, and one foreign value row on the second."""
    return scene(seed, dtype, KEYS, PIECE, PIECE, foreign=True)
