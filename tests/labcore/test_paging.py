"""The paged pool: isolation of rows, copy-on-write, handles, fence, refusals, damage seen by check."""

import threading

import numpy as np
import pytest

from labcore.blocks import PoolBroken, PoolError
from labcore.faults.pools import PLANTED
from labcore.paging import PagedPool
from labcore.pool_model import new_pool, walk, walk_threads

KEY = bytes(range(32))


@pytest.fixture
def pool():
    pool = PagedPool(11, 3, (2,), poison=np.nan, key=KEY)
    pool.open(1, rows(1, 7))
    pool.open(2, rows(2, 5))
    pool.release(1)
    pool.open(3, rows(3, 4))  # the pool is fragmented: 3 holds the blocks that 1 gave back, in another order
    pool.share(3, 4, 4)
    return pool


def rows(tag, n):
    return tag + np.arange(2.0 * n).reshape(n, 2) / 100


def state(pool):
    tables = {name: (list(t.blocks), t.length) for name, t in pool._tables.items()}
    return tables, pool.blocks.counts.tolist(), pool.blocks.free, pool.rows.tobytes(), sorted(pool._tickets), dict(pool._index)


REFUSED = [
    ("unknown_request", lambda p: p.read(1)),
    ("unknown_request", lambda p: p.release(1)),
    ("unknown_request", lambda p: p.append(1, rows(1, 1))),
    ("unknown_request", lambda p: p.share(1, 9, 1)),
    ("taken", lambda p: p.open(2, rows(9, 1))),
    ("taken", lambda p: p.share(3, 2, 1)),
    ("taken", lambda p: p.adopt(2, [])),
    ("exhausted", lambda p: p.open(9, rows(9, 100))),
    ("exhausted", lambda p: p.append(4, rows(9, 100))),
    ("exhausted", lambda p: p.launch(4, 100)),
    ("negative", lambda p: p.share(3, 9, -1)),
    ("negative", lambda p: p.launch(3, -1)),
    ("unwritten", lambda p: p.share(3, 9, 5)),
    ("unwritten", lambda p: p.write(3, 3, rows(9, 2))),
    ("unwritten", lambda p: p.write(3, -1, rows(9, 1))),
    ("unwritten", lambda p: p.publish(3, 1, "k")),
    ("shape", lambda p: p.append(3, np.zeros((2, 3)))),
    ("unknown_block", lambda p: p.handle(3, 2)),
    ("revoked", lambda p: p.land(77, 0, [0, 0])),
    ("foreign_handle", lambda p: p.through(2, p.handle(3, 0))),
    ("foreign_handle", lambda p: p.through(2, p.handle(3, 0)._replace(request=2))),
    ("foreign_handle", lambda p: p.through(3, p.handle(3, 0)._replace(block=p.pages(2)[0]))),
]


@pytest.mark.parametrize(("kind", "call"), REFUSED)
def test_refusals_change_nothing(pool, kind, call):
    before = state(pool)
    with pytest.raises(PoolError) as refused:
        call(pool)
    assert refused.value.kind == kind
    assert "request" in str(refused.value) and "block" in str(refused.value) and "count" in str(refused.value)
    assert state(pool) == before
    pool.check()


def test_forks_are_independent_and_the_shared_block_keeps_its_bytes(pool):
    block = pool.pages(3)[-1]
    before = pool.rows[block].tobytes()
    pool.append(4, rows(40, 3))
    assert pool.rows[block].tobytes() == before
    pool.append(3, rows(30, 2))
    pool.write(4, 0, rows(41, 1))
    np.testing.assert_array_equal(pool.read(3), np.concatenate([rows(3, 4), rows(30, 2)]))
    np.testing.assert_array_equal(pool.read(4), np.concatenate([rows(41, 1), rows(3, 4)[1:], rows(40, 3)]))
    assert pool.copies == 2  # 3 was alone again when it wrote
    pool.check()


def test_freed_memory_is_poisoned_and_reads_stop_at_the_written_length(pool):
    pages = pool.pages(2)
    pool.release(2)
    assert np.isnan(pool.rows[pages]).all()
    pool.open(5, rows(5, 1))
    assert pool.read(5).shape == (1, 2)


@pytest.mark.parametrize("stop", range(4))
def test_scope_releases_on_any_exit(pool, stop):
    free = pool.blocks.free
    with pytest.raises(ZeroDivisionError), pool.acquire(6, rows(6, 2)):
        for step, call in enumerate([lambda: pool.append(6, rows(6, 2)), lambda: pool.release(6), lambda: pool.open(6), lambda: None]):
            call()
            if step == stop:
                raise ZeroDivisionError
    assert pool.blocks.free == free
    pool.check()


