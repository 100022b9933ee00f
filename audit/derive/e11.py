"""11: inputs drawn again, codes by own arithmetic (held bytes to the bit by their digest), attention by plain sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from audit.codes import Held, Round, double, hold, single
from audit.draws import cut, digest, groups
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
    return [single(x) for x in cut(key, (queries, width), (n, width), (n, width))]


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


class _Codes:
    """The codes of one draw's K and V, each made once."""

    def __init__(self, k: Any, v: Any) -> None:
        self._matrices = {"K": k, "V": v}
        self._made: dict[Any, Held] = {}

    def of(self, name: str, axis: str, code: str, group: int = 0, inner: Round = single, outer: Round = single) -> Held:
        key = name, axis, code, group, inner, outer
        if key not in self._made:
            self._made[key] = hold(self._matrices[name], axis, code, group, inner, outer)
        return self._made[key]


def _targets(row: dict[str, Any], codes: _Codes, inner: Round, outer: Round) -> list[Held | None]:
    axes = zip("KV", _AXES[row["method"]], strict=True)
    return [codes.of(name, axis, "int8", 0, inner, outer) if name in row["target"] else None for name, axis in axes]


def _published(study: Study) -> Iterator[Derived]:
    s = study.settings["published"]
    rows = study.chosen("inputs")
    factors = study.rows("inputs")
    digests = []
    for r in rows:
        row = factors[r]
        qkv = _draw(row["seed"] * 10000 + row["length"], row["length"], s["queries"], s["width"])
        digests.append(digest(*map(_plain, qkv)))
    yield Derived("inputs", rows, {"inputs_sha256": np.array(digests)})
    for rows, cases in groups(study, "published", "seed", "length", "condition"):
        q, k, v = _published_inputs(study, cases[0])
        codes = _Codes(k, v)
        whole = attend(q, k, v)
        arrays: dict[str, list[Any]] = {"reference": [whole] * len(rows), "output": [], "held_sha256": []}
        counts: dict[str, list[int]] = {name: [] for name in ("code_bytes", "scale_bytes", "quantised_bytes", "payload_bytes")}
        for row in cases:
            made = _targets(row, codes, single, single)
            pairs = list(zip((k, v), made, strict=True))
            arrays["output"].append(attend(q, *(x if h is None else h.restored for x, h in pairs)))
            arrays["held_sha256"].append(digest(*(_plain(x) if h is None else h.data() for x, h in pairs)))
            code, scale = sum(h.code_bytes(8) for h in made if h), sum(h.scale_bytes() for h in made if h)
            rest = sum(4 * x.size for x, h in pairs if h is None)
            for name, count in zip(counts, (code, scale, code + scale, code + scale + rest), strict=True):
                counts[name].append(count)
        yield Derived("published", rows, {name: np.array(values) for name, values in arrays.items()}, counts=counts)


def _readings(study: Study) -> Iterator[Derived]:
    for rows, cases in groups(study, "readings", "seed", "length", "condition"):
        q, k, v = _published_inputs(study, cases[0])
        codes = _Codes(k, v)
        whole = attend(q, k, v)
        largest, relative = [], []
        for row in cases:
            made = _targets(row, codes, single if row["reading"] == "restored_in_float64" else double, double)
            got = attend(q, *(x if h is None else h.restored for x, h in zip((k, v), made, strict=True)))
            largest.append(float(np.abs(got - whole).max()))
            relative.append(relative_l2(got, whole))
        yield Derived("readings", rows, own={"max_error": largest, "relative_error": relative})


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


