"""One polluted head, block or layer of the cache, followed through heads and layers; probes that look for it; bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.batch import Batch
from labcore.heads import Pass, Stack, draw, forward, positions
from labcore.protocol import Protocol

Floats = NDArray[Any]
DEPTHS = (4, 8, 12)


def batches(protocol: Protocol) -> Iterator[Batch]:
    yield heads(protocol)
    for depth in DEPTHS:
        yield trace(protocol, depth)
        yield probes(protocol, depth)
    yield example(protocol)
    yield held(protocol)


class Case:
    """One model with a clean prefix, a foreign one, and a suffix that continues the clean one."""

    def __init__(self, s: dict[str, Any], seed: int, depth: int, groups: int, kind: str) -> None:
        self.stack: Stack = draw([1, seed, depth, groups], depth, s["heads"], groups, s["width"], s["hidden"], kind)
        rng = np.random.default_rng([2, seed])
        self.embedding = rng.standard_normal((s["vocabulary"], s["width"]))
        prefix, foreign, suffix = (rng.integers(0, s["vocabulary"], n) for n in (s["prefix"], s["prefix"], s["suffix"]))
        self.cache = forward(self.stack, self.embed(prefix)).cache
        self.foreign = forward(self.stack, self.embed(foreign)).cache
        self.suffix = self.embed(suffix, s["prefix"])
        self.clean: Pass = forward(self.stack, self.suffix, self.cache)

    def embed(self, tokens: Floats, start: int = 0) -> Floats:
        return self.embedding[tokens] + positions(len(tokens), self.embedding.shape[1], start)

    def pollute(self, layer: int, scope: str, block: list[int], size: float = 1.0, other: Floats | None = None) -> Pass:
        """The suffix again from `layer` on, with foreign K and V (or `other`) there in place of (a share `size` of) its own."""
        other = self.foreign if other is None else other
        cache = self.cache.copy()
        place = {
            "head": (slice(None), slice(self.stack.groups // 2, self.stack.groups // 2 + 1), slice(None)),
            "block": (slice(None), slice(None), slice(*block)),
            "layer": (slice(None), slice(None), slice(None)),
        }[scope]
        cache[layer][place] = (1 - size) * self.cache[layer][place] + size * other[layer][place]
        return forward(self.stack, self.clean.states[layer - 1] if layer else self.suffix, cache, layer)


@lru_cache(maxsize=4)
def _case(model: tuple[tuple[str, Any], ...], seed: int, depth: int, groups: int, kind: str) -> Case:
    return Case(dict(model), seed, depth, groups, kind)


def case(protocol: Protocol, seed: int, depth: int, groups: int, kind: str) -> Case:
    return _case(tuple(sorted(protocol.settings["model"].items())), seed, depth, groups, kind)


def norm(x: Floats, axes: tuple[int, ...]) -> Floats:
    return np.asarray(np.sqrt((x**2).sum(axis=axes)))


def heads(protocol: Protocol) -> Batch:
    """The error of every query head in the polluted layer and in the next, for one polluted KV head."""
    s, depth = protocol.settings["model"], protocol.settings["heads"]["depth"]
    errors, own, counts = [], {"outside_error": [], "inside_least": []}, {"heads_touched": [], "heads_touched_next": [], "cache_bytes": []}
    for row in protocol.rows("heads"):
        made = case(protocol, row["seed"], depth, row["kv_heads"], row["weights"])
        error = np.zeros((depth - 1, 2, s["heads"]))
        for layer in range(depth - 1):
            polluted = made.pollute(layer, "head", [0, 0])
            error[layer] = norm(polluted.heads[:2] - made.clean.heads[layer : layer + 2], (2, 3))
        reached = np.arange(s["heads"]) // (s["heads"] // row["kv_heads"]) == row["kv_heads"] // 2
        errors.append(error)
        own["outside_error"].append(float(error[:, 0, ~reached].max(initial=0.0)))
        own["inside_least"].append(float(error[:, 0, reached].min()))
        counts["heads_touched"].append(int((error[:, 0] > 0).sum(axis=1).max()))
        counts["heads_touched_next"].append(int((error[:, 1] > 0).sum(axis=1).min()))
        counts["cache_bytes"].append(made.cache.nbytes)
    return Batch("heads", {"head_error": np.stack(errors)}, counts=counts, own=own)


def trace(protocol: Protocol, depth: int) -> Batch:
    """The size of the error after every layer, for the same fault at every layer."""
    block = protocol.settings["trace"]["block"]
    errors, norms = [], []
    counts: dict[str, list[int]] = {
        name: [] for name in ("pairs", "growing", "growing_relative", "traces", "monotone", "worst_layer", "probes_seeing")
    }
    for row in protocol.rows(f"trace_{depth}"):
        made = case(protocol, row["seed"], depth, row["kv_heads"], row["weights"])
        error = np.zeros((depth, depth))
        for layer in range(depth):
            error[layer, layer:] = norm(made.pollute(layer, row["scope"], block).states - made.clean.states[layer:], (1, 2))
        clean = norm(made.clean.states, (1, 2))
        errors.append(error)
        norms.append(clean)
        steps = np.triu(np.ones((depth, depth), bool))[:, :-1]  # from the fault's layer on
        grows = (error[:, 1:] > error[:, :-1]) & steps
        relative = error / clean
        counts["pairs"].append(int(steps.sum()))
        counts["growing"].append(int(grows.sum()))
        counts["growing_relative"].append(int(((relative[:, 1:] > relative[:, :-1]) & steps).sum()))
        counts["traces"].append(depth - 1)
        counts["monotone"].append(int((grows | ~steps)[:-1].all(axis=1).sum()))
        counts["worst_layer"].append(int(error[:, -1].argmax()))
        counts["probes_seeing"].append(int((error > 0).sum()))
    early = [layer < depth / 2 for layer in counts["worst_layer"]]
    return Batch(f"trace_{depth}", {"error": np.stack(errors), "clean_norm": np.stack(norms)}, {"worst_is_early": early}, counts)


def example(protocol: Protocol) -> Batch:
    """The states themselves, for one model a seed and a polluted block at each layer."""
    s = protocol.settings["example"]
    clean, polluted = [], []
    for row in protocol.rows("example"):
        made = case(protocol, row["seed"], s["depth"], s["kv_heads"], "random")
        states = np.repeat(made.clean.states[None], s["depth"], axis=0)
        for layer in range(s["depth"]):
            states[layer, layer:] = made.pollute(layer, "block", protocol.settings["trace"]["block"]).states
        clean.append(made.clean.states)
        polluted.append(states)
    return Batch("example", {"clean": np.stack(clean), "polluted": np.stack(polluted)})


def seen(done: Pass) -> Floats:
    """What a probe without a reference looks at, (l, 3): log sizes of attention's branch and of the state, entropy of the weights."""
    return np.stack([np.log(norm(done.branch, (1, 2))), np.log(norm(done.states, (1, 2))), done.entropy], axis=1)


