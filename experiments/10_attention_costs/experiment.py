"""Attention in tiles, in INT8 and in parts: what may be computed once for many requests, how exactly, and what it saves."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.batch import Batch
from labcore.online_softmax import Part, dense, merge, part, shared_prefix, tiled
from labcore.protocol import Protocol
from labcore.quantize import Codes, restore, symmetric
from labcore.timing import Stopwatch

Matrix = NDArray[Any]
Triple = tuple[Matrix, Matrix, Matrix]


def batches(protocol: Protocol) -> Iterator[Batch]:
    drawn = published_inputs(protocol)
    yield published(protocol, drawn)
    yield from int8(protocol, drawn)
    yield tiles(protocol)
    yield extreme(protocol)
    yield from sharing(protocol)
    yield sharing_rows(protocol)
    yield sharing_time(protocol)
    yield equal_q(protocol)
    yield near_q(protocol)


def sha256(*pieces: bytes) -> Matrix:
    return np.frombuffer(hashlib.sha256(b"".join(pieces)).digest(), np.uint8)


def stacked(rows: list[dict[str, Any]]) -> dict[str, Matrix]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


# The published part


def published_inputs(protocol: Protocol) -> dict[tuple[int, int], Triple]:
    """One generator a seed; for each length in order q, then k, then v."""
    s = protocol.settings["published"]
    drawn = {}
    for seed in protocol.seeds:
        rng = np.random.default_rng(seed)
        for n in s["lengths"]:
            q, k, v = (rng.standard_normal((rows, s["width"])) for rows in (s["queries"], n, n))
            drawn[seed, n] = q, k, v
    return drawn


def published(protocol: Protocol, drawn: dict[tuple[int, int], Triple]) -> Batch:
    tile = protocol.settings["published"]["tile"]
    rows, counts = [], {"dense_score_bytes": [], "tile_score_bytes": [], "kv_bytes": []}
    for row in protocol.rows("published"):
        q, k, v = drawn[row["seed"], row["length"]]
        parts = [dense(q, k[at : at + tile], v[at : at + tile]) for at in range(0, len(k), tile)]
        rows.append(
            {
                "inputs_sha256": sha256(*(x.astype("<f8").tobytes() for x in (q, k, v))),
                "dense": dense(q, k, v),
                "tiled": tiled(q, k, v, tile),
                "tile_mean": np.mean(parts, axis=0),
            }
        )
        counts["dense_score_bytes"].append(len(q) * len(k) * 8)
        counts["tile_score_bytes"].append(len(q) * min(tile, len(k)) * 8)
        counts["kv_bytes"].append(k.nbytes + v.nbytes)
    return Batch("published", stacked(rows), counts=counts)


def int8(protocol: Protocol, drawn: dict[tuple[int, int], Triple]) -> Iterator[Batch]:
    """K and V in INT8, and the same with what the record's text leaves open decided otherwise."""
    outlier = protocol.settings["published"]["outlier"]
    rows, counts = [], {"code_bytes": [], "scale_bytes": [], "int8_bytes": [], "kv_bytes": []}
    own: dict[str, list[float]] = {"int8_error": [], "int8_rmse": []}
    for row in protocol.rows("int8"):
        q, k, v = (x.copy() for x in drawn[row["seed"], row["length"]])
        if row["condition"] == "outlier":
            k[0, 0] *= outlier
            v[0, 0] *= outlier
        axis = {"tensor": "tensor", "row": "token"}[row["scale_of"]]
        codes = [symmetric(x, axis) for x in (k, v)]
        reference = dense(q, k, v)
        rows.append(
            {
                "reference": reference,
                "output": dense(q, *(restore(c, np.float64) for c in codes)),
                "held_sha256": sha256(*(c.codes.tobytes() + c.scale.astype("<f4").tobytes() for c in codes)),
            }
        )
        counts["code_bytes"].append(sum(c.code_bytes for c in codes))
        counts["scale_bytes"].append(sum(c.scale_bytes for c in codes))
        counts["int8_bytes"].append(sum(c.code_bytes + c.scale_bytes for c in codes))
        counts["kv_bytes"].append(k.nbytes + v.nbytes)
        for reading in protocol.values("reading"):
            difference = dense(q, *(read_otherwise(x, axis, reading) for x in (k, v))) - reference
            own["int8_error"].append(float(np.abs(difference).max()))
            own["int8_rmse"].append(math.sqrt(math.fsum((difference**2).ravel().tolist()) / difference.size))
    yield Batch("int8", stacked(rows), counts=counts)
    yield Batch("int8_readings", own=own)


