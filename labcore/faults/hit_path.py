"""On a hit only the new tokens are attended to (BR-13). Faulty: `suffix_only`. Twin: `cached`. Control: nothing cached."""

from __future__ import annotations

import numpy as np

from labcore.network import Cache, Floats, Ints, Weights, advance, attend, embed, visible


def suffix_only(weights: Weights, ids: Ints, cached: int) -> Floats:
    """States [g, n - cached, d] whose keys are the new tokens alone, at their true positions."""
    new = np.arange(cached, len(ids))
    tokens = np.broadcast_to(ids[cached:], (len(weights.embedding), len(new)))
    return attend(weights, embed(weights, tokens, new), visible(new, new))[0]


def cached(weights: Weights, ids: Ints, cached: int) -> Floats:
    """The same states behind the cached keys."""
    past: Cache | None = advance(weights, ids[:cached])[1] if cached else None
    return advance(weights, ids[cached:], past)[0]