def probes(protocol: Protocol, depth: int) -> Batch:
    """Which layer would each kind of probe name? A block of foreign state, or of noise that is too large, in four sizes at every layer."""
    s = protocol.settings["probes"]
    arrays: dict[str, list[Floats]] = {"exact": [], "noisy": [], "zscore": []}
    counts: dict[str, list[int]] = {"faults": [], "right_exact": [], "right_noisy": [], "right_none": []}
    usual: dict[tuple[int, str], tuple[Floats, Floats]] = {}
    for row in protocol.rows(f"probes_{depth}"):
        made = case(protocol, row["seed"], depth, s["kv_heads"], row["weights"])
        key = row["seed"], row["weights"]
        if key not in usual:
            usual[key] = population(protocol, made, row["seed"])
        mean, spread = usual[key]
        loud = s["noise_size"] * np.random.default_rng([5, row["seed"], depth]).standard_normal(made.cache.shape)
        others = {"foreign": made.foreign, "noise": loud}
        noise = np.random.default_rng([4, row["seed"], depth]).standard_normal(made.clean.states.shape)
        reference = made.clean.states * (1 + s["reference_noise"] * noise)
        size, drifted = norm(made.clean.states, (1, 2)), norm(reference, (1, 2))
        exact, noisy, zscore = (np.zeros((depth, depth)) for _ in range(3))
        for layer in range(depth):
            polluted = made.pollute(layer, "block", protocol.settings["trace"]["block"], row["size"], others[row["state"]])
            states = np.concatenate([made.clean.states[:layer], polluted.states])
            exact[layer] = norm(states - made.clean.states, (1, 2)) / size
            noisy[layer] = norm(states - reference, (1, 2)) / drifted
            looks = np.concatenate([seen(made.clean)[:layer], seen(polluted)])
            zscore[layer] = (np.abs(looks - mean) / spread).max(axis=1)
        for name, value in (("exact", exact), ("noisy", noisy), ("zscore", zscore)):
            arrays[name].append(value)
        counts["faults"].append(depth)
        counts["right_exact"].append(sum(first(line, 0.0) == layer for layer, line in enumerate(exact)))
        counts["right_noisy"].append(sum(first(line, s["reference_threshold"]) == layer for layer, line in enumerate(noisy)))
        counts["right_none"].append(sum(int(line.argmax()) == layer for layer, line in enumerate(zscore)))
    return Batch(f"probes_{depth}", {name: np.stack(values) for name, values in arrays.items()}, counts=counts)


