"""The public faults of attention functions, on the reference function with one part replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from labcore.battery.adapters.fault import Fault, Make, Seedless
from labcore.battery.interfaces import KINDS, AttentionClaims, Floats, View
from labcore.battery.reference_attention import BASE, ReferenceAttention, rotate
from labcore.faults.bf16_positions import rounded
from labcore.faults.first_key_triangle import triangle
from labcore.faults.packed import block_diagonal, causal_only

DOUBLE = AttentionClaims()
HALF = AttentionClaims(dtype="float16")


class FiniteFill(ReferenceAttention):
    """BR-01: the least finite half number is added to the scores, softmax in half."""

    def weigh(self, scores: Floats, allowed: Floats) -> Floats:
        half = scores.astype(np.float16) + np.where(allowed, 0, np.finfo(np.float16).min).astype(np.float16)
        weights = np.exp(half - half.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


class NoKeyUnguarded(ReferenceAttention):
    """BR-02: softmax over a row of minus infinity."""

    def weigh(self, scores: Floats, allowed: Floats) -> Floats:
        scores = np.where(allowed, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


class ReadsUnwritten(ReferenceAttention):
    """BR-04: the whole block is multiplied and weight zero is trusted to remove what was never written."""

    def attend(self, q: Floats, k: Floats, v: Floats, view: View) -> Floats:
        k, v = self.expand(k, len(q)), self.expand(v, len(q))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]) + np.where(view.allowed, 0, -np.inf)
        seen = np.asarray(view.allowed.any(axis=1))[:, None]
        top = np.where(seen, scores.max(axis=-1, keepdims=True), 0)
        weights = np.exp(scores - top)
        return np.asarray(np.where(seen, weights / weights.sum(axis=-1, keepdims=True), 0) @ v)


class TopLeft(ReferenceAttention):
    """BR-05: a causal flag, anchored where the cache begins."""

    def allowed(self, view: View) -> Floats:
        n, m = view.allowed.shape
        return triangle(n, m - n)


class PackedCausal(ReferenceAttention):
    """BR-06: the owners of packed tokens do not arrive; their positions do."""

    def allowed(self, view: View) -> Floats:
        return np.asarray(causal_only(view.key_owner)[0]) if view.kind == "packed" else view.allowed


class PackedDiagonal(ReferenceAttention):
    """The twin: causal and own document."""

    def allowed(self, view: View) -> Floats:
        return np.asarray(block_diagonal(view.key_owner)[0]) if view.kind == "packed" else view.allowed


class SinglePhases(ReferenceAttention):
    """Phases in single precision."""

    def positions(self, positions: Floats) -> Floats:
        """Positions as the phases take them."""
        return positions.astype(np.float32)

    def turn(self, x: Floats, positions: Floats) -> Floats:
        half = x.shape[-1] // 2
        frequency = (1 / BASE ** (np.arange(half) / half)).astype(np.float32)
        angle = self.positions(positions)[:, None] * frequency
        return rotate(x, np.cos(angle), np.sin(angle))


class BrainPositions(SinglePhases):
    """BR-11: positions pass through bfloat16, which cannot tell 256 from 257."""

    def positions(self, positions: Floats) -> Floats:
        return rounded(positions).astype(np.float32)


def quantised(x: Floats, axis: int, bits: int = 4) -> Floats:
    """x through codes of `bits` bits, one range along `axis` for all others."""
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    step = np.where(high > low, (high - low) / (2**bits - 1), 1.0)
    return np.asarray(np.round((x - low) / step) * step + low)


class KeysPerToken(ReferenceAttention):
    """BR-31: four-bit keys with one range a token, all channels in it."""

    def expand(self, x: Floats, heads: int) -> Floats:
        return super().expand(self.keys(x), heads)

    def mix(self, q: Floats, k: Floats, v: Floats, allowed: Floats) -> Floats:
        return super().mix(q, k, v, allowed)

    def keys(self, x: Floats) -> Floats:
        """Keys as they are kept."""
        return quantised(x, axis=2)

    def attend(self, q: Floats, k: Floats, v: Floats, view: View) -> Floats:
        return ReferenceAttention(self.claims).attend(q, self.keys(k), v, view)


class KeysPerChannel(KeysPerToken):
    """The twin: one range a channel, the first token apart."""

    def keys(self, x: Floats) -> Floats:
        return np.concatenate([x[:, :1], quantised(x[:, 1:], axis=1)], axis=1) if x.shape[1] > 1 else x


class FixedSplit(ReferenceAttention):
    """Sums over keys in pieces of one size, each piece added up in order: a row does not depend on its neighbours."""

    def split(self, n: int) -> int:
        """Keys of a piece."""
        return 16

    def mix(self, q: Floats, k: Floats, v: Floats, allowed: Floats) -> Floats:
        scores = (q[:, :, None] * k[:, None]).sum(axis=3) / np.sqrt(q.shape[2]).astype(q.dtype)
        weights = self.weigh(scores, allowed)
        size, total = self.split(q.shape[1]), np.zeros(q.shape, q.dtype)
        for begin in range(0, k.shape[1], size):
            piece = np.zeros(q.shape, q.dtype)
            for key in range(begin, min(begin + size, k.shape[1])):
                piece += weights[:, :, key, None] * v[:, None, key]
            total += piece
        return total

    def weigh(self, scores: Floats, allowed: Floats) -> Floats:
        scores = np.where(allowed, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        total = weights[..., 0].copy()
        for key in range(1, weights.shape[-1]):
            total += weights[..., key]
        return np.asarray(weights / total[..., None])


class SplitByBatch(FixedSplit):
    """BR-34: the size of a piece depends on how many queries there are."""

    def split(self, n: int) -> int:
        return 16 if n == 1 else 64


def made(kind: Any, claims: AttentionClaims) -> Make:
    """A factory that takes a seed, which attention has no use for: the battery's cases are drawn from it."""
    return Seedless(kind, claims)


