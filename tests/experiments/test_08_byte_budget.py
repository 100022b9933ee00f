"""08: a run with one seed passes the audit; wrong counts, events and totals do not; the trace is what the protocol says."""

from __future__ import annotations

import dataclasses

import numpy as np

from labcore.loading import load
from tests.experiments import small

NAME = "08_byte_budget"
FEW = {
    "seeds": [29],
    "comeback": [0.5],
    "capacity": [61],
    "trial": [0],
    "policy": ["lfu", "belady"],
    "eviction_order": ["age", "count_tick_small"],
}
COUNTS = {
    "published": "explicit_copy_bytes",
    "totals": "skips",
    "policies": "hit_blocks",
    "live": "lost_blocks",
    "orders": "recomputed_blocks",
}


def test_a_small_run_is_rederived(tmp_path):
    assert small.rules(small.judged(tmp_path, small.protocol(NAME, **FEW))) == set()


def tampered(batch):
    """One count of each block off by one; an admission written as an eviction."""
    if batch.block in COUNTS:
        name = COUNTS[batch.block]
        first, *rest = batch.counts[name]
        return dataclasses.replace(batch, counts={**batch.counts, name: [first + 1, *rest]})
    if batch.block == "events":
        kind = batch.arrays["kind"].copy()
        kind[0] = 1
        return dataclasses.replace(batch, arrays={**batch.arrays, "kind": kind})
    return batch


def test_wrong_values_are_found(tmp_path, monkeypatch):
    small.tamper(monkeypatch, tampered)
    findings = small.judged(tmp_path, small.protocol(NAME, **FEW)).document["findings"]
    for rule, name in (("R301", "events/kind"), *(("R304", name) for name in COUNTS.values())):
        assert any(item["rule"] == rule and name in item["where"] for item in findings), (rule, name)


def test_conversations_grow_and_return():
    experiment = load(small.ROOT / "experiments" / NAME / "experiment.py")
    settings = small.protocol(NAME).settings["turns"]
    for comeback in (0.0, 0.5):
        who, before, after = experiment.conversations(settings, 7, comeback)
        length: dict[int, int] = {}
        recent: list[int] = []
        returned = 0
        for name, start, end in zip(who.tolist(), before.tolist(), after.tolist(), strict=True):
            assert start == length.get(name, settings["system"]) and 1 <= end - start <= 3
            returned += name in length and name not in recent[-settings["active"] :]
            recent = [other for other in recent if other != name] + [name] * (end < settings["longest"])
            length[name] = end
        assert (returned / len(who) > 0.35) == (comeback == 0.5) and (returned == 0) == (comeback == 0.0)
        assert np.all(after <= settings["longest"] + 2)
