"""The bench of prefix indexes: it refuses an index that lost something, and names a peer that is not there."""

import pytest

from bench import prefixes


def test_a_lost_sequence_is_not_timed():
    sequences = prefixes.branching_tree(64, 2)
    assert len(sequences) == 4 and len({tuple(ids) for ids in sequences}) == 4
    index = prefixes.build("radix", 1, sequences)
    assert prefixes.pace(lambda ids: index.longest("owner", ids), sequences, True) > 0
    index.discard("owner", sequences[0])
    with pytest.raises(AssertionError, match="found 42 of 64"):
        prefixes.pace(lambda ids: index.longest("owner", ids), sequences, True)


def test_absent_peers_are_named(monkeypatch):
    def absent(sequences):
        raise ImportError("no such engine")

    monkeypatch.setattr(prefixes, "sglang_radix", absent)
    monkeypatch.setattr(prefixes, "vllm_blocks", absent)
    assert [value.split(":")[0] for _, value in prefixes.peers(True)] == ["skipped", "skipped"]
