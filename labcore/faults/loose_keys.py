"""Faults: a checkpoint store whose key leaves something out. Control: requests that agree in what was left out."""

from __future__ import annotations

from typing import Any

from labcore.checkpoints import CheckpointStore, Key, Served
from labcore.common_prefix import key_of
from labcore.eviction import ADMIT
from labcore.matchers import WIDTH, pack
from labcore.network import Weights, check_ids


class Loose(CheckpointStore):
    """A store that also remembers who made each checkpoint, so that a hit on a foreign one can be counted."""

    def serve_counted(self, weights: Weights, ids: Any, scope: str) -> tuple[Served, bool]:
        """The request, and whether what it reused was made for another scope or other ids."""
        packed, conditions = pack(check_ids(ids)), key_of(weights, scope)
        makers: dict[Key, tuple[str, bytes]] = self.__dict__.setdefault("makers", {})
        hit = self.find(scope, conditions, packed)
        foreign = hit is not None and makers[hit] != (scope, packed[: len(makers[hit][1])])
        served = self.serve(weights, ids, scope)
        lengths = range(len(packed) // WIDTH + 1)
        mine = {self.key(scope, conditions, packed[: n * WIDTH]): packed[: n * WIDTH] for n in lengths}
        for event in served.events:
            if event.kind == ADMIT and isinstance(event.key, Key):
                makers[event.key] = (scope, mine[event.key])
        return served, foreign


class Unscoped(Loose):
    """The scope is not in the key."""

    def key(self, scope: str, conditions: str, packed: bytes) -> Key:
        return Key("any", "any", packed)


class LengthOnly(Loose):
    """The ids are not in the key, only how many there are."""

    def key(self, scope: str, conditions: str, packed: bytes) -> Key:
        return Key(scope, conditions, bytes(len(packed)))
