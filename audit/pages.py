"""Attention of one query by loops and correctly rounded sums, and a free stack with counts as plain lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = Any
"""A row: [key or value][key-value head][width], indexable."""


def attend(query: Any, rows: Sequence[Row]) -> list[list[float]]:
    """Output [head][width] of a query [head][width] over rows; query head i reads key-value head i // (heads / key-value heads)."""
    heads, width = len(query), len(query[0])
    groups = len(rows[0][0])
    output = []
    for head in range(heads):
        group = head // (heads // groups)
        scores = [math.fsum(float(query[head][d]) * float(row[0][group][d]) for d in range(width)) / math.sqrt(width) for row in rows]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        total = math.fsum(weights)
        output.append([math.fsum(w * float(row[1][group][d]) for w, row in zip(weights, rows, strict=True)) / total for d in range(width)])
    return output


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