def first(line: Floats, threshold: float) -> int:
    """The first layer whose probe is above the threshold, -1 where none is."""
    above = np.flatnonzero(line > threshold)
    return int(above[0]) if len(above) else -1


def population(protocol: Protocol, made: Case, seed: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of what the probes see over clean requests, each (l, 3)."""
    s, rng = protocol.settings["model"], np.random.default_rng([3, seed])
    looks = []
    for _ in range(protocol.settings["probes"]["population"]):
        prefix, suffix = (rng.integers(0, s["vocabulary"], n) for n in (s["prefix"], s["suffix"]))
        cache = forward(made.stack, made.embed(prefix)).cache
        looks.append(seen(forward(made.stack, made.embed(suffix, s["prefix"]), cache)))
    return np.mean(looks, axis=0), np.std(looks, axis=0, ddof=1)


def held(protocol: Protocol) -> Batch:
    """Bytes of allocated K and V, fp16 unless a layout says otherwise."""
    s = protocol.settings["bytes"]
    counts = []
    for row in protocol.rows("bytes"):
        layout, n, m = row["layout"], s["prefix"], row["private"]
        if layout.startswith("shared"):
            counts.append(tokens_bytes(s, layout, n) + row["requests"] * tokens_bytes(s, layout, m))
        else:
            counts.append(row["requests"] * tokens_bytes(s, layout, n + m))
    return Batch("bytes", counts={"kv_bytes": counts})


def tokens_bytes(s: dict[str, Any], layout: str, n: int) -> int:
    """Bytes that n tokens take in a layout: the arrays are allocated and asked."""
    if layout == "low_rank":
        return np.empty((s["layers"], n, s["rank"]), np.float16).nbytes
    groups = 1 if layout == "mqa" else s["gqa_heads"] if "gqa" in layout else s["heads"]
    rows, width = (2, s["layers"], groups, n), s["head_width"]
    if layout.endswith("int8"):
        return np.empty((*rows, width), np.int8).nbytes + np.empty(rows, np.float32).nbytes
    if layout.endswith("int4"):
        return np.empty((*rows, width // 2), np.uint8).nbytes + np.empty(rows, np.float32).nbytes
    return np.empty((*rows, width), np.float16).nbytes
