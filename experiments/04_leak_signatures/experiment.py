"""Planted leaks: their weights, what they change, and a classifier that names them from attention rows alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.attention import entropy, logits, softmax
from labcore.batch import Batch
from labcore.faults import leak_patterns
from labcore.leak_signatures import NAMES, classify, logged
from labcore.protocol import Protocol

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks."""
    yield _published(protocol)
    yield from _entropy(protocol)
    yield _boundary(protocol)
    yield _whole(protocol)
    yield _position(protocol)
    yield from _classifier(protocol)
    yield from _usage(protocol)


@dataclass(frozen=True)
class Pair:
    """A and B of equal length: scores of A's queries on all keys at scale 1 [step, query, key], values [key, d], readout [d, identity]."""

    scores: Floats
    v: Floats
    readout: Floats

    @property
    def own(self) -> int:
        return self.scores.shape[1]


def drawn(settings: dict[str, Any], seed: int, length: int) -> Pair:
    """q, k, v, readout, in this order, from default_rng([seed, length])."""
    rng = np.random.default_rng([seed, length])
    d = settings["width"]
    q, k = rng.normal(size=(settings["steps"], length, d)), rng.normal(size=(2 * length, d))
    v, readout = rng.normal(size=(2 * length, d)), rng.normal(size=(d, settings["identities"]))
    return Pair(logits(q, k), v, readout)


def _published(protocol: Protocol) -> Batch:
    """The printed rows as softmax: logits are the logarithms of the healthy weights, the foreign one gives the printed 0.20."""
    s = protocol.settings
    healthy, printed = np.array(s["printed_healthy"]), np.array(s["printed_faulty"])
    seen = healthy > 0
    leaked = printed[3]
    scores = np.log(np.where(seen, healthy, 1.0))
    scores[3] = math.log(leaked / (1 - leaked))
    faulty = softmax(scores[None], (seen | (printed > 0))[None])
    scaled = np.where(seen, (1 - leaked) * healthy, np.where(printed > 0, leaked, 0.0))
    arrays = {"healthy": softmax(scores[None], seen[None]), "faulty": faulty, "printed": printed[None], "scaled": scaled[None]}
    return Batch("published", arrays)


def _entropy(protocol: Protocol) -> Iterator[Batch]:
    """Entropy of 16 queries over a growing cache."""
    s, lengths = protocol.settings, protocol.values("cached")
    decisions, slopes = [], []
    for seed in protocol.seeds:
        rng = np.random.default_rng(seed)
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(s["entropy_keys"], s["width"]))
        scores = logits(q, k)
        for scale in protocol.values("scale"):
            rows = [entropy(softmax(scale * scores[:, :n], np.ones((s["samples"], n), bool))) for n in lengths]
            yield Batch("entropy", {"entropy": np.stack(rows)}, own={"ceiling": [math.log(n) for n in lengths]})
            means = np.array([row.mean() for row in rows])
            decisions.append(bool((np.diff(means) > 0).all()))
            slopes.append(float(np.polyfit(np.log(lengths), means, 1)[0]))
    yield Batch("rising", decisions={"rises": decisions}, own={"slope": slopes})


def _boundary(protocol: Protocol) -> Batch:
    """A's range of keys is one too long: what stands there depends on the layout."""
    s, on_b, on_stale = protocol.settings, [], []
    for row in protocol.rows("boundary"):
        length, paged = row["length"], row["layout"].endswith("paged")
        rng = np.random.default_rng([row["seed"], length, s["samples"]])
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(length, s["width"]))
        b_first, stale = rng.normal(size=(2, 1, s["width"]))
        # Through a page table the next place is the tail of A's last page; with that page full, it is entry 0 of the padded table.
        own_tail = paged and length % s["page_size"] != 0
        is_b = row["layout"].startswith("adjacent") and not own_tail
        keys = np.concatenate([k, b_first if is_b else stale])
        weights = softmax(logits(q, keys, row["scale"]), np.ones((s["samples"], length + 1), bool))[:, -1]
        on_b.append(weights if is_b else np.zeros_like(weights))
        on_stale.append(np.zeros_like(weights) if is_b else weights)
    arrays = {"on_b": np.stack(on_b), "on_stale": np.stack(on_stale)}
    inside = ((arrays["on_b"] >= 0.1) & (arrays["on_b"] <= 0.5)).sum(1)
    return Batch("boundary", arrays, counts={"inside": inside, "taken": np.full(len(inside), s["samples"])})


