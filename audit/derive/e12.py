"""12: the network of two heads under four position rules by loops and correctly rounded sums; rounded positions by integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.study import Derived, Study

WIDTH, HEADS, LAYERS = 16, 2, 2
HALF = WIDTH // HEADS
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
Row = tuple[float, ...]
Heads = tuple[Row, ...]  # one row a head


def derive(study: Study) -> Iterator[Derived]:
    models = {seed: Model.of_seed(seed) for seed in study.seeds}
    functions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "shifts": lambda row: shifts(study, models[row["seed"]], row),
        "contexts": lambda row: contexts(study, models[row["seed"]], row),
        "padding": lambda row: padding(study, models[row["seed"]], row),
        "context_shift": lambda row: dropped(study, models[row["seed"]], row),
        "repeated": lambda row: repeated(study, row),
        "bf16_states": lambda row: bf16_states(study, models[row["seed"]], row),
    }
    for block, function in functions.items():
        rows, chosen = study.rows(block), study.chosen(block)
        found = [function(rows[number]) for number in chosen]
        yield Derived(block, chosen, {name: np.array([one[name] for one in found]) for name in found[0]})
    yield bf16(study)
    yield trained(study)


@dataclass(frozen=True)
class Past:
    """keys, values [layer][token][head]: rows of 8; positions [token]."""

    keys: tuple[tuple[Heads, ...], ...]
    values: tuple[tuple[Heads, ...], ...]
    positions: tuple[float, ...]

    def rows(self, start: int, stop: int) -> Past:
        return Past(tuple(k[start:stop] for k in self.keys), tuple(v[start:stop] for v in self.values), self.positions[start:stop])

    def before(self, other: Past) -> Past:
        keys = tuple(a + b for a, b in zip(self.keys, other.keys, strict=True))
        values = tuple(a + b for a, b in zip(self.values, other.values, strict=True))
        return Past(keys, values, self.positions + other.positions)

    def moved(self, rule: str, shift: int) -> Past:
        keys = self.keys
        if rule == "rope":
            keys = tuple(tuple(tuple(turned(head, shift) for head in token) for token in layer) for layer in keys)
        return Past(keys, self.values, tuple(at + shift for at in self.positions))


NOTHING = Past(((),) * LAYERS, ((),) * LAYERS, ())


def angles(width: int, position: float) -> list[float]:
    """One angle for each pair."""
    return [position / 10000.0 ** (2 * pair / width) for pair in range(width // 2)]


def turned(row: Row, position: float) -> Row:
    """Each pair of a head's row rotated."""
    result: list[float] = []
    for pair, angle in enumerate(angles(len(row), position)):
        a, b = row[2 * pair], row[2 * pair + 1]
        result += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
    return tuple(result)


