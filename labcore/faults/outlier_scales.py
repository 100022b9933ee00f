"""A 4-bit cache whose scale for a token's key is set by one large channel, or by the first token (BR-31).

Keys have a few channels of large size, and the first token's key is large as a whole. A range taken over a token's channels is set by
the large one, and the other channels fall into few of the 16 levels; a range taken over tokens with the first among them, likewise.
Faulty: `faulty` (a range per token, one large channel), `faulty_first` (a range per channel over all tokens, a large first token).
Twins: `correct`, a range per channel; `correct_first`, the first token kept apart in full precision. Control: `control`, the faulty
range without an outlier, where both ranges do equally well and a test on normal draws passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.online_softmax import dense
from labcore.quantize import asymmetric, restore

N = D = 64
QUERIES, CHANNEL, LARGE, LARGE_FIRST = 16, 5, 30, 40


def scene(seed: int, axis: str, channel: float = 0, first: float = 1, apart: bool = False) -> dict[str, float]:
    """error: relative L2 of attention's output when K is held in asymmetric INT4 with a range per `axis` ("token" or "channel")."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((rows, D)) for rows in (QUERIES, N, N))
    k[:, CHANNEL] += channel
    k[0] *= first
    kept = 1 if apart else 0
    held: NDArray[Any] = np.concatenate([k[:kept], restore(asymmetric(k[kept:], axis, 4), np.float64)])
    right = dense(q, k, v)
    return {"error": float(np.linalg.norm(dense(q, held, v) - right) / np.linalg.norm(right))}


def faulty(seed: int) -> dict[str, float]:
    """One large key channel, a range per token."""
    return scene(seed, "token", channel=LARGE)


def correct(seed: int) -> dict[str, float]:
    """One large key channel, a range per channel."""
    return scene(seed, "channel", channel=LARGE)


def control(seed: int) -> dict[str, float]:
    """No outlier, a range per token."""
    return scene(seed, "token")


def faulty_first(seed: int) -> dict[str, float]:
    """A large first token within the ranges of the channels."""
    return scene(seed, "channel", first=LARGE_FIRST)


def correct_first(seed: int) -> dict[str, float]:
    """A large first token kept apart."""
    return scene(seed, "channel", first=LARGE_FIRST, apart=True)
