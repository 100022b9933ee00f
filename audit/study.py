"""What a derive module sees of a run, and what it gives back.

A module `audit/derive/eNN.py` has

    BOUNDS: dict[str, tuple[float, str]]   "block/array" -> (largest absolute difference allowed, why). All other arrays are exact.
    GIVEN: dict[str, str]                  "block/name" of an array, decision, count or own metric that cannot be derived -> why
    def derive(study: Study) -> Iterator[Derived]

Everything of a chosen row must be derived or named in GIVEN (rule R306).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.bits import decode
from audit.schema import Protocol

Array = NDArray[Any]
Reader = Callable[[str, str, Sequence[int] | None], Array]


@dataclass(frozen=True, slots=True)
class Derived:
    """Values derived for `rows` of a block, in their order; `rows=None`: for all rows, or for arrays without a row axis.

    arrays: name -> values; where the array has a row axis, the first axis runs over `rows`. Bit patterns are given as the integers.
    decisions: name -> a boolean per row. counts: name -> an integer per row. own: name -> a number per row (metrics with op `own`).
    """

    block: str
    rows: Sequence[int] | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)
    decisions: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    counts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    own: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Study:
    """A sealed run, read-only: its protocol, its rows and its stored arrays."""

    def __init__(
        self, plan: Protocol, reader: Reader, chosen: dict[str, Sequence[int]], columns: dict[tuple[str, str], Sequence[Any]]
    ) -> None:
        self.plan = plan
        self.protocol: dict[str, Any] = plan.document
        self.seeds: list[int] = list(plan.document["seeds"])
        self.settings: dict[str, Any] = plan.document["settings"]
        self._reader = reader
        self._chosen = chosen
        self._columns = columns
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def rows(self, block: str) -> list[dict[str, Any]]:
        """The factors of each row of a block, in row order: `[{"seed": 7, "condition": "same-prefix"}, ...]`."""
        if block not in self._rows:
            names = self.plan.blocks[block].factors
            self._rows[block] = [dict(zip(names, values, strict=True)) for values in self.plan.rows(block)]
        return self._rows[block]

    def chosen(self, block: str) -> Sequence[int]:
        """The rows of a block that must be re-derived, ascending: all of them, or the sample of section 8."""
        return self._chosen[block]

    def read(self, block: str, array: str, rows: Sequence[int] | None = None) -> Array:
        """The stored values as they are, of all rows or of `rows`; a copy of their own."""
        if array not in self.plan.blocks[block].arrays:
            raise KeyError(f"{block}/{array} is not an array of the protocol")
        return self._reader(block, array, rows)

    def decoded(self, block: str, array: str, rows: Sequence[int] | None = None) -> NDArray[np.float64]:
        """The stored values as binary64; bit patterns (`bits`) are decoded to the numbers they stand for."""
        return decode(self.read(block, array, rows), self.plan.blocks[block].arrays[array].bits)

    def column(self, block: str, name: str) -> Sequence[Any]:
        """The stored decision (bool) or count (int) of every row, as results.csv has it."""
        return self._columns[block, name]

    def stored(self, block: str, name: str) -> Sequence[Any] | None:
        """The stored column of a decision, count or metric, or None where results.csv has none (that can be read)."""
        return self._columns.get((block, name))
