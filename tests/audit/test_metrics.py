"""The metric vocabulary against formulas in exact arithmetic, and where it is undefined."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.bits import decode
from audit.metrics import values

floats = st.floats(-1e6, 1e6, allow_subnormal=True)
pairs = st.integers(1, 7).flatmap(lambda n: st.tuples(st.lists(floats, min_size=n, max_size=n), st.lists(floats, min_size=n, max_size=n)))


def value(op, *lists):
    arrays = [np.array([item]) for item in lists]
    return values(op, arrays, arrays)[0]


def rounded(exact):
    return float(exact)  # Fraction -> binary64 is correctly rounded


@given(pairs)
def test_against_exact_arithmetic(pair):
    a, b = pair
    gaps = [x - y for x, y in zip(a, b, strict=True)]
    squares = rounded(sum(Fraction(gap * gap) for gap in gaps))
    below = rounded(sum(Fraction(y * y) for y in b))
    assert value("max_abs_error", a, b) == max(map(abs, gaps))
    assert value("rmse", a, b) == math.sqrt(squares / len(a))
    assert value("sum", a) == rounded(sum(map(Fraction, a)))
    assert value("mean", a) == rounded(sum(map(Fraction, a))) / len(a)
    assert value("max", a) == max(a) and value("min", a) == min(a) and value("max_abs", a) == max(map(abs, a))
    assert value("count_nonzero", a) == sum(x != 0 for x in a) and value("count_nan", a) == 0
    assert value("size", a) == len(a) and value("nbytes", a) == 8 * len(a)
    assert value("equal", a, a) == 1 and value("equal", a, b) == int(a == b and [*map(str, a)] == [*map(str, b)])
    if below:
        assert value("relative_l2", a, b) == math.sqrt(squares) / math.sqrt(below)


def test_undefined_is_nan_and_counts_are_not():
    assert math.isnan(value("relative_l2", [0.0], [0.0]))
    assert value("relative_l2", [1.0], [0.0]) == math.inf
    for op in ("max", "min", "max_abs", "mean"):
        assert math.isnan(value(op, np.zeros(0)))
    for op in ("max_abs_error", "rmse", "relative_l2"):
        assert math.isnan(value(op, np.zeros(0), np.zeros(0)))
    assert [value(op, np.zeros(0)) for op in ("sum", "count_nonzero", "count_nan", "size", "nbytes")] == [0, 0, 0, 0, 0]
    for op in ("max", "min", "max_abs", "mean", "sum"):
        assert math.isnan(value(op, [1.0, math.nan]))
    assert value("count_nan", [math.nan, 1.0, math.nan]) == 2


def test_sums_at_the_ends_of_the_range():
    assert value("sum", [1e308, 1e308, -1e308, -1e308]) == 0.0
    assert value("sum", [1e308, 1e308, -1e308]) == 1e308
    assert value("sum", [1e308, 1e308, -1e308, -1e308, 3.0]) == 3.0
    assert value("sum", [1e308, 1e308]) == math.inf and value("sum", [-1e308, -1e308]) == -math.inf
    assert value("sum", [math.inf, 1e308, 1e308]) == math.inf
    assert math.isnan(value("sum", [math.inf, -math.inf]))


def test_equal_compares_bytes_and_nbytes_the_stored_width():
    zero, minus = np.array([[0.0]]), np.array([[-0.0]])
    assert values("equal", [zero, minus], [zero, minus]) == [0]
    half = np.zeros((2, 3), "<u2")
    assert values("nbytes", [half], [decode(half, "float16")]) == [6, 6]
    assert values("size", [half.reshape(2, 3, 1)], [half.reshape(2, 3, 1)]) == [3, 3]


@pytest.mark.parametrize("op", ["max_abs_error", "rmse", "sum", "count_nonzero", "equal"])
def test_every_row_has_its_own_value(op):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(5, 3, 2)), rng.normal(size=(5, 3, 2))
    of = [a, b] if op in ("max_abs_error", "rmse", "equal") else [a]
    assert values(op, of, of) == [values(op, [x[row : row + 1] for x in of], [x[row : row + 1] for x in of])[0] for row in range(5)]


def test_float16_patterns_are_all_those_of_numpy():
    patterns = np.arange(1 << 16, dtype="<u2")
    assert np.array_equal(decode(patterns, "float16"), patterns.view("<f2").astype(np.float64), equal_nan=True)
    wide = (patterns.astype("<u4") << 16).view("<f4")
    with np.errstate(invalid="ignore"):
        assert np.array_equal(decode(patterns, "bfloat16"), wide.astype(np.float64), equal_nan=True)


def test_float8_e4m3_has_448_at_the_top_and_nan_only_at_all_ones():
    numbers = decode(np.arange(256, dtype="|u1"), "float8_e4m3")
    assert np.isnan(numbers[[0x7F, 0xFF]]).all() and np.isfinite(np.delete(numbers, [0x7F, 0xFF])).all()
    assert (numbers[0x7E], numbers[0xFE], numbers[1], numbers[0x08], numbers[0x38]) == (448.0, -448.0, 2.0**-9, 2.0**-6, 1.0)
    assert (np.diff(numbers[:0x7F]) > 0).all()
