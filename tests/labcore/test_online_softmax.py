"""Attention in pieces against a loop with math.exp."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labcore.online_softmax import Part, dense, merge, part, shared_prefix, tiled
from labcore.quantize import NotFinite

N, D, Q = 53, 11, 5


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def by_loops(q, k, v):
    out = np.zeros((len(q), v.shape[1]))
    for i, query in enumerate(q):
        scores = [math.fsum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in k]
        top = max(scores)
        weights = [math.exp(s - top) for s in scores]
        total = math.fsum(weights)
        out[i] = [math.fsum(w * x for w, x in zip(weights, column, strict=True)) / total for column in v.T]
    return out


def test_dense_and_every_tile_size_agree_with_loops():
    q, k, v = draw(1, Q, D), draw(2, N, D), draw(3, N, D)
    want = by_loops(q, k, v)
    assert np.abs(dense(q, k, v) - want).max() < 1e-14
    for tile in (1, 7, 52, 53, 99):
        assert np.abs(tiled(q, k, v, tile) - want).max() < 1e-14, tile


def test_tiles_survive_scores_that_overflow_exp():
    q, k, v = draw(1, Q, D) * 2000, draw(2, N, D), draw(3, N, D)
    assert np.isfinite(tiled(q, k, v, 7)).all()
    assert np.abs(tiled(q, k, v, 7) - by_loops(q, k, v)).max() < 1e-12


def test_merge_of_three_parts_is_the_whole_and_the_mean_is_not():
    q, k, v = draw(4, Q, D), draw(5, N, D), draw(6, N, D)
    parts = [part(q, k[a:b], v[a:b]) for a, b in ((0, 2), (2, 30), (30, N))]
    whole = part(q, k, v)
    assert np.abs(merge(parts).output - whole.output).max() < 1e-14
    assert np.abs(merge(parts).lse - whole.lse).max() < 1e-14
    assert np.abs(np.mean([p.output for p in parts], axis=0) - whole.output).max() > 1e-2
    forgotten = [Part(p.output, np.zeros_like(p.lse)) for p in parts]
    assert np.abs(merge(forgotten).output - whole.output).max() > 1e-2


def test_shared_prefix_equals_each_request_alone_and_sees_no_other():
    heads, requests, prefix = 3, 5, 31
    q, k, v = draw(7, heads, requests, D), draw(8, heads, prefix, D), draw(9, heads, prefix, D)
    private = [(draw(20 + i, heads, 1 + 3 * i, D), draw(40 + i, heads, 1 + 3 * i, D)) for i in range(requests)]
    got = shared_prefix(q, k, v, private)
    for i, (pk, pv) in enumerate(private):
        for h in range(heads):
            alone = by_loops(q[h, i : i + 1], np.concatenate([k[h], pk[h]]), np.concatenate([v[h], pv[h]]))
            assert np.abs(got[h, i] - alone[0]).max() < 1e-14
    private[2] = (private[2][0] + 100, private[2][1] - 100)
    again = shared_prefix(q, k, v, private)
    assert np.array_equal(np.delete(again, 2, axis=1), np.delete(got, 2, axis=1))
    assert np.abs(again[:, 2] - got[:, 2]).max() > 1


def test_named_errors():
    q, k, v = draw(1, Q, D), draw(2, N, D), draw(3, N, D)
    k[3, 2] = np.nan
    with pytest.raises(NotFinite, match="k: got NaN"):
        dense(q, k, v)
    with pytest.raises(ValueError, match="got no key"):
        dense(q, k[:0], v[:0])
    with pytest.raises(ValueError, match="tile: got 0"):
        tiled(q, v, v, 0)
    with pytest.raises(ValueError, match="got 0 parts; wanted 5"):
        shared_prefix(q[None], k[None], v[None], [])
