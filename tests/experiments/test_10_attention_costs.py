"""10: a small run passes the audit; a wrong merge, a wrong tile and a wrong code do not."""

from __future__ import annotations

import pytest

import labcore.online_softmax
import labcore.quantize
from labcore.online_softmax import Part
from tests.experiments import small

NAME = "10_attention_costs"
FEW = {"seeds": [19], "length": [64], "prefix": [61], "shared_length": [64], "requests": [1, 8], "tile": [7, 300]}


@pytest.fixture
def made():
    return small.protocol(NAME, **FEW)


def test_small_run_is_derived_again(tmp_path, made):
    outcome = small.judged(tmp_path, made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    for name in ("merge_by_length", "foreign_change_is_seen_where_it_belongs"):
        assert outcome.document["controls"][name]["holds"], name
    assert outcome.document["controls"]["foreign_change_is_seen_where_it_belongs"]["values"]["others"] == 0


def test_a_merge_that_forgets_the_sums_is_found(tmp_path, made, monkeypatch):
    right = labcore.online_softmax.merge
    monkeypatch.setattr(labcore.online_softmax, "merge", lambda parts: right([Part(p.output, 0 * p.lse) for p in parts]))
    assert "R302" in small.rules(small.judged(tmp_path, made))


def test_a_tile_that_is_left_out_is_found(tmp_path, made, monkeypatch):
    right = labcore.online_softmax.tiled
    monkeypatch.setattr(labcore.online_softmax, "tiled", lambda q, k, v, tile: right(q, k[1:], v[1:], tile))
    outcome = small.judged(tmp_path, made)
    assert any(item["where"].startswith("published/tiled") for item in outcome.document["findings"])


def test_a_scale_a_little_off_is_found(tmp_path, made, monkeypatch):
    right = labcore.quantize._safe
    monkeypatch.setattr(labcore.quantize, "_safe", lambda scale: right(scale * (1 + 2**-23)))
    assert "R301" in small.rules(small.judged(tmp_path, made))
