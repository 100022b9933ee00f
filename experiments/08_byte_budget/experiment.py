"""Checkpoints within a byte budget: three published traces, then eviction policies on multi-turn traces and on mixed sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from labcore.batch import Batch
from labcore.checkpoints import CheckpointStore, Key
from labcore.eviction import ADMIT, EVICT, SKIP, Budget, Event
from labcore.faults.loose_keys import LengthOnly, Loose, Unscoped
from labcore.network import advance, draw
from labcore.protocol import Protocol

NEVER = 10**9


def batches(protocol: Protocol) -> Iterator[Batch]:
    """The published traces (networks of all seeds side by side, axis g), the faulty keys, then the simulated traces."""
    yield from published(protocol)
    yield loose_keys(protocol)
    yield from multi_turn(protocol)
    yield from mixed_sizes(protocol)


def request(settings: dict[str, Any], trace: str, index: int) -> tuple[np.ndarray, int]:
    """The ids of a published request, and the number of its scope."""
    odd = trace == "alternating-branches" and index % 2 == 1
    prefix = settings["prefix_odd"] if odd else settings["prefix_even"]
    ids = [*prefix, *settings["middle"], settings["last"] + index % settings["last_cycle"]]
    return np.array(ids), index % settings["scopes"] if trace == "three-scopes" else 0


def scope_name(trace: str, scope: int) -> str:
    """owner, or owner-0, owner-1, owner-2."""
    return f"owner-{scope}" if trace == "three-scopes" else "owner"


def seed_first(values: list[np.ndarray]) -> np.ndarray:
    """Arrays [g, ...] of consecutive cases as rows of seed times case."""
    stacked = np.stack(values, axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def published(protocol: Protocol) -> Iterator[Batch]:
    """All requests, their events and the totals. Counts do not depend on the weights, so each holds for every seed."""
    settings, g = protocol.settings, len(protocol.seeds)
    weights = draw(protocol.seeds)
    arrays: dict[str, list[np.ndarray]] = {"request": [], "scope": [], "fresh": [], "reuse": []}
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["published"].counts}
    totals: dict[str, list[int]] = {name: [] for name in protocol.blocks["totals"].counts}
    events: list[tuple[int, Event]] = []
    for budget in protocol.values("budget"):
        for trace in protocol.values("trace"):
            store, start = CheckpointStore(budget), len(counts["cut"])
            for index in protocol.values("index"):
                ids, scope = request(settings, trace, index)
                served = store.serve(weights, ids, scope_name(trace, scope))
                events += [(len(counts["cut"]), event) for event in served.events]
                kinds = [event.kind for event in served.events]
                counter = served.counter
                found = {
                    "cut": served.cut,
                    "projected_rows": counter.projected_rows,
                    "score_elements": counter.score_elements,
                    "resident_bytes": served.resident_bytes,
                    "explicit_copy_bytes": served.copied_bytes,
                    "admits": kinds.count(ADMIT),
                    "evictions": kinds.count(EVICT),
                    "skips": kinds.count(SKIP),
                }
                for name, value in found.items():
                    counts[name].append(value)
                arrays["request"].append(np.tile(ids, (g, 1)))
                arrays["scope"].append(np.full(g, scope))
                arrays["fresh"].append(advance(weights, ids)[0][:, -4:])
                arrays["reuse"].append(served.states[:, -4:])
            for name, value in totals.items():
                if name == "hits":
                    value.append(sum(cut > 0 for cut in counts["cut"][start:]))
                else:
                    value.append(counts[name][-1] if name == "resident_bytes" else sum(counts[name][start:]))
    yield Batch(
        "published",
        {name: seed_first(values) for name, values in arrays.items()},
        decisions={"hit": [cut > 0 for cut in counts["cut"]] * g},
        counts={name: values * g for name, values in counts.items()},
    )
    yield event_log(events, g, len(counts["cut"]))
    yield Batch("totals", counts={name: values * g for name, values in totals.items()})


def event_log(events: list[tuple[int, Event]], g: int, rows: int) -> Batch:
    """Events as integers: the row of `published`, 0 admit / 1 evict / 2 skip, scope, bytes, length and ids (-1 behind the length)."""
    columns: dict[str, list[Any]] = {name: [] for name in ("request_row", "kind", "scope", "nbytes", "length", "prefix")}
    for seed in range(g):
        for row, event in events:
            assert isinstance(event.key, Key)
            prefix = np.frombuffer(event.key.packed, "<i4").astype(np.int64)
            _, _, scope = event.key.scope.partition("-")
            values = (
                seed * rows + row,
                event.kind,
                int(scope or 0),
                event.nbytes,
                len(prefix),
                np.pad(prefix, (0, 8 - len(prefix)), constant_values=-1),
            )
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return Batch("events", {name: np.array(values, np.int64) for name, values in columns.items()})


def loose_keys(protocol: Protocol) -> Batch:
    """The control: a store whose key lacks the scope (on three-scopes) or the ids (on alternating-branches). Last states."""
    weights = draw(protocol.seeds)
    faults: dict[str, tuple[type[Loose], str]] = {
        "unscoped": (Unscoped, "three-scopes"),
        "length_only": (LengthOnly, "alternating-branches"),
    }
    fresh, reuse, foreign = [], [], []
    for budget in protocol.values("budget"):
        for fault in protocol.values("fault"):
            kind, trace = faults[fault]
            store, hits, right, got = kind(budget), 0, [], []
            for index in protocol.values("index"):
                ids, scope = request(protocol.settings, trace, index)
                served, other = store.serve_counted(weights, ids, scope_name(trace, scope))
                hits += other
                right.append(advance(weights, ids)[0][:, -1])
                got.append(served.states[:, -1])
            fresh.append(np.stack(right, axis=1))
            reuse.append(np.stack(got, axis=1))
            foreign.append(hits)
    g = len(protocol.seeds)
    return Batch("loose_keys", {"fresh": seed_first(fresh), "reuse": seed_first(reuse)}, counts={"foreign_hits": foreign * g})


def conversations(settings: dict[str, Any], seed: int, comeback: float) -> np.ndarray:
    """[3, request]: conversation, its blocks before and after the turn.

    Three draws a request: u chooses between opening one (u < begin), comeback to one no longer in progress and going on with one of
    the `active` most recent ones; w chooses which; the last is the growth. Where there is none to choose, one is opened.
    """
    rng = np.random.default_rng([seed, settings["stream"]])
    u, w = rng.random((2, settings["requests"]))
    grow = rng.integers(*settings["grow"], settings["requests"])
    blocks: dict[int, int] = {}
    recent: list[int] = []  # newest last, conversations that are over left out
    log = np.empty((3, settings["requests"]), np.int16)
    for i in range(settings["requests"]):
        old, active = recent[: -settings["active"]], recent[-settings["active"] :]
        choice = active if u[i] >= settings["begin"] + comeback else old
        if u[i] < settings["begin"] or not choice:
            who = len(blocks)
            blocks[who] = settings["system"]
        else:
            who = choice[int(w[i] * len(choice))]
            recent.remove(who)
        before = blocks[who]
        blocks[who] += int(grow[i])
        if blocks[who] < settings["longest"]:
            recent.append(who)
        log[:, i] = who, before, blocks[who]
    return log


def chain(settings: dict[str, Any], who: int, length: int) -> list[tuple[int, int]]:
    """Keys of a conversation's first blocks: those of the system prompt belong to everyone."""
    return [(-1 if depth < settings["system"] else who, depth) for depth in range(length)]


