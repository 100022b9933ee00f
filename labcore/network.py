"""The teaching network: two layers of causal attention on ids, batched over g independent networks; float64.

Each of the g rows has its own weights and its own tokens; lengths, positions and window are common to a call. Axis letters: see
GLOSSARY.md (g network, n new token, m key, d width). The slow version that this one must equal is `network_loop`.

    input   x = embedding[token] + sinusoid(position)
    layer   x <- tanh(x + softmax(x W_Q (x W_K)^T / sqrt(d), visible keys only) x W_V)

No tokenizer, training, feed-forward part or normalisation. `advance` is the network; `embed`, `visible` and `attend` are its parts, from
which `faults/` builds its wrong twins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, VOCABULARY, LAYERS, PROJECTIONS = 16, 32, 2, 3  # projections in the order Q, K, V
EMBEDDING_SCALE, PROJECTION_SCALE = 0.3, 0.25  # standard deviations of the drawn weights
POSITION_RULE = "absolute sinusoid, base 10000, sine in even columns"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Weights:
    """embedding [g, 32, 16]; qkv [g, layer 2, projection 3, 16, 16], applied from the right: Q = x @ qkv[:, layer, 0]."""

    embedding: Floats
    qkv: Floats

    def take(self, index: Any) -> Weights:
        """The networks at `index` (integers or a mask): a copy."""
        return Weights(self.embedding[index], self.qkv[index])


@dataclass(frozen=True)
class Cache:
    """What a continuation needs. k, v [g, layer, m, d]; positions [m], contiguous, common to all g; next_position: of the next token.

    Arrays are never written by this module, so a cache may be continued any number of times.
    """

    k: Floats
    v: Floats
    positions: Ints
    next_position: int

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V together, over all g."""
        return self.k.nbytes + self.v.nbytes

    def copy(self) -> Cache:
        """The same values in memory of their own."""
        return Cache(self.k.copy(), self.v.copy(), self.positions.copy(), self.next_position)

    def take(self, index: Any) -> Cache:
        """The caches of the networks at `index`: a copy."""
        return Cache(self.k[index], self.v[index], self.positions.copy(), self.next_position)

    def crop(self, length: int) -> Cache:
        """The cache as it was after `length` tokens: keeps the keys at positions below, a copy. ValueError if that state is not here.

        A window's cache has dropped its first keys and cannot go back (the token before the cut would miss its neighbours).
        """
        if not 0 <= length <= self.next_position:
            raise ValueError(f"crop: got length {length}; wanted 0 to {self.next_position}")
        if len(self.positions) != self.next_position and length != self.next_position:
            raise ValueError(
                f"crop: got length {length} of a cache that keeps {len(self.positions)} of {self.next_position} positions; wanted all"
            )
        kept = len(self.positions) - (self.next_position - length)
        return Cache(self.k[:, :, :kept].copy(), self.v[:, :, :kept].copy(), self.positions[:kept].copy(), length)


@dataclass
class Counter:
    """Work of one of the g networks (all do the same). Mutated by `attend`.

    projected_rows: one for each token, projection and layer. score_elements: cells of the score matrices that were computed.
    """

    projected_rows: int = 0
    score_elements: int = 0


def draw(seeds: Iterable[int]) -> Weights:
    """Weights of one network a seed: from default_rng(seed) the embedding, then W_Q, W_K, W_V of each layer in turn.

    >>> draw([7, 19]).qkv.shape
    (2, 2, 3, 16, 16)
    """
    generators = [np.random.default_rng(seed) for seed in seeds]
    embedding = np.empty((len(generators), VOCABULARY, WIDTH))
    qkv = np.empty((len(generators), LAYERS, PROJECTIONS, WIDTH, WIDTH))
    for g, rng in enumerate(generators):
        rng.standard_normal(out=embedding[g])
        rng.standard_normal(out=qkv[g])  # the same stream as six draws of a matrix each
    embedding *= EMBEDDING_SCALE
    qkv *= PROJECTION_SCALE
    return Weights(embedding, qkv)


