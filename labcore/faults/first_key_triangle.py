"""Fault: behind a cache the causal triangle starts at the first key instead of ending at the last.

The queries number themselves 0, 1, ... in the mask only: query i sees keys 0..i of cached and new together, as if the cache lay in the
future. Inputs and keys keep their true positions. A lower triangle of shape [new, cached + new] anchored at the upper left does this.
Correct twin: `network.advance`; control: no cache, where both triangles are one.
"""

from __future__ import annotations

import numpy as np

from labcore import network
from labcore.network import Bools, Cache, Floats, Ints, Weights


def triangle(new: int, cached: int) -> Bools:
    """The wrong mask [new, cached + new].

    >>> triangle(2, 3).astype(int).tolist()
    [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    """
    return network.visible(np.arange(new), np.arange(cached + new))


def faulty(weights: Weights, tokens: Ints, cache: Cache) -> Floats:
    """States [g, n, d] of tokens [g, n] behind a cache, under the wrong mask."""
    n = tokens.shape[1]
    x = network.embed(weights, tokens, np.arange(cache.next_position, cache.next_position + n))
    return network.attend(weights, x, triangle(n, len(cache.positions)), cache)[0]
