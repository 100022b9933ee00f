"""03: the run passes the audit; one wrong rounding does not."""

import msgspec
import pytest

from tests.experiments import small

NAME = "03_fp16_overflow"
pytestmark = pytest.mark.torch


def test_run_is_derived_again_and_a_wrong_rounding_is_found(tmp_path, monkeypatch):
    import torch

    from labcore.faults import mask_numbers

    right = mask_numbers.plane

    def rounded(fill, dtype, stacked=1):
        # Three planes summed in float64 and rounded once, not in the dtype: differs in bfloat16 only.
        return right(fill, torch.float64, stacked).to(dtype) if (dtype, stacked) == (torch.bfloat16, 3) else right(fill, dtype, stacked)

    made = small.protocol(NAME, seeds=[7])
    near = made.settings["near"] | {"masked_step": 256, "visible_step": 2.0}
    made = msgspec.structs.replace(made, settings=made.settings | {"near": near})
    outcome = small.judged(tmp_path / "right", made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    assert all(control["holds"] for control in outcome.document["controls"].values())
    monkeypatch.setattr(mask_numbers, "plane", rounded)
    outcome = small.judged(tmp_path / "wrong", made)
    found = {item["where"].partition("[")[0] for item in outcome.document["findings"] if item["rule"] == "R301"}
    assert found == {"planes/plane"}
