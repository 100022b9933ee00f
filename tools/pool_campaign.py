"""The long random walk over the paged pool: `python tools/pool_campaign.py [operations]`, 2 million by default.

Prints what was walked and exits 1 at the first fault. A sixth of the operations runs under threads; then every planted variant
is walked until it is caught, and the number of operations that took is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from labcore.faults.pools import PLANTED
from labcore.pool_model import new_pool, walk, walk_threads

SHAPES = ((29, 3, 11), (211, 7, 31), (97, 1, 23), (53, 16, 13), (13, 2, 5))  # blocks, block size, requests
SEEDS = (7, 19, 41)


def main(operations: int) -> int:
    bad = 0
    share = operations * 5 // (6 * len(SHAPES))
    for number, (blocks, size, requests) in enumerate(SHAPES):
        found = walk(new_pool, share, 1000 + number, blocks, size, requests)
        bad += bool(found.fault)
        text = found.fault or "no fault"
        print(f"{found.operations:9,} operations, {blocks} blocks of {size}, {requests} requests, {found.refused:,} refused: {text}")
    found = walk_threads(new_pool, operations - share * len(SHAPES), 2000)
    bad += bool(found.fault)
    print(f"{found.operations:9,} operations, 4 threads, {found.refused:,} refused: {found.fault or 'no fault'}")
    for planted in PLANTED:
        walks = [walk(planted, 100_000, seed) for seed in SEEDS]
        caught = all(one.fault for one in walks)
        bad += not caught
        print(f"planted {planted.__name__}: {'caught after' if caught else 'MISSED after'} {[one.operations for one in walks]} operations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 2_000_000))
