"""07: cuts found again by comparing ids one at a time, states by exact sums behind cropped caches of the auditor's own network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from audit import teaching
from audit.study import Derived, Study

STATES = {
    "published": ("fresh", "reuse", "wrong"),
    "inside_block": ("fresh", "rounded_down", "rounded_up"),
    "identities": ("fresh", "unchecked"),
}
BOUNDS = {f"{block}/{name}": teaching.BOUND for block, names in STATES.items() for name in names} | {"edits/difference": teaching.BOUND}
GIVEN: dict[str, str] = {}
Ids = Sequence[int]


def derive(study: Study) -> Iterator[Derived]:
    networks = {seed: teaching.Network.of_seed(seed) for seed in study.seeds}
    yield _published(study, networks)
    yield _grains(study)
    yield _inside(study, networks)
    yield _edits(study, networks)
    yield _identities(study, networks)


def agreeing(one: Ids, other: Ids) -> int:
    """How many leading ids are equal."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def best(stored: list[Ids], query: Ids, windowed: bool) -> tuple[int | None, int]:
    """Which stored sequence, oldest first in the list, and how many of its ids: the newest of the longest."""
    found, length = None, 0
    for number in reversed(range(len(stored))):
        shared = agreeing(stored[number], query)
        if shared == len(query):
            shared -= 1
        if windowed and shared != len(stored[number]):
            continue
        if shared > length:
            found, length = number, shared
    return found, length


def _padded(rows: Sequence[Sequence[float]], start: int) -> list[list[float]]:
    table = [[0.0] * teaching.WIDTH for _ in range(12)]
    for at, row in enumerate(rows):
        table[start + at] = list(row)
    return table


def _published(study: Study, networks: dict[int, teaching.Network]) -> Derived:
    chosen, rows = study.chosen("published"), study.rows("published")
    arrays: dict[str, list[Any]] = {"query": [], "fresh": [], "reuse": [], "wrong": []}
    cuts, work = [], []
    stored = list(study.settings["stored"].values())[-study.settings["capacity"] :]
    for number in chosen:
        network, case = networks[rows[number]["seed"]], study.settings["conditions"][rows[number]["condition"]]
        query, window = case["query"], case["window"]
        mine = stored if case["scope"] == study.settings["owner"] else []
        which, cut = best(mine, query, window is not None)
        fresh = network.run(query, window=window)
        if which is None:
            reuse = wrong = fresh
        else:
            cache = network.run(mine[which], window=window).cache
            # a window's cache is continued whole, so its rows are not the first `cut` of the sequence
            reuse = network.run(query[cut:], cache if window else cache.crop(cut), window)
            wrong = reuse if window else network.run(query[cut:], cache.crop(cut, cache.next_position))
        cuts.append(cut)
        work.append(reuse.projected_rows)
        arrays["query"].append(list(query) + [-1] * (12 - len(query)))
        arrays["fresh"].append(_padded(fresh.states[cut:], cut))
        arrays["reuse"].append(_padded(reuse.states, cut))
        arrays["wrong"].append(_padded(wrong.states, cut))
    return Derived(
        "published",
        chosen,
        {k: np.array(v) for k, v in arrays.items()},
        {"reused": [cut > 0 for cut in cuts]},
        {"cut": cuts, "projected_rows": work},
    )


def _stored(study: Study) -> tuple[list[int], list[list[int]]]:
    """The long sequence with its extension, and the three that are stored."""
    settings = study.settings
    whole = [(7 * i + 3) % 32 for i in range(settings["extended"])]
    long = whole[: settings["long"]]
    return whole, [long] + [[(t + 2) % 32 if i >= at else t for i, t in enumerate(long)] for at in settings["branches"]]


def _question(whole: list[int], shared: int, long: int) -> list[int]:
    return whole if shared >= long else [(t + 1) % 32 if i >= shared else t for i, t in enumerate(whole)]


def _entries(grain: str, stored: list[list[int]]) -> int:
    """Distinct prefixes of full blocks; for the tree: ends, and places where two sequences part behind common ids."""
    if grain in ("token", "whole"):
        return len({tuple(ids) for ids in stored})
    if grain == "radix":
        pairs = [(a, b) for a in stored for b in stored if a is not b]
        nodes = {tuple(ids) for ids in stored} | {tuple(a[: agreeing(a, b)]) for a, b in pairs}
        return len(nodes - {()})
    size = int(grain.split("_")[1])
    return len({tuple(ids[:end]) for ids in stored for end in range(size, len(ids) + 1, size)})


