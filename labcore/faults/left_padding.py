"""Positions counted over slots although the row is padded on the left (BR-08).

Faulty: `by_slot`. Twin: `by_mask`. Control: rules that know only distances (rope, alibi), under which a uniform shift changes nothing.
"""

from __future__ import annotations

import numpy as np

from labcore.placed_network import Weights, run
from labcore.positions import Floats, Ints


def by_slot(padded: Ints, pads: int) -> Ints:
    """Faulty: 0, 1, 2 ... whatever the slots hold."""
    return np.arange(len(padded))


def by_mask(padded: Ints, pads: int) -> Ints:
    """Number of real tokens so far, less one; 0 for pads.

    >>> by_mask(np.zeros(5), 2).tolist()
    [0, 0, 0, 1, 2]
    """
    return np.asarray(np.maximum(np.cumsum(np.arange(len(padded)) >= pads) - 1, 0))


NUMBERINGS = {"slot": by_slot, "mask": by_mask}


def last_state(weights: Weights, rule: str, ids: Ints, pads: int, numbering: str) -> Floats:
    """Last state [d] of a row with so many pads (id 0) in front, which no token may see."""
    padded = np.concatenate([np.zeros(pads, np.int64), ids])
    hidden = np.arange(len(padded)) < pads
    states, _ = run(weights, rule, padded, NUMBERINGS[numbering](padded, pads), hidden=hidden)
    return np.asarray(states[-1, 0, -1])
