"""The teaching network, by loops and correctly rounded sums: the reference for experiments 05 to 09.

Two layers, one head, width 16, 32 tokens, binary64; no feed-forward part, no layer norm. A layer is
x <- tanh(x + softmax(Q K^T / 4) V) with Q, K, V = x W_Q, x W_K, x W_V. A key at position k is seen by a query at q if k <= q and, with
a window w, k > q - w. Lists of Python floats all through; a state differs from any correct program's by less than 1e-12 (FORMAT 8).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYERS, WIDTH, VOCABULARY = 2, 16, 32
BOUND = (1e-12, "float64 states of the teaching network, FORMAT 8: any order of summation stays below 3e-13")
Row = tuple[float, ...]


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
        self._columns: list[list[list[list[float]]]] = qkv[list(shape.layers)].transpose(0, 1, 3, 2).tolist()
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
        states = [tuple(map(add, self._embedding[token], where)) for token, where in zip(tokens, places, strict=True)]
        held = cache.positions + at
        seen = [[not causal or (there <= here and (window is None or there > here - window)) for there in held] for here in asking]
        keep = len(held) if window is None else min(window, len(held))
        all_keys, all_values, cells, between = [], [], 0, []
        for layer, (by_query, by_key, by_value) in enumerate(self._columns):
            keys = cache.keys[layer] + tuple(_through(row, by_key) for row in states)
            values = cache.values[layer] + tuple(_through(row, by_value) for row in states)
            states = [
                tuple(map(math.tanh, map(add, row, self._attend(_through(row, by_query), keys, values, visible))))
                for row, visible in zip(states, seen, strict=True)
            ]
            cells += len(tokens) * len(keys)
            all_keys.append(keys[len(keys) - keep :])
            all_values.append(values[len(values) - keep :])
            between.append(tuple(states))
        following = at[-1] + 1 if at else cache.next_position
        after = Cache(tuple(all_keys), tuple(all_values), held[len(held) - keep :], following, key)
        return Pass(tuple(states), after, 3 * len(self._columns) * len(tokens), cells, tuple(between))

    def _attend(self, query: Row, keys: Sequence[Row], values: Sequence[Row], visible: list[bool]) -> list[float]:
        """softmax(query . keys / width ** power) . values over the visible keys, head after head."""
        keys = [key for key, see in zip(keys, visible, strict=True) if see]
        values = [value for value, see in zip(values, visible, strict=True) if see]
        if not keys:
            raise ValueError("a query sees no key")
        width = WIDTH // self._shape.heads
        scale = width**self._shape.score_power
        mixed: list[float] = []
        for start in range(0, WIDTH, width):
            part = slice(start, start + width)
            asked = query[part]
            scores = [math.fsum(map(mul, asked, key[part])) / scale for key in keys]
            top = max(scores)
            shares = [math.exp(score - top) for score in scores]
            total = math.fsum(shares)
            mixed += [math.fsum(map(mul, shares, column)) / total for column in zip(*(value[part] for value in values), strict=True)]
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


def _through(row: Row, columns: list[list[float]]) -> Row:
    return tuple([math.fsum(map(mul, row, column)) for column in columns])


def error(one: Sequence[Row], other: Sequence[Row]) -> float:
    """The largest absolute difference of two lists of states."""
    return max(abs(a - b) for row, twin in zip(one, other, strict=True) for a, b in zip(row, twin, strict=True))