def multi_turn(protocol: Protocol) -> Iterator[Batch]:
    """Traces, policies on them, and what happens to blocks that a running request holds."""
    settings, size = protocol.settings["turns"], protocol.settings["block_bytes"]
    logs = {(s, r): conversations(settings, s, r) for s in protocol.seeds for r in protocol.values("comeback")}
    stacked = np.stack(list(logs.values()))
    yield Batch("turns", {name: stacked[:, i] for i, name in enumerate(("conversation", "before", "after"))})
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["policies"].counts}
    for row in protocol.rows("policies"):
        log = logs[row["seed"], row["comeback"]]
        result = replay(settings, log, row["capacity"], row["policy"], size, 0)
        for name in counts:
            counts[name].append(result[name])
    yield Batch("policies", counts=counts)
    counts = {name: [] for name in protocol.blocks["live"].counts}
    for row in protocol.rows("live"):
        log = logs[row["seed"], row["comeback"]]
        result = replay(settings, log, row["capacity"], row["live_policy"], size, protocol.settings["hold"])
        for name in counts:
            counts[name].append(result[name])
    yield Batch("live", counts=counts)


def uses(requests: list[list[Hashable]]) -> dict[Hashable, list[int]]:
    """key -> numbers of the requests that use it, last first, so that the next one is at the end."""
    found: dict[Hashable, list[int]] = {}
    for number in range(len(requests) - 1, -1, -1):
        for key in requests[number]:
            found.setdefault(key, []).append(number)
    return found


