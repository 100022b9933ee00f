"""20: values by a network of its own in binary64 on the rounded weights; equality, ulp distances and alarms from the stored bits.

The bits themselves are the machine's: they cannot be derived, but each must lie within its dtype's bound of the exact value, and every
decision and distance follows from them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.softmax import attend
from audit.study import Derived, Study

Matrix = NDArray[np.float64]
_WHY = (
    "states lie within 1 and K, V, scores below 10; rounding unit u = {u}. Input, projections, scores, weights of attention and tanh are "
    "rounded once each in two layers, sums of up to 96 terms are taken at least in float32, and an error grows by less than 4 in a "
    "layer: below about 60 u, whatever the order of the sums"
)
_LIMIT = {
    "float64": (1e-12, _WHY.format(u="2**-53, sums in float64")),
    "float32": (3e-5, _WHY.format(u="2**-24, sums in float32")),
    "float16": (3e-2, _WHY.format(u="2**-11")),
    "bfloat16": (2.4e-1, _WHY.format(u="2**-8")),
}
_DTYPES = tuple(_LIMIT)
_SHORT = ("float32", "bfloat16", "float16")
BOUNDS: dict[str, tuple[float, str]] = {}
GIVEN: dict[str, str] = {"kernels/description": "what PyTorch says of the machine"}
for _dtype, _bound in _LIMIT.items():
    BOUNDS |= {f"bits_{_dtype}/{name}": _bound for name in ("k", "v", "output")} | {f"fixed_{_dtype}/output": _bound}
    BOUNDS |= {f"{block}_{_dtype}/{name}": _bound for block in ("reuse", "reuse_wide") for name in ("fresh", "guarded")}
    GIVEN |= {
        f"{block}_{_dtype}/{name}": "digest of bits that are the machine's"
        for block in ("bits", "fixed")
        for name in ("k_sha256", "v_sha256")
    }
for _dtype in _SHORT:
    BOUNDS |= {f"alarms_{_dtype}/{name}": _LIMIT[_dtype] for name in ("alone", "together", "perturbed")}
    GIVEN |= {f"alarms_{_dtype}/{name}": "greedy tokens turn on the machine's last bits" for name in ("tokens_alone", "tokens_together")}
GIVEN |= {f"cost/{name}": "a measured time" for name in ("usual", "fixed")}


def derive(study: Study) -> Iterator[Derived]:
    for dtype in _DTYPES:
        yield _paths(study, f"bits_{dtype}", "path", dtype)
        yield _paths(study, f"fixed_{dtype}", "fixed_path", dtype)
        for block, width, heads, rows in (("reuse", 16, 1, 4), ("reuse_wide", 96, 4, 1)):
            yield _reuse(study, f"{block}_{dtype}", dtype, width, heads, rows)
    for dtype in _SHORT:
        yield _alarms(study, dtype)


def rounded(x: Any, dtype: str) -> Matrix:
    """To the nearest number of the dtype, ties to even, by way of float32 for the short ones as PyTorch goes."""
    x = np.asarray(x, np.float64)
    if dtype == "float64":
        return np.asarray(x, np.float64)
    x = x.astype(np.float32)
    if dtype == "float16":
        x = x.astype(np.float16)
    if dtype == "bfloat16":
        bits = x.view(np.uint32).astype(np.uint64)
        x = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return np.asarray(x, np.float64)


def stored_bits(values: Matrix, dtype: str) -> Any:
    """Values as the protocol stores them: floats, or the patterns of short floats."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "bfloat16":
        return (rounded(values, dtype).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float32) if dtype == "float32" else values


