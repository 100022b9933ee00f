"""03: every addition rounded once on exact integers, every weight from the exact gap of two logits."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from audit.ieee import FORMATS, Format, Value, weight
from audit.masked import pour, scores, weigh
from audit.study import Array, Derived, Study

HALF = (2.0**-11, "one unit of float16 below 1: a weight rounded from float32, which errs by far less")
BRAIN = (2.0**-8, "one unit of bfloat16 below 1")
SINGLE = (1e-6, "float32: one exp, one sum of two, one quotient, each within two units of 2**-24")
DOUBLE = (1e-15, "float64: one exp, one sum of two, one quotient, each within two units of 2**-53")
NEAR = (1e-12, "binary64 attention over at most five keys of width 8")
WIDTHS = {"float16": HALF, "bfloat16": BRAIN, "float32": SINGLE, "float64": DOUBLE}
BOUNDS = {
    **{f"phase_{name}/weight_same": bound for name, bound in WIDTHS.items()},
    **{f"phase_{name}/weight_float32": SINGLE for name in WIDTHS},
    **{f"grid_{name}/leaked_same": bound for name, bound in WIDTHS.items()},
    **{f"grid_{name}/leaked_float32": SINGLE for name in WIDTHS},
    "sdpa/leaked": BRAIN,
    "half_minimum/weights": HALF,
    "slots/output": NEAR,
    "spread/state": NEAR,
}
GIVEN: dict[str, str] = {}
ZERO, SOME, WINS, NAN = range(4)
"""What becomes of a masked key: weight exactly 0, less than half, at least half, or NaN."""


def number(fill: str, fmt: Format) -> float:
    """The float that a fill's name stands for."""
    named = {"minus_1e4": -1e4, "minus_3e4": -3e4, "minus_65504": -65504.0, "minus_1e9": -1e9, "minus_inf": -math.inf}
    return -fmt.number(fmt.largest) if fill == "finfo_min" else named[fill]


def plane(fill: str, fmt: Format, stacked: int = 1) -> Value:
    """A cell of `stacked` additive masks, summed in the format."""
    one = fmt.of(number(fill, fmt))
    total = one
    for _ in range(stacked - 1):
        total = fmt.add(total, one)
    return total


def axis(study: Study, fmt: Format, few: bool = False) -> list[Value]:
    """The logits of a grid, ascending."""
    s = study.settings
    size = [fmt.of(x) for x in (s["few"] if few else s["magnitudes"][fmt.name])] + ([fmt.largest] if few else [])
    return [-x for x in reversed(size)] + [0, *size]


def target(fmt: Format, softmax: str) -> Format:
    return FORMATS["float32"] if softmax == "float32" else fmt


@cache
def limit(fmt: Format) -> int:
    """The gap in units from which a weight is exactly 0; the normaliser's share in it is below 1e-7 of a unit of the logits used."""
    return int(Fraction((1 - fmt.unit) * math.log(2)) * 2**-fmt.unit)


def fate(reach: int, masked: Value, visible: Value) -> int:
    """ZERO, SOME, WINS or NAN for the first of two logits of a format; reach is the format's limit."""
    if isinstance(masked, float) or isinstance(visible, float):
        if not (masked < math.inf and visible < math.inf) or masked == visible:
            return NAN  # NaN, +inf, or both -inf: inf - inf
        return ZERO if isinstance(masked, float) else WINS
    gap = visible - masked
    return WINS if gap <= 0 else ZERO if gap >= reach else SOME


