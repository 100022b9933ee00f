"""04: leaks cell by cell: one opened cell changes one row, so weights, outputs and names follow from that row's sums alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from audit.study import Array, Derived, Study

NEAR = (1e-12, "softmax over at most 512 logits below 60 in binary64, and sums of its weights: below 1e-13 in any order")
FAR = (1e-10, "as above, divided by the size of an output that is above 1e-3")
BOUNDS = {
    **{f"published/{n}": NEAR for n in ("healthy", "faulty", "scaled")},
    "entropy/entropy": NEAR,
    "boundary/on_b": NEAR,
    "boundary/on_stale": NEAR,
    "whole/leak": NEAR,
    "whole/unevenness": (1e-10, "a quotient of weights times at most 127"),
    "usage/entropy": NEAR,
    "usage/nearest": NEAR,
    "usage/deleted": FAR,
    "usage/permuted": FAR,
}
TRAINED = "a trained weight: 400 steps of gradient descent; what is measured with it is derived from the stored values"
GIVEN = {"trained/w_q": TRAINED, "trained/w_k": TRAINED}
NAMES = ("clean", "boundary", "global", "position", "intermittent")


def rows_of(study: Study, block: str) -> list[dict[str, Any]]:
    return study.rows(block)


def table(columns: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in columns] for name in columns[0]}


def published(study: Study) -> Derived:
    """The printed rows: logits are logarithms, so a softmax is a division by a sum."""
    s = study.settings
    healthy, printed = s["printed_healthy"], s["printed_faulty"]
    extra = printed[3] / (1 - printed[3])
    total = math.fsum(healthy) + extra
    faulty = [(w if w else extra if printed[j] else 0.0) / total for j, w in enumerate(healthy)]
    alone = [w / math.fsum(healthy) for w in healthy]
    scaled = [(1 - printed[3]) * w if w else (printed[3] if printed[j] else 0.0) for j, w in enumerate(healthy)]
    parts = {"healthy": alone, "faulty": faulty, "printed": printed, "scaled": scaled}
    return Derived("published", arrays={name: np.array([row]) for name, row in parts.items()})


def disorder(rows: Array) -> Array:
    """Entropy of each row of logits [..., key] as ln Z minus the mean logit."""
    below = rows - rows.max(axis=-1, keepdims=True)
    powers = np.exp(below)
    total = powers.sum(axis=-1)
    return np.asarray(np.log(total) - (powers * below).sum(axis=-1) / total)


def logits(q: Array, k: Array) -> Array:
    """q.k / sqrt(width) of queries [query, width] and keys [key, width]: [query, key]."""
    return np.asarray(np.einsum("qd,kd->qk", q, k) / math.sqrt(q.shape[1]))


def softmax(rows: Array) -> Array:
    """Weights of each row of logits [..., key]."""
    powers = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def entropies(study: Study) -> Iterator[Derived]:
    """A growing cache, and whether its mean entropy rises."""
    s, lengths = study.settings, study.protocol["factors"]["cached"]
    found, decisions, slopes = [], [], []
    for seed in study.seeds:
        rng = np.random.default_rng(seed)
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(s["entropy_keys"], s["width"]))
        raw = logits(q, k)
        for scale in study.protocol["factors"]["scale"]:
            made = [disorder(scale * raw[:, :n]).tolist() for n in lengths]
            found += made
            means = [math.fsum(row) / len(row) for row in made]
            decisions.append(all(b > a for a, b in itertools.pairwise(means)))
            x = [math.log(n) for n in lengths]
            middle, centre = math.fsum(x) / len(x), math.fsum(means) / len(means)
            over = math.fsum((a - middle) * (b - centre) for a, b in zip(x, means, strict=True))
            slopes.append(over / math.fsum((a - middle) ** 2 for a in x))
    ceiling = [math.log(row["cached"]) for row in rows_of(study, "entropy")]
    yield Derived("entropy", None, {"entropy": np.array(found)}, own={"ceiling": ceiling})
    yield Derived("rising", decisions={"rises": decisions}, own={"slope": slopes})


def boundary(study: Study) -> Derived:
    """One slot too many."""
    s, on_b, on_stale = study.settings, [], []

    @cache
    def drawn(seed: int, n: int) -> Array:
        """Logits [query, key] of n own keys, then of a foreign one and of a stale one."""
        rng = np.random.default_rng([seed, n, s["samples"]])
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(n, s["width"]))
        return logits(q, np.vstack([k, rng.normal(size=(2, s["width"]))]))

    for row in rows_of(study, "boundary"):
        n = row["length"]
        in_tail = row["layout"] in ("adjacent_paged", "apart_paged") and n % s["page_size"] > 0
        foreign = row["layout"] in ("adjacent", "adjacent_paged") and not in_tail
        weights = softmax(row["scale"] * np.delete(drawn(row["seed"], n), n + 1 if foreign else n, axis=1))[:, n]
        on_b.append(weights if foreign else 0 * weights)
        on_stale.append(0 * weights if foreign else weights)
    inside = [int(((row >= 0.1) & (row <= 0.5)).sum()) for row in on_b]
    arrays = {"on_b": np.array(on_b), "on_stale": np.array(on_stale)}
    return Derived("boundary", None, arrays, counts={"inside": inside, "taken": [s["samples"]] * len(inside)})


def whole(study: Study) -> Derived:
    """No mask."""
    s, leaks, uneven = study.settings, [], []

    @cache
    def drawn(seed: int, own: int, foreign: int) -> Array:
        rng = np.random.default_rng([seed, own, foreign])
        return logits(rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(own + foreign, s["width"])))

    for row in rows_of(study, "whole"):
        far = softmax(row["scale"] * drawn(row["seed"], row["own"], row["others"]))[:, row["own"] :]
        leaks.append(far.sum(axis=1))
        uneven.append(far.max(axis=1) * row["others"] / far.sum(axis=1))
    return Derived("whole", None, {"leak": np.array(leaks), "unevenness": np.array(uneven)})


@dataclass(frozen=True)
class Case:
    """A and B of equal length at one scale: per step and query the own powers and their sum, and the foreign powers."""

    own: Array
    total: Array
    foreign: Array
    near: Array
    far: Array

    @cached_property
    def healthy(self) -> Array:
        """The read out outputs without a leak, times the sum of the powers: [step, query, identity]."""
        return np.asarray(self.own @ self.near)

    @cached_property
    def before(self) -> Array:
        """The output's identity without a leak, [step, query]."""
        return np.asarray(self.healthy.argmax(axis=-1))


