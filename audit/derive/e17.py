"""17: models drawn again, many sequences side by side, head by head, with sums that no matrix library does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.study import Derived, Study

Matrix = NDArray[np.float64]
_DEPTHS = (4, 8, 12)
_NAMES = ("q", "k", "v", "o", "up", "down")
_NEVER = -1e300  # a score of a key that is not seen yet: its exp is 0
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
Key = tuple[int, int, int, str]  # seed, depth, KV heads, weights
Fault = tuple[str, str, float]  # scope, state mixed in, size


def derive(study: Study) -> Iterator[Derived]:
    models = _Models(study)
    yield from _heads(study, models)
    for depth in _DEPTHS:
        yield from _trace(study, models, depth)
        yield from _probes(study, models, depth)
    yield from _example(study)
    yield from _bytes(study)


@dataclass
class _Step:
    """What a layer gives: states and branch (width, token, sequence), heads (group, member, width, token, sequence), mean entropy of the
    heads (token, sequence), and K and V (group, width, token, sequence)."""

    state: Matrix
    branch: Matrix
    heads: Matrix
    entropy: Matrix
    cache: list[Matrix]

    def look(self) -> Matrix:
        """(sequence, 3)"""
        return np.stack([np.log(_lengths(self.branch)), np.log(_lengths(self.state)), self.entropy.mean(axis=0)], axis=1)

    def of(self, tokens: slice, sequences: slice = slice(None)) -> _Step:
        """The part of some tokens of some sequences."""
        part = ..., tokens, sequences
        return _Step(self.state[part], self.branch[part], self.heads[part], self.entropy[part], [kind[part] for kind in self.cache])


class _Model:
    """Weights (out, in), a clean prefix's and a foreign prefix's K and V, and the clean suffix."""

    def __init__(self, s: dict[str, Any], seed: int, depth: int, groups: int, kind: str) -> None:
        self.heads, self.groups, self.depth, self.width = s["heads"], groups, depth, s["width"]
        d, f = s["width"], s["hidden"]
        narrow = groups * (d // s["heads"])
        sizes = (d, d), (d, narrow), (d, narrow), (d, d), (d, f), (f, d)
        gain = [1 / math.sqrt(1 + i) for i in range(d)]
        mean = math.sqrt(math.fsum(g * g for g in gain) / d)
        self.weights: list[dict[str, Matrix]] = []
        for drawn in _draw(seed, depth, groups, sizes):
            layer = dict(zip(_NAMES, drawn, strict=True))
            if kind == "trained_like":
                for name in ("q", "k", "v", "up"):
                    layer[name] = layer[name] * (np.array(gain)[:, None] / mean) * (2 if name == "q" else 1)
                for name in ("o", "down"):
                    layer[name] = layer[name] / math.sqrt(2 * depth)
            joined = np.concatenate([layer.pop(name) for name in "qkv"], axis=1)
            self.weights.append({name: np.ascontiguousarray(w.T) for name, w in [("qkv", joined), *layer.items()]})
        rng = np.random.default_rng([2, seed])
        self.embedding = rng.standard_normal((s["vocabulary"], d))
        prefix, foreign, suffix = (rng.integers(0, s["vocabulary"], s[name]) for name in ("prefix", "prefix", "suffix"))
        self.start = s["prefix"]
        steps = self.run(self.embed([[*prefix, *suffix], [*foreign, *suffix]]))
        self.cache, self.foreign = ([step.of(slice(self.start), slice(n, n + 1)).cache for step in steps] for n in (0, 1))
        self.clean = [step.of(slice(-s["suffix"], None), slice(1)) for step in steps]
        self.suffix = self.embed([[*prefix, *suffix]])[:, self.start :]

    def embed(self, tokens: Any) -> Matrix:
        """Tokens (sequence, token) as (width, token, sequence)."""
        tokens = np.asarray(tokens)
        return np.ascontiguousarray((self.embedding[tokens] + _places(tokens.shape[1], self.width)).T)

    def run(self, x: Matrix) -> list[_Step]:
        """All layers, with nothing before; of the prefix, the last layer gives K and V alone."""
        nothing = [np.zeros((self.groups, self.width // self.heads, 0, x.shape[2]))] * 2
        done: list[_Step] = []
        for at in range(self.depth):
            done.append(self.layer(at, done[-1].state if done else x, nothing, self.start if at == self.depth - 1 else 0))
        return done

    def layer(self, at: int, x: Matrix, past: list[Matrix], first: int = 0) -> _Step:
        """One layer; K and V of all tokens, the rest from the token `first` on."""
        d, (_, tokens, sequences), w = self.width, x.shape, self.weights[at]
        y = _times(w["qkv"], _normal(x))
        q = y[:d].reshape(self.groups, -1, d // self.heads, tokens, sequences)[:, :, :, first:]
        new = y[d:].reshape(2, self.groups, -1, tokens, sequences)
        cache = [np.concatenate(pair, axis=2) for pair in zip(past, new, strict=True)]
        heads, entropy = _attend(q, *cache)
        branch = _times(w["o"], heads.reshape(d, -1, sequences))
        x = x[:, first:] + branch
        hidden = _times(w["up"], _normal(x))
        x += _times(w["down"], np.tanh(hidden, out=hidden))
        return _Step(x, branch, heads, entropy / self.heads, cache)

    def polluted(self, faults: Sequence[Fault], block: list[int], loud: Any) -> list[_Step]:
        """Each fault in each layer in turn. Sequences of a layer: the faults of layer 0, those of layer 1, and so on up to this layer;
        from then on each runs on its own."""
        done: list[_Step] = []
        for at, clean in enumerate(self.cache):
            fresh = self.clean[at - 1].state if at else self.suffix
            x = np.concatenate([*(step.state for step in done[-1:]), np.repeat(fresh, len(faults), axis=2)], axis=2)
            past = [
                np.concatenate([np.repeat(own, at * len(faults), axis=3), self._mixed(own, at, which, faults, block, loud)], axis=3)
                for which, own in enumerate(clean)
            ]
            done.append(self.layer(at, x, past))
        return done

    def _mixed(self, own: Matrix, layer: int, which: int, faults: Sequence[Fault], block: list[int], loud: Any) -> Matrix:
        """K (which=0) or V of a layer with each fault, along the last axis."""
        group, token = np.arange(self.groups)[:, None, None, None], np.arange(own.shape[2])[:, None]
        hit = {"head": group == self.groups // 2, "block": (block[0] <= token) & (token < block[1]), "layer": np.True_}
        mixed = []
        for scope, state, size in faults:
            other = loud[layer, which] if state == "noise" else self.foreign[layer][which]
            mixed.append(np.where(hit[scope], own * (1 - size) + other * size, own))
        return np.concatenate(mixed, axis=3)


@lru_cache(1)
def _draw(seed: int, depth: int, groups: int, sizes: tuple[tuple[int, int], ...]) -> list[list[Matrix]]:
    """The random weights (in, out) of each layer; both kinds of weights are made of them, one after the other."""
    rng = np.random.default_rng([1, seed, depth, groups])
    return [[rng.standard_normal(shape) / math.sqrt(shape[0]) for shape in sizes] for _ in range(depth)]


@lru_cache(1)
def _places(count: int, width: int) -> Matrix:
    """Sines in the even columns, cosines in the odd ones."""
    angles = [[i / 10000.0 ** (2 * pair / width) for pair in range(width // 2)] for i in range(count)]
    return np.array([[wave(angle) for angle in row for wave in (math.sin, math.cos)] for row in angles])


def _normal(x: Matrix) -> Matrix:
    return np.asarray(x / np.sqrt(np.einsum("dtb,dtb->tb", x, x, optimize=False) / len(x) + 1e-6))


def _times(w: Matrix, x: Matrix) -> Matrix:
    done: Matrix = np.einsum("fd,dm->fm", w, x.reshape(len(x), -1), optimize=False)
    return done.reshape(-1, *x.shape[1:])


def _attend(q: Matrix, k: Matrix, v: Matrix) -> tuple[Matrix, Matrix]:
    """Outputs as q (group, member, width, token, sequence) and summed entropies (token, sequence). K and V (group, width, key, sequence)
    end with the queries' own. Some tokens at a time, so that what is between fits in a processor's cache."""
    tokens, sequences = q.shape[3:]
    step = max(1, 32 // sequences)
    q = q / math.sqrt(q.shape[2])
    if sequences < step:  # few sequences: the longer axis is the inner one
        q = np.ascontiguousarray(q.swapaxes(3, 4)).swapaxes(3, 4)
    done, entropy = np.empty_like(q), np.empty((tokens, sequences))
    for start in range(0, tokens, step):
        part = q[:, :, :, start : start + step]
        keys = k.shape[2] - tokens + start + part.shape[3]
        scores = np.einsum("gretb,genb->grntb", part, k[:, :, :keys], optimize=False)
        for at in range(part.shape[3] - 1):
            scores[:, :, keys - part.shape[3] + at + 1 :, at] = _NEVER
        scores -= scores.max(axis=2, keepdims=True)
        weights = np.exp(scores)
        total = weights.sum(axis=2)
        done[:, :, :, start : start + step] = np.einsum("grntb,genb->gretb", weights, v[:, :, :keys], optimize=False) / total[:, :, None]
        # -sum p log p of p = weight / total
        spread = np.einsum("grntb,grntb->grtb", weights, scores, optimize=False) / total
        entropy[start : start + step] = (np.log(total) - spread).sum(axis=(0, 1))
    return done, entropy


def _lengths(x: Matrix) -> Matrix:
    """The length of each sequence's (width, token) part."""
    return np.asarray(np.sqrt(np.einsum("dtb,dtb->b", x, x, optimize=False)))


