"""Full passes against cached ones: the same states, other amounts of work; and three mistakes that a cache invites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from labcore import network, network_variants
from labcore.batch import Batch
from labcore.faults import first_key_triangle, no_mask, reset_position
from labcore.network import VOCABULARY, Cache, Counter, Floats, Ints, Weights
from labcore.network_variants import Conditions, Rows
from labcore.protocol import Protocol
from labcore.recall_training import Plan, Trained, draw_words, train
from labcore.workers import in_order, processors

CHUNK = 64  # seeds at a time


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks; only `models` and `published` grow with the seeds."""
    yield from published(protocol)
    yield steps(protocol)
    yield triangle(protocol)
    plan = Plan(**protocol.settings["training"])
    # The two long parts side by side.
    parts = [partial(scaling, protocol), *(partial(train, seed, plan) for seed in protocol.values("network"))]
    scaled, *models = in_order(lambda part: part(), parts, processors())
    yield scaled
    yield from generation(protocol, models)


def sequence(settings: dict[str, Any], count: int | None = None) -> Ints:
    """Ids (factor * i + offset) mod 32."""
    rule = settings["tokens"]
    return np.asarray((rule["factor"] * np.arange(count or rule["count"]) + rule["offset"]) % VOCABULARY)


def in_chunks(
    weights: Weights, ids: Ints, sizes: list[int], window: int | None = None, counter: Counter | None = None
) -> tuple[Floats, Cache]:
    """States [g, n, d] of ids fed in chunks behind a growing (or sliding) cache, and the cache at the end."""
    cache, states, place = network.empty(len(weights.embedding)), [], 0
    for size in sizes:
        got, cache = network.advance(weights, ids[place : place + size], cache, window, counter)
        states.append(got)
        place += size
    return np.concatenate(states, axis=1), cache


def every_prefix(weights: Weights, ids: Ints, counter: Counter | None = None) -> Floats:
    """The last state of each prefix, every prefix computed anew [g, n, d]."""
    return np.stack([network.advance(weights, ids[: n + 1], counter=counter)[0][:, -1] for n in range(len(ids))], axis=1)


def published(protocol: Protocol) -> Iterator[Batch]:
    """Blocks models and published, a chunk of seeds at a time."""
    for start in range(0, len(protocol.seeds), CHUNK):
        weights = network.draw(protocol.seeds[start : start + CHUNK])
        yield Batch("models", {"embedding": weights.embedding, "qkv": weights.qkv})
        yield one_chunk(protocol.settings, weights)


def one_chunk(settings: dict[str, Any], weights: Weights) -> Batch:
    """The published measures of some networks."""
    g, ids, edge, window = len(weights.embedding), sequence(settings), settings["changed_from"], settings["window"]
    changed = ids.copy()
    changed[edge:] = (changed[edge:] + 1) % VOCABULARY
    all_ids, all_changed = np.tile(ids, (g, 1)), np.tile(changed, (g, 1))

    full, full_cache = network.advance(weights, ids)
    by_prefix, by_step = Counter(), Counter()
    prefixes = every_prefix(weights, ids, by_prefix)
    cached, _ = in_chunks(weights, ids, [1] * len(ids), counter=by_step)
    chunked, _ = in_chunks(weights, ids, settings["chunks"])

    behind, new = settings["wrong_chunk"]["cached"], settings["wrong_chunk"]["new"]
    _, short = network.advance(weights, ids[:behind])
    right_chunk, _ = network.advance(weights, ids[behind : behind + new], short)
    wrong_chunk = first_key_triangle.faulty(weights, all_ids[:, behind : behind + new], short)

    window_full, _ = network.advance(weights, ids, window=window)
    sliding, window_cache = in_chunks(weights, ids, [1] * len(ids), window)
    cropped, _ = network.advance(weights, ids[-window:], network.empty(g, len(ids) - window), window)

    arrays = {
        "tokens": all_ids,
        "changed_tokens": all_changed,
        "causal": full[:, :edge],
        "causal_changed": network.advance(weights, changed)[0][:, :edge],
        "unmasked": no_mask.faulty(weights, all_ids)[:, :edge],
        "unmasked_changed": no_mask.faulty(weights, all_changed)[:, :edge],
        "full": full,
        "prefixes": prefixes,
        "cached": cached,
        "chunked": chunked,
        "right_chunk": right_chunk,
        "wrong_chunk": wrong_chunk,
        "window_full": window_full,
        "sliding": sliding,
        "reset": reset_position.faulty(weights, all_ids, window),
        "window_last": window_full[:, -1],
        "cropped_last": cropped[:, -1],
    }
    counts = {
        "prefix_projected_rows": by_prefix.projected_rows,
        "cached_projected_rows": by_step.projected_rows,
        "prefix_score_elements": by_prefix.score_elements,
        "cached_score_elements": by_step.score_elements,
        "full_kv_bytes": full_cache.kv_bytes // g,
        "window_kv_bytes": window_cache.kv_bytes // g,
    }
    return Batch("published", arrays, counts={name: [value] * g for name, value in counts.items()})


