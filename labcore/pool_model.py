"""A random walk over a paged pool, beside a model that keeps each request's rows as a plain list.

The model knows nothing of blocks, but for the number that are free: it says what every request must read, and which call must
be refused. A walk stops at the first difference and says after how many operations.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labcore.blocks import PoolBroken, PoolError
from labcore.paging import PagedPool

MakePool = Callable[[int, int], PagedPool]
EVERY = 61  # operations between two full checks of the pool


@dataclass
class Walk:
    """operations: how many were made; refused: how many of them the pool refused, rightly; fault: what was wrong, "" if nothing."""

    operations: int = 0
    refused: int = 0
    fault: str = ""


def new_pool(blocks: int, block_size: int) -> PagedPool:
    """The pool as it should be, with rows that are single integers."""
    return PagedPool(blocks, block_size, (), np.int64, poison=-1, key=bytes(32))


def walk(make: MakePool, operations: int, seed: int, blocks: int = 29, block_size: int = 3, requests: int = 11) -> Walk:
    """Up to `operations` random calls on a fresh pool, each result compared with the model.

    >>> walk(new_pool, 200, seed=7).fault
    ''
    """
    pool = make(blocks, block_size)
    walker = Walker(pool, random.Random(seed), range(requests))
    result = Walk()
    for number in range(operations):
        result.operations = number + 1
        try:
            walker.step()
            if number % EVERY == 0 or number == operations - 1:
                pool.check()
                walker.compare_all()
        except (Mismatch, PoolBroken) as found:
            result.fault = f"{type(found).__name__}: {found}"
            break
        except PoolError as found:
            result.fault = f"refused without reason: {found}"
            break
    else:
        result.fault = walker.finish()
    result.refused = walker.refused
    return result


class Mismatch(AssertionError):
    """The pool did other than the model."""


class Walker:
    """One thread's part of a walk: its own requests, its own model."""

    def __init__(self, pool: PagedPool, rng: random.Random, names: range, alone: bool = True) -> None:
        self.pool, self.rng, self.names, self.alone = pool, rng, names, alone
        self.rows: dict[int, list[int]] = {}
        self.tickets: dict[int, tuple[int, int, list[int]]] = {}  # ticket -> request, announced, landed
        self.keys: dict[int, tuple[int, ...]] = {}
        self.tag = names.start * 1_000_000_000
        self.refused = 0
        self.clock = 0

    def step(self) -> None:
        """One random operation. Mismatch, PoolBroken, or PoolError where the pool refused what it should have done."""
        name = self.rng.choice(self.names)
        draw = self.rng.random()
        self.clock += 1
        if draw < 0.06:
            self.bad(name)
        elif name not in self.rows:
            self.begin(name, draw)
        elif self.flying(name) is not None:
            self.fly(name, draw)
        elif draw < 0.42:
            self.attempt(lambda values: self.pool.append(name, values), name, self.fresh(7))
        elif draw < 0.52:
            self.overwrite(name)
        elif draw < 0.60:
            self.start_step(name)
        elif draw < 0.66:
            self.publish(name)
        elif draw < 0.86:
            self.compare(name)
        else:
            self.pool.release(name)
            del self.rows[name]

    def fresh(self, most: int) -> list[int]:
        n = self.rng.randrange(most + 1)
        self.tag += n
        return list(range(self.tag - n, self.tag))

    def attempt(self, call: Callable[[list[int]], None], name: int, values: list[int], start: int | None = None) -> None:
        """A call that the pool may refuse only for want of blocks, and then must leave everything as it was."""
        try:
            call(values)
        except PoolError as error:
            if error.kind != "exhausted":
                raise
            self.refused += 1
            if name in self.rows:
                self.compare(name)
            return
        rows = self.rows.setdefault(name, [])
        place = len(rows) if start is None else start
        rows[place : place + len(values)] = values

    def begin(self, name: int, draw: float) -> None:
        others = list(self.rows)
        if draw < 0.35 or not others:
            self.attempt(lambda values: self.pool.open(name, values), name, self.fresh(13))
        elif draw < 0.75:
            source = self.rng.choice(others)
            tokens = self.rng.randrange(len(self.rows[source]) + 1)
            self.pool.share(source, name, tokens)
            self.rows[name] = self.rows[source][:tokens]
        elif draw < 0.85 or not self.keys:
            source = self.rng.choice(others)
            self.pool.fork(source, name)
            self.rows[name] = list(self.rows[source])
        else:  # a published page is found whole and unchanged, or not at all
            key = self.rng.choice(list(self.keys))
            got = self.pool.adopt(name, [key])
            self.rows[name] = list(self.keys[key][:got])
            self.compare(name)

    def overwrite(self, name: int) -> None:
        if not self.rows[name]:
            return
        start = self.rng.randrange(len(self.rows[name]))
        values = self.fresh(5)[: len(self.rows[name]) - start]
        self.attempt(lambda rows: self.pool.write(name, start, rows), name, values, start)

    def publish(self, name: int) -> None:
        size = self.pool.block_size
        full = len(self.rows[name]) // size
        if full:
            key = self.clock * 1000 + self.names.start
            self.pool.publish(name, 0, key)
            self.keys[key] = tuple(self.rows[name][:size])
            if len(self.keys) > 17:
                del self.keys[next(iter(self.keys))]

    def flying(self, name: int) -> int | None:
        return next((ticket for ticket, step in self.tickets.items() if step[0] == name), None)

    def start_step(self, name: int) -> None:
        tokens = self.rng.randrange(5)
        try:
            ticket = self.pool.launch(name, tokens, self.clock)
        except PoolError as error:
            if error.kind != "exhausted":
                raise
            self.refused += 1
            return
        self.tickets[ticket] = (name, tokens, self.fresh(0) + list(range(self.tag, self.tag + tokens)))
        self.tag += tokens

    def fly(self, name: int, draw: float) -> None:
        """A request whose step is in flight: the step lands, or the request ends and the step lands late, or never."""
        ticket = self.flying(name)
        assert ticket is not None
        _, tokens, values = self.tickets[ticket]
        if draw < 0.5:
            for place in range(tokens):
                self.pool.land(ticket, place, values[place])
            self.pool.complete(ticket)
            self.rows[name] += values
            del self.tickets[ticket]
        elif draw < 0.75:
            self.pool.release(name)
            del self.rows[name]
            self.tickets[ticket] = (-1, tokens, values)
        elif draw < 0.85:
            self.compare(name)
        elif self.alone:
            self.pool.expire(self.clock)
            self.must_refuse("revoked", lambda: self.pool.land(ticket, 0, -77))
            self.tickets.clear()
        for late in [t for t, step in self.tickets.items() if step[0] == -1 and self.rng.random() < 0.3]:
            for place in range(self.tickets[late][1]):
                self.pool.land(late, place, -77)  # must reach nobody
            self.pool.complete(late)
            del self.tickets[late]

    def bad(self, name: int) -> None:
        """A call that must be refused, and change nothing."""
        pool, rng = self.pool, self.rng
        if name not in self.rows:
            self.must_refuse("unknown_request", rng.choice([lambda: pool.release(name), lambda: pool.append(name, [1])]))
            return
        length = len(self.rows[name])
        kind, call = rng.choice(
            [
                ("taken", lambda: pool.open(name, [1])),
                ("unwritten", lambda: pool.share(name, self.names.stop + 10_000, length + 1)),
                ("negative", lambda: pool.share(name, self.names.stop + 10_000, -1)),
                ("exhausted", lambda: pool.open(self.names.stop + 10_000, [0] * (pool.blocks.total + 1) * pool.block_size)),
                ("unknown_block", lambda: pool.blocks.share([pool.blocks.total])),
            ]
        )
        self.must_refuse(kind, call)
        self.compare(name)

    def must_refuse(self, kind: str, call: Callable[[], object]) -> None:
        try:
            call()
        except PoolError as error:
            if error.kind != kind:
                raise Mismatch(f"refused as {error.kind}, wanted {kind}: {error}") from None
            self.refused += 1
            return
        raise Mismatch(f"was not refused as {kind}")

    def compare(self, name: int) -> None:
        got = self.pool.read(name).tolist()
        if got != self.rows[name]:
            raise Mismatch(f"request {name} reads {got[:7]}... ({len(got)} rows); wrote {self.rows[name][:7]}... ({len(self.rows[name])})")

    def compare_all(self) -> None:
        for name in self.rows:
            self.compare(name)

    def finish(self) -> str:
        """End everything; what is still held then was lost. Returns the fault, "" if none."""
        try:
            self.compare_all()
            for name in list(self.rows):
                self.pool.release(name)
            for ticket in list(self.tickets):
                self.pool.complete(ticket)
            if self.alone:
                self.pool.check()
        except (Mismatch, PoolBroken, PoolError) as found:
            return f"{type(found).__name__}: {found}"
        lost = self.pool.blocks.total - self.pool.blocks.free
        return f"{lost} blocks lost at the end" if self.alone and lost else ""


def walk_threads(make: MakePool, operations: int, seed: int, threads: int = 4, blocks: int = 97, block_size: int = 3) -> Walk:
    """The same with several threads on one pool, `operations` in all; each thread has requests and a model of its own."""
    pool = make(blocks, block_size)
    faults: list[str] = []
    walkers = [Walker(pool, random.Random(seed * 1009 + n), range(100 * n, 100 * n + 7), alone=False) for n in range(threads)]

    def work(walker: Walker) -> None:
        try:
            for number in range(operations // threads):
                walker.step()
                if number % EVERY == 0:
                    pool.check()
            fault = walker.finish()
        except Exception as found:  # whatever stops a thread is the finding
            fault = f"{type(found).__name__}: {found}"
        if fault:
            faults.append(fault)

    workers = [threading.Thread(target=work, args=(walker,)) for walker in walkers]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lost = pool.blocks.total - pool.blocks.free
    if lost and not faults:
        faults.append(f"{lost} blocks lost at the end")
    return Walk(operations // threads * threads, sum(walker.refused for walker in walkers), faults[0] if faults else "")
