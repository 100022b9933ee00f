"""Fault: a cache is cropped, but the position at which the next token will stand is left where it was.

The cache's keys are right and its length is right; only the new tokens are embedded as if the dropped ones were still there. Control:
a cut at the stored length, where both positions agree.
"""

from __future__ import annotations

import numpy as np

from labcore.network import Cache, Floats, Ints, Weights, attend, embed, visible


def faulty(weights: Weights, cache: Cache, ids: Ints, cut: int) -> Floats:
    """States [g, n - cut, d] of ids[cut:] behind the first `cut` tokens, new tokens placed from the stored length on."""
    kept = cache.crop(cut)
    new = np.arange(cache.next_position, cache.next_position + len(ids) - cut)
    tokens = np.broadcast_to(ids[cut:], (len(kept.k), len(new)))
    return attend(weights, embed(weights, tokens, new), visible(new, np.concatenate([kept.positions, new])), kept)[0]