class _Models:
    """What the chosen rows ask of each model; all its faults are followed side by side when the first row asks."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._cases: dict[str, list[tuple[int, dict[str, Any], Key, Fault]]] = {}
        self._faults: dict[Key, dict[Fault, None]] = {}
        self._probed: set[Key] = set()
        self._known: dict[Key, dict[str, Any]] = {}
        blocks = {"heads": study.settings["heads"]["depth"]}
        blocks |= {f"{kind}_{depth}": depth for depth in _DEPTHS for kind in ("trace", "probes")}
        for block, depth in blocks.items():
            rows, cases = study.rows(block), self._cases.setdefault(block, [])
            for r in study.chosen(block):
                row = rows[r]
                key = row["seed"], depth, row.get("kv_heads", study.settings["probes"]["kv_heads"]), row["weights"]
                fault = row.get("scope", "head" if block == "heads" else "block"), row.get("state", "foreign"), row.get("size", 1.0)
                cases.append((r, row, key, fault))
                self._faults.setdefault(key, {})[fault] = None
                if block.startswith("probes"):
                    self._probed.add(key)

    def of(self, block: str) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
        """Number and factors of each chosen row, and what its fault does in its model."""
        for r, row, key, fault in self._cases[block]:
            if key not in self._known:
                self._known[key] = _follow(self._study, key, list(self._faults[key]), key in self._probed)
            yield r, row, {name: value[fault] if isinstance(value, dict) else value for name, value in self._known[key].items()}


def _follow(study: Study, key: Key, faults: list[Fault], probed: bool) -> dict[str, Any]:
    """`norms` and `cache_bytes` of the clean model; of each fault `error` (faulty layer, layer), `heads` (faulty layer, layers later, head)
    and, where probed, `exact`, `noisy` and `zscore`, shaped as `error`."""
    s, (seed, depth, groups, _) = study.settings, key
    model = _Model(s["model"], *key)
    loud = None
    if probed:
        shape = depth, 2, groups, s["model"]["prefix"], model.width // model.heads
        loud = np.random.default_rng([5, seed, depth]).standard_normal(shape).swapaxes(3, 4)[..., None] * s["probes"]["noise_size"]
    steps = model.polluted(faults, s["trace"]["block"], loud)

    def table(values: list[Matrix], clean: Any) -> Matrix:
        """Values of each layer's sequences as (fault, faulty layer, layer); clean: what stands before the faulty layer."""
        filled = np.tile(clean, (len(faults), depth, 1))
        for at, value in enumerate(values):
            filled[:, : at + 1, at] = value.reshape(at + 1, -1).T
        return filled

    clean = [step.state for step in model.clean]
    norms = np.concatenate([_lengths(state) for state in clean])
    heads = np.zeros((len(faults), depth - 1, 2, model.heads))
    for at, (step, own) in enumerate(zip(steps, model.clean, strict=True)):
        change = step.heads - own.heads
        moved = np.sqrt(np.einsum("gretb,gretb->grb", change, change, optimize=False)).reshape(model.heads, at + 1, -1)
        for later in range(min(at + 1, 2)):
            if at - later < depth - 1:
                heads[:, at - later, later] = moved[:, at - later].T
    found = {"heads": heads, "error": table([_lengths(step.state - own) for step, own in zip(steps, clean, strict=True)], np.zeros(depth))}
    if probed:
        drift = np.random.default_rng([4, seed, depth]).standard_normal((depth, *clean[0].shape[1::-1]))
        noisy = [own + own * s["probes"]["reference_noise"] * part.T[..., None] for own, part in zip(clean, drift, strict=True)]
        sizes = np.concatenate([_lengths(state) for state in noisy])
        before = np.concatenate([_lengths(own - state) for own, state in zip(clean, noisy, strict=True)])
        mean, spread = _usual(study, model, seed)
        far = [[(np.abs(step.look() - mean[at]) / spread[at]).max(axis=1) for at, step in enumerate(run)] for run in (steps, model.clean)]
        found["exact"] = found["error"] / norms
        found["noisy"] = table([_lengths(step.state - state) for step, state in zip(steps, noisy, strict=True)], before) / sizes
        found["zscore"] = table(far[0], np.concatenate(far[1]))
    cache_bytes = sum(8 * part.size for layer in model.cache for part in layer)
    return {"norms": norms, "cache_bytes": cache_bytes} | {name: dict(zip(faults, part, strict=True)) for name, part in found.items()}


