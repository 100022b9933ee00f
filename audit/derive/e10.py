"""10: inputs drawn again, attention by plain sums over all keys at once, INT8 by own arithmetic, the small network row by row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from audit.codes import Held, double, hold, single
from audit.draws import cut, digest, groups
from audit.softmax import Matrix, attend, partial, through, together
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


def _inputs(study: Study, seed: int, length: int) -> list[Any]:
    s = study.settings["published"]
    shapes = [(rows, s["width"]) for n in s["lengths"] for rows in (s["queries"], n, n)]
    place = 3 * s["lengths"].index(length)
    return cut(seed, *shapes)[place : place + 3]


def _published(study: Study) -> Iterator[Derived]:
    tile = study.settings["published"]["tile"]
    factors = study.rows("published")
    for r in study.chosen("published"):
        q, k, v = _inputs(study, factors[r]["seed"], factors[r]["length"])
        whole = attend(q, k, v)
        pieces = [attend(q, k[at : at + tile], v[at : at + tile]) for at in range(0, len(k), tile)]
        yield Derived(
            "published",
            [r],
            {
                "inputs_sha256": digest(*(x.astype("<f8").tobytes() for x in (q, k, v)))[None],
                "dense": whole[None],
                "tiled": whole[None],
                "tile_mean": np.sum(pieces, axis=0)[None] / len(pieces),
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
    for rows, cases in groups(study, "int8", "seed", "length", "condition"):
        q, k, v = _case(study, cases[0])
        reference = attend(q, k, v)
        for r, row in zip(rows, cases, strict=True):
            made = [hold(x, axes[row["scale_of"]], "int8", 0, double, double) for x in (k, v)]
            code, scale = sum(h.code_bytes(8) for h in made), sum(h.scale_bytes() for h in made)
            yield Derived(
                "int8",
                [r],
                {
                    "reference": reference[None],
                    "output": attend(q, made[0].restored, made[1].restored)[None],
                    "held_sha256": digest(*(h.data() for h in made))[None],
                },
                counts={
                    "code_bytes": [code],
                    "scale_bytes": [scale],
                    "int8_bytes": [code + scale],
                    "kv_bytes": [8 * (k.size + v.size)],
                },
            )
    for rows, cases in groups(study, "int8_readings", "seed", "length", "condition"):
        q, k, v = _case(study, cases[0])
        reference = attend(q, k, v)
        largest, rmse = [], []
        for row in cases:
            used = [_reading(x, axes[row["scale_of"]], row["reading"]).restored for x in (k, v)]
            gaps = (attend(q, *used) - reference).ravel().tolist()
            largest.append(max(map(abs, gaps)))
            rmse.append(math.sqrt(math.fsum(gap * gap for gap in gaps) / len(gaps)))
        yield Derived("int8_readings", rows, own={"int8_error": largest, "int8_rmse": rmse})


def _reading(x: Any, axis: str, reading: str) -> Held:
    if reading == "float32_throughout":
        return hold(single(x), axis, "int8", 0, single, single)
    outer = single if reading.endswith("product") else double
    return hold(x, axis, "int8", 0, double, outer, single if reading.startswith("float32_scale") else double)


def _tiles(study: Study) -> Iterator[Derived]:
    s = study.settings["tiles"]
    for rows, cases in groups(study, "tiles", "seed"):
        whole = attend(*cut([1, cases[0]["seed"]], (s["queries"], s["width"]), (s["keys"], s["width"]), (s["keys"], s["width"])))
        yield Derived("tiles", rows, {name: np.array([whole] * len(rows)) for name in ("tiled", "dense")})
    s = study.settings["extreme"]
    factors = study.rows("extreme")
    for r in study.chosen("extreme"):
        q, k, v = cut([2, factors[r]["seed"]], (s["queries"], s["width"]), (s["keys"], s["width"]), (s["keys"], s["width"]))
        sums = partial(q * factors[r]["logit_scale"], k, v)
        whole = sums.output()
        bare = np.where(sums.top[:, None] > math.log(1.7976931348623157e308), math.nan, whole)  # exp of the top is no binary64 number
        yield Derived("extreme", [r], {"dense": whole[None], "tiled": whole[None], "without_maximum": bare[None]})


class _Requests:
    """q [head, request, d] over a prefix k, v [head, prefix, d] and private keys: those of request i are where own[i] is true."""

    def __init__(self, s: dict[str, Any], key: list[int], prefix: int) -> None:
        least, most = s["private"]
        self.lengths = np.array([least + 5 * i % (most - least + 1) for i in range(s["requests"])])
        h, d, total = s["heads"], s["width"], int(self.lengths.sum())
        self.q, self.k, self.v, self.pk, self.pv = cut(
            key, (h, s["requests"], d), (h, prefix, d), (h, prefix, d), (h, total, d), (h, total, d)
        )
        self.own = np.repeat(np.arange(s["requests"]), self.lengths) == np.arange(s["requests"])[:, None]

    def each(self) -> Matrix:
        """Every head and request over its prefix and private keys, in one softmax."""
        seen = np.hstack([np.ones((len(self.own), self.k.shape[1]), bool), self.own])
        return attend(self.q, np.concatenate([self.k, self.pk], 1), np.concatenate([self.v, self.pv], 1), seen)


def _sharing(study: Study) -> Iterator[Derived]:
    s = study.settings["shared"]
    factors = study.rows("shared")
    for r in study.chosen("shared"):
        out = _Requests(s, [3, factors[r]["seed"], factors[r]["prefix"]], factors[r]["prefix"]).each()
        yield Derived("shared", [r], {"per_request": out[None], "merged": out[None]})
    n = study.protocol["factors"]["prefix"][0]
    factors = study.rows("wrong_merge")
    for r in study.chosen("wrong_merge"):
        all_of = _Requests(s, [3, factors[r]["seed"], n], n)
        common, own = attend(all_of.q, all_of.k, all_of.v), attend(all_of.q, all_of.pk, all_of.pv, all_of.own)
        m = all_of.lengths[:, None]
        yield Derived("wrong_merge", [r], {"per_request": all_of.each()[None], "by_length": ((common * n + own * m) / (n + m))[None]})
    factors = study.rows("foreign_change")
    for r in study.chosen("foreign_change"):
        all_of = _Requests(s, [3, factors[r]["seed"], n], n)
        before = all_of.each()
        for private in (all_of.pk, all_of.pv):
            private[:, all_of.own[5]] *= -3
        after = all_of.each()
        others = [i for i in range(len(all_of.own)) if i != 5]
        yield Derived(
            "foreign_change",
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


def _states(tokens: Any, embedding: Any, weights: Any, heads: int) -> list[list[Matrix]]:
    """q, k, v of each layer as (sequence, head, n, d / heads), from tokens (sequence, n), embeddings and weights for each sequence."""
    d, n = embedding.shape[-1], tokens.shape[1]
    angles = [[place / 10000.0 ** (2 * pair / d) for pair in range(d // 2)] for place in range(n)]
    places = [[wave(angle) for angle in line for wave in (math.sin, math.cos)] for line in angles]
    x = embedding[np.arange(len(tokens))[:, None], tokens] + np.array(places)
    layers = []
    for layer in range(weights.shape[1]):
        q, k, v = (through(x, weights[:, layer, part]).reshape(len(x), n, heads, -1).swapaxes(1, 2) for part in range(3))
        layers.append([q, k, v])
        rows = [attend(q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1]) for i in range(n)]
        x = np.tanh(x + np.concatenate(rows, axis=2).swapaxes(1, 2).reshape(x.shape))
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
    factors, chosen = study.rows("equal_q"), study.chosen("equal_q")
    d, n = s["width"], s["prefix"]
    keys = list(dict.fromkeys((factors[r]["seed"], factors[r]["pair"]) for r in chosen))
    sequences = [tokens for key in keys for tokens in _pair(s, *key)]
    longest = max(map(len, sequences))
    # what stands behind a sequence's end is seen by nobody before it
    tokens = np.array([[*one, *[0] * (longest - len(one))] for one in sequences])
    drawn = [cut([5, seed], (s["vocabulary"], d), (s["layers"], 3, d, d)) for seed, _ in keys for _ in range(2)]
    embedding = np.array([one for one, _ in drawn]) * s["embedding_scale"]
    layers = _states(tokens, embedding, np.array([weights for _, weights in drawn]) * s["weight_scale"], s["heads"])
    for r in chosen:
        at = 2 * keys.index((factors[r]["seed"], factors[r]["pair"]))
        (q1, k1, v1), (q2, k2, v2) = ([x[at + i, :, : len(sequences[at + i])] for x in layers[factors[r]["layer"]]] for i in range(2))
        one, two = partial(q1[:, -1:], k1[:, :n], v1[:, :n]), partial(q2[:, -1:], k2[:, :n], v2[:, :n])
        rest = partial(q2[:, -1:], k2[:, n:], v2[:, n:])
        out = {
            "partial_first": one.output(),
            "partial_second": two.output(),
            "fresh": together(two, rest),
            "reused": together(one, rest),
        }
        arrays = {name: value[:, 0][None] for name, value in out.items()}
        arrays |= {"q_first": q1[:, -1][None], "q_second": q2[:, -1][None]}
        same = bool((k1[:, :n] == k2[:, :n]).all() and (v1[:, :n] == v2[:, :n]).all())
        yield Derived("equal_q", [r], arrays, decisions={"kv_equal": [same]})


def _near_q(study: Study) -> Iterator[Derived]:
    s = study.settings["near_q"]
    factors = study.rows("near_q")
    for r in study.chosen("near_q"):
        wide, keys, few = (s["queries"], s["width"]), (s["keys"], s["width"]), (s["private"], s["width"])
        q, away, k, v, pk, pv = cut([7, factors[r]["seed"]], wide, wide, keys, keys, few, few)
        near = q + factors[r]["shift"] * away
        old, new, rest = partial(q, k, v), partial(near, k, v), partial(near, pk, pv)
        yield Derived("near_q", [r], {"fresh": together(new, rest)[None], "reused": together(old, rest)[None]})
