"""A stored prefix is handed out and extended in place (BR-36). Faulty: `Shared`. Twin: `Copied`. Control: the first request."""

from __future__ import annotations

from dataclasses import dataclass

from labcore.network import Cache, Floats, Ints, Weights, advance


@dataclass
class Copied:
    """Keeps one prefix; each request continues a copy."""

    cache: Cache

    def serve(self, weights: Weights, ids: Ints) -> tuple[Floats, int]:
        """States of the request's tokens, and the length of the prefix it saw."""
        seen = self.cache.copy()
        states, _ = advance(weights, ids, seen)
        return states, seen.next_position


@dataclass
class Shared:
    """Keeps one prefix; a request's tokens stay in it."""

    cache: Cache

    def serve(self, weights: Weights, ids: Ints) -> tuple[Floats, int]:
        """The same, and the stored prefix is longer afterwards."""
        length = self.cache.next_position
        states, self.cache = advance(weights, ids, self.cache)
        return states, length
