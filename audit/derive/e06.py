"""06: six conditions of prefix reuse, on the teaching network by loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from audit.study import Derived, Study
from audit.teaching import BOUND, LAYERS, Network, draw

BOUNDS = {f"published/{name}": BOUND for name in ("fresh", "unchecked", "guarded")}
GIVEN: dict[str, str] = {}
REUSABLE = ("same-prefix", "new-suffix")
"""The conditions under which nothing that the key holds has changed."""


@cache
def network(seed: int, change: float) -> Network:
    """The network of a seed, element [0, 0] of the first layer's W_K changed by `change`."""
    embedding, qkv = draw(seed)
    qkv[0, 1, 0, 0] += change
    return Network(embedding, qkv)


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


def published(study: Study, rows: Sequence[int]) -> Derived:
    """The published block at these rows."""
    factors = study.rows("published")
    arrays: dict[str, list[Any]] = {name: [] for name in study.plan.blocks["published"].arrays}
    reused, projected = [], []
    for row in rows:
        seed, condition = factors[row]["seed"], factors[row]["condition"]
        asked = request(condition, study.settings)
        window, count = asked["window"] or None, len(asked["suffix"])
        own, stored = network(seed, asked["weight_change"]), network(seed, 0.0).run(study.settings["prefix"]).cache
        full = own.run([*asked["prefix"], *asked["suffix"]], window=window)
        blind = own.run(asked["suffix"], stored, window)
        hit = condition in REUSABLE
        guarded = blind if hit else full
        states = {"fresh": full.states[-count:], "unchecked": blind.states, "guarded": guarded.states[-count:]}
        for name, value in {**asked, **states, "model": study.seeds.index(seed)}.items():
            arrays[name].append(value)
        reused.append(hit)
        projected.append(3 * LAYERS * (count if hit else count + len(asked["prefix"])))
    return Derived("published", rows, arrays, {"reused": reused}, {"projected_rows": projected})


def models(study: Study, rows: Sequence[int]) -> Derived:
    """The weights that the seeds of these rows draw."""
    weights = [draw(study.seeds[row]) for row in rows]
    return Derived("models", rows, {"embedding": [pair[0] for pair in weights], "qkv": [pair[1] for pair in weights]})


def derive(study: Study) -> Iterator[Derived]:
    """All blocks; models also at the rows that a chosen case points to."""
    rows = study.chosen("published")
    pointed = {study.seeds.index(study.rows("published")[row]["seed"]) for row in rows}
    yield models(study, sorted(pointed | set(study.chosen("models"))))
    yield published(study, rows)
