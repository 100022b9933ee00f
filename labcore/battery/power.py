"""What the battery sees of the 24 public faults: every rule's value and limit, for each variant and seed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labcore.battery.adapters import attention_faults, cache_faults, pool_faults
from labcore.battery.adapters.fault import Fault, Make
from labcore.battery.check import ERROR
from labcore.battery.runner import CHECKS, run

FAULTS: dict[str, Fault] = {fault.id: fault for fault in (*attention_faults.FAULTS, *cache_faults.FAULTS, *pool_faults.FAULTS)}
INTERFACE = {
    fault.id: name
    for name, module in (("attention", attention_faults), ("cache", cache_faults), ("pool", pool_faults))
    for fault in module.FAULTS
}
VARIANTS = ("faulty", "correct", "control")
EFFORT = 1
BROKEN = -1.0
PIECE = 20  # seeds that a process takes at a time


class Seen(NamedTuple):
    """value, limit [seed, rule] of the rules of one interface. A value is NaN where nothing was measured, BROKEN where the system broke."""

    value: NDArray[np.float64]
    limit: NDArray[np.float64]


def rules(interface: str) -> list[str]:
    """Rules of an interface, in order; without those that need several threads, whose outcome is not repeatable."""
    return [rule for rule, check in CHECKS.items() if check.interface == interface and rule != "P313"]


def measure(fault: str, variant: str, seeds: Sequence[int]) -> Seen:
    """One variant of one fault on some seeds."""
    names, make = rules(INTERFACE[fault]), FAULTS[fault].make(variant)
    value, limit = np.full((len(seeds), len(names)), np.nan), np.full((len(seeds), len(names)), np.nan)
    with np.errstate(all="ignore"):
        for place, seed in enumerate(seeds):
            # The seed is bound now, so that the factory makes the same weights every time.
            report = run(lambda seed=seed: make(seed), EFFORT, seed, seconds=0, shrink=0, only=names)  # type: ignore[misc]
            for column, result in enumerate(report.results):
                value[place, column] = BROKEN if result.status == ERROR else result.value
                limit[place, column] = np.nan if result.status == ERROR else result.threshold
    return Seen(value, limit)


def _piece(job: tuple[str, str, list[int]]) -> Seen:
    return measure(*job)


def matrix(seeds: Sequence[int], faults: Sequence[str] = tuple(FAULTS), workers: int | None = None) -> Iterator[tuple[str, str, Seen]]:
    """(fault, variant, what was seen) for all variants of the faults, in their order. Equal systems are measured once.

    workers: processes; None: one for each processor that this one may use. 0: in this process.
    """
    first: dict[Make, tuple[str, str]] = {}
    for fault in faults:
        for variant in VARIANTS:
            first.setdefault(FAULTS[fault].make(variant), (fault, variant))
    pieces = [list(seeds[begin : begin + PIECE]) for begin in range(0, len(seeds), PIECE)]
    jobs = [(fault, variant, piece) for fault, variant in first.values() for piece in pieces]
    done: dict[tuple[str, str], Seen] = {}
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            parts = list(pool.map(_piece, jobs))
    else:
        parts = [_piece(job) for job in jobs]
    for place, (fault, variant) in enumerate(first.values()):
        own = parts[place * len(pieces) : (place + 1) * len(pieces)]
        done[fault, variant] = Seen(*(np.concatenate(arrays) for arrays in zip(*own, strict=True)))
    for fault in faults:
        for variant in VARIANTS:
            yield fault, variant, done[first[FAULTS[fault].make(variant)]]
