"""Attention in pieces: tiles with a running maximum and sum, and parts merged by their log-sum-exp.

Axes as in GLOSSARY.md: h head, r request, n query, m key, d width. All scores are divided by sqrt(d). A *part* is the pair
(output, lse): softmax attention over some of the keys alone, and the logarithm of the sum of exp(score) over them. Parts of disjoint
sets of keys merge exactly (up to rounding) into attention over their union:

    lse = log(sum exp(lse_i)),   output = sum exp(lse_i - lse) * output_i
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labcore.quantize import NotFinite


class Part(NamedTuple):
    """Attention over a set of keys. output [..., n, d], lse [..., n]."""

    output: NDArray[Any]
    lse: NDArray[Any]


def check(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> None:
    """Raises NotFinite for NaN or infinity, ValueError where there is no key."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not np.isfinite(x).all():
            raise NotFinite(f"{name}: got NaN or infinity; wanted finite numbers")
    if k.shape[-2] == 0:
        raise ValueError("k: got no key; wanted at least one")


def part(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], checked: bool = False) -> Part:
    """Attention of q [..., n, d] over k, v [..., m, d], m >= 1. Raises as `check`; `checked` says that the caller has done so."""
    if not checked:
        check(q, k, v)
    # few passes over the scores, the largest array here: q is scaled before, the output divided after, the rest done in place
    scores = (q / np.sqrt(q.shape[-1]).astype(q.dtype)) @ np.swapaxes(k, -1, -2)
    top = scores.max(axis=-1, keepdims=True)
    scores -= top
    weights = np.exp(scores, out=scores)
    total = weights.sum(axis=-1, keepdims=True)
    return Part(weights @ v / total, (top + np.log(total))[..., 0])


def dense(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """softmax(q k^T / sqrt(d)) v, all scores at once.

    >>> dense(np.zeros((1, 2)), np.zeros((3, 2)), np.eye(3, 2)).round(3).tolist()
    [[0.333, 0.333]]
    """
    return part(q, k, v).output


def merge(parts: Sequence[Part]) -> Part:
    """One part over the union of disjoint sets of keys."""
    lse = np.stack([p.lse for p in parts])
    top = lse.max(axis=0)
    shares = np.exp(lse - top)
    total = shares.sum(axis=0)
    output = sum(s[..., None] * p.output for s, p in zip(shares / total, parts, strict=True))
    return Part(np.asarray(output), top + np.log(total))


def tiled(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], tile: int) -> NDArray[Any]:
    """Attention of q [n, d] over k, v [m, d] by tiles of keys; only n times `tile` scores exist at a time.

    Keeps per query the largest score so far, the sum of exp(score - largest) and the weighted sum of values; a new largest score
    rescales both.
    """
    if tile < 1:
        raise ValueError(f"tile: got {tile}; wanted a positive number of keys")
    root = np.sqrt(q.shape[-1])
    top = np.full((q.shape[0], 1), -np.inf)
    total = np.zeros((q.shape[0], 1))
    output = np.zeros((q.shape[0], v.shape[1]))
    for start in range(0, len(k), tile):
        scores = q @ k[start : start + tile].T / root
        higher = np.maximum(top, scores.max(axis=1, keepdims=True))
        rescale, weights = np.exp(top - higher), np.exp(scores - higher)
        total = total * rescale + weights.sum(axis=1, keepdims=True)
        output = output * rescale + weights @ v[start : start + tile]
        top = higher
    return output / total


def shared_prefix(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], private: Sequence[tuple[NDArray[Any], NDArray[Any]]], checked: bool = False
) -> NDArray[Any]:
    """Attention of r requests that share a prefix: the prefix once for all queries, then each private part, merged.

    q [h, r, d], one query a request; k, v [h, m, d], the prefix; private: r pairs of [h, m, d], m >= 1 of any length. Returns [h, r, d].
    """
    if len(private) != q.shape[1]:
        raise ValueError(f"private: got {len(private)} parts; wanted {q.shape[1]}, one a request")
    own = [part(q[:, i : i + 1], *kv, checked) for i, kv in enumerate(private)]
    rest = Part(np.concatenate([p.output for p in own], axis=1), np.concatenate([p.lse for p in own], axis=1))
    return merge([part(q, k, v, checked), rest]).output
