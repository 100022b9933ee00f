"""The teaching network, by sums that carry their rounding errors along: the reference for experiments 05 to 09 and 13.

Two layers, one head, width 16, 32 tokens, binary64; no feed-forward part, no layer norm. A layer is
x <- tanh(x + softmax(Q K^T / 4) V) with Q, K, V = x W_Q, x W_K, x W_V. A key at position k is seen by a query at q if k <= q and, with
a window w, k > q - w. A state differs from any correct program's by less than 1e-12 (FORMAT 8).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYERS, WIDTH, VOCABULARY = 2, 16, 32
BOUND = (1e-12, "float64 states of the teaching network, FORMAT 8: any order of summation stays below 3e-13")
FEW = 64
ONE = np.ones(1)
Row = tuple[float, ...]
Floats = NDArray[np.float64]


def draw(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weights of a seed: embedding [token 32, width 16] and qkv [layer 2, projection 3, width 16, width 16]."""
    rng = np.random.default_rng(seed)
    embedding = rng.normal(0, 0.3, (VOCABULARY, WIDTH))
    return embedding, np.array([[rng.normal(0, 0.25, (WIDTH, WIDTH)) for _ in range(3)] for _ in range(LAYERS)])


@dataclass(frozen=True, slots=True)
class Shape:
    """What else a network may be than the teaching network: heads that share the width, the stored layers that run, in order, the base of
    the positions, and the power of the head's width by which scores are divided."""

    heads: int = 1
    layers: tuple[int, ...] = (0, 1)
    position_base: float = 10000.0
    score_power: float = 0.5


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of each layer, their absolute positions, and the next position. Immutable; `key` says how it came about."""

    keys: tuple[tuple[Row, ...], ...]
    values: tuple[tuple[Row, ...], ...]
    positions: tuple[int, ...]
    next_position: int
    key: Any

    def __len__(self) -> int:
        return len(self.positions)

    def crop(self, length: int, next_position: int | None = None) -> Cache:
        """The first `length` rows; the next position follows the last of them unless it is given."""
        following = length if next_position is None else next_position
        keys = tuple(layer[:length] for layer in self.keys)
        values = tuple(layer[:length] for layer in self.values)
        return Cache(keys, values, self.positions[:length], following, ("crop", self.key, length, following))


EMPTY = Cache(((),) * LAYERS, ((),) * LAYERS, (), 0, None)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one call of the network gives: last states [token][width], the cache after it, and what it counted."""

    states: tuple[Row, ...]
    cache: Cache
    projected_rows: int
    score_elements: int
    layers: tuple[tuple[Row, ...], ...] = ()


