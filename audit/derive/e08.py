"""08: residency, decisions, events and bytes replayed from the request log by plain lists and dictionaries; states by exact sums."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from audit import teaching
from audit.study import Derived, Study

BOUNDS = {f"{block}/{name}": teaching.BOUND for block in ("published", "loose_keys") for name in ("fresh", "reuse")}
GIVEN: dict[str, str] = {}
TOKEN_BYTES = teaching.LAYERS * (2 * teaching.WIDTH * 8 + 8)  # K and V in binary64 and one 64-bit position, in each layer
ADMIT, EVICT, SKIP = 0, 1, 2
TICK = 16
FAR = 10**9
Name = tuple[Any, ...]  # what a checkpoint is found by


def derive(study: Study) -> Iterator[Derived]:
    networks = {seed: teaching.Network.of_seed(seed) for seed in study.seeds}
    yield from _published(study, networks)
    yield _loose(study, networks)
    yield from _turns(study)
    yield from _prefixes(study)


def asked(settings: dict[str, Any], trace: str, index: int) -> tuple[list[int], int]:
    """Ids and scope of a request."""
    prefix = settings["prefix_odd" if trace == "alternating-branches" and index % 2 else "prefix_even"]
    scope = index % settings["scopes"] if trace == "three-scopes" else 0
    return [*prefix, *settings["middle"], settings["last"] + index % settings["last_cycle"]], scope


@dataclass
class Shelf:
    """Checkpoints by recency: the first of `order` is the oldest. `naming` gives what a checkpoint is found by."""

    budget: int
    lengths: Callable[[int], list[int]]
    naming: Callable[[int, list[int]], Name]
    order: dict[Name, tuple[int, list[int]]] = field(default_factory=dict)  # name -> (scope, ids) of who made it

    def used(self) -> int:
        return sum(TOKEN_BYTES * len(ids) for _, ids in self.order.values())

    def request(self, scope: int, ids: list[int]) -> tuple[dict[str, int], list[tuple[int, int, list[int]]], tuple[int, list[int]] | None]:
        """Counts, events (kind, scope, ids), and the maker of what was reused."""
        cut, maker, copied, log = 0, None, 0, []
        for length in range(4, len(ids), 4):
            if self.naming(scope, ids[:length]) in self.order:
                cut = length
        if cut:
            name = self.naming(scope, ids[:cut])
            maker = self.order.pop(name)
            self.order[name] = maker
            copied += TOKEN_BYTES * cut
        cells, at = 0, cut
        while at < len(ids):
            end = min(at - at % 4 + 4, len(ids))
            cells += teaching.LAYERS * (end - at) * end
            at = end
            if at == len(ids) or at not in self.lengths(len(ids)):
                continue
            name, size = self.naming(scope, ids[:at]), TOKEN_BYTES * at
            if size > self.budget:
                log.append((SKIP, scope, ids[:at]))
            elif name in self.order:
                self.order[name] = self.order.pop(name)
            else:
                while self.used() + size > self.budget:
                    oldest = next(iter(self.order))
                    log.append((EVICT, *self.order.pop(oldest)))
                self.order[name] = (scope, ids[:at])
                log.append((ADMIT, scope, ids[:at]))
                copied += size
        counts = {
            "cut": cut,
            "projected_rows": 3 * teaching.LAYERS * (len(ids) - cut),
            "score_elements": cells,
            "resident_bytes": self.used(),
            "explicit_copy_bytes": copied,
            "admits": sum(kind == ADMIT for kind, *_ in log),
            "evictions": sum(kind == EVICT for kind, *_ in log),
            "skips": sum(kind == SKIP for kind, *_ in log),
        }
        return counts, log, maker


def exact(scope: int, ids: list[int]) -> Name:
    """The name of a checkpoint in a store that is right."""
    return (scope, *ids)


def every(length: int) -> list[int]:
    """All places at which a request of this length may leave a checkpoint."""
    return list(range(4, length, 4))


def last(length: int) -> list[int]:
    """The last such place."""
    return every(length)[-1:]


def behind(network: teaching.Network, maker: tuple[int, list[int]] | None, ids: list[int]) -> teaching.Pass:
    """The request computed behind what it reused: one piece, as the pieces' sums are those of the whole."""
    if maker is None:
        return network.run(ids)
    return network.run(ids[len(maker[1]) :], network.run(maker[1]).cache)


def total(name: str, counts: list[dict[str, int]]) -> int:
    """A column of the totals."""
    if name == "hits":
        return sum(one["cut"] > 0 for one in counts)
    return counts[-1][name] if name == "resident_bytes" else sum(one[name] for one in counts)


