"""What an experiment yields: rows of one block, as arrays, decisions, counts and its own measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one block, in the order of the protocol's factors.

    block: name of the block.
    arrays: name -> array; the first axis is the row where the protocol's shape starts with "case", else the whole array.
    decisions, counts, own: name -> one value a row (bool, int, float).

    A block may come in any number of batches, its rows in order; a block with free dimensions, or with arrays that have no
    row axis, comes in exactly one.

    >>> import numpy as np
    >>> Batch("published", {"fresh": np.zeros((2, 4, 16))}, counts={"projected_rows": [24, 72]}).block
    'published'
    """

    block: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    decisions: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
