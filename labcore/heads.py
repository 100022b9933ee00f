"""A decoder whose query heads share keys and values in groups, with a cache that can be read layer by layer.

Axes as in GLOSSARY.md: l layer, h query head, h_kv KV head, n new token, m key, w width of the model, d of a head, f hidden unit.
h_kv = h is multi-head attention, h_kv = 1 multi-query, between them grouped-query; query heads i*h/h_kv up to (i+1)*h/h_kv read
KV head i.

A layer, with rms(x) = x / sqrt(mean(x**2) + 1e-6) over the width:

    x <- x + concat(heads(rms(x))) W_O,    x <- x + tanh(rms(x) W_up) W_down
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labcore.quantize import NotFinite

EPSILON = 1e-6
KINDS = ("random", "trained_like")
Floats = NDArray[np.float64]


class HeadsNotDivisible(ValueError):
    """Query heads that do not fall into equal groups, or a width that does not fall into heads."""


@dataclass(frozen=True)
class Stack:
    """Weights. q [l, w, h*d], k, v [l, w, h_kv*d], o [l, h*d, w], up [l, w, f], down [l, f, w], all float64. groups is h_kv."""

    q: Floats
    k: Floats
    v: Floats
    o: Floats
    up: Floats
    down: Floats
    heads: int
    groups: int

    def __post_init__(self) -> None:
        if self.groups < 1 or self.heads % self.groups:
            raise HeadsNotDivisible(f"groups: got {self.groups}; wanted a divisor of the {self.heads} query heads")
        if self.q.shape[2] % self.heads:
            raise HeadsNotDivisible(f"heads: got {self.heads}; wanted a divisor of the width {self.q.shape[2]}")

    @property
    def layers(self) -> int:
        return len(self.q)


class Pass(NamedTuple):
    """What one pass over new tokens gives, one entry a layer from the first one computed.

    states [l, n, w] after each layer; heads [l, h, n, d] before W_O; branch [l, n, w] = concat(heads) W_O; entropy [l], mean over heads and
    queries, in nats; cache [l, 2, h_kv, m, d]: K and V, the cached ones first.
    """

    states: Floats
    heads: Floats
    branch: Floats
    entropy: Floats
    cache: Floats


def draw(key: Any, layers: int, heads: int, groups: int, width: int, hidden: int, kind: str) -> Stack:
    """Weights from `default_rng(key)`, drawn layer by layer in the order q, k, v, o, up, down, standard normal.

    random: divided by sqrt(rows). trained_like: besides, input channel i weighs (1 + i)**-0.5 (normalised to a mean square of 1), as
    trained networks have few strong channels; q is doubled (sharper attention); o and down are divided by sqrt(2 l), as trained
    residual branches are small.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: got {kind!r}; wanted one of {', '.join(KINDS)}")
    if heads < 1 or width % heads:
        raise HeadsNotDivisible(f"heads: got {heads}; wanted a divisor of the width {width}")
    if groups < 1 or heads % groups:
        raise HeadsNotDivisible(f"groups: got {groups}; wanted a divisor of the {heads} query heads")
    rng = np.random.default_rng(key)
    narrow = width // heads * groups
    shapes = {
        "q": (width, width),
        "k": (width, narrow),
        "v": (width, narrow),
        "o": (width, width),
        "up": (width, hidden),
        "down": (hidden, width),
    }
    made: dict[str, list[Floats]] = {name: [] for name in shapes}
    for _ in range(layers):
        for name, shape in shapes.items():
            made[name].append(rng.standard_normal(shape) / np.sqrt(shape[0]))
    stacked = {name: np.stack(values) for name, values in made.items()}
    if kind == "trained_like":
        gain = (1.0 + np.arange(width)) ** -0.5
        gain = gain / np.sqrt((gain**2).mean())
        for name in ("q", "k", "v", "up"):
            stacked[name] = stacked[name] * gain[:, None]
        stacked["q"] = stacked["q"] * 2
        for name in ("o", "down"):
            stacked[name] = stacked[name] / np.sqrt(2 * layers)
    return Stack(**stacked, heads=heads, groups=groups)


def positions(count: int, width: int, start: int = 0) -> Floats:
    """Sinusoidal positions [n, w]: sine in even columns, cosine in odd ones."""
    angle = np.arange(start, start + count)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(count, width)


def rms(x: Floats) -> Floats:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON))


def forward(stack: Stack, x: Floats, cache: Floats | None = None, first: int = 0) -> Pass:
    """Pass new tokens through layers first..l-1.

    x [n, w]: what goes into layer `first` (embedding plus position where it is 0). cache [l, 2, h_kv, m, d] of all layers, or None for
    no cached token; it is read, never written. Neither is mutated. Raises NotFinite.
    """
    if not np.isfinite(x).all() or (cache is not None and not np.isfinite(cache).all()):
        raise NotFinite("x, cache: got NaN or infinity; wanted finite numbers")
    n, width = x.shape
    d = width // stack.heads
    past = 0 if cache is None else cache.shape[3]
    hidden = np.arange(past + n) > past + np.arange(n)[:, None]  # key later than the query
    out: dict[str, list[Any]] = {name: [] for name in Pass._fields}
    for layer in range(first, stack.layers):
        y = rms(x)
        q = (y @ stack.q[layer]).reshape(n, stack.groups, -1, d).transpose(1, 2, 0, 3)  # group, head in group, query, width
        kv = np.stack([(y @ w[layer]).reshape(n, stack.groups, d).transpose(1, 0, 2) for w in (stack.k, stack.v)])
        if cache is not None:
            kv = np.concatenate([cache[layer], kv], axis=2)
        scores = q @ kv[0][:, None].swapaxes(-1, -2) / np.sqrt(d)
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        heads = (weights @ kv[1][:, None]).reshape(stack.heads, n, d)
        branch = heads.transpose(1, 0, 2).reshape(n, width) @ stack.o[layer]
        x = x + branch
        x = x + np.tanh(rms(x) @ stack.up[layer]) @ stack.down[layer]
        logs = np.log(np.where(weights > 0, weights, 1.0))
        for name, value in zip(Pass._fields, (x, heads, branch, -(weights * logs).sum(axis=-1).mean(), kv), strict=True):
            out[name].append(value)
    return Pass(**{name: np.array(values) for name, values in out.items()})
