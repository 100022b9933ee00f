"""06 without numbers: which ids are refused, what a trace leaves in the store, who may read an entry."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import numpy as np

from audit.prefix_store import Refused, ids_of, searched
from audit.study import Derived, Study

KINDS: dict[str, Any] = {
    "int": [1],
    "numpy-int8": [np.int8(1)],
    "numpy-uint64": np.array([1], np.uint64),
    "float": [1.0],
    "numpy-float64": [np.float64(1)],
    "bool": [True],
    "numpy-bool": [np.bool_(True)],
    "text": ["1"],
    "bytes": b"1",
    "none": [None],
    "complex": [1 + 0j],
    "nested": [[1]],
    "empty": [],
    "negative": [-1],
    "too-large": [32],
    "huge": [2**70],
    "float-array": np.array([1.0]),
    "bool-array": np.array([True]),
    "text-array": np.array(["1"]),
    "object-array": np.array([1], object),
}


def refusals(kind: str, argument: str) -> dict[str, bool]:
    """Whether ids of a kind are refused, in whatever place, and whether int() would make them the stored key (1,)."""
    value = KINDS[kind]
    try:
        ids_of(value)
        refused = False
    except Refused:
        refused = True
    try:
        same = tuple(int(item) for item in value) == (1,)
    except (TypeError, ValueError):
        same = False
    return {"refused": refused, "naive_same_key": same}


def trace(study: Study) -> Derived:
    """The operations on a store of bounded capacity: what it holds, what it looked at, and what other rules would have held."""
    settings = study.settings
    names = list(settings["trace_prefixes"])
    capacity, fifo, lru = settings["capacity"], list[int](), list[int]()
    held: list[list[int]] = []
    other: list[list[int]] = []
    reused, newest, oldest = [], [], []
    for act, name in settings["operations"]:
        wanted = names.index(name)
        if act == "remember":
            fifo, lru = [*fifo, wanted][-capacity:], [*lru, wanted][-capacity:]
            reused.append(False)
            newest.append(0)
            oldest.append(0)
        else:
            reused.append(wanted in fifo)
            newest.append(searched(fifo, wanted, True))
            oldest.append(searched(fifo, wanted, False))
            if wanted in lru:
                del lru[len(lru) - 1 - lru[::-1].index(wanted)]
                lru.append(wanted)
        held.append([*fifo, -1, -1][:capacity])
        other.append([*lru, -1, -1][:capacity])
    counts = {"compared": newest, "newest_first": newest, "oldest_first": oldest}
    return Derived("trace", None, {"held": held, "fifo_held": held, "lru_held": other}, {"reused": reused}, counts)


def accesses(store: str, claimant: str) -> dict[str, bool]:
    """Who reads an entry of reader-a: by a name alone, or by a name and a tag that only the store can make."""
    secret = b"any secret gives the same answers"

    def tag(name: str) -> bytes:
        return hmac.new(secret, name.encode(), hashlib.sha256).digest()

    name, shown = {
        "owner": ("reader-a", tag("reader-a")),
        "other-own-name": ("reader-b", tag("reader-b")),
        "other-claims-owner": ("reader-a", tag("reader-b")),
        "other-guesses-tag": ("reader-a", bytes(32)),
        "other-copied-handle": ("reader-a", tag("reader-a")),
    }[claimant]
    refused = store == "bound" and not hmac.compare_digest(shown, tag(name))
    return {"reads": name == "reader-a" and not refused, "refused": refused}
