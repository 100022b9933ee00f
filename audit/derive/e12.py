"""12: the network of two heads under four position rules, many cases side by side by plain sums; rounded positions by integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.codes import half_even
from audit.softmax import through
from audit.study import Derived, Study

WIDTH, HEADS, LAYERS = 16, 2, 2
HALF = WIDTH // HEADS
SIDE = 64
"""Cases that are computed side by side; they agree in the factor that a function's rows must agree in."""
STATE = (1e-12, "float64 states of a network of the same size as FORMAT 8's, with one more product of 16 terms a layer")
SCORE = (1e-10, "log-probabilities of 32 ids from 16 products each; trained weights are up to ten times larger than drawn ones")
ROUNDED = (1e-9, "each of up to 64 roundings to few bits absorbs differences of an ulp; a rounding that falls otherwise would show as 1e-4")
COSINE = (1e-15, "two libraries' cosines")
BOUNDS = (
    {f"shifts/{name}": STATE for name in ("fresh", "reuse")}
    | {f"contexts/{name}_{layer}": STATE for name in ("fresh", "total", "position", "context") for layer in ("one", "two")}
    | {f"contexts/keys_{name}": STATE for name in ("fresh", "reused")}
    | {f"padding/{name}": STATE for name in ("fresh", "padded")}
    | {f"context_shift/{name}_{layer}": STATE for name in ("built", "kept") for layer in ("one", "two")}
    | {f"bf16_states/{name}": STATE for name in ("fresh", "rounded")}
    | {f"repeated/{name}": ROUNDED for name in ("exact", "kept")}
    | {f"bf16/{name}": COSINE for name in ("cosine", "cosine_bf16")}
    | {f"trained/{name}": SCORE for name in ("full", "training_path", "aligned", "misaligned")}
)
GIVEN = {f"models/{name}": "trained weights and their losses" for name in ("embedding", "table", "qkvo", "loss_curve")}
Floats = NDArray[np.float64]
Case = dict[str, Any]


def derive(study: Study) -> Iterator[Derived]:
    functions: dict[str, tuple[str, Callable[[Study, Model, list[Case]], dict[str, Any]]]] = {
        "shifts": ("rule", shifts),
        "contexts": ("rule", contexts),
        "padding": ("rule", padding),
        "context_shift": ("kept", dropped),
        "repeated": ("precision", repeated),
        "bf16_states": ("", bf16_states),
        "trained": ("rule", trained),
    }
    for block, (factor, function) in functions.items():
        factors, chosen = study.rows(block), study.chosen(block)
        alike: dict[Any, list[int]] = {}
        for row in chosen:
            alike.setdefault(factors[row].get(factor), []).append(row)
        sides = [rows[at : at + SIDE] for rows in alike.values() for at in range(0, len(rows), SIDE)]
        parts = []
        for rows in sides:
            cases = [factors[row] for row in rows]
            parts.append(function(study, Model.of_seeds([case["seed"] for case in cases]), cases))
        order = np.argsort([row for rows in sides for row in rows])
        yield Derived(block, chosen, {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]})
    yield bf16(study)


@dataclass(frozen=True)
class Past:
    """keys, values [layer][case, token, head, 8]; positions [case, token]."""

    keys: list[Floats]
    values: list[Floats]
    positions: NDArray[Any]

    def rows(self, start: int, stop: int) -> Past:
        return Past([k[:, start:stop] for k in self.keys], [v[:, start:stop] for v in self.values], self.positions[:, start:stop])

    def before(self, other: Past) -> Past:
        keys, values = (
            [np.concatenate(pair, 1) for pair in zip(*both, strict=True)] for both in ((self.keys, other.keys), (self.values, other.values))
        )
        return Past(keys, values, np.concatenate([self.positions, other.positions], 1))

    def moved(self, rule: str, by: NDArray[Any]) -> Past:
        """Shifted by so much in each case."""
        keys = [turned(layer, np.broadcast_to(by[:, None], self.positions.shape)) for layer in self.keys] if rule == "rope" else self.keys
        return Past(keys, self.values, self.positions + by[:, None])


