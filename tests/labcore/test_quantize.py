"""Codes against plain loops and exact fractions; every named error."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from labcore.bits import E4M3
from labcore.quantize import BitsNotSupported, GroupDoesNotDivide, NotFinite, asymmetric, e4m3, e4m3_bits, lanes, restore, symmetric

N, D = 13, 7


def matrix(seed=3, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((N, D)).astype(dtype)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("axis", ["tensor", "token", "channel"])
def test_symmetric_codes_are_the_nearest_integers(axis, bits):
    x = matrix()
    c = symmetric(x, axis, bits)
    limit = 2 ** (bits - 1) - 1
    for lane, codes, scale in zip(lanes(x, axis), c.codes, c.scale[:, 0], strict=True):
        assert scale == np.float32(max(abs(v) for v in lane)) / np.float32(limit)
        for value, code in zip(lane, codes, strict=True):
            assert abs(Fraction(float(value)) / Fraction(float(scale)) - int(code)) <= Fraction(1, 2) + Fraction(1, 10**5)
            assert -limit <= code <= limit


@pytest.mark.parametrize(
    "axis,group", [("tensor", None), ("token", None), ("channel", None), ("token", 7), ("channel", 13), ("tensor", 13)]
)
@pytest.mark.parametrize("make", [symmetric, asymmetric])
def test_restored_matrix_is_within_half_a_step_and_in_place(make, axis, group):
    x = matrix(5)
    c = make(x, axis, 8, group)
    assert restore(c).shape == (N, D)
    assert np.abs(restore(c) - x).max() <= c.scale.max() * 0.51
    assert np.abs(restore(c) - x[::-1]).max() > c.scale.max()


def test_group_equal_to_the_axis_is_no_group():
    x = matrix(11)
    assert np.array_equal(symmetric(x, "token", 4, D).codes, symmetric(x, "token", 4).codes)


def test_a_lane_of_zeros_has_scale_one():
    x = matrix(2)
    x[4] = 0
    c = symmetric(x, "token")
    assert c.scale[4] == 1 and not c.codes[4].any()
    assert not restore(c)[4].any()


def test_asymmetric_reaches_both_ends():
    x = matrix(9)
    c = asymmetric(x, "token", 4)
    assert (c.codes.min(axis=1) == 0).all() and (c.codes.max(axis=1) == 15).all()


def test_every_e4m3_value_encodes_to_itself():
    codes = [c for c in range(256) if not np.isnan(E4M3[c])]
    assert e4m3_bits(E4M3[codes]).tolist() == codes


def test_e4m3_takes_the_nearest_and_ties_to_even():
    sizes = E4M3[:127]
    for code, (a, b) in enumerate(itertools.pairwise(sizes)):
        middle = (a + b) / 2
        assert e4m3_bits(np.array([middle])).item() == code + (code & 1)
        assert e4m3_bits(np.array([np.nextafter(middle, 0)])).item() == code
        assert e4m3_bits(np.array([np.nextafter(middle, 1e9)])).item() == code + 1
        assert e4m3_bits(np.array([-middle])).item() == 128 + code + (code & 1)


@pytest.mark.torch
def test_e4m3_agrees_with_torch():
    import torch

    x = (np.random.default_rng(17).standard_normal(997) * np.logspace(-4, 2.6, 997)).astype(np.float32)
    x = np.clip(x, -448, 448)
    theirs = torch.from_numpy(x).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(e4m3_bits(x), theirs)


def test_unit_scale_saturates():
    c = e4m3(np.array([[449.0, -1e6, 1.0]], np.float32), "token", unit=True)
    assert restore(c).tolist() == [[448.0, -448.0, 1.0]]


def test_bytes():
    x = matrix()
    assert symmetric(x, "token").code_bytes == N * D and symmetric(x, "token").scale_bytes == 4 * N
    assert symmetric(x, "tensor", 4).code_bytes == (N * D + 1) // 2
    assert asymmetric(x, "channel", 4).scale_bytes == 8 * D


def test_named_errors():
    x = matrix()
    with pytest.raises(GroupDoesNotDivide, match="got 5; wanted a divisor of 7"):
        symmetric(x, "token", 8, 5)
    with pytest.raises(BitsNotSupported, match="got 3; wanted 4 or 8"):
        symmetric(x, "token", 3)
    with pytest.raises(BitsNotSupported):
        asymmetric(x, "token", 16)
    x[2, 1] = np.inf
    with pytest.raises(NotFinite, match=r"x\[2, 1\]: got inf"):
        symmetric(x, "token")
    with pytest.raises(ValueError, match="axis: got 'head'"):
        symmetric(matrix(), "head")
    with pytest.raises(ValueError, match="got shape"):
        symmetric(np.zeros((0, 3)), "token")