def replay(settings: dict[str, Any], log: np.ndarray, capacity: int, policy: str, size: int, hold: int) -> dict[str, int]:
    """One trace under one policy.

    A request asks for the blocks before its turn, hits the leading resident ones, and then uses all up to its end, in order of depth. With
    `hold` it holds them until that many further requests have come.
    """
    requests: list[list[Hashable]] = [list(chain(settings, int(who), int(after))) for who, _, after in log.T]
    future, now = uses(requests), 0

    def next_use(key: Hashable) -> int:
        times = future[key]
        while times and times[-1] <= now:
            times.pop()
        return times[-1] if times else NEVER

    budget = Budget(capacity * size, policy, next_use if policy == "belady" else None)
    result = dict.fromkeys(("asked_blocks", "hit_blocks", "evictions", "peak_blocks", "lost_requests", "lost_blocks", "refused_blocks"), 0)
    running: deque[tuple[int, set[Hashable]]] = deque()
    lost: set[int] = set()
    for now, keys in enumerate(requests):
        if len(running) == hold + 1 or not hold:
            for key in running.popleft()[1] if running else ():
                if key in budget:
                    budget.release(key)
        before = int(log[1, now])
        hits = next((i for i, key in enumerate(keys[:before]) if key not in budget), before)
        result["asked_blocks"] += before
        result["hit_blocks"] += hits
        mine: set[Hashable] = set()
        running.append((now, mine))
        for depth, key in enumerate(keys):
            events = budget.admit(key, size, depth)
            for event in events:
                result["evictions"] += event.kind == EVICT
                result["refused_blocks"] += event.kind == SKIP
                if event.held:
                    result["lost_blocks"] += 1
                    for number, held in running:
                        if event.key in held:
                            held.remove(event.key)
                            lost.add(number)
            if hold and key in budget:
                budget.hold(key)
                mine.add(key)
        result["peak_blocks"] = max(result["peak_blocks"], budget.resident // size)
    return {**result, "lost_requests": len(lost)}


def mixed_sizes(protocol: Protocol) -> Iterator[Batch]:
    """Whole prefixes of 1 to 64 blocks under orders of eviction: what has to be computed again."""
    settings, block = protocol.settings["prefixes"], protocol.settings["block_bytes"]
    drawn = {(seed, trial): draw_prefixes(settings, seed, trial) for seed in protocol.seeds for trial in protocol.values("trial")}
    yield Batch("prefixes", {name: np.stack([pair[i] for pair in drawn.values()]) for i, name in enumerate(("size", "asked"))})
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["orders"].counts}
    for row in protocol.rows("orders"):
        sizes, asked = drawn[row["seed"], row["trial"]]
        order = tuple(protocol.settings["orders"][row["eviction_order"]])
        result = serve_whole(sizes, asked, row["capacity"], order, block, settings["hold"])
        for name in counts:
            counts[name].append(result[name])
    yield Batch("orders", counts=counts)


def draw_prefixes(settings: dict[str, Any], seed: int, trial: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes in blocks (powers of two) and the prefix each request asks for (popularity 1 / rank**skew)."""
    rng = np.random.default_rng([seed, settings["stream"], trial])
    size = 2 ** rng.integers(0, settings["doublings"], settings["count"])
    share = np.cumsum(1.0 / np.arange(1, settings["count"] + 1) ** settings["skew"])
    asked = np.searchsorted(share, rng.random(settings["requests"]) * share[-1], side="right")
    return size.astype(np.int16), asked.astype(np.int16)


def serve_whole(sizes: np.ndarray, asked: np.ndarray, capacity: int, order: tuple[str, ...], block: int, hold: int) -> dict[str, int]:
    """A request hits if its whole prefix is resident, else computes all of it; it holds the prefix for `hold` further requests."""
    budget = Budget(capacity * block, order)
    result = dict.fromkeys(("recomputed_blocks", "hits", "lost_blocks", "evictions"), 0)
    running: deque[int | None] = deque()
    for prefix in asked.tolist():
        if len(running) > hold:
            done = running.popleft()
            if done is not None and done in budget:
                budget.release(done)
        if prefix in budget:
            result["hits"] += 1
        else:
            result["recomputed_blocks"] += int(sizes[prefix])
        for event in budget.admit(prefix, int(sizes[prefix]) * block):
            result["evictions"] += event.kind == EVICT
            if event.held:
                result["lost_blocks"] += event.nbytes // block
                running = deque(None if other == event.key else other for other in running)
        running.append(prefix if prefix in budget else None)
        if prefix in budget:
            budget.hold(prefix)
    return result
