"""Bytes of caches, traffic through three layouts, and decode attention over contiguous rows and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from labcore import fused
from labcore.batch import Batch
from labcore.layouts import Contiguous, Layout, Paged
from labcore.paged_attention import attend, attend_fast, consecutive, gather, walk
from labcore.protocol import Protocol
from labcore.timing import Stopwatch, shuffled


def batches(protocol: Protocol) -> Iterator[Batch]:
    """One batch per block."""
    yield sizes(protocol)
    drawn = {seed: traffic(seed, protocol.settings) for seed in protocol.seeds}
    yield Batch("traffic", {name: np.stack([drawn[seed][name] for seed in protocol.seeds]) for name in ("arrival", "final", "prompt")})
    yield memory(protocol, drawn)
    yield equal(protocol)
    yield capacity(protocol)
    yield decode(protocol)


def sizes(protocol: Protocol) -> Batch:
    """Every layer's key and value tensor of every request is really allocated, one after the other."""
    counts: dict[str, list[int]] = {"formula_bytes": [], "allocated_bytes": []}
    for case in protocol.rows("bytes"):
        m, requests = protocol.settings["models"][case["model"]], case["requests"]
        counts["formula_bytes"].append(2 * m["layers"] * m["heads"] * m["length"] * m["width"] * m["bytes"] * requests)
        shape = (m["heads"], m["length"], m["width"])
        counts["allocated_bytes"].append(sum(np.empty(shape, np.float16).nbytes for _ in range(2 * m["layers"] * requests)))
    units = {"mb": 10**6, "mib": 2**20, "gb": 10**9, "gib": 2**30}
    return Batch("bytes", counts=counts, own={name: [n / unit for n in counts["allocated_bytes"]] for name, unit in units.items()})


# -- layouts: A10 -----------------------------------------------------------------------------------------------------------------


