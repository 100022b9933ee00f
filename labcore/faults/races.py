"""Races of a block's life as small step functions, for `labcore.interleave`: each fault beside the order of steps that cures it.

A step is one line between two yields. `yield free_lock` waits for the lock. Judging a final state gives flags:

    1 EARLY    freed, or about to be, while a table names the block
    2 NEVER    nobody names the block and it is not free
    4 TWICE    freed twice
    8 SHARED   one block given to two owners as their own
   16 FOREIGN  a request reads, or its block holds, what another wrote
   32 COPIES   copied where the last holder could have kept the original
   64 FAILED   an error in mid-work
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labcore.interleave import Actor

EARLY, NEVER, TWICE, SHARED, FOREIGN, COPIES, FAILED = 1, 2, 4, 8, 16, 32, 64
HARM = EARLY | NEVER | TWICE | SHARED | FOREIGN | FAILED  # a copy too many is waste, not harm
FLAGS = {"early": EARLY, "never": NEVER, "twice": TWICE, "shared": SHARED, "foreign": FOREIGN, "copies": COPIES, "failed": FAILED}


class World:
    """The blocks of one small scene: counts, free stack, tables (request -> block, -1 for none), rows and a lock."""

    def __init__(self, counts: list[int], free: list[int], tables: list[int]) -> None:
        self.counts, self.free, self.tables = counts, free, tables
        self.rows = [["-", "-"] for _ in counts]
        self.locks: set[int] = set()
        self.flags = 0
        self.copies = 0
        self.done: set[str] = set()

    def unlocked(self, name: int = 0) -> Callable[[], bool]:
        return lambda: name not in self.locks

    def give(self, block: int) -> None:
        """Put a block on the free stack, noting a second time and a holder left behind."""
        if block in self.free:
            self.flags |= TWICE
        self.free.append(block)

    def settled(self) -> int:
        """Flags of the final state: counts against tables, and the free stack."""
        for block, count in enumerate(self.counts):
            held = self.tables.count(block)
            if held and (block in self.free or count < held):
                self.flags |= EARLY
            if not held and block not in self.free:
                self.flags |= NEVER
            if held and count > held:
                self.flags |= NEVER
        return self.flags


@dataclass(frozen=True)
class Scenario:
    """build: fresh world and actors; judge: world -> flags; faulty: whether some order must go wrong; about: what is raced."""

    build: Callable[[], tuple[Any, Sequence[Actor]]]
    faulty: bool
    about: str

    @staticmethod
    def judge(world: World) -> int:
        return world.settled()


# -- counting down: two holders leave one block ------------------------------------------------------------------------------


def _release(world: World, request: int, look_again: bool) -> Actor:
    seen = world.counts[0]
    yield None
    world.counts[0] = seen - 1
    yield None
    if (world.counts[0] if look_again else seen - 1) == 0:
        world.give(0)
    world.tables[request] = -1


def _release_locked(world: World, request: int) -> Actor:
    yield world.unlocked()
    world.locks.add(0)
    seen = world.counts[0]
    yield None
    world.counts[0] = seen - 1
    yield None
    if world.counts[0] == 0:
        world.give(0)
    world.tables[request] = -1
    world.locks.remove(0)


def _release_atomic(world: World, request: int) -> Actor:
    world.counts[0] -= 1
    if world.counts[0] == 0:
        world.give(0)
    world.tables[request] = -1
    yield from ()


def _two_leave(actor: Callable[[World, int], Actor]) -> Callable[[], tuple[World, list[Actor]]]:
    def build() -> tuple[World, list[Actor]]:
        world = World([2], [], [0, 0])
        return world, [actor(world, 0), actor(world, 1)]

    return build


def _share(world: World, target: int, locked: bool) -> Actor:
    """A newcomer takes a reference from a holder that stays."""
    if locked:
        yield world.unlocked()
        world.locks.add(0)
    seen = world.counts[0]
    yield None
    world.counts[0] = seen + 1
    world.tables[target] = 0
    world.locks.discard(0)


def _one_leaves_one_comes(locked: bool) -> tuple[World, list[Actor]]:
    world = World([2], [], [0, 0, -1])
    leave = _release_locked(world, 0) if locked else _release(world, 0, False)
    return world, [leave, _share(world, 2, locked)]


# -- taking: two requests want a block ---------------------------------------------------------------------------------------


def _take(world: World, request: int, locked: bool) -> Actor:
    if locked:
        yield world.unlocked()
        world.locks.add(0)
    top = world.free[-1]
    yield None
    if top in world.free:
        world.free.remove(top)
    else:
        world.flags |= SHARED
    world.counts[top] = 1
    world.tables[request] = top
    world.locks.discard(0)


def _two_take(locked: bool) -> tuple[World, list[Actor]]:
    world = World([0, 0, 0], [0, 1, 2], [-1, -1])
    return world, [_take(world, 0, locked), _take(world, 1, locked)]


def _take_two_of_three(world: World, request: int) -> Actor:
    """The printed allocate: look whether there are enough, then take one after the other; an error keeps what was taken."""
    enough = len(world.free) >= 2
    yield None
    for _ in range(2 * enough):
        if not world.free:
            world.flags |= FAILED
            return
        world.counts[world.free.pop(0)] = 1
        yield None


def _two_want_two() -> tuple[World, list[Actor]]:
    world = World([0, 0, 0], [0, 1, 2], [])
    return world, [_take_two_of_three(world, 0), _take_two_of_three(world, 1)]


class _Printed(World):
    """Whoever got all of its blocks would own two: a block taken by one who failed is lost."""

    def settled(self) -> int:
        taken = sum(self.counts)
        return self.flags | (NEVER if taken % 2 else 0)


def _two_want_two_printed() -> tuple[World, list[Actor]]:
    world = _Printed([0, 0, 0], [0, 1, 2], [])
    return world, [_take_two_of_three(world, 0), _take_two_of_three(world, 1)]


# -- sharing while the source ends (the printed class) ------------------------------------------------------------------------


def _printed_share(world: World, locked: bool) -> Actor:
    if locked:
        yield world.unlocked()
        world.locks.add(0)
    block = world.tables[0]
    yield None
    if block >= 0:
        world.counts[block] += 1
        world.tables[1] = block
    world.locks.discard(0)


def _printed_free(world: World, locked: bool) -> Actor:
    if locked:
        yield world.unlocked()
        world.locks.add(0)
    block = world.tables[0]
    world.counts[block] -= 1
    if world.counts[block] == 0:
        world.give(block)
    yield None
    world.tables[0] = -1
    world.locks.discard(0)


def _share_while_freed(locked: bool) -> tuple[World, list[Actor]]:
    world = World([1], [], [0, -1])
    return world, [_printed_share(world, locked), _printed_free(world, locked)]


# -- copying on write: two writers share block 0, a reader follows the first one's table --------------------------------------


class _Copying(World):
    def __init__(self) -> None:
        super().__init__([2, 0, 0], [2, 1], [0, 0])
        self.rows[0] = ["p", "p"]
        self.pins = 0
        self.seen: list[str] = []

    def take_and_copy(self, old: int) -> int:
        new = self.free.pop()
        self.counts[new] = 1
        self.rows[new] = list(self.rows[old])
        self.copies += 1
        return new

    def settled(self) -> int:
        if self.copies > 1:
            self.flags |= COPIES
        if "1" in self.seen or "1" in self.rows[self.tables[0]] or "0" in self.rows[self.tables[1]]:
            self.flags |= FOREIGN
        return super().settled()


def _down(world: World, block: int, seen: int) -> None:
    world.counts[block] = seen - 1
    if seen - 1 == 0:
        world.give(block)


def _write_unlocked(world: _Copying, me: int) -> Actor:
    old = world.tables[me]
    shared = world.counts[old] > 1
    yield None
    new = world.take_and_copy(old) if shared else old
    yield None
    seen = world.counts[old]
    yield None
    if shared:
        _down(world, old, seen)
    yield None
    world.tables[me] = new
    world.rows[new][me] = str(me)


def _write_locked(world: _Copying, me: int) -> Actor:
    """One lock from the question to the write."""
    yield world.unlocked()
    world.locks.add(0)
    old = world.tables[me]
    new = world.take_and_copy(old) if world.counts[old] > 1 else old
    yield None
    if new != old:
        _down(world, old, world.counts[old])
    yield None
    world.tables[me] = new
    world.rows[new][me] = str(me)
    world.locks.remove(0)


def _write_checked_outside(world: _Copying, me: int) -> Actor:
    """The question outside the lock, the copy inside, and no second look."""
    old = world.tables[me]
    shared = world.counts[old] > 1
    if shared:
        yield world.unlocked()
        world.locks.add(0)
        new = world.take_and_copy(old)
        yield None
        _down(world, old, world.counts[old])
        yield None
        world.tables[me] = new
        world.locks.remove(0)
    yield None
    world.rows[world.tables[me]][me] = str(me)


def _write_checked_twice(world: _Copying, me: int, switch_first: bool) -> Actor:
    """The question outside and again inside the lock; the count goes down before the table changes, or after."""
    shared = world.counts[world.tables[me]] > 1
    if shared:
        yield world.unlocked()
        world.locks.add(0)
        old = world.tables[me]
        if world.counts[old] > 1:
            new = world.take_and_copy(old)
            yield None
            if switch_first:
                world.tables[me] = new
                yield None
                _down(world, old, world.counts[old])
            else:
                _down(world, old, world.counts[old])
                yield None
                world.tables[me] = new
        world.locks.remove(0)
    yield None
    world.rows[world.tables[me]][me] = str(me)


def _reader(world: _Copying, how: str) -> Actor:
    """Reads both rows through the first request's table: free, under the lock, or holding a reference."""
    if how == "locked":
        yield world.unlocked()
        world.locks.add(0)
    if how == "pinned":
        yield world.unlocked()
        world.counts[world.tables[0]] += 1
    block = world.tables[0]
    yield None
    world.seen.append(world.rows[block][0])
    yield None
    world.seen.append(world.rows[block][1])
    if how == "locked":
        world.locks.remove(0)
    if how == "pinned":
        yield world.unlocked()
        world.counts[block] -= 1
        if world.counts[block] == 0:
            world.give(block)


