"""The metric vocabulary of evidence/FORMAT.md section 3, over all rows of a block at once.

Sums are correctly rounded (math.fsum), so that another implementation agrees to the bit; everything else is one
rounding per element and needs no order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.bits import decode
from labcore.errors import Refused
from labcore.protocol import Block

Values = NDArray[Any]


def compute(block: Block, arrays: Mapping[str, Values]) -> dict[str, list[Any]]:
    """All vocabulary metrics of some rows of a block.

    arrays: name -> stored array, first axis the row (bits not yet decoded).
    Returns metric -> a Python float or int for each row; `own` metrics are left out. Raises Refused for NaN, naming metric and row.
    """
    result = {}
    for name, metric in block.metrics.items():
        if metric.op == "own":
            continue
        stored = [arrays[array] for array in metric.of]
        if metric.op in STORED:
            result[name] = STORED[metric.op](*stored)
            continue
        values = [_rows(_as_float(array, block.arrays[of].bits)) for array, of in zip(stored, metric.of, strict=True)]
        if len(values) == 2 and values[0].shape != values[1].shape:
            raise Refused(f"metric {name}: shapes {stored[0].shape} and {stored[1].shape}; wanted equal ones")
        result[name] = FLOAT[metric.op](*values)
        row = next((row for row, value in enumerate(result[name]) if value != value), None)
        if row is not None:
            raise Refused(f"metric {name}: NaN in row {row} of this batch; wanted a number (only count_nan may meet NaN)")
    return result


def _as_float(array: Values, bits: str | None) -> NDArray[np.float64]:
    return np.asarray(decode(array, bits) if bits else array, dtype=np.float64)


def _rows(array: Values) -> Values:
    return array.reshape(array.shape[0], math.prod(array.shape[1:]))


def _largest(a: Values) -> list[float]:
    return _filled(np.max, a)


def _filled(reduce: Callable[..., Values], a: Values) -> list[float]:
    if a.shape[1] == 0:
        return [math.nan] * a.shape[0]
    return list(reduce(a, axis=1).tolist())


def _square_sums(a: Values) -> list[float]:
    return [math.fsum(row) for row in (a * a).tolist()]


def _rmse(a: Values, b: Values) -> list[float]:
    n = a.shape[1]
    return [math.sqrt(s / n) if n else math.nan for s in _square_sums(a - b)]


def _relative_l2(a: Values, b: Values) -> list[float]:
    pairs = zip(_square_sums(a - b), _square_sums(b), strict=True)
    return [math.sqrt(s) / math.sqrt(t) if t else (math.nan if s == 0 else math.inf) for s, t in pairs]


def _mean(a: Values) -> list[float]:
    n = a.shape[1]
    return [math.fsum(row) / n if n else math.nan for row in a.tolist()]


def _bytes_equal(a: Values, b: Values) -> list[int]:
    if a.shape != b.shape or a.dtype != b.dtype:
        return [0] * a.shape[0]
    x, y = (np.ascontiguousarray(v).view(np.uint8).reshape(v.shape[0], -1) for v in (a, b))
    return [int(v) for v in (x == y).all(axis=1)]


FLOAT: dict[str, Callable[..., list[Any]]] = {
    "max_abs_error": lambda a, b: _largest(np.abs(a - b)),
    "rmse": _rmse,
    "relative_l2": _relative_l2,
    "max_abs": lambda a: _largest(np.abs(a)),
    "max": _largest,
    "min": lambda a: _filled(np.min, a),
    "sum": lambda a: [math.fsum(row) for row in a.tolist()],
    "mean": _mean,
    "count_nonzero": lambda a: [int(v) for v in np.count_nonzero(a, axis=1)],
    "count_nan": lambda a: [int(v) for v in np.isnan(a).sum(axis=1)],
}
STORED: dict[str, Callable[..., list[int]]] = {
    "size": lambda a: [math.prod(a.shape[1:])] * a.shape[0],
    "nbytes": lambda a: [math.prod(a.shape[1:]) * a.dtype.itemsize] * a.shape[0],
    "equal": _bytes_equal,
}
