"""Real workers and lifetimes: what a lock gives, what the right protocol keeps."""

import pytest

from labcore.faults import real_races
from labcore.faults.lifetimes import END, FAIL, OPEN, SHARE, VARIANTS

COMMANDS = [
    (OPEN, 0, 0, 3), (SHARE, 1, 0, 3), (FAIL, 2, 0, 2), (END, 0, 0, 0), (OPEN, 2, 0, 4), (SHARE, 3, 2, 4), (END, 1, 0, 0),
    (END, 2, 0, 0), (OPEN, 4, 0, 5), (END, 3, 0, 0), (END, 4, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_ends_otherwise_than_the_right_one(variant):
    life = VARIANTS[variant](13)
    for command in COMMANDS:
        life.do(*command)
    right = life.blocks.free == 13 and life.stale == 0
    assert right == (variant == "counted")


@pytest.mark.parametrize(("runner", "lock"), [("threads", "thread_lock"), ("threads", "process_lock"), ("processes", "process_lock")])
def test_a_lock_that_reaches_all_workers_loses_nothing(runner, lock):
    assert real_races.counter(runner, lock, "calls", 2_000) == 0
    assert real_races.allocator(runner, lock, "calls", 2_000) == (0, 0, 0)
    assert real_races.copies(runner, lock, "calls", 2_000) == (0, 0)
    assert real_races.rows(runner, lock, "numpy", 64, 200) == (0, 0, 0)


def test_processes_without_common_memory_are_alone():
    assert real_races.counter("processes_private", "none", "inline", 500) == 1_000


def test_a_worker_that_fails_is_an_error():
    def work(me):
        raise ZeroDivisionError

    with pytest.raises(RuntimeError, match="a worker failed"):
        real_races.together("processes", work)
