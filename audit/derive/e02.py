"""02: the order of mask and softmax, with outputs after a perturbation from sums of what stands before and behind the changed row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from audit.derive.e01 import Model
from audit.draws import groups
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
    """For each place the sum of all other terms, by running sums from both ends; terms [head, query, n, ...]."""
    none = np.zeros_like(terms[:, :, :1])
    ahead = np.concatenate([none, np.cumsum(terms, axis=2)[:, :, :-1]], axis=2)
    behind = np.concatenate([np.cumsum(terms[:, :, ::-1], axis=2)[:, :, ::-1][:, :, 1:], none], axis=2)
    return np.asarray(ahead + behind)


def most(rows: Array) -> Array:
    """The largest absolute value of each head and query."""
    return np.asarray(np.abs(rows).reshape(*rows.shape[:2], -1).max(axis=2))


def mixed(weights: Array, values: Array) -> Array:
    """Sums of weights [head, query, n] times values [head, n, number]."""
    return np.asarray(np.einsum("hqn,hnd->hqd", weights, values))


def lines(settings: dict[str, Any], variant: str, own: Array, far: Array, moved: Array, v: Array, far_v: Array) -> dict[str, Array]:
    """What the sweep keeps, [head, query], from logits of own keys [head, query, 3], of foreign keys before and after their change."""
    zero = np.zeros(own.shape[:2])
    seen = np.tri(3, dtype=bool)
    single = np.exp(np.where(seen, own, -np.inf) - np.where(seen, own, -np.inf).max(axis=2, keepdims=True))
    alone = mixed(single, v) / single.sum(axis=2, keepdims=True)
    hidden = fill(settings, variant)
    if variant == "replace_small":
        own, far, moved = np.where(seen, own, hidden), np.full_like(far, hidden), np.full_like(far, hidden)
    elif variant.startswith("add"):
        own, far, moved = own + np.where(seen, 0.0, hidden), far + hidden, moved + hidden
    top = np.max([part.max(axis=2) for part in (own, far, moved)], axis=0)[..., None]
    base, far_e, moved_e = (np.exp(part - top) for part in (own, far, moved))
    if variant == "before" or variant == "after_renormalised":
        output = mixed(base * seen, v) / (base * seen).sum(axis=2, keepdims=True)
        return {"row_sum": zero + 1, "distance": most(output - alone), "by_key": zero, "by_value": zero}
    if variant == "add_large":
        far_e, moved_e = np.zeros_like(far), np.zeros_like(far)  # exp(-9000) is 0
    total = (base.sum(axis=2) + far_e.sum(axis=2))[..., None]
    rest = base.sum(axis=2, keepdims=True) + others(far_e)
    if variant == "after":
        near = mixed(base * seen, v)
        change = most(near) * most(1 / (rest + moved_e) - 1 / total)
        return {
            "row_sum": (base * seen).sum(axis=2) / total[..., 0],
            "distance": most(near / total - alone),
            "by_key": change,
            "by_value": zero,
        }
    output = (mixed(base, v) + mixed(far_e, far_v)) / total
    without = mixed(base, v)[:, :, None] + others(far_e[..., None] * far_v[:, None])
    after = (without + moved_e[..., None] * far_v[:, None]) / (rest + moved_e)[..., None]
    by_value = most(far_e / total) * settings["step"]
    return {"row_sum": zero + 1, "distance": most(output - alone), "by_key": most(after - output[:, :, None]), "by_value": by_value}


def sweep(study: Study, made: dict[int, list[list[Array]]]) -> Derived:
    """The sweep; rows of one seed and number of foreign keys share their logits."""
    step = study.settings["step"]
    arrays: dict[str, list[Array]] = {name: [] for name in ("row_sum", "distance", "by_key", "by_value")}
    for _, cases in groups(study, "sweep", "seed"):
        seed = cases[0]["seed"]
        q, k, v = made[seed][0]
        drawn: dict[int, tuple[list[Array], Array]] = {}
        for factors in cases:
            n = factors["foreign"]
            if n not in drawn:
                rng = np.random.default_rng([seed, n])
                far_k, far_v = rng.normal(size=(len(k), n, k.shape[-1])), rng.normal(size=(len(v), n, v.shape[-1]))
                drawn[n] = [np.einsum("hqd,hnd->hqn", q, keys) for keys in (k, far_k, far_k + step)], far_v
            own, far, moved = (factors["scale"] * part / math.sqrt(k.shape[-1]) for part in drawn[n][0])
            for name, part in lines(study.settings, factors["variant"], own, far, moved, v, drawn[n][1]).items():
                arrays[name].append(part)
    return Derived("sweep", study.chosen("sweep"), {name: np.array(parts) for name, parts in arrays.items()})


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
    for row in study.chosen("published"):
        factors = study.rows("published")[row]
        arrays = {name: a[None] for name, a in published(study, made[factors["seed"]], factors["variant"]).items()}
        yield Derived("published", [row], arrays)
    yield sweep(study, made)
    for row in study.chosen("snippets"):
        factors = study.rows("snippets")[row]
        yield Derived("snippets", [row], **snippet(made[factors["seed"]], factors["snippet"]))