def cases(settings: dict[str, Any], seed: int, n: int, scales: Sequence[float], steps: int) -> Iterator[Case]:
    """The first steps at each scale. Draws q, k, v and the readout again; values are read out first, which is linear."""
    rng = np.random.default_rng([seed, n])
    d = settings["width"]
    q, k = rng.normal(size=(settings["steps"], n, d)), rng.normal(size=(2 * n, d))
    v, readout = rng.normal(size=(2 * n, d)), rng.normal(size=(d, settings["identities"]))
    product, read = np.matmul(q[:steps], k.T), v @ readout
    seen = np.tri(n, dtype=bool)
    for scale in scales:
        raw = scale * product / math.sqrt(d)
        powers = np.exp(raw - raw.max(axis=-1, keepdims=True))
        own = np.where(seen, powers[..., :n], 0.0)
        yield Case(own, own.sum(axis=-1), powers[..., n:], read[:n], read[n:])


def position(study: Study) -> Derived:
    """Every cell in turn."""
    factors, rows = study.protocol["factors"], {}
    for seed in study.seeds:
        for n in factors["length"]:
            for scale, c in zip(factors["scale"], cases(study.settings, seed, n, factors["scale"], 1), strict=True):
                healthy, before = c.healthy[0] / c.total[0][:, None], c.before[0]
                shares = c.foreign[0] / (c.total[0][:, None] + c.foreign[0])
                changed = 0
                for one, identity, on in zip(healthy, before, shares, strict=True):
                    changed += int(((one + on[:, None] * (c.far - one)).argmax(axis=1) != identity).sum())
                rows[seed, scale, n] = {"cells": n * n, "changed": changed, "mean": float(shares.mean()), "most": float(shares.max())}
    t = table([rows[row["seed"], row["scale"], row["length"]] for row in rows_of(study, "position")])
    counts = {"cells": t["cells"], "changed": t["changed"]}
    return Derived("position", None, counts=counts, own={"weight_mean": t["mean"], "weight_max": t["most"]})


