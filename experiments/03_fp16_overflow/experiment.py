"""Masks as numbers: every fill, dtype, way to apply it and number of masks, over the dtype's whole range of logits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from labcore.batch import Batch
from labcore.faults import causal_corner, hidden_nan, mask_numbers
from labcore.protocol import Protocol

Array = NDArray[Any]
Tensor = Any
DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
WIDTH = {torch.float16: torch.uint16, torch.bfloat16: torch.uint16, torch.float32: torch.uint32, torch.float64: torch.uint64}
SOFTMAX = {"same": None, "float32": torch.float32}


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks."""
    for name, dtype in DTYPES.items():
        yield _phase(protocol, name, dtype)
    yield from _phase_counts(protocol)
    yield from _product(protocol)
    for function in SINGLE.values():
        yield function(protocol)


def bits(x: Tensor) -> Array:
    """Bit patterns as unsigned integers of the dtype's width."""
    return np.asarray(x.contiguous().view(WIDTH[x.dtype]).numpy())


def stored(x: Tensor) -> Array:
    """As the protocol stores it: patterns of 16-bit floats, plain numbers otherwise."""
    return bits(x) if x.dtype in (torch.float16, torch.bfloat16) else np.asarray(x.numpy())


def number(values: Any, dtype: Any) -> Tensor:
    """Numbers rounded to the dtype."""
    return torch.tensor(values, dtype=torch.float64).to(dtype)


def axis_of(protocol: Protocol, dtype: Any) -> Tensor:
    """The 49 logits of the phase diagram, ascending."""
    name = str(dtype).removeprefix("torch.")
    size = protocol.settings["magnitudes"][name]
    return number([-x for x in reversed(size)] + [0.0] + size, dtype)


def few_of(protocol: Protocol, dtype: Any) -> Tensor:
    """The 7 logits of the full product, ascending."""
    size = [*protocol.settings["few"], float(torch.finfo(dtype).max)]
    return number([-x for x in reversed(size)] + [0.0] + size, dtype)


def pairs(axis: Tensor) -> tuple[Tensor, Tensor]:
    """All (first, second), each flat; the second moves fastest."""
    first, second = torch.meshgrid(axis, axis, indexing="ij")
    return first.reshape(-1), second.reshape(-1)


def count(leaked: Tensor, moderate: Tensor, winning: bool = True) -> dict[str, int]:
    """Cells with weight on masked keys, with at least half of it there, and NaN; also among moderate logits. [cell]"""
    leaks, nans = leaked > 0, leaked.isnan()
    found = {"leaking": leaks, "nans": nans, "leaking_moderate": leaks & moderate, "nans_moderate": nans & moderate}
    if winning:
        found["winning"] = leaked >= 0.5
    return {name: int(cells.sum()) for name, cells in found.items()}


def _is_moderate(protocol: Protocol, *logits: Tensor) -> Tensor:
    limit = protocol.settings["moderate"]
    return torch.stack([x.double().abs() <= limit for x in logits]).all(0)


def _phase(protocol: Protocol, name: str, dtype: Any) -> Batch:
    """Weight of the masked key, one additive mask, over (visible, masked) logits, for each fill."""
    axis, fills = axis_of(protocol, dtype), protocol.values("fill")
    planes = torch.stack([mask_numbers.plane(fill, dtype) for fill in fills])
    arrays = {"axis": axis, "plane": planes, "sum": axis + planes[:, None]}
    for softmax in protocol.values("softmax"):
        arrays[f"weight_{softmax}"] = _phase_weights(protocol, dtype, softmax)
    return Batch(f"phase_{name}", {key: stored(value) for key, value in arrays.items()})


def _phase_weights(protocol: Protocol, dtype: Any, softmax: str) -> Tensor:
    axis = axis_of(protocol, dtype)
    logits, hidden = torch.stack(pairs(axis), -1), torch.tensor([False, True])
    made = [mask_numbers.weights(logits, hidden, fill, "additive", 1, SOFTMAX[softmax])[:, 1] for fill in protocol.values("fill")]
    return torch.stack(made).reshape(-1, len(axis), len(axis))