def _grains(study: Study) -> Derived:
    chosen, rows = study.chosen("grains"), study.rows("grains")
    whole, stored = _stored(study)
    counts: dict[str, list[int]] = {"reusable": [], "projected_rows": [], "entries": []}
    for number in chosen:
        grain, shared = rows[number]["grain"], rows[number]["shared"]
        question = _question(whole, shared, study.settings["long"])
        found = max(agreeing(ids, question) for ids in stored)
        if grain == "whole":
            found = max([len(ids) for ids in stored if question[: len(ids)] == ids], default=0)
        elif grain.startswith("block"):
            found -= found % int(grain.split("_")[1])
        counts["reusable"].append(found)
        counts["projected_rows"].append(3 * teaching.LAYERS * (len(question) - found))
        counts["entries"].append(_entries(grain, stored))
    return Derived("grains", chosen, counts=dict(counts))


def _inside(study: Study, networks: dict[int, teaching.Network]) -> Derived:
    chosen, rows = study.chosen("inside_block"), study.rows("inside_block")
    whole, (long, *_) = _stored(study)
    arrays: dict[str, list[Any]] = {name: [] for name in STATES["inside_block"]}
    down, up = [], []
    for number in chosen:
        network, size, shared = networks[rows[number]["seed"]], rows[number]["block_size"], rows[number]["inside"]
        question, cache = _question(whole, shared, len(long)), network.run(long).cache
        down.append(shared - shared % size)
        up.append(down[-1] + (size if shared % size else 0))
        arrays["fresh"].append(network.run(question).states[-1])
        for name, cut in (("rounded_down", down[-1]), ("rounded_up", up[-1])):
            behind = network.run(question[cut:], cache.crop(cut)) if cut else network.run(question)
            arrays[name].append(behind.states[-1])
    return Derived("inside_block", chosen, {k: np.array(v) for k, v in arrays.items()}, counts={"down": down, "up": up})


def _edits(study: Study, networks: dict[int, teaching.Network]) -> Derived:
    chosen, rows = study.chosen("edits"), study.rows("edits")
    length = study.settings["conversation"]
    ids = [(7 * i + 3) % 32 for i in range(length)]
    matched, difference, agree, valid = [], [], [], []
    for number in chosen:
        network, place = networks[rows[number]["seed"]], rows[number]["place"]
        old, new = network.run(ids).cache, network.run([(t + 1) % 32 if i == place else t for i, t in enumerate(ids)]).cache
        pairs = [*zip(old.keys, new.keys, strict=True), *zip(old.values, new.values, strict=True)]
        change = [max(teaching.error(a[:end], b[:end]) for a, b in pairs) for end in range(1, length + 1)]
        same = [end <= place for end in range(1, length + 1)]
        matched.append(same)
        difference.append(change)
        agree.append(all(equal == (error <= study.protocol["tolerance"]) for equal, error in zip(same, change, strict=True)))
        valid.append(sum(same))
    return Derived(
        "edits", chosen, {"matched": np.array(matched, np.uint8), "difference": np.array(difference)}, {"agree": agree},
        {"valid": valid, "invalid": [length - n for n in valid]},
    )  # fmt: skip


def _identities(study: Study, networks: dict[int, teaching.Network]) -> Derived:
    chosen, rows = study.chosen("identities"), study.rows("identities")
    settings = study.settings
    query, prefix = settings["conditions"]["append"]["query"], settings["stored"]["a"]
    arrays: dict[str, list[Any]] = {"fresh": [], "unchecked": []}
    cuts = []
    for number in chosen:
        seed, change = rows[number]["seed"], rows[number]["change"]
        model = networks[seed]
        cache = model.run(prefix).cache
        if change == "weights":
            embedding, qkv = teaching.draw(seed)
            qkv[0, 1, 0, 0] += settings["weight_step"]
            model = teaching.Network(embedding, qkv)
        window = settings["window"] if change == "window" else None
        cuts.append(agreeing(prefix, query) if change == "none" else 0)
        arrays["fresh"].append(model.run(query, window=window).states[len(prefix) :])
        arrays["unchecked"].append(model.run(query[len(prefix) :], cache, window).states)
    return Derived("identities", chosen, {k: np.array(v) for k, v in arrays.items()}, {"reused": [cut > 0 for cut in cuts]}, {"cut": cuts})
