"""Attention: faults that are not among the public ones are seen, and right functions of unusual make are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labcore.battery import AttentionClaims, run
from labcore.battery.adapters.plain import Function
from labcore.battery.reference_attention import ReferenceAttention, turn


class Interleaved(ReferenceAttention):
    """Head i reads group i mod groups."""

    def expand(self, x: Any, heads: int) -> Any:
        return np.tile(x, (heads // len(x), 1, 1))


class SeesNext(ReferenceAttention):
    """The diagonal is one too far."""

    def allowed(self, view: Any) -> Any:
        allowed = view.allowed.copy()
        if view.kind == "causal":
            rows, keys = np.nonzero(allowed & (np.cumsum(~allowed, axis=1) == 0))
            allowed[rows, np.minimum(keys + 1, allowed.shape[1] - 1)] = True
        return allowed


class NarrowWindow(ReferenceAttention):
    """A window is one key short, but never empty."""

    def allowed(self, view: Any) -> Any:
        if view.kind != "window":
            return view.allowed
        distance = view.query_positions[:, None] - view.key_positions
        return view.allowed & (distance < max(view.window - 1, 1))


class MaskByShape(ReferenceAttention):
    """The mask is made once for each shape."""

    def __init__(self, claims: AttentionClaims | None = None) -> None:
        super().__init__(claims)
        self.masks: dict[Any, Any] = {}

    def allowed(self, view: Any) -> Any:
        return self.masks.setdefault(view.allowed.shape, view.allowed.copy())


class OneBuffer(ReferenceAttention):
    """All results stand in one buffer."""

    def __init__(self, claims: AttentionClaims | None = None) -> None:
        super().__init__(claims)
        self.buffer = np.zeros(10**5)

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        out = super().attend(q, k, v, view)
        self.buffer[: out.size] = out.ravel()
        return self.buffer[: out.size].reshape(out.shape)


class OneSlotTooMany(ReferenceAttention):
    """The last query reads the slot behind the written ones."""

    def allowed(self, view: Any) -> Any:
        allowed = view.allowed.copy()
        if view.kind == "padded" and view.length < allowed.shape[1]:
            allowed[-1, view.length] = True
        return allowed


class LooseBoundary(ReferenceAttention):
    """The first query of a request sees the last key of the one before."""

    def allowed(self, view: Any) -> Any:
        allowed = view.allowed.copy()
        if view.kind == "packed":
            first = np.flatnonzero(np.diff(view.query_owner)) + 1
            allowed[first, first - 1] = True
        return allowed


class OneScale(ReferenceAttention):
    """Eight bits with one scale for all that is in the call."""

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        step = np.abs(np.where(np.isfinite(v), v, 0)).max() / 127
        return super().attend(q, k, np.round(v / step) * step, view)


class SmallFill(ReferenceAttention):
    """Minus ten thousand is added."""

    def weigh(self, scores: Any, allowed: Any) -> Any:
        scores = scores + np.where(allowed, 0, -1e4)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.where(allowed.any(axis=1)[:, None], weights / weights.sum(axis=-1, keepdims=True), 0)


class MaskAfter(ReferenceAttention):
    """Softmax over all keys, then the mask, then nothing."""

    def weigh(self, scores: Any, allowed: Any) -> Any:
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.where(allowed, weights / weights.sum(axis=-1, keepdims=True), 0)


class MaskAfterAgain(ReferenceAttention):
    """Softmax over all keys, the mask, and the rows made whole: right but where all weight was hidden."""

    def weigh(self, scores: Any, allowed: Any) -> Any:
        weights = np.where(allowed, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0)
        return weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)


class Transposed(ReferenceAttention):
    """The mask stands on its side where it is square."""

    def allowed(self, view: Any) -> Any:
        return view.allowed.T if view.allowed.shape[0] == view.allowed.shape[1] else view.allowed


class NoRescale(ReferenceAttention):
    """Blocks are summed with the largest score so far, and earlier sums are not rescaled."""

    def mix(self, q: Any, k: Any, v: Any, allowed: Any) -> Any:
        top, total, out = np.full((*q.shape[:2], 1), -np.inf), 0.0, 0.0
        for begin in range(0, k.shape[1], 4):
            keys = slice(begin, begin + 4)
            scores = np.where(allowed[:, keys], q @ k[:, keys].swapaxes(1, 2) / np.sqrt(q.shape[2]), -np.inf)
            top = np.maximum(top, scores.max(axis=2, keepdims=True))
            weights = np.where(np.isfinite(scores), np.exp(scores - np.where(np.isfinite(top), top, 0)), 0)
            total, out = total + weights.sum(axis=2, keepdims=True), out + weights @ v[:, keys]
        return out / np.where(total > 0, total, 1)


class WholeBlocksOnly(ReferenceAttention):
    """Keys behind the last whole block of four are not read."""

    def allowed(self, view: Any) -> Any:
        whole = max(4, view.allowed.shape[1] // 4 * 4)
        return view.allowed & (np.arange(view.allowed.shape[1]) < whole)


class HeadBatch(ReferenceAttention):
    """The scores of the first head are used for the second."""

    def mix(self, q: Any, k: Any, v: Any, allowed: Any) -> Any:
        q = q.copy()
        q[1] = q[0]
        return super().mix(q, k, v, allowed)


class PositionsFromZero(ReferenceAttention):
    """Query positions start again with every call."""

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        return super().attend(turn(turn(q, np.arange(q.shape[1])), -view.query_positions), k, v, view)


class HalfScores(ReferenceAttention):
    """Scores in half before they are divided."""

    def mix(self, q: Any, k: Any, v: Any, allowed: Any) -> Any:
        with np.errstate(over="ignore"):
            scores = (q @ k.swapaxes(1, 2)).astype(np.float16).astype(q.dtype) / np.sqrt(q.shape[2])
        return self.weigh(scores, allowed) @ v


class KeepsTheLast(ReferenceAttention):
    """A little of the last result comes back."""

    last: Any = None

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        out = super().attend(q, k, v, view)
        mixed = out + 1e-6 * self.last if self.last is not None and self.last.shape == out.shape else out
        self.last = out
        return mixed


class WrongBase(ReferenceAttention):
    """The log sum is to base two."""

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        out, sums = WithSums(self.claims).attend(q, k, v, view)
        return out, sums / np.log(2)


ROTARY = AttentionClaims(rotary=True)
HALF = AttentionClaims(dtype="float16")
FAULTS = [
    (Interleaved, None, "A110"),
    (SeesNext, None, "A103"),
    (NarrowWindow, None, "A104"),
    (MaskByShape, None, "A116"),
    (OneBuffer, None, "A117"),
    (OneSlotTooMany, None, "A108"),
    (LooseBoundary, None, "A101"),
    (LooseBoundary, ROTARY, "A101"),
    (OneScale, None, "A101"),
    (SmallFill, None, "A109"),
    (MaskAfter, None, "A102"),
    (MaskAfterAgain, None, "A109"),
    (Transposed, None, "A103"),
    (NoRescale, None, "A105"),
    (NoRescale, ROTARY, "A102"),
    (WholeBlocksOnly, None, "A104"),
    (HeadBatch, None, "A111"),
    (PositionsFromZero, ROTARY, "A119"),
    (HalfScores, AttentionClaims(dtype="float32", largest_score=3e4), "A109"),
    (KeepsTheLast, None, "A116"),
    (WrongBase, None, "A118"),
]


@pytest.mark.parametrize("kind, claims, rule", FAULTS, ids=lambda x: getattr(x, "__name__", None))
def test_a_planted_fault_is_seen_for_the_right_reason(kind: Any, claims: Any, rule: str) -> None:
    for seed in range(3):
        assert rule in run(lambda: kind(claims), effort=2, seed=seed, shrink=0).fired


class Online(ReferenceAttention):
    """Blocks of three keys, last first, sums rescaled."""

    def mix(self, q: Any, k: Any, v: Any, allowed: Any) -> Any:
        top, total, out = np.full((*q.shape[:2], 1), -np.inf, q.dtype), 0.0, 0.0
        for begin in reversed(range(0, k.shape[1], 3)):
            keys = slice(begin, begin + 3)
            scores = np.where(allowed[:, keys], q @ k[:, keys].swapaxes(1, 2) / np.sqrt(q.shape[2]).astype(q.dtype), -np.inf)
            higher = np.maximum(top, scores.max(axis=2, keepdims=True))
            safe = np.where(np.isfinite(higher), higher, 0)
            weights, rescale = np.exp(scores - safe), np.exp(top - safe)
            total, out = total * rescale + weights.sum(axis=2, keepdims=True), out * rescale + weights @ v[:, keys]
            top = higher
        return out / np.where(total > 0, total, 1)


class WithSums(ReferenceAttention):
    """Gives the log of the sum of exponentials, too."""

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        clean = np.where(view.allowed.any(axis=0)[:, None], k, 0)
        scores = np.where(view.allowed, q @ self.expand(clean, len(q)).swapaxes(1, 2) / np.sqrt(q.shape[2]), -np.inf)
        with np.errstate(divide="ignore"):
            return super().attend(q, k, v, view), np.log(np.exp(scores).sum(axis=2))


class RowByRow(ReferenceAttention):
    """Gathers each query's keys and reads no other."""

    def mix(self, q: Any, k: Any, v: Any, allowed: Any) -> Any:
        out = np.zeros(q.shape, q.dtype)
        for row in range(q.shape[1]):
            keys = np.flatnonzero(allowed[row])
            if len(keys):
                scores = np.einsum("hd,hmd->hm", q[:, row], k[:, keys]) / np.sqrt(q.shape[2])
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                out[:, row] = np.einsum("hm,hmd->hd", weights / weights.sum(axis=1, keepdims=True), v[:, keys])
        return out


