"""Battery power: which rule fired, decided again from the stored values and limits; the specimens computed again from their inputs.

The values themselves are the battery's measurements and given: to measure them again would be to run the battery. What is decided here
follows from them alone. A specimen's output is derived in plain loops from what the fault does: a row of minus infinity gives NaN; NaN
behind the written slots reaches everything; a mask anchored top left shows query i the keys 0 to i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.study import Derived, Study

Array = NDArray[Any]
VARIANTS = 3
NOTHING, BROKE = 255, 253
CLOSE = 1e-12
WHY = "softmax over at most seven scores below 20 and a mean of values below 5: two orders of summation differ by less than 1e-14"
BOUNDS = {"specimens/output": (CLOSE, WHY), "specimens/textbook": (CLOSE, WHY)}
MEASURED = "measured by the battery; the decisions that follow from it are derived"
GIVEN = {f"{interface}/{name}": MEASURED for interface in ("attention", "cache", "pool") for name in ("value", "limit")}


def derive(study: Study) -> Iterator[Derived]:
    """Blocks matrix and specimens."""
    yield matrix(study)
    yield from specimens(study)


def matrix(study: Study) -> Derived:
    """Counts of seeds by rule: a rule fires where its value exceeds its limit."""
    rules, faults, right = study.settings["rules"], study.settings["faults"], study.settings["right"]
    names = [rule for interface in rules for rule in rules[interface]]
    fired, reasons = [], []
    counts: dict[str, list[int]] = {
        name: [] for name in ("seeds", "seeds_fired", "seeds_right", "seeds_broken", "rules_fired", "rules_applied")
    }
    values = {interface: study.read(interface, "value") for interface in rules}
    limits = {interface: study.read(interface, "limit") for interface in rules}
    for row, factors in enumerate(study.rows("matrix")):
        fault = factors["fault"]
        interface = next(name for name in faults if fault in faults[name])
        number, variant = faults[interface].index(fault), row % VARIANTS
        value, limit = values[interface][number, variant], limits[interface][number, variant]
        line = dict.fromkeys(names, -1)
        hits: dict[str, set[int]] = {}
        for column, rule in enumerate(rules[interface]):
            hits[rule] = {seed for seed in range(len(value)) if above(int(value[seed, column]), int(limit[seed, column]))}
            if any(code != NOTHING for code in limit[:, column].tolist()):
                line[rule] = len(hits[rule])
        fired.append([line[rule] for rule in names])
        reasons.append([int(rule in right[fault]) for rule in names])
        counts["seeds"].append(len(value))
        counts["seeds_fired"].append(len(set().union(*hits.values())))
        counts["seeds_right"].append(len(set().union(*(hits[rule] for rule in right[fault]))))
        counts["seeds_broken"].append(sum(BROKE in codes for codes in value.tolist()))
        counts["rules_fired"].append(sum(bool(seeds) for seeds in hits.values()))
        counts["rules_applied"].append(sum(line[rule] >= 0 for rule in rules[interface]))
    return Derived("matrix", None, {"fired": np.array(fired, np.int32), "right": np.array(reasons, np.uint8)}, counts=counts)


def above(value: int, limit: int) -> bool:
    """Whether a value's code exceeds its limit's. Codes grow with the number: 0 is zero, 254 infinite; two more stand for none."""
    return limit != NOTHING and value not in (NOTHING, BROKE) and value > limit


def specimens(study: Study) -> Iterator[Derived]:
    """Inputs drawn again, outputs computed again."""
    shape = study.settings["specimen"]
    n, m, width = shape["queries"], shape["keys"], shape["width"]
    names = study.protocol["factors"]["specimen"]
    for row in study.chosen("specimens"):
        factors = study.rows("specimens")[row]
        name, faulty = factors["specimen"], factors["twin"] == "faulty"
        rng = np.random.default_rng([study.settings["specimen_seed"], names.index(name)])
        q = rng.standard_normal((shape["heads"], n, width))
        k = rng.standard_normal((shape["groups"], m, width))
        v = rng.standard_normal((shape["groups"], m, width))
        written = shape["written"] if name == "unwritten" else m
        seen = [[key <= written - n + i and not (name == "no_key" and i == 1) for key in range(m)] for i in range(n)]
        right = attention(q, k, v, seen)
        out = right
        if faulty and name == "corner":
            out = attention(q, k, v, [[key <= i for key in range(m)] for i in range(n)])
        elif faulty and name == "no_key":
            out = right.copy()
            out[:, 1] = math.nan
        elif faulty:
            out = np.full_like(right, math.nan)
        k[:, written:], v[:, written:] = math.nan, math.nan
        arrays: dict[str, Array] = {"q": q, "k": k, "v": v, "allowed": np.array(seen, np.uint8), "output": out, "textbook": right}
        yield Derived("specimens", [row], {key: array[None] for key, array in arrays.items()})


def attention(q: Array, k: Array, v: Array, seen: list[list[bool]]) -> Array:
    """One head, one query, one number at a time; zeros where a query sees nothing."""
    heads, n, width = q.shape
    out = np.zeros(q.shape)
    for head in range(heads):
        group = head * len(k) // heads
        for i in range(n):
            keys = [key for key in range(k.shape[1]) if seen[i][key]]
            scores = [math.fsum(q[head, i, c] * k[group, key, c] for c in range(width)) / math.sqrt(width) for key in keys]
            top = max(scores, default=0.0)
            shares = [math.exp(score - top) for score in scores]
            for c in range(width):
                if keys:
                    terms = (share * v[group, key, c] for share, key in zip(shares, keys, strict=True))
                    out[head, i, c] = math.fsum(terms) / math.fsum(shares)
    return out
