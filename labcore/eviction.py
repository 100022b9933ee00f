"""Which entry leaves when a byte budget is full: the ledger of residency, without the data.

A policy is an order of criteria; the entry that is smallest by them leaves first, the deeper one on a tie. Six have names:

    fifo        first admitted
    lru         least recently used
    lfu         least often used, then least recently
    count_lru   nobody holds it, then least recently used
    size_aware  nobody holds it, then older by whole ticks of `TICK` uses, then smaller (a large prefix costs most to rebuild)
    belady      used again farthest in the future (needs `next_use`; the optimum for entries of one size)

With `count` among its criteria a policy never evicts an entry that somebody holds; without it, it does, and that is the fault.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from labcore.matchers import check_positive

TICK = 16
ADMIT, EVICT, SKIP = 0, 1, 2
EVENTS = ("admit", "evict", "skip")


class Event(NamedTuple):
    """kind: ADMIT, EVICT or SKIP; nbytes: of the entry; held: somebody held it when it left."""

    kind: int
    key: Hashable
    nbytes: int
    held: bool = False


@dataclass
class Entry:
    """Times are the number of admissions and touches so far; depth: blocks before it in its chain; version: of its place in the order."""

    key: Hashable
    nbytes: int
    depth: int
    admitted: int
    used: int
    uses: int = 1
    holders: int = 0
    version: int = 0


CRITERIA: dict[str, Callable[[Entry], int]] = {
    "count": lambda entry: int(entry.holders > 0),
    "admitted": lambda entry: entry.admitted,
    "age": lambda entry: entry.used,
    "coarse_age": lambda entry: entry.used // TICK,
    "uses": lambda entry: entry.uses,
    "small_first": lambda entry: entry.nbytes,
    "large_first": lambda entry: -entry.nbytes,
}
POLICIES: dict[str, tuple[str, ...]] = {
    "fifo": ("admitted",),
    "lru": ("age",),
    "lfu": ("uses", "age"),
    "count_lru": ("count", "age"),
    "size_aware": ("count", "coarse_age", "small_first", "age"),
    "belady": ("next_use",),
}


@dataclass
class Budget:
    """Entries within `capacity` bytes. All methods mutate; a refused argument changes nothing.

    policy: a name of POLICIES, or criteria in order. next_use: for belady, key -> number of the request that uses it next (any
    large number for never), asked when the entry is admitted or touched.

    >>> budget = Budget(100, "lru")
    >>> [e.kind for e in budget.admit("a", 60) + budget.admit("b", 60) + budget.admit("c", 101)]
    [0, 1, 0, 2]
    """

    capacity: int
    policy: str | tuple[str, ...]
    next_use: Callable[[Hashable], int] | None = None
    resident: int = 0
    clock: int = 0
    entries: dict[Hashable, Entry] = field(default_factory=dict)
    _queue: list[tuple[tuple[Any, ...], int, Hashable]] = field(default_factory=list)  # stale places are dropped when they come up
    _versions: int = 0

    def __post_init__(self) -> None:
        check_positive("budget", self.capacity)
        if isinstance(self.policy, str):
            if self.policy not in POLICIES:
                raise ValueError(f"policy: got {self.policy!r}; wanted {', '.join(POLICIES)}")
            self.policy = POLICIES[self.policy]
        known = {*CRITERIA, "next_use"}
        for name in self.policy:
            if name not in known:
                raise ValueError(f"policy: got the criterion {name!r}; wanted {', '.join(sorted(known))}")
        if ("next_use" in self.policy) != (self.next_use is not None):
            raise ValueError("policy: belady, and only belady, wants next_use")

    def __contains__(self, key: Hashable) -> bool:
        return key in self.entries

    def touch(self, key: Hashable) -> None:
        """The entry was used. KeyError if it is not resident."""
        entry = self.entries[key]
        entry.used, entry.uses = self._tick(), entry.uses + 1
        self._place(entry)

    def hold(self, key: Hashable) -> None:
        """Somebody reads the entry until `release`. KeyError if it is not resident."""
        self.entries[key].holders += 1
        self._place(self.entries[key])

    def release(self, key: Hashable) -> None:
        """One holder less. KeyError if it is not resident, ValueError if nobody holds it."""
        if self.entries[key].holders < 1:
            raise ValueError(f"release: nobody holds {key!r}; wanted one hold a release")
        self.entries[key].holders -= 1
        self._place(self.entries[key])

    def admit(self, key: Hashable, nbytes: int, depth: int = 0) -> list[Event]:
        """Take the entry in: skip it if it can never fit or if the rest is held, refresh it if it is there, else evict until it fits."""
        check_positive("nbytes", nbytes)
        if key in self.entries:
            self.touch(key)
            return []
        free = self.capacity - self.resident
        if "count" in self.policy:
            free += sum(entry.nbytes for entry in self.entries.values() if not entry.holders)
        else:
            free = self.capacity
        if nbytes > free:
            return [Event(SKIP, key, nbytes)]
        events = []
        while self.resident + nbytes > self.capacity:
            events.append(self.remove(self._first()))
        now = self._tick()
        entry = self.entries[key] = Entry(key, nbytes, depth, now, now)
        self._place(entry)
        self.resident += nbytes
        return [*events, Event(ADMIT, key, nbytes)]

    def remove(self, key: Hashable) -> Event:
        """Evict one entry by name. KeyError if it is not resident."""
        entry = self.entries.pop(key)
        self.resident -= entry.nbytes
        return Event(EVICT, key, entry.nbytes, entry.holders > 0)

    def _place(self, entry: Entry) -> None:
        self._versions += 1
        entry.version = self._versions
        heapq.heappush(self._queue, (self.order(entry), entry.version, entry.key))

    def _first(self) -> Hashable:
        while True:
            _, version, key = heapq.heappop(self._queue)
            if key in self.entries and self.entries[key].version == version:
                return key

    def order(self, entry: Entry) -> tuple[Any, ...]:
        """What the entries are compared by: the smallest leaves first, on a tie the one that changed longest ago."""
        values = [-self.next_use(entry.key) if self.next_use and name == "next_use" else CRITERIA[name](entry) for name in self.policy]
        return (*values, -entry.depth)

    def _tick(self) -> int:
        self.clock += 1
        return self.clock
