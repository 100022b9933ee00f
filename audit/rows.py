"""Which rows are re-derived: all, or the sample that the sealed manifest itself draws (FORMAT 8)."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence

from audit.schema import Protocol


def chosen(plan: Protocol, manifest: str) -> dict[str, Sequence[int]]:
    """Block -> ascending row numbers; `manifest` is the SHA-256 of manifest.json in hex."""
    wanted = plan.document["rederive"]
    return {name: sample(plan.count(name), wanted, manifest, name) for name in plan.blocks}


def sample(count: int, wanted: int | str, manifest: str, block: str) -> Sequence[int]:
    """The rows of one block.

    >>> sample(3, "all", "00", "block")
    range(0, 3)
    >>> len(sample(1000, 5, "00", "block"))
    5
    """
    if isinstance(wanted, str) or wanted >= count:
        return range(count)
    head = hashlib.sha256(f"{manifest} {block} ".encode("ascii"))

    def rank(row: int) -> bytes:
        copy = head.copy()
        copy.update(b"%d" % row)
        return copy.digest()

    return sorted(heapq.nsmallest(wanted, range(count), key=rank))
