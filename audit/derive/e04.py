"""04: leaks cell by cell: one opened cell changes one row, so weights, outputs and names follow from that row's sums alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit.masked import scores, weigh
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


def disorder(row: Array) -> float:
    """Entropy as ln Z minus the mean logit."""
    high = float(row.max())
    powers = np.exp(row - high)
    total = math.fsum(powers.tolist())
    return math.log(total) - math.fsum((powers * (row - high)).tolist()) / total


def entropies(study: Study) -> Iterator[Derived]:
    """A growing cache, and whether its mean entropy rises."""
    s, lengths = study.settings, study.protocol["factors"]["cached"]
    found, decisions, slopes = [], [], []
    for seed in study.seeds:
        rng = np.random.default_rng(seed)
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(s["entropy_keys"], s["width"]))
        raw = np.array([scores(query, k) for query in q])
        for scale in study.protocol["factors"]["scale"]:
            made = [[disorder(scale * row[:n]) for row in raw] for n in lengths]
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
    for row in rows_of(study, "boundary"):
        n = row["length"]
        rng = np.random.default_rng([row["seed"], n, s["samples"]])
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(n, s["width"]))
        extra = rng.normal(size=(2, 1, s["width"]))
        in_tail = row["layout"] in ("adjacent_paged", "apart_paged") and n % s["page_size"] > 0
        foreign = row["layout"] in ("adjacent", "adjacent_paged") and not in_tail
        keys = np.vstack([k, extra[0 if foreign else 1]])
        weights = [weigh(scores(query, keys, row["scale"]), [True] * (n + 1))[n] for query in q]
        on_b.append(weights if foreign else [0.0] * len(weights))
        on_stale.append([0.0] * len(weights) if foreign else weights)
    inside = [sum(0.1 <= w <= 0.5 for w in row) for row in on_b]
    arrays = {"on_b": np.array(on_b), "on_stale": np.array(on_stale)}
    return Derived("boundary", None, arrays, counts={"inside": inside, "taken": [s["samples"]] * len(inside)})


def whole(study: Study) -> Derived:
    """No mask."""
    s, leaks, uneven = study.settings, [], []
    for row in rows_of(study, "whole"):
        own, foreign = row["own"], row["others"]
        rng = np.random.default_rng([row["seed"], own, foreign])
        q, k = rng.normal(size=(s["samples"], s["width"])), rng.normal(size=(own + foreign, s["width"]))
        far = [weigh(scores(query, k, row["scale"]), [True] * (own + foreign))[own:] for query in q]
        leaks.append([math.fsum(part) for part in far])
        uneven.append([max(part) * foreign / math.fsum(part) for part in far])
    return Derived("whole", None, {"leak": np.array(leaks), "unevenness": np.array(uneven)})


@dataclass(frozen=True)
class Case:
    """A and B of equal length at one scale: per step and query the own powers and their sum, and the foreign powers."""

    own: Array
    total: Array
    foreign: Array
    near: Array
    far: Array

    @property
    def before(self) -> Array:
        """The output's identity without a leak, [step, query]."""
        return np.asarray((self.own @ self.near).argmax(axis=-1))


def case(settings: dict[str, Any], seed: int, n: int, scale: float) -> Case:
    """Draws q, k, v and the readout again; values are read out first, which is linear."""
    rng = np.random.default_rng([seed, n])
    d = settings["width"]
    q, k = rng.normal(size=(settings["steps"], n, d)), rng.normal(size=(2 * n, d))
    v, readout = rng.normal(size=(2 * n, d)), rng.normal(size=(d, settings["identities"]))
    raw = scale * np.matmul(q, k.T) / math.sqrt(d)
    powers = np.exp(raw - raw.max(axis=-1, keepdims=True))
    own = powers[..., :n].copy()
    for i in range(n):
        own[:, i, i + 1 :] = 0.0
    read = v @ readout
    return Case(own, own.sum(axis=-1), powers[..., n:], read[:n], read[n:])


def position(study: Study) -> Derived:
    """Every cell in turn."""
    rows = []
    for row in rows_of(study, "position"):
        c = case(study.settings, row["seed"], row["length"], row["scale"])
        healthy = c.own[0] @ c.near / c.total[0][:, None]
        before, changed, shares = healthy.argmax(axis=1), 0, []
        for i in range(row["length"]):
            share = c.foreign[0, i] / (c.total[0, i] + c.foreign[0, i])
            mixed = healthy[i] + share[:, None] * (c.far - healthy[i])
            changed += int((mixed.argmax(axis=1) != before[i]).sum())
            shares += share.tolist()
        rows.append({"cells": len(shares), "changed": changed, "mean": math.fsum(shares) / len(shares), "most": max(shares)})
    t = table(rows)
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
    """All cases of a fault: `times` a threshold is passed is counted over steps; weights [case, step] or [1, step, query, key]."""

    name: str
    cells: list[tuple[int, int]]
    steps: list[list[int]]
    weights: list[Array]


