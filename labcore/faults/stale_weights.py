"""A key made of ids alone survives a weight update (BR-24). Faulty: `faulty_hit`. Twin: `correct_hit`. Control: no update."""

from __future__ import annotations

from typing import Any

import numpy as np

from labcore.common_prefix import CommonPrefixStore, Stored
from labcore.matchers import common, pack
from labcore.network import Weights


def update(weights: Weights, seeds: list[int], share: float) -> Weights:
    """Weights of g networks, each projection moved by normal noise of `share` of its own standard deviation, drawn from [seed, 24]."""
    noise = np.stack([np.random.default_rng([seed, 24]).normal(0, 1, weights.qkv.shape[1:]) for seed in seeds])
    scale = weights.qkv.std(axis=(-2, -1), keepdims=True)
    return Weights(weights.embedding, weights.qkv + share * scale * noise)


def faulty_hit(store: CommonPrefixStore, ids: Any) -> tuple[Stored | None, int]:
    """The newest entry by ids alone, and the tokens in common."""
    packed = pack(ids)
    found = [(min(common(packed, entry.packed), len(ids) - 1), entry) for entry in reversed(store.entries)]
    cut, entry = max(found, key=lambda pair: pair[0])
    return (entry, cut) if cut else (None, 0)


def correct_hit(store: CommonPrefixStore, weights: Weights, ids: Any, scope: str) -> tuple[Stored | None, int]:
    """The store's own search, whose key holds the weights."""
    return store.find(weights, ids, scope)
