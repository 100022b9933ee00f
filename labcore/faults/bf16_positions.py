"""Rotary phases from positions in bfloat16 (BR-11): above 256 neighbouring positions become one.

Faulty: `rounded`. Twin: the integer itself. Control: positions up to 256, which bfloat16 holds exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def bits(values: Any) -> NDArray[np.uint16]:
    """bfloat16 bit patterns of values, to the nearest, ties to even.

    >>> [hex(b) for b in bits([1.0, 257.0])]
    ['0x3f80', '0x4380']
    """
    wide = np.asarray(values, np.float32).view(np.uint32)
    return np.asarray((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(values: Any) -> NDArray[np.float64]:
    """What bfloat16 makes of the values.

    >>> rounded([255, 256, 257, 15962]).tolist()
    [255.0, 256.0, 256.0, 15936.0]
    """
    return (bits(values).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
