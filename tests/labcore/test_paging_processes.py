"""Counted blocks in shared memory: several processes, and one that is killed."""

import multiprocessing
import os
import pickle
import signal

import numpy as np
import pytest

from labcore.blocks import Blocks, PoolError
from labcore.paging_processes import SharedBlocks, TimedLock

FORK = multiprocessing.get_context("fork")


def churn(pool, seat, out):
    pool.sit(seat)
    rng = np.random.default_rng(seat)
    held, twice = [], 0
    for _ in range(300):
        ids = pool.take(int(rng.integers(1, 5)))
        twice += int((pool.counts[ids] != 1).sum())
        pool.share(ids)
        pool.release(ids)
        held.append(ids)
        if len(held) > 3:
            pool.release(held.pop(0))
    for ids in held:
        pool.release(ids)
    out.put(twice)


def hold_and_die(pool, ready):
    pool.sit(1).take(3)
    pool.share([0, 0, 1])
    ready.set()
    os.kill(os.getpid(), signal.SIGKILL)


def test_processes_lose_nothing_and_own_nothing_twice():
    with SharedBlocks(101, seats=4, context=FORK) as pool:
        out = FORK.SimpleQueue()
        workers = [FORK.Process(target=churn, args=(pool, seat, out)) for seat in range(1, 4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        assert sum(out.get() for _ in workers) == 0
        pool.check()
        assert pool.free == 101


def test_blocks_of_a_killed_process_come_back():
    with SharedBlocks(11, seats=2, context=FORK) as pool:
        ready = FORK.Event()
        worker = FORK.Process(target=hold_and_die, args=(pool, ready))
        worker.start()
        worker.join(60)
        assert ready.is_set() and worker.exitcode == -signal.SIGKILL
        assert pool.free == 8
        pool.check()
        assert pool.reclaim(1) == 6
        assert pool.free == 11
        pool.check()


def test_a_seat_gives_back_only_its_own():
    with SharedBlocks(7, seats=2) as pool:
        ids = pool.sit(0).take(2)
        with pytest.raises(PoolError) as refused:
            pool.sit(1).release(ids)
        assert refused.value.kind == "double_free"
        pool.check()
        with pytest.raises(PoolError):
            pool.sit(2)
        pool.sit(0).release(ids)


def test_a_lock_that_is_never_released_is_an_error_and_not_a_hang():
    lock = TimedLock(FORK, 0.05)
    other = FORK.Process(target=lock._lock.acquire)
    other.start()
    other.join(60)
    with pytest.raises(PoolError) as refused, lock:
        pass
    assert refused.value.kind == "timeout"


def test_bad_sizes():
    for total, seats in ((0, 1), (1, 0)):
        with pytest.raises(PoolError):
            SharedBlocks(total, seats)
    with pytest.raises(PoolError):
        Blocks(0)


def test_state_is_a_name_and_not_a_copy():
    with SharedBlocks(5, seats=1) as pool:
        assert set(pool.__getstate__()) == {"name", "total", "seats", "lock", "seat"}
        assert pickle.dumps(pool._memory.name)
