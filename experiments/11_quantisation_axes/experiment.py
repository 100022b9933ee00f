"""Scales per tensor, token, channel and group; INT8, INT4, FP8; with and without outliers; the error of attention over what is held."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.batch import Batch
from labcore.online_softmax import dense
from labcore.protocol import Protocol
from labcore.quantize import E4M3_LARGEST, Codes, asymmetric, e4m3, restore, symmetric

Matrix = NDArray[Any]
AXES = {"tensor": ("tensor", "tensor"), "row": ("token", "token"), "token": ("token", "token"), "hybrid": ("channel", "token")}


def batches(protocol: Protocol) -> Iterator[Batch]:
    yield from published(protocol)
    yield from wide(protocol)
    yield from fp8(protocol)
    yield from growth(protocol)
    yield misread(protocol)


def attention(q: Matrix, k: Matrix, v: Matrix) -> Matrix:
    """Attention in float64 of whatever dtype is held."""
    return dense(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64))


def draw(seed: int, n: int, queries: int, width: int, stream: int = 0) -> tuple[Matrix, Matrix, Matrix]:
    """q, k, v in this order, standard normal float64 cast to float32. `stream` parts the blocks that share seed and length."""
    rng = np.random.default_rng(seed * 10000 + n if not stream else [stream, seed, n])
    q, k, v = rng.standard_normal((queries, width)), rng.standard_normal((n, width)), rng.standard_normal((n, width))
    return q.astype(np.float32), k.astype(np.float32), v.astype(np.float32)


def sha256(*pieces: bytes) -> Matrix:
    return np.frombuffer(hashlib.sha256(b"".join(pieces)).digest(), np.uint8)


def held(x: Matrix, c: Codes | None) -> bytes:
    """The bytes that stand for a matrix: codes (one a byte, lane by lane), scales, low ends; or the float32 values."""
    if c is None:
        return x.astype("<f4").tobytes()
    return c.codes.tobytes() + c.scale.astype("<f4").tobytes() + (b"" if c.low is None else c.low.astype("<f4").tobytes())


def relative_l2(a: Matrix, b: Matrix) -> float:
    return math.sqrt(math.fsum(((a - b) ** 2).ravel().tolist())) / math.sqrt(math.fsum((b * b).ravel().tolist()))


def largest(a: Matrix, b: Matrix) -> float:
    return float(np.abs(a - b).max())


def published(protocol: Protocol) -> Iterator[Batch]:
    """The record's 162 outputs, and the same with what its text leaves open decided otherwise."""
    s = protocol.settings["published"]
    inputs: dict[tuple[int, int], tuple[Matrix, ...]] = {}
    for row in protocol.rows("inputs"):
        inputs[row["seed"], row["length"]] = draw(row["seed"], row["length"], s["queries"], s["width"])
    yield Batch("inputs", {"inputs_sha256": np.stack([sha256(*(x.astype("<f4").tobytes() for x in qkv)) for qkv in inputs.values()])})
    arrays: dict[str, list[Matrix]] = {"reference": [], "output": [], "held_sha256": []}
    counts: dict[str, list[int]] = {"code_bytes": [], "scale_bytes": [], "quantised_bytes": [], "payload_bytes": []}
    own: dict[str, list[float]] = {"max_error": [], "relative_error": []}
    for row in protocol.rows("published"):
        q, k, v = (x.copy() for x in inputs[row["seed"], row["length"]])
        if row["condition"] == "key_channel_outlier":
            k[:, 0] *= s["outlier"]
        if row["condition"] == "value_token_outlier":
            v[0, :] *= s["outlier"]
        axes = AXES[row["method"]]
        codes = [symmetric(x, axis) if name in row["target"] else None for name, x, axis in zip("KV", (k, v), axes, strict=True)]
        reference = attention(q, k, v)
        used = [x if c is None else restore(c, np.float32) for x, c in zip((k, v), codes, strict=True)]
        arrays["reference"].append(reference)
        arrays["output"].append(attention(q, *used))
        arrays["held_sha256"].append(sha256(held(k, codes[0]), held(v, codes[1])))
        made = [c for c in codes if c is not None]
        counts["code_bytes"].append(sum(c.code_bytes for c in made))
        counts["scale_bytes"].append(sum(c.scale_bytes for c in made))
        counts["quantised_bytes"].append(sum(c.code_bytes + c.scale_bytes for c in made))
        counts["payload_bytes"].append(
            sum(x.nbytes if c is None else c.code_bytes + c.scale_bytes for x, c in zip((k, v), codes, strict=True))
        )
        for reading in protocol.values("reading"):
            # float64 input makes `symmetric` take the quotient in float64; the scale is rounded to float32 in each reading
            other = (
                codes
                if reading == "restored_in_float64"
                else [c and symmetric(x.astype(np.float64), axis) for c, x, axis in zip(codes, (k, v), axes, strict=True)]
            )
            output = attention(q, *(x if c is None else restore(c, np.float64) for x, c in zip((k, v), other, strict=True)))
            own["max_error"].append(largest(output, reference))
            own["relative_error"].append(relative_l2(output, reference))
    yield Batch("published", {name: np.stack(values) for name, values in arrays.items()}, counts=counts)
    yield Batch("readings", own=own)


