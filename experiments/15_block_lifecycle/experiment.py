"""The life of a cache block: right rules beside faulty ones, as events, interleavings, real workers and attention outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from labcore.batch import Batch
from labcore.blocks import Blocks, PoolError
from labcore.faults import real_races
from labcore.faults.lifetimes import END, FAIL, OPEN, SHARE, VARIANTS
from labcore.faults.pools import NoFence
from labcore.faults.printed_cache import PrintedCache
from labcore.faults.races import FLAGS, HARM, SCENARIOS
from labcore.interleave import orders
from labcore.paged_attention import attend, consecutive, gather
from labcore.paging import Handle, PagedPool, seal
from labcore.protocol import Protocol
from labcore.timing import Stopwatch, shuffled

ROW = (2, 2, 5)  # key and value, kv heads, width


def batches(protocol: Protocol) -> Iterator[Batch]:
    """One batch per block."""
    drawn = {seed: draw(seed, protocol.settings) for seed in protocol.seeds}
    yield Batch("inputs", {name: np.stack([drawn[seed][name] for seed in protocol.seeds]) for name in drawn[protocol.seeds[0]]})
    yield placement(protocol, drawn)
    yield forks(protocol, drawn)
    yield price(protocol)
    yield forged(protocol)
    yield traces(protocol)
    yield from races(protocol)
    yield cycles(protocol)
    yield printed(protocol)
    yield rights(protocol)
    yield lines(protocol, drawn)
    yield residue(protocol)
    yield overlap(protocol)
    yield dying(protocol)
    yield aborts(protocol)
    yield real_counter(protocol)
    yield real_rows(protocol)
    yield locks(protocol)
    yield access(protocol)


def draw(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Standard normal draws, in this order."""
    rng = np.random.default_rng(seed)
    a, b, step = settings["length_a"], settings["length_b"], settings["decode"]
    shapes = {
        "rows_a": (a, *ROW), "rows_b": (b, *ROW), "rows_b_changed": (b, *ROW),
        "residue": (settings["blocks"], settings["block_size"], *ROW), "query": (2, 4, 5),
        "branch": (2, step, *ROW), "branch_changed": (step, *ROW), "branch_query": (2, step, 4, 5), "edit": ROW,
    }  # fmt: skip
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def stack(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def columns(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {name: [int(row[name]) for row in rows] for name in rows[0]}


# -- placement: A19 -----------------------------------------------------------------------------------------------------------


def layout_pages(layout: str, seed: int, blocks: int) -> tuple[list[int], list[int]]:
    """Blocks of A (3 pages) and of B (4 pages)."""
    if layout == "adjacent":
        return [0, 1, 2], [3, 4, 5, 6]
    if layout == "interleaved":
        return [0, 2, 4], [1, 3, 5, 6]
    if layout == "reversed":
        return [2, 1, 0], [6, 5, 4, 3]
    scattered = np.random.default_rng(seed).permutation(blocks)[:7].tolist()
    return scattered[:3], scattered[3:]


def lay(memory: Any, pages: list[int], rows: Any) -> None:
    """Write rows behind a page table."""
    size = memory.shape[1]
    for place, row in enumerate(rows):
        memory[pages[place // size], place % size] = row


def placement(protocol: Protocol, drawn: dict[int, Any]) -> Batch:
    arrays, foreign = [], []
    for case in protocol.rows("placement"):
        inputs, settings = drawn[case["seed"]], protocol.settings
        tables = layout_pages(case["layout"], case["seed"], settings["blocks"])
        read = gather if case["addressing"] == "table" else consecutive
        lengths = (settings["length_a"], settings["length_b"])

        def outputs(rows_b: Any, inputs: Any = inputs, tables: Any = tables, read: Any = read, lengths: Any = lengths) -> Any:
            memory = inputs["residue"].copy()
            lay(memory, tables[0], inputs["rows_a"])
            lay(memory, tables[1], rows_b)
            return np.stack([attend(inputs["query"][r], read(memory, np.array(tables[r]), lengths[r])) for r in range(2)])

        output = outputs(inputs["rows_b"])
        pages = np.full((2, 4), -1, np.int16)
        pages[0, :3], pages[1] = tables
        used = [(np.array(t[:1]) + np.arange(len(t))) % settings["blocks"] if read is consecutive else t for t in tables]
        foreign.append({"foreign_pages": sum(int(b) not in t for u, t in zip(used, tables, strict=True) for b in u)})
        arrays.append(
            {
                "pages": pages,
                "output": output,
                "alone": np.stack([attend(inputs["query"][0], inputs["rows_a"]), attend(inputs["query"][1], inputs["rows_b"])]),
                "output_a": output[0],
                "output_a_changed": outputs(inputs["rows_b_changed"])[0],
            }
        )
    return Batch("placement", stack(arrays), counts=columns(foreign))


# -- forks: A20, B14, C11 -----------------------------------------------------------------------------------------------------

SOURCE, BRANCHES = 0, (1, 2, 3)  # the third branch never writes


class InPlace(PagedPool):
    """Shared blocks are written for everyone."""

    def _copy(self, table: Any, pages: list[int], ids: list[int]) -> None:
        self.blocks.release(np.array(ids, np.int64))


class Eager(PagedPool):
    """Every page is copied at the fork."""

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        table = self._tables[target]
        self._copy(table, list(range(len(table.blocks))), self.blocks.take(len(table.blocks)).tolist())


class SameTable(PagedPool):
    """A fork is handed its source's table, uncounted."""

    def fork(self, source: int, target: int) -> None:
        self._tables[target] = self._tables[source]


POLICIES = {"on_write": PagedPool, "eager": Eager, "in_place": InPlace, "same_table": SameTable}


def decode(pool: PagedPool, inputs: dict[str, Any], branches: Any) -> Any:
    """Both branches append in turn; after its second row, the second one also overwrites the last row of the prefix."""
    last = len(inputs["rows_a"]) - 1
    output = np.zeros((2, branches.shape[1], 4, 5))
    for step in range(branches.shape[1]):
        for who in range(2):
            pool.append(BRANCHES[who], branches[who, step : step + 1])
            if who == 1 and step == 1:
                pool.write(BRANCHES[who], last, inputs["edit"][None])
            output[who, step] = attend(inputs["branch_query"][who, step], pool.read(BRANCHES[who]))
    return output


def branches_alone(inputs: dict[str, Any]) -> Any:
    """The same two sequences, each by itself, without a pool."""
    output = np.zeros((2, inputs["branch"].shape[1], 4, 5))
    for who in range(2):
        rows = list(inputs["rows_a"])
        for step, row in enumerate(inputs["branch"][who]):
            rows.append(row)
            if who == 1 and step == 1:
                rows[len(inputs["rows_a"]) - 1] = inputs["edit"]
            output[who, step] = attend(inputs["branch_query"][who, step], np.stack(rows))
    return output


def forks(protocol: Protocol, drawn: dict[int, Any]) -> Batch:
    arrays, counts = [], []
    for case in protocol.rows("forks"):
        inputs = drawn[case["seed"]]

        def run(branches: Any, inputs: Any = inputs, case: Any = case) -> tuple[PagedPool, Any]:
            pool = POLICIES[case["policy"]](29, protocol.settings["fork_block_size"], ROW)
            pool.open(SOURCE, inputs["rows_a"])
            for branch in BRANCHES:
                pool.fork(SOURCE, branch)
            return pool, decode(pool, inputs, branches)

        changed = np.stack([inputs["branch"][0], inputs["branch_changed"]])
        pool, output = run(inputs["branch"])
        counts.append({"block_copies": pool.copies, "copied_rows": pool.copied_rows})
        arrays.append(
            {
                "output": output,
                "alone": branches_alone(inputs),
                "first": output[0],
                "first_changed": run(changed)[1][0],
                "source_before": inputs["rows_a"],
                "source_after": pool.read(SOURCE)[: len(inputs["rows_a"])],
                "lengths": np.array([pool.length(branch) for branch in BRANCHES], np.int16),
            }
        )
    return Batch("forks", stack(arrays), counts=columns(counts))


# -- price: C31 ---------------------------------------------------------------------------------------------------------------


def price(protocol: Protocol) -> Batch:
    counts = []
    want = protocol.settings["price"]
    for case in protocol.rows("price"):
        size, sharers, steps = case["block_size"], want["sharers"], want["decode"]
        rng = np.random.default_rng(case["seed"] * 10_000 + case["edits_permille"])
        edits = rng.random((sharers, steps)) < case["edits_permille"] / 1000
        places = rng.integers(0, want["prefix"], (sharers, steps))
        pool = PagedPool((sharers + 1) * (-(-(want["prefix"] + steps) // size) + 1), size, (), np.int64, poison=None)
        pool.open(SOURCE, range(want["prefix"]))
        shared_appends = 0
        for request in range(1, sharers + 1):
            pool.fork(SOURCE, request)
        for step in range(steps):
            for request in range(1, sharers + 1):
                before = pool.copies
                pool.append(request, [step])
                shared_appends += pool.copies - before
                if edits[request - 1, step]:
                    pool.write(request, int(places[request - 1, step]), [-1])
        counts.append(
            {
                "saved_rows": sharers * want["prefix"],
                "block_copies": pool.copies,
                "copied_rows": pool.copied_rows,
                "copied_slots": pool.copies * size,
                "appends": sharers * steps,
                "shared_appends": shared_appends,
            }
        )
    return Batch("price", counts=columns(counts))


# -- forged: A21 --------------------------------------------------------------------------------------------------------------

ATTACKER, VICTIM = 1, 2


def forged(protocol: Protocol) -> Batch:
    arrays, refused = [], []
    for case in protocol.rows("forged"):
        key = hashlib.sha256(f"key {case['seed']}".encode()).digest()
        pool = PagedPool(11, 3, (), np.int64, poison=-1, key=key)
        pool.open(ATTACKER, [1, 2, 3])
        old = pool.handle(ATTACKER, 0)  # the attacker's own, of an earlier life of what becomes the victim's block
        pool.open(9, [9])
        pool.release(ATTACKER)
        secret = case["seed"] * 1000 + np.arange(3)
        pool.open(VICTIM, secret)
        pool.open(ATTACKER, [4, 5, 6])
        theirs = pool.handle(VICTIM, 0)
        own = pool.handle(ATTACKER, 0)
        generation = theirs.generation
        entry, tag = {
            "guessed_block": ((ATTACKER, 0, theirs.block, generation), own.tag),
            "foreign_page": ((ATTACKER, 1, theirs.block, generation), own.tag),
            "other_request": (theirs[:4], theirs.tag),
            "stale": (old[:4], old.tag),
            "forged_tag": ((ATTACKER, 0, theirs.block, generation), bytes(range(16))),
            "key_holder": (theirs[:4], seal(key, *theirs[:4])),
        }[case["attack"]]
        got = [-1, -1, -1]
        if case["entries"] == "raw":
            got = pool.rows[entry[2]].tolist()
        else:
            try:
                reader = VICTIM if case["attack"] == "key_holder" else ATTACKER
                got = pool.through(reader, Handle(*entry, tag)).tolist()
            except PoolError:
                pass
        refused.append(got == [-1, -1, -1])
        arrays.append(
            {
                "secret": secret.astype(np.int32),
                "got": np.array(got, np.int32),
                "entry": np.array(entry, np.int32),
                "tag": np.frombuffer(tag, np.uint8),
                "key": np.frombuffer(key, np.uint8),
            }
        )
    return Batch("forged", stack(arrays), decisions={"refused": refused})


# -- traces: A22 --------------------------------------------------------------------------------------------------------------


def trace_commands(seed: int, settings: dict[str, Any]) -> Any:
    """[command, 4]: kind, request, source, size; at the end every request is ended."""
    rng = np.random.default_rng(seed)
    total, requests = settings["trace_commands"], settings["trace_requests"]
    drawn = np.stack(
        [rng.choice([OPEN, SHARE, END, FAIL], total, p=[0.3, 0.3, 0.35, 0.05]), rng.integers(0, requests, total),
         rng.integers(0, requests, total), rng.integers(1, 6, total)], axis=1
    )  # fmt: skip
    drawn[-requests:] = [[END, request, 0, 0] for request in range(requests)]
    return drawn.astype(np.int8)


def replayed(events: list[tuple[int, int, int, int]], total: int) -> dict[str, int]:
    """What the free stack and the tables went through, counted while they happened."""
    free, held = [1] * total, [0] * total
    early = twice = owned = 0
    for _, kind, _, block in events:
        if kind == 1:
            owned += held[block] > 0
            free[block] -= 1
        elif kind == 4:
            early += held[block] > 0
            twice += free[block] > 0
            free[block] += 1
        else:
            held[block] += 1 if kind == 2 else -1
    lost = sum(free[block] < 1 and held[block] == 0 for block in range(total))
    return {"freed_early": early, "freed_twice": twice, "owned_twice": owned, "lost": lost}


def traces(protocol: Protocol) -> Batch:
    commands, logs, counts = [], [], []
    for case in protocol.rows("traces"):
        drawn = trace_commands(case["seed"], protocol.settings)
        life = VARIANTS[case["variant"]](protocol.settings["trace_blocks"])
        for command in drawn.tolist():
            life.do(*command)
        commands.append(drawn)
        logs.append(life.events)
        counts.append({**replayed(life.events, life.blocks.total), "stale": life.stale, "refused_commands": life.refused})
    longest = max(map(len, logs))
    events = np.full((len(logs), longest, 4), -1, np.int16)
    for row, log in enumerate(logs):
        events[row, : len(log)] = log
    arrays = {"commands": np.stack(commands), "events": events[:, :, 1:].astype(np.int8), "event_command": events[:, :, 0]}
    return Batch("traces", arrays, counts=columns(counts))


# -- races by enumeration: A23, A36, C20, C24, C35 ------------------------------------------------------------------------------


def races(protocol: Protocol) -> Iterator[Batch]:
    flags: list[Any] = []
    counts = []
    for name in protocol.values("scenario"):
        scenario = SCENARIOS[name]
        seen = np.array([scenario.judge(world) for _, world, _ in orders(scenario.build)], np.uint8)
        flags.append(seen)
        found = {{"shared": "shared", "foreign": "foreign_seen"}.get(k, k): np.count_nonzero(seen & bit) for k, bit in FLAGS.items()}
        counts.append({"all_orders": len(seen), **found, "harmful": np.count_nonzero(seen & HARM)})
    offset = np.cumsum([0, *map(len, flags)]).astype(np.int32)
    yield Batch("interleavings", {"offset": offset, "flags": np.concatenate(flags)})
    yield Batch("races", counts=columns(counts))


# -- cycles: A24 --------------------------------------------------------------------------------------------------------------


def references(structure: str, seed: int, nodes: int) -> Any:
    """[from, to]: which prefix entry refers to which."""
    rng = np.random.default_rng(seed)
    refers = np.zeros((nodes, nodes), bool)
    for node in range(1, nodes):
        for _ in range(1 if structure == "tree" else 2):
            refers[node, rng.integers(0, nodes if structure == "graph" else node)] = True
    if structure == "graph":
        np.fill_diagonal(refers, False)
    return refers


def cycles(protocol: Protocol) -> Batch:
    arrays, counts = [], []
    for case in protocol.rows("cycles"):
        refers = references(case["structure"], case["seed"], protocol.settings["nodes"])
        count = refers.sum(axis=0) + 1  # each node is also held by the request that made it
        alive = np.ones(len(refers), bool)
        for request in np.random.default_rng(case["seed"] + 1).permutation(len(refers)):
            ending = [int(request)]
            while ending:
                node = ending.pop()
                count[node] -= 1
                if count[node] == 0:
                    alive[node] = False
                    ending += np.flatnonzero(refers[node]).tolist()
        arrays.append({"refers": refers.astype(np.uint8), "left": alive.astype(np.uint8)})
        # a tracing collector starts from the requests, of which none is left, and so keeps nothing
        counts.append({"links": refers.sum(), "unreachable_counted": alive.sum(), "left_after_tracing": 0})
    return Batch("cycles", stack(arrays), counts=columns(counts))


# -- the printed class: A33 -----------------------------------------------------------------------------------------------------

ALLOCATE, SHARED, FREED = 1, 2, 3
QUERIES = 3
PROBES: dict[str, list[tuple[int, int, int, int]]] = {
    "plain": [(ALLOCATE, 1, -1, 7)],
    "allocate_twice": [(ALLOCATE, 1, -1, 7), (ALLOCATE, 1, -1, 7)],
    "share_into_allocated": [(ALLOCATE, 1, -1, 7), (ALLOCATE, 2, -1, 7), (SHARED, 1, 2, 7)],
    "share_into_empty": [(ALLOCATE, 1, -1, 7), (ALLOCATE, 2, -1, 0), (SHARED, 1, 2, 7)],
    "share_into_unknown": [(ALLOCATE, 1, -1, 7), (SHARED, 1, 2, 7)],
    "share_from_unknown": [(ALLOCATE, 2, -1, 7), (SHARED, 1, 2, 7)],
    "share_past_source": [(ALLOCATE, 1, -1, 7), (ALLOCATE, 2, -1, 13), (SHARED, 1, 2, 13)],
    "share_part_of_block": [(ALLOCATE, 1, -1, 7), (ALLOCATE, 2, -1, 5), (SHARED, 1, 2, 5)],
    "exhaust": [(ALLOCATE, 1, -1, 40), (ALLOCATE, 2, -1, 8)],
    "free_source_first": [(ALLOCATE, 1, -1, 7), (ALLOCATE, 2, -1, 7), (SHARED, 1, 2, 7), (FREED, 1, -1, 0), (FREED, 2, -1, 0)],
    "free_twice": [(ALLOCATE, 1, -1, 7), (FREED, 1, -1, 0), (FREED, 1, -1, 0)],
    "negative_tokens": [(ALLOCATE, 1, -1, -5)],
}


class Printed:
    """The printed class behind the calls that both caches get."""

    def __init__(self, blocks: int, slots: int) -> None:
        self.cache, self.slots = PrintedCache(blocks, slots), slots

    def call(self, kind: int, request: int, other: int, tokens: int) -> None:
        if kind == ALLOCATE:
            self.cache.allocate(request, tokens)
        elif kind == SHARED:
            self.cache.share_prefix(request, other, tokens)
        else:
            self.cache.free(request)

    def state(self) -> tuple[list[int], list[int], list[int]]:
        """(counts, table entries, free list entries) of each block."""
        blocks = range(len(self.cache.counts))
        held = [sum(table.count(block) for table in self.cache.tables.values()) for block in blocks]
        return list(self.cache.counts), held, [self.cache.free_list.count(block) for block in blocks]

    def tables(self) -> dict[int, list[int]]:
        return {request: list(table) for request, table in self.cache.tables.items()}

    def mask(self, request: int, written: int) -> Any:
        return self.cache.build_mask(request, QUERIES)

    def stored(self) -> int:
        return int(np.count_nonzero(self.cache.keys.any(axis=(1, 3))))


class Paged:
    """The pool behind the same calls."""

    def __init__(self, blocks: int, slots: int) -> None:
        self.pool, self.slots = PagedPool(blocks, slots, (), np.int64, poison=0), slots

    def call(self, kind: int, request: int, other: int, tokens: int) -> None:
        if kind == ALLOCATE and tokens < 0:
            self.pool.blocks.take(tokens, request)
        elif kind == ALLOCATE:
            self.pool.open(request, [request] * tokens)
        elif kind == SHARED:
            self.pool.share(request, other, tokens)
        else:
            self.pool.release(request)

    def state(self) -> tuple[list[int], list[int], list[int]]:
        blocks = range(self.pool.blocks.total)
        held = [sum(self.pool.pages(r).count(block) for r in self.tables()) for block in blocks]
        return self.pool.blocks.counts.tolist(), held, [int(self.pool.blocks.counts[block] == 0) for block in blocks]

    def tables(self) -> dict[int, list[int]]:
        return {request: self.pool.pages(request) for request in list(self.pool._tables)}

    def mask(self, request: int, written: int) -> Any:
        """Written and not later than the query."""
        key = np.arange(len(self.pool.pages(request)) * self.slots)
        return key[None, :] <= written - QUERIES + np.arange(QUERIES)[:, None]

    def stored(self) -> int:
        return int(np.count_nonzero(self.pool.rows))


def probe(cache: Printed | Paged, commands: list[tuple[int, int, int, int]], nonsense: list[bool]) -> tuple[dict[str, Any], dict[str, int]]:
    """Give the commands, look at what is left and at every mask. nonsense: which commands ought to be refused."""
    outcome = [-1] * 5
    written: dict[int, int] = {}
    shared: dict[int, int] = {}
    wanted = shares = 0
    for place, (kind, request, other, tokens) in enumerate(commands):
        before = (cache.state(), cache.tables())
        try:
            cache.call(kind, request, other, tokens)
            outcome[place] = 0
            if kind == ALLOCATE:
                written[request] = max(tokens, 0)
                wanted += max(tokens, 0)
            elif kind == SHARED:
                written[other] = shared[other] = tokens
                shares += 1
        except (PoolError, KeyError, IndexError, RuntimeError):
            outcome[place] = 1 if (cache.state(), cache.tables()) == before else 2
    counts, held, free = cache.state()
    total = {"cells": 0, "hidden_cells": 0, "future_shown": 0, "unwritten_shown": 0, "foreign_shown": 0, "unshared_shown": 0}
    for request, table in cache.tables().items():
        length = written.get(request, 0)
        if length < QUERIES:
            continue
        mask = cache.mask(request, length)
        key, query = np.arange(mask.shape[1])[None, :], length - QUERIES + np.arange(QUERIES)[:, None]
        total["cells"] += mask.size
        total["hidden_cells"] += np.count_nonzero(~mask)
        total["future_shown"] += np.count_nonzero(mask & (key > query) & (key < length))
        total["unwritten_shown"] += np.count_nonzero(mask & (key >= length))
        total["foreign_shown"] += np.count_nonzero(mask & (key >= len(table) * cache.slots))
        if request in shared:
            total["unshared_shown"] += np.count_nonzero(mask & (key >= shared[request]))
    numbers = {
        "lost": sum(h == 0 and f == 0 for h, f in zip(held, free, strict=True)),
        "inflated": sum(c - h for c, h in zip(counts, held, strict=True) if h and c > h),
        "half_done": outcome.count(2),
        "accepted_nonsense": sum(result == 0 and bad for result, bad in zip(outcome, nonsense, strict=False)),
        **total,
        "rows_wanted": wanted,
        "rows_stored": cache.stored(),
        "shares": shares,
    }
    padded = [*commands, *[(-1, -1, -1, -1)] * (5 - len(commands))]
    return {
        "commands": np.array(padded, np.int16),
        "outcome": np.array(outcome, np.int8),
        "counts_after": np.array(counts, np.int16),
        "held_after": np.array(held, np.int16),
        "free_after": np.array(free, np.int16),
    }, numbers


def ought_refuse(commands: list[tuple[int, int, int, int]]) -> list[bool]:
    """An id that is open, a share over pages that are there or past what is written, a negative length, an unknown request."""
    length: dict[int, int] = {}
    result = []
    for kind, request, other, tokens in commands:
        if kind == ALLOCATE:
            bad = request in length or tokens < 0
            if not bad:
                length[request] = tokens
        elif kind == SHARED:
            bad = request not in length or length.get(other, 0) > 0 or tokens > length[request]
            if not bad:
                length[other] = tokens
        else:
            bad = length.pop(request, None) is None
        result.append(bad)
    return result


def printed(protocol: Protocol) -> Batch:
    want = protocol.settings["printed"]
    arrays, counts = [], []
    for case in protocol.rows("printed"):
        cache = Printed(want["blocks"], want["slots"]) if case["cache"] == "printed" else Paged(want["blocks"], want["slots"])
        commands = PROBES[case["probe"]]
        one, numbers = probe(cache, commands, ought_refuse(commands))
        arrays.append(one)
        counts.append(numbers)
    return Batch("printed", stack(arrays), counts=columns(counts))


# -- rights: A53 --------------------------------------------------------------------------------------------------------------


def rights(protocol: Protocol) -> Batch:
    arrays, counts = [], []
    want = protocol.settings["rights"]
    shape = (want["requests"], want["pages"])
    for case in protocol.rows("rights"):
        rng = np.random.default_rng(case["seed"])
        pages = rng.integers(0, want["blocks"], shape)
        may_write = rng.random(shape) < 0.5
        attempts = np.stack([rng.integers(0, size, want["attempts"]) for size in shape], axis=1)
        block_flag = np.array([may_write[pages == block].all() for block in range(want["blocks"])])
        flags = {
            "entry": may_write, "block": block_flag[pages], "entry_and_copy": may_write,
            "request": np.repeat(may_write.all(axis=1)[:, None], want["pages"], axis=1),
        }[case["flag"]]  # fmt: skip
        now, copies, alias = pages.copy(), 0, 0
        for request, page in attempts:
            if not flags[request, page]:
                continue
            same = now == now[request, page]
            if case["flag"] == "entry_and_copy" and same.sum() > 1:
                now[request, page] = want["blocks"] + copies
                copies += 1
            elif (same & ~may_write).any():
                alias += 1
        intended = may_write[tuple(attempts.T)]
        granted = flags[tuple(attempts.T)]
        arrays.append({"pages": pages.astype(np.int16), "may_write": may_write.astype(np.uint8), "attempts": attempts.astype(np.int16)})
        counts.append(
            {
                "intended": intended.sum(),
                "granted": granted.sum(),
                "wrongly_refused": (intended & ~granted).sum(),
                "wrongly_granted": (granted & ~intended).sum(),
                "through_alias": alias,
                "flag_bits": {"block": want["blocks"], "request": shape[0]}.get(case["flag"], shape[0] * shape[1]),
                "block_copies": copies,
            }
        )
    return Batch("rights", stack(arrays), counts=columns(counts))


# -- three lines of defence: A60 --------------------------------------------------------------------------------------------------

A_PAGES, B_PAGES, B_BLOCK = [4, 1, 6], [2, 5], 5


def scene(inputs: dict[str, Any], rows_b: Any, counted: bool, fault: str) -> tuple[Any, Any, list[int]]:
    """Memory [7, 3, row], owner and position of each slot ([7, 3, 2], -1 for none), and A's table.

    A's seven rows lie in blocks 4, 1, 6; the last block was B's before, and its unwritten slots still hold B's rows. B lies in 2 and
    5. A's first block is shared with a third request: when that one ends and ends are not counted, B gets the block and writes to it."""
    memory = inputs["residue"][:7].copy()
    owner = np.full((7, 3, 2), -1)
    memory[6] = rows_b[:3]
    tables = {0: A_PAGES, 1: B_PAGES}
    lay(memory, A_PAGES, inputs["rows_a"])
    lay(memory, B_PAGES, rows_b[:5])
    for who, length in ((0, 7), (1, 5)):
        for position in range(length):
            owner[tables[who][position // 3], position % 3] = who, position
    if fault == "sharer_ends" and not counted:
        memory[A_PAGES[0]] = rows_b[5:8]
        owner[A_PAGES[0]] = [[1, position] for position in (6, 7, 8)]
    table = list(A_PAGES)
    if fault == "table_slip":
        table[1] = B_BLOCK
    return memory, owner, table


def seen_slots(owner: Any, table: list[int], masked: bool, paged: bool, fault: str) -> list[tuple[int, int]]:
    """The slots that A's query, at position 6, attends to. With pages the mask goes by the length, without by the owner; a slip of
    the mask shows one slot too many: the first behind the length, or B's first (mask_foreign: B's first in both, where there are pages
    a slot that the table does not lead to)."""
    if paged:
        slots = [(block, slot) for block in table for slot in range(3)]
        return slots[: 7 + (fault == "mask_slip")] if masked else slots
    slots = [(block, slot) for block in range(7) for slot in range(3)]
    if not masked:
        return slots
    slip = (B_PAGES[0], 0) if fault in ("mask_slip", "mask_foreign") else None
    return [s for s in slots if (owner[s][0] == 0 and owner[s][1] <= 6) or s == slip]


def lines(protocol: Protocol, drawn: dict[int, Any]) -> Batch:
    arrays, counts = [], []
    for case in protocol.rows("lines"):
        inputs = drawn[case["seed"]]
        query = inputs["query"][0]
        output = {}
        for name, rows_b in (("output", inputs["rows_b"]), ("output_changed", inputs["rows_b_changed"])):
            memory, owner, table = scene(inputs, rows_b, case["counted"], case["fault"])
            slots = seen_slots(owner, table, case["masked"], case["paged"], case["fault"])
            output[name] = attend(query, np.stack([memory[slot] for slot in slots]))
        mine = {tuple(row.ravel()) for row in inputs["rows_a"]}
        theirs = {tuple(row.ravel()) for row in inputs["rows_b_changed"]}
        foreign = sum(tuple(memory[slot].ravel()) in theirs - mine for slot in slots)
        arrays.append({**output, "alone": attend(query, inputs["rows_a"])})
        counts.append({"foreign_slots": foreign})
    return Batch("lines", stack(arrays), counts=columns(counts))


# -- residue, overlap: B03, B22 ---------------------------------------------------------------------------------------------------


def residue(protocol: Protocol) -> Batch:
    want = protocol.settings["residue"]
    size = want["block_size"]
    arrays, counts = [], []
    for case in protocol.rows("residue"):
        blocks = Blocks(want["blocks"])
        memory = np.zeros((want["blocks"], size), np.int32)
        old = blocks.take(-(-want["former"] // size))
        lay(memory, old.tolist(), 1001 + np.arange(want["former"]))
        blocks.release(old)
        if case["clearing"] == "on_free":
            memory[old] = 0
        new = blocks.take(-(-want["length"] // size))
        if case["clearing"] == "on_take":
            memory[new] = 0
        own = 2001 + np.arange(want["length"])
        lay(memory, new.tolist(), own)
        before = memory.copy()
        if case["clearing"] == "late":
            memory[old] = 0
        reach = len(new) * size if case["reading"] == "whole_blocks" else want["length"]
        read = before[new].ravel()[:reach]
        arrays.append({"before": before, "after": memory.copy()})
        counts.append(
            {
                "residue_read": np.count_nonzero((read > 1000) & (read < 2000)),
                "own_read": np.count_nonzero(read > 2000),
                "own_destroyed": np.count_nonzero(memory[new].ravel()[: want["length"]] != own),
            }
        )
    return Batch("residue", stack(arrays), counts=columns(counts))


def overlap(protocol: Protocol) -> Batch:
    want = protocol.settings["overlap"]
    size = want["block_size"]
    counts = []
    for case in protocol.rows("overlap"):
        blocks = Blocks(want["blocks"])
        memory = np.zeros((want["blocks"], size), np.int32)
        old = blocks.take(-(-want["former"] // size)).tolist()
        lay(memory, old, 1001 + np.arange(want["former"]))
        blocks.release(old)  # nothing is cleared; page n stays findable in block old[n]
        index = dict(enumerate(old))
        taken = blocks.take(want["retaken"]).tolist()
        memory[taken] = 3001
        if case["lookup"] == "dropped":
            index = {page: block for page, block in index.items() if block not in taken}
        pages = case["overlap"] // size if case["matching"] == "whole_blocks" else -(-case["overlap"] // size)
        hits = []
        for page in range(pages):
            if page not in index:
                break
            hits.append(index[page])
        read = memory[hits].ravel()
        same = (read == 1001 + np.arange(len(read))) & (np.arange(len(read)) < case["overlap"])
        counts.append(
            {
                "reused_rows": same.sum(),
                "residue_read": np.count_nonzero((read > 1000) & (read < 2000) & ~same),
                "foreign_read": np.count_nonzero(read == 3001),
            }
        )
    return Batch("overlap", counts=columns(counts))


# -- a request that dies, an abort in flight: C19, BR-29, BR-30 -----------------------------------------------------------------------


class Died(Exception):
    """The planted failure."""


@contextmanager
def scope(pool: PagedPool, request: int, how: str) -> Iterator[None]:
    """scoped: whatever the request holds or has in flight goes at any exit. own_blocks: a handler that gives back the blocks that the
    request took itself, and forgets those that it shares and its step. at_end: nothing."""
    try:
        yield
    except Died:
        if how == "own_blocks" and request in pool._tables:
            shared = pool.pages(1)
            pool.blocks.release([block for block in pool._tables.pop(request).blocks if block not in shared])
    finally:
        if how == "scoped":
            pool.expire(before=2)
            if request in pool._tables:
                pool.release(request)


def dying(protocol: Protocol) -> Batch:
    lost = []
    for case in protocol.rows("dying"):
        pool = PagedPool(29, protocol.settings["block_size"], (), np.int64, poison=-1)
        pool.open(1, range(protocol.settings["length_a"]))
        ticket = 0
        with scope(pool, 2, case["scope"]):
            for stage in range(8):
                if stage == 1:
                    pool.fork(1, 2)
                elif stage == 2:
                    pool.append(2, [20, 21, 22, 23])
                elif stage == 3:
                    pool.write(2, 0, [24])
                elif stage == 4:
                    ticket = pool.launch(2, 2, now=1)
                elif stage == 5:
                    pool.land(ticket, 0, 25)
                elif stage == 6:
                    pool.complete(ticket)
                elif stage == 7:
                    pool.release(2)
                if stage == case["stage"]:
                    raise Died
        pool.release(1)
        lost.append({"lost": pool.blocks.total - pool.blocks.free})
    return Batch("dying", counts=columns(lost))


def aborts(protocol: Protocol) -> Batch:
    want = protocol.settings["abort"]
    counts = []
    for case in protocol.rows("aborts"):
        pool: PagedPool = (
            NoFence(want["blocks"], 3) if case["ending"] == "at_once" else PagedPool(want["blocks"], 3, (), np.int64, poison=-1)
        )
        over = [abort(pool, turn, case["ending"], case["peer"], want["held"]) for turn in range(2)]
        counts.append(
            {
                "leaked": over[0][1],
                "free": want["blocks"] - over[0][1],
                "overwritten": over[0][0] + over[1][0],
                "third_starts": pool.blocks.free >= want["held"],
            }
        )
    return Batch("aborts", counts=columns(counts))


def abort(pool: PagedPool, turn: int, ending: str, peer: str, held: int) -> tuple[int, int]:
    """A request with a step in flight ends; another writes to all that is free; the step lands late or never. Returns (rows of the other
    that were overwritten, blocks missing when all is idle)."""
    request, other = 10 * turn, 10 * turn + 1
    pool.open(request, [5] * (3 * held - 1))
    ticket = pool.launch(request, 1, now=turn)
    pool.release(request)
    if ending == "revoke":
        pool.expire(before=turn + 1)
    rows = [7] * (3 * pool.blocks.free)
    pool.open(other, rows)
    if peer == "alive":
        try:
            pool.land(ticket, 0, -77)
        except PoolError as error:
            if error.kind != "revoked":
                raise
    bad = int(np.count_nonzero(pool.read(other) != rows))
    pool.release(other)
    if peer == "alive" and ending == "wait":
        pool.complete(ticket)
    return bad, pool.blocks.total - pool.blocks.free


# -- real threads and processes: A23, A36, B25, B37, C24, C35; cost per access: A53 ------------------------------------------------------


def real_counter(protocol: Protocol) -> Batch:
    steps, interval = protocol.settings["race_steps"], protocol.settings["switch_interval"]
    found = []
    for case in protocol.rows("real_counter"):
        runner = "threads" if case["runner"] == "threads_short" else case["runner"]
        ask = (runner, case["lock"], case["style"], steps)
        with real_races.switching(interval if case["runner"] == "threads_short" else 0.005):
            found.append((real_races.counter(*ask), *real_races.allocator(*ask), *real_races.copies(*ask)))
    names = ("missing", "owned_twice", "lost", "failed", "both_copied", "wrong_counts")
    return Batch("real_counter", dict(zip(names, np.array(found, np.int64).T, strict=True)))


def real_rows(protocol: Protocol) -> Batch:
    found = []
    for case in protocol.rows("real_rows"):
        guard = "process_lock" if case["protected"] else "none"
        steps = protocol.settings["row_steps"] * (10 if case["width"] < 100 else 1)
        found.append(real_races.rows(case["team"], guard, case["library"], case["width"], steps))
    torn, lost, foreign = np.array(found, np.int64).T
    return Batch("real_rows", {"torn": torn, "lost": lost, "table_foreign": foreign})


def locks(protocol: Protocol) -> Batch:
    steps, seconds = protocol.settings["lock_steps"], protocol.settings["copy_seconds"]
    cases = list(protocol.rows("locks"))
    found: list[Any] = [None] * len(cases)
    for turn in protocol.values("turn"):  # all schemes in each turn, in another order, so that the machine's load meets all alike
        for row in shuffled([row for row, case in enumerate(cases) if case["turn"] == turn], turn):
            found[row] = real_races.copying(cases[row]["scheme"], steps, seconds[cases[row]["hold"]])
    held, waited, total = (np.array([one[part] for one in found]) for part in range(3))
    return Batch("locks", {"held": held, "waited": waited, "total": total})


def access(protocol: Protocol) -> Batch:
    """Seconds for 10 gathers of 64 pages with the flag looked up for each page, and without, each the fastest of 30."""
    rng = np.random.default_rng(0)
    memory, pages = rng.normal(size=(997, 3, *ROW)), rng.integers(0, 997, 64)
    flags, per_block, counts = rng.random(64) < 2, rng.random(997) < 2, np.ones(997, np.int64)
    checks: dict[str, Callable[[], bool]] = {
        "entry": lambda: bool(flags.all()),
        "block": lambda: bool(per_block[pages].all()),
        "request": lambda: bool(flags[0]),
        "entry_and_copy": lambda: bool(flags.all() and (counts[pages] == 1).all()),
    }
    times = []
    for case in protocol.rows("access"):
        check, fastest = checks[case["flag"]], {"plain": 1.0, "checked": 1.0}
        for _ in range(30):
            for name in fastest:
                watch = Stopwatch()
                with watch("gather"):
                    for _ in range(10):
                        if name == "checked" and not check():
                            raise AssertionError("all flags are set")
                        memory[pages]
                fastest[name] = min(fastest[name], watch.get("gather"))
        times.append((fastest["checked"], fastest["plain"]))
    checked, plain = np.array(times).T
    return Batch("access", {"checked": checked, "plain": plain})
