"""The late mask and finite fills beside the right order."""

import numpy as np
import pytest

from labcore.faults.late_masks import VARIANTS, printed, repaired

SEEN = np.array([[True, False, False, False], [True, True, False, False]])


def scores(seed):
    return np.random.default_rng(seed).normal(size=(3, 2, 4))


@pytest.mark.parametrize("name", VARIANTS)
def test_control_nothing_hidden(name):
    everything = np.ones((2, 4), bool)
    np.testing.assert_allclose(VARIANTS[name](scores(5), everything), VARIANTS["before"](scores(5), everything), atol=1e-15)


def test_each_fault_shows_on_every_seed():
    for seed in range(11):
        s = scores(seed)
        right = VARIANTS["before"](s, SEEN)
        assert VARIANTS["after"](s, SEEN).sum(-1).max() < 0.95
        assert not VARIANTS["after"](s, SEEN)[..., ~SEEN].any()
        for name in ("add_small", "replace_small"):
            assert (VARIANTS[name](s, SEEN)[..., ~SEEN] > 1e-8).all()
        np.testing.assert_allclose(VARIANTS["after_renormalised"](s, SEEN), right, atol=1e-15)
        assert VARIANTS["add_large"](s, SEEN).tobytes() == right.tobytes()


def test_large_fill_is_no_proof():
    s = scores(3)
    s[..., 0] = -20000.0
    assert VARIANTS["add_large"](s, SEEN)[:, 0, 1:].sum() > 2.99
    assert not VARIANTS["before"](s, SEEN)[:, 0, 1:].any()


def test_snippet_and_repair():
    rng = np.random.default_rng(11)
    q, (k_a, k_b, v_a, v_b) = rng.normal(size=(2, 3, 7)), rng.normal(size=(4, 1, 3, 7))
    twice = [np.repeat(x, 2, 0) for x in (k_a, k_b, v_a, v_b)]
    _, got, joined = printed(q, *twice)
    assert joined.shape == (2, 6, 7) and (got[0, :, 3:] == 0).all() and (got[0, 0, :3] > 0).all() and got.sum(-1).max() < 1
    out, right, joined = repaired(q, k_a, k_b, v_a, v_b)
    assert joined.shape == (1, 6, 7) and right[0, 0].tolist() == [1, 0, 0, 0, 0, 0]
    assert np.array_equal(out[0, 0], v_a[0, 0])
    with pytest.raises(ValueError):
        printed(q, k_a[0], k_b[0], v_a[0], v_b[0])
