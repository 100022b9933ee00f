"""The auditor's codes against its own exact fractions; and against the writer's code, which it does not know."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from audit.codes import double, e4m3, half_even, hold, single
from labcore import quantize

N, D = 26, 14


def matrix(seed):
    return np.random.default_rng(seed).standard_normal((N, D)).astype(np.float32)


def test_half_even():
    x = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999999999999994, 3.0, -3.2]
    assert half_even(np.array(x)).tolist() == [float(round(Fraction(v))) for v in x]


def test_e4m3_lists_every_value_once():
    sizes = sorted(m * 2.0**-9 for m in range(8)) + [(8 + m) * 2.0 ** (e - 3) for e in range(-6, 9) for m in range(8)]
    sizes = sizes[:-1]  # the last pattern is NaN
    codes, values = e4m3(np.array(sizes))
    assert codes.tolist() == list(range(127)) and values.tolist() == sizes
    assert e4m3(np.array([1e9, -460.0, 432.0]))[1].tolist() == [448.0, -448.0, 448.0]


@pytest.mark.parametrize("axis,group", [("tensor", 0), ("token", 0), ("channel", 0), ("token", 7), ("channel", 13)])
@pytest.mark.parametrize("code", ["int8", "int4", "int8_asymmetric", "int4_asymmetric", "fp8", "fp8_unit"])
def test_two_programs_agree_to_the_bit(code, axis, group):
    x = matrix(23) * 3
    mine = hold(x, axis, code, group)
    if code.startswith("fp8"):
        theirs = quantize.e4m3(x, axis, group or None, code == "fp8_unit")
    else:
        make = quantize.asymmetric if code.endswith("asymmetric") else quantize.symmetric
        theirs = make(x, axis, int(code[3]), group or None)
    assert np.array_equal(mine.codes, theirs.codes)
    assert np.array_equal(single(mine.restored).astype(np.float32), quantize.restore(theirs))
    assert mine.scale_bytes() == theirs.scale_bytes


def test_float64_stays_float64():
    x = np.random.default_rng(5).standard_normal((N, D))
    mine = hold(x, "token", "int8", 0, double, double)
    theirs = quantize.symmetric(x, "token")
    assert np.array_equal(mine.codes, theirs.codes) and np.array_equal(mine.restored, quantize.restore(theirs, np.float64))