def _published(study: Study, networks: dict[int, teaching.Network]) -> Iterator[Derived]:
    rows, wanted = study.rows("published"), set(study.chosen("published"))
    arrays: dict[str, list[Any]] = {"request": [], "scope": [], "fresh": [], "reuse": []}
    flat: list[dict[str, int]] = []
    log: list[list[Any]] = []
    totals: list[list[dict[str, int]]] = []
    shelf = Shelf(0, every, exact)
    for number, row in enumerate(rows):
        if row["index"] == 0:
            shelf = Shelf(row["budget"], every, exact)
            totals.append([])
        ids, scope = asked(study.settings, row["trace"], row["index"])
        counts, events, maker = shelf.request(scope, ids)
        flat.append(counts)
        totals[-1].append(counts)
        log += [[number, kind, who, TOKEN_BYTES * len(made), len(made), made + [-1] * (8 - len(made))] for kind, who, made in events]
        arrays["request"].append(ids)
        arrays["scope"].append(scope)
        if number in wanted:
            network = networks[row["seed"]]
            arrays["fresh"].append(network.run(ids).states[-4:])
            arrays["reuse"].append(behind(network, maker, ids).states[-4:])
    chosen = sorted(wanted)
    yield Derived(
        "published", chosen,
        {"request": np.array(arrays["request"])[chosen], "scope": np.array(arrays["scope"])[chosen],
         "fresh": np.array(arrays["fresh"]), "reuse": np.array(arrays["reuse"])},
        {"hit": [flat[n]["cut"] > 0 for n in chosen]},
        {name: [flat[n][name] for n in chosen] for name in flat[0]},
    )  # fmt: skip
    columns = ("request_row", "kind", "scope", "nbytes", "length", "prefix")
    yield Derived("events", None, {name: np.array([line[i] for line in log], np.int64) for i, name in enumerate(columns)})
    chosen_totals = study.chosen("totals")
    names = study.protocol["blocks"]["totals"]["counts"]
    yield Derived("totals", chosen_totals, counts={name: [total(name, totals[n]) for n in chosen_totals] for name in names})


def _loose(study: Study, networks: dict[int, teaching.Network]) -> Derived:
    chosen, rows = study.chosen("loose_keys"), study.rows("loose_keys")
    fresh, reuse, foreign = [], [], []
    for number in chosen:
        row = rows[number]
        unscoped = row["fault"] == "unscoped"
        trace = "three-scopes" if unscoped else "alternating-branches"
        shelf = Shelf(row["budget"], every, (lambda scope, ids: tuple(ids)) if unscoped else (lambda scope, ids: (scope, len(ids))))
        hits, right, got = 0, [], []
        for index in range(12):
            ids, scope = asked(study.settings, trace, index)
            _, _, maker = shelf.request(scope, ids)
            hits += maker is not None and (maker[0] != scope or maker[1] != ids[: len(maker[1])])
            right.append(networks[row["seed"]].run(ids).states[-1])
            got.append(behind(networks[row["seed"]], maker, ids).states[-1])
        fresh.append(right)
        reuse.append(got)
        foreign.append(hits)
    return Derived("loose_keys", chosen, {"fresh": np.array(fresh), "reuse": np.array(reuse)}, counts={"foreign_hits": foreign})


def conversation_log(settings: dict[str, Any], seed: int, comeback: float) -> list[tuple[int, int, int]]:
    """(conversation, blocks before, blocks after) of each request, from the seed's draws."""
    rng = np.random.default_rng([seed, settings["stream"]])
    u, w = rng.random((2, settings["requests"])).tolist()
    grow = rng.integers(settings["grow"][0], settings["grow"][1], settings["requests"]).tolist()
    length: list[int] = []
    going: list[int] = []
    log = []
    for opens, which, more in zip(u, w, grow, strict=True):
        cut = max(0, len(going) - settings["active"])
        pool = going[cut:] if opens >= settings["begin"] + comeback else going[:cut]
        if opens < settings["begin"] or not pool:
            who = len(length)
            length.append(settings["system"])
        else:
            who = pool[int(which * len(pool))]
            going = [other for other in going if other != who]
        log.append((who, length[who], length[who] + more))
        length[who] += more
        if length[who] < settings["longest"]:
            going.append(who)
    return log


@dataclass(slots=True)
class Slot:
    size: int
    depth: int
    born: int
    used: int
    moved: int  # when its place in the order last changed
    uses: int
    holders: int


Rank = Callable[[Any, Slot], tuple[Any, ...]]


