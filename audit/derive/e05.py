"""05: the cache against full passes, on the teaching network by exact sums; work by counting tokens and cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from audit.greedy import decode, shares
from audit.study import Derived, Study
from audit.teaching import BOUND, EMPTY, LAYERS, WIDTH, Network, Row, Shape, draw

PUBLISHED = (
    "causal causal_changed unmasked unmasked_changed full prefixes cached chunked right_chunk wrong_chunk"
    " window_full sliding reset window_last cropped_last"
)
STATES = {"published": PUBLISHED, "steps": "full cached", "triangle": "full got"}
BOUNDS = {f"{block}/{name}": BOUND for block, names in STATES.items() for name in names.split()}
GIVEN = {f"trained/{name}": "trained weights: training amplifies the rounding of a machine" for name in ("embedding", "qkv", "readout")}
PROJECTIONS, NUMBER = 3, 8
"""Projections of a token in a layer; bytes of a number."""


@lru_cache(16)
def network(seed: int, heads: int = 1) -> Network:
    """The network of a seed, its width shared by heads."""
    return Network(*draw(seed), Shape(heads))


def derive(study: Study) -> Iterator[Derived]:
    """All blocks; models also at the rows of the chosen seeds."""
    rows = sorted({*study.chosen("models"), *study.chosen("published")})
    weights = [draw(study.seeds[row]) for row in rows]
    yield Derived("models", rows, {"embedding": [pair[0] for pair in weights], "qkv": [pair[1] for pair in weights]})
    yield published(study)
    yield steps(study)
    yield triangle(study)
    yield scaling(study)
    yield generation(study)


def ids(study: Study, count: int) -> list[int]:
    """The sequence of the protocol."""
    rule = study.settings["tokens"]
    return [(rule["factor"] * place + rule["offset"]) % 32 for place in range(count)]


def one_by_one(own: Network, tokens: Sequence[int], window: int | None = None, at_zero: bool = False) -> list[Row]:
    """States of tokens that come one at a time behind the cache; `at_zero`: every input stands at position 0."""
    cache, states = EMPTY, list[Row]()
    for token in tokens:
        step = own.run([token], cache, window, input_positions=[0] if at_zero else None)
        cache = step.cache
        states += step.states
    return states


def published(study: Study) -> Derived:
    """Three parts: a changed future, the cache against the full pass, the window."""
    settings, chosen = study.settings, study.chosen("published")
    count, start, window = settings["tokens"]["count"], settings["changed_from"], settings["window"]
    tokens = ids(study, count)
    changed = [*tokens[:start], *((token + 1) % 32 for token in tokens[start:])]
    arrays: dict[str, list[Any]] = {name: [] for name in ("tokens", "changed_tokens", *PUBLISHED.split())}
    for row in chosen:
        own = network(study.rows("published")[row]["seed"])
        full, wide = own.run(tokens).states, own.run(tokens, window=window).states
        chunked, cache = list[Row](), EMPTY
        for length in settings["chunks"]:
            part = own.run(tokens[len(cache) : len(cache) + length], cache)
            chunked, cache = [*chunked, *part.states], part.cache
        before, new = settings["wrong_chunk"]["cached"], settings["wrong_chunk"]["new"]
        behind, chunk = own.run(tokens[:before]).cache, tokens[before : before + new]
        tail = range(count - window, count)
        values = {
            "tokens": tokens,
            "changed_tokens": changed,
            "causal": full[:start],
            "causal_changed": own.run(changed).states[:start],
            "unmasked": own.run(tokens, causal=False).states[:start],
            "unmasked_changed": own.run(changed, causal=False).states[:start],
            "full": full,
            "prefixes": full,  # the last state of a shorter pass is the same sum over the same keys
            "cached": one_by_one(own, tokens),
            "chunked": chunked,
            "right_chunk": own.run(chunk, behind).states,
            "wrong_chunk": own.run(chunk, behind, query_positions=range(new)).states,
            "window_full": wide,
            "sliding": one_by_one(own, tokens, window),
            "reset": one_by_one(own, tokens, window, at_zero=True),
            "window_last": wide[-1],
            "cropped_last": own.run(tokens[-window:], window=window, positions=tail).states[-1],
        }
        for name, value in values.items():
            arrays[name].append(value)
    counts = {f"{way}_{work}": [total(way, work, count)] * len(chosen) for way in ("prefix", "cached") for work in WORK}
    counts |= {"full_kv_bytes": [kv_bytes(count)] * len(chosen), "window_kv_bytes": [kv_bytes(window)] * len(chosen)}
    return Derived("published", chosen, arrays, counts=counts)


WORK = ("projected_rows", "score_elements")


def total(way: str, work: str, count: int) -> int:
    """Work of `count` tokens: every prefix anew, or one at a time behind the cache."""
    result = 0
    for length in range(1, count + 1):
        queries = length if way == "prefix" else 1
        result += LAYERS * queries * (PROJECTIONS if work == "projected_rows" else length)
    return result


def kv_bytes(count: int) -> int:
    """Bytes of K and V of `count` tokens in all layers."""
    return 2 * LAYERS * count * WIDTH * NUMBER


def steps(study: Study) -> Derived:
    """All networks as a batch, a token at a time, with one head and with more."""
    chosen, seeds = study.chosen("steps"), study.protocol["factors"]["network"]
    tokens = ids(study, study.settings["tokens"]["count"])
    arrays: dict[str, list[Any]] = {"full": [], "cached": [], "k_shape": []}
    counts: dict[str, list[int]] = {"projected_rows": [], "score_elements": [], "kv_bytes": []}
    alone = {(heads, seed): one_by_one(network(seed, heads), tokens) for heads in study.protocol["factors"]["heads"] for seed in seeds}
    for row in chosen:
        heads, step = study.rows("steps")[row]["heads"], study.rows("steps")[row]["step"]
        arrays["full"].append([network(seed, heads).run(tokens).states[step] for seed in seeds])
        arrays["cached"].append([alone[heads, seed][step] for seed in seeds])
        arrays["k_shape"].append([len(seeds), heads, step + 1, WIDTH // heads])
        counts["projected_rows"].append(PROJECTIONS * LAYERS)
        counts["score_elements"].append(LAYERS * heads * (step + 1))
        counts["kv_bytes"].append(len(seeds) * kv_bytes(step + 1))
    return Derived("steps", chosen, arrays, counts=counts)


def triangle(study: Study) -> Derived:
    """New tokens behind cached ones, under a triangle anchored at the last key or at the first."""
    chosen, specs = study.chosen("triangle"), study.plan.blocks["triangle"].arrays
    height, width = (int(size) for size in specs["mask"].shape[1:])
    arrays: dict[str, list[Any]] = {"full": [], "got": [], "mask": []}
    counts: dict[str, list[int]] = {"mask_rows": [], "mask_columns": []}
    for row in chosen:
        factors = study.rows("triangle")[row]
        cached, new, own = factors["cached"], factors["new"], network(factors["network"])
        tokens = ids(study, cached + new)
        shift = cached if factors["anchor"] == "last-key" else 0
        cache = own.run(tokens[:cached]).cache if cached else EMPTY
        got = own.run(tokens[cached:], cache, query_positions=range(shift, shift + new)).states
        empty = [(0.0,) * WIDTH] * (height - new)
        arrays["full"].append([*own.run(tokens).states[cached:], *empty])
        arrays["got"].append([*got, *empty])
        arrays["mask"].append([[query < new and key <= query + shift for key in range(width)] for query in range(height)])
        counts["mask_rows"].append(new)
        counts["mask_columns"].append(cached + new)
    return Derived("triangle", chosen, arrays, counts=counts)


def scaling(study: Study) -> Derived:
    """Work by length, and the exponents of its growth."""
    chosen, lengths = study.chosen("scaling"), study.settings["lengths"]
    table, fitted, last = [], [], []
    for row in chosen:
        factors = study.rows("scaling")[row]
        way, work = factors["way"].removeprefix("every-"), factors["work"].replace("-", "_")
        counts = [total(way, work, length) for length in lengths]
        table.append(counts)
        points = [(math.log(length), math.log(count)) for length, count in zip(lengths, counts, strict=True)]
        fitted.append(slope(points))
        last.append(slope(points[-2:]))
    return Derived("scaling", chosen, {"count": table}, own={"exponent": fitted, "last_exponent": last})


def generation(study: Study) -> Derived:
    """What the trained networks, as stored, say behind words that the seeds draw."""
    chosen, settings, seeds = study.chosen("generation"), study.settings, study.protocol["factors"]["network"]
    length, count = settings["training"]["word"], settings["words"]
    arrays: dict[str, list[Any]] = {"words": [], "generated": []}
    own: dict[str, list[float]] = {}
    for row in chosen:
        factors = study.rows("generation")[row]
        at = [seeds.index(factors["network"])]
        embedding, qkv, readout = (study.read("trained", name, at)[0] for name in ("embedding", "qkv", "readout"))
        words = np.random.default_rng([factors["network"], 2]).integers(0, 32, (count, length))
        said = decode(words, settings["generated"], embedding, qkv, readout, factors["input_positions"] == "reset-to-0")
        arrays["words"].append(words)
        arrays["generated"].append(said)
        for name, value in shares(words.tolist(), said).items():
            own.setdefault(name, []).append(value)
    return Derived("generation", chosen, arrays, own=own)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line."""
    x, y = (math.fsum(point[axis] for point in points) / len(points) for axis in (0, 1))
    return math.fsum((a - x) * (b - y) for a, b in points) / math.fsum((a - x) ** 2 for a, _ in points)
