"""Longest-common-prefix reuse: nine published conditions, then grain of the index, cuts inside a block, edits and identities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from labcore.batch import Batch
from labcore.common_prefix import CommonPrefixStore
from labcore.faults import stale_next_position
from labcore.matchers import make, pack
from labcore.network import VOCABULARY, Cache, Counter, Weights, advance, draw
from labcore.protocol import Protocol

ROWS_PER_TOKEN = 6  # two layers, three projections


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks. The networks of all seeds run side by side (axis g)."""
    weights = draw(protocol.seeds)
    yield published(protocol, weights)
    yield grains(protocol)
    yield inside_block(protocol, weights)
    yield edits(protocol, weights)
    yield identities(protocol, weights)


def per_seed(cases: list[np.ndarray], seeds: int) -> np.ndarray:
    """Stack arrays [g, ...] of each condition into rows of seed times condition."""
    stacked = np.stack(cases, axis=1)
    return stacked.reshape(seeds * len(cases), *stacked.shape[2:])


def published(protocol: Protocol, weights: Weights) -> Batch:
    """Rows before the cut and behind the query's end are zero in all three arrays: only computed states are compared."""
    settings, g = protocol.settings, len(protocol.seeds)
    arrays: dict[str, list[np.ndarray]] = {"query": [], "fresh": [], "reuse": [], "wrong": []}
    cuts, rows = [], []
    for name in protocol.values("condition"):
        case = settings["conditions"][name]
        query, scope, window = np.array(case["query"]), case["scope"], case["window"]
        store = CommonPrefixStore(settings["capacity"])
        for ids in settings["stored"].values():
            store.remember(weights, ids, settings["owner"], window)
        counter = Counter()
        entry, cut = store.find(weights, query, scope, window)
        reuse = store.resume(entry, weights, query, cut, window, counter)
        if entry is None or window is not None:  # nothing was cropped, so nothing is left behind
            wrong = store.resume(entry, weights, query, cut, window)
        else:
            wrong = stale_next_position.faulty(weights, entry.cache, query, cut)
        fresh, _ = advance(weights, query, window=window)
        for key, states in (("fresh", fresh[:, cut:]), ("reuse", reuse), ("wrong", wrong)):
            padded = np.zeros((g, 12, 16))
            padded[:, cut : len(query)] = states
            arrays[key].append(padded)
        arrays["query"].append(np.tile(np.pad(query, (0, 12 - len(query)), constant_values=-1), (g, 1)))
        cuts.append(cut)
        rows.append(counter.projected_rows)
    return Batch(
        "published",
        {key: per_seed(values, g) for key, values in arrays.items()},
        decisions={"reused": [cut > 0 for cut in cuts] * g},
        counts={"cut": cuts * g, "projected_rows": rows * g},
    )


def sequences(protocol: Protocol) -> list[np.ndarray]:
    """The long sequence, extended, and the two stored ones that leave it at the branches by adding 2."""
    settings = protocol.settings
    extended = (7 * np.arange(settings["extended"]) + 3) % VOCABULARY
    result = [extended]
    for at in settings["branches"]:
        branch = extended[: settings["long"]].copy()
        branch[at:] = (branch[at:] + 2) % VOCABULARY
        result.append(branch)
    return result


def leaving(extended: np.ndarray, shared: int, long: int) -> np.ndarray:
    """A question that agrees with the long sequence in its first `shared` tokens and then differs everywhere by 1."""
    question = extended.copy()
    if shared < long:
        question[shared:] = (question[shared:] + 1) % VOCABULARY
    return question


def grains(protocol: Protocol) -> Batch:
    """What each index finds of a question that leaves the long sequence after `shared` tokens."""
    long = protocol.settings["long"]
    extended, *branches = sequences(protocol)
    reusable, entries = [], []
    for grain in protocol.values("grain"):
        kind, _, size = grain.partition("_")
        index = make({"token": "dictionary", "block": "block_hash", "whole": "whole_hash"}.get(kind, kind), int(size or 1))
        for ids in (extended[:long], *branches):
            index.add("owner", ids)
        for shared in protocol.values("shared"):
            reusable.append(index.longest("owner", leaving(extended, shared, long)))
            entries.append(index.entries())
    rows = [ROWS_PER_TOKEN * (len(extended) - found) for found in reusable]
    return Batch("grains", counts={"reusable": reusable, "projected_rows": rows, "entries": entries})


