"""Counts and free stack: all or nothing, errors that name the case, cost that does not grow with the pool."""

import pickle
import time

import numpy as np
import pytest

from labcore.blocks import Blocks, PoolBroken, PoolError


def snapshot(blocks):
    return blocks.free, blocks.counts.tolist(), blocks._stack[: blocks.free].tolist(), blocks.generation.tolist()


@pytest.mark.parametrize(
    ("kind", "call", "names"),
    [
        ("exhausted", lambda b: b.take(8, request=5), (5, -1, 8)),
        ("negative", lambda b: b.take(-3, request=5), (5, -1, -3)),
        ("double_free", lambda b: b.release([0, 1, 1], request=5), (5, 1, 1)),
        ("double_free", lambda b: b.release([6], request=5), (5, 6, 0)),
        ("released", lambda b: b.share([0, 6], request=5), (5, 6, 0)),
        ("unknown_block", lambda b: b.share([0, 7], request=5), (5, 7, -1)),
        ("unknown_block", lambda b: b.release([0, -1], request=5), (5, -1, -1)),
        ("unknown_block", lambda b: b.release([0.5], request=5), (5, -1, -1)),
    ],
)
def test_refusal_names_the_case_and_changes_nothing(kind, call, names):
    blocks = Blocks(7)
    assert blocks.take(3).tolist() == [0, 1, 2]
    before = snapshot(blocks)
    with pytest.raises(PoolError) as refused:
        call(blocks)
    error = refused.value
    assert (error.kind, error.request, error.block, error.count) == (kind, *names)
    assert f"request {names[0]}, block {names[1]}, count {names[2]}" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert snapshot(blocks) == before


def test_an_id_that_stands_twice_counts_twice_and_is_freed_once():
    blocks = Blocks(5)
    ids = blocks.take(2)
    blocks.share([0, 0, 1])
    assert blocks.counts.tolist() == [3, 2, 0, 0, 0]
    assert sorted(blocks.release([0, 1, 0, 1, 0])) == ids.tolist()
    assert blocks.free == 5
    blocks.check(np.zeros(5, np.int64))


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b._top.__setitem__(0, 9),
        lambda b: b._stack.__setitem__(0, b._stack[1]),
        lambda b: b.counts.__setitem__(0, -1),
        lambda b: b.counts.__setitem__(0, 0),
        lambda b: b.counts.__setitem__(0, 2),
    ],
)
def test_check_sees_damage(damage):
    blocks = Blocks(5)
    blocks.take(2)
    blocks.check([1, 1, 0, 0, 0])
    damage(blocks)
    with pytest.raises(PoolBroken):
        blocks.check([1, 1, 0, 0, 0])


def seconds(total, batch=64, rounds=600):
    blocks = Blocks(total)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(rounds):
            ids = blocks.take(batch)
            blocks.share(ids)
            blocks.release(ids)
            blocks.release(ids)
        best = min(best, time.perf_counter() - start)
    return best / (4 * batch * rounds)


def test_a_million_block_operations_a_second_and_no_dearer_in_a_large_pool():
    small, large = seconds(1_000), seconds(1_000_000)
    assert large < 1e-6
    assert large < 3 * small