def _whole(protocol: Protocol) -> Batch:
    """No mask at all: 16 queries see A and B."""
    s, leaks, uneven = protocol.settings, [], []
    for row in protocol.rows("whole"):
        own, foreign = row["own"], row["others"]
        rng = np.random.default_rng([row["seed"], own, foreign])
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(own + foreign, s["width"]))
        weights = softmax(logits(q, k, row["scale"]), np.ones((s["samples"], own + foreign), bool))[:, own:]
        leaks.append(weights.sum(1))
        uneven.append(weights.max(1) / weights.mean(1))
    return Batch("whole", {"leak": np.stack(leaks), "unevenness": np.stack(uneven)})


def _position(protocol: Protocol) -> Batch:
    """Every single foreign cell opened in turn, first step only: its weight, and whether the argmax of the output changes."""
    means, largest, cells, changed = [], [], [], []
    for row in protocol.rows("position"):
        pair = drawn(protocol.settings, row["seed"], row["length"])
        n, scores = pair.own, row["scale"] * pair.scores[0]
        powers = np.exp(scores - scores.max(1, keepdims=True))
        own = np.where(np.tri(n, dtype=bool), powers[:, :n], 0.0)
        foreign = powers[:, n:]
        total = own.sum(1)[:, None] + foreign
        weight = foreign / total
        before = np.argmax(own @ pair.v[:n] @ pair.readout, axis=1)
        mixed = (own @ pair.v[:n])[:, None] + foreign[..., None] * pair.v[n:]
        after = np.argmax(mixed @ pair.readout, axis=2)
        means.append(float(weight.mean()))
        largest.append(float(weight.max()))
        cells.append(weight.size)
        changed.append(int((after != before[:, None]).sum()))
    return Batch("position", counts={"cells": cells, "changed": changed}, own={"weight_mean": means, "weight_max": largest})


def cells_of(settings: dict[str, Any], length: int) -> list[tuple[int, int]]:
    """The cells (query, foreign key) that are opened in turn."""
    count = length * length
    if count <= settings["cells_all_up_to"]:
        return [divmod(cell, length) for cell in range(count)]
    return [divmod(i * settings["cell_stride"] % count, length) for i in range(settings["cells_beyond"])]


def planted(settings: dict[str, Any], fault: str, length: int) -> Mask:
    """Masks of all cases of a fault, [case, step, query, key]."""
    shape = (settings["steps"], length, length)
    cells = cells_of(settings, length)
    made = {
        "clean": lambda: [leak_patterns.healthy(*shape)],
        "boundary": lambda: [leak_patterns.boundary(*shape)],
        "global": lambda: [leak_patterns.everything(*shape)],
        "position": lambda: [leak_patterns.position(*shape, *cell) for cell in cells],
        "intermittent": lambda: [leak_patterns.intermittent(*shape, *cell, i % settings["steps"]) for i, cell in enumerate(cells)],
    }
    return np.stack(made[fault]())