def _copying(writer: Callable[[_Copying, int], Actor], reader: str) -> Callable[[], tuple[World, list[Actor]]]:
    def build() -> tuple[World, list[Actor]]:
        world = _Copying()
        return world, [writer(world, 0), writer(world, 1), _reader(world, reader)]

    return build


def _copy_own(world: World, me: int, stack_lock: bool) -> Actor:
    """Requests 0 and 1 copy blocks 0 and 1, each under that block's own lock; the free stack has a lock too, or not."""
    yield world.unlocked(me)
    world.locks.add(me)
    if stack_lock:
        yield world.unlocked(9)
        world.locks.add(9)
    top = world.free[-1]
    yield None
    if top in world.free:
        world.free.remove(top)
    else:
        world.flags |= SHARED
    world.counts[top] = 1
    world.locks.discard(9)
    yield None
    world.counts[me] -= 1
    world.tables[me] = top
    world.locks.remove(me)


def _two_blocks(stack_lock: bool) -> tuple[World, list[Actor]]:
    world = World([2, 2, 0, 0], [3, 2], [0, 1, 0, 1])
    return world, [_copy_own(world, 0, stack_lock), _copy_own(world, 1, stack_lock)]


# -- two programs that count, work in flight ----------------------------------------------------------------------------------


def _scheduler(world: World) -> Actor:
    """Ends request 0; whoever comes next writes into the block once it is free."""
    world.counts[0] -= 1
    world.tables[0] = -1
    if world.counts[0] == 0:
        world.give(0)
    yield lambda: 0 in world.free
    world.free.remove(0)
    world.counts[0] = 1
    world.tables[1] = 0
    yield None
    world.rows[0] = ["s", "s"]


