"""The races of a block's life, written down once more as lists of steps: what each step of each scenario reads and changes.

State: c counts, f free stack, t tables (request -> block, -1 none), rows of two cells a block, lock names held, flag bits.
"""

from __future__ import annotations

from collections.abc import Callable

from audit.orders import END, Guard, Program, State, nothing, outcomes

EARLY, NEVER, TWICE, SHARED, FOREIGN, COPIES, FAILED = 1, 2, 4, 8, 16, 32, 64
HARM = 255 - COPIES - 128
BITS = {"early": EARLY, "never": NEVER, "twice": TWICE, "shared": SHARED, "foreign_seen": FOREIGN, "copies": COPIES, "failed": FAILED}
Scene = tuple[State, list[Program]]


def world(counts: list[int], free: list[int], tables: list[int]) -> State:
    """A fresh state."""
    return {
        "c": counts, "f": free, "t": tables, "a": ["-"] * len(counts), "b": ["-"] * len(counts), "locks": [], "flags": 0,
        "copies": 0, "seen": [],
    }  # fmt: skip


def give(s: State, block: int) -> None:
    """A block joins the free stack."""
    if block in s["f"]:
        s["flags"] |= TWICE
    s["f"].append(block)


def verdict(s: State) -> int:
    """Flags of a final state."""
    flags: int = s["flags"]
    for block in range(len(s["c"])):
        entries = sum(1 for b in s["t"] if b == block)
        is_free = block in s["f"]
        if entries == 0 and not is_free:
            flags |= NEVER
        if entries > 0:
            if is_free or s["c"][block] < entries:
                flags |= EARLY
            if s["c"][block] > entries:
                flags |= NEVER
    if s["copies"] > 1:
        flags |= COPIES
    if s.get("copying"):
        mine, other = s["t"][0], s["t"][1]
        if "1" in s["seen"] or "1" in (s["a"][mine], s["b"][mine]) or "0" in (s["a"][other], s["b"][other]):
            flags |= FOREIGN
    if s.get("aborting") and s["t"][1] == 0 and s["a"][0] == "r":
        flags |= FOREIGN
    return flags


def free_lock(name: int = 0) -> Guard:
    """Whether a lock is free."""
    return lambda s: name not in s["locks"]


def lock(s: State, name: int = 0) -> None:
    s["locks"].append(name)


def unlock(s: State, name: int = 0) -> None:
    if name in s["locks"]:
        s["locks"].remove(name)


def under(locked: bool, program: Program, name: int = 0) -> Program:
    """The program with its first step waiting for the lock and taking it, its last one giving it back; an empty step comes first."""
    if not locked:
        return program
    first, last = program[0][1], program[-1][1]

    def begin(s: State) -> int | None:
        lock(s, name)
        return first(s)

    def finish(s: State) -> int | None:
        result = last(s)
        unlock(s, name)
        return result

    if len(program) == 1:
        raise ValueError("a program of one step needs no lock")
    return [(None, nothing), (free_lock(name), begin), *program[1:-1], (program[-1][0], finish)]


def leave(me: int, again: bool) -> Program:
    """Read the count; write it less one; free the block at zero (of the count read again, or of the own value)."""

    def read(s: State) -> None:
        s["own", me] = s["c"][0]

    def write(s: State) -> None:
        s["c"][0] = s["own", me] - 1

    def test(s: State) -> None:
        if (s["c"][0] if again else s["own", me] - 1) == 0:
            give(s, 0)
        s["t"][me] = -1

    return [(None, read), (None, write), (None, test)]


def leave_at_once(me: int) -> Program:
    def all_in_one(s: State) -> None:
        s["c"][0] -= 1
        if s["c"][0] == 0:
            give(s, 0)
        s["t"][me] = -1

    return [(None, all_in_one)]


def come(who: int) -> Program:
    """Read the count; write it plus one, and the table."""

    def read(s: State) -> None:
        s["own", who] = s["c"][0]

    def write(s: State) -> None:
        s["c"][0] = s["own", who] + 1
        s["t"][who] = 0

    return [(None, read), (None, write)]


