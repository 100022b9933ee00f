"""IEEE binary formats on integers: a finite number is n * 2**unit with an exact n, so a sum is exact and is rounded once.

Infinities and NaN are the floats inf, -inf and nan; every finite number is an int, in units of its format's smallest subnormal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

Value = int | float
"""An int counts units; a float is one of inf, -inf, nan."""


@dataclass(frozen=True)
class Format:
    """A binary interchange format: digits of precision with the hidden one, bits of exponent, exponent of the smallest subnormal."""

    name: str
    precision: int
    exponent_bits: int
    unit: int

    @property
    def width(self) -> int:
        return self.precision + self.exponent_bits

    @property
    def largest(self) -> int:
        """The largest finite number in units."""
        return ((1 << self.precision) - 1) << ((1 << self.exponent_bits) - 3)

    def decode(self, pattern: int) -> Value:
        """The number of a bit pattern; -0 is 0."""
        fraction = pattern & ((1 << (self.precision - 1)) - 1)
        exponent = (pattern >> (self.precision - 1)) & ((1 << self.exponent_bits) - 1)
        negative = pattern >> (self.width - 1)
        if exponent == (1 << self.exponent_bits) - 1:
            return math.nan if fraction else (-math.inf if negative else math.inf)
        size = fraction if exponent == 0 else (fraction | 1 << (self.precision - 1)) << (exponent - 1)
        return -size if negative else size

    def encode(self, value: Value, negative_zero: bool = False) -> int:
        """The bit pattern of a number that the format holds exactly; NaN is the quiet one."""
        top = ((1 << self.exponent_bits) - 1) << (self.precision - 1)
        sign = 1 << (self.width - 1)
        if isinstance(value, float):
            return top | 1 << (self.precision - 2) if math.isnan(value) else (top | sign if value < 0 else top)
        size = abs(value)
        extra = max(0, size.bit_length() - self.precision)
        # A normal number's exponent field is 1 + extra; the hidden digit carries the 1 into the field.
        pattern = size if extra == 0 else (extra << (self.precision - 1)) + (size >> extra)
        return pattern | sign if value < 0 or (value == 0 and negative_zero) else pattern

    def round(self, value: Value, unit: int) -> Value:
        """value * 2**unit rounded to nearest, ties to even."""
        if isinstance(value, float):
            return value
        size, shift = abs(value), unit - self.unit
        if shift >= 0:
            size, low = size << shift, 0
            drop = max(0, size.bit_length() - self.precision)
        else:
            low = -shift
            drop = max(low, size.bit_length() - self.precision)
        if drop:
            kept, rest = size >> drop, size & ((1 << drop) - 1)
            half = 1 << (drop - 1)
            kept += rest > half or (rest == half and kept & 1)
            size = kept << (drop - low)
        if size > self.largest:
            return -math.inf if value < 0 else math.inf
        return -size if value < 0 else size

    def of(self, number: float) -> Value:
        """A binary64 number rounded to the format."""
        if not math.isfinite(number):
            return number
        share = Fraction(number)
        # A float's denominator is a power of two.
        return self.round(share.numerator, 1 - share.denominator.bit_length())

    def add(self, a: Value, b: Value) -> Value:
        """Sum of two numbers of the format, rounded once."""
        if isinstance(a, float) or isinstance(b, float):
            finite = [x for x in (a, b) if isinstance(x, float)]
            return finite[0] if len(finite) == 1 else finite[0] + finite[1]
        return self.round(a + b, self.unit)

    def minus(self, a: Value, b: Value) -> Value:
        """Difference, rounded once."""
        return self.add(a, -b)

    def to(self, value: Value, other: Format) -> Value:
        """The number converted to another format."""
        return other.round(value, self.unit)

    def number(self, value: Value) -> float:
        """As binary64; exact for all four formats."""
        return value if isinstance(value, float) else float(Fraction(value) * Fraction(2) ** self.unit)


FORMATS = {
    "float16": Format("float16", 11, 5, -24),
    "bfloat16": Format("bfloat16", 8, 8, -133),
    "float32": Format("float32", 24, 8, -149),
    "float64": Format("float64", 53, 11, -1074),
}


def weight(fmt: Format, low: Value, other: Value) -> float:
    """Softmax weight of the first of two logits of a format, rounded to where the format has nothing below: 0, a number, or NaN.

    Computed from the exact gap. The weight is 0 exactly where it is at most half of the smallest subnormal number (ties to even).
    """
    if any(isinstance(x, float) and not x < 0 for x in (low, other)) or (isinstance(low, float) and isinstance(other, float)):
        return math.nan  # NaN, +inf, or both -inf: inf - inf
    if isinstance(low, float):
        return 0.0
    if isinstance(other, float):
        return 1.0
    gap = fmt.number(0) if low == other else _float(other - low, fmt.unit)
    if gap <= 0:
        return 1.0 / (1.0 + math.exp(max(gap, -800.0)))
    if gap + math.log1p(math.exp(-gap)) >= (1 - fmt.unit) * math.log(2):
        return 0.0
    share = math.exp(-gap)
    return share / (1.0 + share)


def _float(units: int, unit: int) -> float:
    try:
        return float(Fraction(units) * Fraction(2) ** unit)
    except OverflowError:
        return math.inf if units > 0 else -math.inf
