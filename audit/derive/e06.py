"""06: six conditions of prefix reuse and what follows from the key, on the teaching network by exact sums and a store without numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from audit.prefix_acts import accesses, refusals, trace
from audit.store_checks import fails
from audit.study import Derived, Study
from audit.teaching import BOUND, LAYERS, Cache, Network, Pass, Shape, draw

REASON = "a row of K or V is a sum of 16 products with weights below 1.3 of a state that is good to 3e-13 / 40 (FORMAT 8)"
STATES = {
    "published": "fresh unchecked guarded",
    "probes": "fresh unchecked",
    "twice": "second second_alone second_other aliased aliased_other",
    "left_out": "fresh unchecked",
    "misses": "fresh guarded",
    "first_result": "fresh first unchecked guarded",
    "one_id": "fresh unchecked guarded",
    "suffix_key": "fresh guarded",
}
ROWS = {"twice": "before between after", "misses": "before after"}
BOUNDS = {f"{block}/{name}": BOUND for block, names in STATES.items() for name in names.split()}
BOUNDS |= {f"{block}/{name}": (1e-12, REASON) for block, names in ROWS.items() for name in names.split()}
GIVEN = {
    "request_time/seconds": "a measured time",
    "hash_time/seconds": "a measured time",
    "hash_time/revision_seconds": "a measured time",
    "insertions/changed": "an act on live objects, seen when it was done",
    "boundary/succeeds": "an act in a live interpreter, seen when it was done",
    "refusals/clear": "the words of an error message",
}
REUSABLE = ("same-prefix", "new-suffix")
"""The conditions under which nothing that the key holds has changed."""


Change = tuple[str, Any, float]
"""(array, index, what is added there)."""


@lru_cache(64)
def network(seed: int, change: Change | None = None, shape: Shape = Shape()) -> Network:  # noqa: B008
    """The network of a seed with a change; made once, so that equal passes of all blocks are computed once."""
    embedding, qkv = draw(seed)
    if change is not None:
        (embedding if change[0] == "embedding" else qkv)[change[1]] += change[2]
    return Network(embedding, qkv, shape)


def key_changed(seed: int, by: float) -> Network:
    """Element [0, 0] of the first layer's W_K changed; by 0, the network of the seed itself."""
    return network(seed, ("qkv", (0, 1, 0, 0), by) if by else None)


def stored_cache(settings: dict[str, Any], seed: int) -> Cache:
    """The cache of the prefix, as it was stored."""
    return network(seed).run(settings["prefix"]).cache