def _executor(world: World, own_counter: list[int] | None) -> Actor:
    """Reads request 0's rows, counted by a number of its own, or by the block's."""
    if own_counter is not None:
        own_counter[0] += 1
        started = True
    else:
        started = world.tables[0] == 0
        world.counts[0] += started
    yield None
    if started and world.rows[0][0] == "s":
        world.flags |= FOREIGN
    yield None
    if own_counter is not None:
        own_counter[0] -= 1
    elif started:
        world.counts[0] -= 1
        if world.counts[0] == 0:
            world.give(0)


def _drift(one_counter: bool) -> tuple[World, list[Actor]]:
    world = World([1], [], [0, -1])
    return world, [_scheduler(world), _executor(world, None if one_counter else [0])]


def _late(world: World, how: str) -> Actor:
    """A launched step of request 0 writes late, says that it is done, or dies before."""
    if how != "dead":
        if "revoked" not in world.done:
            world.rows[0] = ["r", "r"]
        world.done.add("landed")
    yield from ()


def _abort(world: World, how: str) -> Actor:
    """Request 0 is aborted: its block goes at once, waits for the step, or its step is revoked first; then request 1 writes."""
    world.tables[0] = -1
    if how == "revoke":
        world.done.add("revoked")
    if how == "wait" and "landed" not in world.done:
        yield None
        if "landed" not in world.done:
            return  # looked once more; the report never comes, or comes when nobody waits
    world.counts[0] = 0
    world.give(0)
    yield None
    world.free.remove(0)
    world.counts[0] = 1
    world.tables[1] = 0
    world.rows[0] = ["s", "s"]


