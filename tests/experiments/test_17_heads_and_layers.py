"""17: a small run passes the audit; a head that reads the wrong group, or a pollution that leaks, does not."""

from __future__ import annotations

import pytest

import labcore.heads
from tests.experiments import small

NAME = "17_heads_and_layers"


@pytest.fixture
def made():
    few = {"kv_heads": [4], "weights": ["trained_like"], "scope": ["block"], "size": [0.01], "state": ["noise", "foreign"]}
    return small.protocol(NAME, seeds=[19], requests=[8, 32], **few)


def test_small_run_is_derived_again(tmp_path, made):
    outcome = small.judged(tmp_path, made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]
    assert outcome.document["rederived"]["largest_difference"] == 1e-10
    assert outcome.document["controls"]["foreign_layer_is_seen_to_the_end"]["holds"]


def test_query_heads_in_another_order_are_found(tmp_path, made, monkeypatch):
    right = labcore.heads.forward

    def interleaved(stack, x, cache=None, first=0):
        done = right(stack, x, cache, first)
        return done._replace(heads=done.heads[:, ::-1])

    monkeypatch.setattr(labcore.heads, "forward", interleaved)
    outcome = small.judged(tmp_path, made)
    assert "R302" in small.rules(outcome)


def test_another_gain_is_found(tmp_path, made, monkeypatch):
    right = labcore.heads.rms
    monkeypatch.setattr(labcore.heads, "rms", lambda x: right(x) * 1.0000001)
    assert "R302" in small.rules(small.judged(tmp_path, made))
