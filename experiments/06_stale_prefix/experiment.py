"""When may a stored prefix cache be continued? Six conditions, reused blindly, reused behind a key, and computed afresh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from labcore import network, prefix
from labcore.batch import Batch
from labcore.network import Cache, Counter, Floats, Ints, Weights
from labcore.protocol import Protocol

CHUNK = 64  # seeds at a time: bounds memory, and their weights stay in the processor's cache


@dataclass(frozen=True)
class Case:
    """A condition: what the continuing request brings. The entry was stored with the first scope, no window, unchanged weights."""

    prefix: Ints
    suffix: Ints
    window: int | None
    scope: int
    weight_change: float

    def weights(self, base: Weights) -> Weights:
        """The networks of this condition."""
        return base if self.weight_change == 0 else change_first_key(base, self.weight_change)


def cases(settings: dict[str, Any]) -> dict[str, Case]:
    """The six conditions, each one change away from the first."""
    ids, after = np.array(settings["prefix"]), np.array(settings["suffix"])
    edited = ids.copy()
    edited[settings["edited_place"]] = settings["edited_id"]
    return {
        "same-prefix": Case(ids, after, None, 0, 0.0),
        "edited-prefix": Case(edited, after, None, 0, 0.0),
        "different-weights": Case(ids, after, None, 0, settings["weight_change"]),
        "different-window": Case(ids, after, settings["window"], 0, 0.0),
        "different-scope": Case(ids, after, None, 1, 0.0),
        "new-suffix": Case(ids, np.array(settings["new_suffix"]), None, 0, 0.0),
    }


def change_first_key(base: Weights, by: float) -> Weights:
    """Copies of networks with element [0, 0] of the first layer's W_K changed."""
    qkv = base.qkv.copy()
    qkv[:, 0, 1, 0, 0] += by
    return Weights(base.embedding, qkv)


def fresh(weights: Weights, case: Case) -> Floats:
    """The suffix's states by a full pass under the case's own conditions [g, 4, 16]."""
    states, _ = network.advance(weights, np.concatenate([case.prefix, case.suffix]), window=case.window)
    return states[:, -len(case.suffix) :]


def guarded(weights: Weights, case: Case, stored: Cache, reused: network.Bools) -> tuple[Floats, Ints]:
    """What the keyed store answers: hits continue the stored cache, misses recompute. States [g, 4, 16], projected rows [g]."""
    states = np.empty((len(reused), len(case.suffix), network.WIDTH))
    rows = np.empty(len(reused), np.int64)
    for hit in (True, False):
        chosen = np.flatnonzero(reused == hit)
        if len(chosen):
            counter = Counter()
            some = weights.take(chosen)
            ids = case.suffix if hit else np.concatenate([case.prefix, case.suffix])
            got, _ = network.advance(some, ids, stored.take(chosen) if hit else None, case.window, counter)
            states[chosen], rows[chosen] = got[:, -len(case.suffix) :], counter.projected_rows
    return states, rows


def published(protocol: Protocol) -> Iterator[Batch]:
    """Blocks models and published, a chunk of seeds at a time."""
    known = cases(protocol.settings)
    order = [known[name] for name in protocol.values("condition")]
    first = known["same-prefix"]
    scopes = protocol.settings["scopes"]
    for start in range(0, len(protocol.seeds), CHUNK):
        base = network.draw(protocol.seeds[start : start + CHUNK])
        g = len(base.embedding)
        yield Batch("models", {"embedding": base.embedding, "qkv": base.qkv})

        _, stored = network.advance(base, first.prefix)
        entries = prefix.keys(scopes[first.scope], base, first.prefix, first.window)
        made: dict[str, list[Any]] = {name: [] for name in ("fresh", "unchecked", "guarded", "reused", "rows")}
        for case in order:
            weights = case.weights(base)
            wanted = prefix.keys(scopes[case.scope], weights, case.prefix, case.window)
            reused = np.array([key == entry for key, entry in zip(wanted, entries, strict=True)])
            states, rows = guarded(weights, case, stored, reused)
            made["fresh"].append(fresh(weights, case))
            made["unchecked"].append(network.advance(weights, case.suffix, stored, case.window)[0])
            made["guarded"].append(states)
            made["reused"].append(reused)
            made["rows"].append(rows)
        columns = {name: np.stack(values, axis=1).reshape(g * len(order), *values[0].shape[1:]) for name, values in made.items()}
        inputs = {
            "model": np.repeat(np.arange(start, start + g), len(order)),
            "weight_change": np.tile([case.weight_change for case in order], g),
            "prefix": np.tile([case.prefix for case in order], (g, 1)),
            "suffix": np.tile([case.suffix for case in order], (g, 1)),
            "window": np.tile([case.window or 0 for case in order], g),
            "scope": np.tile([case.scope for case in order], g),
        }
        states = {name: columns[name] for name in ("fresh", "unchecked", "guarded")}
        yield Batch("published", inputs | states, {"reused": columns["reused"]}, {"projected_rows": columns["rows"]})


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks."""
    yield from published(protocol)
