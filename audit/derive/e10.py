"""10: inputs drawn again, attention by plain sums over all keys at once, INT8 by own arithmetic, the small network by loops."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from audit.codes import Held, double, hold, single
from audit.softmax import Matrix, attend, partial, together
from audit.study import Derived, Study

_SUMS = (
    1e-11,
    "a score of 32 products below 40 * 25 in all errs by less than 33 * 1000 u / sqrt(32) < 1e-12 with u = 2**-53, a weight by as much "
    "of itself; an output averages values below 200 (5 without the outlier), and what sums of up to 4,109 terms lose is smaller",
)
_EXTREME = (1e-9, "scores of up to 5,000 err by less than 33 * 20,000 u < 1e-10, and an output is an average of values below 5")
_NETWORK = (1e-12, "as the teaching network of FORMAT 8: two layers, states within tanh, dot products of 16 terms")
_OUT = {
    "published": ("dense", "tiled", "tile_mean"),
    "int8": ("reference", "output"),
    "tiles": ("tiled", "dense"),
    "shared": ("per_request", "merged"),
    "wrong_merge": ("per_request", "by_length"),
    "foreign_change": ("before", "after", "changed_before", "changed_after"),
    "near_q": ("fresh", "reused"),
}
BOUNDS = (
    {f"{block}/{name}": _SUMS for block, names in _OUT.items() for name in names}
    | {f"extreme/{name}": _EXTREME for name in ("dense", "tiled", "without_maximum")}
    | {f"equal_q/{name}": _NETWORK for name in ("q_first", "q_second", "partial_first", "partial_second", "fresh", "reused")}
)
GIVEN = {f"shared_time/{name}": "a measured time" for name in ("own_copy", "in_place", "shared_once")}


def derive(study: Study) -> Iterator[Derived]:
    yield from _published(study)
    yield from _int8(study)
    yield from _tiles(study)
    yield from _sharing(study)
    yield from _rows(study)
    yield from _equal_q(study)
    yield from _near_q(study)


def _digest(*pieces: bytes) -> Any:
    return np.array(list(hashlib.sha256(b"".join(pieces)).digest()), np.uint8)


def _cut(rng: Any, *shapes: tuple[int, ...]) -> list[Any]:
    """One stream of normals, cut into the shapes in order."""
    flat = rng.standard_normal(sum(math.prod(shape) for shape in shapes))
    made, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        made.append(flat[at : at + size].reshape(shape).copy())
        at += size
    return made


def _fresh(key: list[int], *shapes: tuple[int, ...]) -> list[Any]:
    return _cut(np.random.default_rng(key), *shapes)


def _inputs(study: Study, seed: int, length: int) -> list[Any]:
    s = study.settings["published"]
    shapes = [(rows, s["width"]) for n in s["lengths"] for rows in (s["queries"], n, n)]
    place = 3 * s["lengths"].index(length)
    return _cut(np.random.default_rng(seed), *shapes)[place : place + 3]


def _published(study: Study) -> Iterator[Derived]:
    tile = study.settings["published"]["tile"]
    factors = study.rows("published")
    for r in study.chosen("published"):
        q, k, v = _inputs(study, factors[r]["seed"], factors[r]["length"])
        whole = attend(q, k, v)
        pieces = [attend(q, k[at : at + tile], v[at : at + tile]) for at in range(0, len(k), tile)]
        mean = [[math.fsum(piece[i, j] for piece in pieces) / len(pieces) for j in range(v.shape[1])] for i in range(len(q))]
        yield Derived(
            "published",
            [r],
            {
                "inputs_sha256": _digest(*(x.astype("<f8").tobytes() for x in (q, k, v)))[None],
                "dense": whole[None],
                "tiled": whole[None],
                "tile_mean": np.array(mean)[None],
            },
            counts={
                "dense_score_bytes": [8 * len(q) * len(k)],
                "tile_score_bytes": [8 * len(q) * min(tile, len(k))],
                "kv_bytes": [8 * (k.size + v.size)],
            },
        )


def _case(study: Study, row: dict[str, Any]) -> list[Any]:
    q, k, v = _inputs(study, row["seed"], row["length"])
    if row["condition"] == "outlier":
        k[0, 0], v[0, 0] = k[0, 0] * study.settings["published"]["outlier"], v[0, 0] * study.settings["published"]["outlier"]
    return [q, k, v]


def _int8(study: Study) -> Iterator[Derived]:
    axes = {"tensor": "tensor", "row": "token"}
    factors = study.rows("int8")
    references: dict[Any, Matrix] = {}
    for r in study.chosen("int8"):
        row = factors[r]
        q, k, v = _case(study, row)
        made = [hold(x, axes[row["scale_of"]], "int8", 0, double, double) for x in (k, v)]
        key = row["seed"], row["length"], row["condition"]
        if key not in references:
            references[key] = attend(q, k, v)
        code, scale = sum(h.code_bytes(8) for h in made), sum(h.scale_bytes() for h in made)
        yield Derived(
            "int8",
            [r],
            {
                "reference": references[key][None],
                "output": attend(q, made[0].restored, made[1].restored)[None],
                "held_sha256": _digest(*(h.data() for h in made))[None],
            },
            counts={
                "code_bytes": [code],
                "scale_bytes": [scale],
                "int8_bytes": [code + scale],
                "kv_bytes": [8 * (k.size + v.size)],
            },
        )
    factors = study.rows("int8_readings")
    for r in study.chosen("int8_readings"):
        row = factors[r]
        q, k, v = _case(study, row)
        key = row["seed"], row["length"], row["condition"]
        if key not in references:
            references[key] = attend(q, k, v)
        used = [_reading(x, axes[row["scale_of"]], row["reading"]).restored for x in (k, v)]
        gaps = (attend(q, *used) - references[key]).ravel().tolist()
        rmse = math.sqrt(math.fsum(gap * gap for gap in gaps) / len(gaps))
        yield Derived("int8_readings", [r], own={"int8_error": [max(map(abs, gaps))], "int8_rmse": [rmse]})


def _reading(x: Any, axis: str, reading: str) -> Held:
    if reading == "float32_throughout":
        return hold(single(x), axis, "int8", 0, single, single)
    outer = single if reading.endswith("product") else double
    return hold(x, axis, "int8", 0, double, outer, single if reading.startswith("float32_scale") else double)


def _tiles(study: Study) -> Iterator[Derived]:
    s = study.settings["tiles"]
    factors = study.rows("tiles")
    for r in study.chosen("tiles"):
        whole = attend(*_fresh([1, factors[r]["seed"]], (s["queries"], s["width"]), (s["keys"], s["width"]), (s["keys"], s["width"])))
        yield Derived("tiles", [r], {"tiled": whole[None], "dense": whole[None]})
    s = study.settings["extreme"]
    factors = study.rows("extreme")
    for r in study.chosen("extreme"):
        q, k, v = _fresh([2, factors[r]["seed"]], (s["queries"], s["width"]), (s["keys"], s["width"]), (s["keys"], s["width"]))
        q = q * factors[r]["logit_scale"]
        whole = attend(q, k, v)
        bare = whole.copy()
        for i, sums in enumerate(partial(q, k, v)):
            if sums.top > math.log(1.7976931348623157e308):  # exp of it is no binary64 number
                bare[i] = math.nan
        yield Derived("extreme", [r], {"dense": whole[None], "tiled": whole[None], "without_maximum": bare[None]})


def _requests(s: dict[str, Any], key: list[int], prefix: int) -> tuple[Any, Any, Any, list[tuple[Any, Any]]]:
    least, most = s["private"]
    lengths = [least + 5 * i % (most - least + 1) for i in range(s["requests"])]
    h, d, total = s["heads"], s["width"], sum(lengths)
    q, k, v, pk, pv = _fresh(key, (h, s["requests"], d), (h, prefix, d), (h, prefix, d), (h, total, d), (h, total, d))
    private, at = [], 0
    for m in lengths:
        private.append((pk[:, at : at + m], pv[:, at : at + m]))
        at += m
    return q, k, v, private


def _each(q: Any, k: Any, v: Any, private: list[tuple[Any, Any]]) -> Matrix:
    """Every head and request over its prefix and private keys, written out."""
    out = np.empty_like(q)
    for h in range(len(q)):
        for i, (pk, pv) in enumerate(private):
            out[h, i] = attend(q[h, i : i + 1], np.vstack([k[h], pk[h]]), np.vstack([v[h], pv[h]]))[0]
    return np.asarray(out, np.float64)


def _sharing(study: Study) -> Iterator[Derived]:
    s = study.settings["shared"]
    factors = study.rows("shared")
    for r in study.chosen("shared"):
        out = _each(*_requests(s, [3, factors[r]["seed"], factors[r]["prefix"]], factors[r]["prefix"]))
        yield Derived("shared", [r], {"per_request": out[None], "merged": out[None]})
    n = study.protocol["factors"]["prefix"][0]
    for block in ("wrong_merge", "foreign_change"):
        factors = study.rows(block)
        for r in study.chosen(block):
            q, k, v, private = _requests(s, [3, factors[r]["seed"], n], n)
            before = _each(q, k, v, private)
            if block == "wrong_merge":
                mixed = np.empty_like(q)
                for h in range(len(q)):
                    for i, (pk, pv) in enumerate(private):
                        a, b = attend(q[h, i : i + 1], k[h], v[h])[0], attend(q[h, i : i + 1], pk[h], pv[h])[0]
                        m = pk.shape[1]
                        mixed[h, i] = [(x * n + y * m) / (n + m) for x, y in zip(a, b, strict=True)]
                yield Derived(block, [r], {"per_request": before[None], "by_length": mixed[None]})
                continue
            private[5] = (-3 * private[5][0], -3 * private[5][1])
            after = _each(q, k, v, private)
            others = [i for i in range(len(private)) if i != 5]
            yield Derived(
                block,
                [r],
                {
                    "before": before[:, others][None],
                    "after": after[:, others][None],
                    "changed_before": before[:, 5][None],
                    "changed_after": after[:, 5][None],
                },
            )


def _rows(study: Study) -> Iterator[Derived]:
    least, most = study.settings["shared"]["private"]
    s = study.settings["timing"]
    row_bytes = 2 * 8 * s["heads"] * s["width"]
    factors = study.rows("shared_rows")
    for r in study.chosen("shared_rows"):
        private = sum(least + 5 * i % (most - least + 1) for i in range(factors[r]["requests"]))
        once = int(factors[r]["shared_length"] + private)
        each = int(factors[r]["shared_length"] * factors[r]["requests"] + private)
        counts: dict[str, Sequence[int]] = {
            "rows_per_request": [each],
            "rows_shared": [once],
            "kv_bytes_per_request": [each * row_bytes],
            "kv_bytes_shared": [once * row_bytes],
        }
        yield Derived("shared_rows", [r], counts=counts)


def _vector(x: list[float], w: Any) -> list[float]:
    return [math.fsum(a * b for a, b in zip(x, column, strict=True)) for column in w.T.tolist()]


def _states(tokens: list[int], embedding: Any, weights: Any, heads: int) -> list[list[Any]]:
    """q, k, v of each layer as (heads, n, d / heads)."""
    d = embedding.shape[1]
    x = []
    for place, token in enumerate(tokens):
        line = embedding[token].tolist()
        for pair in range(d // 2):
            angle = place / 10000.0 ** (2 * pair / d)
            line[2 * pair] += math.sin(angle)
            line[2 * pair + 1] += math.cos(angle)
        x.append(line)
    layers = []
    for layer in weights:
        q, k, v = (np.array([_vector(line, w) for line in x]).reshape(len(x), heads, -1) for w in layer)
        layers.append([m.transpose(1, 0, 2) for m in (q, k, v)])
        fresh = []
        for i, line in enumerate(x):
            parts = [attend(q[i : i + 1, h], k[: i + 1, h], v[: i + 1, h])[0].tolist() for h in range(heads)]
            fresh.append([math.tanh(a + b) for a, b in zip(line, itertools.chain(*parts), strict=True)])
        x = fresh
    return layers


def _pair(s: dict[str, Any], seed: int, pair: str) -> list[list[int]]:
    rng = np.random.default_rng([6, seed])
    prefix = [int(t) for t in rng.integers(0, s["vocabulary"], s["prefix"])]
    suffix = [int(t) for t in rng.integers(0, s["vocabulary"], s["suffix"])]
    moved = [(t + 1) % s["vocabulary"] for t in suffix]
    second = {
        "same_suffix": suffix,
        "same_last": [*moved[:-1], suffix[-1]],
        "other_last": [*suffix[:-1], moved[-1]],
        "other_place": [moved[0], *suffix],
    }[pair]
    return [prefix + suffix, prefix + second]


def _equal_q(study: Study) -> Iterator[Derived]:
    s = study.settings["equal_q"]
    factors = study.rows("equal_q")
    d, n, heads = s["width"], s["prefix"], s["heads"]
    made: dict[Any, list[Any]] = {}
    for r in study.chosen("equal_q"):
        row = factors[r]
        key = row["seed"], row["pair"]
        if key not in made:
            embedding, weights = _fresh([5, row["seed"]], (s["vocabulary"], d), (s["layers"], 3, d, d))
            embedding, weights = embedding * s["embedding_scale"], weights * s["weight_scale"]
            made[key] = [_states(tokens, embedding, weights, heads) for tokens in _pair(s, *key)]
        (q1, k1, v1), (q2, k2, v2) = (states[row["layer"]] for states in made[key])
        out: dict[str, list[Any]] = {name: [] for name in ("partial_first", "partial_second", "fresh", "reused")}
        for h in range(heads):
            (one,), (two,) = partial(q1[h, -1:], k1[h, :n], v1[h, :n]), partial(q2[h, -1:], k2[h, :n], v2[h, :n])
            (rest,) = partial(q2[h, -1:], k2[h, n:], v2[h, n:])
            out["partial_first"].append(one.output())
            out["partial_second"].append(two.output())
            out["fresh"].append(together(two, rest))
            out["reused"].append(together(one, rest))
        arrays = {name: np.array(value)[None] for name, value in out.items()}
        arrays |= {"q_first": q1[:, -1][None], "q_second": q2[:, -1][None]}
        same = bool((k1[:, :n] == k2[:, :n]).all() and (v1[:, :n] == v2[:, :n]).all())
        yield Derived("equal_q", [r], arrays, decisions={"kv_equal": [same]})


def _near_q(study: Study) -> Iterator[Derived]:
    s = study.settings["near_q"]
    factors = study.rows("near_q")
    for r in study.chosen("near_q"):
        wide, keys, few = (s["queries"], s["width"]), (s["keys"], s["width"]), (s["private"], s["width"])
        q, away, k, v, pk, pv = _fresh([7, factors[r]["seed"]], wide, wide, keys, keys, few, few)
        near = q + factors[r]["shift"] * away
        old, new, rest = partial(q, k, v), partial(near, k, v), partial(near, pk, pv)
        fresh = [together(a, b) for a, b in zip(new, rest, strict=True)]
        reused = [together(a, b) for a, b in zip(old, rest, strict=True)]
        yield Derived("near_q", [r], {"fresh": np.array(fresh)[None], "reused": np.array(reused)[None]})
