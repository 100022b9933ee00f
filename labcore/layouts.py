"""Three ways to lay requests out in one memory of token slots: a piece of the maximum length each, a hole that fits, or pages.

All have the same calls: `admit` reserves for a request that will grow to `final` tokens and has `now`, `grow` makes room for one token
more, `leave` gives all back. `reserved` counts slots, `largest` the largest request that could still be admitted.
"""

from __future__ import annotations

from typing import Protocol as Interface


class Layout(Interface):
    """What a simulation needs of a memory."""

    reserved: int

    def admit(self, request: int, now: int, final: int) -> bool: ...
    def grow(self, request: int, tokens: int) -> bool: ...
    def leave(self, request: int) -> None: ...
    @property
    def largest(self) -> int: ...


class Contiguous:
    """One hole for each request, first fit from the lowest address; `piece`: the fixed size of all of them, 0: what the request needs.

    >>> memory = Contiguous(10, 0)
    >>> memory.admit(1, 4, 4), memory.admit(2, 4, 4), memory.leave(1), memory.admit(3, 5, 5), memory.largest
    (True, True, None, False, 4)
    """

    def __init__(self, slots: int, piece: int) -> None:
        self.piece = piece
        self.reserved = 0
        self.holes: list[tuple[int, int]] = [(0, slots)]  # start, length; by address, never touching
        self.placed: dict[int, tuple[int, int]] = {}

    def admit(self, request: int, now: int, final: int) -> bool:
        """Reserve for the final length; False where no hole is long enough."""
        need = self.piece or final
        for place, (start, length) in enumerate(self.holes):
            if length >= need:
                self.holes[place : place + 1] = [(start + need, length - need)] if length > need else []
                self.placed[request] = (start, need)
                self.reserved += need
                return True
        return False

    def grow(self, request: int, tokens: int) -> bool:
        """Everything was reserved at once."""
        return True

    def leave(self, request: int) -> None:
        """Give the hole back and join it with its neighbours."""
        start, length = self.placed.pop(request)
        self.reserved -= length
        holes = sorted([*self.holes, (start, length)])
        joined = [holes[0]]
        for begin, size in holes[1:]:
            last, had = joined[-1]
            if last + had == begin:
                joined[-1] = (last, had + size)
            else:
                joined.append((begin, size))
        self.holes = joined

    @property
    def largest(self) -> int:
        return max((length for _, length in self.holes), default=0)


class Paged:
    """Blocks of `size` slots, as many as the tokens that are there need.

    >>> memory = Paged(10, 4)
    >>> memory.admit(1, 5, 9), memory.reserved, memory.grow(1, 9), memory.admit(2, 1, 1), memory.largest
    (True, 8, False, False, 0)
    """

    def __init__(self, slots: int, size: int) -> None:
        self.size, self.free = size, slots // size
        self.reserved = 0
        self.blocks: dict[int, int] = {}

    def admit(self, request: int, now: int, final: int) -> bool:
        """Blocks for what is there now."""
        self.blocks[request] = 0
        if self.grow(request, now):
            return True
        del self.blocks[request]
        return False

    def grow(self, request: int, tokens: int) -> bool:
        """Blocks for this many tokens in all; False, and nothing changed, where there are too few."""
        more = -(-tokens // self.size) - self.blocks[request]
        if more > self.free:
            return False
        self.blocks[request] += more
        self.free -= more
        self.reserved += more * self.size
        return True

    def leave(self, request: int) -> None:
        """Give all blocks back."""
        blocks = self.blocks.pop(request)
        self.free += blocks
        self.reserved -= blocks * self.size

    @property
    def largest(self) -> int:
        return self.free * self.size
