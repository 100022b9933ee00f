"""14_paged_memory: bytes counted by hand, traffic through rooms where everyone sits in one run of slots, attention by plain sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from audit.pages import attend
from audit.study import Derived, Study

SUM = (
    1e-12,
    "a softmax average of at most 521 rows of normal draws: sums of that many terms below 10 err by less than 521 * 10 * 2**-53 twice over",
)
BOUNDS: dict[str, tuple[float, str]] = {
    f"equal/{name}": SUM for name in ("contiguous", "gathered", "walked", "walked_others_changed", "consecutive")
}
GIVEN: dict[str, str] = {"decode/seconds": "measured time", "decode/error": "float32 of this machine's BLAS and compiler"}


def derive(study: Study) -> Iterator[Derived]:
    """Block by block."""
    yield sizes(study)
    drawn = {seed: traffic(seed, study.settings) for seed in study.seeds}
    names = ("arrival", "final", "prompt")
    yield Derived("traffic", None, {name: [drawn[seed][n] for seed in study.seeds] for n, name in enumerate(names)})
    yield memory(study, drawn)
    yield equal(study)
    yield capacity(study)


def sizes(study: Study) -> Derived:
    """A key and a value of `bytes` bytes for each layer, head, position and channel."""
    totals = []
    for case in study.rows("bytes"):
        model = study.settings["models"][case["model"]]
        total = 0
        for _ in ("key", "value"):
            for _ in range(model["layers"] * case["requests"]):
                total += model["heads"] * model["length"] * model["width"] * model["bytes"]
        totals.append(total)
    own = {"mb": 1_000_000, "mib": 1_048_576, "gb": 1_000_000_000, "gib": 1_073_741_824}
    return Derived(
        "bytes", None, counts={"formula_bytes": totals, "allocated_bytes": totals},
        own={name: [total / unit for total in totals] for name, unit in own.items()},
    )  # fmt: skip


def traffic(seed: int, settings: Any) -> tuple[list[int], list[int], list[int]]:
    """Arrival steps, final lengths and prompts."""
    rng = np.random.default_rng(seed)
    n = settings["requests"]
    final = rng.integers(settings["shortest"], settings["longest"] + 1, n).tolist()
    share = rng.integers(20, 81, n).tolist()
    gaps = rng.integers(0, settings["gap"] + 1, n).tolist()
    arrival, clock = [], 0
    for gap in gaps:
        clock += gap
        arrival.append(clock)
    return arrival, final, [max(1, f * s // 100) for f, s in zip(final, share, strict=True)]


class Room:
    """A memory of slots: who sits where. A page may lie anywhere, so of pages only the number counts; else a request has one run."""

    def __init__(self, slots: int, layout: str, longest: int) -> None:
        self.layout = layout
        self.paged = layout.startswith("paged")
        self.size = int(layout.partition("_")[2]) if self.paged else 1
        self.slots = slots // self.size * self.size
        self.longest = longest
        self.has: dict[int, int] = {}
        self.start: dict[int, int] = {}
        self.reserved = 0

    def gaps(self) -> list[tuple[int, int]]:
        """(start, length) of what is free between those who sit here, from the lowest."""
        found, at = [], 0
        for start, length in [*sorted((start, self.has[request]) for request, start in self.start.items()), (self.slots, 0)]:
            if start > at:
                found.append((at, start - at))
            at = start + length
        return found

    def admit(self, request: int, now: int, final: int) -> bool:
        if self.paged:
            self.has[request] = 0
            done = self.grow(request, now)
            if not done:
                del self.has[request]
            return done
        need = self.longest if self.layout == "max_length" else final
        for start, length in self.gaps():
            if length >= need:
                self.start[request], self.has[request] = start, need
                self.reserved += need
                return True
        return False

    def grow(self, request: int, tokens: int) -> bool:
        """Room for so many tokens of a request, if need be by more pages."""
        more = tokens - self.has[request]
        if more <= 0 or not self.paged:
            return True
        more = (more + self.size - 1) // self.size * self.size
        if self.slots - self.reserved < more:
            return False
        self.has[request] += more
        self.reserved += more
        return True

    def leave(self, request: int) -> None:
        self.reserved -= self.has.pop(request)
        self.start.pop(request, None)

    def largest(self) -> int:
        return self.slots - self.reserved if self.paged else max((length for _, length in self.gaps()), default=0)


def memory(study: Study, drawn: dict[int, Any]) -> Derived:
    rows = study.chosen("memory")
    series: dict[str, list[list[int]]] = {"written": [], "reserved": [], "largest": []}
    counts: dict[str, Any] = {}
    own: dict[str, Any] = {"utilisation": [], "internal_waste": [], "external_waste": []}
    slots = study.settings["slots"]
    for row in rows:
        case = study.rows("memory")[row]
        samples, numbers = follow(case, drawn[case["seed"]], study.settings)
        for name, values in zip(series, zip(*samples, strict=True), strict=True):
            series[name].append(list(values))
        for name, number in numbers.items():
            counts.setdefault(name, []).append(number)
        written, reserved, largest = (sum(series[name][-1]) for name in ("written", "reserved", "largest"))
        free = slots * len(samples) - reserved
        own["utilisation"].append(written / reserved)
        own["internal_waste"].append((reserved - written) / reserved)
        own["external_waste"].append((free - largest) / free)
    return Derived("memory", rows, dict(series), counts=counts, own=own)


def follow(case: Any, drawn: Any, settings: Any) -> tuple[list[tuple[int, int, int]], dict[str, int]]:
    """Samples and counts of one traffic through one layout."""
    arrival, final, prompt = drawn
    growing = case["filling"] == "growing"
    room = Room(settings["slots"], case["layout"], settings["longest"])
    comes: dict[int, list[int]] = {}
    for request, step in enumerate(arrival):
        comes.setdefault(step, []).append(request)
    inside: list[int] = []
    tokens: dict[int, int] = {}
    ends: dict[int, int] = {}
    counts = {"served": 0, "refused": 0, "refused_by_holes": 0, "preempted": 0}
    samples = []
    for step in range(settings["steps"]):
        for request in list(inside):
            if step > ends[request]:
                counts["served"] += 1
            elif not growing:
                continue
            elif tokens[request] < room.has[request] or room.grow(request, tokens[request] + 1):
                tokens[request] += 1
                continue
            else:
                counts["preempted"] += 1
            room.leave(request)
            inside.remove(request)
        for request in comes.get(step, ()):
            now = prompt[request] if growing else final[request]
            if room.admit(request, now, final[request]):
                inside.append(request)
                tokens[request] = now
                ends[request] = step + final[request] - prompt[request]
            else:
                counts["refused"] += 1
                counts["refused_by_holes"] += settings["slots"] - room.reserved >= final[request]
        if step % settings["every"] == 0:
            samples.append((sum(tokens[request] for request in inside), room.reserved, room.largest()))
    return samples, counts


def equal(study: Study) -> Derived:
    """The pages hold the rows, so all ways but the faulty one have the output of the rows alone."""
    rows = study.chosen("equal")
    heads = study.settings["exact_heads"]
    right, wrong = [], []
    for number in rows:
        case = study.rows("equal")[number]
        size, length = case["block_size"], case["rows"]
        rng = np.random.default_rng([case["seed"], length, size])
        query = rng.standard_normal((heads["query"], heads["width"]))
        own = rng.standard_normal((length, 2, heads["kv"], heads["width"]))
        pages = (length + size - 1) // size
        residue = rng.standard_normal((pages + 7, size, 2, heads["kv"], heads["width"]))
        table = rng.permutation(pages + 7).tolist()[:pages]
        if pages > 1 and all(table[n + 1] == (table[n] + 1) % (pages + 7) for n in range(pages - 1)):
            table.reverse()
        cells: dict[tuple[int, int], Any] = {(table[n // size], n % size): own[n] for n in range(length)}
        read = []
        for n in range(length):
            place = (table[0] + n // size) % (pages + 7), n % size
            read.append(cells[place] if place in cells else residue[place])
        right.append(attend(query, list(own)))
        wrong.append(attend(query, read))
    names: Sequence[str] = ("contiguous", "gathered", "walked", "walked_others_changed")
    return Derived("equal", rows, {**dict.fromkeys(names, right), "consecutive": wrong})


def capacity(study: Study) -> Derived:
    """One request after the other, until one does not fit."""
    slots, block = study.settings["capacity_slots"], study.settings["decode_block"]
    rows = study.chosen("capacity")
    most, paged = [], []
    for number in rows:
        case = study.rows("capacity")[number]
        lengths = np.random.default_rng([case["seed"], case["length"]]).integers(study.settings["shortest"], case["length"] + 1, slots)
        left, fits = slots, 0
        for length in lengths.tolist():
            left -= (length + block - 1) // block * block
            if left < 0:
                break
            fits += 1
        most.append(slots // case["length"])
        paged.append(fits)
    return Derived("capacity", rows, counts={"fits_max_length": most, "fits_paged": paged})
