"""Integers as the bit patterns of small floats, and back. Exact: every such float is a float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def decode(values: NDArray[Any], bits: str) -> NDArray[Any]:
    """Values of bit patterns: float64 for float16, bfloat16 and float8_e4m3 (OCP "fn"), bool for bool. Any shape.

    >>> decode(np.array([0x3C00, 0xFBFF], np.uint16), "float16").tolist()
    [1.0, -65504.0]
    >>> decode(np.array([0x3F80], np.uint16), "bfloat16").tolist()
    [1.0]
    """
    if bits == "bool":
        return values.astype(bool)
    with np.errstate(invalid="ignore"):  # a signalling NaN stays a NaN, without a warning
        if bits == "float16":
            return values.view(np.float16).astype(np.float64)
        if bits == "bfloat16":
            return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if bits == "float8_e4m3":
        return np.asarray(E4M3[values])
    raise ValueError(f"bits: got {bits!r}; wanted float16, bfloat16, float8_e4m3 or bool")


def _e4m3() -> NDArray[np.float64]:
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    size[(code & 127) == 127] = np.nan
    return np.asarray(np.where(code & 128, -size, size))


E4M3 = _e4m3()
