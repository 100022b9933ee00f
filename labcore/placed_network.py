"""A network of two layers and two heads under any of the four position rules, with a cache that can be moved; float64.

    x = embedding[id] (+ position, if the rule adds one)
    x <- tanh(x + concatenated heads of softmax(q k / sqrt(width of a head) (+ bias)) v, times W_O)        twice
    logits = x . embedding

g sequences of one length go together (axis letters: GLOSSARY.md). New tokens see all cached keys, and each other causally.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.positions import Floats, Ints, alibi, rotate, sinusoidal

WIDTH, HEADS, LAYERS, VOCABULARY, PLACES = 16, 2, 2, 32, 128


@dataclass(frozen=True)
class Weights:
    """embedding [32, 16]; table [128, 16] of learned positions; qkvo [layer 2, projection 4, 16, 16], applied from the right."""

    embedding: Floats
    table: Floats
    qkvo: Floats


@dataclass(frozen=True)
class Cache:
    """k, v [layer, g, m, head, d], keys as the scores use them (rotated under rope); positions [m]."""

    k: Floats
    v: Floats
    positions: Ints

    def rows(self, start: int, stop: int) -> Cache:
        """The keys `start` .. `stop` - 1."""
        return Cache(self.k[:, :, start:stop], self.v[:, :, start:stop], self.positions[start:stop])


def draw(seed: int) -> Weights:
    """Random weights from default_rng([seed, 12]): embedding, table, then W_Q, W_K, W_V, W_O of each layer."""
    rng = np.random.default_rng([seed, 12])
    embedding, table = rng.normal(0, 0.3, (VOCABULARY, WIDTH)), rng.normal(0, 0.3, (PLACES, WIDTH))
    return Weights(embedding, table, rng.normal(0, 0.25, (LAYERS, 4, WIDTH, WIDTH)))


def run(
    weights: Weights, rule: str, ids: Any, positions: Any, past: Cache | None = None, hidden: NDArray[np.bool_] | None = None
) -> tuple[Floats, Cache]:
    """States after each layer [layer, g, n, 16] of ids [g, n] at positions [n], and the cache with them.

    hidden [m + n]: keys that nobody may see (padding). A query that sees nothing gives zeros instead of a mean.
    """
    ids, at = np.atleast_2d(np.asarray(ids)), np.asarray(positions)
    g, n = ids.shape
    before = 0 if past is None else len(past.positions)
    x = weights.embedding[ids]
    if rule == "learned":
        x = x + weights.table[at]
    elif rule == "sinusoidal":
        x = x + sinusoidal(at, WIDTH)
    where = at if past is None else np.concatenate([past.positions, at])
    seen = np.concatenate([np.ones((n, before), bool), np.tril(np.ones((n, n), bool))], axis=1)
    if hidden is not None:
        seen &= ~hidden[None, :]
    bias = np.where(seen, 0.0, -np.inf)[None]
    if rule == "alibi":
        bias = bias + alibi(at, where, HEADS)
    states, keys, values = [], [], []
    for layer in range(LAYERS):
        q, k, v = ((x @ weights.qkvo[layer, p]).reshape(g, n, HEADS, -1) for p in range(3))
        if rule == "rope":
            q, k = rotate(q, at), rotate(k, at)
        if past is not None:
            k, v = np.concatenate([past.k[layer], k], axis=1), np.concatenate([past.v[layer], v], axis=1)
        scores = np.einsum("gnhd,gmhd->ghnm", q, k) / np.sqrt(WIDTH // HEADS) + bias
        top = scores.max(axis=3, keepdims=True)
        shares = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        total = shares.sum(axis=3, keepdims=True)
        mixed = np.einsum("ghnm,gmhd->gnhd", shares / np.where(total > 0, total, 1.0), v).reshape(g, n, WIDTH)
        x = np.tanh(x + mixed @ weights.qkvo[layer, 3])
        states.append(x)
        keys.append(k)
        values.append(v)
    return np.stack(states), Cache(np.stack(keys), np.stack(values), where)


def moved(cache: Cache, rule: str, shift: int) -> Cache:
    """The cache as if its tokens stood `shift` places further: renumbered, and under rope rotated on. What absolute positions have put
    into keys and values stays there."""
    k = np.stack([rotate(layer, np.full(len(cache.positions), shift)) for layer in cache.k]) if rule == "rope" else cache.k
    return Cache(k, cache.v, cache.positions + shift)


def joined(first: Cache, second: Cache) -> Cache:
    """Keys of one cache, then those of another."""
    return Cache(
        np.concatenate([first.k, second.k], axis=2),
        np.concatenate([first.v, second.v], axis=2),
        np.concatenate([first.positions, second.positions]),
    )


def log_probabilities(weights: Weights, states: Floats, targets: Any) -> Floats:
    """Log-probability [g, n] of each target [g, n] after states [g, n, 16]."""
    logits = states @ weights.embedding.T
    logits = logits - logits.max(axis=2, keepdims=True)
    chosen = np.take_along_axis(logits, np.asarray(targets)[..., None], axis=2)[..., 0]
    return np.asarray(chosen - np.log(np.exp(logits).sum(axis=2)))
