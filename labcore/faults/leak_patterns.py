"""Planted leaks between two requests in one cache: which foreign cells each fault opens, step by step.

A has `own` tokens in front, B `foreign` tokens behind; masks are over [step, query of A, key], True is visible. Twin: `healthy`.
Control: `intermittent` seen in one step only, or `position` at the cell of `boundary`, which no one can tell apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
FAULTS = ("clean", "boundary", "global", "position", "intermittent")


def healthy(steps: int, own: int, foreign: int) -> Mask:
    """Causal within A, nothing of B."""
    mask = np.zeros((steps, own, own + foreign), bool)
    mask[:, :, :own] = np.tri(own, dtype=bool)
    return mask


def boundary(steps: int, own: int, foreign: int) -> Mask:
    """A's last query sees B's first key."""
    mask = healthy(steps, own, foreign)
    mask[:, -1, own] = True
    return mask


def everything(steps: int, own: int, foreign: int) -> Mask:
    """A's queries see all of B; A's own part stays causal."""
    mask = healthy(steps, own, foreign)
    mask[:, :, own:] = True
    return mask


def position(steps: int, own: int, foreign: int, query: int, key: int) -> Mask:
    """One cell is open: `query` of A sees foreign key number `key`."""
    mask = healthy(steps, own, foreign)
    mask[:, query, own + key] = True
    return mask


def intermittent(steps: int, own: int, foreign: int, query: int, key: int, step: int) -> Mask:
    """One cell is open, and in one step only."""
    mask = healthy(steps, own, foreign)
    mask[step, query, own + key] = True
    return mask
