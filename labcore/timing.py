"""The only place that reads a clock. Times are for blocks with `rows: timing`; compare them only as ratios within one run."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Adds up seconds under names. Spans may repeat but not overlap under one name.

    >>> watch = Stopwatch()
    >>> with watch("lookup"):
    ...     pass
    >>> watch.seconds["lookup"] >= 0 and watch.get("copies") == 0.0
    True
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time until the block ends to `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def get(self, name: str) -> float:
        """Seconds under a name; 0.0 if it never ran."""
        return self.seconds.get(name, 0.0)


def shuffled(items: Sequence[T], seed: int) -> list[T]:
    """The items in an order that depends on the seed alone, so that slow drifts of the machine meet all conditions alike.

    >>> sorted(shuffled([3, 1, 2], 0))
    [1, 2, 3]
    """
    order = list(items)
    random.Random(seed).shuffle(order)
    return order
