"""Pool operations a second in one thread, by number of blocks and size of the batch, and the explorer's pace."""

from __future__ import annotations

import time

from labcore.blocks import Blocks
from labcore.faults.races import SCENARIOS
from labcore.interleave import explore
from labcore.paging import PagedPool


def measure(quick: bool) -> list[tuple[str, str]]:
    """(what, value with unit) lines; `quick` for a look of about a second."""
    lines = []
    goal = 100_000 if quick else 2_000_000
    for batch in (1, 16, 256):
        for total in (1_000, 1_000_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
            rate = _rate(total, batch, goal // 20 if batch == 1 else goal)
            lines.append((f"take, share, free: {total:,} blocks, batches of {batch}", f"{rate / 1e6:.2f} million block operations/s"))
    pool = PagedPool(1_000, 16)
    rounds = 300 if quick else 5_000
    start = time.perf_counter()
    for name in range(rounds):
        pool.open(name, [0.0] * 100)
        pool.fork(name, -1 - name)
        pool.append(-1 - name, [1.0])
        pool.release(name)
        pool.release(-1 - name)
    lines.append(
        ("request of 100 tokens opened, forked, appended to, both released", f"{(time.perf_counter() - start) / rounds * 1e6:.0f} us")
    )
    scenario = SCENARIOS["copy_unlocked"]
    start = time.perf_counter()
    found = explore(scenario.build, scenario.judge)
    took = time.perf_counter() - start
    lines.append(("two writers and a reader on one shared block", f"{found.orders:,} interleavings, all of them, in {took:.2f} s"))
    return lines


def _rate(total: int, batch: int, operations: int) -> float:
    blocks = Blocks(total)
    rounds = max(1, operations // (4 * batch))
    start = time.perf_counter()
    for _ in range(rounds):
        ids = blocks.take(batch)
        blocks.share(ids)
        blocks.release(ids)
        blocks.release(ids)
    return 4 * rounds * batch / (time.perf_counter() - start)


if __name__ == "__main__":
    for what, value in measure(quick=False):
        print(f"{what}: {value}")