def fates(fmt: Format, masked: Sequence[Value], visible: Sequence[Value]) -> Array:
    """The fate of every pair [visible, masked]: among the visible logits in order a masked one wins up to one place, and is gone from
    another on."""
    ordered = sorted(x if x == x else -math.inf for x in visible)
    wins = np.array([bisect.bisect_right(ordered, x) for x in masked])
    gone = np.array([0 if isinstance(x, float) else bisect.bisect_left(ordered, x + limit(fmt)) for x in masked])
    place = np.array([bisect.bisect_left(ordered, x) for x in visible])[:, None]
    found = np.where(place < wins, WINS, np.where(place < gone, SOME, ZERO))
    high = [np.array([not x < math.inf for x in part]) for part in (visible, masked)]  # NaN, or infinite
    low = [np.array([x == -math.inf for x in part]) for part in (visible, masked)]
    found[(high[0][:, None] | high[1]) | (low[0][:, None] & low[1])] = NAN
    return found


def tally(found: Array, moderate: Array) -> dict[str, int]:
    """The counts of a grid."""
    every, near = (np.bincount(part.ravel(), minlength=4).tolist() for part in (found, found[moderate]))
    return {
        "leaking": every[SOME] + every[WINS],
        "winning": every[WINS],
        "nans": every[NAN],
        "leaking_moderate": near[SOME] + near[WINS],
        "nans_moderate": near[NAN],
    }


def near_by(study: Study, fmt: Format, logits: Sequence[Value]) -> Array:
    """Of which pairs both logits are moderate."""
    flags = np.array([abs(fmt.number(x)) <= study.settings["moderate"] for x in logits])
    return np.asarray(np.logical_and.outer(flags, flags))


def patterns(fmt: Format, values: Sequence[Value]) -> Array:
    """As stored: bit patterns of 16-bit formats, numbers of the others."""
    if fmt.width == 16:
        return np.array([fmt.encode(x) for x in values], np.uint16)
    return np.array([fmt.number(x) for x in values], np.float32 if fmt.width == 32 else np.float64)


def as_stored(fmt: Format, shares: Sequence[float]) -> Array:
    """Weights as stored: rounded to the format's nearest number."""
    if fmt.width == 16:
        known = {w: fmt.encode(fmt.of(w)) for w in set(shares)}
        return np.array([known[w] for w in shares], np.uint16)
    return np.array(shares, np.float32 if fmt.width == 32 else np.float64)


def phase(study: Study) -> Iterator[Derived]:
    """The phase diagram and its counts."""
    fills = study.protocol["factors"]["fill"]
    counts: dict[tuple[str, str, str], dict[str, int]] = {}
    for name, fmt in FORMATS.items():
        line = axis(study, fmt)
        planes = [plane(fill, fmt) for fill in fills]
        sums = [[fmt.add(x, p) for x in line] for p in planes]
        arrays = {"axis": patterns(fmt, line), "plane": patterns(fmt, planes)}
        arrays["sum"] = patterns(fmt, [x for row in sums for x in row]).reshape(len(fills), -1)
        moderate = near_by(study, fmt, line)
        for softmax in study.protocol["factors"]["softmax"]:
            to = target(fmt, softmax)
            seen = [fmt.to(v, to) for v in line]
            shares: list[float] = []
            for fill, row in zip(fills, sums, strict=True):
                moved = [fmt.to(x, to) for x in row]
                shares += [weight(to, m, v) for v in seen for m in moved]
                counts[name, softmax, fill] = tally(fates(to, moved, seen), moderate)
            arrays[f"weight_{softmax}"] = as_stored(to, shares).reshape(len(fills), len(line), len(line))
        yield Derived(f"phase_{name}", arrays=arrays)
    rows = [counts[f["dtype"], f["softmax"], f["fill"]] for f in study.rows("phase")]
    yield Derived("phase", counts=columns(rows))


