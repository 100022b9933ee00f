"""Decode attention (one query) over rows that lie contiguous, or in pages: gathered first, or walked page by page.

Letters: n rows, b pages, s slots of a block, h query heads, g key-value heads, d width of a head. h is a multiple of g, and query
head i reads key-value head i // (h / g). A row is [2, g, d]: key, value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


def attend(query: Floats, rows: Floats, seen: NDArray[np.bool_] | None = None) -> Floats:
    """Output [h, d] of one query [h, d] over rows [n, 2, g, d]; `seen` [n]: which rows count (at least one), None: all.

    A row that is not seen is left out of both products, so that NaN in it does no harm.

    >>> attend(np.zeros((2, 1)), np.arange(4.0).reshape(2, 2, 1, 1)).ravel().tolist()
    [2.0, 2.0]
    """
    if seen is not None:
        rows = rows[seen]
    if not len(rows):
        raise ValueError("attention over no rows: wanted at least one that is seen")
    h, d = query.shape
    g = rows.shape[2]
    grouped = query.reshape(g, h // g, d)
    scores = np.einsum("gqd,ngd->gqn", grouped, rows[:, 0]) / math.sqrt(d)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.einsum("gqn,ngd->gqd", weights, rows[:, 1]).reshape(h, d))


def gather(memory: Floats, table: NDArray[np.int64], length: int) -> Floats:
    """The first `length` rows behind a page table [b], copied together: memory [blocks, s, 2, g, d] -> [length, 2, g, d]."""
    return np.asarray(memory[table].reshape(-1, *memory.shape[2:])[:length])


def consecutive(memory: Floats, table: NDArray[np.int64], length: int) -> Floats:
    """The fault of BR-14: pages taken as first block + 0, 1, 2, ..., wrapping at the end of the memory."""
    pages = (table[0] + np.arange(len(table))) % len(memory)
    return gather(memory, pages, length)


def walk(query: Floats, memory: Floats, table: NDArray[np.int64], length: int) -> Floats:
    """As `attend` over the gathered rows, one page after the other with a running maximum and sum; nothing is copied together."""
    h, d = query.shape
    s, g = memory.shape[1], memory.shape[3]
    grouped = query.reshape(g, h // g, d) / math.sqrt(d)
    top = np.full((g, h // g, 1), -np.inf, query.dtype)
    total = np.zeros((g, h // g, 1), query.dtype)
    out = np.zeros((g, h // g, d), query.dtype)
    for page, block in enumerate(table):
        rows = memory[block, : min(s, length - page * s)]
        scores = np.einsum("gqd,ngd->gqn", grouped, rows[:, 0])
        new = np.maximum(top, scores.max(axis=-1, keepdims=True))
        shrink = np.exp(top - new)
        weights = np.exp(scores - new)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        out = out * shrink + np.einsum("gqn,ngd->gqd", weights, rows[:, 1])
        top = new
    return np.asarray((out / total).reshape(h, d))


def attend_fast(query: Floats, rows: Floats) -> Floats:
    """`attend` over all rows by matrix products, as one would write it for speed; the rounding is the BLAS's own."""
    h, d = query.shape
    g = rows.shape[2]
    keys, values = rows[:, 0].transpose(1, 2, 0), rows[:, 1].transpose(1, 0, 2)
    scores = np.matmul(query.reshape(g, h // g, d), keys) * query.dtype.type(1 / math.sqrt(d))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.matmul(weights, values).reshape(h, d))
