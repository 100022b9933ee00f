"""Attention: against loops, bit for bit between shared and alone, hidden poison, and its PyTorch twin."""

import math

import numpy as np
import pytest

from labcore import masks
from labcore.attention import SeesNothing, attend, entropy, mix


def drawn(seed=7, heads=3, queries=5, keys=11, dim=7):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(heads, queries, dim)), rng.normal(size=(heads, keys, dim)), rng.normal(size=(heads, keys, dim))


def test_equals_loops():
    q, k, v = drawn()
    seen = np.random.default_rng(1).random((5, 11)) < 0.6
    out, weights = attend(q, k, v, seen, scale=1.7)
    for h in range(3):
        for i in range(5):
            places = np.flatnonzero(seen[i])
            s = [1.7 * math.fsum(q[h, i] * k[h, j]) / math.sqrt(7) for j in places]
            e = [math.exp(x) for x in s]
            w = [x / math.fsum(e) for x in e]
            np.testing.assert_allclose(weights[h, i, places], w, atol=1e-15, rtol=1e-13)
            np.testing.assert_allclose(out[h, i], np.array(w) @ v[h, places], atol=1e-14)
            assert not weights[h, i, ~seen[i]].any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("before, after", [(0, 3), (2, 0), (13, 7)])
def test_shared_equals_alone_to_the_bit_whatever_stands_around(dtype, before, after):
    q, k, v = (x.astype(dtype) for x in drawn())
    alone, _ = attend(q, k, v, np.ones((5, 11), bool))
    for junk in (0.0, 1e4, np.inf, np.nan):
        pad = [(0, 0), (before, after), (0, 0)]
        shared_k, shared_v = (np.pad(x, pad, constant_values=junk) for x in (k, v))
        seen = np.pad(np.ones((5, 11), bool), [(0, 0), (before, after)])
        out, weights = attend(q, shared_k, shared_v, seen)
        assert out.dtype == dtype and out.tobytes() == alone.tobytes()
        assert not weights[..., ~seen[0]].any()


def test_a_query_that_sees_nothing_raises():
    q, k, v = drawn()
    seen = np.ones((5, 11), bool)
    seen[3] = False
    with pytest.raises(SeesNothing, match=r"axis key: query \(0, 3\) sees none of 11 keys; wanted at least 1"):
        attend(q, k, v, seen)


def test_bad_masks_are_refused():
    q, k, v = drawn()
    with pytest.raises(TypeError, match="visible: got dtype int64; wanted bool"):
        attend(q, k, v, np.ones((5, 11), int))
    with pytest.raises(ValueError, match=r"axes query, key: got \(11, 5\) in visible; wanted \(5, 11\)"):
        attend(q, k, v, np.ones((11, 5), bool))
    with pytest.raises(ValueError, match="axis width: got 6 in k; wanted 7 as in q"):
        attend(q, k[..., :6], v, np.ones((5, 11), bool))


def test_entropy_of_even_rows_is_its_ceiling():
    assert entropy(np.full((2, 7), 1 / 7)) == pytest.approx([math.log(7)] * 2, abs=1e-15)
    assert entropy(np.array([0.0, 3.0, 0.0])) == 0


def test_multiplying_first_would_spread_poison():
    weights, v = np.array([[0.5, 0.5, 0.0]]), np.array([[1.0], [3.0], [np.nan]])
    assert mix(weights, v, weights != 0).tolist() == [[2.0]]
    assert np.isnan(weights @ v).all()


@pytest.mark.torch
@pytest.mark.parametrize("name, bound", [("float64", 1e-14), ("float32", 3e-6), ("float16", 2e-2), ("bfloat16", 1e-1)])
def test_torch_twin(name, bound):
    import torch

    from labcore import attention_torch

    q, k, v = drawn(queries=2)
    seen = masks.causal([[4, 8]], np.arange(11))[0]
    want, weights = attend(q, k, v, seen)
    k[:, 9:], v[:, 9:] = np.nan, np.nan
    dtype = getattr(torch, name)
    tensors = [torch.tensor(x, dtype=dtype) for x in (q, k, v)]
    out, got = attention_torch.attend(*tensors, torch.tensor(seen))
    assert out.dtype == got.dtype == dtype
    np.testing.assert_allclose(out.double().numpy(), want, atol=bound)
    assert not got.double().numpy()[..., ~seen].any() and weights[..., seen].all()
    with pytest.raises(SeesNothing):
        attention_torch.attend(*tensors, torch.zeros((2, 11), dtype=torch.bool))
    with pytest.raises(TypeError):
        attention_torch.attend(*tensors, torch.ones((2, 11)))
