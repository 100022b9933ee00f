"""Low-bit codes for K and V: INT8 and INT4, symmetric and asymmetric, and FP8 E4M3 by bit pattern.

A matrix [m, d] (m tokens as keys, d channels) is cut into *lanes*: all values that share one scale. The axis says which:

    tensor    one lane of m*d values
    token     a lane per row (per token); with group g, a lane per g neighbouring channels of a token
    channel   a lane per column (per channel); with group g, a lane per g neighbouring tokens of a channel

Codes are rounded to nearest, ties to even. Scales are float32; quotients and products are taken in the dtype of the input, so that
float32 input stays in float32 and float64 input in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.bits import E4M3

AXES = ("tensor", "token", "channel")
E4M3_LARGEST = 448.0
_SIZES = E4M3[:127]  # the finite sizes in rising order: the code of a size is its place
_MIDDLES = (_SIZES[:-1] + _SIZES[1:]) / 2


class NotFinite(ValueError):
    """NaN or infinity where a number is wanted."""


class GroupDoesNotDivide(ValueError):
    """A group size that does not divide the length of the axis along which it cuts."""


class BitsNotSupported(ValueError):
    """A number of bits that no code here has."""


@dataclass(frozen=True)
class Codes:
    """Codes of one matrix, lane by lane.

    codes: [lane, place], int8 (symmetric) or uint8 (asymmetric, FP8); scale: [lane, 1] float32; low: [lane, 1] float32, the value
    of code 0 of an asymmetric code, else None. shape, axis: what `restore` needs to put the lanes back. floating: codes are E4M3 patterns.
    """

    codes: NDArray[Any]
    scale: NDArray[np.float32]
    low: NDArray[np.float32] | None
    bits: int
    shape: tuple[int, int]
    axis: str
    floating: bool = False

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes, two 4-bit codes to a byte."""
        return -(-self.codes.size * self.bits // 8)

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales and, where there are any, of the low ends."""
        return self.scale.nbytes + (0 if self.low is None else self.low.nbytes)


def lanes(x: NDArray[Any], axis: str, group: int | None = None) -> NDArray[Any]:
    """The lanes of a matrix [m, d] as [lane, place]. group: values a lane, None for the whole axis.

    >>> lanes(np.arange(6).reshape(2, 3), "channel").tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    if x.ndim != 2 or x.size == 0:
        raise ValueError(f"x: got shape {x.shape}; wanted (tokens, channels), neither 0")
    if not np.isfinite(x).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise NotFinite(f"x{list(place)}: got {x[place]}; wanted finite numbers")
    if axis == "tensor":
        cut = x.reshape(1, -1)
    elif axis == "token":
        cut = x
    elif axis == "channel":
        cut = np.ascontiguousarray(x.T)
    else:
        raise ValueError(f"axis: got {axis!r}; wanted one of {', '.join(AXES)}")
    if group is None:
        return cut
    if group < 1 or cut.shape[1] % group:
        raise GroupDoesNotDivide(f"group: got {group}; wanted a divisor of {cut.shape[1]}, the length along {axis!r}")
    return cut.reshape(-1, group)


def restore(c: Codes, dtype: Any = np.float32) -> NDArray[Any]:
    """The matrix [m, d] that the codes stand for, products in `dtype`."""
    kind = np.dtype(dtype).type
    values = E4M3[c.codes].astype(kind) if c.floating else c.codes.astype(kind)
    values = values * c.scale.astype(kind)
    if c.low is not None:
        values = values + c.low.astype(kind)
    m, d = c.shape
    return np.ascontiguousarray(values.reshape(d, m).T) if c.axis == "channel" else values.reshape(m, d)


def symmetric(x: NDArray[Any], axis: str, bits: int = 8, group: int | None = None) -> Codes:
    """Codes -L..L, L = 2**(bits-1) - 1 (127 or 7), scale = max|x| / L, 1 where a lane is all zero.

    >>> c = symmetric(np.array([[1.0, -2.0]], np.float32), "tensor")
    >>> c.codes.tolist(), restore(c)[0].tolist()
    ([[64, -127]], [1.0078740119934082, -2.0])
    """
    limit = _levels(bits) // 2
    cut = lanes(x, axis, group)
    scale = _safe(np.abs(cut).max(axis=1, keepdims=True) / x.dtype.type(limit))
    codes = np.clip(np.rint(cut / scale), -limit, limit).astype(np.int8)
    return Codes(codes, scale, None, bits, (x.shape[0], x.shape[1]), axis)


def asymmetric(x: NDArray[Any], axis: str, bits: int = 8, group: int | None = None) -> Codes:
    """Codes 0..2**bits - 1 from the lane's smallest value (code 0) to its largest: x is about code * scale + low.

    >>> restore(asymmetric(np.array([[3.0, 4.0, 18.0]], np.float32), "token", 4)).tolist()
    [[3.0, 4.0, 18.0]]
    """
    levels = _levels(bits)
    cut = lanes(x, axis, group)
    low = cut.min(axis=1, keepdims=True).astype(np.float32)
    scale = _safe((cut.max(axis=1, keepdims=True) - low) / x.dtype.type(levels))
    codes = np.clip(np.rint((cut - low) / scale), 0, levels).astype(np.uint8)
    return Codes(codes, scale, low, bits, (x.shape[0], x.shape[1]), axis)


def e4m3(x: NDArray[Any], axis: str, group: int | None = None, unit: bool = False) -> Codes:
    """FP8 E4M3 ("fn") bit patterns. Scale max|x| / 448, or 1 with `unit`; sizes above 448 become 448.

    >>> e4m3(np.array([[1.0, -448.0, 1e9]]), "tensor", unit=True).codes.tolist()
    [[56, 254, 126]]
    """
    cut = lanes(x, axis, group)
    scale = np.ones((len(cut), 1), np.float32) if unit else _safe(np.abs(cut).max(axis=1, keepdims=True) / x.dtype.type(E4M3_LARGEST))
    return Codes(e4m3_bits(cut / scale), scale, None, 8, (x.shape[0], x.shape[1]), axis, floating=True)


def e4m3_bits(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Nearest E4M3 bit pattern of each finite value, ties to the even pattern, sizes above 448 to 448; any shape."""
    size = np.abs(np.asarray(x, np.float64))
    below, up_to = np.searchsorted(_MIDDLES, size, "left"), np.searchsorted(_MIDDLES, size, "right")
    code = np.where(below == up_to, below, below + (below & 1))  # on a middle: the even one of the two neighbours
    return (code | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def _levels(bits: int) -> int:
    if bits not in (4, 8):
        raise BitsNotSupported(f"bits: got {bits}; wanted 4 or 8")
    return int(2**bits - 1)


def _safe(scale: NDArray[Any]) -> NDArray[np.float32]:
    rounded = scale.astype(np.float32)
    return np.where(rounded == 0, np.float32(1), rounded)
