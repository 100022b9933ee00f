"""02: the order of mask and softmax, with outputs after a perturbation from sums of what stands before and behind the changed row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from audit.derive.e01 import Model
from audit.masked import Row, pour, scores, weigh
from audit.study import Array, Derived, Study

NEAR = (1e-12, "sums of at most 259 products in binary64 with weights that sum to at most 1 and values below 6: below 1e-13 in any order")
BOUNDS = {
    **{f"published/{n}": NEAR for n in ("coefficients", "row_sum", "output", "alone", "key_moved", "value_moved")},
    **{f"sweep/{n}": NEAR for n in ("row_sum", "distance", "by_key", "by_value")},
}
GIVEN: dict[str, str] = {}


def fill(settings: dict[str, Any], variant: str) -> float:
    """The number that stands for minus infinity in a variant."""
    return float(settings["large_fill" if variant == "add_large" else "small_fill"])


def coefficients(settings: dict[str, Any], variant: str, row: Row, seen: list[bool]) -> Row:
    """What reaches the values in one row."""
    everything = [True] * len(row)
    if variant == "before":
        return weigh(row, seen)
    if variant in ("after", "after_renormalised"):
        kept = [w if flag else 0.0 for w, flag in zip(weigh(row, everything), seen, strict=True)]
        total = math.fsum(kept) if variant == "after_renormalised" else 1.0
        return [w / total for w in kept]
    base = 0.0 if variant == "replace_small" else 1.0
    hidden = fill(settings, variant)
    return weigh([s if flag else base * s + hidden for s, flag in zip(row, seen, strict=True)], everything)


def requests(model: Model) -> list[list[Array]]:
    """q, k, v of A and of B."""
    return [model.qkv([3 * r, 3 * r + 1, 3 * r + 2], [0, 1, 2]) for r in range(2)]


def models(study: Study) -> dict[int, list[list[Array]]]:
    s = study.settings
    return {seed: requests(Model(seed, s["heads"], s["width"], s["head_dim"])) for seed in study.seeds}


def published(study: Study, made: list[list[Array]], variant: str) -> dict[str, Array]:
    """One variant: every row of B changed in turn and the output computed anew."""
    s = study.settings
    (q, k, v), (_, other_k, other_v) = made
    parts: dict[str, list[Any]] = {name: [] for name in ("coefficients", "row_sum", "output", "alone", "key_moved", "value_moved")}
    for h in range(len(q)):
        keys, values = np.concatenate([k[h], other_k[h]]), np.concatenate([v[h], other_v[h]])
        lines: dict[str, list[Any]] = {name: [] for name in parts}
        for i in range(3):
            seen = [j <= i for j in range(6)]
            row = scores(q[h, i], keys)
            mine = coefficients(s, variant, row, seen)
            output = np.array(pour(mine, values))
            by_key, by_value = [], []
            for j in range(3, 6):
                new_keys, new_values = keys.copy(), values.copy()
                new_keys[j] += s["step"]
                new_values[j] += s["step"]
                by_key.append(pour(coefficients(s, variant, scores(q[h, i], new_keys), seen), values) - output)
                by_value.append(pour(mine, new_values) - output)
            lines["coefficients"].append(mine)
            lines["row_sum"].append(math.fsum(mine))
            lines["output"].append(output)
            lines["alone"].append(pour(weigh(row[:3], seen[:3]), v[h]))
            lines["key_moved"].append(by_key)
            lines["value_moved"].append(by_value)
        for name, found in lines.items():
            parts[name].append(found)
    arrays = {name: np.array(value) for name, value in parts.items()}
    for name in ("key_moved", "value_moved"):
        arrays[name] = arrays[name].transpose(2, 0, 1, 3)  # [row, head, query, number]
    return arrays


def others(terms: Array) -> Array:
    """For each place the sum of all other terms, by running sums from both ends; terms [n, ...]."""
    ahead = np.concatenate([np.zeros((1, *terms.shape[1:])), np.cumsum(terms, axis=0)[:-1]])
    behind = np.concatenate([np.cumsum(terms[::-1], axis=0)[::-1][1:], np.zeros((1, *terms.shape[1:]))])
    return np.asarray(ahead + behind)


def line(settings: dict[str, Any], variant: str, i: int, own: Array, far: Array, moved: Array, v: Array, far_v: Array) -> Row:
    """row_sum, distance, by_key, by_value of query i: logits of own keys [3], of foreign keys before and after their change [n]."""
    top = max(own.max(), far.max(), moved.max())
    seen = np.arange(3) <= i
    base = np.exp(own - top)
    single = np.exp(own[: i + 1] - own[: i + 1].max())
    alone = single @ v[: i + 1] / single.sum()
    if variant == "before" or variant == "after_renormalised":
        output = (base * seen) @ v / (base * seen).sum()
        return [1.0, float(np.abs(output - alone).max()), 0.0, 0.0]
    if variant == "after":
        near = (base * seen) @ v
        rest = base.sum() + others(np.exp(far - top))
        total = base.sum() + np.exp(far - top).sum()
        change = np.abs(near).max() * np.abs(1 / (rest + np.exp(moved - top)) - 1 / total)
        return [float((base * seen).sum() / total), float(np.abs(near / total - alone).max()), float(change.max()), 0.0]
    hidden = fill(settings, variant)
    if variant == "replace_small":
        own, far, moved = np.where(seen, own, hidden), np.full(len(far), hidden), np.full(len(far), hidden)
    else:
        own, far, moved = own + np.where(seen, 0.0, hidden), far + hidden, moved + hidden
    top = max(own.max(), far.max(), moved.max())
    base, far_e, moved_e = np.exp(own - top), np.exp(far - top), np.exp(moved - top)
    if variant == "add_large":
        far_e, moved_e = np.zeros_like(far), np.zeros_like(far)  # exp(-9000) is 0
    total = base.sum() + far_e.sum()
    output = (base @ v + far_e @ far_v) / total
    rest = base @ v + others(far_e[:, None] * far_v)
    after = (rest + moved_e[:, None] * far_v) / (base.sum() + others(far_e) + moved_e)[:, None]
    return [1.0, float(np.abs(output - alone).max()), float(np.abs(after - output).max()), float((far_e / total).max()) * settings["step"]]


def sweep(study: Study, made: dict[int, list[list[Array]]], factors: dict[str, Any]) -> dict[str, Array]:
    """One row of the sweep."""
    s, n = study.settings, factors["foreign"]
    q, k, v = made[factors["seed"]][0]
    rng = np.random.default_rng([factors["seed"], n])
    far_k, far_v = rng.normal(size=(len(k), n, k.shape[-1])), rng.normal(size=(len(v), n, v.shape[-1]))
    root = math.sqrt(k.shape[-1])
    found = []
    for h in range(len(q)):
        for i in range(3):
            own, far, moved = (factors["scale"] * (keys @ q[h, i]) / root for keys in (k[h], far_k[h], far_k[h] + s["step"]))
            found.append(line(s, factors["variant"], i, own, far, moved, v[h], far_v[h]))
    table = np.array(found).reshape(len(q), 3, 4)
    return {name: table[None, ..., column] for column, name in enumerate(("row_sum", "distance", "by_key", "by_value"))}


def snippet(made: list[list[Array]], name: str) -> dict[str, Any]:
    """What the printed code does, from its shapes alone, and the sums of its rows."""
    # Joined along axis 1: without a batch axis that is the width, with heads it is the heads; neither fits the queries.
    if name in ("printed_no_batch", "printed_heads"):
        counts = {key: [0] for key in ("copies", "keys_seen", "future_seen", "foreign_seen")}
        return {"decisions": {"accepted": [False]}, "counts": counts, "own": {"row_sum_min": [0.0], "row_sum_max": [0.0]}}
    sums = []
    seen = future = 0
    keys = np.concatenate([made[0][1][0], made[1][1][0]])
    for r in range(2):
        for i in range(3):
            row = scores(made[r][0][0, i], keys)
            mine = [j // 3 == r for j in range(6)]
            if name == "repaired":
                mine = [flag and j % 3 <= i for j, flag in enumerate(mine)]
                weights = weigh(row, mine)
            else:
                weights = [w if flag else 0.0 for w, flag in zip(weigh(row, [True] * 6), mine, strict=True)]
            sums.append(math.fsum(weights))
            seen = max(seen, sum(w != 0 for w in weights))
            future += sum(w != 0 and j // 3 == r and j % 3 > i for j, w in enumerate(weights))
    counts = {"copies": [2 if name == "printed_two_rows" else 1], "keys_seen": [seen], "future_seen": [future], "foreign_seen": [0]}
    return {"decisions": {"accepted": [True]}, "counts": counts, "own": {"row_sum_min": [min(sums)], "row_sum_max": [max(sums)]}}


def derive(study: Study) -> Iterator[Derived]:
    """Row by row."""
    made = models(study)
    for block in ("published", "sweep", "snippets"):
        for row in study.chosen(block):
            factors = study.rows(block)[row]
            if block == "published":
                arrays = {name: a[None] for name, a in published(study, made[factors["seed"]], factors["variant"]).items()}
                yield Derived(block, [row], arrays)
            elif block == "sweep":
                yield Derived(block, [row], sweep(study, made, factors))
            else:
                yield Derived(block, [row], **snippet(made[factors["seed"]], factors["snippet"]))