def _usual(study: Study, model: _Model, seed: int) -> tuple[Matrix, Matrix]:
    """Mean and spread over clean requests of what is looked at, each (layer, 3)."""
    s, rng = study.settings["model"], np.random.default_rng([3, seed])
    drawn = [
        [rng.integers(0, s["vocabulary"], s[name]) for name in ("prefix", "suffix")] for _ in range(study.settings["probes"]["population"])
    ]
    steps = model.run(model.embed([[*prefix, *suffix] for prefix, suffix in drawn]))
    looks = np.array([step.of(slice(-s["suffix"], None)).look() for step in steps])
    return looks.mean(axis=1), looks.std(axis=1, ddof=1)


def _heads(study: Study, models: _Models) -> Iterator[Derived]:
    depth, count = study.settings["heads"]["depth"], study.settings["model"]["heads"]
    for r, row, done in models.of("heads"):
        stored = study.decoded("heads", "head_error", [r])[0]
        group = range(row["kv_heads"] // 2 * count // row["kv_heads"], (row["kv_heads"] // 2 + 1) * count // row["kv_heads"])
        outside = [stored[layer, 0, head] for layer in range(depth - 1) for head in range(count) if head not in group]
        inside = [stored[layer, 0, head] for layer in range(depth - 1) for head in group]
        touched = [[sum(1 for x in stored[layer, later] if x > 0) for layer in range(depth - 1)] for later in (0, 1)]
        yield Derived(
            "heads",
            [r],
            {"head_error": done["heads"][None]},
            counts={
                "heads_touched": [max(touched[0])],
                "heads_touched_next": [min(touched[1])],
                "cache_bytes": [done["cache_bytes"]],
            },
            own={"outside_error": [float(max(outside, default=0.0))], "inside_least": [float(min(inside))]},
        )


def _trace(study: Study, models: _Models, depth: int) -> Iterator[Derived]:
    name = f"trace_{depth}"
    for r, _, done in models.of(name):
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
            {"error": done["error"][None], "clean_norm": done["norms"][None]},
            {"worst_is_early": [2 * counts["worst_layer"] < depth]},
            {key: [value] for key, value in counts.items()},
        )


def _example(study: Study) -> Iterator[Derived]:
    s = study.settings["example"]
    factors = study.rows("example")
    for r in study.chosen("example"):
        model = _Model(study.settings["model"], factors[r]["seed"], s["depth"], s["kv_heads"], "random")
        clean = np.array([step.state[:, :, 0].T for step in model.clean])
        runs = np.repeat(clean[None], s["depth"], axis=0)
        for at, step in enumerate(model.polluted([("block", "foreign", 1.0)], study.settings["trace"]["block"], None)):
            runs[: at + 1, at] = step.state.T
        yield Derived("example", [r], {"clean": clean[None], "polluted": runs[None]})


def _probes(study: Study, models: _Models, depth: int) -> Iterator[Derived]:
    s, name = study.settings["probes"], f"probes_{depth}"
    for r, _, done in models.of(name):
        arrays = {kind: done[kind] for kind in ("exact", "noisy", "zscore")}
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