class _Network:
    """Embedding and layers rounded to the dtype; everything after that in binary64."""

    def __init__(self, embedding: Matrix, layers: Any, heads: int, dtype: str) -> None:
        self.embedding, self.heads, self.dtype = embedding, heads, dtype
        self.layers = [[rounded(w, dtype) for w in layer] for layer in layers]

    def run(self, tokens: Sequence[int], past: tuple[list[Matrix], list[Matrix]] | None = None, window: int = 0) -> dict[str, Any]:
        """All states of tokens behind a past, and K and V of each layer, the past's first; past: K and V of each layer [token, width]."""
        d = self.embedding.shape[1]
        old = len(past[0][0]) if past else 0
        state = rounded(self.embedding[list(tokens)] + _places(old + len(tokens), d)[old:], self.dtype)
        place = np.arange(old + len(tokens))
        seen = place <= place[old:, None]
        if window:
            seen &= place > place[old:, None] - window
        done: dict[str, Any] = {"k": [], "v": []}
        for at, layer in enumerate(self.layers):
            q, k, v = (np.einsum("md,de->me", state, w, optimize=False) for w in layer)
            if past:
                k, v = np.concatenate([past[0][at], k]), np.concatenate([past[1][at], v])
            done["k"].append(k)
            done["v"].append(v)
            q, k, v = (part.reshape(len(part), self.heads, -1).swapaxes(0, 1) for part in (q, k, v))
            mixed = attend(q, k, v, seen)
            state = np.tanh(state + mixed.swapaxes(0, 1).reshape(state.shape))
        done["state"] = state
        return done


