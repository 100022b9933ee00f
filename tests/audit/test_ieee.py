"""Exact integers against the arithmetic of the machine."""

import math

import numpy as np
import pytest

from audit.derive import e03
from audit.ieee import FORMATS, weight

KINDS = {"float16": (np.float16, np.uint16), "float32": (np.float32, np.uint32), "float64": (np.float64, np.uint64)}


def patterns(name, count):
    rng = np.random.default_rng(5)
    width = FORMATS[name].width
    mixed = rng.integers(0, 2**width, count, dtype=np.uint64) if width < 64 else rng.integers(0, 2**64, count, dtype=np.uint64)
    # Neighbours in size, so that sums cancel and ties occur.
    near = rng.integers(0, 2**11, count, dtype=np.uint64) + (np.uint64(0x3C00) if width == 16 else np.uint64(1) << np.uint64(width - 3))
    return np.concatenate([mixed, near]).astype(KINDS[name][1])


@pytest.mark.parametrize("name", KINDS)
def test_sums_and_patterns(name):
    fmt, (kind, word) = FORMATS[name], KINDS[name]
    bits = patterns(name, 2000)
    a, b = bits[::2].view(kind), bits[1::2].view(kind)
    with np.errstate(all="ignore"):
        sums = (a + b).view(word)
    for x, y, total in zip(a.view(word).tolist(), b.view(word).tolist(), sums.tolist(), strict=True):
        got, want = fmt.add(fmt.decode(x), fmt.decode(y)), fmt.decode(total)
        assert got == want or (got != got and want != want)
        if want and want == want:
            assert fmt.encode(want) == total


@pytest.mark.parametrize("name", KINDS)
def test_conversion_from_binary64(name):
    fmt, (kind, word) = FORMATS[name], KINDS[name]
    rng = np.random.default_rng(7)
    values = rng.normal(size=999) * 10.0 ** rng.integers(-46, 40, 999)
    values = np.concatenate([values, [65504.0, 65519.9, 65520.0, 2.0**-25, 2.0**-24 * 1.5, -0.0, math.inf, -math.inf]])
    with np.errstate(all="ignore"):
        want = values.astype(kind).view(word)
    assert [fmt.encode(fmt.of(float(v)), bool(np.signbit(v))) for v in values] == want.tolist()


def test_bfloat16_is_the_upper_half_of_float32():
    fmt = FORMATS["bfloat16"]
    assert fmt.number(fmt.of(-1e4)) == -9984.0 and fmt.number(fmt.largest) == 3.3895313892515355e38
    for pattern in (0x0001, 0x0080, 0x3F80, 0x7F7F, 0xC61C):
        want = np.array([pattern << 16], np.uint32).view(np.float32)[0]
        assert fmt.number(fmt.decode(pattern)) == want and fmt.encode(fmt.decode(pattern)) == pattern


def test_weight_at_its_edges():
    half = FORMATS["float16"]
    edge = half.of(17.328125)  # the last below 25 ln 2
    assert weight(half, -edge, 0) > 0 and weight(half, half.minus(-edge, half.of(0.015625)), 0) == 0
    assert weight(half, 0, 0) == 0.5 and weight(half, -math.inf, 0) == 0 and weight(half, 0, -math.inf) == 1
    assert all(math.isnan(weight(half, *pair)) for pair in ((-math.inf, -math.inf), (math.inf, 0), (0, math.nan)))


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_fates_of_a_grid_are_the_fates_of_its_pairs(fmt):
    reach = e03.limit(fmt)
    edges = [0, 1, -1, reach, reach - 1, reach + 1, -reach, fmt.largest, -fmt.largest, math.inf, -math.inf, math.nan]
    rng = np.random.default_rng(11)
    for _ in range(50):
        visible, masked = ([edges[i] for i in rng.integers(0, len(edges), count)] for count in (7, 5))
        wanted = [[e03.fate(reach, second, first) for second in masked] for first in visible]
        assert e03.fates(fmt, masked, visible).tolist() == wanted
