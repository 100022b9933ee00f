"""Masks as numbers: finite fills, and four ways to apply a fill, in the dtypes that users run. PyTorch.

Twin: `labcore.attention_torch.softmax`, which keeps the mask boolean and raises where a row sees nothing. Control: logits near 0 and no
fully masked row, where every fill below -1000 gives exact zeros. BR-01: `half_minimum` and its twin `zero_rows`, control scores of -15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = Any
FILLS = {"minus_1e4": -1e4, "minus_3e4": -3e4, "minus_65504": -65504.0, "minus_1e9": -1e9, "minus_inf": -torch.inf}


def number(fill: str, dtype: Any) -> float:
    """The Python float that a fill's name stands for; "finfo_min" depends on the dtype."""
    return float(torch.finfo(dtype).min) if fill == "finfo_min" else FILLS[fill]


def plane(fill: str, dtype: Any, stacked: int = 1) -> Tensor:
    """What a hidden cell of `stacked` additive masks, summed in the dtype, holds. Conversion follows IEEE: -1e9 is -inf in float16."""
    one = torch.tensor(number(fill, dtype), dtype=torch.float64).to(dtype)
    total = one
    for _ in range(stacked - 1):
        total = total + one
    return total


def additive(logits: Tensor, hidden: Tensor, fill: str, stacked: int) -> Tensor:
    """The planes are summed, then added to the logits."""
    return logits + torch.where(hidden, plane(fill, logits.dtype, stacked), torch.zeros((), dtype=logits.dtype))


def masked_fill(logits: Tensor, hidden: Tensor, fill: str, stacked: int) -> Tensor:
    """`Tensor.masked_fill` once a mask; RuntimeError where PyTorch refuses the number for the dtype."""
    for _ in range(stacked):
        logits = logits.masked_fill(hidden, number(fill, logits.dtype))
    return logits


def where(logits: Tensor, hidden: Tensor, fill: str, stacked: int) -> Tensor:
    """`torch.where` with a Python number once a mask."""
    for _ in range(stacked):
        logits = torch.where(hidden, number(fill, logits.dtype), logits)
    return logits


BEFORE: dict[str, Callable[[Tensor, Tensor, str, int], Tensor]] = {"additive": additive, "masked_fill": masked_fill, "where": where}
APPLICATIONS = (*BEFORE, "multiply_after")


def weights(logits: Tensor, hidden: Tensor, fill: str, application: str, stacked: int, softmax_dtype: Any = None) -> Tensor:
    """Softmax weights [..., key] of logits [..., key] under `stacked` equal masks; multiply_after has no fill."""
    if application == "multiply_after":
        out = torch.softmax(logits, -1, dtype=softmax_dtype)
        for _ in range(stacked):
            out = out * (~hidden).to(out.dtype)
        return out
    return torch.softmax(BEFORE[application](logits, hidden, fill, stacked), -1, dtype=softmax_dtype)


def half_minimum(scores: Tensor, hidden: Tensor) -> Tensor:
    """BR-01, faulty: the dtype's lowest number is added to the scores, softmax in the same dtype."""
    return weights(scores, hidden, "finfo_min", "additive", 1)


def zero_rows(scores: Tensor, hidden: Tensor) -> Tensor:
    """BR-01, correct: the mask stays boolean, softmax in float32, a row that sees nothing is all zero."""
    chosen = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1, dtype=torch.float32)
    return torch.where(hidden.all(-1, keepdim=True), torch.zeros(()), chosen).to(scores.dtype)


def subtracted(visible: Tensor, masked: Tensor, fill: Tensor, way: str) -> tuple[Tensor, Tensor]:
    """The two logits of a row after an additive fill on the second, with a maximum taken off in the dtype.

    way: "none", "before_mask" (of both logits), "after_mask" (of both after the fill), "visible_only" (of the visible logit).
    """
    if way == "none":
        return visible + torch.zeros_like(masked), masked + fill
    if way == "after_mask":
        filled = masked + fill
        top = torch.maximum(visible, filled)
        return visible - top, filled - top
    top = torch.maximum(visible, masked) if way == "before_mask" else visible + torch.zeros_like(masked)
    return visible - top, (masked - top) + fill
