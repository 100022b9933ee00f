"""Fault: on cached steps the input's position starts again at 0. The mask and the cache's bookkeeping keep the true positions.

Correct twin: `network.advance`, a token at a time; control: the first token, which stands at 0.
"""

from __future__ import annotations

import numpy as np

from labcore import network
from labcore.network import Cache, Floats, Ints, Weights


def step(weights: Weights, token: Ints, cache: Cache, window: int | None = None) -> tuple[Floats, Cache]:
    """One token [g, 1] behind a cache: its states [g, 1, d], and the cache after it."""
    here = np.array([cache.next_position])
    keys = np.concatenate([cache.positions, here])
    x = network.embed(weights, token, np.array([0]))
    states, k, v = network.attend(weights, x, network.visible(here, keys, window), cache)
    return states, network.last_rows(k, v, keys, window)


def faulty(weights: Weights, tokens: Ints, window: int | None = None) -> Floats:
    """States [g, n, d] of tokens [g, n], fed one at a time."""
    cache, states = network.empty(len(tokens)), []
    for place in range(tokens.shape[1]):
        got, cache = step(weights, tokens[:, place : place + 1], cache, window)
        states.append(got)
    return np.concatenate(states, axis=1)