@dataclass(frozen=True)
class Model:
    """embedding and table as rows; columns [layer][projection][column]."""

    embedding: list[list[float]]
    table: list[list[float]]
    columns: list[list[list[list[float]]]]

    @classmethod
    def of(cls, embedding: NDArray[Any], table: NDArray[Any], qkvo: NDArray[Any]) -> Model:
        return cls(embedding.tolist(), table.tolist(), np.swapaxes(qkvo, -1, -2).tolist())

    @classmethod
    def of_seed(cls, seed: int) -> Model:
        rng = np.random.default_rng([seed, 12])
        embedding, table = rng.normal(0, 0.3, (32, WIDTH)), rng.normal(0, 0.3, (128, WIDTH))
        return cls.of(embedding, table, np.array([[rng.normal(0, 0.25, (WIDTH, WIDTH)) for _ in range(4)] for _ in range(LAYERS)]))

    def run(
        self, rule: str, ids: Sequence[int], places: Sequence[float], past: Past = NOTHING, blind: Sequence[int] = ()
    ) -> tuple[list[list[Row]], Past]:
        """States [layer][token] of ids at places behind a past, and the past with them. blind: new tokens that nobody sees."""
        states = [self._input(rule, token, at) for token, at in zip(ids, places, strict=True)]
        where = past.positions + tuple(places)
        old = len(past.positions)
        layers, all_keys, all_values = [], [], []
        for layer, columns in enumerate(self.columns):
            asked, keys, values = ([heads(through(row, columns[p])) for row in states] for p in range(3))
            if rule == "rope":
                asked = [tuple(turned(head, at) for head in token) for token, at in zip(asked, places, strict=True)]
                keys = [tuple(turned(head, at) for head in token) for token, at in zip(keys, places, strict=True)]
            held, worth = past.keys[layer] + tuple(keys), past.values[layer] + tuple(values)
            after = []
            for number, (row, query) in enumerate(zip(states, asked, strict=True)):
                seen = [m for m in range(old + number + 1) if m < old or m - old not in blind]
                mixed: list[float] = []
                for head in range(HEADS):
                    slope = 2.0 ** (-8.0 * (head + 1) / HEADS) if rule == "alibi" else 0.0
                    scores = [
                        math.fsum(map(mul, query[head], held[m][head])) / math.sqrt(HALF) - slope * (places[number] - where[m])
                        for m in seen
                    ]
                    top = max(scores, default=0.0)
                    shares = [math.exp(score - top) for score in scores]
                    total = math.fsum(shares) or 1.0
                    mixed += [
                        math.fsum(share * worth[m][head][i] for share, m in zip(shares, seen, strict=True)) / total for i in range(HALF)
                    ]
                after.append(tuple(math.tanh(a + b) for a, b in zip(row, through(tuple(mixed), columns[3]), strict=True)))
            states = after
            layers.append(states)
            all_keys.append(held)
            all_values.append(worth)
        return layers, Past(tuple(all_keys), tuple(all_values), where)

    def _input(self, rule: str, token: int, at: float) -> Row:
        row = self.embedding[token]
        if rule == "learned":
            return tuple(a + b for a, b in zip(row, self.table[int(at)], strict=True))
        if rule == "sinusoidal":
            waves = [wave(angle) for angle in angles(WIDTH, at) for wave in (math.sin, math.cos)]
            return tuple(a + b for a, b in zip(row, waves, strict=True))
        return tuple(row)

    def score(self, state: Row, target: int) -> float:
        """Log-probability of an id after a state."""
        logits = [math.fsum(map(mul, state, row)) for row in self.embedding]
        top = max(logits)
        return logits[target] - top - math.log(math.fsum(math.exp(logit - top) for logit in logits))


def through(row: Row, columns: list[list[float]]) -> Row:
    """A row times a matrix given by its columns."""
    return tuple(math.fsum(map(mul, row, column)) for column in columns)


def heads(row: Row) -> Heads:
    """A row cut into its heads."""
    return tuple(row[head * HALF : (head + 1) * HALF] for head in range(HEADS))


def walk(count: int, step: int, start: int) -> list[int]:
    """Ids (step i + start) mod 32."""
    return [(step * i + start) % 32 for i in range(count)]


def shifts(study: Study, model: Model, row: dict[str, Any]) -> dict[str, Any]:
    segment, query = walk(study.settings["segment"], 7, 3), walk(study.settings["query"], 11, 5)
    rule, shift, n = row["rule"], row["shift"], len(segment)
    places = [shift + i for i in range(n + len(query))]
    fresh, _ = model.run(rule, segment + query, places)
    _, cache = model.run(rule, segment, list(range(n)))
    if row["handling"] == "realigned":
        cache = cache.moved(rule, shift)
    reuse, _ = model.run(rule, query, places[n:], cache)
    return {"fresh": [layer[-1] for layer in fresh], "reuse": [layer[-1] for layer in reuse]}


def contexts(study: Study, model: Model, row: dict[str, Any]) -> dict[str, Any]:
    segment, query = walk(study.settings["segment"], 7, 3), walk(study.settings["query"], 11, 5)
    left = walk(study.settings["left"], 3, 1)
    other = [(i + 13) % 32 for i in left]
    rule, shift, a, n = row["rule"], row["moved"], len(left), len(segment)
    places = [shift + i for i in range(a + n + len(query))]
    fresh, true = model.run(rule, other + segment + query, places)
    result: dict[str, Any] = {"fresh_one": fresh[0][-1], "fresh_two": fresh[1][-1], "keys_fresh": true.keys[1][a : a + n]}
    for name, before, start in (("total", left, 0), ("position", other, 0), ("context", left, shift)):
        _, cache = model.run(rule, before + segment, [start + i for i in range(a + n)])
        part = cache.rows(a, a + n)
        if row["handling"] == "realigned":
            part = part.moved(rule, shift - start)
        if name == "total":
            result["keys_reused"] = part.keys[1]
        states, _ = model.run(rule, query, places[a + n :], true.rows(0, a).before(part))
        result |= {f"{name}_one": states[0][-1], f"{name}_two": states[1][-1]}
    return result