ROTARY = AttentionClaims(rotary=True, kinds=("causal", "packed"))
KEPT = AttentionClaims(kinds=("full",), rounding=0.5)
BITS = AttentionClaims(dtype="float32", kinds=("causal", "full"), no_key="unspecified", row_exact=True)
FAULTS = [
    Fault(
        "BR-01",
        "finite mask value in half precision",
        made(FiniteFill, HALF),
        made(ReferenceAttention, HALF),
        made(FiniteFill, replace(HALF, no_key="unspecified", largest_score=15.0)),
        ("A106",),
    ),
    Fault(
        "BR-02",
        "NaN for padding rows",
        made(NoKeyUnguarded, DOUBLE),
        made(ReferenceAttention, DOUBLE),
        made(NoKeyUnguarded, replace(DOUBLE, no_key="unspecified")),
        ("A106", "A107"),
    ),
    Fault(
        "BR-04",
        "NaN from unwritten slots",
        made(ReadsUnwritten, DOUBLE),
        made(ReferenceAttention, DOUBLE),
        made(ReadsUnwritten, replace(DOUBLE, garbage="finite")),
        ("A108",),
    ),
    Fault(
        "BR-05",
        "causal mask anchored top left",
        made(TopLeft, replace(DOUBLE, kinds=("causal",))),
        made(ReferenceAttention, replace(DOUBLE, kinds=("causal",))),
        made(TopLeft, replace(DOUBLE, kinds=("causal",), short_queries=False)),
        ("A104", "A105", "A119"),
    ),
    Fault(
        "BR-06",
        "attention across packed documents",
        made(PackedCausal, ROTARY),
        made(PackedDiagonal, ROTARY),
        made(PackedCausal, replace(ROTARY, kinds=("causal",))),
        ("A101", "A102", "A103"),
    ),
    Fault(
        "BR-11",
        "positions in bfloat16",
        made(BrainPositions, replace(ROTARY, kinds=("causal",))),
        made(SinglePhases, replace(ROTARY, kinds=("causal",))),
        made(BrainPositions, replace(ROTARY, kinds=("causal",), max_position=256)),
        ("A112", "A113"),
    ),
    Fault(
        "BR-31",
        "outliers set the range of low-bit keys",
        made(KeysPerToken, KEPT),
        made(KeysPerChannel, KEPT),
        made(KeysPerToken, replace(KEPT, outliers=False)),
        ("A115",),
    ),
    Fault(
        "BR-34",
        "sums split by batch size",
        made(SplitByBatch, BITS),
        made(FixedSplit, BITS),
        made(SplitByBatch, replace(BITS, row_exact=False)),
        ("A114",),
    ),
]
assert set(KINDS) >= set(KEPT.kinds)
