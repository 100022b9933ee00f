"""Reference counts and a free stack over numbered blocks, in batches of array operations.

The cost of a call is proportional to its batch and independent of the number of blocks: no scan, no search, no list. The
state is four arrays, so that it may lie in shared memory (see `labcore.paging_processes`); one lock guards all of them.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int64]


class PoolError(Exception):
    """A refused request; the pool is as it was.

    kind: exhausted, negative, double_free, released, unknown_block, unknown_request, taken, unwritten, foreign_handle,
    stale_handle, in_flight, revoked, shape, timeout. request, block and count name the case; -1 where there is none.
    """

    def __init__(self, kind: str, text: str, request: int = -1, block: int = -1, count: int = -1) -> None:
        super().__init__(f"{text} (request {request}, block {block}, count {count})")
        self.kind, self.request, self.block, self.count = kind, request, block, count

    def __reduce__(self) -> tuple[Any, ...]:  # so that it crosses a process boundary whole
        return _again, (self.kind, str(self), self.request, self.block, self.count)


def _again(kind: str, text: str, request: int, block: int, count: int) -> PoolError:
    error = PoolError(kind, "", request, block, count)
    error.args = (text,)
    return error


class PoolBroken(AssertionError):
    """`check` found the pool in a state that no sequence of right operations reaches."""


class Blocks:
    """Counts and free stack of `total` blocks.

    counts: int64 [block], the references to each block; 0 means free.
    generation: int64 [block], how often a block was freed; a handle made in an earlier life does not fit.
    Every method takes the lock, mutates in place, and either does all of its batch or nothing (PoolError).

    >>> blocks = Blocks(5)
    >>> ids = blocks.take(2)
    >>> blocks.share(ids)
    >>> blocks.release(ids).size, blocks.release(ids).size, blocks.free
    (0, 2, 5)
    """

    def __init__(self, total: int, lock: AbstractContextManager[Any] | None = None) -> None:
        if total < 1:
            raise PoolError("negative", f"a pool of {total} blocks; wanted at least one", count=total)
        self._adopt(np.zeros(1, np.int64), np.zeros((3, total), np.int64), lock or threading.RLock())
        self._stack[:] = np.arange(total - 1, -1, -1)
        self._top[0] = total

    def _adopt(self, top: Ids, state: Ids, lock: AbstractContextManager[Any]) -> None:
        """Work on given memory: `top` int64 [1], `state` int64 [3, block]."""
        self._top, (self._stack, self.counts, self.generation) = top, state
        self.total = int(state.shape[1])
        self.lock = lock
        self._mark = np.zeros(self.total, np.int64)  # scratch of this process, never read before written

    @property
    def free(self) -> int:
        """Number of free blocks."""
        return int(self._top[0])

    def take(self, n: int, request: int = -1) -> Ids:
        """n free blocks, each with count 1; a new array [n]. PoolError: negative, exhausted."""
        if n < 0:
            raise PoolError("negative", f"asked for {n} blocks; wanted 0 or more", request, count=n)
        with self.lock:
            top = int(self._top[0])
            if n > top:
                raise PoolError("exhausted", f"asked for {n} blocks; {top} of {self.total} are free", request, count=n)
            ids: Ids = self._stack[top - n : top][::-1].copy()
            self._top[0] = top - n
            self.counts[ids] = 1
        return ids

    def share(self, ids: ArrayLike, request: int = -1) -> None:
        """One reference more for each entry of ids (an id may stand twice). PoolError: unknown_block, released."""
        batch = self._ids(ids, request)
        with self.lock:
            held = self.counts[batch]
            if batch.size and held.min() < 1:
                block = int(batch[held < 1][0])
                raise PoolError("released", "shares a block that nobody holds", request, block, int(self.counts[block]))
            np.add.at(self.counts, batch, 1)

    def release(self, ids: ArrayLike, request: int = -1) -> Ids:
        """One reference less for each entry; returns the blocks that became free. PoolError: unknown_block, double_free."""
        batch = self._ids(ids, request)
        with self.lock:
            np.subtract.at(self.counts, batch, 1)
            left = self.counts[batch]
            if batch.size and left.min() < 0:
                np.add.at(self.counts, batch, 1)
                block = int(batch[left < 0][0])
                raise PoolError("double_free", "gives back a block more often than it is held", request, block, int(self.counts[block]))
            gone: Ids = batch[left == 0]
            if gone.size > 1:  # an id that stood twice reaches zero once: keep the entry whose mark survived
                place = np.arange(gone.size)
                self._mark[gone] = place
                gone = gone[self._mark[gone] == place]
            top = int(self._top[0])
            self._stack[top : top + gone.size] = gone
            self._top[0] = top + gone.size
            self.generation[gone] += 1
        return gone

    def _ids(self, ids: ArrayLike, request: int) -> Ids:
        batch = np.asarray(ids)
        if batch.size == 0:
            return np.zeros(0, np.int64)
        if batch.ndim != 1 or batch.dtype.kind not in "iu":
            raise PoolError("unknown_block", f"block ids of shape {batch.shape} and type {batch.dtype}; wanted a list of integers", request)
        if batch.min() < 0 or batch.max() >= self.total:
            block = int(batch[(batch < 0) | (batch >= self.total)][0])
            raise PoolError("unknown_block", f"no such block in a pool of {self.total}", request, block)
        return batch.astype(np.int64, copy=False)

    def check(self, references: ArrayLike | None = None) -> None:
        """Raise PoolBroken unless free and held blocks make up the pool; `references` int [block]: what the holders hold."""
        with self.lock:
            top = int(self._top[0])
            stack = self._stack[:top]
            if not 0 <= top <= self.total:
                raise PoolBroken(f"top of the free stack is {top}; wanted 0 to {self.total}")
            times = np.bincount(stack, minlength=self.total)
            if times.max(initial=0) > 1:
                block = int(times.argmax())
                raise PoolBroken(f"block {block} stands {times[block]} times on the free stack")
            if self.counts.min() < 0:
                raise PoolBroken(f"block {int(self.counts.argmin())} has count {int(self.counts.min())}")
            wrong = np.flatnonzero((self.counts == 0) != (times == 1))
            if wrong.size:
                block = int(wrong[0])
                raise PoolBroken(f"block {block}: count {int(self.counts[block])}, on the free stack {times[block]} times")
            if references is not None:
                other = np.flatnonzero(self.counts != np.asarray(references))
                if other.size:
                    block = int(other[0])
                    raise PoolBroken(f"block {block}: count {int(self.counts[block])}, references {int(np.asarray(references)[block])}")