def columns(rows: Sequence[dict[str, int]]) -> dict[str, Sequence[int]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def refused(fmt: Format, fill: str) -> bool:
    """PyTorch's masked_fill refuses a finite number beyond the dtype; the other ways convert it."""
    value = number(fill, fmt)
    return math.isfinite(value) and isinstance(fmt.of(value), float)


def masked_logits(fmt: Format, factors: dict[str, Any], line: Sequence[Value]) -> tuple[Value, ...]:
    """What each masked logit becomes."""
    if factors["application"] == "multiply_after":
        return tuple(line)
    if factors["application"] == "additive":
        added = plane(factors["fill"], fmt, factors["stacked"])
        return tuple(fmt.add(x, added) for x in line)
    return (fmt.of(number(factors["fill"], fmt)),) * len(line)


@dataclass(frozen=True)
class Grid:
    """Counts over all pairs of logits, and the leaked weights of the few pairs that are kept."""

    counts: dict[str, int]
    kept: list[float]


def one_grid(
    to: Format, first: Sequence[Value], second: Sequence[Value], fully: bool, late: bool, places: Sequence[int], moderate: Array
) -> Grid:
    """first: the first logits in the softmax's format (masked too in fully masked rows); second: masked ones. late: multiplied after."""
    found, short = fates(to, second, first), 0
    finite = found != NAN
    if late:
        some = sum(weight(to, second[j], first[i]) > 0.01 for i, j in np.argwhere(found == SOME).tolist())
        short = int(finite.sum()) if fully else int((found == WINS).sum()) + some
        found[finite] = ZERO
    elif fully:
        found[finite] = WINS
    kept = []
    for i in places:
        for j in places:
            share = weight(to, second[j], first[i])
            kept.append(share if math.isnan(share) else 0.0 if late else 1.0 if fully else share)
    return Grid(tally(found, moderate) | {"short_rows": short}, kept)


def product(study: Study) -> Iterator[Derived]:
    """The full product: counts over all logits, weights of the few. What gives the same logits is computed once."""
    leaked: dict[tuple[str, str], list[float]] = {}
    known: dict[Any, Grid] = {}
    accepted, rows = [], []
    lines = {name: (axis(study, fmt), axis(study, fmt, few=True)) for name, fmt in FORMATS.items()}
    moderate = {name: near_by(study, FORMATS[name], line) for name, (line, _) in lines.items()}
    made: dict[Any, tuple[Value, ...]] = {}
    for factors in study.rows("cells"):
        fmt, (line, few) = FORMATS[factors["dtype"]], lines[factors["dtype"]]
        to = target(fmt, factors["softmax"])
        fully, late = factors["rows"] == "fully", factors["application"] == "multiply_after"
        out = leaked.setdefault((fmt.name, factors["softmax"]), [])
        accepted.append(not (factors["application"] == "masked_fill" and refused(fmt, factors["fill"])))
        if not accepted[-1]:
            out += [0.0] * len(few) ** 2
            rows.append(dict.fromkeys(("leaking", "winning", "nans", "leaking_moderate", "nans_moderate", "short_rows"), 0))
            continue
        alike = tuple(factors[name] for name in ("dtype", "softmax", "fill", "application", "stacked"))
        if alike not in made:
            made[alike] = tuple(fmt.to(x, to) for x in masked_logits(fmt, factors, line))
        masked = made[alike]
        key = (fmt.name, to.name, masked, fully, late)
        if key not in known:
            first = masked if fully else tuple(fmt.to(x, to) for x in line)
            known[key] = one_grid(to, first, masked, fully, late, [line.index(x) for x in few], moderate[fmt.name])
        out += known[key].kept
        rows.append(known[key].counts)
    yield Derived("cells", decisions={"accepted": accepted}, counts=columns(rows))
    shape = [len(study.protocol["factors"][name]) for name in ("fill", "application", "stacked", "rows")]
    for name, fmt in FORMATS.items():
        few = lines[name][1]
        arrays = {"axis": patterns(fmt, few)}
        for softmax in study.protocol["factors"]["softmax"]:
            weights = as_stored(target(fmt, softmax), leaked[name, softmax])
            arrays[f"leaked_{softmax}"] = weights.reshape([*shape, len(few), len(few)])
        yield Derived(f"grid_{name}", arrays=arrays)


def words(values: Sequence[int]) -> Array:
    return np.array(values, np.uint64)


def planes(study: Study) -> Iterator[Derived]:
    """Numbers in the dtypes: what a fill becomes, what two or three of them sum to, and the ends of the formats."""
    made = [(FORMATS[f["dtype"]], plane(f["fill"], FORMATS[f["dtype"]], f["stacked"])) for f in study.rows("planes")]
    infinite = [int(isinstance(x, float)) for _, x in made]
    yield Derived("planes", arrays={"plane": words([fmt.encode(x) for fmt, x in made])}, counts={"infinite": infinite})
    held = [(FORMATS[f["dtype"]], f["fill"]) for f in study.rows("conversions")]
    decisions = {f"{way}_accepts": [True] * len(held) for way in ("tensor", "full", "where", "add")}
    decisions["masked_fill_accepts"] = [not refused(fmt, fill) for fmt, fill in held]
    infinite = [int(isinstance(plane(fill, fmt), float)) for fmt, fill in held]
    yield Derived(
        "conversions", None, {"held": words([fmt.encode(plane(fill, fmt)) for fmt, fill in held])}, decisions, {"infinite": infinite}
    )
    ends = [FORMATS[f["dtype"]] for f in study.rows("formats")]
    low, far = [fmt.encode(-fmt.largest) for fmt in ends], [fmt.encode(-math.inf) for fmt in ends]
    doubled = [fmt.encode(fmt.add(-fmt.largest, -fmt.largest)) for fmt in ends]
    arrays = {"lowest": words(low), "infinity": words(far), "doubled": words(doubled)}
    apart = [b - a for a, b in zip(low, far, strict=True)]
    yield Derived("formats", None, arrays, {"lowest_is_infinite": [False] * len(ends)}, {"patterns_apart": apart})


def half(study: Study) -> Iterator[Derived]:
    """Every finite float16 plus -65504."""
    fmt = FORMATS["float16"]
    logits = [fmt.decode(p) for p in [*range(0x7C00), *range(0x8000, 0xFC00)]]
    sums = [fmt.add(x, -fmt.largest) for x in logits]
    yield Derived("half_sums", arrays={"sum": np.array([fmt.encode(x) for x in sums], np.uint16)})
    ordered = sorted(logits)
    counts = {
        "positive_sums": sum(x > 0 for x in sums),
        "zero_sums": sum(x == 0 for x in sums),
        "infinite_sums": sum(isinstance(x, float) for x in sums),
        "winning_pairs": sum(bisect.bisect_right(ordered, x) for x in sums),
    }
    yield Derived("half", counts={name: [value] for name, value in counts.items()})


def near(study: Study) -> Derived:
    """Logits near 10^4."""
    s, (low, high) = study.settings["near"], study.settings["band"]
    steps = round(s["visible_to"] / s["visible_step"])
    visible = [i * s["visible_step"] for i in range(steps + 1)]
    visible += range(s["masked_from"], s["masked_to"] + 1, s["visible_far_step"])
    masked = range(s["masked_from"], s["masked_to"] + 1, s["masked_step"])
    examples, rows, largest = [], [], []
    logits = {name: [[fmt.of(float(x)) for x in part] for part in (visible, masked)] for name, fmt in FORMATS.items()}
    for factors in study.rows("near"):
        fmt, (first, second) = FORMATS[factors["dtype"]], logits[factors["dtype"]]
        to, added = target(fmt, factors["softmax"]), plane(factors["fill"], fmt)
        sums = np.array([to.number(fmt.to(fmt.add(x, added), to)) for x in second])
        gap = np.array([to.number(fmt.to(x, to)) for x in first])[:, None] - sums
        small_part = np.exp(-np.abs(gap))
        share = np.where(gap > 0, small_part, 1.0) / (1 + small_part)
        share = np.where(gap + np.log1p(small_part) >= (1 - to.unit) * math.log(2), 0.0, share)
        inside = (share >= low) & (share <= high)
        place = np.argwhere(inside)
        examples.append([fmt.number(first[place[0][0]]), fmt.number(second[place[0][1]])] if len(place) else [0.0, 0.0])
        rows.append({"seen": share.size, "leaking": int((share > 0).sum()), "nans": 0, "in_band": int(inside.sum())})
        largest.append(float(share.max()))
    return Derived("near", None, {"example": np.array(examples)}, counts=columns(rows), own={"largest": largest})


def gaps(study: Study) -> Derived:
    """10^4 - 10^9, and the largest gap that leaves a weight."""
    s, sums, rows, largest = study.settings, [], [], []
    for factors in study.rows("gaps"):
        fmt = FORMATS[factors["dtype"]]
        total = fmt.add(fmt.of(s["gap_logit"]), plane("minus_1e9", fmt))
        positive = sum(fate(limit(fmt), total, fmt.of(x)) != ZERO for x in s["gap_visible"])
        sums.append(fmt.encode(total))
        rows.append({"sum_infinite": int(isinstance(total, float)), "weight_positive": positive})
        below, above = fmt.encode(fmt.of(1.0)), fmt.encode(fmt.of(1024.0))
        while above - below > 1:
            middle = (below + above) // 2
            gap = fmt.decode(middle)
            below, above = (middle, above) if fate(limit(fmt), -gap, 0) != ZERO else (below, middle)
        largest.append(fmt.number(fmt.decode(below)))
    return Derived("gaps", None, {"sum": words(sums)}, counts=columns(rows), own={"largest_gap": largest})


Pairs = dict[str, list[tuple[Value, Value]]]


def taken_off(fmt: Format, line: Sequence[Value], fills: Sequence[str]) -> dict[str, Pairs]:
    """Visible and masked logit with a maximum subtracted, by fill and place of the maximum; all pairs of the line, masked also infinity."""
    made: dict[str, Pairs] = {fill: {name: [] for name in ("none", "before_mask", "after_mask", "visible_only")} for fill in fills}
    masked = [*line, math.inf]
    below = [[fmt.minus(m, v) for m in masked] for v in line]
    for fill, pairs in made.items():
        added = plane(fill, fmt)
        filled = [fmt.add(m, added) for m in masked]
        alone = [(fmt.add(fmt.minus(m, m), added), fmt.minus(f, f)) for m, f in zip(masked, filled, strict=True)]  # the larger of two
        for v, apart in zip(line, below, strict=True):
            for m, f, gap, (before, after) in zip(masked, filled, apart, alone, strict=True):
                shifted = fmt.add(gap, added)
                pairs["none"].append((v, f))
                pairs["visible_only"].append((0, shifted))
                pairs["before_mask"].append((0, shifted) if m <= v else (-gap, before))
                pairs["after_mask"].append((0, fmt.minus(f, v)) if f <= v else (fmt.minus(v, f), after))
    return made


def maxima(study: Study) -> Derived:
    """The four places of a maximum."""
    lines = {name: axis(study, fmt) for name, fmt in FORMATS.items()}
    near = {name: near_by(study, FORMATS[name], line) for name, line in lines.items()}
    made = {name: taken_off(fmt, lines[name], study.protocol["factors"]["fill"]) for name, fmt in FORMATS.items()}
    rows = []
    for factors in study.rows("maxima"):
        name, fmt = factors["dtype"], FORMATS[factors["dtype"]]
        to, pairs = target(fmt, factors["softmax"]), made[name][factors["fill"]][factors["subtracted"]]
        if to.holds(fmt):
            reach = -(-limit(to) >> (fmt.unit - to.unit))  # the same gap in the units of the logits, which the softmax does not round
        else:
            reach, pairs = limit(to), [(fmt.to(v, to), fmt.to(m, to)) for v, m in pairs]
        found = np.array([fate(reach, m, v) for v, m in pairs]).reshape(len(lines[name]), -1)
        beyond = np.bincount(found[:, -1], minlength=4).tolist()
        more = {"leaking_overflowed": beyond[SOME] + beyond[WINS], "nans_overflowed": beyond[NAN]}
        rows.append(tally(found[:, :-1], near[name]) | more)
    return Derived("maxima", counts=columns(rows))


def promotion(study: Study) -> Derived:
    """Sums of two dtypes: both converted to the wider one, the sum rounded there, and again in place."""
    results, rows = [], []
    for factors in study.rows("promotion"):
        own, other = FORMATS[factors["logit_dtype"]], FORMATS[factors["mask_dtype"]]
        common = own if own is other else FORMATS["float32"] if own.width == other.width else max(own, other, key=lambda f: f.width)
        out = own if factors["way"] == "in_place" else common
        line = axis(study, own)
        added = other.to(plane(factors["promoted_fill"], other), common)
        made = [[common.to(common.add(own.to(x, common), p), out) for x in line] for p in (0, added)]
        results.append([[out.encode(x) for x in row] for row in made])
        changed = sum(out.number(a) != own.number(b) for a, b in zip(made[0], line, strict=True))
        rows.append(
            {"result_bytes": out.width // 8, "visible_changed": changed, "masked_infinite": sum(isinstance(x, float) for x in made[1])}
        )
    return Derived("promotion", None, {"result": np.array(results, np.uint64)}, counts=columns(rows))


def sdpa(study: Study) -> Derived:
    """Fused attention: mask added in float32 where the dtype is narrower, a row of nothing is zero."""
    tables, rows = [], []
    for factors in study.rows("sdpa"):
        fmt = FORMATS[factors["dtype"]]
        inner = FORMATS["float32"] if fmt.width == 16 else fmt
        line = axis(study, fmt, few=True)
        added = -math.inf if factors["mask_kind"] == "bool" else fmt.to(plane(factors["mask_kind"], fmt), inner)
        fully, table = factors["rows"] == "fully", []
        for first in line:
            for second in line:
                a, b = (fmt.to(x, inner) for x in (first, second))
                pair = (inner.add(a, added) if fully else a, inner.add(b, added))
                share = weight(inner, pair[1], pair[0])
                leak = 0.0 if math.isnan(share) else 1.0 if fully else share
                table.append(fmt.number(fmt.of(leak)))
        tables.append(np.array(table).reshape(len(line), len(line)))
        rows.append({"leaking": sum(x > 0 for x in table), "nans": 0})
    return Derived("sdpa", None, {"leaked": np.array(tables)}, counts=columns(rows))


def half_minimum(study: Study) -> Derived:
    """BR-01: three scores plus the lowest number, in float16."""
    fmt, made = FORMATS["float16"], []
    for factors in study.rows("half_minimum"):
        sums = [fmt.add(fmt.of(x), -fmt.largest) for x in study.settings["half_scores"][factors["scores"]]]
        if factors["repair"] == "correct":
            made.append([0.0] * 3)
        elif all(isinstance(x, float) for x in sums):
            made.append([math.nan] * 3)
        else:
            made.append(weigh([fmt.number(x) for x in sums], [not isinstance(x, float) for x in sums]))
    return Derived("half_minimum", None, {"weights": np.array([as_stored(fmt, row) for row in made])})


def corners(study: Study) -> Derived:
    """BR-05: two corners of a causal mask."""
    n, counts, errors, firsts = study.settings["keys"], [], [], []
    for factors in study.rows("corners"):
        few = factors["queries"]
        rng = np.random.default_rng([factors["seed"], few])
        q, k, v = (rng.normal(size=(1, 3, m, n))[0] for m in (few, n, n))
        start = 0 if factors["corner"] == "flag" else n - few
        worst = first = 0.0
        for h in range(3):
            for i in range(few):
                row = scores(q[h, i], k[h])
                out, right = (np.array(pour(weigh(row, [j <= s + i for j in range(n)]), v[h])) for s in (start, n - few))
                worst = max(worst, float(np.abs(out - right).max()))
                if i == 0:
                    first = max(first, float(np.abs(out - v[h, 0]).max()))
        counts.append({"allowed": sum(start + i + 1 for i in range(few))})
        errors.append(worst)
        firsts.append(first)
    return Derived("corners", counts=columns(counts), own={"error": errors, "first_value_gap": firsts})


def slots(study: Study) -> Derived:
    """BR-04: plain arithmetic with whatever the unwritten slot holds."""
    s, outputs, errors = study.settings["slots"], [], []
    fills = {"zero": 0.0, "large": 1e4, "inf": math.inf, "nan": math.nan}
    n = s["written"]
    for factors in study.rows("slots"):
        rng = np.random.default_rng([factors["seed"], s["count"]])
        q, k, v = (rng.normal(size=(s["heads"], m, s["width"])) for m in (1, s["count"], s["count"]))
        out, worst = [], 0.0
        for h in range(s["heads"]):
            right = weigh(scores(q[h, 0], k[h, :n]), [True] * n)
            held = fills[factors["content"]]
            key, value = (held if factors["place"] == place else 0.0 for place in ("key", "value"))
            row = [*right, 0.0]
            if factors["read"] == "additive":
                spoilt = sum(float(x) * key for x in q[h, 0]) - math.inf
                row = [math.nan] * (n + 1) if math.isnan(spoilt) else row
            columns_of = [[*v[h, :n, c].tolist(), value] for c in range(s["width"])]
            last = 0.0 if factors["read"] == "select" else None
            made = [
                sum(w * x for w, x in zip(row[:n], c[:n], strict=True)) + (last if last is not None else row[n] * c[n]) for c in columns_of
            ]
            out.append([made])
            gaps_found = [abs(a - b) for a, b in zip(made, pour(right, v[h, :n]), strict=True)]
            worst = max([worst, *(x for x in gaps_found if not math.isnan(x))])
        outputs.append(out)
        errors.append(worst)
    return Derived("slots", None, {"output": np.array(outputs)}, own={"error": errors})


def spread(study: Study) -> Derived:
    """BR-02: zero times NaN over two layers."""
    s, states, rows = study.settings["rows"], [], []
    n = s["tokens"]
    for factors in study.rows("spread"):
        x = np.random.default_rng([factors["seed"], n]).normal(size=(n, s["width"]))
        for _ in range(factors["layer"]):
            x = np.array([attended(x, i, factors["empty_row"]) for i in range(n)])
        states.append(x)
        rows.append({"nan_rows": int(sum(any(map(math.isnan, row)) for row in x)), "zero_rows": int(sum(not row.any() for row in x))})
    return Derived("spread", None, {"state": np.array(states)}, counts=columns(rows))


def attended(x: Array, i: int, way: str) -> list[float]:
    """One token's next state; the last token sees nothing and is seen by none."""
    n, width = x.shape
    seen = [j <= i and i < n - 1 and j < n - 1 for j in range(n)]
    if way == "zero_row":
        places = [j for j in range(n) if seen[j]]
        return pour(weigh(scores(x[i], x[places]), [True] * len(places)), x[places]) if places else [0.0] * width
    if any(seen):
        row = [0.0] * n
        places = [j for j in range(n) if seen[j]]
        for j, w in zip(places, weigh(scores(x[i], x[places]), [True] * len(places)), strict=True):
            row[j] = w
    else:
        row = [math.nan if way == "minus_inf" else 1 / n] * n
    return [sum(w * float(x[j, c]) for j, w in enumerate(row)) for c in range(width)]


BLOCKS: tuple[Callable[[Study], Derived], ...] = (near, gaps, maxima, promotion, sdpa, half_minimum, corners, slots, spread)


def derive(study: Study) -> Iterator[Derived]:
    """All blocks, whole."""
    for many in (phase, product, planes, half):
        yield from many(study)
    for one in BLOCKS:
        yield one(study)
