"""13: a run with one seed passes the audit, a wrong count or state does not; the auditor's BPE is the library's; faults and twins."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from audit.derive import e13
from labcore.faults import content_keys, loose_matching, radix_races, stale_entry, timing_channel, trimming
from labcore.interleave import explore
from labcore.loading import load
from labcore.matchers import BlockHash, make
from labcore.network import draw
from tests.experiments import small

NAME = "13_prefix_matching"
FEW = {
    "seeds": [7],
    "variant": ["zero_width_joiner"],
    "length": [50],
    "fixed_tokens": [64],
    "prefix_tokens": [16, 1024],
    "distance": [0, 2],
}


@pytest.fixture(scope="module")
def experiment():
    return load(small.ROOT / "experiments" / NAME / "experiment.py")


def test_a_small_run_is_rederived(tmp_path):
    assert small.rules(small.judged(tmp_path, small.protocol(NAME, **FEW))) == set()


COUNTS = {"invisible": "abnormal_reused", "races": "lost", "chat": "reused_tokens", "structures": "entries", "channel": "probes"}


def tampered(batch):
    """One count of five blocks off by one, a state of another by ten times the bound."""
    if batch.block in COUNTS:
        name = COUNTS[batch.block]
        first, *rest = batch.counts[name]
        return dataclasses.replace(batch, counts={**batch.counts, name: [first + 1, *rest]})
    if batch.block == "mechanism":
        later = batch.arrays["later"].copy()
        later[-1, -1] += 1e-11
        return dataclasses.replace(batch, arrays={**batch.arrays, "later": later})
    return batch


def test_wrong_counts_and_states_are_found(tmp_path, monkeypatch):
    small.tamper(monkeypatch, tampered)
    findings = small.judged(tmp_path, small.protocol(NAME, **FEW)).document["findings"]
    found = {(item["rule"], name) for item in findings for name in (*COUNTS.values(), "later") if name in item["where"]}
    assert found >= {("R304", name) for name in COUNTS.values()} | {("R302", "later")}


def test_the_auditors_bpe_is_the_librarys(experiment):
    made = small.protocol(NAME)
    texts = experiment.Texts(made, draw([7]))
    tables = texts.vocabulary().arrays

    class Study:
        settings, seeds = made.settings, [7]

        @staticmethod
        def read(block, name):
            return tables[name]

    mine = e13.Texts(Study)
    for text in ("Where is the second page?", "a  b\n\u200dTHE  \u0430cache kept kept", "\u4f60\u597d", " "):
        for name in "ab":
            assert mine.ids(text, name) == texts.ids(text, name)
    assert mine.text(mine.ids("the shared prefix, again")) == "the shared prefix, again"


def test_training_is_the_same_twice(experiment):
    settings = small.protocol(NAME).settings
    first, second = (experiment.train(settings, settings["tokenizers"]["a"]).to_str() for _ in range(2))
    assert first == second


def test_published_fault_numbers():
    assert [trimming.relative_crop(3, a) for a in (0, -5, -2)] == [3, 1, 1]
    assert [trimming.crop(3, a) for a in (0, -5, -2)] == [0, 0, 1]
    assert trimming.ring_prefix(4, 6, 2) == [4, 5] and trimming.ring_tokens(4, 6, 2) == [] and trimming.ring_tokens(4, 3, 2) == [0, 1]
    keys = [content_keys.short_image(i) for i in range(165)]
    assert keys[104] == keys[164] and len(set(keys[:164])) == 164
    assert len({content_keys.wide_image(i) for i in range(1000)}) == 1000
    for pair, (a, b) in content_keys.array_pairs().items():
        assert content_keys.raw_bytes(a) == content_keys.raw_bytes(b)
        assert (content_keys.with_header(a) == content_keys.with_header(b)) == (pair == "same")
    for kind, read in ((stale_entry.Kept, 2), (stale_entry.Dropped, None)):
        block = kind()
        block.fill(1)
        assert block.look_up(1) == 1
        block.fill(2)
        assert block.look_up(1) == read


def test_a_secret_is_found_in_few_probes_unless_salted():
    index = BlockHash(1)
    index.add("all", [9, 8, 7, 6, 5, 4])
    found, probes = timing_channel.probe(index, "all", 6, 1, 10)
    assert found == [9, 8, 7, 6, 5, 4] and probes <= 60
    assert timing_channel.probe(index, "stranger", 6, 1, 10) == ([], 10)


@pytest.mark.parametrize("pair", radix_races.PAIRS)
def test_races_need_the_lock(pair):
    def bad(locked):
        seen = explore(lambda: radix_races.build(pair, locked), lambda tree: radix_races.judge(pair, tree))
        return sum(n for verdict, n in seen.outcomes.items() if any(verdict)), seen.outcomes[False, False]

    assert bad(False)[0] > 0 < bad(False)[1]
    assert bad(True)[0] == 0 < bad(True)[1]


def test_planted_faults_differ_and_the_twin_is_an_index():
    rng = np.random.default_rng(3)
    stored = [("a", rng.integers(0, 5, 19).tolist()) for _ in range(11)]
    index = make("radix")
    for scope, ids in stored:
        index.add(scope, ids)
    for _, ids in stored:
        query = [*ids[: int(rng.integers(1, 19))], *rng.integers(0, 5, 7).tolist()]
        assert loose_matching.answer("none", stored, ("a", query)) == index.longest("a", query)
    assert loose_matching.edit_distance([1, 2, 3, 4, 5], [2, 3, 9, 5, 5]) == e13.distance([1, 2, 3, 4, 5], [2, 3, 9, 5, 5]) == 3
    with pytest.raises(ValueError, match="'other'"):
        loose_matching.answer("other", stored, ("a", [1]))