def encode(x: Matrix, axis: str, code: str, group: int | None = None) -> Codes:
    bits = 8 if code.startswith("int8") else 4
    return (asymmetric if code.endswith("_asymmetric") else symmetric)(x, axis, bits, group)


def hold(k: Matrix, v: Matrix, scheme: str, code: str) -> tuple[Matrix, Matrix, list[Codes], bytes]:
    """K and V as restored, their codes, and the bytes held."""
    kind, _, group = scheme.partition("_g")
    if scheme == "hybrid_first":
        rest = [encode(k[1:], "channel", code), encode(v[1:], "token", code)]
        restored = [np.concatenate([x[:1], restore(c)]) for x, c in zip((k, v), rest, strict=True)]
        return restored[0], restored[1], rest, b"".join(held(x[:1], None) + held(x, c) for x, c in zip((k, v), rest, strict=True))
    codes = [encode(x, axis, code, int(group) if group else None) for x, axis in zip((k, v), AXES[kind], strict=True)]
    return restore(codes[0]), restore(codes[1]), codes, b"".join(held(x, c) for x, c in zip((k, v), codes, strict=True))


def wide(protocol: Protocol) -> Iterator[Batch]:
    """Codes and schemes at width 128, where a token has more than one group."""
    s = protocol.settings["wide"]
    inputs, references, digests = {}, {}, []
    for row in protocol.rows("wide_reference"):
        q, k, v = draw(row["seed"], s["length"], s["queries"], s["width"], stream=1)
        if row["outlier"] == "key_channel":
            k[:, 5] *= s["outlier"]
        if row["outlier"] == "first_token":
            # one query that attends to the outlier and one that does not, or nothing but chance would decide what is seen
            q *= np.sign(q @ k[0])[:, None] * np.array([[1], [-1]], np.float32)
            k[0] *= s["outlier"]
        inputs[row["seed"], row["outlier"]] = q, k, v
        references[row["seed"], row["outlier"]] = attention(q, k, v)
        digests.append(sha256(*(x.astype("<f4").tobytes() for x in (q, k, v))))
    yield Batch("wide_reference", {"reference": np.stack(list(references.values())), "inputs_sha256": np.stack(digests)})
    arrays: dict[str, list[Matrix]] = {"output": [], "held_sha256": []}
    counts: dict[str, list[int]] = {"code_bytes": [], "scale_bytes": [], "quantised_bytes": []}
    errors = []
    for row in protocol.rows("wide"):
        q, k, v = inputs[row["seed"], row["outlier"]]
        used_k, used_v, codes, bytes_held = hold(k, v, row["scheme"], row["code"])
        output = attention(q, used_k, used_v).astype(np.float32)  # kept short; its error is taken from what is kept
        arrays["output"].append(output)
        arrays["held_sha256"].append(sha256(bytes_held))
        kept = 2 * 4 * s["width"] if row["scheme"] == "hybrid_first" else 0
        code_bytes, scale_bytes = sum(c.code_bytes for c in codes), sum(c.scale_bytes for c in codes)
        counts["code_bytes"].append(code_bytes)
        counts["scale_bytes"].append(scale_bytes)
        counts["quantised_bytes"].append(code_bytes + scale_bytes + kept)
        errors.append(relative_l2(output, references[row["seed"], row["outlier"]]))
    yield Batch("wide", {name: np.stack(x) for name, x in arrays.items()}, counts=counts, own={"relative_error": errors})