def faults(settings: dict[str, Any], c: Case, n: int) -> list[Fault]:
    """Weights on the opened cells of every case, fault by fault."""
    every = list(range(settings["steps"]))
    cells = opened(settings, n)

    def single(i: int, j: int) -> Array:
        return np.asarray(c.foreign[:, i, j] / (c.total[:, i] + c.foreign[:, i, j]))

    some = [i % settings["steps"] for i in range(len(cells))]
    everything = c.foreign / (c.total + c.foreign.sum(axis=-1))[..., None]
    return [
        Fault("clean", [], [], []),
        Fault("boundary", [(n - 1, 0)], [every], [single(n - 1, 0)]),
        Fault("global", [], [every], [everything]),
        Fault("position", cells, [every] * len(cells), [single(*cell) for cell in cells]),
        Fault("intermittent", cells, [[t] for t in some], [single(*cell)[[t]] for cell, t in zip(cells, some, strict=True)]),
    ]


def named(fault: Fault, n: int, steps: int, threshold: float, presence: float) -> list[str]:
    """What the classifier calls each case, from weights rounded to float16."""
    if fault.name == "clean":
        return ["clean"]
    out = []
    for number, weights in enumerate(fault.weights):
        hits = weights.astype(np.float16) > threshold
        if fault.name == "global":
            times = hits.sum(axis=0)
            if int((times > 0).sum()) != 1:
                out.append("global" if times.any() else "clean")
                continue
            i, j = (int(x[0]) for x in np.nonzero(times))
            count = int(times.max())
        else:
            (i, j), count = fault.cells[number], int(hits.sum())
        if count == 0:
            out.append("clean")
        elif count < presence * steps:
            out.append("intermittent")
        else:
            out.append("boundary" if (i, j) == (n - 1, 0) else "position")
    return out


def changed(fault: Fault, c: Case, n: int) -> list[float]:
    """Share of A's outputs, over steps and queries, whose argmax a leak changes."""
    steps = c.own.shape[0]
    if fault.name == "global":
        after = (c.own @ c.near + c.foreign @ c.far).argmax(axis=-1)
        return [float((after != c.before).mean())]
    out = []
    for (i, j), on in zip(fault.cells, fault.steps, strict=True):
        mixed = c.own[on, i] @ c.near + c.foreign[on, i, j][:, None] * c.far[j]
        out.append(float((mixed.argmax(axis=-1) != c.before[on, i]).sum()) / (steps * n))
    return out


def gap(fault: Fault, c: Case) -> float:
    """Largest difference between own weights under the fault and (1 - leaked) times the healthy ones."""
    if fault.name == "global":
        leaked = c.foreign.sum(axis=-1)
        return float(np.abs(renormalised(c.own, c.total, leaked)).max())
    parts = [renormalised(c.own[on, i], c.total[on, i], c.foreign[on, i, j]) for (i, j), on in zip(fault.cells, fault.steps, strict=True)]
    return max(float(np.abs(part).max()) for part in parts)


def renormalised(own: Array, total: Array, foreign: Array) -> Array:
    both = total + foreign
    return np.asarray(own / both[..., None] - (1 - foreign / both)[..., None] * (own / total[..., None]))