def _phase_counts(protocol: Protocol) -> Iterator[Batch]:
    for dtype, softmax in itertools.product(DTYPES.values(), protocol.values("softmax")):
        weights = _phase_weights(protocol, dtype, softmax)
        moderate = _is_moderate(protocol, *pairs(axis_of(protocol, dtype)))
        yield Batch("phase", counts=_columns([count(w.reshape(-1), moderate) for w in weights]))


def _columns(rows: list[dict[str, int]]) -> dict[str, list[int]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _product(protocol: Protocol) -> Iterator[Batch]:
    """Every fill, application, number of masks and kind of row, counted over the 49 x 49 logits; of the 7 x 7 the weights are kept.

    0 where PyTorch refuses the fill.
    """
    factors = [protocol.values(name) for name in ("fill", "application", "stacked", "rows")]
    kinds = {"partly": torch.tensor([False, True]), "fully": torch.tensor([True, True])}
    arrays: dict[str, dict[str, Array]] = {}
    for (name, dtype), softmax in itertools.product(DTYPES.items(), protocol.values("softmax")):
        axis, few = axis_of(protocol, dtype), few_of(protocol, dtype)
        places = torch.searchsorted(axis.double(), few.double())
        logits = torch.stack(pairs(axis), -1)
        moderate = _is_moderate(protocol, *pairs(axis))
        kept, counts, accepted = [], [], []
        for fill, application, stacked, rows in itertools.product(*factors):
            try:
                weights = mask_numbers.weights(logits, kinds[rows], fill, application, stacked, SOFTMAX[softmax])
            except RuntimeError:
                weights = torch.zeros_like(logits, dtype=SOFTMAX[softmax] or dtype)
                accepted.append(False)
            else:
                accepted.append(True)
            leak = weights[:, 1] if rows == "partly" else weights.sum(-1)
            short = (weights.double().sum(-1) - 1).abs() > 0.01
            kept.append(leak.reshape(len(axis), len(axis))[places][:, places])
            counts.append(count(leak, moderate) | {"short_rows": int(short.sum()) if accepted[-1] else 0})
        shape = [len(values) for values in factors] + [len(few), len(few)]
        arrays.setdefault(name, {"axis": stored(few)})[f"leaked_{softmax}"] = stored(torch.stack(kept).reshape(shape))
        yield Batch("cells", decisions={"accepted": accepted}, counts=_columns(counts))
    for name, found in arrays.items():
        yield Batch(f"grid_{name}", found)


def _pattern(x: Tensor) -> int:
    return int(bits(x.reshape(1))[0])


def _accepts(call: Callable[[], Any]) -> bool:
    try:
        call()
    except RuntimeError:
        return False
    return True


def _conversions(protocol: Protocol) -> Batch:
    held, infinite, ways = [], [], {name: [] for name in ("tensor", "full", "masked_fill", "where", "add")}
    for row in protocol.rows("conversions"):
        dtype = DTYPES[row["dtype"]]
        value, x, hidden = mask_numbers.number(row["fill"], dtype), torch.zeros(2, dtype=dtype), torch.tensor([False, True])
        held.append(_pattern(mask_numbers.plane(row["fill"], dtype)))
        infinite.append(int(mask_numbers.plane(row["fill"], dtype).isinf()))
        calls: dict[str, Callable[[], Any]] = {
            "tensor": lambda value=value, dtype=dtype: torch.tensor(value, dtype=dtype),
            "full": lambda value=value, dtype=dtype: torch.full((1,), value, dtype=dtype),
            "masked_fill": lambda value=value, x=x, hidden=hidden: x.masked_fill(hidden, value),
            "where": lambda value=value, x=x, hidden=hidden: torch.where(hidden, value, x),
            "add": lambda value=value, x=x: x + value,
        }
        for name, call in calls.items():
            ways[name].append(_accepts(call))
    decisions = {f"{name}_accepts": values for name, values in ways.items()}
    return Batch("conversions", {"held": np.array(held, np.uint64)}, decisions, {"infinite": infinite})


def _planes(protocol: Protocol) -> Batch:
    made = [mask_numbers.plane(row["fill"], DTYPES[row["dtype"]], row["stacked"]) for row in protocol.rows("planes")]
    return Batch("planes", {"plane": np.array([_pattern(x) for x in made], np.uint64)}, counts={"infinite": [int(x.isinf()) for x in made]})


def _formats(protocol: Protocol) -> Batch:
    lowest = [number(torch.finfo(DTYPES[row["dtype"]]).min, DTYPES[row["dtype"]]) for row in protocol.rows("formats")]
    parts = {"lowest": lowest, "infinity": [torch.full_like(x, -torch.inf) for x in lowest], "doubled": [x + x for x in lowest]}
    arrays = {name: np.array([_pattern(x) for x in values], np.uint64) for name, values in parts.items()}
    apart = (arrays["infinity"] - arrays["lowest"]).astype(np.int64)
    return Batch("formats", arrays, {"lowest_is_infinite": [bool(x.isinf()) for x in lowest]}, {"patterns_apart": apart})


def _half_logits() -> Tensor:
    patterns = np.concatenate([np.arange(0x7C00), np.arange(0x8000, 0xFC00)]).astype(np.uint16)
    return torch.from_numpy(patterns).view(torch.float16)


def _half_sums(protocol: Protocol) -> Batch:
    return Batch("half_sums", {"sum": bits(_half_logits() + mask_numbers.plane("minus_65504", torch.float16))})


def _half(protocol: Protocol) -> Batch:
    logits = _half_logits()
    sums = logits + mask_numbers.plane("minus_65504", torch.float16)
    # For each masked sum, the visible logits that are not above it.
    winning = torch.searchsorted(logits.double().sort().values, sums.double(), right=True)
    counts = {"positive_sums": sums > 0, "zero_sums": sums == 0, "infinite_sums": sums.isinf(), "winning_pairs": winning}
    return Batch("half", counts={name: [int(x.sum())] for name, x in counts.items()})


def _near(protocol: Protocol) -> Batch:
    """Masked logits near 10^4 against visible ones near 0 and near 10^4."""
    s, band = protocol.settings["near"], protocol.settings["band"]
    masked = np.arange(s["masked_from"], s["masked_to"] + 1, s["masked_step"], dtype=float)
    close = np.arange(0, s["visible_to"] + s["visible_step"] / 2, s["visible_step"])
    far = np.arange(s["masked_from"], s["masked_to"] + 1, s["visible_far_step"], dtype=float)
    visible = np.concatenate([close, far])
    examples, counts, largest = [], [], []
    for row in protocol.rows("near"):
        dtype = DTYPES[row["dtype"]]
        first, second = torch.meshgrid(number(visible, dtype), number(masked, dtype), indexing="ij")
        logits = torch.stack([first.reshape(-1), second.reshape(-1)], -1)
        hidden = torch.tensor([False, True])
        weight = mask_numbers.weights(logits, hidden, row["fill"], "additive", 1, SOFTMAX[row["softmax"]])[:, 1].double()
        inside = (weight >= band[0]) & (weight <= band[1])
        examples.append(logits[inside][0].double().numpy() if bool(inside.any()) else np.zeros(2))
        found = {"seen": torch.ones_like(inside), "leaking": weight > 0, "nans": weight.isnan(), "in_band": inside}
        counts.append({name: int(x.sum()) for name, x in found.items()})
        largest.append(float(weight.nan_to_num(0.0).max()))
    return Batch("near", {"example": np.stack(examples)}, counts=_columns(counts), own={"largest": largest})


def _gaps(protocol: Protocol) -> Batch:
    """10^4 + -10^9, its weight, and the largest gap of two logits at which the lower one keeps any."""
    s = protocol.settings
    sums, infinite, positive, largest = [], [], [], []
    for row in protocol.rows("gaps"):
        dtype = DTYPES[row["dtype"]]
        total = number(s["gap_logit"], dtype) + mask_numbers.plane("minus_1e9", dtype)
        visible = number(s["gap_visible"], dtype)
        weights = torch.softmax(torch.stack([visible, total.expand(len(visible))], -1), -1)[:, 1]
        sums.append(_pattern(total))
        infinite.append(int(total.isinf()))
        positive.append(int((weights > 0).sum()))
        largest.append(_largest_gap(dtype))
    arrays = {"sum": np.array(sums, np.uint64)}
    return Batch("gaps", arrays, counts={"sum_infinite": infinite, "weight_positive": positive}, own={"largest_gap": largest})


def _largest_gap(dtype: Any) -> float:
    """By bisection over the dtype's own bit patterns between 1 and 1024."""
    unsigned = {torch.float16: np.uint16, torch.bfloat16: np.uint16, torch.float32: np.uint32, torch.float64: np.uint64}[dtype]
    low, high = (_pattern(number(x, dtype)) for x in (1.0, 1024.0))
    while high - low > 1:
        middle = (low + high) // 2
        gap = torch.from_numpy(np.array([middle], unsigned)).view(dtype)
        weight = torch.softmax(torch.stack([torch.zeros_like(gap), -gap], -1), -1)[0, 1]
        low, high = (middle, high) if weight > 0 else (low, middle)
    return float(torch.from_numpy(np.array([low], unsigned)).view(dtype)[0])


def _maxima(protocol: Protocol) -> Batch:
    """A maximum subtracted before the mask, after it, over the visible logits, or not at all."""
    rows = []
    for row in protocol.rows("maxima"):
        dtype = DTYPES[row["dtype"]]
        axis, fill = axis_of(protocol, dtype), mask_numbers.plane(row["fill"], dtype)
        first, second = pairs(axis)
        leaked = _subtracted(first, second, fill, row)
        beyond = _subtracted(axis, torch.full_like(axis, torch.inf), fill, row)
        counts = count(leaked, _is_moderate(protocol, first, second))
        rows.append(counts | {"leaking_overflowed": int((beyond > 0).sum()), "nans_overflowed": int(beyond.isnan().sum())})
    return Batch("maxima", counts=_columns(rows))


def _subtracted(visible: Tensor, masked: Tensor, fill: Tensor, row: dict[str, Any]) -> Tensor:
    logits = torch.stack(mask_numbers.subtracted(visible, masked, fill, row["subtracted"]), -1)
    return torch.softmax(logits, -1, dtype=SOFTMAX[row["softmax"]])[:, 1]


def _promotion(protocol: Protocol) -> Batch:
    """Logits of one dtype plus a mask of another, as a new tensor and in place."""
    results, counts = [], []
    for row in protocol.rows("promotion"):
        dtype = DTYPES[row["logit_dtype"]]
        logits = axis_of(protocol, dtype)
        plane = mask_numbers.plane(row["promoted_fill"], DTYPES[row["mask_dtype"]])
        mask = torch.stack([torch.zeros_like(plane), plane])[:, None].expand(2, len(logits))
        both = logits.expand(2, -1).clone()
        total = both.add_(mask) if row["way"] == "in_place" else both + mask
        results.append(bits(total).astype(np.uint64))
        counts.append(
            {
                "result_bytes": total.element_size(),
                "visible_changed": int((total[0].double() != logits.double()).sum()),
                "masked_infinite": int(total[1].isinf().sum()),
            }
        )
    return Batch("promotion", {"result": np.stack(results)}, counts=_columns(counts))


def _sdpa(protocol: Protocol) -> Batch:
    """PyTorch's fused attention with the logits as keys and the identity as values, so that its output is the weights."""
    leaked, counts = [], []
    for row in protocol.rows("sdpa"):
        dtype = DTYPES[row["dtype"]]
        axis = few_of(protocol, dtype)
        first, second = pairs(axis)
        q = torch.zeros((len(first), 1, 1, 2), dtype=dtype)
        q[..., 0] = 1
        k = torch.zeros((len(first), 1, 2, 2), dtype=dtype)
        k[:, 0, :, 0] = torch.stack([first, second], -1)
        v = torch.eye(2, dtype=dtype).expand(len(first), 1, 2, 2)
        hidden = torch.tensor([row["rows"] == "fully", True])
        mask = (
            ~hidden if row["mask_kind"] == "bool" else torch.where(hidden, mask_numbers.plane(row["mask_kind"], dtype), number(0.0, dtype))
        )
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(len(first), 1, 1, 2), scale=1.0)[:, 0, 0].double()
        leak = out[:, 1] if row["rows"] == "partly" else out.sum(-1)
        leaked.append(leak.reshape(len(axis), len(axis)).numpy())
        counts.append({"leaking": int((leak > 0).sum()), "nans": int(leak.isnan().sum())})
    return Batch("sdpa", {"leaked": np.stack(leaked)}, counts=_columns(counts))


