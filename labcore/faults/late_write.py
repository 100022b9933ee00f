"""A block is freed while a launched step still writes to it, or is never freed because the step never reports (BR-29 and BR-30).

The two obvious fixes undo each other, so both are measured on one scene: 8 blocks; a request holds 3 of them, has a step in flight and
is aborted; another then writes to all free blocks; the step lands late, or its peer died.
Faulty: `freed_at_once` (BR-29), `waits_for_ever` (BR-30). Twin: `correct`: the step is revoked, then the blocks go. Control: no step in
flight; or the completion arrives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labcore.blocks import PoolError
from labcore.faults.pools import NoFence, WaitsForever
from labcore.paging import PagedPool
from labcore.pool_model import new_pool

BLOCKS, SIZE, HELD = 8, 3, 3


def scene(pool: PagedPool, tag: int, flying: bool, alive: bool, completes: bool) -> dict[str, float]:
    """overwritten: rows of the new owner that the late step changed; leaked: blocks missing when all is idle; third_refused: whether a
    third request of 3 blocks cannot start after two such aborts."""
    overwritten = 0
    leaked: list[int] = []
    for turn in range(2):
        pool.open(1, [tag] * (SIZE * HELD - 1))
        ticket = pool.launch(1, 1, now=turn) if flying else 0
        pool.release(1)
        if not completes:
            pool.expire(before=turn + 1)
        rows = np.full(SIZE * pool.blocks.free, tag + 1)
        pool.open(2, rows)
        if flying and alive:
            try:
                pool.land(ticket, 0, -tag)
                if completes:
                    pool.complete(ticket)
            except PoolError as refused:
                if refused.kind != "revoked":
                    raise
        overwritten += int(np.count_nonzero(pool.read(2) != rows))
        pool.release(2)
        leaked.append(pool.blocks.total - pool.blocks.free)
    return {"overwritten": float(overwritten), "leaked": float(leaked[0]), "third_refused": float(pool.blocks.free < HELD)}


def freed_at_once(seed: int) -> dict[str, float]:
    """BR-29: no hold on the blocks of a step in flight."""
    return scene(_Lax(BLOCKS, SIZE), seed + 1, True, True, False)


def waits_for_ever(seed: int) -> dict[str, float]:
    """BR-30: blocks wait for a report that never comes.

    >>> waits_for_ever(7)
    {'overwritten': 0.0, 'leaked': 3.0, 'third_refused': 1.0}
    """
    return scene(WaitsForever(BLOCKS, SIZE), seed + 1, True, False, False)


def correct(seed: int, alive: bool = True) -> dict[str, float]:
    """Revoked after a bounded wait, then freed: whether the peer lives or not."""
    return scene(new_pool(BLOCKS, SIZE), seed + 1, True, alive, False)


def control(seed: int) -> dict[str, float]:
    """BR-29's control: no step in flight, in the faulty pool."""
    return scene(_Lax(BLOCKS, SIZE), seed + 1, False, True, False)


def control_waits(seed: int) -> dict[str, float]:
    """BR-30's control: the completion arrives, in the faulty pool."""
    return scene(WaitsForever(BLOCKS, SIZE), seed + 1, True, True, True)


class _Lax(NoFence):
    """NoFence that also forgets to revoke."""

    def expire(self, before: int) -> int:
        return 0

    def _end(self, ticket: int, step: Any) -> None:
        del self._tickets[ticket]
