"""Pools of blocks: faults that are not among the public ones are seen, and right pools of unusual make are not."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from labcore.battery import PoolClaims, run
from labcore.battery.adapters.pool_faults import Paged, right
from labcore.battery.reference_pool import ReferencePool, Table
from labcore.faults import pools


class WritesShared(ReferencePool):
    """No copy on write."""

    def own_block(self, request: Any, slot: int) -> int:
        return self.tables[request].blocks[slot // self.claims.block]


class FreesShared(ReferencePool):
    """The first holder that ends gives the block back."""

    def release(self, block: int) -> None:
        if self.counts[block] > 0:
            self.counts[block] = 0
            super().hold(block)
            super().release(block)


class FreesTwice(ReferencePool):
    """A second end gives everything back again."""

    def __init__(self, claims: PoolClaims | None = None) -> None:
        super().__init__(claims)
        self.ended: dict[Any, list[int]] = {}

    def free(self, request: Any) -> None:
        if request in self.ended:
            self.free_blocks += self.ended[request]
            return
        self.ended[request] = list(self.tables[request].blocks)
        super().free(request)

    abort = free


class Uncleared(ReferencePool):
    """Blocks are not cleared, and reads go as far as there is room."""

    def clear(self, block: int) -> None:
        pass


class ShortByOne(ReferencePool):
    """A multiple of the block needs one block less than it is given slots for: the last block is somebody's."""

    def gather(self, table: Table) -> Any:
        rows = super().gather(table)
        return np.roll(rows, 1, axis=0) if table.slots % self.claims.block == 0 and len(table.blocks) > 2 else rows


class Unchained(ReferencePool):
    """A block is found by its own tokens, whatever stands before."""

    def key(self, tokens: Any) -> Any:
        return tuple(tokens[-self.claims.block :])


class ShortHash(ReferencePool):
    """A block is found by five bits."""

    def key(self, tokens: Any) -> Any:
        return (sum(31**i * t for i, t in enumerate(tokens)) % 32,)


class LengthOnly(ReferencePool):
    """A block is found by how many tokens stand before its end."""

    def key(self, tokens: Any) -> Any:
        return (len(tokens),)


class EvictsLive(ReferencePool):
    """When none is free the first kept block goes, held or not."""

    def available(self) -> int:
        return super().available()

    def take(self) -> int:
        if not self.free_blocks and self.key_of:
            victim = next(iter(self.key_of))
            self.forget(victim)
            self.free_blocks.append(victim)
        return super().take()


class KeepsIndex(ReferencePool):
    """A block that is taken for something else stays findable."""

    def forget(self, block: int) -> None:
        del self.key_of[block]


class LandsAnywhere(ReferencePool):
    """A late write goes to the block that it was aimed at, whoever has it, and does not hold it."""

    def launch(self, request: Any, slot: int, value: Any) -> int:
        ticket = super().launch(request, slot, value)
        self.release(self.flying[ticket][3])
        return ticket

    def land(self, ticket: int) -> None:
        if ticket in self.flying:
            _, slot, value, block = self.flying.pop(ticket)
            self.memory[block, slot % self.claims.block] = value

    def expire(self) -> None:
        self.flying.clear()


class ExpiresTwice(ReferencePool):
    """A write that has expired gives its block back, and again when it lands."""

    def expire(self) -> None:
        for _, _, _, block in self.flying.values():
            self.release(block)

    def land(self, ticket: int) -> None:
        if ticket in self.flying and self.counts[self.flying[ticket][3]] > 0:
            super().land(ticket)


class NeverBack(ReferencePool):
    """An abort with a write in flight forgets the blocks."""

    def abort(self, request: Any) -> None:
        if any(r == request for r, *_ in self.flying.values()):
            del self.tables[request]
        else:
            super().abort(request)


class View(ReferencePool):
    """Reads are views where the request has one block."""

    def gather(self, table: Table) -> Any:
        if len(table.blocks) == 1:
            return self.memory[table.blocks[0]]
        return super().gather(table)


class PartAsWhole(ReferencePool):
    """Blocks that are not full are published, as if they were."""

    def publish(self, request: Any, tokens: Any) -> None:
        table, size = self.tables[request], self.claims.block
        for number, block in enumerate(table.blocks):
            key = self.key((*tokens, *[0] * size)[: (number + 1) * size])
            if key not in self.index and block not in self.key_of:
                self.index[key], self.key_of[block] = block, key


class HalfRefused(ReferencePool):
    """A refused request keeps what it got so far."""

    def allocate(self, request: Any, slots: int) -> None:
        need = self.blocks_for(slots)
        if need > self.available():
            while self.free_blocks:
                self.take()
            raise MemoryError("no room")
        super().allocate(request, slots)