class _Aborting(World):
    def settled(self) -> int:
        if self.tables[1] == 0 and self.rows[0][0] == "r":
            self.flags |= FOREIGN
        return super().settled()


def _aborting(policy: str, step: str) -> Callable[[], tuple[World, list[Actor]]]:
    def build() -> tuple[World, list[Actor]]:
        world = _Aborting([1], [], [0, -1])
        return world, [_abort(world, policy), _late(world, step)]

    return build


SCENARIOS: dict[str, Scenario] = {
    "release_split": Scenario(_two_leave(lambda w, r: _release(w, r, True)), True, "count down in three steps, count read again"),
    "release_own_value": Scenario(_two_leave(lambda w, r: _release(w, r, False)), True, "count down in three steps, own value tested"),
    "release_locked": Scenario(_two_leave(_release_locked), False, "the same three steps under a lock"),
    "release_atomic": Scenario(_two_leave(_release_atomic), False, "one step"),
    "share_split": Scenario(lambda: _one_leaves_one_comes(False), True, "one leaves while one comes, counts split"),
    "share_locked": Scenario(lambda: _one_leaves_one_comes(True), False, "one leaves while one comes, under a lock"),
    "take_split": Scenario(lambda: _two_take(False), True, "two look at the top of the free stack"),
    "take_locked": Scenario(lambda: _two_take(True), False, "two take under a lock"),
    "printed_allocate": Scenario(_two_want_two_printed, True, "the printed class: enough is asked before it is taken"),
    "printed_share": Scenario(lambda: _share_while_freed(False), True, "the printed class: share while the source is freed"),
    "printed_share_locked": Scenario(lambda: _share_while_freed(True), False, "the same under a lock"),
    "copy_unlocked": Scenario(_copying(_write_unlocked, "free"), True, "two writers copy, no lock"),
    "copy_checked_outside": Scenario(_copying(_write_checked_outside, "free"), True, "asked outside the lock, copied inside"),
    "copy_checked_twice": Scenario(
        _copying(lambda w, m: _write_checked_twice(w, m, False), "free"), True, "asked outside and inside; count before table"
    ),
    "copy_table_first": Scenario(
        _copying(lambda w, m: _write_checked_twice(w, m, True), "free"), True, "asked outside and inside; table before count"
    ),
    "copy_table_first_pinned": Scenario(
        _copying(lambda w, m: _write_checked_twice(w, m, True), "pinned"), False, "the same, and the reader holds a reference"
    ),
    "copy_locked_free_reader": Scenario(_copying(_write_locked, "free"), True, "writers under one lock, the reader without"),
    "copy_locked": Scenario(_copying(_write_locked, "locked"), False, "writers and reader under one lock"),
    "copy_locked_pinned_reader": Scenario(_copying(_write_locked, "pinned"), False, "writers under one lock, the reader holds a reference"),
    "copy_block_locks": Scenario(lambda: _two_blocks(False), True, "a lock per block, the free stack without"),
    "copy_block_and_stack_locks": Scenario(lambda: _two_blocks(True), False, "a lock per block and one for the free stack"),
    "two_counters": Scenario(lambda: _drift(False), True, "scheduler and executor count each on their own"),
    "one_counter": Scenario(lambda: _drift(True), False, "the executor counts in the block's counter"),
    "abort_free_at_once": Scenario(_aborting("now", "alive"), True, "abort frees at once, the step lands late (BR-29)"),
    "abort_wait_dead": Scenario(_aborting("wait", "dead"), True, "abort waits for a step whose peer died (BR-30)"),
    "abort_revoke_alive": Scenario(_aborting("revoke", "alive"), False, "abort revokes the step first; it lands late"),
    "abort_revoke_dead": Scenario(_aborting("revoke", "dead"), False, "abort revokes the step first; the peer died"),
}