@dataclass(slots=True)
class Pool:
    """A budget in blocks; `rank` orders the entries, the smallest leaves first, on a tie the deepest, then the one that moved longest ago.

    An entry is put in line where it may have come forward: when it is new, when its last holder leaves, and when it is used, if `forward`
    says that a use can lower its rank. An entry that only moved back is put in line again when its old place comes up."""

    capacity: int
    rank: Rank
    counted: bool
    forward: bool = False
    slots: dict[Any, Slot] = field(default_factory=dict)
    line: list[tuple[tuple[Any, ...], int, int, Any]] = field(default_factory=list)  # a heap of (rank, -depth, moved, key)
    clock: int = 0
    moves: int = 0
    filled: int = 0
    held: int = 0  # blocks of entries that somebody holds
    evicted: int = 0

    def enter(self, key: Any, slot: Slot) -> None:
        heappush(self.line, (self.rank(key, slot), -slot.depth, slot.moved, key))

    def first(self) -> Any:
        """The entry that leaves next."""
        while True:
            _, _, moved, key = heappop(self.line)
            slot = self.slots.get(key)
            if slot is not None:
                if slot.moved == moved:
                    return key
                self.enter(key, slot)

    def use(self, key: Any, size: int, depth: int, holders: int) -> tuple[bool, Sequence[Any]]:
        """Whether the entry was taken or is there, now with so many holders more; and the entries evicted while somebody held them."""
        slot = self.slots.get(key)
        if slot is not None:
            self.clock += 1
            self.moves += 1
            slot.used, slot.moved = self.clock, self.moves
            slot.uses += 1
            if holders:
                self.held += 0 if slot.holders else slot.size
                slot.holders += holders
            if self.forward:
                self.enter(key, slot)
            return True, ()
        if size > self.capacity - (self.held if self.counted else 0):
            return False, ()
        lost = []
        while self.filled + size > self.capacity:
            victim = self.first()
            slot = self.slots.pop(victim)
            self.filled -= slot.size
            self.evicted += 1
            if slot.holders:
                self.held -= slot.size
                lost.append(victim)
        self.clock += 1
        self.moves += 1
        self.slots[key] = slot = Slot(size, depth, self.clock, self.clock, self.moves, 1, holders)
        self.filled += size
        self.held += size if holders else 0
        self.enter(key, slot)
        return True, lost

    def release(self, key: Any) -> None:
        """One holder less."""
        slot = self.slots[key]
        self.moves += 1
        slot.moved = self.moves
        slot.holders -= 1
        if not slot.holders:
            self.held -= slot.size
            self.enter(key, slot)


