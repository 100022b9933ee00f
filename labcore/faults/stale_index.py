"""A freed block stays findable, is taken for other content, and keeps its old index entry (BR-26).

Faulty: the pool of `labcore.faults.pools.StaleIndex`. Twin: `PagedPool`, which drops the entry with the block. Control: the first content
is looked up before the block is taken again: a valid hit where a block stays published while somebody holds it.
"""

from __future__ import annotations

from labcore.faults.pools import StaleIndex
from labcore.paging import PagedPool
from labcore.pool_model import new_pool

SIZE = 3


def scene(seed: int, pool: PagedPool, before: bool) -> dict[str, float]:
    """foreign_rows: rows of another content that a look-up of X returns; hit: whether it found something."""
    x, y = [seed * 10 + n for n in range(SIZE)], [seed * 10 + 5 + n for n in range(SIZE)]
    pool.open(1, x)
    pool.publish(1, 0, ("X", seed))
    if not before:
        pool.release(1)
        pool.open(2, y)
    got = pool.adopt(3, [("X", seed)])
    rows = pool.read(3).tolist()
    return {"foreign_rows": float(sum(row not in x for row in rows)), "hit": float(got > 0)}


def faulty(seed: int) -> dict[str, float]:
    """X, freed, Y in its block, look-up of X: Y comes back.

    >>> faulty(7)
    {'foreign_rows': 3.0, 'hit': 1.0}
    """
    return scene(seed, StaleIndex(1, SIZE), False)


def correct(seed: int) -> dict[str, float]:
    """The same steps: a miss."""
    return scene(seed, new_pool(1, SIZE), False)


def control(seed: int) -> dict[str, float]:
    """Look-up of X before the block is taken again, in the faulty pool: a right hit."""
    return scene(seed, StaleIndex(1, SIZE), True)
