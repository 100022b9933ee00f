"""Requests that open, share and end blocks, with a log of what happened to each block; one fault each, beside the right one.

An event is (command, kind, request, block): a block leaves the free stack (TAKE), enters a request's table (HOLD), leaves it
(DROP), joins the free stack (FREE). Whoever replays the events knows at each moment who could read which block.
"""

from __future__ import annotations

from labcore.blocks import Blocks, PoolError

TAKE, HOLD, DROP, FREE = 1, 2, 3, 4
OPEN, SHARE, END, FAIL = 0, 1, 2, 3  # commands; FAIL: a request takes blocks and dies before it has a table


class Lifetimes:
    """The right protocol. `stamps` says how often each block was handed out; a table remembers the stamp it came with."""

    def __init__(self, total: int) -> None:
        self.blocks = Blocks(total)
        self.tables: dict[int, list[tuple[int, int]]] = {}
        self.stamps = [0] * total
        self.events: list[tuple[int, int, int, int]] = []
        self.command = -1
        self.refused = 0
        self.stale = 0

    def do(self, kind: int, request: int, source: int, size: int) -> None:
        """One command; what cannot be done is refused and counted."""
        self.command += 1
        try:
            if kind == OPEN and request not in self.tables:
                self.hold(request, self.take(request, size))
            elif kind == SHARE and source in self.tables and request not in self.tables:
                self.share(request, self.tables[source][:size])
            elif kind == END and request in self.tables:
                self.end(request)
            elif kind == FAIL:
                self.fail(request, size)
            else:
                self.refused += 1
        except PoolError:
            self.refused += 1
        self.stale += sum(self.stamps[block] != stamp for table in self.tables.values() for block, stamp in table)

    def take(self, request: int, size: int) -> list[int]:
        ids: list[int] = self.blocks.take(size, request).tolist()
        for block in ids:
            self.stamps[block] += 1
            self.note(TAKE, request, block)
        return ids

    def hold(self, request: int, ids: list[int], stamps: list[int] | None = None) -> None:
        self.tables[request] = list(zip(ids, stamps or [self.stamps[block] for block in ids], strict=True))
        for block in ids:
            self.note(HOLD, request, block)

    def share(self, request: int, pages: list[tuple[int, int]]) -> None:
        self.count_up([block for block, _ in pages])
        self.hold(request, [block for block, _ in pages], [stamp for _, stamp in pages])

    def count_up(self, ids: list[int]) -> None:
        self.blocks.share(ids)

    def end(self, request: int) -> None:
        ids = [block for block, _ in self.tables.pop(request)]
        for block in ids:
            self.note(DROP, request, block)
        self.give_back(request, ids)

    def give_back(self, request: int, ids: list[int]) -> None:
        for block in self.blocks.release(ids, request).tolist():
            self.note(FREE, request, block)

    def fail(self, request: int, size: int) -> None:
        self.give_back(request, self.take(request, size))

    def note(self, kind: int, request: int, block: int) -> None:
        self.events.append((self.command, kind, request, block))


class FreedAtFirstEnd(Lifetimes):
    """The first holder that ends frees the block."""

    def give_back(self, request: int, ids: list[int]) -> None:
        for block in ids:
            while self.blocks.counts[block] > 0:
                super().give_back(request, [block])


class NeverCounted(Lifetimes):
    """Sharing does not count."""

    def count_up(self, ids: list[int]) -> None:
        pass

    def give_back(self, request: int, ids: list[int]) -> None:
        for block in ids:
            if self.blocks.counts[block] > 0:
                super().give_back(request, [block])


class CountedTwice(Lifetimes):
    """Sharing counts twice, so the last end leaves one."""

    def count_up(self, ids: list[int]) -> None:
        super().count_up(ids)
        super().count_up(ids)


class LostOnError(Lifetimes):
    """A request that dies half-way gives nothing back."""

    def fail(self, request: int, size: int) -> None:
        self.take(request, size)


class FreedTwice(Lifetimes):
    """The last page of a request joins the free stack a second time."""

    def end(self, request: int) -> None:
        last = [block for block, _ in self.tables[request][-1:]]
        super().end(request)
        stack, top = self.blocks._stack, self.blocks._top
        for block in last:
            if self.blocks.counts[block] == 0 and top[0] < self.blocks.total:
                stack[int(top[0])] = block
                top[0] += 1
                self.note(FREE, request, block)


VARIANTS: dict[str, type[Lifetimes]] = {
    "counted": Lifetimes,
    "freed_at_first_end": FreedAtFirstEnd,
    "never_counted": NeverCounted,
    "counted_twice": CountedTwice,
    "lost_on_error": LostOnError,
    "freed_twice": FreedTwice,
}
