"""A scope that its holder can prove: handles with a tag that only the authority can make, and a store that takes no other scope.

A handle is a bearer's token: whoever copies it is its holder. Faulty twin: `prefix.PrefixStore` alone, whose scope is any text that the
caller says. Control: the owner's own handle reads the owner's entry.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

from labcore.network import Weights
from labcore.prefix import Continuation, PrefixStore, check_scope


@dataclass(frozen=True)
class Handle:
    """A name and the authority's tag of it."""

    name: str
    tag: str


class Authority:
    """Issues and checks handles (HMAC-SHA-256 of the name under a secret)."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError(f"secret: got {len(secret)} bytes; wanted at least 16")
        self._secret = secret

    def issue(self, name: str) -> Handle:
        """The handle of a name, for a holder whose identity was proved elsewhere."""
        return Handle(check_scope(name), self._tag(name))

    def name_of(self, handle: Any) -> str:
        """The name that a handle proves. PermissionError if it was not issued here."""
        if not isinstance(handle, Handle) or not hmac.compare_digest(handle.tag, self._tag(check_scope(handle.name))):
            raise PermissionError("handle: got one that this authority did not issue; wanted an issued one")
        return handle.name

    def _tag(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()


class BoundStore:
    """A prefix store whose scope is what the handle proves, never what the caller says."""

    def __init__(self, authority: Authority, capacity: int = 2) -> None:
        self._authority = authority
        self._store = PrefixStore(capacity)

    def remember(self, handle: Handle, weights: Weights, prefix: Any, window: int | None = None) -> None:
        """As PrefixStore.remember. PermissionError for a handle that proves nothing."""
        self._store.remember(self._authority.name_of(handle), weights, prefix, window)

    def resume(self, handle: Handle, weights: Weights, prefix: Any, suffix: Any, window: int | None = None) -> Continuation:
        """As PrefixStore.resume. PermissionError for a handle that proves nothing."""
        return self._store.resume(self._authority.name_of(handle), weights, prefix, suffix, window)