RANKS: dict[str, Rank] = {
    "fifo": lambda key, slot: (slot.born,),
    "lru": lambda key, slot: (slot.used,),
    "lfu": lambda key, slot: (slot.uses, slot.used),
    "count_lru": lambda key, slot: (slot.holders > 0, slot.used),
    "size_aware": lambda key, slot: (slot.holders > 0, slot.used // TICK, slot.size, slot.used),
}
FIELDS: dict[str, Callable[[Slot], int]] = {
    "count": lambda slot: slot.holders > 0,
    "age": lambda slot: slot.used,
    "coarse_age": lambda slot: slot.used // TICK,
    "small_first": lambda slot: slot.size,
    "large_first": lambda slot: -slot.size,
}


def _farthest(paths: list[list[Any]], reached: dict[Any, int]) -> Rank:
    """The rank by the next request for a block, behind the last one that came to it."""
    when: dict[Any, list[int]] = {}
    for number, path in enumerate(paths):
        for key in path:
            when.setdefault(key, []).append(number)

    def rank(key: Any, slot: Slot) -> tuple[int]:
        times = when[key]
        later = bisect_right(times, reached[key])
        return (-(times[later] if later < len(times) else FAR),)

    return rank


def replay(settings: dict[str, Any], log: list[tuple[int, int, int]], capacity: int, policy: str, hold: int) -> dict[str, int]:
    """One multi-turn trace under one policy, in blocks."""
    paths = [[(who + 1) * FAR + depth if depth >= settings["system"] else depth for depth in range(after)] for who, _, after in log]
    reached: dict[Any, int] = {}  # the last request that came to a block
    if policy == "belady":
        pool = Pool(capacity, _farthest(paths, reached), False, True)
    else:
        pool = Pool(capacity, RANKS[policy], policy in ("count_lru", "size_aware"))
    result = dict.fromkeys(("asked_blocks", "hit_blocks", "peak_blocks", "lost_blocks", "refused_blocks"), 0)
    running: list[tuple[int, list[Any]]] = []
    losers: set[int] = set()
    holders = int(hold > 0)
    for now, (path, (_, before, _)) in enumerate(zip(paths, log, strict=True)):
        if hold and len(running) > hold:
            for key in running.pop(0)[1]:
                pool.release(key)
        hits = 0
        while hits < before and path[hits] in pool.slots:
            hits += 1
        result["asked_blocks"] += before
        result["hit_blocks"] += hits
        mine: list[Any] = []
        running.append((now, mine))
        for depth, key in enumerate(path):
            reached[key] = now
            inside, lost = pool.use(key, 1, depth, holders)
            for victim in lost:
                result["lost_blocks"] += 1
                for number, keys in running:
                    if victim in keys:
                        keys.remove(victim)
                        losers.add(number)
            if not inside:
                result["refused_blocks"] += 1
            elif holders:
                mine.append(key)
        result["peak_blocks"] = max(result["peak_blocks"], pool.filled)
    return {**result, "evictions": pool.evicted, "lost_requests": len(losers)}


def _turns(study: Study) -> Iterator[Derived]:
    settings, rows = study.settings["turns"], study.rows("turns")
    logs = {(row["seed"], row["comeback"]): conversation_log(settings, row["seed"], row["comeback"]) for row in rows}
    chosen = study.chosen("turns")
    table = np.array([logs[rows[n]["seed"], rows[n]["comeback"]] for n in chosen], np.int16)
    yield Derived("turns", chosen, {name: table[:, :, i] for i, name in enumerate(("conversation", "before", "after"))})
    for block, policy, hold in (("policies", "policy", 0), ("live", "live_policy", study.settings["hold"])):
        chosen, rows = study.chosen(block), study.rows(block)
        found = [
            replay(settings, logs[row["seed"], row["comeback"]], row["capacity"], row[policy], hold) for row in (rows[n] for n in chosen)
        ]
        yield Derived(block, chosen, counts={name: [one[name] for one in found] for name in study.protocol["blocks"][block]["counts"]})


def draw_prefixes(settings: dict[str, Any], seed: int, trial: int) -> tuple[list[int], list[int]]:
    """Sizes and asked prefixes: the first whose cumulative popularity exceeds the draw."""
    rng = np.random.default_rng([seed, settings["stream"], trial])
    sizes = [2 ** int(power) for power in rng.integers(0, settings["doublings"], settings["count"])]
    reach, edge = [], 0.0
    for rank in range(1, settings["count"] + 1):
        edge += 1.0 / rank ** settings["skew"]
        reach.append(edge)
    return sizes, [bisect_right(reach, u * edge) for u in rng.random(settings["requests"]).tolist()]


def _prefixes(study: Study) -> Iterator[Derived]:
    settings, rows = study.settings["prefixes"], study.rows("prefixes")
    drawn = {(row["seed"], row["trial"]): draw_prefixes(settings, row["seed"], row["trial"]) for row in rows}
    chosen = study.chosen("prefixes")
    pairs = [drawn[rows[n]["seed"], rows[n]["trial"]] for n in chosen]
    yield Derived("prefixes", chosen, {name: np.array([p[i] for p in pairs], np.int16) for i, name in enumerate(("size", "asked"))})
    chosen, rows = study.chosen("orders"), study.rows("orders")
    found = []
    for row in (rows[n] for n in chosen):
        sizes, wanted = drawn[row["seed"], row["trial"]]
        names = study.settings["orders"][row["eviction_order"]]
        found.append(whole(sizes, wanted, row["capacity"], names, settings["hold"]))
    yield Derived("orders", chosen, counts={name: [one[name] for one in found] for name in study.protocol["blocks"]["orders"]["counts"]})


def whole(sizes: list[int], wanted: list[int], capacity: int, names: list[str], hold: int) -> dict[str, int]:
    """Whole prefixes under an order of criteria."""
    pool = Pool(capacity, lambda key, slot: tuple(FIELDS[name](slot) for name in names), "count" in names)
    again = hits = lost = 0
    running: list[int | None] = []
    for prefix in wanted:
        if len(running) > hold:
            done = running.pop(0)
            if done is not None:
                pool.release(done)
        hits += prefix in pool.slots
        again += 0 if prefix in pool.slots else sizes[prefix]
        inside, gone = pool.use(prefix, sizes[prefix], 0, 1)
        for victim in gone:
            lost += sizes[victim]
            running = [None if other == victim else other for other in running]
        running.append(prefix if inside else None)
    return {"recomputed_blocks": again, "hits": hits, "lost_blocks": lost, "evictions": pool.evicted}
