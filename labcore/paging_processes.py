"""Counted blocks in shared memory: one pool for several processes, and its repair when one of them dies.

Each process has a seat. Beside the counts the pool keeps, per seat, how many references that seat holds, changed under the same
lock; so what a killed process held can be given back by any other (`reclaim`).
"""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from multiprocessing.context import BaseContext
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labcore.blocks import Blocks, Ids, PoolError


class TimedLock:
    """A process lock that gives up: a process killed inside its critical section must not stop the others for ever.

    Re-entrant. PoolError of kind `timeout` after `seconds`.
    """

    def __init__(self, context: BaseContext, seconds: float) -> None:
        self._lock = context.RLock()
        self.seconds = seconds

    def __enter__(self) -> TimedLock:
        if not self._lock.acquire(timeout=self.seconds):
            raise PoolError("timeout", f"the pool's lock was not free within {self.seconds} s: its holder hangs or died")
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class SharedBlocks(Blocks):
    """`Blocks` in shared memory, with a ledger of references per seat.

    Hand it to a child process as an argument (fork or spawn) and call `sit(seat)` there. The maker calls `unlink` at the end.

    >>> with SharedBlocks(5, seats=2) as pool:
    ...     ids = pool.sit(1).take(3)
    ...     (pool.free, pool.reclaim(1), pool.free)
    (2, 3, 5)
    """

    def __init__(self, total: int, seats: int, context: BaseContext | None = None, seconds: float = 30.0) -> None:
        if total < 1 or seats < 1:
            raise PoolError("negative", f"{total} blocks and {seats} seats; wanted at least one of each", count=min(total, seats))
        words = 1 + (3 + seats) * total
        self._memory = SharedMemory(create=True, size=8 * words)
        self._attach(total, seats, TimedLock(context or multiprocessing.get_context(), seconds))
        self._top[0] = total
        self._stack[:] = np.arange(total - 1, -1, -1)
        self.seat = 0

    def _attach(self, total: int, seats: int, lock: TimedLock) -> None:
        words: NDArray[np.int64] = np.ndarray((1 + (3 + seats) * total,), np.int64, self._memory.buf)
        self._adopt(words[:1], words[1 : 1 + 3 * total].reshape(3, total), lock)
        self.held = words[1 + 3 * total :].reshape(seats, total)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self._memory.name, "total": self.total, "seats": len(self.held), "lock": self.lock, "seat": self.seat}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._memory = SharedMemory(name=state["name"])
        self._attach(state["total"], state["seats"], state["lock"])
        self.seat = state["seat"]

    def sit(self, seat: int) -> SharedBlocks:
        """From now on this process's references are booked on `seat`; returns self."""
        if not 0 <= seat < len(self.held):
            raise PoolError("unknown_request", f"seat {seat} of {len(self.held)}", count=seat)
        self.seat = seat
        return self

    def take(self, n: int, request: int = -1) -> Ids:
        with self.lock:
            ids = super().take(n, request)
            self.held[self.seat, ids] += 1
        return ids

    def share(self, ids: ArrayLike, request: int = -1) -> None:
        with self.lock:
            super().share(ids, request)
            np.add.at(self.held[self.seat], self._ids(ids, request), 1)

    def release(self, ids: ArrayLike, request: int = -1) -> Ids:
        """As `Blocks.release`; a seat gives back only what it holds. PoolError: double_free."""
        batch = self._ids(ids, request)
        with self.lock:
            mine = self.held[self.seat]
            np.subtract.at(mine, batch, 1)
            if batch.size and mine[batch].min() < 0:
                block = int(batch[mine[batch] < 0][0])
                np.add.at(mine, batch, 1)
                raise PoolError("double_free", f"seat {self.seat} gives back what it does not hold", request, block, int(mine[block]))
            return super().release(batch, request)

    def reclaim(self, seat: int) -> int:
        """Give back everything a dead process held; returns the number of references. Call only once its process has ended."""
        with self.lock:
            ids = np.flatnonzero(self.held[seat])
            times = self.held[seat, ids].copy()
            self.held[seat] = 0
            super().release(np.repeat(ids, times))
        return int(times.sum())

    def check(self, references: ArrayLike | None = None) -> None:
        """As `Blocks.check`, against the seats' ledger."""
        with self.lock:
            super().check(self.held.sum(axis=0) if references is None else references)

    def close(self) -> None:
        """Let go of the memory in this process; the views are gone."""
        for name in ("_top", "_stack", "counts", "generation", "held"):
            self.__dict__.pop(name, None)
        with suppress(BufferError):  # a caller still holds a view: the memory goes with it
            self._memory.close()

    def unlink(self) -> None:
        """Remove the memory; for the process that made it."""
        self.close()
        self._memory.unlink()

    def __enter__(self) -> SharedBlocks:
        return self

    def __exit__(self, *_: object) -> None:
        self.unlink()