def read_otherwise(x: Matrix, axis: str, reading: str) -> Matrix:
    """What INT8 gives back where float32 begins earlier or lasts longer than in the main reading; float64."""
    single = x.astype(np.float32)
    if reading == "float32_throughout":
        return restore(symmetric(single, axis), np.float32).astype(np.float64)
    codes = symmetric(x, axis)
    if reading.startswith("float32_scale"):
        scale = symmetric(single, axis).scale
        lanes = x.reshape(codes.codes.shape)
        codes = Codes(np.clip(np.rint(lanes / scale), -127, 127).astype(np.int8), scale, None, 8, codes.shape, axis)
    return restore(codes, np.float32 if reading.endswith("product") else np.float64).astype(np.float64)


# Tiles


def normal(key: list[int], *shapes: tuple[int, ...]) -> list[Matrix]:
    """Standard normals of the shapes in order, from one generator."""
    rng = np.random.default_rng(key)
    return [rng.standard_normal(shape) for shape in shapes]


def tiles(protocol: Protocol) -> Batch:
    s = protocol.settings["tiles"]
    rows = []
    for row in protocol.rows("tiles"):
        q, k, v = normal([1, row["seed"]], (s["queries"], s["width"]), (s["keys"], s["width"]), (s["keys"], s["width"]))
        rows.append({"tiled": tiled(q, k, v, row["tile"]), "dense": dense(q, k, v)})
    return Batch("tiles", stacked(rows))


def extreme(protocol: Protocol) -> Batch:
    """Scores of growing size; and the sums of exp(score) * value and exp(score) without taking the maximum off."""
    s = protocol.settings["extreme"]
    rows = []
    for row in protocol.rows("extreme"):
        q, k, v = normal([2, row["seed"]], (s["queries"], s["width"]), (s["keys"], s["width"]), (s["keys"], s["width"]))
        q = q * row["logit_scale"]
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp(q @ k.T / math.sqrt(s["width"]))
            bare = (weights @ v) / weights.sum(axis=1, keepdims=True)
        bare[~np.isfinite(bare)] = np.nan  # infinities over infinities: lost either way
        rows.append({"dense": dense(q, k, v), "tiled": tiled(q, k, v, s["tile"]), "without_maximum": bare})
    return Batch("extreme", stacked(rows))


# A shared prefix, computed once


def private_lengths(s: dict[str, Any]) -> list[int]:
    """Unequal lengths in the stated range, one a request."""
    least, most = s["private"]
    return [least + (5 * i) % (most - least + 1) for i in range(s["requests"])]


def shared_inputs(s: dict[str, Any], key: list[int], prefix: int) -> tuple[Matrix, Matrix, Matrix, list[tuple[Matrix, Matrix]]]:
    h, d, lengths = s["heads"], s["width"], private_lengths(s)
    q, k, v, pk, pv = normal(key, (h, s["requests"], d), (h, prefix, d), (h, prefix, d), (h, sum(lengths), d), (h, sum(lengths), d))
    ends = np.cumsum(lengths)[:-1]
    return q, k, v, list(zip(np.split(pk, ends, axis=1), np.split(pv, ends, axis=1), strict=True))


def alone(q: Matrix, kv: list[tuple[Matrix, Matrix]]) -> Matrix:
    """Attention request by request, each over keys and values of its own."""
    return np.concatenate([part(q[:, i : i + 1], *pair, checked=True).output for i, pair in enumerate(kv)], axis=1)


def own_copies(k: Matrix, v: Matrix, private: list[tuple[Matrix, Matrix]]) -> list[tuple[Matrix, Matrix]]:
    return [(np.concatenate([k, pk], axis=1), np.concatenate([v, pv], axis=1)) for pk, pv in private]


def in_place(q: Matrix, k: Matrix, v: Matrix, private: list[tuple[Matrix, Matrix]]) -> Matrix:
    """Request by request over one prefix in memory, each merged with its private part."""
    done = []
    for i, pair in enumerate(private):
        one = q[:, i : i + 1]
        done.append(merge([part(one, k, v, checked=True), part(one, *pair, checked=True)]).output)
    return np.concatenate(done, axis=1)


