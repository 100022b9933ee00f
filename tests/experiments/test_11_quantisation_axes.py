"""11: a small run passes the audit; codes that are not what they should be do not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import labcore.quantize
from tests.experiments import small

NAME = "11_quantisation_axes"
FEW = {
    "seeds": [7], "length": [64], "scheme": ["hybrid_g64", "hybrid_first", "token"], "growth_length": [64, 256], "sharpness": [4.0],
    "outlier": ["key_channel", "first_token"], "code": ["int8", "int4_asymmetric"],
}  # fmt: skip


def test_small_run_is_derived_again(tmp_path):
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    assert outcome.document["rederived"]["largest_difference"] == 1e-10
    assert outcome.document["controls"]["unit_scale_saturates"]["holds"]


def one_code_off(made):
    codes = made.codes.copy()
    codes[0, 0] ^= 1
    return dataclasses.replace(made, codes=codes)


@pytest.mark.parametrize("coder,block", [("symmetric", "published"), ("asymmetric", "wide"), ("e4m3", "fp8")])
def test_one_code_off_is_found(tmp_path, monkeypatch, coder, block):
    right = getattr(labcore.quantize, coder)
    monkeypatch.setattr(labcore.quantize, coder, lambda *a, **k: one_code_off(right(*a, **k)))
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert "R301" in small.rules(outcome)
    assert any(item["where"].startswith(f"{block}/held_sha256") for item in outcome.document["findings"])


def test_published_inputs_are_drawn_as_the_record_says():
    from labcore.loading import load

    made = load(small.ROOT / "experiments" / NAME / "experiment.py")
    q, k, v = made.draw(19, 256, 8, 32)
    rng = np.random.default_rng(190256)
    for x, shape in ((q, (8, 32)), (k, (256, 32)), (v, (256, 32))):
        assert np.array_equal(x, rng.normal(size=shape).astype(np.float32))