def check_ids(ids: Any) -> Ints:
    """The ids of one sequence as int64 [n], a copy. Refuses before it converts, so that 1.0, True or "1" never becomes an id.

    TypeError: not a flat sequence of integers. ValueError: empty, or an id outside the vocabulary.

    >>> check_ids([1, 2.0])
    Traceback (most recent call last):
    TypeError: ids[1]: got float 2.0; wanted an integer
    """
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1:
            raise ValueError(f"ids: got {ids.ndim} dimensions; wanted 1")
        if ids.dtype.kind not in "iu":
            raise TypeError(f"ids: got dtype {ids.dtype}; wanted an integer dtype")
    elif isinstance(ids, Sequence) and not isinstance(ids, str | bytes | bytearray):
        for place, value in enumerate(ids):
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
                raise TypeError(f"ids[{place}]: got {type(value).__name__} {value!r}; wanted an integer")
    else:
        raise TypeError(f"ids: got {type(ids).__name__}; wanted a list, tuple or array of integers")
    if len(ids) == 0:
        raise ValueError("ids: got none; wanted at least one")
    for place, value in enumerate(ids):
        if not 0 <= value < VOCABULARY:
            raise ValueError(f"ids[{place}]: got {value}; wanted 0 to {VOCABULARY - 1}")
    return np.array(ids, dtype=np.int64)


def check_tokens(tokens: Any, g: int) -> Ints:
    """Tokens of all g networks as int64 [g, n]; the rules of `check_ids`, on an array. A flat sequence is given to every network."""
    if not (isinstance(tokens, np.ndarray) and tokens.ndim == 2):
        return np.broadcast_to(check_ids(tokens), (g, len(tokens)))
    if tokens.dtype.kind not in "iu":
        raise TypeError(f"tokens: got dtype {tokens.dtype}; wanted an integer dtype")
    if tokens.shape[0] != g or tokens.shape[1] == 0:
        raise ValueError(f"tokens: got shape {tokens.shape}; wanted [{g}, n] with n > 0")
    if tokens.min() < 0 or tokens.max() >= VOCABULARY:
        raise ValueError(f"tokens: got ids from {tokens.min()} to {tokens.max()}; wanted 0 to {VOCABULARY - 1}")
    return tokens.astype(np.int64)


def check_window(window: Any) -> int | None:
    """A positive integer, or None for full attention."""
    if window is None:
        return None
    if isinstance(window, bool | np.bool_) or not isinstance(window, int | np.integer):
        raise TypeError(f"window: got {type(window).__name__} {window!r}; wanted a positive integer or None")
    if window < 1:
        raise ValueError(f"window: got {window}; wanted a positive integer or None")
    return int(window)


def check_positions(positions: Any, where: str) -> Ints:
    """Positions [n]: integers, not negative, each one more than the one before."""
    got = np.asarray(positions)
    if got.ndim != 1 or got.dtype.kind not in "iu":
        raise TypeError(f"{where}: got {got.dtype} with {got.ndim} dimensions; wanted integers with 1")
    wide = got.astype(np.int64)  # before the subtraction: 255 and 0 are no neighbours
    if len(wide) and (wide[0] < 0 or (wide[1:] - wide[:-1] != 1).any()):
        raise ValueError(f"{where}: got {got.tolist()}; wanted contiguous positions from 0 or above")
    return wide