def sharing(protocol: Protocol) -> Iterator[Batch]:
    s = protocol.settings["shared"]
    rows = []
    for row in protocol.rows("shared"):
        q, k, v, private = shared_inputs(s, [3, row["seed"], row["prefix"]], row["prefix"])
        rows.append({"per_request": alone(q, own_copies(k, v, private)), "merged": shared_prefix(q, k, v, private)})
    yield Batch("shared", stacked(rows))
    prefix = protocol.values("prefix")[0]
    wrong, foreign = [], []
    for row in protocol.rows("wrong_merge"):
        q, k, v, private = shared_inputs(s, [3, row["seed"], prefix], prefix)
        before = shared_prefix(q, k, v, private)
        mixed = np.empty_like(q)
        for i, pair in enumerate(private):
            one = q[:, i : i + 1]
            shared, rest = dense(one, k, v), dense(one, *pair)
            mixed[:, i : i + 1] = (shared * prefix + rest * pair[0].shape[1]) / (prefix + pair[0].shape[1])
        wrong.append({"per_request": alone(q, own_copies(k, v, private)), "by_length": mixed})
        private[5] = (private[5][0] * -3, private[5][1] * -3)
        after = shared_prefix(q, k, v, private)
        foreign.append(
            {
                "before": np.delete(before, 5, axis=1),
                "after": np.delete(after, 5, axis=1),
                "changed_before": before[:, 5],
                "changed_after": after[:, 5],
            }
        )
    yield Batch("wrong_merge", stacked(wrong))
    yield Batch("foreign_change", stacked(foreign))


def sharing_rows(protocol: Protocol) -> Batch:
    """Key rows read and bytes of K and V held, per head counted once."""
    s = protocol.settings["timing"]
    counts: dict[str, list[int]] = {"rows_per_request": [], "rows_shared": [], "kv_bytes_per_request": [], "kv_bytes_shared": []}
    for row in protocol.rows("shared_rows"):
        lengths = private_lengths(protocol.settings["shared"] | {"requests": row["requests"]})
        alone_rows = sum(row["shared_length"] + m for m in lengths)
        shared_rows = row["shared_length"] + sum(lengths)
        counts["rows_per_request"].append(alone_rows)
        counts["rows_shared"].append(shared_rows)
        for name, n in (("kv_bytes_per_request", alone_rows), ("kv_bytes_shared", shared_rows)):
            counts[name].append(2 * np.empty((s["heads"], n, s["width"])).nbytes)
    return Batch("shared_rows", counts=counts)


def sharing_time(protocol: Protocol) -> Batch:
    """Seconds of three ways to the same outputs, in rounds that take each way once, in turning order, on one thread.

    None of them looks for NaN, which would read the prefix once more for each request.
    """
    s = protocol.settings["timing"]
    rows = []
    for row in protocol.rows("shared_time"):
        shapes = protocol.settings["shared"] | {name: s[name] for name in ("heads", "width")} | {"requests": row["requests"]}
        q, k, v, private = shared_inputs(shapes, [4, s["seed"], row["shared_length"]], row["shared_length"])
        copies = own_copies(k, v, private)
        ways = {
            "own_copy": lambda q=q, copies=copies: alone(q, copies),
            "in_place": lambda q=q, k=k, v=v, private=private: in_place(q, k, v, private),
            "shared_once": lambda q=q, k=k, v=v, private=private: shared_prefix(q, k, v, private, checked=True),
        }
        names, seconds = list(ways), {name: [] for name in ways}
        for turn in range(-s["warm"], s["rounds"]):
            for place in range(len(names)):
                name, watch = names[(turn + place) % len(names)], Stopwatch()
                with watch(name):
                    ways[name]()
                if turn >= 0:
                    seconds[name].append(watch.get(name))
        rows.append({name: np.array(values) for name, values in seconds.items()})
    return Batch("shared_time", stacked(rows))


# When may a whole attention result be reused?


def product(x: Matrix, w: Matrix) -> Matrix:
    """x (n, d) times w (d, e), row by row and term by term: the bits of a row do not depend on how many rows there are."""
    total = np.zeros((len(x), w.shape[1]))
    for j in range(w.shape[0]):
        total = total + x[:, j : j + 1] * w[j]
    return total


