"""20: values by a network of its own in binary64 on the rounded weights; equality, ulp distances and alarms from the stored bits.

The bits themselves are the machine's: they cannot be derived, but each must lie within its dtype's bound of the exact value, and every
decision and distance follows from them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        yield from _paths(study, f"bits_{dtype}", "path", dtype)
        yield from _paths(study, f"fixed_{dtype}", "fixed_path", dtype)
        for block, width, heads, rows in (("reuse", 16, 1, 4), ("reuse_wide", 96, 4, 1)):
            yield from _reuse(study, f"{block}_{dtype}", dtype, width, heads, rows)
    for dtype in _SHORT:
        yield from _alarms(study, dtype)


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

    def run(self, tokens: Sequence[int], foreign: Any = None, row: int = -1, upto: int = 0, window: int = 0) -> dict[str, Any]:
        """All states, and K and V of each layer. foreign: another run, whose K and V at `row` the tokens from `upto` on see instead."""
        d = self.embedding.shape[1]
        e = d // self.heads
        x = []
        for place, token in enumerate(tokens):
            line = self.embedding[token].copy()
            for pair in range(d // 2):
                angle = place / 10000.0 ** (2 * pair / d)
                line[2 * pair] += math.sin(angle)
                line[2 * pair + 1] += math.cos(angle)
            x.append(line)
        state = rounded(np.array(x), self.dtype)
        done: dict[str, Any] = {"k": [], "v": []}
        for at, (wq, wk, wv) in enumerate(self.layers):
            q, k, v = (np.einsum("md,de->me", state, w, optimize=False) for w in (wq, wk, wv))
            done["k"].append(k)
            done["v"].append(v)
            mixed = np.zeros_like(state)
            for i in range(len(tokens)):
                seen_k, seen_v = k[: i + 1].copy(), v[: i + 1].copy()
                if foreign is not None and i >= upto:
                    seen_k[row], seen_v[row] = foreign["k"][at][row], foreign["v"][at][row]
                if window:
                    seen_k, seen_v = seen_k[-window:], seen_v[-window:]
                for h in range(self.heads):
                    part = slice(h * e, (h + 1) * e)
                    scores = (seen_k[:, part] * q[i, part]).sum(axis=1) / math.sqrt(e)
                    weights = np.exp(scores - scores.max())
                    mixed[i, part] = (weights[:, None] * seen_v[:, part]).sum(axis=0) / weights.sum()
            state = np.tanh(state + mixed)
        done["state"] = state
        return done


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
    one, two = (np.ascontiguousarray(x).view(f"<u{a.dtype.itemsize}").ravel().tolist() for x in (a, b))
    return float(max(abs(_rank(int(x), width) - _rank(int(y), width)) for x, y in zip(one, two, strict=True)))


def _digest(x: Any) -> Any:
    return np.array(list(hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest()), np.uint8)


def _paths(study: Study, block: str, factor: str, dtype: str) -> Iterator[Derived]:
    """All paths of a seed have the same exact values."""
    factors = study.rows(block)
    first = {row["seed"]: r for r, row in enumerate(factors) if row[factor] == "alone"}
    exact: dict[int, Any] = {}
    has_kv = block.startswith("bits")
    for r in study.chosen(block):
        seed = factors[r]["seed"]
        base = first[seed]
        if seed not in exact:
            prefix, suffix = _requests(study, [seed])
            exact[seed] = _network(study, seed, dtype).run([*prefix[0], *suffix[0]])
        last = study.settings["model"]["prefix"] - 1
        arrays = {"output": exact[seed]["state"][-1]}
        if has_kv:
            arrays |= {name: np.array([layer[last] for layer in exact[seed][name]]) for name in ("k", "v")}
        stored = {name: study.read(block, name, [base, r]) for name in arrays}
        values = {name: study.decoded(block, name, [base, r]) for name in arrays}
        digests = {name: study.read(block, f"{name}_sha256", [base, r]) for name in ("k", "v", "output")}
        own = {"output_ulp": [_ulps(*stored["output"])]}
        if has_kv:
            own |= {"k_ulp": [_ulps(*stored["k"])], "v_ulp": [_ulps(*stored["v"])]}
            own["kv_error"] = [max(float(np.abs(values[name][1] - values[name][0]).max()) for name in ("k", "v"))]
            own["output_error"] = [float(np.abs(values["output"][1] - values["output"][0]).max())]
        yield Derived(
            block,
            [r],
            {name: stored_bits(value, dtype)[None] for name, value in arrays.items()}
            | {"output_sha256": _digest(stored["output"][1])[None]},
            {f"{name}_equal": [bool((pair[0] == pair[1]).all())] for name, pair in digests.items()},
            own=own,
        )


def _alarms(study: Study, dtype: str) -> Iterator[Derived]:
    block, s, a = f"alarms_{dtype}", study.settings["model"], study.settings["alarms"]
    factors = study.rows(block)
    runs: dict[Any, Any] = {}
    for r in study.chosen(block):
        row = factors[r]
        key = row["seed"], row["request"]
        if key not in runs:
            net, (prefix, suffix) = _network(study, row["seed"], dtype), _requests(study, list(key))
            mine = [*prefix[0], *suffix[0]]
            clean = net.run(mine)["state"][-1]
            leaks = []
            for shift in (0, 7):  # the neighbour as it is, and with its content changed
                neighbour = net.run([*((prefix[1] + shift) % s["vocabulary"])])
                leaks.append(net.run(mine, neighbour, a["leaked_row"], s["prefix"])["state"][-1])
            runs[key] = clean, leaks
        clean, leaks = runs[key]
        bad = row["situation"] == "contaminated"
        exact = {"alone": clean, "together": leaks[0] if bad else clean, "perturbed": leaks[1] if bad else clean}
        one, two, three = (study.read(block, name, [r])[0] for name in ("alone", "together", "perturbed"))
        x, y = (study.decoded(block, name, [r])[0] for name in ("alone", "together"))
        tokens = [study.read(block, f"tokens_{name}", [r])[0].tolist() for name in ("alone", "together")]
        yield Derived(
            block,
            [r],
            {name: stored_bits(value, dtype)[None] for name, value in exact.items()},
            {
                "alarm_bits": [one.tobytes() != two.tobytes()],
                "alarm_tolerance": [max(abs(p - q) for p, q in zip(x.tolist(), y.tolist(), strict=True)) > a["tolerance"][dtype]],
                "alarm_tokens": [tokens[0] != tokens[1]],
                "alarm_perturbation": [two.tobytes() != three.tobytes()],
            },
        )


def _reuse(study: Study, block: str, dtype: str, width: int, heads: int, rows: int) -> Iterator[Derived]:
    s = study.settings["reuse"]
    factors = study.rows(block)
    made: dict[Any, Any] = {}
    for r in study.chosen(block):
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
        value = made[seed, condition][None]
        yield Derived(block, [r], {"fresh": value, "guarded": value}, {"reused": [condition in ("same-prefix", "new-suffix")]})
