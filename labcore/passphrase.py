"""The passphrase: seven colour words as ids, and the queries, keys and values that a random head makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
COLOURS = ("红", "橙", "黄", "绿", "青", "蓝", "紫")
CLS, SEP, PAD = 7, 8, 9  # ids after the seven colours
VOCABULARY = 10
SHORT = tuple(range(7))
LONG = (CLS, *SHORT, SEP)
REQUESTS = ((0, 1, 2), (3, 4, 5))  # A and B: three colours each


@dataclass(frozen=True)
class Heads:
    """Random heads. embedding [id, width]; w_q, w_k, w_v [head, width, head_dim]."""

    embedding: Floats
    w_q: Floats
    w_k: Floats
    w_v: Floats

    def project(self, ids: Any, positions: Any, token_scale: float = 1.0) -> tuple[Floats, Floats, Floats]:
        """q, k, v, each [..., head, token, head_dim], of ids [..., token] at positions [..., token]."""
        x = token_scale * self.embedding[np.asarray(ids)] + sinusoid(positions, self.embedding.shape[1])
        q, k, v = (np.einsum("...tw,hwd->...htd", x, w) for w in (self.w_q, self.w_k, self.w_v))
        return q, k, v


def heads(seed: int, count: int, width: int, head_dim: int) -> Heads:
    """Draws, in this order: embedding N(0, 1), then W_Q, W_K, W_V, each N(0, 1/width) in variance."""
    rng = np.random.default_rng(seed)
    embedding = rng.normal(0, 1, (VOCABULARY, width))
    w_q, w_k, w_v = (rng.normal(0, width**-0.5, (count, width, head_dim)) for _ in range(3))
    return Heads(embedding, w_q, w_k, w_v)


def sinusoid(positions: Any, width: int) -> Floats:
    """Sinusoidal position code [..., token, width]: angle p / 10000**(2i/width), sine in even columns, cosine in odd ones.

    >>> sinusoid([0], 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    angle = np.asarray(positions, np.float64)[..., None] / 10000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(*angle.shape[:-1], width)
