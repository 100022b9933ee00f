"""17: models drawn again and run token by token over written-out query heads, with sums that no matrix library does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.study import Derived, Study

Matrix = NDArray[np.float64]
_DEPTHS = (4, 8, 12)
_NAMES = ("q", "k", "v", "o", "up", "down")
_STATES = (
    1e-9,
    "states and errors are below 1000; a layer's sums of up to 128 terms err by less than 128 u of sum|x||w| < 1000, that is 2e-11 in the "
    "first layer, and normalisation and residual let what came in grow by less than a factor of 3 a layer in norm on these weights",
)
_SCORES = (1e-6, "a z-score divides a difference that errs by less than 1e-9 by a spread over requests that is larger than 1e-3")
BOUNDS = {"heads/head_error": _STATES, "example/clean": _STATES, "example/polluted": _STATES}
for _depth in _DEPTHS:
    BOUNDS |= {f"trace_{_depth}/{name}": _STATES for name in ("error", "clean_norm")}
    BOUNDS |= {f"probes_{_depth}/exact": _STATES, f"probes_{_depth}/noisy": _STATES, f"probes_{_depth}/zscore": _SCORES}
GIVEN: dict[str, str] = {}


def derive(study: Study) -> Iterator[Derived]:
    models: dict[Any, _Model] = {}
    yield from _heads(study, models)
    for depth in _DEPTHS:
        yield from _trace(study, models, depth)
        yield from _probes(study, models, depth)
    yield from _example(study, models)
    yield from _bytes(study)


class _Model:
    """Weights, a clean prefix's and a foreign prefix's K and V, and the clean suffix."""

    def __init__(self, s: dict[str, Any], seed: int, depth: int, groups: int, kind: str) -> None:
        self.heads, self.groups, self.depth, self.width = s["heads"], groups, depth, s["width"]
        d, f = s["width"], s["hidden"]
        narrow = groups * (d // s["heads"])
        rng = np.random.default_rng([1, seed, depth, groups])
        sizes = [(d, d), (d, narrow), (d, narrow), (d, d), (d, f), (f, d)]
        self.weights = [
            {name: rng.standard_normal(shape) / math.sqrt(shape[0]) for name, shape in zip(_NAMES, sizes, strict=True)}
            for _ in range(depth)
        ]
        if kind == "trained_like":
            gain = [1 / math.sqrt(1 + i) for i in range(d)]
            mean = math.sqrt(math.fsum(g * g for g in gain) / d)
            for layer in self.weights:
                for name in ("q", "k", "v", "up"):
                    layer[name] = layer[name] * (np.array(gain)[:, None] / mean) * (2 if name == "q" else 1)
                for name in ("o", "down"):
                    layer[name] = layer[name] / math.sqrt(2 * depth)
        rng = np.random.default_rng([2, seed])
        self.embedding = rng.standard_normal((s["vocabulary"], d))
        prefix, foreign, suffix = (rng.integers(0, s["vocabulary"], s[name]) for name in ("prefix", "prefix", "suffix"))
        empty = [[np.zeros((groups, 0, d // s["heads"]))] * 2] * depth
        self.cache = self.run(self.embed(prefix), empty)["cache"]
        self.foreign = self.run(self.embed(foreign), empty)["cache"]
        self.empty = empty
        self.suffix = self.embed(suffix, s["prefix"])
        self.clean = self.run(self.suffix, self.cache)

    def embed(self, tokens: Any, start: int = 0) -> Matrix:
        out: Matrix = self.embedding[tokens].copy()
        for i in range(len(tokens)):
            for pair in range(self.width // 2):
                angle = (start + i) / 10000.0 ** (2 * pair / self.width)
                out[i, 2 * pair] += math.sin(angle)
                out[i, 2 * pair + 1] += math.cos(angle)
        return out

    def run(self, x: Matrix, cache: list[Any], first: int = 0) -> dict[str, Any]:
        """States, head outputs (head, token, width), branches, entropies and caches (k, v) from layer `first` on."""
        e, each = self.width // self.heads, self.heads // self.groups
        done: dict[str, Any] = {"states": [], "heads": [], "branch": [], "entropy": [], "cache": []}
        for at in range(first, self.depth):
            w = self.weights[at]
            y = _normal(x)
            q = _times(y, w["q"]).reshape(len(x), self.heads, e)
            k, v = (
                np.concatenate([past, _times(y, w[name]).reshape(len(x), self.groups, e).swapaxes(0, 1)], axis=1)
                for past, name in zip(cache[at], ("k", "v"), strict=True)
            )
            wide_k, wide_v = np.repeat(k, each, axis=0), np.repeat(v, each, axis=0)  # one copy a query head
            outputs, entropy = np.empty((self.heads, len(x), e)), 0.0
            for i in range(len(x)):
                n = k.shape[1] - len(x) + i + 1
                scores = (wide_k[:, :n] * q[i][:, None, :]).sum(axis=2) / math.sqrt(e)
                weights = np.exp(scores - scores.max(axis=1)[:, None])
                weights = weights / weights.sum(axis=1)[:, None]
                outputs[:, i] = (weights[:, :, None] * wide_v[:, :n]).sum(axis=1)
                entropy -= float((weights * np.log(np.maximum(weights, 5e-324))).sum())
            branch = _times(np.concatenate(list(outputs), axis=1), w["o"])
            x = x + branch
            x = x + _times(np.tanh(_times(_normal(x), w["up"])), w["down"])
            for name, value in zip(done, (x, outputs, branch, entropy / (self.heads * len(x)), [k, v]), strict=True):
                done[name].append(value)
        return done

    def polluted(self, layer: int, scope: str, block: list[int], size: float = 1.0, instead: Any = None) -> dict[str, Any]:
        """From the polluted layer on. instead: K and V of that layer to mix in, else the foreign ones."""
        cache = list(self.cache)
        mixed = []
        for own, other in zip(self.cache[layer], instead or self.foreign[layer], strict=True):
            new = own.copy()
            for group in range(self.groups):
                for token in range(own.shape[1]):
                    if (scope != "head" or group == self.groups // 2) and (scope != "block" or block[0] <= token < block[1]):
                        new[group, token] = own[group, token] * (1 - size) + other[group, token] * size
            mixed.append(new)
        cache[layer] = mixed
        return self.run(self.clean["states"][layer - 1] if layer else self.suffix, cache, layer)


def _normal(x: Matrix) -> Matrix:
    return np.asarray(x / np.sqrt(np.einsum("md,md->m", x, x) / x.shape[1] + 1e-6)[:, None])


def _times(x: Matrix, w: Matrix) -> Matrix:
    return np.asarray(np.einsum("md,df->mf", x, w, optimize=False))


def _length(x: Any) -> float:
    return math.sqrt(math.fsum((np.asarray(x).ravel() ** 2).tolist()))


def _model(study: Study, models: dict[Any, _Model], *key: Any) -> _Model:
    if key not in models:
        models[key] = _Model(study.settings["model"], *key)
    return models[key]


def _heads(study: Study, models: dict[Any, _Model]) -> Iterator[Derived]:
    depth, count = study.settings["heads"]["depth"], study.settings["model"]["heads"]
    factors = study.rows("heads")
    for r in study.chosen("heads"):
        row = factors[r]
        model = _model(study, models, row["seed"], depth, row["kv_heads"], row["weights"])
        error = np.zeros((depth - 1, 2, count))
        for layer in range(depth - 1):
            done = model.polluted(layer, "head", [0, 0])["heads"]
            for later in range(2):
                for head in range(count):
                    error[layer, later, head] = _length(done[later][head] - model.clean["heads"][layer + later][head])
        stored = study.decoded("heads", "head_error", [r])[0]
        group = range(row["kv_heads"] // 2 * count // row["kv_heads"], (row["kv_heads"] // 2 + 1) * count // row["kv_heads"])
        outside = [stored[layer, 0, head] for layer in range(depth - 1) for head in range(count) if head not in group]
        inside = [stored[layer, 0, head] for layer in range(depth - 1) for head in group]
        touched = [[sum(1 for x in stored[layer, later] if x > 0) for layer in range(depth - 1)] for later in (0, 1)]
        yield Derived(
            "heads",
            [r],
            {"head_error": error[None]},
            counts={
                "heads_touched": [max(touched[0])],
                "heads_touched_next": [min(touched[1])],
                "cache_bytes": [sum(8 * part.size for layer_cache in model.cache for part in layer_cache)],
            },
            own={"outside_error": [float(max(outside, default=0.0))], "inside_least": [float(min(inside))]},
        )


def _trace(study: Study, models: dict[Any, _Model], depth: int) -> Iterator[Derived]:
    name = f"trace_{depth}"
    factors = study.rows(name)
    for r in study.chosen(name):
        row = factors[r]
        model = _model(study, models, row["seed"], depth, row["kv_heads"], row["weights"])
        error = np.zeros((depth, depth))
        for layer in range(depth):
            done = model.polluted(layer, row["scope"], study.settings["trace"]["block"])["states"]
            for at, state in enumerate(done, layer):
                error[layer, at] = _length(state - model.clean["states"][at])
        norms = np.array([_length(state) for state in model.clean["states"]])
        stored, size = study.decoded(name, "error", [r])[0], study.decoded(name, "clean_norm", [r])[0]
        counts = {"pairs": 0, "growing": 0, "growing_relative": 0, "traces": depth - 1, "monotone": 0, "worst_layer": 0, "probes_seeing": 0}
        for layer in range(depth):
            steps = [(stored[layer, at], stored[layer, at + 1], size[at], size[at + 1]) for at in range(layer, depth - 1)]
            counts["pairs"] += len(steps)
            counts["growing"] += sum(1 for a, b, _, _ in steps if b > a)
            counts["growing_relative"] += sum(1 for a, b, m, n in steps if b / n > a / m)
            counts["monotone"] += bool(steps) and all(b > a for a, b, _, _ in steps)
            counts["probes_seeing"] += sum(1 for value in stored[layer] if value > 0)
            if stored[layer, -1] > stored[counts["worst_layer"], -1]:
                counts["worst_layer"] = layer
        yield Derived(
            name,
            [r],
            {"error": error[None], "clean_norm": norms[None]},
            {"worst_is_early": [2 * counts["worst_layer"] < depth]},
            {key: [value] for key, value in counts.items()},
        )


def _example(study: Study, models: dict[Any, _Model]) -> Iterator[Derived]:
    s = study.settings["example"]
    factors = study.rows("example")
    for r in study.chosen("example"):
        model = _model(study, models, factors[r]["seed"], s["depth"], s["kv_heads"], "random")
        clean = model.clean["states"]
        runs = [clean[:layer] + model.polluted(layer, "block", study.settings["trace"]["block"])["states"] for layer in range(s["depth"])]
        yield Derived("example", [r], {"clean": np.array(clean)[None], "polluted": np.array(runs)[None]})


def _look(done: dict[str, Any]) -> list[list[float]]:
    return [
        [math.log(_length(branch)), math.log(_length(state)), entropy]
        for branch, state, entropy in zip(done["branch"], done["states"], done["entropy"], strict=True)
    ]


def _usual(study: Study, model: _Model, seed: int) -> tuple[Any, Any]:
    s, rng = study.settings["model"], np.random.default_rng([3, seed])
    looks = []
    for _ in range(study.settings["probes"]["population"]):
        prefix = rng.integers(0, s["vocabulary"], s["prefix"])
        suffix = rng.integers(0, s["vocabulary"], s["suffix"])
        looks.append(_look(model.run(model.embed(suffix, s["prefix"]), model.run(model.embed(prefix), model.empty)["cache"])))
    table = np.array(looks)
    mean = np.array([[math.fsum(table[:, i, j]) / len(table) for j in range(3)] for i in range(table.shape[1])])
    spread = np.array(
        [[math.sqrt(math.fsum((table[:, i, j] - mean[i, j]) ** 2) / (len(table) - 1)) for j in range(3)] for i in range(table.shape[1])]
    )
    return mean, spread


def _probes(study: Study, models: dict[Any, _Model], depth: int) -> Iterator[Derived]:
    s, name = study.settings["probes"], f"probes_{depth}"
    factors = study.rows(name)
    usual: dict[Any, tuple[Any, Any]] = {}
    for r in study.chosen(name):
        row = factors[r]
        key = row["seed"], row["weights"]
        model = _model(study, models, row["seed"], depth, s["kv_heads"], row["weights"])
        if key not in usual:
            usual[key] = _usual(study, model, row["seed"])
        mean, spread = usual[key]
        loud = np.random.default_rng([5, row["seed"], depth]).standard_normal((depth, 2, *model.cache[0][0].shape))
        clean = model.clean["states"]
        noise = np.random.default_rng([4, row["seed"], depth]).standard_normal((depth, *clean[0].shape))
        reference = [state + state * s["reference_noise"] * drift for state, drift in zip(clean, noise, strict=True)]
        arrays = {kind: np.zeros((depth, depth)) for kind in ("exact", "noisy", "zscore")}
        for layer in range(depth):
            instead = list(loud[layer] * s["noise_size"]) if row["state"] == "noise" else None
            done = model.polluted(layer, "block", study.settings["trace"]["block"], row["size"], instead)
            looks = _look(model.clean)[:layer] + _look(done)
            for at, state in enumerate(clean[:layer] + done["states"]):
                arrays["exact"][layer, at] = _length(state - clean[at]) / _length(clean[at])
                arrays["noisy"][layer, at] = _length(state - reference[at]) / _length(reference[at])
                arrays["zscore"][layer, at] = max(abs(x - m) / d for x, m, d in zip(looks[at], mean[at], spread[at], strict=True))
        stored = {kind: study.decoded(name, kind, [r])[0] for kind in arrays}
        above = {"exact": 0.0, "noisy": s["reference_threshold"]}
        right = {
            kind: sum(1 for layer in range(depth) if next((at for at, x in enumerate(stored[kind][layer]) if x > limit), -1) == layer)
            for kind, limit in above.items()
        }
        none = sum(1 for layer in range(depth) if max(range(depth), key=lambda at, line=stored["zscore"][layer]: line[at]) == layer)  # type: ignore[misc]
        yield Derived(
            name,
            [r],
            {kind: value[None] for kind, value in arrays.items()},
            counts={"faults": [depth], "right_exact": [right["exact"]], "right_noisy": [right["noisy"]], "right_none": [none]},
        )


def _bytes(study: Study) -> Iterator[Derived]:
    s = study.settings["bytes"]
    heads = {"separate": s["heads"], "shared": s["heads"], "int8": s["heads"], "int4": s["heads"], "gqa": s["gqa_heads"], "mqa": 1}
    heads |= {"shared_gqa": s["gqa_heads"], "shared_gqa_int4": s["gqa_heads"]}
    factors = study.rows("bytes")
    for r in study.chosen("bytes"):
        layout, requests, private = factors[r]["layout"], factors[r]["requests"], factors[r]["private"]
        if layout == "low_rank":
            token = s["layers"] * s["rank"] * 2
        else:
            half_bits = {"int8": 16, "int4": 8}.get(layout.split("_")[-1], 32)  # 16-bit values are 32 half bits, and so on
            token = 2 * s["layers"] * heads[layout] * (s["head_width"] * half_bits // 16 + (4 if half_bits < 32 else 0))
        tokens = s["prefix"] + requests * private if layout.startswith("shared") else requests * (s["prefix"] + private)
        yield Derived("bytes", [r], counts={"kv_bytes": [token * tokens]})
