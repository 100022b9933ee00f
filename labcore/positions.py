"""Four ways to tell a network where a token stands, and what it takes to move cached keys to another place.

    learned      a table row is added to the input: position is inside keys and values, nothing can be moved
    sinusoidal   a fixed vector is added to the input: the same
    rope         queries and keys are rotated: a cached key moves by rotating it on
    alibi        a bias on the scores, linear in the distance: keys hold no position, only their numbers move

Axis letters: see GLOSSARY.md (n query, m key, h head, d width).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RULES = ("learned", "sinusoidal", "rope", "alibi")
BASE = 10000.0
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def sinusoidal(positions: Any, width: int) -> Floats:
    """Vectors [n, d]: angle position / BASE**(2 i / d), its sine in the even columns, its cosine in the odd ones.

    >>> sinusoidal([0], 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    angle = np.asarray(positions, np.float64)[:, None] / BASE ** (2 * np.arange(width // 2) / width)
    table = np.empty((len(angle), width))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


def rotate(x: Floats, positions: Any) -> Floats:
    """RoPE on x [..., n, h, d]: pair (2 i, 2 i + 1) turned by position / BASE**(2 i / width). A copy.

    Turning by p and then by q is turning by p + q, up to rounding; so a cached key moves by `rotate(key, shift)`.

    >>> x = np.ones((1, 1, 2))
    >>> bool(np.allclose(rotate(rotate(x, [3]), [4]), rotate(x, [7])))
    True
    """
    width = x.shape[-1]
    angle = np.asarray(positions, np.float64)[:, None] / BASE ** (2 * np.arange(width // 2) / width)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    turned = np.empty_like(x)
    turned[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    turned[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return turned


def slopes(heads: int) -> Floats:
    """ALiBi's slope of each head, 2**(-8 (i + 1) / heads).

    >>> slopes(2).tolist()
    [0.0625, 0.00390625]
    """
    return np.asarray(2.0 ** (-8.0 * np.arange(1, heads + 1) / heads))


def alibi(queries: Any, keys: Any, heads: int) -> Floats:
    """Bias [h, n, m] on the scores of queries at positions [n] and keys at positions [m]: -slope * (query - key)."""
    distance = np.asarray(queries, np.float64)[:, None] - np.asarray(keys, np.float64)[None, :]
    return -slopes(heads)[:, None, None] * distance