def steps(protocol: Protocol) -> Batch:
    """Decoding a token at a time with one and with four heads, the networks as a batch; each step against a full pass over all so far."""
    weights, ids = network.draw(protocol.values("network")), sequence(protocol.settings)
    made: dict[str, list[Any]] = {name: [] for name in ("full", "cached", "k_shape", "rows", "elements", "bytes")}
    for heads in protocol.values("heads"):
        conditions, rows = Conditions(heads=heads), Rows()
        for step in protocol.values("step"):
            counter = Counter()
            states, rows = network_variants.advance(weights, ids[step : step + 1], conditions, rows, counter)
            made["cached"].append(states[:, -1])
            made["full"].append(network_variants.advance(weights, ids[: step + 1], conditions)[0][:, -1])
            made["k_shape"].append(network_variants.split(rows.k[0], heads).shape)
            made["rows"].append(counter.projected_rows)
            made["elements"].append(counter.score_elements)
            made["bytes"].append(sum(array.nbytes for array in rows.k + rows.v))
    arrays = {"full": np.stack(made["full"]), "cached": np.stack(made["cached"]), "k_shape": np.array(made["k_shape"], np.int64)}
    return Batch("steps", arrays, counts={"projected_rows": made["rows"], "score_elements": made["elements"], "kv_bytes": made["bytes"]})


def triangle(protocol: Protocol) -> Batch:
    """New tokens behind a cache under a causal triangle anchored at the last key and at the first, against the full pass."""
    networks = network.draw(protocol.values("network"))
    shape = protocol.blocks["triangle"].arrays["mask"].shape
    most, widest = int(shape[1]), int(shape[2])
    made: dict[str, list[Any]] = {name: [] for name in ("full", "got", "mask", "rows", "columns")}
    for g in range(len(networks.embedding)):
        weights = networks.take([g])
        for cached in protocol.values("cached"):
            for new in protocol.values("new"):
                ids = sequence(protocol.settings, cached + new)
                cache = network.advance(weights, ids[:cached])[1] if cached else network.empty(1)
                full = network.advance(weights, ids)[0][0, cached:]
                for anchor in protocol.values("anchor"):
                    if anchor == "last-key":
                        got, _ = network.advance(weights, ids[cached:], cache)
                        mask = network.visible(np.arange(cached, cached + new), np.arange(cached + new))
                    else:
                        got = first_key_triangle.faulty(weights, ids[None, cached:], cache)
                        mask = first_key_triangle.triangle(new, cached)
                    made["full"].append(padded(full, (most, network.WIDTH)))
                    made["got"].append(padded(got[0], (most, network.WIDTH)))
                    made["mask"].append(padded(mask.astype(np.uint8), (most, widest)))
                    made["rows"].append(mask.shape[0])
                    made["columns"].append(mask.shape[1])
    arrays = {name: np.stack(made[name]) for name in ("full", "got", "mask")}
    return Batch("triangle", arrays, counts={"mask_rows": made["rows"], "mask_columns": made["columns"]})