def _half_minimum(protocol: Protocol) -> Batch:
    made, hidden = [], torch.ones(3, dtype=torch.bool)
    for row in protocol.rows("half_minimum"):
        rule = mask_numbers.half_minimum if row["repair"] == "faulty" else mask_numbers.zero_rows
        made.append(bits(rule(number(protocol.settings["half_scores"][row["scores"]], torch.float16), hidden)))
    return Batch("half_minimum", {"weights": np.stack(made)})


def _corners(protocol: Protocol) -> Batch:
    """BR-05: few queries on five cached keys; the identity as values gives the weights."""
    keys, own, counts = protocol.settings["keys"], [], []
    for row in protocol.rows("corners"):
        rng = np.random.default_rng([row["seed"], row["queries"]])
        q, k, v = (torch.from_numpy(rng.normal(size=(1, 3, n, keys))) for n in (row["queries"], keys, keys))
        right = causal_corner.attend(q, k, v, "own")
        out = causal_corner.attend(q, k, v, row["corner"])
        seen = causal_corner.attend(q, k, torch.eye(keys, dtype=torch.float64).expand(1, 3, keys, keys), row["corner"])
        counts.append({"allowed": int((seen[0, 0] > 0).sum())})
        own.append([float((out - right).abs().max()), float((out[:, :, 0] - v[:, :, 0]).abs().max())])
    errors, gaps = zip(*own, strict=True)
    return Batch("corners", counts=_columns(counts), own={"error": list(errors), "first_value_gap": list(gaps)})


