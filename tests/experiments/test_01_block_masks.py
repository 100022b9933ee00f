"""01: a small run passes the audit; an attention that leaks does not."""

from labcore.faults import summed_masks, wrong_masks
from tests.experiments import small

NAME = "01_block_masks"
FEW = {
    "seeds": [7, 11, 13], "requests": [2, 5], "difference": [0, 3], "token_scale": [1.0], "batch": [1, 3],
    "condition": ["correct", "axes_swapped", "sum_as_factor"],
}  # fmt: skip


def test_small_run_is_derived_again(tmp_path):
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    for name in ("lost_document_boundaries_show", "added_masks_show", "many_requests_without_mask", "wrong_pages_show"):
        assert outcome.document["controls"][name]["holds"]


def test_a_leak_of_one_in_a_million_is_found(tmp_path, monkeypatch):
    right = wrong_masks.VARIANTS["correct"]

    def leaky(scores, owner):
        weights = right(scores, owner)
        weights[0, 0, 0, 5] += 1e-6
        return weights

    monkeypatch.setitem(wrong_masks.VARIANTS, "correct", leaky)
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert "R302" in small.rules(outcome)


def test_a_sum_read_otherwise_is_found(tmp_path, monkeypatch):
    right = summed_masks.effective
    monkeypatch.setattr(summed_masks, "effective", lambda *a: right(*a[:4], "positive" if a[4] == "equals_one" else a[4]))
    outcome = small.judged(tmp_path, small.protocol(NAME, **FEW))
    assert {"R302", "R304", "R305"} <= small.rules(outcome)
