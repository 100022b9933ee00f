"""The teaching network once more, a query and a key at a time: the specification that `network` must equal to 1e-13.

One network, one sequence, plain lists of 16 numbers; no cache, no batching, no masks as arrays.
"""

from __future__ import annotations

import math

import numpy as np

from labcore.network import LAYERS, VOCABULARY, WIDTH, Floats

Vector = list[float]


class LoopNetwork:
    """Weights of one seed, drawn matrix by matrix. `states(ids, window, start)` gives the last layer's states [n, d]."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.embedding = rng.normal(0, 0.3, (VOCABULARY, WIDTH))
        self.layers = []
        for _ in range(LAYERS):
            w_q = rng.normal(0, 0.25, (WIDTH, WIDTH))
            w_k = rng.normal(0, 0.25, (WIDTH, WIDTH))
            w_v = rng.normal(0, 0.25, (WIDTH, WIDTH))
            self.layers.append((w_q, w_k, w_v))

    def states(self, ids: list[int], window: int | None = None, start: int = 0) -> Floats:
        """States of ids at positions start, start + 1, ... under causal attention, optionally within a window."""
        x = [[float(self.embedding[token, c]) + _position(start + i, c) for c in range(WIDTH)] for i, token in enumerate(ids)]
        for w_q, w_k, w_v in self.layers:
            queries, keys, values = _rows(x, w_q), _rows(x, w_k), _rows(x, w_v)
            x = [self._token(i, x[i], queries[i], keys, values, window) for i in range(len(x))]
        return np.array(x)

    @staticmethod
    def _token(i: int, x: Vector, query: Vector, keys: list[Vector], values: list[Vector], window: int | None) -> Vector:
        seen = [j for j in range(len(keys)) if j <= i and (window is None or j > i - window)]
        scores = [sum(a * b for a, b in zip(query, keys[j], strict=True)) / math.sqrt(WIDTH) for j in seen]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        weights = [power / sum(powers) for power in powers]
        mixed = [sum(weight * values[j][c] for weight, j in zip(weights, seen, strict=True)) for c in range(WIDTH)]
        return [math.tanh(a + b) for a, b in zip(x, mixed, strict=True)]


def _position(position: int, column: int) -> float:
    angle = position / 10000 ** (2 * (column // 2) / WIDTH)
    return math.cos(angle) if column % 2 else math.sin(angle)


def _rows(x: list[Vector], matrix: Floats) -> list[Vector]:
    return [[sum(row[r] * float(matrix[r, c]) for r in range(WIDTH)) for c in range(WIDTH)] for row in x]