def padded(values: Any, shape: tuple[int, int]) -> Any:
    """Values in the upper left of an array of zeros."""
    out = np.zeros(shape, values.dtype)
    out[: values.shape[0], : values.shape[1]] = values
    return out


def scaling(protocol: Protocol) -> Batch:
    """Work counted while decoding sequences of several lengths, each prefix anew or behind a cache, and its growth."""
    lengths = protocol.settings["lengths"]
    weights, ids = network.draw(protocol.values("network")[:1]), sequence(protocol.settings, max(lengths))
    counters: dict[str, list[Counter]] = {"every-prefix": [], "cached": []}
    anew, behind, cache = Counter(), Counter(), network.empty(1)
    for length in range(1, max(lengths) + 1):  # shorter sequences are the beginning of longer ones, so one decoding passes them all
        network.advance(weights, ids[:length], counter=anew)
        _, cache = network.advance(weights, ids[length - 1 : length], cache, counter=behind)
        if length in lengths:
            counters["every-prefix"].append(replace(anew))
            counters["cached"].append(replace(behind))
    rows = []
    for way in protocol.values("way"):
        for work in protocol.values("work"):
            rows.append([c.projected_rows if work == "projected-rows" else c.score_elements for c in counters[way]])
    count = np.array(rows, np.int64)
    own = {"exponent": [slope(lengths, row) for row in rows], "last_exponent": [slope(lengths[-2:], row[-2:]) for row in rows]}
    return Batch("scaling", {"count": count}, own=own)


def slope(lengths: list[int], counts: list[int]) -> float:
    """Least-squares slope of log(count) over log(length)."""
    x, y = np.log(lengths), np.log(counts)
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def generation(protocol: Protocol, models: list[Trained]) -> Iterator[Batch]:
    """Blocks trained and generation: words continued greedily behind a cache, inputs at their true positions or all at 0."""
    settings, made = protocol.settings, []
    for seed, model in zip(protocol.values("network"), models, strict=True):
        words = draw_words(np.random.default_rng([seed, 2]), settings["words"], settings["training"]["word"])
        made += [(words, continued(model, words, settings["generated"], rule)) for rule in protocol.values("input_positions")]
    arrays = {
        "embedding": np.concatenate([model.weights.embedding for model in models]),
        "qkv": np.concatenate([model.weights.qkv for model in models]),
        "readout": np.stack([model.readout for model in models]),
    }
    yield Batch("trained", arrays)
    own = {
        "right_share": [share(ids == np.tile(words, ids.shape[1] // words.shape[1])) for words, ids in made],
        "repeat_share": [share(ids == np.concatenate([words[:, -1:], ids[:, :-1]], axis=1)) for words, ids in made],
        "loop_share": [share(np.array([loops(row) for row in ids])) for _, ids in made],
    }
    yield Batch("generation", {"words": np.stack([w for w, _ in made]), "generated": np.stack([ids for _, ids in made])}, own=own)


def continued(model: Trained, words: Ints, steps: int, rule: str) -> Ints:
    """Ids [b, steps] that the network says behind words [b, word], each the one of the largest logit (the first of equal ones)."""
    weights = model.many(len(words))
    states, cache = network.advance(weights, words)
    said = []
    for _ in range(steps):
        said.append((states[:, -1] @ model.readout).argmax(axis=1))
        token = said[-1][:, None]
        states, cache = network.advance(weights, token, cache) if rule == "true-positions" else reset_position.step(weights, token, cache)
    return np.stack(said, axis=1)


def share(hits: Any) -> float:
    """Number of true ones over the number of all."""
    return int(hits.sum()) / int(hits.size)


def loops(row: Ints) -> bool:
    """Whether the last eight ids have a period of one to four."""
    last = row[-8:]
    return any(np.array_equal(last[period:], last[:-period]) for period in range(1, 5))
