"""BR-01, BR-02, BR-04, BR-05 and fills as numbers: the faulty variant, its twin, its control."""

import numpy as np
import pytest

pytestmark = pytest.mark.torch


def half(values):
    import torch

    return torch.tensor(values, dtype=torch.float16)


def test_br01_half_minimum():
    import torch

    from labcore.faults.mask_numbers import half_minimum, zero_rows

    hidden = torch.ones(3, dtype=torch.bool)
    assert half_minimum(half([-16.0, -17.0, -20.0]), hidden).isnan().all()
    assert zero_rows(half([-16.0, -17.0, -20.0]), hidden).tolist() == [0, 0, 0]
    uniform = half_minimum(half([-15.0, -15.0, -15.0]), hidden)  # control: finite, and still no isolation
    assert uniform.isfinite().all() and uniform.double().sum() > 0.99
    partly = torch.tensor([False, True, True])
    assert (
        half_minimum(half([-16.0, -17.0, -20.0]), partly).tolist() == zero_rows(half([-16.0, -17.0, -20.0]), partly).tolist() == [1, 0, 0]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_two_lowest_numbers_overflow_and_one_does_not(dtype):
    import torch

    from labcore.faults.mask_numbers import plane

    kind = getattr(torch, dtype)
    assert plane("finfo_min", kind).isfinite() and plane("finfo_min", kind, 2).isinf()
    assert plane("minus_inf", kind, 3).isinf()


def test_fills_leak_only_beyond_their_reach():
    import torch

    from labcore.faults.mask_numbers import weights

    hidden = torch.tensor([False, True])
    for application in ("additive", "masked_fill", "where"):
        assert weights(half([0.0, 15.0]), hidden, "minus_1e4", application, 1).tolist() == [1, 0]  # control
    assert weights(half([5.75, 10000.0]), hidden, "minus_1e4", "additive", 1)[1] > 0.003
    assert weights(half([5.75, 10000.0]), hidden, "minus_1e4", "where", 1)[1] == 0
    assert weights(half([-20000.0, 0.0]), hidden, "minus_1e4", "where", 1)[1] == 1
    with pytest.raises(RuntimeError, match="without overflow"):
        weights(half([0.0, 0.0]), hidden, "minus_1e9", "masked_fill", 1)


def test_br02_nan_rows_spread():
    import torch

    from labcore.faults.hidden_nan import layer

    seen = torch.ones((5, 5), dtype=torch.bool).tril()
    seen[-1], seen[:, -1] = False, False
    for seed in range(7):
        x = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 7)))
        once = {way: layer(x, seen, way) for way in ("minus_inf", "finfo_min", "zero_row")}
        assert once["minus_inf"].isnan().any(-1).sum() == 1
        assert layer(once["minus_inf"], seen, "minus_inf").isnan().any(-1).sum() == 5
        assert torch.equal(once["zero_row"][-1], torch.zeros(7, dtype=torch.float64))
        assert not layer(once["zero_row"], seen, "zero_row").isnan().any()
        torch.testing.assert_close(once["finfo_min"][-1], x.mean(0))  # no NaN, and not zero
        torch.testing.assert_close(once["finfo_min"][:4], once["zero_row"][:4])


def test_br04_poison_in_unwritten_slots():
    import torch

    from labcore.faults.hidden_nan import read_slots

    for seed in range(7):
        rng = np.random.default_rng(seed)
        q, k, v = (torch.from_numpy(rng.normal(size=(3, n, 7))) for n in (1, 4, 4))
        written = torch.arange(4) < 3
        right = read_slots(q, k[:, :3], v[:, :3], torch.ones(3, dtype=torch.bool), "select")
        for place in ("key", "value"):
            for poison in (np.nan, 1e4):
                bad_k, bad_v = k.clone(), v.clone()
                (bad_k if place == "key" else bad_v)[:, 3] = poison
                out = {way: read_slots(q, bad_k, bad_v, written, way) for way in ("additive", "fill", "select")}
                torch.testing.assert_close(out["select"], right, atol=5e-16, rtol=1e-14)
                if poison == 1e4:  # control: finite garbage hides the fault
                    torch.testing.assert_close(out["additive"], right, atol=1e-14, rtol=1e-13)
                else:
                    assert out["additive"].isnan().all() and bool(out["fill"].isnan().all()) == (place == "value")


def test_br05_corner():
    import torch

    from labcore.faults.causal_corner import attend

    for seed in range(7):
        rng = np.random.default_rng(seed)
        q, k, v = (torch.from_numpy(rng.normal(size=(1, 3, n, 7))) for n in (2, 5, 5))
        right = attend(q, k, v, "own")
        torch.testing.assert_close(attend(q, k, v, "lower_right"), right)
        assert (attend(q, k, v, "flag") - right).abs().max() > 0.1
        assert torch.equal(attend(q[:, :, :1], k, v, "flag")[:, :, 0], v[:, :, 0])
        same = torch.from_numpy(rng.normal(size=(1, 3, 5, 7)))  # control: as many queries as keys
        torch.testing.assert_close(attend(same, k, v, "flag"), attend(same, k, v, "own"))