CONTENT = {"zero": 0.0, "large": 1e4, "inf": np.inf, "nan": np.nan}


def _slots(protocol: Protocol) -> Batch:
    """BR-04: the last slot was never written and holds anything."""
    s, outputs, errors = protocol.settings["slots"], [], []
    for row in protocol.rows("slots"):
        rng = np.random.default_rng([row["seed"], s["count"]])
        q, k, v = (torch.from_numpy(rng.normal(size=(s["heads"], n, s["width"]))) for n in (1, s["count"], s["count"]))
        n = s["written"]
        for part, place in ((k, "key"), (v, "value")):
            part[:, n:] = CONTENT[row["content"]] if place == row["place"] else 0.0
        right = hidden_nan.read_slots(q, k[:, :n], v[:, :n], torch.ones(n, dtype=torch.bool), "select")
        out = hidden_nan.read_slots(q, k, v, torch.arange(s["count"]) < n, row["read"])
        outputs.append(out.numpy())
        errors.append(float((out - right).abs().nan_to_num(0.0).max()))
    return Batch("slots", {"output": np.stack(outputs)}, own={"error": errors})


def _spread(protocol: Protocol) -> Batch:
    """BR-02: a token that sees nothing and is seen by no one, over two layers."""
    s, states, counts = protocol.settings["rows"], [], []
    for row in protocol.rows("spread"):
        x = torch.from_numpy(np.random.default_rng([row["seed"], s["tokens"]]).normal(size=(s["tokens"], s["width"])))
        seen = torch.ones((s["tokens"], s["tokens"]), dtype=torch.bool).tril()
        seen[-1], seen[:, -1] = False, False
        for _ in range(row["layer"]):
            x = hidden_nan.layer(x, seen, row["empty_row"])
        states.append(x.numpy())
        counts.append({"nan_rows": int(x.isnan().any(-1).sum()), "zero_rows": int((x == 0).all(-1).sum())})
    return Batch("spread", {"state": np.stack(states)}, counts=_columns(counts))


SINGLE: dict[str, Callable[[Protocol], Batch]] = {
    "conversions": _conversions,
    "planes": _planes,
    "formats": _formats,
    "half_sums": _half_sums,
    "half": _half,
    "near": _near,
    "gaps": _gaps,
    "maxima": _maxima,
    "promotion": _promotion,
    "sdpa": _sdpa,
    "half_minimum": _half_minimum,
    "corners": _corners,
    "slots": _slots,
    "spread": _spread,
}
