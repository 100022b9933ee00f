"""Trains the teaching network to say a word again and again, with gradients written out by hand: NumPy, a few seconds, seeded.

A word is a few random ids; the sequence repeats it. From the word's last token on, a network knows every next one if it looks back by
the word's length, which it can only do through positions. A readout [d, 32] turns states into logits of the next id.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from labcore import network
from labcore.network import LAYERS, VOCABULARY, WIDTH, Floats, Ints, Weights

Tape = list[tuple[Floats, ...]]


@dataclass(frozen=True)
class Plan:
    """How to train: ids in a word, tokens in a sequence, steps, sequences a step, peak learning rate of Adam (0.9, 0.99)."""

    word: int = 5
    length: int = 20
    steps: int = 600
    batch: int = 64
    rate: float = 0.02


@dataclass(frozen=True)
class Trained:
    """Weights of one network ([1, ...]) and its readout [d, 32]."""

    weights: Weights
    readout: Floats

    def many(self, g: int) -> Weights:
        """The same network for g sequences: read-only views."""
        return Weights(*(np.broadcast_to(a, (g, *a.shape[1:])) for a in (self.weights.embedding, self.weights.qkv)))


def repeated(words: Ints, length: int) -> Ints:
    """Words [b, word] said again and again up to `length` tokens [b, length]."""
    times = -(-length // words.shape[1])
    return np.tile(words, (1, times))[:, :length]


def train(seed: int, plan: Plan) -> Trained:
    """Start from the drawn weights of a seed; draw the readout, then the words of each step, from a second stream of that seed."""
    start = network.draw([seed])
    rng = np.random.default_rng([seed, 1])
    values = {"embedding": start.embedding[0], "qkv": start.qkv[0], "readout": rng.normal(0, 0.25, (WIDTH, VOCABULARY))}
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = {name: np.zeros_like(value) for name, value in values.items()}
    for step in range(1, plan.steps + 1):
        slope = gradients(values, draw_words(rng, plan.batch, plan.word), plan)
        rate = plan.rate * min(1.0, step / 100) * (0.5 + 0.5 * np.cos(np.pi * step / plan.steps))
        for name in values:
            first[name] = 0.9 * first[name] + 0.1 * slope[name]
            second[name] = 0.99 * second[name] + 0.01 * slope[name] ** 2
            values[name] = values[name] - rate * first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.99**step)) + 1e-8)
    return Trained(Weights(values["embedding"][None], values["qkv"][None]), values["readout"])


def draw_words(rng: Generator, count: int, word: int) -> Ints:
    """Random words [count, word]."""
    return rng.integers(0, VOCABULARY, (count, word))


def gradients(values: dict[str, Floats], words: Ints, plan: Plan) -> dict[str, Floats]:
    """Gradients of the mean cross entropy of each next id that the word determines; the same names as `values`."""
    ids = repeated(words, plan.length)
    states, tape = _forward(values, ids)
    known = slice(plan.word - 1, -1)  # before, nothing is known yet; behind the last, there is nothing to say
    d_known = _softmax((states @ values["readout"])[:, known])
    following = ids[:, plan.word :, None]
    np.put_along_axis(d_known, following, np.take_along_axis(d_known, following, 2) - 1, 2)
    d_logits = np.zeros((*ids.shape, VOCABULARY))
    np.divide(d_known, len(ids) * (plan.length - plan.word), out=d_logits[:, known])

    d_qkv = np.zeros_like(values["qkv"])
    d_x = d_logits @ values["readout"].T
    for layer in reversed(range(LAYERS)):
        x, q, k, v, weight, y = tape[layer]
        d_x = d_x * (1 - y * y)
        d_scores = d_x @ v.swapaxes(1, 2)
        d_scores -= (d_scores * weight).sum(axis=2, keepdims=True)
        d_scores *= weight
        d_scores /= np.sqrt(WIDTH)
        for place, d_rows in enumerate((d_scores @ k, d_scores.swapaxes(1, 2) @ q, weight.swapaxes(1, 2) @ d_x)):
            d_qkv[layer, place] = _summed(x, d_rows)
            d_x = d_x + d_rows @ values["qkv"][layer, place].T
    cells = ids[..., None] * WIDTH + np.arange(WIDTH)
    summed: Floats = np.bincount(cells.ravel(), d_x.ravel(), VOCABULARY * WIDTH).astype(np.float64)  # np.add.at, but faster
    return {"embedding": summed.reshape(VOCABULARY, WIDTH), "qkv": d_qkv, "readout": _summed(states, d_logits)}


def _forward(values: dict[str, Floats], ids: Ints) -> tuple[Floats, Tape]:
    """States [b, n, d] of a causal full pass, and for each layer x, Q, K, V, weights and states."""
    n = ids.shape[1]
    x = values["embedding"][ids] + network.sinusoid(np.arange(n))
    hidden = np.where(network.visible(np.arange(n), np.arange(n)), 0.0, -np.inf)
    tape: Tape = []
    for layer in range(LAYERS):
        q, k, v = (x @ values["qkv"][layer, place] for place in range(3))
        scores = q @ k.swapaxes(1, 2)
        scores /= np.sqrt(WIDTH)
        scores += hidden
        weight = _softmax(scores)
        y = weight @ v
        y += x
        np.tanh(y, out=y)
        tape.append((x, q, k, v, weight, y))
        x = y
    return x, tape


def _softmax(scores: Floats) -> Floats:
    """Over the last axis, in place."""
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    return scores


def _summed(left: Floats, right: Floats) -> Floats:
    """Outer products of rows [b, n, l] and [b, n, r], summed over all rows [l, r]."""
    product: Floats = left.reshape(-1, left.shape[2]).T @ right.reshape(-1, right.shape[2])
    return product
