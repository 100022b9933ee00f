"""A request joins a running batch whose state is not extended, and the backend wraps row numbers (BR-19).

Faulty: an empty side of a merge returns the other side as it is, so row B of B rows is row 0, another request's. Twin: the state is
extended by zeros, and a row out of range is an error. Control: all requests start together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 4
State = NDArray[np.float64]


def merge_faulty(running: State, joining: int, fresh: State | None) -> State:
    """[rows, width] of the batch: a fresh request has no state yet, so the running one is returned."""
    return running if fresh is None else np.concatenate([running, fresh])


def merge(running: State, joining: int, fresh: State | None) -> State:
    """The same, extended by zeros for each joining request without state."""
    return np.concatenate([running, np.zeros((joining, running.shape[1])) if fresh is None else fresh])


def row_faulty(state: State, row: int) -> State:
    """Row numbers wrap."""
    return np.asarray(state[row % len(state)])


def row_checked(state: State, row: int) -> State:
    """Row numbers are checked. IndexError names row and batch."""
    if not 0 <= row < len(state):
        raise IndexError(f"row {row} of a batch of {len(state)}")
    return np.asarray(state[row])


def scene(seed: int, join: Any, read: Any, together: bool) -> dict[str, float]:
    """rows: of the batch (2 wanted); own_error: distance of what the second request continues from to its own state; reached: how far that
    moves when the first request's state is replaced."""
    rng = np.random.default_rng(seed)
    first, other = rng.normal(size=(2, 1, WIDTH))
    second = rng.normal(size=(1, WIDTH)) if together else None
    states = [join(running, 1, second) for running in (first, other)]
    got = [read(state, 1) for state in states]
    own = np.zeros(WIDTH) if second is None else second[0]
    return {
        "rows": float(len(states[0])),
        "own_error": float(np.abs(got[0] - own).max()),
        "reached": float(np.abs(got[0] - got[1]).max()),
    }


def faulty(seed: int) -> dict[str, float]:
    """A fresh request joins; unextended, wrapping."""
    return scene(seed, merge_faulty, row_faulty, False)


def correct(seed: int) -> dict[str, float]:
    """A fresh request joins; extended, checked.

    >>> correct(7)
    {'rows': 2.0, 'own_error': 0.0, 'reached': 0.0}
    """
    return scene(seed, merge, row_checked, False)


def control(seed: int) -> dict[str, float]:
    """Both start together, through the faulty code."""
    return scene(seed, merge_faulty, row_faulty, True)