def request(condition: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What the continuing request brings under a condition: prefix, suffix, window (0: none), scope, weight_change."""
    prefix, suffix = list(settings["prefix"]), settings["suffix"]
    if condition == "edited-prefix":
        prefix[settings["edited_place"]] = settings["edited_id"]
    return {
        "prefix": prefix,
        "suffix": settings["new_suffix"] if condition == "new-suffix" else suffix,
        "window": settings["window"] if condition == "different-window" else 0,
        "scope": int(condition == "different-scope"),
        "weight_change": settings["weight_change"] if condition == "different-weights" else 0.0,
    }


def answers(settings: dict[str, Any], seed: int, asked: dict[str, Any], hit: bool) -> tuple[dict[str, Any], int]:
    """(fresh, unchecked and guarded states [4, 16], projected rows) of a request."""
    window, count = asked["window"] or None, len(asked["suffix"])
    own = key_changed(seed, asked["weight_change"])
    full = own.run([*asked["prefix"], *asked["suffix"]], window=window)
    blind = own.run(asked["suffix"], stored_cache(settings, seed), window)
    guarded = blind if hit else full
    states = {"fresh": full.states[-count:], "unchecked": blind.states, "guarded": guarded.states[-count:]}
    return states, 3 * LAYERS * (count if hit else count + len(asked["prefix"]))


Row = Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, bool], dict[str, int]]]


def over(study: Study, block: str, row: Row) -> Derived:
    """A block derived row by row: `row` gives arrays, decisions and counts from a row's factors."""
    chosen = study.chosen(block)
    factors = study.rows(block)
    parts: tuple[dict[str, list[Any]], ...] = ({}, {}, {})
    for number in chosen:
        made: tuple[dict[str, Any], ...] = row(factors[number])
        for part, values in zip(parts, made, strict=True):
            for name, value in values.items():
                part.setdefault(name, []).append(value)
    return Derived(block, chosen, arrays=parts[0], decisions=parts[1], counts=parts[2])


def derive(study: Study) -> Iterator[Derived]:
    """All blocks; models also at the rows that a chosen case points to."""
    settings = study.settings
    pointed = {study.seeds.index(study.rows("published")[row]["seed"]) for row in study.chosen("published")}
    rows: Sequence[int] = sorted(pointed | set(study.chosen("models")))
    weights = [draw(study.seeds[row]) for row in rows]
    yield Derived("models", rows, {"embedding": [pair[0] for pair in weights], "qkv": [pair[1] for pair in weights]})
    yield from _six(study, settings)
    yield from _keys(study, settings)
    yield over(study, "twice", lambda row: (_twice(settings, row["network"]), {}, {}))
    yield over(study, "refusals", lambda row: ({}, refusals(row["id_kind"], row["argument"]), {}))
    yield trace(study)
    yield over(study, "access", lambda row: ({}, accesses(row["store_kind"], row["claimant"]), {}))
    yield over(study, "checks", lambda row: ({}, {"fails": fails(row["store_fault"], row["store_check"])}, {}))


def _six(study: Study, settings: dict[str, Any]) -> Iterator[Derived]:
    """The blocks that are made of the six conditions."""

    def published(row: dict[str, Any]) -> Any:
        asked, hit = request(row["condition"], settings), row["condition"] in REUSABLE
        states, cost = answers(settings, row["seed"], asked, hit)
        return {**asked, **states, "model": study.seeds.index(row["seed"])}, {"reused": hit}, {"projected_rows": cost}

    def misses(row: dict[str, Any]) -> Any:
        states, cost = answers(settings, row["network"], request(row["refusing"], settings), False)
        held = _rows(stored_cache(settings, row["network"]))
        arrays = {"fresh": states["fresh"], "guarded": states["guarded"], "before": held, "after": held}
        return arrays, {"raised": False, "reused": False}, {"projected_rows": cost}

    def first_result(row: dict[str, Any]) -> Any:
        states, _ = answers(settings, row["network"], request(row["condition"], settings), row["condition"] in REUSABLE)
        first, _ = answers(settings, row["network"], request("same-prefix", settings), True)
        return {**states, "first": first["fresh"]}, {}, {}

    def one_id(row: dict[str, Any]) -> Any:
        asked = request("same-prefix", settings)
        asked["prefix"][row["place"]] = settings["edited_id"]
        hit = asked["prefix"] == settings["prefix"]
        states, cost = answers(settings, row["network"], asked, hit)
        return states, {"reused": hit}, {"projected_rows": cost}

    def suffix_key(row: dict[str, Any]) -> Any:
        asked = request(row["condition"], settings)
        same = row["key_kind"] == "without-suffix" or asked["suffix"] == settings["suffix"]
        hit = same and row["condition"] in REUSABLE
        states, cost = answers(settings, row["network"], asked, hit)
        return {"fresh": states["fresh"], "guarded": states["guarded"]}, {"reused": hit}, {"projected_rows": cost}

    for row in (published, misses, first_result, one_id, suffix_key):
        yield over(study, row.__name__, row)


def _keys(study: Study, settings: dict[str, Any]) -> Iterator[Derived]:
    """The blocks that ask what a key must hold."""
    stored = settings["stored"]

    def probe(name: str) -> dict[str, Any]:
        return {**stored, "change": None, **settings["probes"][name]}

    def probes(row: dict[str, Any]) -> Any:
        asked = probe(row["probe"])
        change = asked["change"]
        shape = Shape(asked["heads"], tuple(asked["layers"]), asked["position_base"], asked["score_power"])
        amount = (change["array"], tuple(change["index"]), settings["weight_change"]) if change else None
        own = network(row["network"], amount, shape)
        cache = network(row["network"]).run(stored["prefix"]).cache
        full = own.run([*asked["prefix"], *asked["suffix"]], window=asked["window"] or None)
        return {"fresh": full.states[-4:], "unchecked": own.run(asked["suffix"], cache, asked["window"] or None).states}, {}, {}

    def components(asked: dict[str, Any]) -> dict[str, Any]:
        names = {"scope": "scope", "implementation": "score_power", "dimensions": "heads", "layers": "layers", "window": "window"}
        names |= {"position-rule": "position_base", "weights": "change", "prefix": "prefix"}
        return {component: asked[name] for component, name in names.items()}

    def dropped(row: dict[str, Any]) -> Any:
        one, other = components(probe(row["probe"])), components({**stored, "change": None})
        return {}, {"reused": all(one[name] == other[name] for name in one if name != row["component"])}, {}

    def left_out(row: dict[str, Any]) -> Any:
        seed, omission = row["network"], row["omission"]
        own, cache = network(seed), stored_cache(settings, seed)
        if omission == "revision":
            own = key_changed(seed, settings["weight_change"])
        elif omission == "adapter":
            own = network(seed, ("qkv", (0, 2), settings["adapter_step"]))
        elif omission == "position-base":
            own = network(seed, None, Shape(position_base=settings["other_position_base"]))
        elif omission == "cache-dtype":
            keys, values = ([[[_half(x) for x in line] for line in layer] for layer in part] for part in (cache.keys, cache.values))
            cache = Cache(_tuples(keys), _tuples(values), cache.positions, cache.next_position, ("float16", cache.key))
        full = own.run([*settings["prefix"], *settings["suffix"]])
        arrays = {"fresh": full.states[-4:], "unchecked": own.run(settings["suffix"], cache).states}
        return arrays, {"reused_without": True, "reused_with": omission == "nothing"}, {}

    for row in (probes, dropped, left_out):
        yield over(study, row.__name__, row)


def _twice(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """One entry continued twice, rightly and by a store that extends the entry in place."""
    own, cache = network(seed), stored_cache(settings, seed)

    def extended(first: Sequence[int]) -> Pass:
        return own.run(settings["new_suffix"], own.run(first, cache).cache)

    second, held = own.run(settings["new_suffix"], cache).states, _rows(cache)
    return {
        **dict.fromkeys(("before", "between", "after"), held),
        **dict.fromkeys(("second", "second_alone", "second_other"), second),
        "aliased": extended(settings["suffix"]).states,
        "aliased_other": extended(settings["other_first_suffix"]).states,
    }


def _rows(cache: Cache) -> Any:
    """K and V of a cache [key or value, layer, key, width]."""
    return [cache.keys, cache.values]


def _half(value: float) -> float:
    return float(np.float16(value))


def _tuples(part: Any) -> Any:
    return tuple(tuple(tuple(line) for line in layer) for layer in part)
