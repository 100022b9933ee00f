"""The auditor's simulators against the suite's own stores on requests that no protocol holds, and one deliberate disagreement."""

import random
from pathlib import Path

from audit.derive.e08 import Shelf, every, exact, last, replay, whole
from labcore.checkpoints import CheckpointStore
from labcore.loading import load
from labcore.network import draw

EXPERIMENT = load(Path(__file__).resolve().parents[2] / "experiments/08_byte_budget/experiment.py")
WEIGHTS = draw([29])


def test_shelf_and_store():
    rng = random.Random(5)
    for keep, lengths in (("all", every), ("longest", last)):
        store, shelf = CheckpointStore(9 * 528 * 4, keep), Shelf(9 * 528 * 4, lengths, exact)
        for _ in range(211):
            ids = [*([rng.randrange(3)] * rng.randint(1, 9)), *([rng.randrange(3)] * rng.randint(1, 9))]
            scope = rng.randrange(2)
            served = store.serve(WEIGHTS, ids, f"s-{scope}")
            counts, log, _ = shelf.request(scope, ids)
            assert (served.cut, served.resident_bytes, served.copied_bytes) == (
                counts["cut"], counts["resident_bytes"], counts["explicit_copy_bytes"],
            )  # fmt: skip
            assert [event.kind for event in served.events] == [kind for kind, *_ in log]


def test_policies():
    settings = {"stream": 8, "requests": 157, "active": 5, "begin": 0.1, "system": 3, "longest": 23, "grow": [1, 4]}
    log = EXPERIMENT.conversations(settings, 3, 0.4)
    rows = [tuple(column) for column in log.T.tolist()]
    results = {}
    for policy in ("fifo", "lru", "lfu", "count_lru", "size_aware", "belady"):
        for hold in (0, 3):
            ours = EXPERIMENT.replay(settings, log, 47, policy, 7, hold)
            assert ours == replay(settings, rows, 47, policy, hold)
            results[policy, hold] = ours
    assert results["belady", 0]["hit_blocks"] > results["lru", 0]["hit_blocks"] != results["lfu", 0]["hit_blocks"]
    assert results["lru", 3]["lost_blocks"] > 0 == results["count_lru", 3]["lost_blocks"]


def test_orders():
    sizes, asked = EXPERIMENT.draw_prefixes({"stream": 1, "count": 19, "requests": 199, "doublings": 5, "skew": 0.7}, 3, 0)
    for names in (("age",), ("count", "age"), ("count", "coarse_age", "small_first", "age"), ("count", "large_first", "age")):
        ours = EXPERIMENT.serve_whole(sizes, asked, 31, names, 7, 2)
        assert ours == whole(sizes.tolist(), asked.tolist(), 31, list(names), 2)