def waves(width: int, positions: NDArray[Any]) -> tuple[Floats, Floats]:
    """Cosine and sine of one angle for each pair: [..., pair]."""
    places, which = np.unique(positions, return_inverse=True)
    angles = [[place / 10000.0 ** (2 * pair / width) for pair in range(width // 2)] for place in places.tolist()]
    cosine, sine = (
        np.array([[wave(angle) for angle in row] for row in angles])[which.reshape(positions.shape)] for wave in (math.cos, math.sin)
    )
    return cosine, sine


def turned(rows: Floats, positions: NDArray[Any]) -> Floats:
    """Each pair of the heads' rows [..., head, width] rotated; positions [...]."""
    cosine, sine = (wave[..., None, :] for wave in waves(rows.shape[-1], positions))
    a, b = rows[..., ::2], rows[..., 1::2]
    return np.stack([a * cosine - b * sine, a * sine + b * cosine], axis=-1).reshape(rows.shape)


@dataclass(frozen=True)
class Model:
    """A network for each case: embedding and table [case, row, 16], qkvo [case, layer, projection, 16, 16]."""

    embedding: Floats
    table: Floats
    qkvo: Floats

    @classmethod
    def of_seeds(cls, seeds: Sequence[int]) -> Model:
        """The network of each seed."""
        drawn = {}
        for seed in dict.fromkeys(seeds):
            rng = np.random.default_rng([seed, 12])
            embedding, table = rng.normal(0, 0.3, (32, WIDTH)), rng.normal(0, 0.3, (128, WIDTH))
            drawn[seed] = embedding, table, [[rng.normal(0, 0.25, (WIDTH, WIDTH)) for _ in range(4)] for _ in range(LAYERS)]
        return cls(*(np.array([drawn[seed][part] for seed in seeds]) for part in range(3)))

    def run(self, rule: str, ids: Any, places: Any, past: Past | None = None, blind: int = 0) -> tuple[list[Floats], Past]:
        """States [layer][case, token, 16] of ids at places [case, token] behind a past, and the past with them.

        ids of one case serve all. blind: so many new tokens, the first ones, that nobody sees.
        """
        places = np.asarray(places)
        count, length = places.shape
        state = self._input(rule, np.broadcast_to(np.asarray(ids), places.shape), places)
        where = places if past is None else np.concatenate([past.positions, places], 1)
        old = where.shape[1] - length
        number = np.arange(old + length)
        seen = (number <= old + np.arange(length)[:, None]) & ((number < old) | (number >= old + blind))
        slopes = np.array([2.0 ** (-8.0 * (head + 1) / HEADS) for head in range(HEADS)])[:, None, None]
        states, all_keys, all_values = [], [], []
        for layer in range(LAYERS):
            to = self.qkvo[:, layer]
            query, keys, values = (through(state, to[:, p]).reshape(count, length, HEADS, HALF) for p in range(3))
            if rule == "rope":
                query, keys = turned(query, places), turned(keys, places)
            if past is not None:
                keys, values = np.concatenate([past.keys[layer], keys], 1), np.concatenate([past.values[layer], values], 1)
            scores = np.einsum("cthi,cmhi->chtm", query, keys) / math.sqrt(HALF)
            if rule == "alibi":
                scores -= slopes * (places[:, None, :, None] - where[:, None, None, :])
            scores[..., ~seen] = -np.inf
            top = scores.max(axis=-1, keepdims=True)
            shares = np.exp(scores - np.where(np.isneginf(top), 0.0, top))  # who sees nobody has no shares
            total = shares.sum(axis=-1, keepdims=True)
            mixed = np.einsum("chtm,cmhi->cthi", shares / np.where(total == 0, 1.0, total), values)
            state = np.tanh(state + through(mixed.reshape(count, length, WIDTH), to[:, 3]))
            states.append(state)
            all_keys.append(keys)
            all_values.append(values)
        return states, Past(all_keys, all_values, where)

    def _input(self, rule: str, ids: NDArray[Any], places: NDArray[Any]) -> Floats:
        case = np.arange(len(ids))[:, None]
        rows: Floats = self.embedding[case, ids]
        if rule == "learned":
            rows = rows + self.table[case, places]
        if rule == "sinusoidal":
            cosine, sine = waves(WIDTH, places)
            rows = rows + np.stack([sine, cosine], axis=-1).reshape(rows.shape)
        return rows

    def score(self, states: Floats, targets: NDArray[Any]) -> Floats:
        """Log-probability of the ids [case, token] after states [case, token, 16]."""
        logits = through(states, self.embedding.swapaxes(1, 2))
        logits -= logits.max(axis=-1, keepdims=True)
        return np.asarray(np.take_along_axis(logits, targets[..., None], -1)[..., 0] - np.log(np.exp(logits).sum(axis=-1)))


def walk(count: int, step: int, start: int) -> list[int]:
    """Ids (step i + start) mod 32."""
    return [(step * i + start) % 32 for i in range(count)]


def column(cases: list[Case], name: str) -> NDArray[Any]:
    """A factor of each case."""
    return np.array([case[name] for case in cases])


def from_here(start: NDArray[Any], length: int) -> NDArray[Any]:
    """Positions start, start + 1, ... of each case."""
    return start[:, None] + np.arange(length)


def shifts(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    segment, query = walk(study.settings["segment"], 7, 3), walk(study.settings["query"], 11, 5)
    rule, shift, n = cases[0]["rule"], column(cases, "shift"), len(segment)
    places = from_here(shift, n + len(query))
    fresh, _ = model.run(rule, segment + query, places)
    _, cache = model.run(rule, segment, from_here(0 * shift, n))
    cache = cache.moved(rule, np.where(column(cases, "handling") == "realigned", shift, 0))
    reuse, _ = model.run(rule, query, places[:, n:], cache)
    return {name: np.stack([layer[:, -1] for layer in states], 1) for name, states in (("fresh", fresh), ("reuse", reuse))}


def contexts(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    segment, query = walk(study.settings["segment"], 7, 3), walk(study.settings["query"], 11, 5)
    left = walk(study.settings["left"], 3, 1)
    other = [(i + 13) % 32 for i in left]
    rule, shift, a, n = cases[0]["rule"], column(cases, "moved"), len(left), len(segment)
    places = from_here(shift, a + n + len(query))
    fresh, true = model.run(rule, other + segment + query, places)
    result = {"fresh_one": fresh[0][:, -1], "fresh_two": fresh[1][:, -1], "keys_fresh": true.keys[1][:, a : a + n]}
    for name, before, start in (("total", left, 0 * shift), ("position", other, 0 * shift), ("context", left, shift)):
        _, cache = model.run(rule, before + segment, from_here(start, a + n))
        part = cache.rows(a, a + n).moved(rule, np.where(column(cases, "handling") == "realigned", shift - start, 0))
        if name == "total":
            result["keys_reused"] = part.keys[1]
        states, _ = model.run(rule, query, places[:, a + n :], true.rows(0, a).before(part))
        result |= {f"{name}_one": states[0][:, -1], f"{name}_two": states[1][:, -1]}
    return result


def padding(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    spec = study.settings["padding"]
    ids, pads = walk(spec["length"], 7, 3), spec["pads"]
    rule, none = cases[0]["rule"], np.zeros(len(cases), int)
    fresh, _ = model.run(rule, ids, from_here(none, len(ids)))
    slots = np.where(column(cases, "numbering") == "slot", 0, -pads)
    padded, _ = model.run(rule, [0] * pads + ids, np.maximum(from_here(slots, pads + len(ids)), 0), blind=pads)
    return {"fresh": fresh[-1][:, -1], "padded": padded[-1][:, -1]}


def dropped(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    spec, kept_how = study.settings["context_shift"], cases[0]["kept"]
    ids = walk(spec["length"], 7, 3)
    gone = 0 if kept_how == "all" else spec["dropped"]
    none = np.zeros(len(cases), int)
    last = none[:, None] + len(ids) - gone
    cache = model.run("rope", ids, from_here(none, len(ids)))[1].rows(gone, len(ids))
    if kept_how == "realigned":
        cache = cache.moved("rope", none - gone)
    kept, _ = model.run("rope", [9], last, cache)
    built, _ = model.run("rope", [9], last, model.run("rope", ids[gone:], from_here(none, len(ids) - gone))[1])
    return {"built_one": built[0][:, -1], "built_two": built[1][:, -1], "kept_one": kept[0][:, -1], "kept_two": kept[1][:, -1]}


def kept_as(rows: Floats, precision: str) -> Floats:
    """Heads' keys as few bits give them back."""
    if precision == "float16":
        return rows.astype(np.float16).astype(np.float64)
    scale = np.abs(rows).max(axis=-1, keepdims=True) / 7
    return np.asarray(np.clip(half_even(rows / scale), -7, 7) * scale)


def repeated(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    spec = study.settings["repeated"]
    size = spec["keys"], HEADS, HALF
    keys = np.array([np.random.default_rng([case["seed"], spec["stream"]]).normal(size=size) for case in cases])
    in_steps = column(cases, "way") == "in_steps"
    steps = np.where(in_steps, -1, -spec["shift"])
    now = keys
    for number in range(spec["shift"]):
        after = kept_as(turned(kept_as(now, cases[0]["precision"]), np.broadcast_to(steps[:, None], now.shape[:2])), cases[0]["precision"])
        now = np.where((in_steps | (number == 0))[:, None, None, None], after, now)
    return {"exact": turned(keys, np.full(keys.shape[:2], -spec["shift"])), "kept": now}


def to_bf16(value: int) -> int:
    """An integer rounded to eight significant bits, halves to even."""
    drop = max(0, value.bit_length() - 8)
    whole, rest = divmod(value, 1 << drop)
    half = (1 << drop) / 2
    return (whole + (drop > 0 and (rest > half or (rest == half and whole % 2 == 1)))) << drop


def bf16(study: Study) -> Derived:
    spec = study.settings["bf16"]
    rounded = [to_bf16(place) for place in range(spec["places"])]
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in rounded]
    arrays = {
        "place": np.array([bits], np.uint16),
        "cosine": np.array([[math.cos(place) for place in range(spec["places"])]]),
        "cosine_bf16": np.array([[math.cos(value) for value in rounded]]),
    }
    first = next(place for place, value in enumerate(rounded) if place != value)
    counts = {"places_apart": [len(set(rounded))], "first_wrong": [first], "far_rounded": [to_bf16(spec["far"])]}
    return Derived("bf16", study.chosen("bf16"), arrays, counts=counts)


def bf16_states(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    ids = walk(study.settings["bf16"]["length"], 7, 3)
    places = from_here(column(cases, "start"), len(ids))
    rounded = np.array([[to_bf16(place) for place in row] for row in places.tolist()])
    return {"fresh": model.run("rope", ids, places)[0][-1][:, -1], "rounded": model.run("rope", ids, rounded)[0][-1][:, -1]}


def drawn(spec: dict[str, Any], seed: int, stream: int, count: int, length: int) -> list[list[int]]:
    """Held-out sequences: an id of the recent ones again, or any."""
    rng = np.random.default_rng([seed, 12, stream])
    ids: list[list[int]] = rng.integers(0, 32, (count, length)).tolist()
    back = rng.integers(1, spec["recent"] + 1, (count, length)).tolist()
    chance = rng.random((count, length)).tolist()
    for row, ago, luck in zip(ids, back, chance, strict=True):
        for i in range(spec["recent"], length):
            if luck[i] < spec["copy"]:
                row[i] = row[i - ago[i]]
    return ids


def trained(study: Study, model: Model, cases: list[Case]) -> dict[str, Any]:
    """Scores by the stored weights."""
    spec, check, rule = study.settings["training"], study.settings["evaluation"], cases[0]["rule"]
    cached, count = check["cached"], check["sequences"]
    rows = [study.rows("models").index(case) for case in cases]
    model = Model(*(np.repeat(study.decoded("models", name, rows), count, axis=0) for name in ("embedding", "table", "qkvo")))
    ids = np.array([drawn(spec, case["seed"], check["stream"], count, spec["length"] + 1) for case in cases])
    one = ids.reshape(len(cases) * count, -1)
    places = from_here(np.zeros(len(one), int), spec["length"])
    whole, _ = model.run(rule, one[:, :-1], places)
    _, cache = model.run(rule, one[:, :cached], places[:, :cached])
    wrong = cache.moved(rule, np.full(len(one), -check["shift"]))
    if rule in ("learned", "sinusoidal"):
        _, wrong = model.run(rule, one[:, :cached], places[:, :cached][:, ::-1])
    behind = {
        "full": whole[-1][:, cached:],
        "aligned": model.run(rule, one[:, cached:-1], places[:, cached:], cache)[0][-1],
        "misaligned": model.run(rule, one[:, cached:-1], places[:, cached:], wrong)[0][-1],
    }
    scores = {name: model.score(states, one[:, cached + 1 :]).reshape(len(cases), count, -1) for name, states in behind.items()}
    return {"ids": ids.astype(np.int8), "training_path": scores["full"], **scores}