class Network:
    """The network with given weights. Equal calls are computed once."""

    def __init__(self, embedding: NDArray[np.float64], qkv: NDArray[np.float64], shape: Shape = Shape()) -> None:
        self._shape = shape
        self._embedding: list[list[float]] = embedding.tolist()
        self._weights = qkv[list(shape.layers)].swapaxes(1, 2)[:, :, :, None]  # [layer][row, projection, 1, column]
        self._known: dict[Any, Pass] = {}
        self._serial = next(_SERIAL)

    @classmethod
    def of_seed(cls, seed: int) -> Network:
        """The network that a seed draws."""
        return cls(*draw(seed))

    def run(
        self,
        tokens: Sequence[int],
        cache: Cache = EMPTY,
        window: int | None = None,
        *,
        causal: bool = True,
        positions: Sequence[int] | None = None,
        query_positions: Sequence[int] | None = None,
        input_positions: Sequence[int] | None = None,
    ) -> Pass:
        """States of `tokens` after `cache`.

        positions: of inputs, keys and queries, by default from the cache's next position on. Faults of 05: `query_positions` are those that
        the mask takes for the queries, `input_positions` those at which the inputs stand, and causal=False is no mask at all.
        """
        at = tuple(positions) if positions is not None else tuple(range(cache.next_position, cache.next_position + len(tokens)))
        asking = tuple(query_positions) if query_positions is not None else at
        standing = tuple(input_positions) if input_positions is not None else at
        key = (tuple(tokens), cache.key, window, causal, at, asking, standing, self._serial)
        if key not in self._known:
            self._known[key] = self._compute(key, cache)
        return self._known[key]

    def _compute(self, key: Any, cache: Cache) -> Pass:
        tokens, _, window, causal, at, asking, standing, _ = key
        places = [place(where, self._shape.position_base) for where in standing]
        states = _table([[*map(add, self._embedding[token], where)] for token, where in zip(tokens, places, strict=True)])
        held = cache.positions + at
        there, here = np.array(held), np.array(asking)[:, None]
        seen = (there <= here) & (window is None or there > here - window) if causal else np.ones((len(tokens), len(held)), bool)
        if not seen.any(axis=1).all():
            raise ValueError("a query sees no key")
        keep = len(held) if window is None else min(window, len(held))
        all_keys, all_values, cells, between = [], [], 0, []
        for layer, weights in enumerate(self._weights):
            query, key_rows, value_rows = sums(states.T[:, None, :, None], weights)
            keys, values = cache.keys[layer] + _rows(key_rows), cache.values[layer] + _rows(value_rows)
            states = _each(math.tanh, states + self._attend(query, _table(keys), _table(values), seen))
            cells += len(tokens) * len(keys)
            all_keys.append(keys[len(keys) - keep :])
            all_values.append(values[len(values) - keep :])
            between.append(_rows(states))
        following = at[-1] + 1 if at else cache.next_position
        after = Cache(tuple(all_keys), tuple(all_values), held[len(held) - keep :], following, key)
        return Pass(between[-1], after, 3 * len(self._weights) * len(tokens), cells, tuple(between))

    def _attend(self, query: Floats, keys: Floats, values: Floats, seen: NDArray[np.bool_]) -> Floats:
        """softmax(query . keys / width ** power) . values over the keys that are seen, head after head; some queries at a time."""
        width = WIDTH // self._shape.heads
        mixed = np.empty_like(query)
        some = 1 + 1024 // (1 + len(keys))
        for first in range(0, len(query), some):
            rows = slice(first, first + some)
            used = np.flatnonzero(seen[rows].any(axis=0))
            visible = seen[rows][:, used]
            for start in range(0, WIDTH, width):
                part = slice(start, start + width)
                scores = sums(query[rows, part].T[:, :, None], keys[used, part].T[:, None]) / width**self._shape.score_power
                scores[~visible] = -np.inf
                shares = _each(math.exp, scores - scores.max(axis=1, keepdims=True)).T
                mixed[rows, part] = sums(shares[:, :, None], values[used, None, part]) / sums(shares, ONE)[:, None]
        return mixed


_SERIAL = itertools.count()
"""Tells networks apart, so that a cache made by one is not taken for that of another."""
_PLACES: dict[tuple[int, float], Row] = {}


def place(position: int, base: float = 10000.0) -> Row:
    """The sinusoidal position: sine in the even columns, cosine in the odd ones."""
    if (position, base) not in _PLACES:
        angles = [position / base ** (2 * pair / WIDTH) for pair in range(WIDTH // 2)]
        _PLACES[position, base] = tuple(wave(angle) for angle in angles for wave in (math.sin, math.cos))
    return _PLACES[position, base]


def sums(one: Floats, two: Floats) -> Floats:
    """Sums of products along the first axis, pair by pair; what each addition rounds off is added at the end. A few sums: by fsum."""
    terms = np.multiply(one, two, order="C")
    rest = np.zeros(terms.shape[1:])
    if rest.size < FEW:
        return np.array([*map(math.fsum, terms.reshape(len(terms), -1).T.tolist())]).reshape(rest.shape)
    while len(terms) > 1:
        half = len(terms) // 2
        left, right = terms[:half], terms[half : 2 * half]
        both = left + right
        from_right = both - left
        rest += ((left - (both - from_right)) + (right - from_right)).sum(axis=0)
        terms = np.concatenate([both, terms[2 * half :]]) if len(terms) % 2 else both
    return np.asarray(terms.sum(axis=0) + rest)


def _each(function: Callable[[float], float], values: Floats) -> Floats:
    """The standard library's function of each value: NumPy's own differs from processor to processor."""
    return np.array([*map(function, values.ravel().tolist())]).reshape(values.shape)


def _table(rows: Sequence[Sequence[float]]) -> Floats:
    return np.array(rows, np.float64).reshape(-1, WIDTH)


def _rows(table: Floats) -> tuple[Row, ...]:
    return tuple(map(tuple, table.tolist()))


def error(one: Sequence[Row], other: Sequence[Row]) -> float:
    """The largest absolute difference of two lists of states."""
    return max(abs(a - b) for row, twin in zip(one, other, strict=True) for a, b in zip(row, twin, strict=True))
