"""06: the published figures, the decisions, and the batched store against the store object."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from labcore import metrics, network
from labcore.loading import load
from labcore.prefix import PrefixStore
from tests.experiments import small

NAME = "06_stale_prefix"
PUBLISHED = {
    "edited-prefix": [0.088204, 0.060447, 0.058312],
    "different-weights": [0.021804, 0.012761, 0.009166],
    "different-window": [0.127578, 0.069393, 0.040604],
}
REUSABLE = {"same-prefix", "new-suffix"}


@pytest.fixture(scope="module")
def experiment():
    return load(small.ROOT / "experiments" / NAME / "experiment.py")


@pytest.fixture(scope="module")
def made():
    return small.protocol(NAME)


@pytest.fixture(scope="module")
def batches(experiment, made):
    return {batch.block: batch for batch in experiment.batches(made)}


def table(made, batch):
    """Rows as the results have them: factors, decisions, counts, metrics."""
    columns = {**batch.decisions, **batch.counts, **metrics.compute(made.blocks[batch.block], batch.arrays)}
    return [row | {name: values[i] for name, values in columns.items()} for i, row in enumerate(made.rows(batch.block))]


def test_the_published_errors_to_the_printed_digits(made, batches):
    rows = table(made, batches["published"])
    for condition, errors in PUBLISHED.items():
        got = [row["unchecked_error"] for row in rows if row["condition"] == condition]
        assert np.abs(np.array(got) - errors).max() <= 5.1e-7
    for row in rows:
        assert row["condition"] in PUBLISHED or row["unchecked_error"] <= 1e-12
        assert row["guarded_error"] <= 1e-12


def test_eighteen_decisions_and_counts(made, batches):
    rows = table(made, batches["published"])
    assert len(rows) == 18
    for row in rows:
        assert row["reused"] == (row["condition"] in REUSABLE)
        assert row["projected_rows"] == (24 if row["reused"] else 72)


def test_batched_decisions_equal_the_store_object(experiment, made, batches):
    inputs, known = batches["published"].arrays, experiment.cases(made.settings)
    for i, row in enumerate(made.rows("published")):
        weights = network.draw([row["seed"]])
        store = PrefixStore()
        store.remember("reader-a", weights, made.settings["prefix"])
        case = known[row["condition"]]
        weights.qkv[0, 0, 1, 0, 0] += inputs["weight_change"][i]
        window = int(inputs["window"][i]) or None
        got = store.resume(made.settings["scopes"][inputs["scope"][i]], weights, inputs["prefix"][i], inputs["suffix"][i], window)
        assert got.reused == batches["published"].decisions["reused"][i]
        assert got.projected_rows == batches["published"].counts["projected_rows"][i]
        assert np.abs(got.states - inputs["guarded"][i]).max() <= 1e-13
        assert got.states.tobytes() == inputs["guarded"][i].tobytes()
        assert case.prefix.tolist() == inputs["prefix"][i].tolist()


def test_chunks_of_seeds_change_nothing(experiment, made, monkeypatch):
    many = msgspec.structs.replace(made, seeds=list(range(100, 111)))
    whole = [batch for batch in experiment.published(many) if batch.block == "published"]
    monkeypatch.setattr(experiment, "CHUNK", 3)
    parts = [batch for batch in experiment.published(many) if batch.block == "published"]
    assert (len(whole), len(parts)) == (1, 4)
    for name in whole[0].arrays:
        assert whole[0].arrays[name].tobytes() == b"".join(part.arrays[name].tobytes() for part in parts)


def test_a_foreign_network_changes_nothing(experiment, made):
    """Other seeds beside a seed: exactly the same states."""
    alone = next(b for b in experiment.published(msgspec.structs.replace(made, seeds=[19])) if b.block == "published")
    beside = next(b for b in experiment.published(msgspec.structs.replace(made, seeds=[5, 19, 6])) if b.block == "published")
    for name in ("fresh", "unchecked", "guarded"):
        assert alone.arrays[name].tobytes() == beside.arrays[name][6:12].tobytes()


def test_components_of_the_key(made, batches):
    error = {(r["network"], r["probe"]): r["unchecked_error"] for r in table(made, batches["probes"])}
    own = {
        "prefix": "edited-prefix",
        "weights": "different-weights",
        "window": "different-window",
        "implementation": "different-implementation",
    }
    for row in table(made, batches["dropped"]):
        if row["component"] == "nothing":
            assert row["reused"] == (row["probe"] in REUSABLE)
        if own.get(row["component"]) == row["probe"]:
            assert row["reused"]
            assert error[row["network"], row["probe"]] > 1e-6


def test_probes_agree_with_the_published_block(batches):
    """Two implementations of the network, the same six requests."""
    for name in ("fresh", "unchecked"):
        ours = batches["probes"].arrays[name].reshape(3, 14, 4, 16)[:, :6]
        assert np.abs(ours.reshape(18, 4, 16) - batches["published"].arrays[name]).max() <= 1e-13


def test_refusals(made, batches):
    for row in table(made, batches["refusals"]):
        valid = row["id_kind"] in {"int", "numpy-int8", "numpy-uint64"}
        assert row["refused"] != valid
        assert row["clear"] == row["refused"]
    shared = {row["id_kind"] for row in table(made, batches["refusals"]) if row["naive_same_key"]}
    assert {"float", "bool", "text"} <= shared


def test_aliased_entries_show_and_copies_do_not(made, batches):
    for row in table(made, batches["twice"]):
        assert row["between_equal"] == row["after_equal"] == 1
        assert row["second_error"] == row["second_change"] == 0.0
        assert min(row["aliased_error"], row["aliased_change"]) > 1e-3


def test_boundary(made, batches):
    done = {(r["holder"], r["route"], r["act"]): r["succeeds"] for r in table(made, batches["boundary"])}
    assert all(done["object", route, act] for route in ("interface", "introspection") for act in ("read", "alter"))
    assert (done["copies", "interface", "read"], done["copies", "interface", "alter"]) == (True, False)
    assert not any(done["process", route, act] for route in ("interface", "introspection") for act in ("read", "alter"))


def test_insertions_and_trace(made, batches):
    assert not any(batches["insertions"].decisions["changed"])
    rows = table(made, batches["trace"])
    assert all(row["as_fifo"] and row["compared"] == row["newest_first"] for row in rows)
    assert not all(row["as_lru"] for row in rows)


def test_a_store_that_takes_what_it_is_given_would_be_seen(experiment):
    """The insertion test itself: an attempt that reaches the entry counts as changed."""
    store = experiment.OpenStore()
    weights = network.draw([7])
    store.remember("reader-a", weights, [1, 2])
    before = store.digests()
    store.caches()[0].k.fill(0.0)
    assert store.digests() != before
