"""A right attention function, in NumPy: what a system under test should be like. Its parts may be replaced, for planted faults."""

from __future__ import annotations

from functools import cache

import numpy as np

from labcore.battery.interfaces import AttentionClaims, Floats, View

BASE = 10000.0
TABLE = 512  # positions whose phases are kept


def turn(x: Floats, positions: Floats, base: float = BASE) -> Floats:
    """Rotary positions: pairs (2i, 2i + 1) of x [..., n, d] turned by positions [n] / base ** (2i / d). Turns backwards where negative."""
    half = x.shape[-1] // 2
    if positions.dtype.kind == "i" and base == BASE and len(positions) and positions.min() >= 0 and positions.max() < TABLE:
        cos, sin = phases(half)
        return rotate(x, cos[positions], sin[positions])
    angle = np.asarray(positions, np.float64)[:, None] / base ** (np.arange(half) / half)
    return rotate(x, np.cos(angle), np.sin(angle))


def turn_from(x: Floats, start: int) -> Floats:
    """`turn` at positions start, start + 1, ..."""
    stop = start + x.shape[-2]
    if start < 0 or stop > TABLE:
        return turn(x, np.arange(start, stop))
    cos, sin = phases(x.shape[-1] // 2)
    return rotate(x, cos[start:stop], sin[start:stop])


@cache
def phases(half: int) -> tuple[Floats, Floats]:
    """Cosine and sine [TABLE, half] of the first positions."""
    angle = np.arange(TABLE)[:, None] / BASE ** (np.arange(half) / half)
    return np.cos(angle), np.sin(angle)


def rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """Pairs (2i, 2i + 1) of x [..., n, d] turned by angles [n, d / 2]."""
    out = np.empty(x.shape, np.result_type(x, cos))
    even, odd = x[..., 0::2], x[..., 1::2]
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out


class ReferenceAttention:
    """Selects before it multiplies, works in float32 at least, gives zeros where a query has no key."""

    def __init__(self, claims: AttentionClaims | None = None) -> None:
        self.claims = claims or AttentionClaims()

    def attend(self, q: Floats, k: Floats, v: Floats, view: View) -> Floats:
        """[h, n, d] from q [h, n, d] and k, v [g, m, d], in the dtype of q."""
        work = np.float32 if q.dtype == np.float16 else q.dtype
        allowed = self.allowed(view)
        written = np.asarray(allowed.any(axis=0))[:, None]
        k, v = np.where(written, k, 0).astype(work), np.where(written, v, 0).astype(work)
        q = q.astype(work)
        if self.claims.rotary:
            q, k = self.turn(q, view.query_positions), self.turn(k, view.key_positions)
        k, v = self.expand(k, len(q)), self.expand(v, len(q))
        return np.asarray(self.mix(q, k, v, allowed), dtype=q.dtype if self.claims.dtype == "float64" else self.claims.dtype)

    def allowed(self, view: View) -> Floats:
        """The mask [n, m] that is applied."""
        return view.allowed

    def turn(self, x: Floats, positions: Floats) -> Floats:
        """Rotary positions."""
        return turn(x, positions)

    def expand(self, x: Floats, heads: int) -> Floats:
        """Keys or values of the groups [g, m, d], for each head [h, m, d]."""
        return np.repeat(x, heads // len(x), axis=0)

    def mix(self, q: Floats, k: Floats, v: Floats, allowed: Floats) -> Floats:
        """The weighted mean of the values."""
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]).astype(q.dtype)
        return np.asarray(self.weigh(scores, allowed) @ v)

    def weigh(self, scores: Floats, allowed: Floats) -> Floats:
        """Softmax of scores [h, n, m] over what is allowed; a row of zeros where nothing is."""
        scores = np.where(allowed, scores, -np.inf)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = weights.sum(axis=-1, keepdims=True)
        return np.asarray(weights / np.where(total > 0, total, 1))