def _scheme(k: Any, v: Any, codes: _Codes, scheme: str, code: str) -> tuple[list[Any], list[Held], bytes]:
    if scheme == "hybrid_first":
        made = [hold(k[1:], "channel", code), hold(v[1:], "token", code)]
        used = [np.vstack([x[:1], h.restored]) for x, h in zip((k, v), made, strict=True)]
        return used, made, b"".join(_plain(x[:1]) + h.data() for x, h in zip((k, v), made, strict=True))
    name, _, group = scheme.partition("_g")
    made = [codes.of(x, axis, code, int(group or 0)) for x, axis in zip("KV", _AXES[name], strict=True)]
    return [h.restored for h in made], made, b"".join(h.data() for h in made)


def _wide(study: Study) -> Iterator[Derived]:
    factors = study.rows("wide_reference")
    references = study.decoded("wide_reference", "reference")
    stored = {(row["seed"], row["outlier"]): reference for row, reference in zip(factors, references, strict=True)}
    for r in study.chosen("wide_reference"):
        qkv = _wide_inputs(study, factors[r])
        yield Derived("wide_reference", [r], {"reference": attend(*qkv)[None], "inputs_sha256": digest(*map(_plain, qkv))[None]})
    for rows, cases in groups(study, "wide", "seed", "outlier", "code"):
        q, k, v = _wide_inputs(study, cases[0])
        codes = _Codes(k, v)
        arrays: dict[str, list[Any]] = {"output": [], "held_sha256": []}
        counts: dict[str, list[int]] = {name: [] for name in ("code_bytes", "scale_bytes", "quantised_bytes")}
        for row in cases:
            used, made, data = _scheme(k, v, codes, row["scheme"], row["code"])
            arrays["output"].append(attend(q, *used))
            arrays["held_sha256"].append(digest(data))
            code, scale = sum(h.code_bytes(int(row["code"][3])) for h in made), sum(h.scale_bytes() for h in made)
            apart = 2 * 4 * k.shape[1] if row["scheme"] == "hybrid_first" else 0
            for name, count in zip(counts, (code, scale, code + scale + apart), strict=True):
                counts[name].append(count)
        reference = stored[cases[0]["seed"], cases[0]["outlier"]]
        errors = [relative_l2(output, reference) for output in study.decoded("wide", "output", rows)]
        made_arrays = {name: np.array(values) for name, values in arrays.items()}
        yield Derived("wide", rows, made_arrays, counts=counts, own={"relative_error": errors})


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
        lost = sum(int((np.abs(x) > 448).sum()) for x in (k, v)) if unit else 0
        yield Derived(
            "fp8",
            [r],
            {
                "reference": attend(q, k, v)[None],
                "output": attend(q, made[0].restored, made[1].restored)[None],
                "held_sha256": digest(*(h.data() for h in made))[None],
                "k_codes": made[0].codes[:3].astype(np.uint8)[None],
            },
            counts={"code_bytes": [code], "scale_bytes": [scale], "quantised_bytes": [code + scale], "saturated": [lost]},
        )


def _growth(study: Study) -> Iterator[Derived]:
    s = study.settings["growth"]
    for rows, cases in groups(study, "growth", "seed", "growth_length"):
        length = cases[0]["growth_length"]
        q, k, v = _draw([3, cases[0]["seed"], length], length, s["queries"], s["width"])
        whole = {sharpness: attend(q * sharpness, k, v) for sharpness in {row["sharpness"] for row in cases}}
        output = np.empty((len(rows), *q.shape))
        for store in dict.fromkeys(row["store"] for row in cases):
            code, _, scheme = store.partition("_")
            used = [hold(x, axis, code).restored for x, axis in zip((k, v), _AXES[scheme], strict=True)]
            places = [place for place, row in enumerate(cases) if row["store"] == store]
            output[places] = attend(np.array([q * cases[place]["sharpness"] for place in places]), *used)
        yield Derived("growth", rows, {"reference": np.array([whole[row["sharpness"]] for row in cases]), "output": output})
    points: dict[Any, list[list[float]]] = {}
    output, reference = study.decoded("growth", "output"), study.decoded("growth", "reference")
    for row, a, b in zip(study.rows("growth"), output, reference, strict=True):
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