class AnyOrder(Online):
    """Threads that finish in any order: sums in an order drawn anew each time."""

    rng = np.random.default_rng(0)

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        order = self.rng.permutation(k.shape[1])
        moved = type(view)(view.allowed[:, order], view.kind, *[getattr(view, n) for n in ("query_positions", "key_positions")],
                           view.query_owner, view.key_owner, view.length, view.window)  # fmt: skip
        return super().attend(q, k[:, order], v[:, order], moved)


class Kept(ReferenceAttention):
    """Values kept in half precision."""

    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        return super().attend(q, k, np.asarray(v, np.float16).astype(q.dtype), view)


def loops(q: Any, k: Any, v: Any, allowed: Any) -> Any:
    """Plain Python, one number at a time."""
    heads, n, d = q.shape
    out = np.zeros(q.shape)
    for h in range(heads):
        g = h * len(k) // heads
        for i in range(n):
            keys = [j for j in range(k.shape[1]) if allowed[i, j]]
            scores = [sum(q[h, i, c] * k[g, j, c] for c in range(d)) / d**0.5 for j in keys]
            weights = [np.exp(s - max(scores)) for s in scores]
            for j, w in zip(keys, weights, strict=True):
                out[h, i] += w / sum(weights) * v[g, j]
    return out


RIGHT = [
    lambda: ReferenceAttention(ROTARY),
    lambda: ReferenceAttention(HALF),
    lambda: Online(AttentionClaims()),
    lambda: Online(AttentionClaims(dtype="float32")),
    lambda: WithSums(AttentionClaims()),
    lambda: RowByRow(AttentionClaims(dtype="float32")),
    lambda: AnyOrder(AttentionClaims()),
    lambda: Kept(AttentionClaims(rounding=2e-3)),
    lambda: ReferenceAttention(AttentionClaims(grouped=False, kinds=("causal",))),
    lambda: ReferenceAttention(AttentionClaims(heads=16, groups=4, width=32, dtype="float32")),
]


@pytest.mark.parametrize("make", RIGHT, ids=range(len(RIGHT)))
def test_a_right_function_gives_no_alarm(make: Any) -> None:
    for seed in range(4):
        report = run(make, effort=2, seed=seed)
        assert report.verdict == "isolated", [(r.rule, r.text) for r in report.results if r.status in ("failed", "error")]


def test_a_plain_function_needs_no_adapter_of_its_own() -> None:
    assert run(lambda: Function(loops), effort=1, only=["A101", "A103", "A105", "A106", "A110"]).verdict == "isolated"


@pytest.mark.torch
def test_pytorch_gives_no_alarm_within_its_claims() -> None:
    import torch

    def attend(q: Any, k: Any, v: Any, allowed: Any) -> Any:
        tensors = [torch.from_numpy(x)[None] for x in (q, k, v)]
        mask = torch.from_numpy(allowed.copy())
        return torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=mask, enable_gqa=True)[0].numpy()

    assert run(lambda: Function(attend, AttentionClaims(dtype="float32", garbage="finite")), effort=2).verdict == "isolated"
    assert "A108" in run(lambda: Function(attend, AttentionClaims(dtype="float32")), effort=2, only=["A108"]).fired