def padding(study: Study, model: Model, row: dict[str, Any]) -> dict[str, Any]:
    spec = study.settings["padding"]
    ids, pads = walk(spec["length"], 7, 3), spec["pads"]
    fresh, _ = model.run(row["rule"], ids, list(range(len(ids))))
    places = [i if row["numbering"] == "slot" else max(i - pads, 0) for i in range(pads + len(ids))]
    padded, _ = model.run(row["rule"], [0] * pads + ids, places, blind=range(pads))
    return {"fresh": fresh[-1][-1], "padded": padded[-1][-1]}


def dropped(study: Study, model: Model, row: dict[str, Any]) -> dict[str, Any]:
    spec = study.settings["context_shift"]
    ids = walk(spec["length"], 7, 3)
    gone = 0 if row["kept"] == "all" else spec["dropped"]
    length = len(ids) - gone
    cache = model.run("rope", ids, list(range(len(ids))))[1].rows(gone, len(ids))
    if row["kept"] == "realigned":
        cache = cache.moved("rope", -gone)
    kept, _ = model.run("rope", [9], [length], cache)
    built, _ = model.run("rope", [9], [length], model.run("rope", ids[gone:], list(range(length)))[1])
    return {"built_one": built[0][-1], "built_two": built[1][-1], "kept_one": kept[0][-1], "kept_two": kept[1][-1]}


def kept_as(row: Row, precision: str) -> Row:
    """A head's key as few bits give it back."""
    if precision == "float16":
        return tuple(float(np.float16(value)) for value in row)
    scale = max(map(abs, row)) / 7
    return tuple(max(-7, min(7, round(value / scale))) * scale for value in row)  # Python rounds halves to even


def repeated(study: Study, row: dict[str, Any]) -> dict[str, Any]:
    spec, precision = study.settings["repeated"], row["precision"]
    keys = np.random.default_rng([row["seed"], spec["stream"]]).normal(size=(spec["keys"], HEADS, HALF)).tolist()
    steps = [-1] * spec["shift"] if row["way"] == "in_steps" else [-spec["shift"]]
    exact: list[list[Row]] = []
    kept: list[list[Row]] = []
    for token in keys:
        exact.append([turned(tuple(head), -spec["shift"]) for head in token])
        kept.append([])
        for head in token:
            now = tuple(head)
            for step in steps:
                now = kept_as(turned(kept_as(now, precision), step), precision)
            kept[-1].append(now)
    return {"exact": exact, "kept": kept}


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


def bf16_states(study: Study, model: Model, row: dict[str, Any]) -> dict[str, Any]:
    ids = walk(study.settings["bf16"]["length"], 7, 3)
    places = [row["start"] + i for i in range(len(ids))]
    return {
        "fresh": model.run("rope", ids, places)[0][-1][-1],
        "rounded": model.run("rope", ids, [to_bf16(place) for place in places])[0][-1][-1],
    }


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


def trained(study: Study) -> Derived:
    """Scores by the stored weights."""
    chosen, rows = study.chosen("trained"), study.rows("trained")
    spec, check = study.settings["training"], study.settings["evaluation"]
    names = ("ids", "full", "training_path", "aligned", "misaligned")
    arrays: dict[str, list[Any]] = {name: [] for name in names}
    for number in chosen:
        seed, rule = rows[number]["seed"], rows[number]["rule"]
        model = Model.of(*(study.read("models", name, [number])[0] for name in ("embedding", "table", "qkvo")))
        ids = drawn(spec, seed, check["stream"], check["sequences"], spec["length"] + 1)
        cached, places = check["cached"], list(range(spec["length"]))
        scores: dict[str, list[list[float]]] = {"full": [], "aligned": [], "misaligned": []}
        for one in ids:
            front, rest, targets = one[:cached], one[cached:-1], one[cached + 1 :]
            whole, _ = model.run(rule, one[:-1], places)
            cache = model.run(rule, front, places[:cached])[1]
            wrong = cache.moved(rule, -check["shift"])
            if rule in ("learned", "sinusoidal"):
                wrong = model.run(rule, front, places[:cached][::-1])[1]
            behind = {
                "full": whole[-1][cached:],
                "aligned": model.run(rule, rest, places[cached:], cache)[0][-1],
                "misaligned": model.run(rule, rest, places[cached:], wrong)[0][-1],
            }
            for name, states in behind.items():
                scores[name].append([model.score(state, target) for state, target in zip(states, targets, strict=True)])
        arrays["ids"].append(ids)
        for name in ("full", "aligned", "misaligned"):
            arrays[name].append(scores[name])
        arrays["training_path"].append(scores["full"])
    return Derived("trained", chosen, {name: np.array(v, np.int8 if name == "ids" else np.float64) for name, v in arrays.items()})
