"""IEEE binary formats on integers: a finite number is n * 2**unit with an exact n, so a sum is exact and is rounded once.

Infinities and NaN are the floats inf, -inf and nan; every finite number is an int, in units of its format's smallest subnormal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

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

    @cached_property
    def largest(self) -> int:
        """The largest finite number in units."""
        return ((1 << self.precision) - 1) << ((1 << self.exponent_bits) - 3)

    def holds(self, other: Format) -> bool:
        """Whether every number of the other format is one of this."""
        return self.precision >= other.precision and self.exponent_bits >= other.exponent_bits

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
        size, low = abs(value), self.unit - unit
        if low < 0:
            size, low = size << -low, 0
        drop = max(low, size.bit_length() - self.precision)
        if drop > 0:
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
        above, below = number.as_integer_ratio()  # below is a power of two
        return self.round(above, 1 - below.bit_length())

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
        if isinstance(value, float):
            return value
        if other.holds(self):
            return value << (self.unit - other.unit)
        return other.round(value, self.unit)

    def number(self, value: Value) -> float:
        """As binary64; exact for all four formats."""
        return value if isinstance(value, float) else _float(value, self.unit)


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
    if isinstance(low, float) or isinstance(other, float):
        if not (low < math.inf and other < math.inf) or low == other:
            return math.nan  # NaN, +inf, or both -inf: inf - inf
        return 0.0 if isinstance(low, float) else 1.0
    gap = _float(other - low, fmt.unit)
    if gap <= 0:
        return 1.0 / (1.0 + math.exp(max(gap, -800.0)))
    if gap + math.log1p(math.exp(-gap)) >= (1 - fmt.unit) * math.log(2):
        return 0.0
    share = math.exp(-gap)
    return share / (1.0 + share)


def _float(units: int, unit: int) -> float:
    """units * 2**unit rounded once, infinite beyond binary64: what has more than 53 digits does not end below the normal numbers."""
    extra = max(0, units.bit_length() - 1000)  # more digits would not fit a float, and of them it matters only whether there are any
    if extra:
        units = units >> extra | (units & ((1 << extra) - 1) != 0)
    try:
        return math.ldexp(units, unit + extra)
    except OverflowError:
        return math.inf if units > 0 else -math.inf
