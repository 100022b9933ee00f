"""Bit patterns as numbers: binary64 values of float16, bfloat16, float8_e4m3 and bool patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = {"float16": "<u2", "bfloat16": "<u2", "float8_e4m3": "|u1", "bool": "|u1"}


def decode(values: NDArray[Any], bits: str = "") -> NDArray[np.float64]:
    """Values as binary64, exactly; with `bits` the integers are read as patterns of that format."""
    if bits in ("", "bool"):
        return values.astype(np.float64)
    mantissa_bits, bias, exponent_bits = {"float16": (10, 15, 5), "bfloat16": (7, 127, 8), "float8_e4m3": (3, 7, 4)}[bits]
    pattern = values.astype(np.int64)
    fraction = pattern & ((1 << mantissa_bits) - 1)
    exponent = (pattern >> mantissa_bits) & ((1 << exponent_bits) - 1)
    negative = (pattern >> (mantissa_bits + exponent_bits)) & 1
    normal = exponent > 0
    significand = (fraction + np.where(normal, 1 << mantissa_bits, 0)).astype(np.float64)
    size = np.ldexp(significand, np.where(normal, exponent, 1) - bias - mantissa_bits)
    top = exponent == (1 << exponent_bits) - 1
    if bits == "float8_e4m3":  # OCP "fn": no infinity; all ones but the sign is NaN
        size = np.where(top & (fraction == 7), np.nan, size)
    else:
        size = np.where(top, np.where(fraction == 0, np.inf, np.nan), size)
    return np.where(negative == 1, -size, size)