def fp8(protocol: Protocol) -> Iterator[Batch]:
    """E4M3 with a computed and with unit scale, over the size of K and V. q is divided by it, so that the scores stay."""
    s = protocol.settings["wide"]
    arrays: dict[str, list[Matrix]] = {"reference": [], "output": [], "held_sha256": [], "k_codes": []}
    counts: dict[str, list[int]] = {"code_bytes": [], "scale_bytes": [], "quantised_bytes": [], "saturated": []}
    for row in protocol.rows("fp8"):
        q, k, v = draw(row["seed"], s["length"], s["queries"], s["width"], stream=2)
        size = np.float32(row["magnitude"])  # a power of two: exact
        q, k, v = q / size, k * size, v * size
        codes = [e4m3(x, "token", unit=row["fp8_scale"] == "unit") for x in (k, v)]
        arrays["reference"].append(attention(q, k, v))
        arrays["output"].append(attention(q, restore(codes[0]), restore(codes[1])))
        arrays["held_sha256"].append(sha256(held(k, codes[0]), held(v, codes[1])))
        arrays["k_codes"].append(codes[0].codes[:3])  # the first three tokens, to look at; all codes are in the digest
        counts["code_bytes"].append(sum(c.code_bytes for c in codes))
        counts["scale_bytes"].append(sum(c.scale_bytes for c in codes))
        counts["quantised_bytes"].append(sum(c.code_bytes + c.scale_bytes for c in codes))
        cut = row["fp8_scale"] == "unit"
        counts["saturated"].append(sum(int((np.abs(x) > E4M3_LARGEST).sum()) for x in (k, v)) if cut else 0)
    yield Batch("fp8", {name: np.stack(values) for name, values in arrays.items()}, counts=counts)


def growth(protocol: Protocol) -> Iterator[Batch]:
    """The error of attention by the number of cached tokens, for flat (sharpness 1) and peaked (4) attention."""
    s = protocol.settings["growth"]
    arrays: dict[str, list[Matrix]] = {"reference": [], "output": []}
    errors: dict[tuple[float, str], list[list[float]]] = {}
    for row in protocol.rows("growth"):
        n = row["growth_length"]
        q, k, v = draw(row["seed"], n, s["queries"], s["width"], stream=3)
        q = q * np.float32(row["sharpness"])
        if row["store"] == "fp8_token":
            used = [restore(e4m3(x, "token")) for x in (k, v)]
        else:
            code, _, scheme = row["store"].partition("_")
            used = list(hold(k, v, scheme, code)[:2])
        reference, output = attention(q, k, v), attention(q, *used)
        arrays["reference"].append(reference)
        arrays["output"].append(output)
        errors.setdefault((row["sharpness"], row["store"]), []).append([n, relative_l2(output, reference), largest(output, reference)])
    yield Batch("growth", {name: np.stack(values) for name, values in arrays.items()})
    fits = [[slope(errors[row["sharpness"], row["store"]], column) for row in protocol.rows("slopes")] for column in (1, 2)]
    yield Batch("slopes", own={"relative_slope": fits[0], "absolute_slope": fits[1]})


def slope(points: list[list[float]], column: int) -> float:
    """Least-squares slope of log2(error) over log2(length), one point a seed and length."""
    table = np.log2(np.array(points))
    x, y = table[:, 0] - table[:, 0].mean(), table[:, column]
    return float((x * y).sum() / (x * x).sum())


def misread(protocol: Protocol) -> Batch:
    """The control: K's codes made per channel, read back with the scale of the token of the same number."""
    s = protocol.settings["misread"]
    arrays: dict[str, list[Matrix]] = {"reference": [], "right": [], "wrong": []}
    for row in protocol.rows("misread"):
        q, k, v = draw(row["seed"], s["size"], s["queries"], s["size"], stream=4)
        k = k * (np.arange(s["size"], dtype=np.float32) % 7 + 1)  # channels of unlike size
        c = symmetric(k, "channel")
        arrays["reference"].append(attention(q, k, v))
        arrays["right"].append(attention(q, restore(c), v))
        arrays["wrong"].append(attention(q, c.codes.T.astype(np.float32) * c.scale, v))
    return Batch("misread", {name: np.stack(values) for name, values in arrays.items()})
