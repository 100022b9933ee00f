"""09: a run of three configurations passes the audit; a wrong decision, count or order does not; times add up."""

from __future__ import annotations

import dataclasses

import numpy as np

from labcore.sealed import Sealed
from tests.experiments import small

NAME = "09_admission"
FEW = {"seeds": [29], "budget": [12288], "trace": ["three-scopes"]}


def test_a_small_run_is_rederived_and_its_times_add_up(tmp_path):
    made = small.protocol(NAME, **FEW)
    assert small.rules(small.judged(tmp_path, made)) == set()
    sealed = Sealed(next(path for path in tmp_path.iterdir() if (path / "sealed").is_dir()))
    parts = sum(sealed.array("times", part) for part in made.settings["parts"])
    assert np.all(parts <= sealed.array("times", "total")) and np.all(parts > 0)


def tampered(batch):
    """A hit denied, bytes off by one, two configurations exchanged."""
    if batch.block == "queries":
        hit, nbytes = list(batch.decisions["hit"]), list(batch.counts["resident_bytes"])
        hit[-1] = not hit[-1]
        nbytes[-1] += 1
        return dataclasses.replace(batch, decisions={"hit": hit}, counts={**batch.counts, "resident_bytes": nbytes})
    if batch.block == "order":
        return dataclasses.replace(batch, arrays={"configuration": batch.arrays["configuration"][:, ::-1].copy()})
    return batch


def test_wrong_values_are_found(tmp_path, monkeypatch):
    small.tamper(monkeypatch, tampered)
    findings = small.judged(tmp_path, small.protocol(NAME, **FEW)).document["findings"]
    for rule, name in (("R303", "hit"), ("R304", "resident_bytes"), ("R301", "order/configuration")):
        assert any(item["rule"] == rule and name in item["where"] for item in findings), (rule, name)
