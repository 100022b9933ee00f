"""Low-bit codes by own arithmetic: lanes are cut from the matrix read along its axis, rounding is left to a sum, E4M3 by quantum.

float32 quotients, products and sums of two numbers are taken in binary64 and rounded once to float32. That is the float32 result
to the bit: rounding first to 53 and then to 24 bits does no harm for one operation, because 53 >= 2 * 24 + 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Round = Callable[[Any], Values]


def single(x: Any) -> Values:
    """Rounded to float32, held as binary64."""
    return np.asarray(x, np.float64).astype(np.float32).astype(np.float64)


def double(x: Any) -> Values:
    """Left as it is."""
    return np.asarray(x, np.float64)


_COARSE = 3.0 * 2.0**51
"""Next to it binary64 holds integers only, so adding it rounds to the nearest one, a half to the even one."""


def half_even(x: Values) -> Values:
    """Nearest integer, a half to the even one; for |x| < 2**51."""
    return np.asarray((x + _COARSE) - _COARSE, np.float64)


class Held:
    """What stands for one matrix: codes (lanes, length), scales and low ends a lane, and the matrix they restore to."""

    def __init__(self, codes: Values, scale: Values, low: Values | None, restored: Values, unsigned: bool) -> None:
        self.codes, self.scale, self.low, self.restored = codes, scale, low, restored
        self.kind = np.uint8 if unsigned else np.int8

    def data(self) -> bytes:
        """Codes one a byte, then scales and low ends as little-endian float32."""
        tail = b"" if self.low is None else self.low.astype("<f4").tobytes()
        return self.codes.astype(self.kind).tobytes() + self.scale.astype("<f4").tobytes() + tail

    def code_bytes(self, bits: int) -> int:
        return (self.codes.size * bits + 7) // 8

    def scale_bytes(self) -> int:
        return 4 * len(self.scale) * (1 if self.low is None else 2)


def hold(x: Any, axis: str, code: str, group: int = 0, inner: Round = single, outer: Round = single, peak: Round = double) -> Held:
    """Codes of a matrix (n, d). axis: tensor, token, channel; group: values a lane (0: all along the axis).

    code: int8, int4, int8_asymmetric, int4_asymmetric, fp8, fp8_unit. inner rounds the quotients, outer the products, peak a symmetric
    lane's largest size before it is divided.
    """
    x = np.asarray(x, np.float64)
    n, d = x.shape
    length = group or {"tensor": n * d, "token": d, "channel": n}[axis]
    values = (x.T if axis == "channel" else x).reshape(-1, length)
    low = None
    if code.startswith("fp8"):
        scale = np.ones(len(values)) if code == "fp8_unit" else _safe(inner(np.abs(values).max(axis=1) / 448))
        codes, kept = e4m3(inner(values / scale[:, None]))
        made = outer(outer(kept) * scale[:, None])
    elif code.endswith("_asymmetric"):
        levels = 2 ** int(code[3]) - 1
        low = single(values.min(axis=1))
        scale = _safe(inner(inner(values.max(axis=1) - low) / levels))
        codes = np.clip(half_even(inner(inner(values - low[:, None]) / scale[:, None])), 0, levels)
        made = outer(outer(codes * scale[:, None]) + low[:, None])
    else:
        levels = 2 ** (int(code[3]) - 1) - 1
        scale = _safe(inner(peak(np.abs(values).max(axis=1)) / levels))
        codes = np.clip(half_even(inner(values / scale[:, None])), -levels, levels)
        made = outer(codes * scale[:, None])
    restored = np.ascontiguousarray(made.reshape(d, n).T) if axis == "channel" else made.reshape(n, d)
    return Held(codes, scale, low, restored, unsigned=low is not None or code.startswith("fp8"))


def e4m3(x: Values) -> tuple[Values, Values]:
    """Bit pattern and value of the nearest E4M3 number (largest 448, ties to even)."""
    size = np.minimum(np.abs(x), 448.0)
    exponent = np.maximum((size.view(np.int64) >> 52) - 1023, -6)  # of binary64's own exponent field
    quantum = ((exponent - 3 + 1023) << 52).view(np.float64)
    steps = half_even(size / quantum)  # 8 to 16, below 8 only where the exponent is the smallest; 16 carries into the exponent
    minus = np.signbit(x)
    value = steps * quantum
    return exponent * 8 + 48 + steps + 128 * minus, np.where(minus, -value, value)


def _safe(scale: Values) -> Values:
    rounded = single(scale)
    rounded[rounded == 0] = 1.0
    return rounded