def traffic(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Final lengths, the tokens there at arrival (a fifth to four fifths, rounded down, at least one), and arrival steps."""
    rng = np.random.default_rng(seed)
    n = settings["requests"]
    final = rng.integers(settings["shortest"], settings["longest"] + 1, n)
    prompt = np.maximum(1, final * rng.integers(20, 81, n) // 100)
    arrival = np.cumsum(rng.integers(0, settings["gap"] + 1, n))
    return {"arrival": arrival.astype(np.int32), "final": final.astype(np.int32), "prompt": prompt.astype(np.int32)}


def layout(name: str, settings: dict[str, Any]) -> Layout:
    """A fresh memory."""
    if name.startswith("paged_"):
        return Paged(settings["slots"], int(name[6:]))
    return Contiguous(settings["slots"], settings["longest"] if name == "max_length" else 0)


def simulate(room: Layout, drawn: dict[str, Any], growing: bool, settings: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """(written, reserved, largest at each sample, [3, sample]; counts).

    A step: those that are done leave, in order of arrival; each of the others writes a token (or none, where all was there at once);
    newcomers are admitted or refused for good. A request that finds no block for its next token is preempted, and gone."""
    arrival, final, prompt = (drawn[name].tolist() for name in ("arrival", "final", "prompt"))
    there: dict[int, list[int]] = {}  # request -> [tokens written, steps left]
    counts = {"served": 0, "refused": 0, "refused_by_holes": 0, "preempted": 0}
    samples = []
    waiting = 0
    for step in range(settings["steps"]):
        for request, state in list(there.items()):
            if state[1] == 0:
                room.leave(request)
                counts["served"] += 1
                del there[request]
                continue
            state[1] -= 1
            if growing:
                if room.grow(request, state[0] + 1):
                    state[0] += 1
                else:
                    room.leave(request)
                    counts["preempted"] += 1
                    del there[request]
        while waiting < len(arrival) and arrival[waiting] == step:
            now = prompt[waiting] if growing else final[waiting]
            if room.admit(waiting, now, final[waiting]):
                there[waiting] = [now, final[waiting] - prompt[waiting]]
            else:
                counts["refused"] += 1
                counts["refused_by_holes"] += settings["slots"] - room.reserved >= final[waiting]
            waiting += 1
        if step % settings["every"] == 0:
            samples.append((sum(state[0] for state in there.values()), room.reserved, room.largest))
    return np.array(samples, np.int32).T, counts


def memory(protocol: Protocol, drawn: dict[int, Any]) -> Batch:
    arrays, rows, own = [], [], []
    slots = protocol.settings["slots"]
    for case in protocol.rows("memory"):
        room = layout(case["layout"], protocol.settings)
        series, counts = simulate(room, drawn[case["seed"]], case["filling"] == "growing", protocol.settings)
        written, reserved, largest = series.tolist()
        free = [slots - r for r in reserved]
        arrays.append(series)
        rows.append(counts)
        own.append(
            {
                "utilisation": sum(written) / sum(reserved),
                "internal_waste": (sum(reserved) - sum(written)) / sum(reserved),
                "external_waste": (sum(free) - sum(largest)) / sum(free),
            }
        )
    stacked = np.stack(arrays)
    return Batch(
        "memory",
        {"written": stacked[:, 0], "reserved": stacked[:, 1], "largest": stacked[:, 2]},
        counts={name: [row[name] for row in rows] for name in rows[0]},
        own={name: [row[name] for row in own] for name in own[0]},
    )


# -- attention: equal outputs, A11 ------------------------------------------------------------------------------------------------------


def scattered(rng: np.random.Generator, rows: Any, size: int, spare: int) -> tuple[Any, Any]:
    """Rows laid into pages in random places of a memory that holds other draws: (memory, page table)."""
    pages = -(-len(rows) // size)
    memory = rng.normal(size=(pages + spare, size, *rows.shape[1:])).astype(rows.dtype)
    table = rng.permutation(pages + spare)[:pages]
    if pages > 1 and (np.diff(table) % (pages + spare) == 1).all():
        table = table[::-1].copy()  # came out in sequence: an unfragmented memory would hide the fault
    for page, block in enumerate(table):
        part = rows[page * size : (page + 1) * size]
        memory[block, : len(part)] = part
    return memory, table


def equal(protocol: Protocol) -> Batch:
    heads = protocol.settings["exact_heads"]
    found: dict[str, list[Any]] = {name: [] for name in ("contiguous", "gathered", "walked", "walked_others_changed", "consecutive")}
    for case in protocol.rows("equal"):
        rng = np.random.default_rng([case["seed"], case["rows"], case["block_size"]])
        query = rng.normal(size=(heads["query"], heads["width"]))
        rows = rng.normal(size=(case["rows"], 2, heads["kv"], heads["width"]))
        memory, table = scattered(rng, rows, case["block_size"], 7)
        other = rng.normal(size=memory.shape)
        for page, block in enumerate(table):
            part = rows[page * case["block_size"] : (page + 1) * case["block_size"]]
            other[block, : len(part)] = part
        found["contiguous"].append(attend(query, rows))
        found["gathered"].append(attend(query, gather(memory, table, len(rows))))
        found["walked"].append(walk(query, memory, table, len(rows)))
        found["walked_others_changed"].append(walk(query, other, table, len(rows)))
        found["consecutive"].append(attend(query, consecutive(memory, table, len(rows))))
    return Batch("equal", {name: np.stack(outputs) for name, outputs in found.items()})


def capacity(protocol: Protocol) -> Batch:
    """Requests of uniform length up to the maximum, in order, until the next does not fit."""
    counts: dict[str, list[int]] = {"fits_max_length": [], "fits_paged": []}
    slots, block = protocol.settings["capacity_slots"], protocol.settings["decode_block"]
    for case in protocol.rows("capacity"):
        lengths = np.random.default_rng([case["seed"], case["length"]]).integers(protocol.settings["shortest"], case["length"] + 1, slots)
        reserved = np.cumsum(-(-lengths // block) * block)
        counts["fits_max_length"].append(slots // case["length"])
        counts["fits_paged"].append(int(np.searchsorted(reserved, slots, side="right")))
    return Batch("capacity", counts=counts)


def decode(protocol: Protocol) -> Batch:
    """Seconds of the fastest of some decode steps, float32; methods in another order in each repeat."""
    heads, size = protocol.settings["decode_heads"], protocol.settings["decode_block"]
    cases = list(protocol.rows("decode"))
    seconds, errors = np.zeros(len(cases)), np.zeros(len(cases))
    kernel = fused.kernel()
    for length in protocol.values("length"):
        rng = np.random.default_rng(length)
        query = rng.normal(size=(heads["query"], heads["width"])).astype(np.float32)
        rows = rng.normal(size=(length, 2, heads["kv"], heads["width"])).astype(np.float32)
        memory, table = scattered(rng, rows, size, 64)
        flat = rows.reshape(-1, size, *rows.shape[1:])
        reference = attend(query.astype(np.float64), rows.astype(np.float64))
        methods: dict[str, Callable[[], Any]] = {
            "contiguous": lambda query=query, rows=rows: attend_fast(query, rows),  # type: ignore[misc]
            "gathered": lambda query=query, m=memory, t=table, n=length: attend_fast(query, gather(m, t, n)),  # type: ignore[misc]
            "walked": lambda query=query, m=memory, t=table, n=length: walk(query, m, t, n),  # type: ignore[misc]
        }
        if kernel is not None:
            methods["fused_contiguous"] = lambda query=query, m=flat, n=length: kernel(query, m, None, n)  # type: ignore[misc]
            methods["fused_paged"] = lambda query=query, m=memory, t=table, n=length: kernel(query, m, t, n)  # type: ignore[misc]
        for repeat in protocol.values("repeat"):
            order = [row for row, case in enumerate(cases) if (case["length"], case["repeat"]) == (length, repeat)]
            for row in shuffled(order, repeat):
                method = methods.get(cases[row]["method"])
                if method is None:
                    continue
                for _ in range(protocol.settings["decode_warm"]):
                    errors[row] = np.abs(method() - reference).max()
                turns = []
                for _ in range(protocol.settings["decode_turns"]):
                    watch = Stopwatch()
                    with watch("decode"):
                        method()
                    turns.append(watch.get("decode"))
                seconds[row] = min(turns)
    return Batch("decode", {"seconds": seconds, "error": errors})
