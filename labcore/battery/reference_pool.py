"""A right pool of blocks, in NumPy: tables, reference counts, copy on write, an index, writes that land late. Its parts may be replaced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from labcore.battery.interfaces import Floats, PoolClaims

Key = tuple[int, ...]


@dataclass
class Table:
    """Blocks of a request and how many slots it has room for."""

    blocks: list[int] = field(default_factory=list)
    slots: int = 0


class ReferencePool:
    """Free blocks are taken last in first out and cleared when taken; kept blocks (count 0, but in the index) go when none is free."""

    def __init__(self, claims: PoolClaims | None = None) -> None:
        self.claims = claims or PoolClaims()
        self.memory = np.full((self.claims.capacity, self.claims.block, self.claims.width), np.nan)
        self.free_blocks = list(range(self.claims.capacity))
        self.counts = [0] * self.claims.capacity
        self.tables: dict[Hashable, Table] = {}
        self.index: dict[Key, int] = {}  # whole blocks: all tokens up to their end -> block
        self.key_of: dict[int, Key] = {}
        self.flying: dict[int, tuple[Hashable, int, Floats, int]] = {}  # ticket -> request, slot, value, block
        self.ticket = 0

    # -- the protocol

    def allocate(self, request: Hashable, slots: int) -> None:
        """Room for more slots."""
        table = self.tables.get(request, Table())
        need = self.blocks_for(table.slots + slots) - len(table.blocks)
        if need > self.available():
            raise MemoryError(f"wanted {need} blocks, {self.available()} are free")
        self.tables[request] = table
        table.blocks += [self.take() for _ in range(need)]
        table.slots += slots

    def write(self, request: Hashable, slot: int, value: Floats) -> None:
        """Set a slot; a shared block is copied first."""
        block = self.own_block(request, slot)
        self.memory[block, slot % self.claims.block] = value

    def read(self, request: Hashable, slots: int) -> Floats:
        """The first slots."""
        table = self.tables[request]
        if slots > table.slots:
            raise IndexError(f"wanted {slots} slots, {request!r} has {table.slots}")
        return self.gather(table)[:slots]

    def free(self, request: Hashable) -> None:
        """The request ends; blocks with writes in flight wait for them."""
        table = self.tables.pop(request)
        for block in table.blocks:
            self.release(block)

    def share(self, source: Hashable, target: Hashable, slots: int) -> None:
        """A new request on the same first blocks."""
        blocks = self.tables[source].blocks[: self.blocks_for(slots)]
        for block in blocks:
            self.hold(block)
        self.tables[target] = Table(list(blocks), slots)

    def publish(self, request: Hashable, tokens: Sequence[int]) -> None:
        """Whole blocks may be found."""
        size = self.claims.block
        for number, block in enumerate(self.tables[request].blocks[: len(tokens) // size]):
            key = self.key(tokens[: (number + 1) * size])
            if key not in self.index and block not in self.key_of:
                self.index[key], self.key_of[block] = block, key

    def match(self, request: Hashable, tokens: Sequence[int]) -> int:
        """A new request on the longest run of kept blocks."""
        table = Table()
        for end in range(self.claims.block, len(tokens) + 1, self.claims.block):
            block = self.lookup(self.key(tokens[:end]))
            if block is None:
                break
            self.hold(block)
            table.blocks.append(block)
            table.slots = end
        self.tables[request] = table
        return table.slots

    def abort(self, request: Hashable) -> None:
        """As free."""
        self.free(request)

    def available(self) -> int:
        """Free blocks, and kept ones that nobody holds."""
        return len(self.free_blocks) + sum(1 for block in self.key_of if self.counts[block] == 0)

    def table(self, request: Hashable) -> Sequence[int]:
        """Blocks of a request."""
        return list(self.tables[request].blocks)

    def launch(self, request: Hashable, slot: int, value: Floats) -> int:
        """A write that lands later holds its block until then."""
        block = self.own_block(request, slot)
        self.hold(block)
        self.ticket += 1
        self.flying[self.ticket] = (request, slot, value.copy(), block)
        return self.ticket

    def land(self, ticket: int) -> None:
        """It lands where it was aimed, if that is still so."""
        if ticket not in self.flying:
            return  # it came after its time
        request, slot, value, block = self.flying.pop(ticket)
        table = self.tables.get(request)
        if table is not None and len(table.blocks) > slot // self.claims.block and table.blocks[slot // self.claims.block] == block:
            self.memory[block, slot % self.claims.block] = value
        self.release(block)

    def expire(self) -> None:
        """Writes that have not landed never will."""
        for _, _, _, block in self.flying.values():
            self.release(block)
        self.flying.clear()

    # -- its parts

    def blocks_for(self, slots: int) -> int:
        """Blocks that so many slots need."""
        return -(-slots // self.claims.block)

    def key(self, tokens: Sequence[int]) -> Key:
        """Under which a block is found."""
        return tuple(tokens)

    def lookup(self, key: Key) -> int | None:
        """The block with this content."""
        return self.index.get(key)

    def take(self) -> int:
        """A free block, cleared; a kept one where there is no other."""
        if not self.free_blocks:
            victim = next(block for block in self.key_of if self.counts[block] == 0)
            self.forget(victim)
            self.free_blocks.append(victim)
        block = self.free_blocks.pop()
        self.clear(block)
        self.counts[block] = 1
        return block

    def clear(self, block: int) -> None:
        """Nothing of the last owner stays."""
        self.memory[block] = np.nan

    def forget(self, block: int) -> None:
        """The block is not found any more."""
        del self.index[self.key_of.pop(block)]

    def hold(self, block: int) -> None:
        """One more holder."""
        self.counts[block] += 1

    def release(self, block: int) -> None:
        """One holder less; nobody left: free, or kept."""
        self.counts[block] -= 1
        if self.counts[block] == 0 and block not in self.key_of:
            self.free_blocks.append(block)

    def own_block(self, request: Hashable, slot: int) -> int:
        """The block of a slot, for writing: no other request holds it and the index does not know it."""
        table = self.tables[request]
        if not 0 <= slot < table.slots:
            raise IndexError(f"slot {slot} of {table.slots}")
        number = slot // self.claims.block
        block = table.blocks[number]
        flying = sum(1 for r, _, _, b in self.flying.values() if b == block and r == request)
        if self.counts[block] > 1 + flying or block in self.key_of:
            new = self.take()
            self.memory[new] = self.memory[block]
            table.blocks[number] = new
            self.release(block)
            block = new
        return block

    def gather(self, table: Table) -> Floats:
        """All slots of a table [slots, width]."""
        return self.memory[table.blocks].reshape(-1, self.claims.width)