def network(s: dict[str, Any], seed: int) -> tuple[Matrix, Matrix]:
    """Embedding (vocabulary, d) and weights (layers, 3, d, d)."""
    d = s["width"]
    embedding, weights = normal([5, seed], (s["vocabulary"], d), (s["layers"], 3, d, d))
    return embedding * s["embedding_scale"], weights * s["weight_scale"]


def states(tokens: list[int], embedding: Matrix, weights: Matrix, heads: int) -> list[Triple]:
    """Q, K, V of every layer, each (heads, n, d / heads): sinusoidal positions, causal attention, x = tanh(x + attention)."""
    n, d = len(tokens), embedding.shape[1]
    angle = np.arange(n)[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
    x = embedding[tokens] + np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(n, d)
    layers = []
    for wq, wk, wv in weights:
        q, k, v = (product(x, w).reshape(n, heads, -1).transpose(1, 0, 2) for w in (wq, wk, wv))
        layers.append((q, k, v))
        mixed = np.concatenate([dense(q[:, i : i + 1], k[:, : i + 1], v[:, : i + 1]) for i in range(n)], axis=1)
        x = np.tanh(x + mixed.transpose(1, 0, 2).reshape(n, d))
    return layers


def pairs(s: dict[str, Any], seed: int) -> dict[str, tuple[list[int], list[int]]]:
    """Two token lists for each kind of pair; all share the prefix."""
    rng = np.random.default_rng([6, seed])
    prefix = rng.integers(0, s["vocabulary"], s["prefix"]).tolist()
    suffix = rng.integers(0, s["vocabulary"], s["suffix"]).tolist()
    other = [(token + 1) % s["vocabulary"] for token in suffix]
    first = prefix + suffix
    return {
        "same_suffix": (first, prefix + suffix),
        "same_last": (first, prefix + other[:-1] + suffix[-1:]),
        "other_last": (first, prefix + suffix[:-1] + other[-1:]),
        "other_place": (first, prefix + other[:1] + suffix),
    }


def equal_q(protocol: Protocol) -> Batch:
    """Is the last token's Q the same in both requests, and may the first one's attention over the prefix serve the second?"""
    s = protocol.settings["equal_q"]
    rows, kv_equal = [], []
    made: dict[tuple[int, str], tuple[list[Triple], list[Triple]]] = {}
    for row in protocol.rows("equal_q"):
        key = row["seed"], row["pair"]
        if key not in made:
            embedding, weights = network(s, row["seed"])
            first, second = pairs(s, row["seed"])[row["pair"]]
            made[key] = states(first, embedding, weights, s["heads"]), states(second, embedding, weights, s["heads"])
        (q1, k1, v1), (q2, k2, v2) = (layers[row["layer"]] for layers in made[key])
        n = s["prefix"]
        kv_equal.append(k1[:, :n].tobytes() == k2[:, :n].tobytes() and v1[:, :n].tobytes() == v2[:, :n].tobytes())
        shared1, shared2 = part(q1[:, -1:], k1[:, :n], v1[:, :n]), part(q2[:, -1:], k2[:, :n], v2[:, :n])
        rest = part(q2[:, -1:], k2[:, n:], v2[:, n:])
        rows.append(
            {
                "q_first": q1[:, -1],
                "q_second": q2[:, -1],
                "partial_first": shared1.output[:, 0],
                "partial_second": shared2.output[:, 0],
                "fresh": merge([shared2, rest]).output[:, 0],
                "reused": merge([shared1, rest]).output[:, 0],
            }
        )
    return Batch("equal_q", stacked(rows), decisions={"kv_equal": kv_equal})


def near_q(protocol: Protocol) -> Batch:
    """The prefix part of one query handed to a query that lies `shift` away from it."""
    s = protocol.settings["near_q"]
    rows = []
    for row in protocol.rows("near_q"):
        wide, keys, private = (s["queries"], s["width"]), (s["keys"], s["width"]), (s["private"], s["width"])
        q, away, k, v, pk, pv = normal([7, row["seed"]], wide, wide, keys, keys, private, private)
        near = q + row["shift"] * away
        rest = part(near, pk, pv)
        rows.append({"fresh": merged(part(near, k, v), rest), "reused": merged(part(q, k, v), rest)})
    return Batch("near_q", stacked(rows))


def merged(*parts: Part) -> Matrix:
    return merge(parts).output
