"""BR-31 and BR-34: over 200 seeds the check fires on the faulty variant, and on neither the correct one nor the control."""

import pytest

from labcore.faults import outlier_scales, split_sums

SEEDS = range(200)


def test_br_31_a_range_per_token_loses_what_a_large_channel_leaves():
    faulty = [outlier_scales.faulty(seed)["error"] for seed in SEEDS]
    quiet = [outlier_scales.correct(seed)["error"] for seed in SEEDS] + [outlier_scales.control(seed)["error"] for seed in SEEDS]
    assert min(faulty) > 0.3 and max(quiet) < 0.15


def test_br_31_a_large_first_token_spoils_the_ranges_of_all():
    pairs = [(outlier_scales.faulty_first(seed)["error"], outlier_scales.correct_first(seed)["error"]) for seed in SEEDS]
    assert all(with_rest > 2.5 * apart for with_rest, apart in pairs)


@pytest.mark.parametrize("dtype,ceiling", [("float32", 3e-7), ("float16", 2.2e-3)])
def test_br_34_other_splits_differ_and_the_same_do_not(dtype, ceiling):
    for seed in SEEDS:
        drift = split_sums.faulty(seed, dtype)
        assert drift["differing"] >= 30 and 0 < drift["largest"] <= ceiling
        assert split_sums.correct(seed, dtype) == split_sums.control(seed, dtype) == {"differing": 0.0, "largest": 0.0}
        assert split_sums.contaminated(seed, dtype)["differing"] >= 50
    worst = min(split_sums.contaminated(seed, "float32")["largest"] for seed in SEEDS)
    assert worst > 1e-3
