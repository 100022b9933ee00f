"""A minimal shared cache as it is printed in an article, rebuilt from what its statements do, in names of our own.

It is meant to share prefixes and to build a block-diagonal mask. The correct twin is `labcore.paging.PagedPool`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class PrintedCache:
    """Key and value memory, free list, counts and tables; four methods.

    keys, values [blocks, heads, slots, width] are made of zeros, and no method writes or reads them.
    """

    def __init__(self, blocks: int, slots: int, heads: int = 2, width: int = 3) -> None:
        self.slots = slots
        self.keys = np.zeros((blocks, heads, slots, width), np.float16)
        self.values = np.zeros((blocks, heads, slots, width), np.float16)
        self.free_list = list(range(blocks))
        self.counts = [0] * blocks
        self.tables: dict[int, list[int]] = {}

    def allocate(self, request: int, tokens: int) -> list[int]:
        """Blocks for so many tokens, from the front of the list; the request's table is set, whatever stood there."""
        needed = (tokens + self.slots - 1) // self.slots
        if len(self.free_list) < needed:
            raise RuntimeError(f"request {request}: {needed} blocks wanted, {len(self.free_list)} free")
        table = []
        for _ in range(needed):
            block = self.free_list.pop(0)
            self.counts[block] = 1
            table.append(block)
        self.tables[request] = table
        return table

    def share_prefix(self, source: int, target: int, tokens: int) -> None:
        """Count each prefix block once more and put it into the target's table, over what stood at that place."""
        needed = (tokens + self.slots - 1) // self.slots
        theirs = self.tables[source]
        mine = self.tables[target]
        for place in range(needed):
            block = theirs[place]
            self.counts[block] += 1
            mine[place] = block

    def free(self, request: int) -> None:
        """Count the request's blocks down; those at zero join the end of the list."""
        for block in self.tables[request]:
            self.counts[block] -= 1
            if self.counts[block] == 0:
                self.free_list.append(block)
        del self.tables[request]

    def build_mask(self, request: int, queries: int) -> NDArray[np.bool_]:
        """[queries, pages * slots]: true wherever the request's table has a page, so everywhere."""
        table = self.tables[request]
        mask = np.zeros((queries, len(table) * self.slots), bool)
        for page in range(len(table)):
            mask[:, page * self.slots : (page + 1) * self.slots] = True
        return mask