def take(me: int) -> Program:
    """Look at the top; take that block, or find it gone."""

    def look(s: State) -> None:
        s["top", me] = s["f"][-1]

    def pop(s: State) -> None:
        top = s["top", me]
        if top in s["f"]:
            s["f"].remove(top)
        else:
            s["flags"] |= SHARED
        s["c"][top] = 1
        s["t"][me] = top

    return [(None, look), (None, pop)]


def want_two(me: int) -> Program:
    """Ask whether two are there; then take one, and one, from the front."""

    def ask(s: State) -> None:
        s["go", me] = len(s["f"]) >= 2

    def pop(s: State) -> int | None:
        if not s["go", me]:
            return END
        if not s["f"]:
            s["flags"] |= FAILED
            return END
        s["c"][s["f"].pop(0)] = 1
        return None

    return [(None, ask), (None, pop), (None, pop), (None, nothing)]


def share_printed() -> Program:
    def look(s: State) -> None:
        s["source"] = s["t"][0]

    def enter(s: State) -> None:
        block = s["source"]
        if block >= 0:
            s["c"][block] += 1
            s["t"][1] = block

    return [(None, look), (None, enter)]


def free_printed() -> Program:
    def down(s: State) -> None:
        block = s["t"][0]
        s["c"][block] -= 1
        if s["c"][block] == 0:
            give(s, block)

    def forget(s: State) -> None:
        s["t"][0] = -1

    return [(None, down), (None, forget)]


# -- copying ----------------------------------------------------------------------------------------------------------------


def copying() -> State:
    """Requests 0 and 1 share block 0; blocks 1 and 2 are free."""
    s = world([2, 0, 0], [2, 1], [0, 0])
    s["a"][0] = s["b"][0] = "p"
    s["copying"] = True
    return s


def copy_block(s: State, me: int) -> None:
    new = s["f"].pop()
    old = s["old", me]
    s["c"][new] = 1
    s["a"][new], s["b"][new] = s["a"][old], s["b"][old]
    s["copies"] += 1
    s["new", me] = new


def down(s: State, block: int, seen: int) -> None:
    s["c"][block] = seen - 1
    if seen == 1:
        give(s, block)


def put(s: State, me: int) -> None:
    """Write the own row into the own table's block."""
    s["a" if me == 0 else "b"][s["t"][me]] = str(me)


def ask(s: State, me: int) -> None:
    s["old", me] = s["new", me] = s["t"][me]
    s["shared", me] = s["c"][s["t"][me]] > 1


def switch(s: State, me: int) -> None:
    s["t"][me] = s["new", me]


def writer_unlocked(me: int) -> Program:
    def copy(s: State) -> None:
        if s["shared", me]:
            copy_block(s, me)

    def read(s: State) -> None:
        s["count", me] = s["c"][s["old", me]]

    def write(s: State) -> None:
        if s["shared", me]:
            down(s, s["old", me], s["count", me])

    def finish(s: State) -> None:
        switch(s, me)
        put(s, me)

    return [(None, lambda s: ask(s, me)), (None, copy), (None, read), (None, write), (None, finish)]


def writer_locked(me: int) -> Program:
    def begin(s: State) -> None:
        lock(s)
        ask(s, me)
        if s["shared", me]:
            copy_block(s, me)

    def count(s: State) -> None:
        if s["shared", me]:
            down(s, s["old", me], s["c"][s["old", me]])

    def finish(s: State) -> None:
        switch(s, me)
        put(s, me)
        unlock(s)

    return [(None, nothing), (free_lock(), begin), (None, count), (None, finish)]


def writer_outside(me: int, look_again: bool, table_first: bool) -> Program:
    """Asked before the lock; a request that found its block its own goes on to write in its next step, and waits for nothing."""

    def first(s: State) -> None:
        ask(s, me)
        s["inside", me] = s["shared", me]

    def begin(s: State) -> int | None:
        if not s["inside", me]:
            put(s, me)
            return END
        lock(s)
        if look_again:
            ask(s, me)
        if s["shared", me]:
            copy_block(s, me)
        else:
            unlock(s)
        return None

    def middle(s: State) -> int | None:
        if not s["shared", me]:
            put(s, me)
            return END
        (switch if table_first else lower)(s, me)
        return None

    def after(s: State) -> None:
        (lower if table_first else switch)(s, me)
        unlock(s)

    return [
        (None, first),
        (lambda s: not s["inside", me] or 0 not in s["locks"], begin),
        (None, middle),
        (None, after),
        (None, lambda s: put(s, me)),
    ]


