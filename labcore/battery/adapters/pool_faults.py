"""The public faults of block pools, on the paged pool and its planted variants of labcore.faults.pools; any such pool, as a system."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labcore.battery.adapters.fault import Fault, Make, Seedless
from labcore.battery.interfaces import Floats, PoolClaims
from labcore.blocks import PoolError
from labcore.faults import pools
from labcore.paging import PagedPool

CLAIMS = PoolClaims(capacity=16, block=4, width=1, in_order=True, launch_appends=True, part_blocks=True)


def right(blocks: int, block_size: int) -> PagedPool:
    """The pool without a fault, as the variants are set up."""
    return PagedPool(blocks, block_size, (), np.int64, poison=-(2**40), key=bytes(32))


class Paged:
    """A PagedPool as a BlockPool. Slots are rows; room is promised by count and taken when a row is written."""

    def __init__(self, make: Callable[[int, int], PagedPool], claims: PoolClaims = CLAIMS) -> None:
        self.claims = claims
        self.pool = make(claims.capacity, claims.block)
        self.room: dict[Any, int] = {}
        self.late: dict[int, Floats] = {}

    def allocate(self, request: Hashable, slots: int) -> None:
        """Promise room."""
        room = self.room.get(request, 0)
        if -(-(room + slots) // self.claims.block) - -(-room // self.claims.block) > self.pool.blocks.free:
            return self.refuse(request, slots)
        if request not in self.room:
            self.pool.open(request)  # type: ignore[arg-type]
        self.room[request] = room + slots

    def refuse(self, request: Any, slots: int) -> None:
        """Let the pool itself refuse so many rows."""
        try:
            (self.pool.append if request in self.room else self.pool.open)(request, np.zeros(slots))
        except PoolError as error:
            raise self.translated(error) from error

    def write(self, request: Any, slot: int, value: Floats) -> None:
        """Behind the last row, or over an older one."""
        call = self.pool.append if slot == self.pool.length(request) else None
        try:
            call(request, value[:1]) if call else self.pool.write(request, slot, value[:1])
        except PoolError as error:
            raise self.translated(error) from error

    def translated(self, error: PoolError) -> Exception:
        """No room is MemoryError."""
        return MemoryError(str(error)) if error.kind == "exhausted" else error

    def read(self, request: Any, slots: int) -> Floats:
        """The first rows; where all are asked for, what the pool gives."""
        rows = np.asarray(self.pool.read(request))[:, None]
        return rows[:slots] if slots < self.pool.length(request) else rows

    def free(self, request: Any) -> None:
        """The end."""
        self.pool.release(request)
        del self.room[request]

    abort = free

    def share(self, source: Any, target: Any, slots: int) -> None:
        """Share rows."""
        self.pool.share(source, target, slots)
        self.room[target] = slots

    def publish(self, request: Any, tokens: Sequence[int]) -> None:
        """Page by page."""
        for page, key in enumerate(self.keys(tokens)):
            self.pool.publish(request, page, key)

    def match(self, request: Any, tokens: Sequence[int]) -> int:
        """Pages in the index."""
        self.room[request] = self.pool.adopt(request, self.keys(tokens))
        return self.room[request]

    def keys(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """Of every whole page: all tokens up to its end."""
        return [tuple(tokens[:end]) for end in range(self.claims.block, len(tokens) + 1, self.claims.block)]

    def available(self) -> int:
        """Free blocks."""
        return self.pool.blocks.free

    def table(self, request: Any) -> Sequence[int]:
        """Pages."""
        return self.pool.pages(request)

    def launch(self, request: Any, slot: int, value: Floats) -> int:
        """A step of one row."""
        try:
            ticket = self.pool.launch(request, 1)
        except PoolError as error:
            raise self.translated(error) from error
        self.room[request] = max(self.room[request], slot + 1)
        self.late[ticket] = value[0]
        return ticket

    def land(self, ticket: int) -> None:
        """Its row, and its end."""
        try:
            self.pool.land(ticket, 0, self.late.pop(ticket))
            self.pool.complete(ticket)
        except PoolError as error:
            if error.kind != "revoked":
                raise

    def expire(self) -> None:
        """All steps are over."""
        self.pool.expire(1)


class Apart(Paged):
    """Control of BR-14: every request in a pool of its own, which never fragments."""

    def __init__(self, make: Callable[[int, int], PagedPool]) -> None:
        super().__init__(make, replace(CLAIMS, exact_available=False))
        self.own: dict[Any, PagedPool] = {}
        self.make = make

    def at(self, request: Any) -> None:
        """Work on the pool of a request."""
        self.pool = self.own.setdefault(request, self.make(self.claims.capacity, self.claims.block))

    def allocate(self, request: Hashable, slots: int) -> None:
        self.at(request)
        super().allocate(request, slots)

    def write(self, request: Any, slot: int, value: Floats) -> None:
        self.at(request)
        super().write(request, slot, value)

    def read(self, request: Any, slots: int) -> Floats:
        self.at(request)
        return super().read(request, slots)

    def free(self, request: Any) -> None:
        self.at(request)
        super().free(request)

    abort = share = publish = match = launch = land = expire = available = table = None  # type: ignore[assignment]


class UnpublishedFirst(Paged):
    """Control of BR-26: what is published is looked up only while it lives."""

    def free(self, request: Any) -> None:
        self.unpublish(request)
        super().free(request)

    abort = free

    def write(self, request: Any, slot: int, value: Floats) -> None:
        if slot < self.pool.length(request):
            self.unpublish(request)
        super().write(request, slot, value)

    def unpublish(self, request: Any) -> None:
        """What this request alone holds is not found any more."""
        PagedPool._unpublish(self.pool, [block for block in self.pool.pages(request) if self.pool.blocks.counts[block] == 1])


class Landed(Paged):
    """Control of BR-29 and BR-30: a step is over when it is launched, none is in flight when its request ends."""

    def launch(self, request: Any, slot: int, value: Floats) -> int:
        ticket = super().launch(request, slot, value)
        super().land(ticket)
        return ticket

    def land(self, ticket: int) -> None:
        """It has landed."""


def made(kind: Any, make: Callable[[int, int], PagedPool]) -> Make:
    """A factory that takes a seed, which a pool has no use for."""
    return Seedless(kind, make)


def _fault(name: str, title: str, variant: Any, control: Any, *rules: str) -> Fault:
    return Fault(name, title, made(Paged, variant), made(Paged, right), made(control, variant), rules)


FAULTS = [
    _fault("BR-14", "pages read as if consecutive", pools.ConsecutivePages, Apart, "P301", "P302", "P303", "P304", "P305", "P306"),
    _fault("BR-26", "stale entry of a reused block", pools.StaleIndex, UnpublishedFirst, "P303", "P306"),
    _fault("BR-29", "a late write after the block was freed", pools.NoFence, Landed, "P305", "P306", "P308"),
    _fault("BR-30", "blocks never back after an abort", pools.WaitsForever, Landed, "P307"),
]
