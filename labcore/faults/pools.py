"""Paged pools with one planted fault each, for the model walk: every one must be caught. The correct twin is `PagedPool`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.blocks import Ids, PoolError
from labcore.paging import PagedPool, _Table


class _Variant(PagedPool):
    def __init__(self, blocks: int, block_size: int) -> None:
        super().__init__(blocks, block_size, (), np.int64, poison=-1, key=bytes(32))


class FreedAtFirstRelease(_Variant):
    """The end of one holder frees the block, whoever else holds it."""

    def _give_back(self, ids: list[int], request: int) -> None:
        for block in ids:
            while self.blocks.counts[block] > 0:
                super()._give_back([block], request)


class SharedUncounted(_Variant):
    """Sharing puts the block into the second table and leaves the count."""

    def share(self, source: int, target: int, tokens: int) -> None:
        super().share(source, target, tokens)
        self.blocks.release(self._tables[target].blocks)


class WritesInPlace(_Variant):
    """No copy on write: a shared block is written for everyone."""

    def _copy(self, table: _Table, pages: list[int], ids: list[int]) -> None:
        self.blocks.release(np.array(ids, np.int64))


class LostOnRefusal(_Variant):
    """Blocks are taken one by one; a refusal half-way keeps those already taken."""

    def _room(self, request: int, table: _Table, tokens: int) -> None:
        try:
            super()._room(request, table, tokens)
        except PoolError:
            if self.blocks.free:
                self.blocks.take(1)
            raise


class LostLastBlock(_Variant):
    """The partly filled last block of a request is not given back."""

    def release(self, request: int) -> None:
        table = self._table(request)
        if table.length % self.block_size:
            self.blocks.share(table.blocks[-1:])
        super().release(request)


class ReadsWholeBlocks(_Variant):
    """A read returns every slot of the pages, written or not."""

    def read(self, request: int) -> NDArray[Any]:
        table = self._table(request)
        return np.asarray(self.rows[table.blocks].reshape(-1))


class SharesWholeBlocks(_Variant):
    """A shared prefix is rounded up to whole blocks."""

    def share(self, source: int, target: int, tokens: int) -> None:
        super().share(source, target, tokens)
        whole = -(-tokens // self.block_size) * self.block_size
        self._tables[target].length = min(whole, self._tables[source].length)


class StaleIndex(_Variant):
    """A freed block stays findable under its old key (BR-26)."""

    def _unpublish(self, ids: list[int]) -> None:
        pass

    def adopt(self, target: int, keys: Any) -> int:
        keep = []
        for key in keys:
            if key in self._index and self.blocks.counts[self._index[key]] > 0:
                keep.append(key)
        return super().adopt(target, keep)


class NoFence(_Variant):
    """A launched step does not hold its blocks: what it writes late reaches their next owner (BR-29)."""

    def launch(self, request: int, tokens: int, now: int = 0) -> int:
        ticket = super().launch(request, tokens, now)
        self.blocks.release(self._tickets[ticket].blocks)
        return ticket

    def _end(self, ticket: int, step: Any) -> None:
        self.blocks.share([b for b in step.blocks if self.blocks.counts[b] > 0])
        step.blocks = [b for b in step.blocks if self.blocks.counts[b] > 0]
        super()._end(ticket, step)


class WaitsForever(_Variant):
    """A step that never completes keeps its blocks: the bounded wait does nothing (BR-30)."""

    def expire(self, before: int) -> int:
        return 0


class ConsecutivePages(_Variant):
    """Pages are read as first block + 0, 1, 2, ... (BR-14)."""

    def read(self, request: int) -> NDArray[Any]:
        table = self._table(request)
        if not table.blocks:
            return self.rows[:0].reshape(-1)
        pages = (table.blocks[0] + np.arange(len(table.blocks))) % self.blocks.total
        return np.asarray(self.rows[pages].reshape(-1)[: table.length])


class SharedTable(_Variant):
    """A fork gets the same table object as its source (BR-36): what one appends, the other has."""

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self.blocks.release(self._tables[target].blocks)
        self._tables[target] = self._tables[source]


class LastInLastTwice(_Variant):
    """The last page of a released request goes to the free stack twice."""

    def release(self, request: int) -> None:
        table = self._table(request)
        last = table.blocks[-1:]
        super().release(request)
        for block in last:
            if self.blocks.counts[block] == 0:
                _push(self.blocks._stack, self.blocks._top, block)


def _push(stack: Ids, top: Ids, block: int) -> None:
    place = int(top[0])
    if place < len(stack):
        stack[place] = block
        top[0] = place + 1


PLANTED: tuple[type[_Variant], ...] = (
    FreedAtFirstRelease, SharedUncounted, WritesInPlace, LostOnRefusal, LostLastBlock, ReadsWholeBlocks, SharesWholeBlocks,
    StaleIndex, NoFence, WaitsForever, ConsecutivePages, SharedTable, LastInLastTwice,
)  # fmt: skip
