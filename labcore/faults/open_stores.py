"""Fault: a store that hands out its entries. Correct twins: copies handed out (nothing can be altered through them), and a store in
another process (`store_process`), of whose memory the caller's process has none. Control: the owner's own request.
"""

from __future__ import annotations

import gc

from labcore.network import Cache
from labcore.prefix import PrefixStore


class OpenStore(PrefixStore):
    """Hands out the caches it holds."""

    def caches(self) -> list[Cache]:
        """The caches, oldest first: the very objects."""
        return [entry.cache for entry in self._entries]


class CopyStore(PrefixStore):
    """Hands out copies."""

    def caches(self) -> list[Cache]:
        """The caches, oldest first: copies."""
        return [entry.cache.copy() for entry in self._entries]


def found_in_process() -> list[Cache]:
    """Every cache object that lives in this process, whoever holds it: what any code running here can reach."""
    return [thing for thing in gc.get_objects() if type(thing) is Cache]  # isinstance would run code of foreign objects
