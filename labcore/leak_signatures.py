"""Naming a leak from attention rows alone: no mask is looked at, only how many keys are the request's own.

Rows are what a monitor logs: weights rounded to float16. A foreign cell is hit in a step if its weight is above `threshold`; it is
steady if it is hit in at least the share `presence` of the steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = ("clean", "boundary", "global", "position", "intermittent")


def logged(weights: NDArray[Any]) -> NDArray[np.float16]:
    """What a monitor keeps of attention rows."""
    return weights.astype(np.float16)


def classify(rows: NDArray[np.float16], own: int, threshold: float, presence: float) -> NDArray[np.int64]:
    """Index into NAMES for each case; rows [case, step, query, key], the first `own` keys are the request's own.

    No cell hit: clean. Several: global. One: intermittent if it is not steady, boundary if it is the last query on the first
    foreign key, position otherwise.

    >>> row = np.zeros((1, 5, 3, 6), np.float16)
    >>> row[0, 2, 1, 4] = 0.25
    >>> NAMES[classify(row, 3, 0.001, 0.5)[0]]
    'intermittent'
    """
    hit = rows[..., own:] > threshold
    times = hit.sum(1)  # [case, query, foreign key]
    cells = np.count_nonzero(times, axis=(1, 2))
    steady = times.max((1, 2)) >= presence * rows.shape[1]
    at_boundary = times[:, -1, 0] > 0
    one = np.where(steady, np.where(at_boundary, 1, 3), 4)
    return np.asarray(np.where(cells == 0, 0, np.where(cells == 1, one, 2)), np.int64)