def lower(s: State, me: int) -> None:
    down(s, s["old", me], s["c"][s["old", me]])


def reader(how: str) -> Program:
    """Both cells of the first request's block."""

    def find(s: State) -> None:
        if how == "locked":
            lock(s)
        s["read"] = s["t"][0]
        if how == "pinned":
            s["c"][s["read"]] += 1

    def one(s: State) -> None:
        s["seen"].append(s["a"][s["read"]])

    def two(s: State) -> None:
        s["seen"].append(s["b"][s["read"]])
        if how == "locked":
            unlock(s)

    def unpin(s: State) -> None:
        s["c"][s["read"]] -= 1
        if s["c"][s["read"]] == 0:
            give(s, s["read"])

    waits: Program = [] if how == "free" else [(None, nothing)]
    ends: Program = [(free_lock(), unpin)] if how == "pinned" else []
    return [*waits, (None if how == "free" else free_lock(), find), (None, one), (None, two), *ends]


def copy_own(me: int, stack_lock: bool) -> Program:
    """The block's lock, perhaps the stack's; look at the top; take it; move."""

    def look(s: State) -> None:
        s["top", me] = s["f"][-1]

    def own(s: State) -> None:
        lock(s, me)
        if not stack_lock:
            look(s)

    def stack(s: State) -> None:
        lock(s, 9)
        look(s)

    def pop(s: State) -> None:
        top = s["top", me]
        if top in s["f"]:
            s["f"].remove(top)
        else:
            s["flags"] |= SHARED
        s["c"][top] = 1
        unlock(s, 9)

    def move(s: State) -> None:
        s["c"][me] -= 1
        s["t"][me] = s["top", me]
        unlock(s, me)

    middle: Program = [(free_lock(9), stack)] if stack_lock else []
    return [(None, nothing), (free_lock(me), own), *middle, (None, pop), (None, move)]


# -- two counters, aborts ------------------------------------------------------------------------------------------------------


def scheduler() -> Program:
    def end(s: State) -> None:
        s["c"][0] -= 1
        s["t"][0] = -1
        if s["c"][0] == 0:
            give(s, 0)

    def again(s: State) -> None:
        s["f"].remove(0)
        s["c"][0] = 1
        s["t"][1] = 0

    def write(s: State) -> None:
        s["a"][0] = s["b"][0] = "s"

    return [(None, end), (lambda s: 0 in s["f"], again), (None, write)]


def executor(one_counter: bool) -> Program:
    def start(s: State) -> None:
        s["started"] = s["t"][0] == 0 or not one_counter
        if one_counter and s["started"]:
            s["c"][0] += 1

    def read(s: State) -> None:
        if s["started"] and s["a"][0] == "s":
            s["flags"] |= FOREIGN

    def stop(s: State) -> None:
        if one_counter and s["started"]:
            s["c"][0] -= 1
            if s["c"][0] == 0:
                give(s, 0)

    return [(None, start), (None, read), (None, stop)]


def late(alive: bool) -> Program:
    def land(s: State) -> None:
        if alive:
            if not s["revoked"]:
                s["a"][0] = s["b"][0] = "r"
            s["landed"] = True

    return [(None, land)]


def abort(policy: str) -> Program:
    """Let go of the block, at once or once the step has landed (asked twice); then another request writes into it."""

    def free(s: State) -> None:
        s["c"][0] = 0
        give(s, 0)

    def begin(s: State) -> None:
        s["t"][0] = -1
        s["revoked"] = policy == "revoke"
        s["waits"] = policy == "wait" and not s["landed"]
        if not s["waits"]:
            free(s)

    def second(s: State) -> int | None:
        if s["waits"]:
            if not s["landed"]:
                return END
            free(s)
            return None
        other(s)
        return END

    def other(s: State) -> None:
        s["f"].remove(0)
        s["c"][0] = 1
        s["t"][1] = 0
        s["a"][0] = s["b"][0] = "s"

    return [(None, begin), (None, second), (None, other)]


