"""11: inputs drawn again, codes by own arithmetic (held bytes to the bit by their digest), attention by plain sums."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from audit.codes import Held, double, hold, single
from audit.softmax import attend, relative_l2
from audit.study import Derived, Study

_SUMS = (
    1e-11,
    "scores of up to 128 products stay below 200 in size, so a score errs by less than 200 * 128 u = 3e-12 with u = 2**-53; an output is "
    "an average of values below 200 over up to 16,384 keys, and pairwise or blocked sums of that many err by less than 64 u of the largest",
)
_SMALL = (1e-9, "as the others, with values up to 256 * 5")
_SHORT = (5e-7, "rounded to float32 from values below 5, which may fall to either side: one step of 2**-21")
BOUNDS = {
    f"{block}/{name}": _SUMS
    for block, names in {
        "published": ("reference", "output"),
        "wide_reference": ("reference",),
        "growth": ("reference", "output"),
        "misread": ("reference", "right", "wrong"),
    }.items()
    for name in names
} | {"fp8/reference": _SMALL, "fp8/output": _SMALL, "wide/output": _SHORT}
GIVEN: dict[str, str] = {}

_AXES = {"tensor": ("tensor", "tensor"), "row": ("token", "token"), "token": ("token", "token"), "hybrid": ("channel", "token")}


def derive(study: Study) -> Iterator[Derived]:
    yield from _published(study)
    yield from _readings(study)
    yield from _wide(study)
    yield from _fp8(study)
    yield from _growth(study)
    yield from _misread(study)


def _draw(key: Any, n: int, queries: int, width: int) -> list[Any]:
    """q, k, v: one stream of normals cut in three, rounded to float32."""
    flat = np.random.default_rng(key).standard_normal((queries + 2 * n) * width)
    cut = np.split(single(flat), [queries * width, (queries + n) * width])
    return [piece.reshape(-1, width) for piece in cut]


def _digest(*pieces: bytes) -> Any:
    return np.array(list(hashlib.sha256(b"".join(pieces)).digest()), np.uint8)


def _plain(x: Any) -> bytes:
    return bytes(np.asarray(x).astype("<f4").tobytes())


def _published_inputs(study: Study, row: dict[str, Any]) -> list[Any]:
    s = study.settings["published"]
    q, k, v = _draw(row["seed"] * 10000 + row["length"], row["length"], s["queries"], s["width"])
    if row["condition"] == "key_channel_outlier":
        k[:, 0] = single(k[:, 0] * s["outlier"])
    elif row["condition"] == "value_token_outlier":
        v[0] = single(v[0] * s["outlier"])
    return [q, k, v]


def _targets(row: dict[str, Any], k: Any, v: Any, inner: Any, outer: Any) -> list[Held | None]:
    axes = _AXES[row["method"]]
    return [
        hold(x, axis, "int8", 0, inner, outer) if name in list(row["target"]) else None
        for name, x, axis in zip(["K", "V"], [k, v], axes, strict=True)
    ]


def _published(study: Study) -> Iterator[Derived]:
    s = study.settings["published"]
    rows = study.chosen("inputs")
    factors = study.rows("inputs")
    digests = []
    for r in rows:
        row = factors[r]
        qkv = _draw(row["seed"] * 10000 + row["length"], row["length"], s["queries"], s["width"])
        digests.append(_digest(*map(_plain, qkv)))
    yield Derived("inputs", rows, {"inputs_sha256": np.array(digests)})
    factors = study.rows("published")
    references: dict[Any, Any] = {}
    for r in study.chosen("published"):
        row = factors[r]
        q, k, v = _published_inputs(study, row)
        key = row["seed"], row["length"], row["condition"]
        if key not in references:
            references[key] = attend(q, k, v)
        made = _targets(row, k, v, single, single)
        used = [x if h is None else h.restored for x, h in zip((k, v), made, strict=True)]
        code = sum(h.code_bytes(8) for h in made if h)
        scale = sum(h.scale_bytes() for h in made if h)
        rest = sum(4 * x.size for x, h in zip((k, v), made, strict=True) if h is None)
        yield Derived(
            "published",
            [r],
            {
                "reference": references[key][None],
                "output": attend(q, *used)[None],
                "held_sha256": _digest(*(_plain(x) if h is None else h.data() for x, h in zip((k, v), made, strict=True)))[None],
            },
            counts={
                "code_bytes": [code],
                "scale_bytes": [scale],
                "quantised_bytes": [code + scale],
                "payload_bytes": [code + scale + rest],
            },
        )


def _readings(study: Study) -> Iterator[Derived]:
    factors = study.rows("readings")
    for r in study.chosen("readings"):
        row = factors[r]
        q, k, v = _published_inputs(study, row)
        inner = single if row["reading"] == "restored_in_float64" else double
        made = _targets(row, k, v, inner, double)
        got = attend(q, *(x if h is None else h.restored for x, h in zip((k, v), made, strict=True)))
        want = attend(q, k, v)
        yield Derived("readings", [r], own={"max_error": [float(np.abs(got - want).max())], "relative_error": [relative_l2(got, want)]})


def _wide_inputs(study: Study, row: dict[str, Any]) -> list[Any]:
    s = study.settings["wide"]
    q, k, v = _draw([1, row["seed"], s["length"]], s["length"], s["queries"], s["width"])
    if row["outlier"] == "key_channel":
        k[:, 5] = single(k[:, 5] * s["outlier"])
    elif row["outlier"] == "first_token":
        for i, wanted in enumerate((True, False)):  # the first query attends to token 0, the second does not
            if (math.fsum((q[i] * k[0]).tolist()) > 0) != wanted:
                q[i] = -q[i]
        k[0] = single(k[0] * s["outlier"])
    return [q, k, v]


def _scheme(k: Any, v: Any, scheme: str, code: str) -> tuple[list[Any], list[Held], bytes]:
    if scheme == "hybrid_first":
        made = [hold(k[1:], "channel", code), hold(v[1:], "token", code)]
        used = [np.vstack([x[:1], h.restored]) for x, h in zip((k, v), made, strict=True)]
        return used, made, b"".join(_plain(x[:1]) + h.data() for x, h in zip((k, v), made, strict=True))
    name, _, group = scheme.partition("_g")
    made = [hold(x, axis, code, int(group or 0)) for x, axis in zip((k, v), _AXES[name], strict=True)]
    return [h.restored for h in made], made, b"".join(h.data() for h in made)


def _wide(study: Study) -> Iterator[Derived]:
    factors = study.rows("wide_reference")
    stored: dict[Any, Any] = {}
    for r in range(len(factors)):
        row = factors[r]
        stored[row["seed"], row["outlier"]] = study.decoded("wide_reference", "reference", [r])[0]
    for r in study.chosen("wide_reference"):
        qkv = _wide_inputs(study, factors[r])
        yield Derived("wide_reference", [r], {"reference": attend(*qkv)[None], "inputs_sha256": _digest(*map(_plain, qkv))[None]})
    factors = study.rows("wide")
    for r in study.chosen("wide"):
        row = factors[r]
        q, k, v = _wide_inputs(study, row)
        used, made, data = _scheme(k, v, row["scheme"], row["code"])
        code = sum(h.code_bytes(int(row["code"][3])) for h in made)
        scale = sum(h.scale_bytes() for h in made)
        apart = 2 * 4 * k.shape[1] if row["scheme"] == "hybrid_first" else 0
        error = relative_l2(study.decoded("wide", "output", [r])[0], stored[row["seed"], row["outlier"]])
        yield Derived(
            "wide",
            [r],
            {"output": attend(q, *used)[None], "held_sha256": _digest(data)[None]},
            counts={"code_bytes": [code], "scale_bytes": [scale], "quantised_bytes": [code + scale + apart]},
            own={"relative_error": [error]},
        )


def _fp8(study: Study) -> Iterator[Derived]:
    s = study.settings["wide"]
    factors = study.rows("fp8")
    for r in study.chosen("fp8"):
        row = factors[r]
        q, k, v = _draw([2, row["seed"], s["length"]], s["length"], s["queries"], s["width"])
        q, k, v = q / row["magnitude"], k * row["magnitude"], v * row["magnitude"]
        unit = row["fp8_scale"] == "unit"
        made = [hold(x, "token", "fp8_unit" if unit else "fp8") for x in (k, v)]
        code, scale = sum(h.code_bytes(8) for h in made), sum(h.scale_bytes() for h in made)
        cut = sum(1 for x in (k, v) for value in x.ravel().tolist() if abs(value) > 448) if unit else 0
        yield Derived(
            "fp8",
            [r],
            {
                "reference": attend(q, k, v)[None],
                "output": attend(q, made[0].restored, made[1].restored)[None],
                "held_sha256": _digest(*(h.data() for h in made))[None],
                "k_codes": made[0].codes[:3].astype(np.uint8)[None],
            },
            counts={"code_bytes": [code], "scale_bytes": [scale], "quantised_bytes": [code + scale], "saturated": [cut]},
        )


def _growth(study: Study) -> Iterator[Derived]:
    s = study.settings["growth"]
    factors = study.rows("growth")
    references: dict[Any, Any] = {}
    for r in study.chosen("growth"):
        row = factors[r]
        q, k, v = _draw([3, row["seed"], row["growth_length"]], row["growth_length"], s["queries"], s["width"])
        q = q * row["sharpness"]
        key = row["seed"], row["growth_length"], row["sharpness"]
        if key not in references:
            references[key] = attend(q, k, v)
        code, _, scheme = row["store"].partition("_")
        used = [hold(x, axis, code).restored for x, axis in zip((k, v), _AXES[scheme], strict=True)]
        yield Derived("growth", [r], {"reference": references[key][None], "output": attend(q, *used)[None]})
    points: dict[Any, list[list[float]]] = {}
    output, reference = study.decoded("growth", "output"), study.decoded("growth", "reference")
    for row, a, b in zip(factors, output, reference, strict=True):
        point = [
            row["growth_length"],
            relative_l2(a, b),
            max(abs(x - y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)),
        ]
        points.setdefault((row["sharpness"], row["store"]), []).append([math.log2(p) for p in point])
    fits = [points[row["sharpness"], row["store"]] for row in study.rows("slopes")]
    yield Derived(
        "slopes",
        study.chosen("slopes"),
        own={
            "relative_slope": [_slope(fits[r], 1) for r in study.chosen("slopes")],
            "absolute_slope": [_slope(fits[r], 2) for r in study.chosen("slopes")],
        },
    )


def _slope(points: list[list[float]], column: int) -> float:
    """Normal equations of a line: (n Sxy - Sx Sy) / (n Sxx - Sx Sx)."""
    n = len(points)
    x, y = [p[0] for p in points], [p[column] for p in points]
    sx, sy = math.fsum(x), math.fsum(y)
    sxy, sxx = math.fsum(a * b for a, b in zip(x, y, strict=True)), math.fsum(a * a for a in x)
    return (n * sxy - sx * sy) / (n * sxx - sx * sx)


def _misread(study: Study) -> Iterator[Derived]:
    s = study.settings["misread"]
    factors = study.rows("misread")
    for r in study.chosen("misread"):
        q, k, v = _draw([4, factors[r]["seed"], s["size"]], s["size"], s["queries"], s["size"])
        for channel in range(s["size"]):
            k[:, channel] = single(k[:, channel] * (channel % 7 + 1))
        h = hold(k, "channel", "int8")
        # lane i of the codes is channel i: read as token i, the code of token t and channel c meets the scale of channel t
        wrong = single(h.codes.T * h.scale[:, None])
        out = {"reference": attend(q, k, v), "right": attend(q, h.restored, v), "wrong": attend(q, wrong, v)}
        yield Derived("misread", [r], {name: value[None] for name, value in out.items()})