def classifier(study: Study) -> Iterator[Derived]:
    """The choice of two numbers, the confusion, the table."""
    s, factors = study.settings, study.protocol["factors"]
    share = math.lcm(*(len(opened(s, n)) for n in factors["length"]))
    grid = [(row["threshold"], row["presence"]) for row in rows_of(study, "setup")]
    points = [0] * len(grid)
    for seed in s["setup_seeds"]:
        for n in factors["length"]:
            for scale in factors["scale"]:
                for fault in faults(s, case(s, seed, n, scale), n):
                    for place, numbers in enumerate(grid):
                        names = named(fault, n, s["steps"], *numbers)
                        points[place] += names.count(fault.name) * (share // len(names))
    yield Derived("setup", counts={"score": points})
    best = grid[points.index(max(points))]
    yield Derived("chosen", own={"threshold_used": [best[0]], "presence_used": [best[1]]})
    confusion, gaps = [], []
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in factors["planted"]}
    for seed in study.seeds:
        for n in factors["length"]:
            for scale in factors["scale"]:
                c = case(s, seed, n, scale)
                for fault in faults(s, c, n):
                    names = named(fault, n, s["steps"], *best)
                    confusion.append({"cases": len(names)} | {f"named_{name}": names.count(name) for name in NAMES})
                    if fault.name != "clean":
                        gaps.append(gap(fault, c))
                        note(seen[fault.name], fault, c, n, names)
    yield Derived("judged", counts=table(confusion))
    yield Derived("renormalised", own={"gap": gaps})
    rows = []
    for name in factors["planted"]:
        row = {f"{key}_share": mean(seen[name][key]) for key in ("cells", "queries", "steps", "changed", "named")}
        weights = seen[name]["weights"]
        rows.append(row | {"weight_min": min(weights), "weight_mean": mean(weights), "weight_max": max(weights)})
    yield Derived("signatures", own=table(rows))


def note(seen: dict[str, list[float]], fault: Fault, c: Case, n: int, names: list[str]) -> None:
    """Collect what the table needs of one fault's cases."""
    everywhere, steps = fault.name == "global", c.own.shape[0]
    for key, values in (
        ("cells", [1.0 if everywhere else 1 / n**2] * len(names)),
        ("queries", [1.0 if everywhere else 1 / n] * len(names)),
        ("steps", [len(on) / steps for on in fault.steps]),
        ("changed", changed(fault, c, n)),
        ("named", [float(name == fault.name) for name in names]),
        ("weights", [w for weights in fault.weights for w in weights.ravel().tolist()]),
    ):
        seen.setdefault(key, []).extend(values)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def usage(study: Study) -> Derived:
    """Entropy and the use of the far half, one sequence at a time, from the stored trained weights."""
    s = study.settings
    t = s["training"]
    content, features = t["content"], t["content"] + 2
    stored = [study.read("trained", name) for name in ("w_q", "w_k")]
    rows: dict[str, list[list[float]]] = {name: [] for name in ("entropy", "nearest", "deleted", "permuted")}
    shares = []
    for factors in rows_of(study, "usage"):
        n, head = factors["history"], factors["head"]
        rng = np.random.default_rng([factors["seed"], n, content])
        maps = list(rng.normal(0, features**-0.5, (2, features, t["width"])))
        if head.startswith("trained"):
            maps = [part[study.seeds.index(factors["seed"]), int(head == "trained_nearest")] for part in stored]
        drawn = rng.normal(size=(s["far_sequences"], n, content))
        lines = [one_sequence(tokens, maps, head == "equal_values") for tokens in drawn]
        for place, name in enumerate(rows):
            rows[name].append([line[place] for line in lines])
        shares.append(mean(rows["entropy"][-1]) / math.log(n))
    return Derived("usage", None, {name: np.array(value) for name, value in rows.items()}, own={"entropy_share": shares})


def one_sequence(tokens: Array, maps: list[Array], equal: bool) -> tuple[float, float, float, float]:
    """Entropy, weight of the newest token, relative change without the far half, and with its values moved one place."""
    n = len(tokens)
    flags = np.zeros((n, 2))
    flags[0, 0], flags[-1, 1] = 1.0, 1.0
    x = np.concatenate([tokens, flags], axis=1)
    row = scores(x[-1] @ maps[0], x @ maps[1])
    weights = weigh(row, [True] * n)
    half = n // 2
    values = np.array([tokens[0]] * n) if equal else tokens
    moved = values[[*([half - 1] if half else []), *range(half - 1), *range(half, n)]]
    kept = weigh(row, [j >= half for j in range(n)])
    output, deleted, permuted = (
        np.array([math.fsum(column) for column in (np.array(w)[:, None] * v).T.tolist()])
        for w, v in ((weights, values), (kept, values), (weights, moved))
    )
    size = math.sqrt(math.fsum(output**2))
    changes = (math.sqrt(math.fsum((other - output) ** 2)) / size for other in (deleted, permuted))
    return disorder(np.array(row)), weights[-1], next(changes), next(changes)


def derive(study: Study) -> Iterator[Derived]:
    """All blocks, whole."""
    yield published(study)
    yield from entropies(study)
    yield boundary(study)
    yield whole(study)
    yield position(study)
    yield from classifier(study)
    yield usage(study)