def _soft(scores: Floats, masks: Mask) -> Floats:
    """Softmax of scores [step, query, key] under each mask [case, step, query, key]."""
    powers = np.where(masks, np.exp(scores - scores.max(-1, keepdims=True)), 0.0)
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _classifier(protocol: Protocol) -> Iterator[Batch]:
    """Two numbers chosen on the setup seeds, then the confusion on the others, and the lost table."""
    s, faults = protocol.settings, protocol.values("fault")
    grid = [(row["threshold"], row["presence"]) for row in protocol.rows("setup")]
    share = math.lcm(*(len(cells_of(s, n)) for n in protocol.values("length")))
    scores = np.zeros(len(grid), np.int64)
    for seed, length in [(seed, n) for seed in s["setup_seeds"] for n in protocol.values("length")]:
        pair = drawn(s, seed, length)
        for fault in faults:
            masks = planted(s, fault, length)
            for scale in protocol.values("scale"):
                rows = logged(_soft(scale * pair.scores, masks))
                for place, (threshold, presence) in enumerate(grid):
                    right = (classify(rows, length, threshold, presence) == NAMES.index(fault)).sum()
                    scores[place] += int(right) * (share // len(masks))
    yield Batch("setup", counts={"score": scores})
    threshold, presence = grid[int(np.argmax(scores))]  # the first of equals: the lowest numbers
    yield Batch("chosen", own={"threshold_used": [threshold], "presence_used": [presence]})
    seen: dict[str, list[dict[str, Floats]]] = {fault: [] for fault in faults}
    gaps = []
    for seed, length in [(seed, n) for seed in protocol.seeds for n in protocol.values("length")]:
        pair = drawn(s, seed, length)
        for scale in protocol.values("scale"):
            counts: dict[str, list[int]] = {name: [] for name in ("cases", *(f"named_{name}" for name in NAMES))}
            healthy = _soft(scale * pair.scores, planted(s, "clean", length))[0]
            before = np.argmax(healthy @ pair.v @ pair.readout, axis=-1)
            for fault in faults:
                masks = planted(s, fault, length)
                weights = _soft(scale * pair.scores, masks)
                names = classify(logged(weights), length, threshold, presence)
                counts["cases"].append(len(names))
                for index, name in enumerate(NAMES):
                    counts[f"named_{name}"].append(int((names == index).sum()))
                if fault != "clean":
                    seen[fault].append(_signature(weights, masks, length, before, pair) | {"named": names == NAMES.index(fault)})
                    leaked = weights[..., length:].sum(-1, keepdims=True)
                    gaps.append(float(np.abs(weights[..., :length] - (1 - leaked) * healthy[..., :length]).max()))
            yield Batch("judged", counts=counts)
    yield Batch("renormalised", own={"gap": gaps})
    yield _table(protocol, seen)


def _signature(weights: Floats, masks: Mask, own: int, before: NDArray[np.int64], pair: Pair) -> dict[str, Floats]:
    """Per case: share of foreign cells hit, of queries and steps touched, of outputs changed; all weights on open foreign cells."""
    open_cells = masks[..., own:]
    after = np.argmax(weights @ pair.v @ pair.readout, axis=-1)
    return {
        "cells": open_cells.any(1).mean((1, 2)),
        "queries": open_cells.any((1, 3)).mean(1),
        "steps": open_cells.any((2, 3)).mean(1),
        "changed": (after != before).mean((1, 2)),
        "weights": weights[..., own:][open_cells],
    }


def _table(protocol: Protocol, seen: dict[str, list[dict[str, Floats]]]) -> Batch:
    """The lost table: means over all cases of a fault; weights over all open cells."""
    own: dict[str, list[float]] = {}
    for fault in protocol.values("planted"):
        joined = {key: np.concatenate([case[key] for case in seen[fault]]) for key in seen[fault][0]}
        row = {
            "weight_min": joined["weights"].min(),
            "weight_mean": joined["weights"].mean(),
            "weight_max": joined["weights"].max(),
            **{f"{key}_share": joined[key].mean() for key in ("cells", "queries", "steps", "changed", "named")},
        }
        for key, value in row.items():
            own.setdefault(key, []).append(float(value))
    return Batch("signatures", own=own)


TASKS = ("trained_first", "trained_nearest")


def sequences(rng: np.random.Generator, count: int, length: int, content: int) -> Floats:
    """Tokens [sequence, token, content + 2]: N(0, 1) content, a flag on the first token and one on the newest."""
    x = np.zeros((count, length, content + 2))
    x[..., :content] = rng.normal(size=(count, length, content))
    x[:, 0, content], x[:, -1, content + 1] = 1.0, 1.0
    return x


def attend_last(x: Floats, w_q: Floats, w_k: Floats) -> Floats:
    """Weights of the newest token's query on all tokens, [sequence, token]."""
    scores = np.einsum("sw,stw->st", x[:, -1] @ w_q, x @ w_k) / math.sqrt(w_q.shape[1])
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def train(settings: dict[str, Any], seed: int, task: str) -> tuple[Floats, Floats]:
    """W_Q and W_K by gradient descent on the squared error of the attended content to that of the first or the newest token."""
    t = settings["training"]
    rng = np.random.default_rng([seed, TASKS.index(task)])
    features, content = t["content"] + 2, t["content"]
    w_q, w_k = rng.normal(0, features**-0.5, (2, features, t["width"]))
    root = math.sqrt(t["width"])
    for _ in range(t["steps"]):
        x = sequences(rng, t["sequences"], t["length"], content)
        q, k, values = x[:, -1] @ w_q, x @ w_k, x[..., :content]
        weights = attend_last(x, w_q, w_k)
        error = np.einsum("st,stc->sc", weights, values) - values[:, 0 if task == "trained_first" else -1]
        slope = np.einsum("sc,stc->st", error, values)  # d loss / d weight
        slope = weights * (slope - (weights * slope).sum(1, keepdims=True)) / (root * t["sequences"])
        step_q = np.einsum("sf,sw->fw", x[:, -1], np.einsum("st,stw->sw", slope, k))
        step_k = np.einsum("stf,st,sw->fw", x, slope, q)
        w_q, w_k = w_q - t["rate"] * step_q, w_k - t["rate"] * step_k
    return w_q, w_k


def _usage(protocol: Protocol) -> Iterator[Batch]:
    """Entropy beside what the output loses when the far half of the history is deleted or its values are moved."""
    s = protocol.settings
    t, heads = s["training"], {}
    for seed in protocol.seeds:
        for task in TASKS:
            heads[seed, task] = train(s, seed, task)
    weights = [[np.stack([heads[seed, task][part] for task in TASKS]) for seed in protocol.seeds] for part in range(2)]
    yield Batch("trained", {"w_q": np.stack(weights[0]), "w_k": np.stack(weights[1])})
    rows: dict[str, list[Any]] = {name: [] for name in ("entropy", "nearest", "deleted", "permuted")}
    shares = []
    for row in protocol.rows("usage"):
        rng = np.random.default_rng([row["seed"], row["history"], t["content"]])
        random = rng.normal(0, (t["content"] + 2) ** -0.5, (2, t["content"] + 2, t["width"]))
        x = sequences(rng, s["far_sequences"], row["history"], t["content"])
        w_q, w_k = heads.get((row["seed"], row["head"]), tuple(random))
        values = x[..., : t["content"]]
        if row["head"] == "equal_values":
            values = np.repeat(values[:, :1], row["history"], axis=1)
        made = _far(attend_last(x, w_q, w_k), values)
        for name, value in made.items():
            rows[name].append(value)
        shares.append(math.fsum(made["entropy"]) / len(made["entropy"]) / math.log(row["history"]))
    yield Batch("usage", {name: np.stack(value) for name, value in rows.items()}, own={"entropy_share": shares})


def _far(weights: Floats, values: Floats) -> dict[str, Floats]:
    """Per sequence; the far half are the first n // 2 tokens. Values are laid out alike, so that equal ones give equal bits."""
    values = np.ascontiguousarray(values)
    half = weights.shape[1] // 2
    near = weights.copy()
    near[:, :half] = 0
    near /= near.sum(1, keepdims=True)
    moved = np.concatenate([np.roll(values[:, :half], 1, axis=1), values[:, half:]], axis=1)
    output, deleted, permuted = (np.einsum("st,stc->sc", w, x) for w, x in ((weights, values), (near, values), (weights, moved)))
    size = np.linalg.norm(output, axis=1)
    return {
        "entropy": entropy(weights),
        "nearest": weights[:, -1],
        "deleted": np.linalg.norm(deleted - output, axis=1) / size,
        "permuted": np.linalg.norm(permuted - output, axis=1) / size,
    }