class CopiesHalf(ReferencePool):
    """Copy on write copies the slots up to the one that is written."""

    def own_block(self, request: Any, slot: int) -> int:
        before = self.tables[request].blocks[slot // self.claims.block]
        block = super().own_block(request, slot)
        if block != before:
            self.memory[block, slot % self.claims.block + 1 :] = np.nan
        return block


class Miscounts(ReferencePool):
    """Blocks that are shared are counted as available."""

    def available(self) -> int:
        return super().available() + sum(count > 1 for count in self.counts)


FAULTS = [
    (WritesShared, "P302"),
    (FreesShared, "P302"),
    (FreesTwice, "P309"),
    (Uncleared, "P311"),
    (ShortByOne, "P301"),
    (Unchained, "P303"),
    (ShortHash, "P303"),
    (LengthOnly, "P303"),
    (EvictsLive, "P303"),
    (KeepsIndex, "P303"),
    (LandsAnywhere, "P308"),
    (ExpiresTwice, "P308"),
    (NeverBack, "P307"),
    (View, "P312"),
    (PartAsWhole, "P303"),
    (HalfRefused, "P310"),
    (CopiesHalf, "P302"),
]


@pytest.mark.parametrize("kind, rule", FAULTS, ids=lambda x: getattr(x, "__name__", None))
def test_a_planted_fault_is_seen_for_the_right_reason(kind: Any, rule: str) -> None:
    for seed in range(3):
        fired = run(kind, effort=3, seed=seed, shrink=0).fired
        assert rule in fired, fired


# Their fault lies where the interface does not look: a fork, and rows behind those that were shared.
ELSEWHERE = {"SharedTable", "SharesWholeBlocks"}


@pytest.mark.parametrize("variant", [v for v in pools.PLANTED if v.__name__ not in ELSEWHERE], ids=lambda v: v.__name__)
def test_the_planted_variants_of_the_paged_pool_are_seen(variant: Any) -> None:
    for seed in range(2):
        assert run(lambda: Paged(variant), effort=4, seed=seed, shrink=0).verdict == "not isolated"


class FirstInFirstOut(ReferencePool):
    """Free blocks are taken in the order in which they came back."""

    def __init__(self, claims: PoolClaims | None = None) -> None:
        super().__init__(claims)
        self.free_blocks: Any = deque(self.free_blocks)

    def take(self) -> int:
        self.free_blocks.rotate(-1)
        return super().take()


class Lazy(ReferencePool):
    """Nothing is cleared; reads stop where writing stopped."""

    def __init__(self, claims: PoolClaims | None = None) -> None:
        super().__init__(claims)
        self.written: dict[Any, set[int]] = {}

    def clear(self, block: int) -> None:
        pass

    def write(self, request: Any, slot: int, value: Any) -> None:
        super().write(request, slot, value)
        self.written.setdefault(request, set()).add(slot)

    def share(self, source: Any, target: Any, slots: int) -> None:
        super().share(source, target, slots)
        self.written[target] = {s for s in self.written.get(source, ()) if s < slots}

    def match(self, request: Any, tokens: Any) -> int:
        found = super().match(request, tokens)
        self.written[request] = set(range(found))
        return found

    def land(self, ticket: int) -> None:
        request, slot = self.flying[ticket][:2] if ticket in self.flying else (None, 0)
        super().land(ticket)
        if request in self.tables:
            self.written.setdefault(request, set()).add(slot)

    def read(self, request: Any, slots: int) -> Any:
        if slots - 1 not in self.written.get(request, ()):
            raise IndexError(f"slot {slots - 1} is not written")
        return super().read(request, slots)


class Copies:
    """Dictionaries of lists; sharing copies; nothing is kept."""

    claims = PoolClaims(width=3, exact_available=False)

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}

    def allocate(self, request: Any, slots: int) -> None:
        if slots > 64:
            raise MemoryError("more than there is")
        self.rows.setdefault(request, []).extend([np.zeros(3)] * slots)

    def write(self, request: Any, slot: int, value: Any) -> None:
        self.rows[request][slot] = value.copy()

    def read(self, request: Any, slots: int) -> Any:
        return np.array(self.rows[request][:slots])

    def free(self, request: Any) -> None:
        self.rows.pop(request, None)

    def share(self, source: Any, target: Any, slots: int) -> None:
        self.rows[target] = self.rows[source][:slots]


RIGHT = [
    FirstInFirstOut,
    Lazy,
    Copies,
    lambda: Paged(right),
    lambda: ReferencePool(PoolClaims(capacity=24, block=1)),
    lambda: ReferencePool(PoolClaims(capacity=13, block=7, part_blocks=False)),
]


@pytest.mark.parametrize("make", RIGHT, ids=range(len(RIGHT)))
def test_a_right_pool_gives_no_alarm(make: Any) -> None:
    for seed in range(4):
        report = run(make, effort=4, seed=seed)
        assert report.verdict == "isolated", [(r.rule, r.text) for r in report.results if r.status in ("failed", "error")]


class Locked(ReferencePool):
    """One lock around each call."""

    claims = PoolClaims(threads=True)

    def __init__(self) -> None:
        import threading

        super().__init__(PoolClaims(threads=True))
        lock = threading.RLock()
        for name in ("allocate", "write", "read", "free"):
            setattr(self, name, self.within(lock, getattr(self, name)))

    def within(self, lock: Any, call: Any) -> Any:
        def locked(*arguments: Any) -> Any:
            with lock:
                return call(*arguments)

        return locked


class OneThread(Locked):
    """Right in one thread only."""

    def read(self, request: Any, slots: int) -> Any:
        import threading

        return super().read(request, slots) + (threading.current_thread() is not threading.main_thread())


def test_threads_are_tested_where_they_are_claimed() -> None:
    assert run(Locked, effort=1, only=["P313"]).verdict == "isolated"
    assert run(OneThread, effort=1, only=["P313"]).verdict == "not isolated"
    assert run(ReferencePool, effort=1, only=["P313"]).result("P313").status == "not applicable"