@cache
def _sinusoid(start: int, count: int) -> Floats:
    pair = np.arange(WIDTH // 2)
    angle = np.arange(start, start + count)[:, None] / 10000.0 ** (2 * pair / WIDTH)
    table = np.empty((count, WIDTH))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    table.flags.writeable = False
    return table


def sinusoid(positions: Ints) -> Floats:
    """Position vectors [n, d] of contiguous positions [n]: sine in the even columns, cosine in the odd ones. Read-only."""
    return _sinusoid(int(positions[0]), len(positions))


def embed(weights: Weights, tokens: Ints, positions: Ints) -> Floats:
    """Input states [g, n, d] of checked tokens [g, n] at contiguous positions [n]."""
    return np.asarray(weights.embedding[np.arange(len(tokens))[:, None], tokens] + sinusoid(positions))


def visible(queries: Ints, keys: Ints, window: int | None = None) -> Bools:
    """Which key (axis m) a query (axis n) sees: k <= q and, with a window, k > q - window. ValueError if a query sees nothing.

    >>> visible(np.array([2, 3]), np.arange(4), 2).astype(int).tolist()
    [[0, 1, 1, 0], [0, 0, 1, 1]]
    """
    seen = keys[None, :] <= queries[:, None]
    if window is not None:
        seen &= keys[None, :] > queries[:, None] - window
    check_seen(seen, queries, keys)
    return seen


def check_seen(seen: Bools, queries: Ints, keys: Ints) -> None:
    """ValueError naming the first query row of a mask [n, m] that sees no key."""
    blind = np.flatnonzero(~seen.any(axis=1))
    if len(blind):
        raise ValueError(f"query at position {queries[blind[0]]} sees none of the keys at {keys.tolist()}; wanted at least one")


def attend(
    weights: Weights, x: Floats, seen: Bools, past: Cache | None = None, counter: Counter | None = None
) -> tuple[Floats, Floats, Floats]:
    """All layers on inputs x [g, n, d] under one mask seen [n, m], m = past keys + n.

    Returns states [g, n, d] and K and V of all m keys, [g, layer, m, d], new memory. Mutates only the counter.
    """
    g, n, _ = x.shape
    old = seen.shape[1] - n
    k, v = np.empty((g, LAYERS, old + n, WIDTH)), np.empty((g, LAYERS, old + n, WIDTH))
    if past is not None and old:
        k[:, :, :old], v[:, :, :old] = past.k, past.v
    hidden = np.where(seen, 0.0, -np.inf)
    for layer in range(LAYERS):
        w_q, w_k, w_v = (weights.qkv[:, layer, projection] for projection in range(PROJECTIONS))
        np.matmul(x, w_k, out=k[:, layer, old:])
        np.matmul(x, w_v, out=v[:, layer, old:])
        scores = (x @ w_q) @ k[:, layer].transpose(0, 2, 1)
        scores /= np.sqrt(WIDTH)
        scores += hidden
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        x = np.tanh(x + scores @ v[:, layer])
        if counter is not None:
            counter.projected_rows += PROJECTIONS * n
            counter.score_elements += seen.size
    return x, k, v


def empty(g: int, next_position: int = 0) -> Cache:
    """A cache of no keys for g networks, whose next token stands at `next_position`."""
    none = np.empty((g, LAYERS, 0, WIDTH))
    return Cache(none, none, np.empty(0, np.int64), next_position)


def advance(
    weights: Weights, tokens: Any, cache: Cache | None = None, window: int | None = None, counter: Counter | None = None
) -> tuple[Floats, Cache]:
    """Feed tokens ([g, n], or [n] for all networks) behind a cache (None: from position 0).

    Returns the states of the new tokens [g, n, d] and the cache after them (new memory; with a window its last `window` rows). The given
    cache is not changed. TypeError or ValueError before any work if an input breaks the rules above.
    """
    g = len(weights.embedding)
    past = empty(g) if cache is None else cache
    ids = check_tokens(tokens, g)
    window = check_window(window)
    old = check_positions(past.positions, "cache.positions")
    if past.k.shape != (g, LAYERS, len(old), WIDTH) or past.v.shape != past.k.shape:
        raise ValueError(f"cache: got K {past.k.shape}, V {past.v.shape}; wanted both {(g, LAYERS, len(old), WIDTH)}")
    if len(old) and old[-1] + 1 != past.next_position:
        raise ValueError(f"cache: got next position {past.next_position} behind keys that end at {old[-1]}; wanted {old[-1] + 1}")
    end = past.next_position + ids.shape[1]
    new = check_positions(np.arange(past.next_position, end), "positions")
    keys = np.concatenate([old, new])
    states, k, v = attend(weights, embed(weights, ids, new), visible(new, keys, window), past, counter)
    return states, last_rows(k, v, keys, window)


def last_rows(k: Floats, v: Floats, keys: Ints, window: int | None) -> Cache:
    """The cache of all keys at positions `keys` (not copied), or of the last `window` of them (copied)."""
    end = int(keys[-1]) + 1
    if window is not None and len(keys) > window:
        k, v, keys = k[:, :, -window:].copy(), v[:, :, -window:].copy(), keys[-window:].copy()  # a view would keep the dropped rows
    return Cache(k, v, keys, end)


@cache
def source_digest() -> str:
    """SHA-256 of this file: names the implementation in a cache's key."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