def test_a_handle_ends_with_its_block(pool):
    handle = pool.handle(2, 1)
    np.testing.assert_array_equal(pool.through(2, handle), rows(2, 5)[3:])
    pool.release(2)
    pool.open(2, rows(9, 5))
    with pytest.raises(PoolError, match="earlier life"):
        pool.through(2, handle)


def test_a_late_write_reaches_nobody_and_the_blocks_come_back(pool):
    """The two obvious fixes at once: freed too early (BR-29) and never (BR-30)."""
    ticket = pool.launch(2, 2, now=10)
    held = pool.pages(2)
    pool.release(2)
    free = pool.blocks.free
    pool.open(8, rows(8, 3 * free))
    assert not set(pool.pages(8)) & set(held)
    pool.land(ticket, 1, [-1, -1])
    np.testing.assert_array_equal(pool.read(8), rows(8, 3 * free))
    assert pool.expire(before=10) == 0
    assert pool.expire(before=11) == 1
    assert pool.blocks.free == len(held)
    with pytest.raises(PoolError) as refused:
        pool.land(ticket, 0, [-1, -1])
    assert refused.value.kind == "revoked"
    pool.check()


def test_a_step_in_flight_commits_its_rows(pool):
    ticket = pool.launch(3, 2)
    with pytest.raises(PoolError) as refused:
        pool.append(3, rows(9, 1))
    assert refused.value.kind == "in_flight"
    pool.land(ticket, 0, [5, 5])
    pool.land(ticket, 1, [6, 6])
    assert pool.length(3) == 4
    pool.complete(ticket)
    np.testing.assert_array_equal(pool.read(3)[4:], [[5, 5], [6, 6]])
    np.testing.assert_array_equal(pool.read(4), rows(3, 4))
    pool.check()


def test_published_pages_are_found_until_their_block_changes(pool):
    pool.publish(3, 0, "three")
    assert pool.adopt(20, ["three", "more"]) == 3
    np.testing.assert_array_equal(pool.read(20), rows(3, 3))
    for name in (3, 4, 20):
        pool.release(name)
    assert pool.adopt(21, ["three"]) == 0
    pool.check()


def test_a_holder_of_part_of_a_published_page_who_writes_the_rest_hides_it(pool):
    """Found by the random walk after 187,692 operations."""
    pool.publish(3, 0, "three")
    pool.share(3, 20, 1)
    pool.release(3)
    pool.release(4)
    pool.append(20, rows(9, 2))
    assert pool.adopt(21, ["three"]) == 0


DAMAGE = [
    lambda p: p.blocks.counts.__setitem__(p.pages(2)[0], 2),
    lambda p: p._tables[2].blocks.append(p.pages(3)[0]),
    lambda p: p._tables[2].blocks.__setitem__(0, p.pages(2)[1]),
    lambda p: p._tables.pop(2),
    lambda p: p._index.__setitem__("x", int(p.blocks._stack[0])),
    lambda p: setattr(p._tables[2], "length", 11),
    lambda p: p.blocks.take(1),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_check_sees_damage(pool, damage):
    pool.check()
    damage(pool)
    with pytest.raises(PoolBroken):
        pool.check()


def test_random_walk_of_a_hundred_thousand_operations():
    done = walk(new_pool, 100_000, seed=7)
    assert (done.operations, done.fault) == (100_000, "")
    assert done.refused > 10_000
    large = walk(new_pool, 20_000, seed=19, blocks=211, block_size=7, requests=31)
    assert (large.operations, large.fault) == (20_000, "")


def test_random_walk_of_threads():
    done = walk_threads(new_pool, 40_000, seed=41)
    assert (done.operations, done.fault) == (40_000, "")


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("seed", [7, 19, 41])
def test_the_walk_catches_every_planted_fault(planted, seed):
    found = walk(planted, 2_000, seed)
    assert found.fault
    assert found.operations < 2_000


def test_threads_that_share_one_source_keep_their_own_rows():
    pool = new_pool(211, 5)
    pool.open(0, range(13))
    wrong = []

    def work(name):
        for turn in range(150):
            with pool.acquire(1000 + name):
                pool.fork(0, name)
                pool.append(name, [name * 1000 + turn] * 4)
                if pool.read(name).tolist() != [*range(13), *[name * 1000 + turn] * 4]:
                    wrong.append((name, turn))
                pool.release(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.read(0).tolist() == list(range(13))
    pool.check()
