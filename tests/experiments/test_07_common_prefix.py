"""07: a run with one seed passes the audit; a wrong cut, state or decision does not."""

from __future__ import annotations

import dataclasses

from tests.experiments import small

NAME = "07_common_prefix"
FEW = {"seeds": [29]}


def test_a_small_run_is_rederived(tmp_path):
    assert small.rules(small.judged(tmp_path, small.protocol(NAME, **FEW))) == set()


def tampered(batch):
    """A cut off by one, a state by ten times its bound, a decision turned round."""
    if batch.block == "published":
        wrong = batch.arrays["wrong"].copy()
        wrong[2, 7, 3] += 1e-11
        cut = [*batch.counts["cut"][:-1], 7]
        return dataclasses.replace(batch, arrays={**batch.arrays, "wrong": wrong}, counts={**batch.counts, "cut": cut})
    if batch.block == "identities":
        return dataclasses.replace(batch, decisions={"reused": [True] * len(batch.decisions["reused"])})
    return batch


def test_wrong_values_are_found(tmp_path, monkeypatch):
    small.tamper(monkeypatch, tampered)
    findings = small.judged(tmp_path, small.protocol(NAME, **FEW)).document["findings"]
    for rule, name in (("R302", "published/wrong"), ("R304", "cut"), ("R303", "reused")):
        assert any(item["rule"] == rule and name in item["where"] for item in findings), (rule, name)
