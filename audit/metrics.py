"""The metric vocabulary (FORMAT 3), row by row, from the arrays as they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]


def values(op: str, parts: list[Array], numbers: list[Floats]) -> list[float]:
    """The metric of each row. `parts`: the arrays as stored, rows first; `numbers`: the same decoded to binary64.

    A value that section 3 calls undefined comes back as NaN.

    >>> a, b = np.array([[1.0, 2.0]]), np.array([[1.5, 1.0]])
    >>> values("max_abs_error", [a, b], [a, b])
    [1.0]
    """
    rows = len(parts[0])
    flat = [array.reshape(rows, -1) if array.size else array.reshape(rows, 0) for array in numbers]
    if op == "nbytes":
        return [parts[0].dtype.itemsize * _elements(parts[0])] * rows
    if op == "size":
        return [_elements(parts[0])] * rows
    if op == "equal":
        return [int(one.tobytes() == other.tobytes()) for one, other in zip(*parts, strict=True)]
    if op == "count_nonzero":
        return [int(count) for count in (flat[0] != 0).sum(axis=1)]
    if op == "count_nan":
        return [int(count) for count in np.isnan(flat[0]).sum(axis=1)]
    if op in ("sum", "mean"):
        return [_mean(row) if op == "mean" else _sum(row.tolist()) for row in flat[0]]
    if flat[0].shape[1] == 0:
        return [math.nan] * rows
    with np.errstate(invalid="ignore", over="ignore"):
        return _VECTOR[op](flat) if op in _VECTOR else [_ROW[op](*pair) for pair in zip(*flat, strict=True)]


def _elements(array: Array) -> int:
    return math.prod(array.shape[1:])


def _sum(items: list[float]) -> float:
    try:
        return math.fsum(items)
    except (OverflowError, ValueError):
        return math.nan if any(math.isnan(item) for item in items) or {math.inf, -math.inf} <= set(items) else _overflow(items)


def _overflow(items: list[float]) -> float:
    """The correctly rounded sum where the partial sums leave the range of binary64."""
    if not all(map(math.isfinite, items)):
        return math.inf if math.inf in items else -math.inf
    from fractions import Fraction

    total = sum(map(Fraction, items), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _mean(row: Floats) -> float:
    return _sum(row.tolist()) / row.size if row.size else math.nan


def _squares(row: Floats) -> float:
    return _sum((row * row).tolist())


def _rmse(a: Floats, b: Floats) -> float:
    return math.sqrt(_squares(a - b) / a.size)


def _relative(a: Floats, b: Floats) -> float:
    above, below = math.sqrt(_squares(a - b)), math.sqrt(_squares(b))
    if below == 0:
        return math.nan if above == 0 or math.isnan(above) else math.inf
    return above / below


def _list(array: Floats) -> list[float]:
    return [float(item) for item in array]


_VECTOR: dict[str, Callable[[list[Floats]], list[float]]] = {
    "max_abs_error": lambda of: _list(np.abs(of[0] - of[1]).max(axis=1)),
    "max_abs": lambda of: _list(np.abs(of[0]).max(axis=1)),
    "max": lambda of: _list(of[0].max(axis=1)),
    "min": lambda of: _list(of[0].min(axis=1)),
}
_ROW: dict[str, Callable[..., float]] = {"rmse": _rmse, "relative_l2": _relative}
