"""Adapters for plain functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from labcore.battery.interfaces import AttentionClaims, CacheClaims, Floats, Request, Started, View


class Function:
    """`function(q, k, v, allowed)` as an Attention."""

    def __init__(self, function: Callable[[Floats, Floats, Floats, Floats], Floats], claims: AttentionClaims | None = None) -> None:
        self.function, self.claims = function, claims or AttentionClaims()

    def attend(self, q: Floats, k: Floats, v: Floats, view: View) -> Floats:
        """The function on the whole mask."""
        return self.function(q, k, v, view.allowed)


class Uncached:
    """`outputs(tokens)` as a RequestCache without a cache: every output from all tokens. A specification to compare with."""

    def __init__(self, outputs: Callable[[tuple[int, ...]], Floats], claims: CacheClaims | None = None) -> None:
        self.outputs, self.claims = outputs, claims or CacheClaims()
        self.running: list[tuple[int, ...]] = []

    def start(self, requests: Sequence[Request]) -> Sequence[Started]:
        """Admit requests."""
        self.running += [request.tokens for request in requests]
        first = len(self.running) - len(requests)
        return [Started(first + index, self.outputs(request.tokens)) for index, request in enumerate(requests)]

    def step(self, feeds: Mapping[Hashable, Sequence[int]]) -> Mapping[Hashable, Floats]:
        """Feed tokens."""
        for handle, tokens in feeds.items():
            self.running[int(str(handle))] += tuple(tokens)
        return {handle: self.outputs(self.running[int(str(handle))]) for handle in feeds}
