"""The slots of new tokens formed as first slot + 0, 1, 2, ... although the allocator hands out scattered ones (BR-14).

Faulty: `faulty`, on a fragmented pool. Twin: `correct`, through the request's own slot list. Control: `control`, the faulty way on a fresh
pool, where slots do follow one another; every test on an unfragmented pool passes.
"""

from __future__ import annotations

import numpy as np

from labcore.paged_attention import attend

SLOTS, TOTAL = [7, 3, 12, 5], 17


def scene(seed: int, slots: list[int], consecutive: bool) -> dict[str, float]:
    """foreign_slots: how many slots of another are read; error: against the request alone; reached: how far its output moves when all
    other memory is replaced."""
    rng = np.random.default_rng(seed)
    query, rows = rng.normal(size=(4, 5)), rng.normal(size=(len(slots), 2, 2, 5))
    read = [slots[0] + n for n in range(len(slots))] if consecutive else slots
    outputs = []
    for _ in range(2):
        memory = rng.normal(size=(TOTAL, 2, 2, 5))
        memory[slots] = rows
        outputs.append(attend(query, memory[read]))
    return {
        "foreign_slots": float(len(set(read) - set(slots))),
        "error": float(np.abs(outputs[0] - attend(query, rows)).max()),
        "reached": float(np.abs(outputs[0] - outputs[1]).max()),
    }


def faulty(seed: int) -> dict[str, float]:
    """Scattered slots, read as if consecutive."""
    return scene(seed, SLOTS, True)


def correct(seed: int) -> dict[str, float]:
    """Scattered slots, read through the list."""
    return scene(seed, SLOTS, False)


def control(seed: int) -> dict[str, float]:
    """A fresh pool's slots, read as if consecutive.

    >>> control(7)
    {'foreign_slots': 0.0, 'error': 0.0, 'reached': 0.0}
    """
    return scene(seed, [4, 5, 6, 7], True)
