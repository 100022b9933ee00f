"""Attention of one query by array sums instead of a library's product, and a free stack with counts as plain lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = Any
"""A row: [key or value][key-value head][width]."""


def attend(query: Any, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Output [head, width] of a query [head, width] over rows; query head i reads key-value head i // (heads / key-value heads)."""
    query, held = np.asarray(query, np.float64), np.asarray(rows, np.float64)
    heads, width = query.shape
    group = np.arange(heads) // (heads // held.shape[2])
    keys, values = held[:, 0, group], held[:, 1, group]  # [row, head, width]
    scores = (query * keys).sum(axis=-1) / math.sqrt(width)
    weights = np.exp(scores - scores.max(axis=0))
    return np.asarray((weights[..., None] * values).sum(axis=0) / weights.sum(axis=0)[:, None])


class Refused(Exception):
    """A call that the pool must refuse."""


class Stack:
    """Blocks 0, 1, ... come off the stack in this order; what is given back last goes out first."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.stack = list(range(total - 1, -1, -1))
        self.counts = [0] * total

    def take(self, n: int) -> list[int]:
        """n blocks, the top one first."""
        if n < 0 or n > len(self.stack):
            raise Refused
        ids = [self.stack.pop() for _ in range(n)]
        for block in ids:
            self.counts[block] = 1
        return ids

    def share(self, ids: Sequence[int]) -> None:
        """One reference more, for all or for none."""
        if any(self.counts[block] < 1 for block in ids):
            raise Refused
        for block in ids:
            self.counts[block] += 1

    def release(self, ids: Sequence[int]) -> list[int]:
        """One reference less, for all or for none; those at zero join the stack in the order in which they last stand in ids."""
        if any(self.counts[block] < list(ids).count(block) for block in ids):
            raise Refused
        for block in ids:
            self.counts[block] -= 1
        gone = [block for place, block in enumerate(ids) if self.counts[block] == 0 and block not in ids[place + 1 :]]
        self.stack += gone
        return gone
