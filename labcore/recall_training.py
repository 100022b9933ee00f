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
    logits = states @ values["readout"]
    d_logits = np.exp(logits - logits.max(axis=2, keepdims=True))
    d_logits /= d_logits.sum(axis=2, keepdims=True)
    np.put_along_axis(d_logits[:, :-1], ids[:, 1:, None], np.take_along_axis(d_logits[:, :-1], ids[:, 1:, None], 2) - 1, 2)
    d_logits[:, : plan.word - 1] = d_logits[:, -1:] = 0  # nothing known yet, and nothing behind the last
    d_logits /= len(ids) * (plan.length - plan.word)

    d_qkv, d_embedding = np.zeros_like(values["qkv"]), np.zeros_like(values["embedding"])
    d_x = d_logits @ values["readout"].T
    for layer in reversed(range(LAYERS)):
        x, q, k, v, weight, y = tape[layer]
        d_x = d_x * (1 - y * y)
        d_weight = d_x @ v.swapaxes(1, 2)
        d_scores = weight * (d_weight - (d_weight * weight).sum(axis=2, keepdims=True)) / np.sqrt(WIDTH)
        for place, d_rows in enumerate((d_scores @ k, d_scores.swapaxes(1, 2) @ q, weight.swapaxes(1, 2) @ d_x)):
            d_qkv[layer, place] = np.tensordot(x, d_rows, ([0, 1], [0, 1]))
            d_x = d_x + d_rows @ values["qkv"][layer, place].T
    np.add.at(d_embedding, ids, d_x)
    return {"embedding": d_embedding, "qkv": d_qkv, "readout": np.tensordot(states, d_logits, ([0, 1], [0, 1]))}


def _forward(values: dict[str, Floats], ids: Ints) -> tuple[Floats, Tape]:
    """States [b, n, d] of a causal full pass, and for each layer x, Q, K, V, weights and states."""
    n = ids.shape[1]
    x = values["embedding"][ids] + network.sinusoid(np.arange(n))
    hidden = np.where(network.visible(np.arange(n), np.arange(n)), 0.0, -np.inf)
    tape: Tape = []
    for layer in range(LAYERS):
        q, k, v = (x @ values["qkv"][layer, place] for place in range(3))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH) + hidden
        weight = np.exp(scores - scores.max(axis=2, keepdims=True))
        weight /= weight.sum(axis=2, keepdims=True)
        y = np.tanh(x + weight @ v)
        tape.append((x, q, k, v, weight, y))
        x = y
    return x, tape
