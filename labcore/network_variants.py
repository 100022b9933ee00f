"""The teaching network under other conditions of the kinds that a cache's key must name: layers run, heads, position base, score scale.

At its defaults `advance` here gives what `network.advance` gives. Full causal attention or a window; batched over g.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labcore.network import WIDTH, Counter, Floats, Ints, Weights, check_positions, check_tokens, visible


@dataclass(frozen=True)
class Conditions:
    """layers: stored layers in the order in which they run. heads: share the width equally. position_base: of the sinusoids.

    score_power: scores are divided by head width ** score_power; 0.5 is the network's own implementation. window: or None.
    """

    layers: tuple[int, ...] = (0, 1)
    heads: int = 1
    position_base: float = 10000.0
    score_power: float = 0.5
    window: int | None = None


@dataclass(frozen=True)
class Rows:
    """K and V of the tokens so far: one [g, m, d] for each layer run, in that order."""

    k: tuple[Floats, ...] = ()
    v: tuple[Floats, ...] = ()

    @property
    def length(self) -> int:
        """Number of tokens m."""
        return self.k[0].shape[1] if self.k else 0


def advance(
    weights: Weights, tokens: Ints, conditions: Conditions, past: Rows | None = None, counter: Counter | None = None
) -> tuple[Floats, Rows]:
    """Feed tokens [n] or [g, n] behind rows: states [g, n, d] and all rows. The rows given are not changed; the counter counts one network.

    Rows made under other conditions are continued all the same, layer by layer in the order run: that is the fault to be measured.
    ValueError if there are fewer layers of rows than layers to run.
    """
    g = len(weights.embedding)
    past = past or Rows()
    if past.k and len(past.k) < len(conditions.layers):
        raise ValueError(f"rows: got {len(past.k)} layers; wanted {len(conditions.layers)}")
    ids = check_tokens(tokens, g)
    new = check_positions(np.arange(past.length, past.length + ids.shape[1]), "positions")
    seen = visible(new, np.arange(past.length + len(new)), conditions.window)
    x = weights.embedding[np.arange(g)[:, None], ids] + sinusoid(new, conditions.position_base)
    ks, vs = [], []
    for place, layer in enumerate(conditions.layers):
        q, k, v = (x @ weights.qkv[:, layer, projection] for projection in range(3))
        if past.k:
            k, v = np.concatenate([past.k[place], k], axis=1), np.concatenate([past.v[place], v], axis=1)
        ks.append(k)
        vs.append(v)
        heads = [split(array, conditions.heads) for array in (q, k, v)]
        scores = heads[0] @ heads[1].swapaxes(2, 3) / (WIDTH // conditions.heads) ** conditions.score_power
        if counter is not None:
            counter.projected_rows += 3 * len(new)
            counter.score_elements += scores[0].size
        scores = np.where(seen, scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=3, keepdims=True))
        mixed = (scores / scores.sum(axis=3, keepdims=True)) @ heads[2]
        x = np.tanh(x + mixed.swapaxes(1, 2).reshape(x.shape))
    return x, Rows(tuple(ks), tuple(vs))


def sinusoid(positions: Ints, base: float) -> Floats:
    """Position vectors [n, d]: sine in the even columns, cosine in the odd ones."""
    angle = positions[:, None] / base ** (2 * np.arange(WIDTH // 2) / WIDTH)
    table = np.empty((len(positions), WIDTH))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


def split(array: Floats, heads: int) -> Floats:
    """Rows [g, n, d] as heads [g, h, n, d / h]: a view."""
    g, n, width = array.shape
    return array.reshape(g, n, heads, width // heads).swapaxes(1, 2)
