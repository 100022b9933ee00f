"""05's trained network saying words: greedy decoding of many words side by side; every close call is decided again exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.softmax import through
from audit.teaching import EMPTY, WIDTH, Cache, Network, place

Floats = NDArray[np.float64]
MARGIN = 1e-9
"""Largest and second largest logit closer than this: the word is decoded again by correctly rounded sums."""


def decode(words: NDArray[Any], steps: int, embedding: Floats, qkv: Floats, readout: Floats, reset: bool) -> list[list[int]]:
    """`steps` ids behind each word [word][token]; `reset`: every input behind the word stands at position 0."""
    count, length = words.shape
    keys: list[list[Floats]] = [[] for _ in qkv]
    values: list[list[Floats]] = [[] for _ in qkv]
    said: list[NDArray[Any]] = []
    close = np.zeros(count, bool)
    for step in range(length + steps - 1):
        ids = words[:, step] if step < length else said[-1]
        state = embedding[ids] + np.array(place(0 if reset and step >= length else step))
        for layer, (to_query, to_key, to_value) in enumerate(qkv):
            keys[layer].append(through(state, to_key))
            values[layer].append(through(state, to_value))
            query = through(state, to_query)
            scores = np.stack([(query * key).sum(axis=1) for key in keys[layer]], axis=1) / math.sqrt(WIDTH)
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed = sum(shares[:, at, None] * value for at, value in enumerate(values[layer]))
            state = np.tanh(state + mixed / shares.sum(axis=1, keepdims=True))
        if step >= length - 1:
            logits = through(state, readout)
            ordered = np.sort(logits, axis=1)
            close |= ordered[:, -1] - ordered[:, -2] < MARGIN
            said.append(logits.argmax(axis=1))
    result: list[list[int]] = np.stack(said, axis=1).tolist()
    own = Network(embedding, qkv)
    for word in np.flatnonzero(close):
        result[word] = exactly(own, readout, words[word].tolist(), steps, reset)
    return result


def exactly(own: Network, readout: Floats, word: Sequence[int], steps: int, reset: bool) -> list[int]:
    """The same of one word, by exact sums."""
    columns = readout.T.tolist()
    cache: Cache = EMPTY
    given, said = list(word), list[int]()
    for _ in range(steps):
        step = own.run(given, cache, input_positions=[0] if reset and said else None)
        logits = [math.fsum(x * y for x, y in zip(step.states[-1], column, strict=True)) for column in columns]
        said.append(logits.index(max(logits)))
        cache, given = step.cache, said[-1:]
    return said


def shares(words: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> dict[str, float]:
    """Ids that are the word's; ids equal to the one before; words that end in a loop of one to four over their last eight ids."""
    total = sum(map(len, said))
    right = sum(one == word[at % len(word)] for word, ids in zip(words, said, strict=True) for at, one in enumerate(ids))
    again = sum(one == before for word, ids in zip(words, said, strict=True) for before, one in zip([word[-1], *ids], ids, strict=False))
    loops = sum(any(ids[-8:][period:] == ids[-8:][:-period] for period in range(1, 5)) for ids in map(list, said))
    return {"right_share": right / total, "repeat_share": again / total, "loop_share": loops / len(said)}
