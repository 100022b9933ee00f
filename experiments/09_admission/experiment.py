"""What to keep of each request: nothing, every checkpoint, or the longest one; decisions counted, time taken in parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from labcore.batch import Batch
from labcore.checkpoints import CheckpointStore, Key, Served
from labcore.eviction import ADMIT, EVICT, SKIP, Event
from labcore.faults.loose_keys import LengthOnly
from labcore.network import Counter, Weights, advance, draw
from labcore.protocol import Protocol
from labcore.timing import Stopwatch, shuffled

PARTS = ("lookup", "hashing", "copies", "compute", "admission", "total")


def batches(protocol: Protocol) -> Iterator[Batch]:
    """One pass to warm up, then every repeat in its own order, each configuration from an empty store."""
    weights = dict(zip(protocol.seeds, (draw([seed]) for seed in protocol.seeds), strict=True))
    names = ("seed", "budget", "trace", "policy")
    configurations = list(itertools.product(*(protocol.values(name) for name in names)))
    index = protocol.values("index")
    warm = [run(protocol, weights[c[0]], *c[1:]) for c in configurations]
    orders = [shuffled(range(len(configurations)), 1000 * protocol.settings["shuffle"] + repeat) for repeat in protocol.values("repeat")]
    done: list[dict[int, list[tuple[Served, Stopwatch]]]] = []
    for order in orders:
        done.append({place: run(protocol, weights[configurations[place][0]], *configurations[place][1:]) for place in order})

    places = range(len(configurations))
    served = [[[s for s, _ in repeat[place]] for repeat in done] for place in places]  # [configuration][repeat][request]
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["queries"].counts}
    totals: dict[str, list[int]] = {name: [] for name in protocol.blocks["totals"].counts}
    for repeats in served:
        for requests in repeats:
            rows = [count(one) for one in requests]
            for row in rows:
                for name, values in counts.items():
                    values.append(row[name])
            for name, values in totals.items():
                if name == "hits":
                    values.append(sum(row["cut"] > 0 for row in rows))
                else:
                    values.append(rows[-1][name] if name == "resident_bytes" else sum(row[name] for row in rows))
    yield Batch("queries", decisions={"hit": [cut > 0 for cut in counts["cut"]]}, counts=counts)
    yield states(protocol, weights, configurations, served)
    yield events([repeats[0] for repeats in served])
    yield Batch("totals", counts=totals)
    yield Batch("order", {"configuration": np.array(orders, np.int16)})
    yield loose_keys(protocol)

    times = np.array([[[watch.get(part) for part in PARTS] for _, watch in repeat[place]] for place in places for repeat in done])
    times = times.reshape(len(configurations), len(done), len(index), len(PARTS))
    yield Batch("times", {part: times[..., i].reshape(-1) for i, part in enumerate(PARTS)})
    yield Batch("warm_up", {"total": np.array([watch.get("total") for one in warm for _, watch in one])})
    seconds = times[..., PARTS.index("total")]  # [configuration, repeat, request]
    policies = protocol.values("policy")
    none = np.repeat(seconds[policies.index("none") :: len(policies)], len(policies), axis=0)
    ratio = [undisturbed(own) / undisturbed(base) for own, base in zip(seconds, none, strict=True)]
    yield Batch("ratios", {"seconds": seconds, "none_seconds": none}, own={"time_ratio": ratio})


def undisturbed(seconds: np.ndarray) -> float:
    """Seconds [repeat, request] as one number: the shortest repeat of each request, summed. Other work can only lengthen a repeat."""
    return math.fsum(seconds.min(axis=0).tolist())


def request(settings: dict[str, Any], trace: str, index: int) -> tuple[np.ndarray, int]:
    """The ids of a request, and the number of its scope."""
    odd = trace == "alternating-branches" and index % 2 == 1
    prefix = settings["prefix_odd"] if odd else settings["prefix_even"]
    ids = [*prefix, *settings["middle"], settings["last"] + index % settings["last_cycle"]]
    return np.array(ids), index % settings["scopes"] if trace == "three-scopes" else 0


def run(protocol: Protocol, weights: Weights, budget: int, trace: str, policy: str) -> list[tuple[Served, Stopwatch]]:
    """All requests of one configuration from an empty store, each with its times."""
    store = None if policy == "none" else CheckpointStore(budget, policy)
    result = []
    for index in protocol.values("index"):
        ids, scope = request(protocol.settings, trace, index)
        watch = Stopwatch()
        with watch("total"):
            if store is None:
                counter = Counter()
                with watch("compute"):
                    computed, _ = advance(weights, ids, None, None, counter)
                one = Served(computed, 0, counter, [], 0, 0)
            else:
                one = store.serve(weights, ids, f"owner-{scope}" if trace == "three-scopes" else "owner", watch)
        result.append((one, watch))
    return result


def count(one: Served) -> dict[str, int]:
    """The counts of a request, under their names in the protocol."""
    kinds = [event.kind for event in one.events]
    return {
        "cut": one.cut,
        "projected_rows": one.counter.projected_rows,
        "score_elements": one.counter.score_elements,
        "resident_bytes": one.resident_bytes,
        "explicit_copy_bytes": one.copied_bytes,
        "admits": kinds.count(ADMIT),
        "evictions": kinds.count(EVICT),
        "skips": kinds.count(SKIP),
    }


def states(
    protocol: Protocol, weights: dict[int, Weights], configurations: list[tuple[Any, ...]], served: list[list[list[Served]]]
) -> Batch:
    """The last state of each request in the first repeat, and of a full pass; the request log."""
    ids, scopes, fresh, reuse = [], [], [], []
    for (seed, _, trace, _), repeats in zip(configurations, served, strict=True):
        for index, one in zip(protocol.values("index"), repeats[0], strict=True):
            tokens, scope = request(protocol.settings, trace, index)
            ids.append(tokens)
            scopes.append(scope)
            fresh.append(advance(weights[seed], tokens)[0][0, -1])
            reuse.append(one.states[0, -1])
    log = {"request": np.array(ids, np.int8), "scope": np.array(scopes, np.int8)}
    return Batch("states", {**log, "fresh": np.array(fresh), "reuse": np.array(reuse)})


def events(served: list[list[Served]]) -> Batch:
    """Events of the first repeat as integers: the row of `states`, 0 admit / 1 evict / 2 skip, scope, bytes, length, ids (-1 behind)."""
    columns: dict[str, list[Any]] = {name: [] for name in ("state_row", "kind", "scope", "nbytes", "length", "prefix")}
    flat: list[tuple[int, Event]] = [(row, event) for row, one in enumerate(itertools.chain.from_iterable(served)) for event in one.events]
    for row, event in flat:
        assert isinstance(event.key, Key)
        prefix = np.frombuffer(event.key.packed, "<i4").astype(np.int8)
        scope = int(event.key.scope.partition("-")[2] or 0)
        padded = np.pad(prefix, (0, 8 - len(prefix)), constant_values=-1)
        for column, value in zip(columns.values(), (row, event.kind, scope, event.nbytes, len(prefix), padded), strict=True):
            column.append(value)
    wide = {"state_row": np.int32, "nbytes": np.int32}
    return Batch("events", {name: np.array(values, wide.get(name, np.int8)) for name, values in columns.items()})


def loose_keys(protocol: Protocol) -> Batch:
    """The control: a store whose key lacks the ids, on alternating-branches. Last states; networks of all seeds side by side (axis g)."""
    weights = draw(protocol.seeds)
    fresh, reuse, foreign = [], [], []
    for budget in protocol.values("budget"):
        for kept in protocol.values("kept"):
            store, hits, right, got = LengthOnly(budget, kept), 0, [], []
            for index in protocol.values("index"):
                ids, _ = request(protocol.settings, "alternating-branches", index)
                one, other = store.serve_counted(weights, ids, "owner")
                hits += other
                right.append(advance(weights, ids)[0][:, -1])
                got.append(one.states[:, -1])
            fresh.append(np.stack(right, axis=1))
            reuse.append(np.stack(got, axis=1))
            foreign.append(hits)
    arrays = {name: np.stack(v, axis=1).reshape(-1, 12, 16) for name, v in (("fresh", fresh), ("reuse", reuse))}
    return Batch("loose_keys", arrays, counts={"foreign_hits": foreign * len(protocol.seeds)})