def opened(settings: dict[str, Any], n: int) -> list[tuple[int, int]]:
    """The cells in turn."""
    count = n * n
    if count <= settings["cells_all_up_to"]:
        return [(cell // n, cell % n) for cell in range(count)]
    places = [i * settings["cell_stride"] % count for i in range(settings["cells_beyond"])]
    return [(cell // n, cell % n) for cell in places]


@dataclass(frozen=True)
class Fault:
    """All cases of a fault: each opens a cell (but one case of "global" all) in some steps; weights [case, step], or [step, query, key]."""

    name: str
    cells: Array  # [case, 2]: query, key
    steps: Array  # [case, step]: which
    weights: Array


def faults(settings: dict[str, Any], c: Case, n: int) -> list[Fault]:
    """Weights on the opened cells of every case, fault by fault."""
    steps = settings["steps"]
    cells = np.array(opened(settings, n))
    every, none = np.tile(np.arange(steps), (len(cells), 1)), np.zeros((0, 2), int)

    def on(cells: Array, steps: Array) -> Array:
        foreign = c.foreign[steps, cells[:, :1], cells[:, 1:]]
        return np.asarray(foreign / (c.total[steps, cells[:, :1]] + foreign))

    corner, some = np.array([[n - 1, 0]]), np.arange(len(cells))[:, None] % steps
    everything = c.foreign / (c.total + c.foreign.sum(axis=-1))[..., None]
    return [
        Fault("clean", none, none, np.zeros((0, steps))),
        Fault("boundary", corner, every[:1], on(corner, every[:1])),
        Fault("global", none, every[:1], everything),
        Fault("position", cells, every, on(cells, every)),
        Fault("intermittent", cells, some, on(cells, some)),
    ]


def sightings(fault: Fault, thresholds: Sequence[float]) -> list[tuple[Array, Array, bool]]:
    """For each threshold: in how many steps each case is above it, in which cell, and whether that cell is the only one.

    Weights are rounded to float16 before they are compared.
    """
    rounded = fault.weights.astype(np.float16)
    if fault.name != "global":
        return [((rounded > threshold).sum(axis=1), fault.cells, True) for threshold in thresholds]
    found = []
    for threshold in thresholds:
        times = (rounded > threshold).sum(axis=0)
        found.append((times.max(keepdims=True).ravel(), np.argwhere(times)[:1], int((times > 0).sum()) <= 1))
    return found


def named(fault: Fault, sighting: tuple[Array, Array, bool], n: int, steps: int, presence: float) -> list[str]:
    """What the classifier calls each case."""
    counts, cells, alone = sighting
    if fault.name == "clean":
        return ["clean"]
    if not alone:
        return ["global"]
    corner = [cell == [n - 1, 0] for cell in cells.tolist()] or [False]
    return [
        "clean" if count == 0 else "intermittent" if count < presence * steps else "boundary" if at_end else "position"
        for count, at_end in zip(counts.tolist(), corner, strict=True)
    ]


def changed(fault: Fault, c: Case, n: int) -> list[float]:
    """Share of A's outputs, over steps and queries, whose argmax a leak changes."""
    if fault.name == "global":
        after = (c.healthy + c.foreign @ c.far).argmax(axis=-1)
        return [float((after != c.before).mean())]
    i, j = fault.cells[:, :1], fault.cells[:, 1:]
    mixed = c.healthy[fault.steps, i] + c.foreign[fault.steps, i, j][..., None] * c.far[j]
    moved = (mixed.argmax(axis=-1) != c.before[fault.steps, i]).sum(axis=1)
    shares: list[float] = (moved / (len(c.own) * n)).tolist()
    return shares


def gap(fault: Fault, c: Case) -> float:
    """Largest difference between own weights under the fault and (1 - leaked) times the healthy ones."""
    if fault.name == "global":
        return float(np.abs(renormalised(c.own, c.total, c.foreign.sum(axis=-1))).max())
    i, j = fault.cells[:, :1], fault.cells[:, 1:]
    return float(np.abs(renormalised(c.own[fault.steps, i], c.total[fault.steps, i], c.foreign[fault.steps, i, j])).max())


def renormalised(own: Array, total: Array, foreign: Array) -> Array:
    both = total + foreign
    return np.asarray(own / both[..., None] - (1 - foreign / both)[..., None] * (own / total[..., None]))


def classifier(study: Study) -> Iterator[Derived]:
    """The choice of two numbers, the confusion, the table."""
    s, factors = study.settings, study.protocol["factors"]
    share = math.lcm(*(len(opened(s, n)) for n in factors["length"]))
    grid = [(row["threshold"], row["presence"]) for row in rows_of(study, "setup")]
    thresholds = list(dict.fromkeys(threshold for threshold, _ in grid))
    points = [0] * len(grid)
    for seed in s["setup_seeds"]:
        for n in factors["length"]:
            for c in cases(s, seed, n, factors["scale"], s["steps"]):
                for fault in faults(s, c, n):
                    seen_at = dict(zip(thresholds, sightings(fault, thresholds), strict=True))
                    for place, (threshold, presence) in enumerate(grid):
                        names = named(fault, seen_at[threshold], n, s["steps"], presence)
                        points[place] += names.count(fault.name) * (share // len(names))
    yield Derived("setup", counts={"score": points})
    best = grid[points.index(max(points))]
    yield Derived("chosen", own={"threshold_used": [best[0]], "presence_used": [best[1]]})
    confusion, gaps = [], []
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in factors["planted"]}
    for seed in study.seeds:
        for n in factors["length"]:
            for c in cases(s, seed, n, factors["scale"], s["steps"]):
                for fault in faults(s, c, n):
                    names = named(fault, sightings(fault, best[:1])[0], n, s["steps"], best[1])
                    confusion.append({"cases": len(names)} | {f"named_{name}": names.count(name) for name in NAMES})
                    if fault.name != "clean":
                        gaps.append(gap(fault, c))
                        note(seen[fault.name], fault, c, n, names)
    yield Derived("judged", counts=table(confusion))
    yield Derived("renormalised", own={"gap": gaps})
    rows = []
    for name in factors["planted"]:
        found = seen[name]
        row = {f"{key}_share": mean(found[key]) for key in ("cells", "queries", "steps", "changed", "named")}
        row |= {"weight_min": min(found["least"]), "weight_max": max(found["most"])}
        rows.append(row | {"weight_mean": math.fsum(found["sum"]) / math.fsum(found["count"])})
    yield Derived("signatures", own=table(rows))


def note(seen: dict[str, list[float]], fault: Fault, c: Case, n: int, names: list[str]) -> None:
    """Collect what the table needs of one fault's cases."""
    everywhere, (count, steps) = fault.name == "global", fault.steps.shape
    for key, values in (
        ("cells", [1.0 if everywhere else 1 / n**2] * count),
        ("queries", [1.0 if everywhere else 1 / n] * count),
        ("steps", [steps / len(c.own)] * count),
        ("changed", changed(fault, c, n)),
        ("named", [float(name == fault.name) for name in names]),
        ("least", [float(fault.weights.min())]),
        ("most", [float(fault.weights.max())]),
        ("sum", [float(fault.weights.sum())]),
        ("count", [float(fault.weights.size)]),
    ):
        seen.setdefault(key, []).extend(values)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def usage(study: Study) -> Derived:
    """Entropy and the use of the far half, from the stored trained weights."""
    s = study.settings
    t = s["training"]
    content, features = t["content"], t["content"] + 2
    stored = [study.read("trained", name) for name in ("w_q", "w_k")]
    rows: dict[str, list[Array]] = {name: [] for name in ("entropy", "nearest", "deleted", "permuted")}
    shares = []
    for factors in rows_of(study, "usage"):
        n, head = factors["history"], factors["head"]
        rng = np.random.default_rng([factors["seed"], n, content])
        maps = list(rng.normal(0, features**-0.5, (2, features, t["width"])))
        if head.startswith("trained"):
            maps = [part[study.seeds.index(factors["seed"]), int(head == "trained_nearest")] for part in stored]
        found = sequences(rng.normal(size=(s["far_sequences"], n, content)), maps, head == "equal_values")
        for values, one in zip(rows.values(), found, strict=True):
            values.append(one)
        shares.append(mean(rows["entropy"][-1].tolist()) / math.log(n))
    return Derived("usage", None, {name: np.array(value) for name, value in rows.items()}, own={"entropy_share": shares})


def sequences(tokens: Array, maps: list[Array], equal: bool) -> tuple[Array, Array, Array, Array]:
    """For each sequence [sequence, token, number]: entropy, weight of the newest token, relative change without the far half, and with
    its values moved one place."""
    n = tokens.shape[1]
    flags = np.zeros((len(tokens), n, 2))
    flags[:, 0, 0], flags[:, -1, 1] = 1.0, 1.0
    x = np.concatenate([tokens, flags], axis=2)
    row = np.einsum("sd,snd->sn", x[:, -1] @ maps[0], x @ maps[1]) / math.sqrt(maps[0].shape[1])
    half = n // 2
    values = np.broadcast_to(tokens[:, :1], tokens.shape) if equal else tokens
    moved = values[:, [*([half - 1] if half else []), *range(half - 1), *range(half, n)]]
    output, permuted = ((softmax(row)[..., None] * part).sum(axis=1) for part in (values, moved))
    deleted = (softmax(row[:, half:])[..., None] * values[:, half:]).sum(axis=1)
    size = np.sqrt((output**2).sum(axis=1))
    changes = [np.sqrt(((other - output) ** 2).sum(axis=1)) / size for other in (deleted, permuted)]
    return disorder(row), softmax(row)[:, -1], changes[0], changes[1]


def derive(study: Study) -> Iterator[Derived]:
    """All blocks, whole."""
    yield published(study)
    yield from entropies(study)
    yield boundary(study)
    yield whole(study)
    yield position(study)
    yield from classifier(study)
    yield usage(study)
