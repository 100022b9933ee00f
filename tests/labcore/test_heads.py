"""The decoder with grouped heads against loops; the cache against the full pass; groups against written-out heads."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from labcore.heads import HeadsNotDivisible, Stack, draw, forward, positions, rms
from labcore.quantize import NotFinite

HEADS, WIDTH, HIDDEN, LAYERS = 6, 18, 11, 3


def stack(groups, kind="random"):
    return draw([3, groups], LAYERS, HEADS, groups, WIDTH, HIDDEN, kind)


def tokens(n, seed=1):
    return np.random.default_rng(seed).standard_normal((n, WIDTH)) + positions(n, WIDTH)


def by_loops(s: Stack, x):
    e = WIDTH // HEADS
    for layer in range(LAYERS):
        y = np.array([row / math.sqrt(sum(v * v for v in row) / WIDTH + 1e-6) for row in x])
        q, k, v = y @ s.q[layer], y @ s.k[layer], y @ s.v[layer]
        out = np.zeros_like(x)
        for h in range(HEADS):
            g = h * s.groups // HEADS
            for i in range(len(x)):
                scores = [float(q[i, h * e : (h + 1) * e] @ k[j, g * e : (g + 1) * e]) / math.sqrt(e) for j in range(i + 1)]
                weights = [math.exp(t - max(scores)) for t in scores]
                for j, w in enumerate(weights):
                    out[i, h * e : (h + 1) * e] += w / sum(weights) * v[j, g * e : (g + 1) * e]
        x = x + out @ s.o[layer]
        x = x + np.tanh(rms(x) @ s.up[layer]) @ s.down[layer]
    return x


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", ["random", "trained_like"])
def test_forward_agrees_with_loops(groups, kind):
    s, x = stack(groups, kind), tokens(7)
    assert np.abs(forward(s, x).states[-1] - by_loops(s, x)).max() < 1e-12


@pytest.mark.parametrize("groups", [2, 3])
def test_a_cached_prefix_and_a_later_start_give_the_same_states(groups):
    s, x = stack(groups), tokens(11)
    full = forward(s, x)
    cached = forward(s, x[7:], forward(s, x[:7]).cache)
    assert np.abs(cached.states - full.states[:, 7:]).max() < 1e-12
    assert np.abs(cached.cache - full.cache).max() < 1e-12
    later = forward(s, cached.states[0], forward(s, x[:7]).cache, first=1)
    assert np.array_equal(later.states, cached.states[1:])


def test_groups_are_shared_heads():
    s = stack(2)
    e = WIDTH // HEADS
    places = [slice(h * 2 // HEADS * e, (h * 2 // HEADS + 1) * e) for h in range(HEADS)]
    wide = {name: np.concatenate([getattr(s, name)[:, :, place] for place in places], axis=2) for name in "kv"}
    whole = dataclasses.replace(s, **wide, groups=HEADS)
    x = tokens(5)
    assert np.abs(forward(s, x).states - forward(whole, x).states).max() < 1e-13


def test_a_polluted_group_is_seen_by_its_heads_alone():
    s, x = stack(3), tokens(11)
    cache = forward(s, x[:7]).cache
    before = forward(s, x[7:], cache)
    bad = cache.copy()
    bad[0, :, 1, 2:4] += 1
    after = forward(s, x[7:], bad)
    change = np.abs(after.heads[0] - before.heads[0]).max(axis=(1, 2))
    assert (change[2:4] > 1e-6).all() and not change[[0, 1, 4, 5]].any()
    assert (np.abs(after.heads[1] - before.heads[1]).max(axis=(1, 2)) > 0).all()
    assert np.array_equal(cache, forward(s, x[:7]).cache)


def test_named_errors():
    with pytest.raises(HeadsNotDivisible, match="groups: got 4; wanted a divisor of the 6"):
        stack(4)
    with pytest.raises(HeadsNotDivisible, match="heads: got 5"):
        draw(1, 1, 5, 1, WIDTH, HIDDEN, "random")
    with pytest.raises(HeadsNotDivisible, match="groups: got 4"):
        dataclasses.replace(stack(2), groups=4)
    with pytest.raises(ValueError, match="kind: got 'trained'"):
        draw(1, 1, 6, 1, WIDTH, HIDDEN, "trained")
    x = tokens(3)
    x[1, 1] = np.nan
    with pytest.raises(NotFinite, match="NaN or infinity"):
        forward(stack(2), x)