@cache
def _places(count: int, width: int) -> Matrix:
    """Sinusoidal positions 0, 1, ..."""
    angles = [[place / 10000.0 ** (2 * pair / width) for pair in range(width // 2)] for place in range(count)]
    return np.array([[wave(angle) for angle in row for wave in (math.sin, math.cos)] for row in angles])


def _network(study: Study, seed: int, dtype: str) -> _Network:
    s = study.settings["model"]
    rng = np.random.default_rng([1, seed])
    embedding = rng.standard_normal((s["vocabulary"], s["width"])) * s["embedding_scale"]
    drawn = rng.standard_normal((s["layers"], 3, s["width"], s["width"])) * (s["weight_scale"] / math.sqrt(s["width"]))
    return _Network(embedding, drawn, s["heads"], dtype)


def _requests(study: Study, key: list[int]) -> tuple[Any, Any]:
    s, rng = study.settings["model"], np.random.default_rng([2, *key])
    return rng.integers(0, s["vocabulary"], (32, s["prefix"])), rng.integers(0, s["vocabulary"], (32, s["suffix"]))


def _rank(pattern: int, width: int) -> int:
    """Place of a float in the order of all floats of its width, 0 for both zeros."""
    top = 1 << (width - 1)
    return pattern if pattern < top else top - pattern


def _ulps(a: Any, b: Any) -> float:
    width = 8 * a.dtype.itemsize
    one, two = (np.ascontiguousarray(x).view(f"<u{a.dtype.itemsize}").ravel() for x in (a, b))
    apart = np.flatnonzero(one != two)
    pairs = zip(one[apart].tolist(), two[apart].tolist(), strict=True)
    return float(max((abs(_rank(x, width) - _rank(y, width)) for x, y in pairs), default=0))


def _digest(x: Any) -> Any:
    return np.array(list(hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest()), np.uint8)


def _paths(study: Study, block: str, factor: str, dtype: str) -> Derived:
    """All paths of a seed have the same exact values."""
    factors, chosen = study.rows(block), study.chosen(block)
    first = {row["seed"]: r for r, row in enumerate(factors) if row[factor] == "alone"}
    base = [first[factors[r]["seed"]] for r in chosen]
    last = study.settings["model"]["prefix"] - 1
    exact: dict[int, dict[str, Matrix]] = {}
    for seed in dict.fromkeys(factors[r]["seed"] for r in chosen):
        prefix, suffix = _requests(study, [seed])
        run = _network(study, seed, dtype).run([*prefix[0], *suffix[0]])
        exact[seed] = {name: np.array([layer[last] for layer in run[name]]) for name in ("k", "v")} | {"output": run["state"][-1]}
    names = ("k", "v", "output") if block.startswith("bits") else ("output",)
    arrays = {name: stored_bits(np.array([exact[factors[r]["seed"]][name] for r in chosen]), dtype) for name in names}
    own, errors = {}, {}
    for name in names:
        pairs = list(zip(study.read(block, name, base), study.read(block, name, chosen), strict=True))
        own[f"{name}_ulp"] = [_ulps(*pair) for pair in pairs]
        gaps = np.abs(study.decoded(block, name, chosen) - study.decoded(block, name, base))
        errors[name] = gaps.reshape(len(chosen), -1).max(axis=1).tolist()
    if block.startswith("bits"):
        own |= {"kv_error": [max(pair) for pair in zip(errors["k"], errors["v"], strict=True)], "output_error": errors["output"]}
    arrays["output_sha256"] = np.array([_digest(row) for row in study.read(block, "output", chosen)])
    equal: dict[str, Sequence[bool]] = {}
    for name in ("k", "v", "output"):
        one, two = (study.read(block, f"{name}_sha256", rows) for rows in (base, chosen))
        equal[f"{name}_equal"] = (one == two).all(axis=1).tolist()
    return Derived(block, chosen, arrays, equal, own=own)


def _alarms(study: Study, dtype: str) -> Derived:
    block, s, a = f"alarms_{dtype}", study.settings["model"], study.settings["alarms"]
    factors, chosen = study.rows(block), study.chosen(block)
    runs: dict[Any, Any] = {}
    exact: dict[str, list[Matrix]] = {"alone": [], "together": [], "perturbed": []}
    for r in chosen:
        row = factors[r]
        key = row["seed"], row["request"]
        if key not in runs:
            net, (prefix, suffix) = _network(study, row["seed"], dtype), _requests(study, list(key))
            mine, leaks = net.run(prefix[0]), []
            for shift in (0, 7):  # the neighbour as it is, and with its content changed; what comes behind the row does not reach it
                neighbour = net.run((prefix[1][: a["leaked_row"] + 1] + shift) % s["vocabulary"])
                kv = [[layer.copy() for layer in mine[name]] for name in ("k", "v")]
                for name, layers in zip(("k", "v"), kv, strict=True):
                    for layer, theirs in zip(layers, neighbour[name], strict=True):
                        layer[a["leaked_row"]] = theirs[-1]
                leaks.append(net.run(suffix[0], (kv[0], kv[1]))["state"][-1])
            runs[key] = net.run(suffix[0], (mine["k"], mine["v"]))["state"][-1], leaks
        clean, leaks = runs[key]
        bad = row["situation"] == "contaminated"
        for name, value in (("alone", clean), ("together", leaks[0] if bad else clean), ("perturbed", leaks[1] if bad else clean)):
            exact[name].append(value)
    arrays = {name: stored_bits(np.array(values), dtype) for name, values in exact.items()}
    one, two, three = ([row.tobytes() for row in study.read(block, name, chosen)] for name in exact)
    x, y = (study.decoded(block, name, chosen).tolist() for name in ("alone", "together"))
    gaps = [max(abs(p - q) for p, q in zip(*pair, strict=True)) for pair in zip(x, y, strict=True)]
    tokens = (study.read(block, f"tokens_{name}", chosen).tolist() for name in ("alone", "together"))
    alarms = {
        "alarm_bits": [p != q for p, q in zip(one, two, strict=True)],
        "alarm_tolerance": [gap > a["tolerance"][dtype] for gap in gaps],
        "alarm_tokens": [p != q for p, q in zip(*tokens, strict=True)],
        "alarm_perturbation": [p != q for p, q in zip(two, three, strict=True)],
    }
    return Derived(block, chosen, arrays, alarms)


def _reuse(study: Study, block: str, dtype: str, width: int, heads: int, rows: int) -> Derived:
    s = study.settings["reuse"]
    factors, chosen = study.rows(block), study.chosen(block)
    made: dict[Any, Any] = {}
    for r in chosen:
        seed, condition = factors[r]["seed"], factors[r]["condition"]
        if (seed, condition) not in made:
            rng = np.random.default_rng([3, seed, width])
            embedding = rng.standard_normal((s["vocabulary"], width)) * s["embedding_scale"]
            layers = rng.standard_normal((2, 3, width, width)) * (s["weight_scale"] * 4 / math.sqrt(width))
            prefix, suffix = list(s["prefix"]), list(s["new_suffix"] if condition == "new-suffix" else s["suffix"])
            if condition == "edited-prefix":
                prefix[s["edited_place"]] = s["edited_id"]
            if condition == "different-weights":
                layers[0, 1, 0, 0] += s["weight_change"]
            window = s["window"] if condition == "different-window" else 0
            made[seed, condition] = _Network(embedding, layers, heads, dtype).run(prefix + suffix, window=window)["state"][-rows:]
    conditions = [(factors[r]["seed"], factors[r]["condition"]) for r in chosen]
    values = np.array([made[key] for key in conditions])
    reused = [condition in ("same-prefix", "new-suffix") for _, condition in conditions]
    return Derived(block, chosen, {"fresh": values, "guarded": values}, {"reused": reused})