def inside_block(protocol: Protocol, weights: Weights) -> Batch:
    """The last state when the sequences part inside a block: the block left out (down) or taken whole (up)."""
    long = protocol.settings["long"]
    extended, *_ = sequences(protocol)
    store = CommonPrefixStore(1)
    entry = store.remember(weights, extended[:long], "owner")
    arrays: dict[str, list[np.ndarray]] = {"fresh": [], "rounded_down": [], "rounded_up": []}
    down, up = [], []
    for size in protocol.values("block_size"):
        for shared in protocol.values("inside"):
            question = leaving(extended, shared, long)
            down.append(shared // size * size)
            up.append(-(-shared // size) * size)
            arrays["fresh"].append(advance(weights, question)[0][:, -1])
            arrays["rounded_down"].append(store.resume(entry if down[-1] else None, weights, question, down[-1])[:, -1])
            arrays["rounded_up"].append(store.resume(entry, weights, question, up[-1])[:, -1])
    g = len(protocol.seeds)
    return Batch("inside_block", {k: per_seed(v, g) for k, v in arrays.items()}, counts={"down": down * g, "up": up * g})


def edits(protocol: Protocol, weights: Weights) -> Batch:
    """Entries of every length of one conversation, after the id at `place` was edited: which still match, and whose K and V changed."""
    length, g = protocol.settings["conversation"], len(protocol.seeds)
    ids = (7 * np.arange(length) + 3) % VOCABULARY
    _, old = advance(weights, ids)
    matched, difference = [], []
    for place in protocol.values("place"):
        edited = ids.copy()
        edited[place] = (edited[place] + 1) % VOCABULARY
        _, new = advance(weights, edited)
        packed = pack(edited)
        same = np.array([packed.startswith(pack(ids[:end])) for end in range(1, length + 1)])
        change = np.maximum(abs(old.k - new.k), abs(old.v - new.v)).max(axis=(1, 3))  # [g, position]
        matched.append(np.tile(same, (g, 1)))
        difference.append(np.maximum.accumulate(change, axis=1))
    same, change = per_seed(matched, g), per_seed(difference, g)
    valid = same.sum(axis=1)
    agree = (same == (change <= protocol.tolerance)).all(axis=1)
    return Batch(
        "edits",
        {"matched": same.astype(np.uint8), "difference": change},
        decisions={"agree": agree},
        counts={"valid": valid, "invalid": length - valid},
    )


def identities(protocol: Protocol, weights: Weights) -> Batch:
    """The same question after one condition changed: does the store reuse, and what would an unchecked cache give?"""
    settings, g = protocol.settings, len(protocol.seeds)
    query = np.array(settings["conditions"]["append"]["query"])
    store = CommonPrefixStore(1)
    entry = store.remember(weights, settings["stored"]["a"], settings["owner"])
    stepped = Weights(weights.embedding, weights.qkv.copy())
    stepped.qkv[:, 0, 1, 0, 0] += settings["weight_step"]
    arrays: dict[str, list[np.ndarray]] = {"fresh": [], "unchecked": []}
    cuts = []
    for change in protocol.values("change"):
        model = stepped if change == "weights" else weights
        window = settings["window"] if change == "window" else None
        _, cut = store.find(model, query, "other" if change == "scope" else settings["owner"], window)
        cuts.append(cut)
        arrays["fresh"].append(advance(model, query, window=window)[0][:, entry.length :])
        arrays["unchecked"].append(unchecked(model, entry.cache, query, window))
    return Batch(
        "identities",
        {k: per_seed(v, g) for k, v in arrays.items()},
        decisions={"reused": [cut > 0 for cut in cuts] * g},
        counts={"cut": cuts * g},
    )


def unchecked(weights: Weights, cache: Cache, query: np.ndarray, window: int | None) -> np.ndarray:
    """Continue a cache without asking what it was computed under."""
    return advance(weights, query[cache.next_position :], cache, window)[0]