def aborting(policy: str, alive: bool) -> Scene:
    s = world([1], [], [0, -1])
    s |= {"aborting": True, "landed": False, "revoked": False}
    return s, [abort(policy), late(alive)]


def copied(writer: Callable[[int], Program], how: str) -> Scene:
    return copying(), [writer(0), writer(1), reader(how)]


def scene(name: str) -> Scene:
    """Start and programs of a scenario."""
    two = [0, 0]
    scenes: dict[str, Callable[[], Scene]] = {
        "release_split": lambda: (world([2], [], two), [leave(0, True), leave(1, True)]),
        "release_own_value": lambda: (world([2], [], two), [leave(0, False), leave(1, False)]),
        "release_locked": lambda: (world([2], [], two), [under(True, leave(0, True)), under(True, leave(1, True))]),
        "release_atomic": lambda: (world([2], [], two), [leave_at_once(0), leave_at_once(1)]),
        "share_split": lambda: (world([2], [], [0, 0, -1]), [leave(0, False), come(2)]),
        "share_locked": lambda: (world([2], [], [0, 0, -1]), [under(True, leave(0, True)), under(True, come(2))]),
        "take_split": lambda: (world([0, 0, 0], [0, 1, 2], [-1, -1]), [take(0), take(1)]),
        "take_locked": lambda: (world([0, 0, 0], [0, 1, 2], [-1, -1]), [under(True, take(0)), under(True, take(1))]),
        "printed_allocate": pairs,
        "printed_share": lambda: (world([1], [], [0, -1]), [share_printed(), free_printed()]),
        "printed_share_locked": lambda: (world([1], [], [0, -1]), [under(True, share_printed()), under(True, free_printed())]),
        "copy_unlocked": lambda: copied(writer_unlocked, "free"),
        "copy_checked_outside": lambda: copied(lambda me: writer_outside(me, False, False), "free"),
        "copy_checked_twice": lambda: copied(lambda me: writer_outside(me, True, False), "free"),
        "copy_table_first": lambda: copied(lambda me: writer_outside(me, True, True), "free"),
        "copy_table_first_pinned": lambda: copied(lambda me: writer_outside(me, True, True), "pinned"),
        "copy_locked_free_reader": lambda: copied(writer_locked, "free"),
        "copy_locked": lambda: copied(writer_locked, "locked"),
        "copy_locked_pinned_reader": lambda: copied(writer_locked, "pinned"),
        "copy_block_locks": lambda: (world([2, 2, 0, 0], [3, 2], [0, 1, 0, 1]), [copy_own(0, False), copy_own(1, False)]),
        "copy_block_and_stack_locks": lambda: (world([2, 2, 0, 0], [3, 2], [0, 1, 0, 1]), [copy_own(0, True), copy_own(1, True)]),
        "two_counters": lambda: (world([1], [], [0, -1]), [scheduler(), executor(False)]),
        "one_counter": lambda: (world([1], [], [0, -1]), [scheduler(), executor(True)]),
        "abort_free_at_once": lambda: aborting("at_once", True),
        "abort_wait_dead": lambda: aborting("wait", False),
        "abort_revoke_alive": lambda: aborting("revoke", True),
        "abort_revoke_dead": lambda: aborting("revoke", False),
    }
    return scenes[name]()


def pairs() -> Scene:
    s = world([0, 0, 0], [0, 1, 2], [])
    s["pairs"] = True
    return s, [want_two(0), want_two(1)]


def flags(name: str) -> list[int]:
    """Flags of every order of a scenario, in lexicographic sequence."""
    start, programs = scene(name)
    judge: Callable[[State], int] = verdict if not start.get("pairs") else paired
    return outcomes(start, programs, judge)


def paired(s: State) -> int:
    """Who got all of its blocks has two: an odd number taken means that one who failed keeps one."""
    flags: int = s["flags"]
    return flags | (NEVER if sum(s["c"]) % 2 else 0)
