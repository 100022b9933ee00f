"""The keyed store of 06 as its README describes it, without any numbers: which entry answers, in what order, and what is refused.

An answer is named by what it was computed from, so two answers are equal exactly if the numbers of two correct programs would be. A `fault`
changes one rule of the store; the names are those of the protocol's factor `store_fault`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

VOCABULARY = 32
Request = tuple[Any, ...]


class Refused(Exception):
    """The store does not take this input."""


def ids_of(value: Any, fault: str = "none") -> tuple[int, ...]:
    """The ids that an input stands for: non-empty, one-dimensional, of integers below 32; Refused otherwise."""
    if isinstance(value, np.ndarray):
        kinds = "iub" if fault == "accepts-bool" else "iu"
        if value.ndim != 1 or (value.dtype.kind not in kinds and fault != "converts-first"):
            raise Refused("not one dimension of integers")
        value = value.tolist()
    if not isinstance(value, list | tuple | range) or not len(value):
        raise Refused("no list of ids, or an empty one")
    result = []
    for item in value:
        flag = isinstance(item, bool | np.bool_)
        whole = isinstance(item, int | np.integer) and (not flag or fault == "accepts-bool")
        if not whole and not (fault == "converts-first" and isinstance(item, int | float | str | np.generic)):
            raise Refused(f"{item!r} is no integer")
        number = int(item)
        if not 0 <= number < VOCABULARY:
            raise Refused(f"{number} is out of range")
        result.append(number)
    return tuple(result)


@dataclass(frozen=True)
class Model:
    """Weights by name: of the first layer (and the embedding), and of the last."""

    first: str = "own"
    last: str = "own"


@dataclass
class Entry:
    """What is stored: the key, and what its cache was computed from."""

    key: Request
    source: Request


@dataclass
class Store:
    """Two entries, appended, the oldest dropped, searched from the newest on."""

    fault: str = "none"
    capacity: int = 2
    entries: list[Entry] = field(default_factory=list)

    def key(self, scope: Any, model: Model, window: int | None, ids: tuple[int, ...]) -> Request:
        """What must agree, less what the fault leaves out."""
        if self.fault == "scope-left-out":
            scope = ""
        elif self.fault == "scope-folded":
            scope = scope.lower()
        weights: Any = {"weights-left-out": "", "first-layer-hashed": model.first}.get(self.fault, model)
        span: Any = {"window-left-out": "", "window-as-flag": window is not None}.get(self.fault, window)
        kept: Any = ids
        if self.fault == "prefix-left-out":
            kept = ""
        elif self.fault == "ids-sorted":
            kept = tuple(sorted(ids))
        elif self.fault == "ids-in-four-bits":
            kept = tuple(number % 16 for number in ids)
        return (scope, weights, span, kept)

    def scope(self, scope: Any) -> Any:
        """A scope must be a text that is not empty."""
        if self.fault != "scope-unchecked" and (not isinstance(scope, str) or not scope):
            raise Refused("the scope is no text, or empty")
        return scope

    def remember(self, scope: Any, model: Model, prefix: Any, window: int | None = None) -> None:
        """Append an entry; the oldest makes room."""
        ids = ids_of(prefix, self.fault)
        self._append(Entry(self.key(self.scope(scope), model, window, ids), (model, window, ids)))

    def _append(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self.fault != "never-evicts":
            del self.entries[: -self.capacity]

    def resume(self, scope: Any, model: Model, prefix: Any, suffix: Any, window: int | None = None) -> tuple[bool, Request, int]:
        """(reused, what the answer was computed from, entries looked at)."""
        ids, more = ids_of(prefix, self.fault), ids_of(suffix, self.fault)
        wanted = self.key(self.scope(scope), model, window, ids)
        order = self.entries if self.fault == "searches-oldest-first" else self.entries[::-1]
        for looked, entry in enumerate(list(order), 1):
            if entry.key == wanted:
                source = entry.source
                if self.fault == "extends-in-place":
                    entry.source = (*source[:2], (*source[2], *more))
                if self.fault == "refreshes-on-hit":
                    self.entries.remove(entry)
                    self.entries.append(entry)
                return True, (*source, more, model, window), looked
        looked = len(self.entries)
        if self.fault == "stores-misses":
            self._append(Entry(wanted, (model, window, ids)))
        return False, (model, window, ids, more, model, window), looked


def searched(entries: Sequence[Any], wanted: Any, newest_first: bool) -> int:
    """How many entries a search looks at, up to and with the one found, or all."""
    order: Iterable[Any] = reversed(entries) if newest_first else entries
    for count, entry in enumerate(order, 1):
        if entry == wanted:
            return count
    return len(entries)
