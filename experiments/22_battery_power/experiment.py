"""The battery on all variants of the 24 public faults, and three specimens of small attention faults in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.batch import Batch
from labcore.battery.adapters.attention_faults import NoKeyUnguarded, ReadsUnwritten, TopLeft
from labcore.battery.interfaces import View
from labcore.battery.power import BROKEN, FAULTS, INTERFACE, VARIANTS, Seen, matrix, rules
from labcore.battery.reference_attention import ReferenceAttention
from labcore.battery.views import textbook
from labcore.protocol import Protocol

NOTHING, INFINITE, BROKE, TOP = 255, 254, 253, 252


def code_of(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Values and limits in a byte: 0 is zero, c from 1 to 252 the nearest 2 ** ((c - 181) / 3), 2**-60 and below to 2**23.67 and above.

    253: the system broke. 254: infinite (NaN where there was a number). 255: nothing measured.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        code = np.clip(np.round(3 * np.log2(values)) + 181, 1, TOP)
    code = np.where(values == 0, 0, np.where(np.isinf(values), INFINITE, np.where(values == BROKEN, BROKE, code)))
    return np.where(np.isnan(values), NOTHING, code).astype(np.uint8)


def decide(variant: str, seen: Seen, value: NDArray[np.uint8], limit: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which rule fired on which seed [seed, rule]: the value's code above the limit's. On twins and controls the numbers must agree."""
    with np.errstate(invalid="ignore"):
        measured = seen.value > seen.limit
    coded = (limit != NOTHING) & (value != NOTHING) & (value != BROKE) & (value > limit)
    if variant != "faulty" and not np.array_equal(measured, coded):
        raise ValueError(f"{int((measured != coded).sum())} values of the {variant} variant change sides of their limit when stored")
    return np.asarray(coded)


def batches(protocol: Protocol) -> Iterator[Batch]:
    """Blocks attention, cache, pool: values [fault, variant, seed, rule]; matrix: their reductions; specimens."""
    s = protocol.settings
    check_settings(protocol)
    columns = [(interface, rule) for interface in s["rules"] for rule in s["rules"][interface]]
    held: dict[str, dict[str, list[Any]]] = {i: {"value": [], "limit": []} for i in s["rules"]}
    fired, right = [], []
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["matrix"].counts}
    for fault, variant, seen in matrix(protocol.seeds, protocol.values("fault")):
        interface = INTERFACE[fault]
        value, limit = code_of(seen.value), code_of(seen.limit)
        held[interface]["value"].append(value)
        held[interface]["limit"].append(limit)
        hit = decide(variant, seen, value, limit)
        own = np.array([i == interface for i, _ in columns])
        applies, reasons = (limit != NOTHING).any(axis=0), np.array([rule in s["right"][fault] for _, rule in columns])
        row = np.full(len(columns), -1)
        row[own] = np.where(applies, hit.sum(axis=0), -1)
        fired.append(row)
        right.append(reasons)
        counts["seeds"].append(len(protocol.seeds))
        counts["seeds_fired"].append(int(hit.any(axis=1).sum()))
        counts["seeds_right"].append(int(hit[:, reasons[own]].any(axis=1).sum()))
        counts["seeds_broken"].append(int((value == BROKE).any(axis=1).sum()))
        counts["rules_fired"].append(int(hit.any(axis=0).sum()))
        counts["rules_applied"].append(int(applies.sum()))
    for interface, arrays in held.items():
        shaped = {name: np.stack(rows).reshape(-1, len(VARIANTS), *rows[0].shape) for name, rows in arrays.items()}
        yield Batch(interface, shaped)
    yield Batch("matrix", {"fired": np.stack(fired).astype(np.int32), "right": np.stack(right).astype(np.uint8)}, counts=counts)
    yield specimens(protocol)


def check_settings(protocol: Protocol) -> None:
    """The protocol names the faults and rules that the battery has. ValueError if it does not."""
    s = protocol.settings
    for interface, names in s["rules"].items():
        if names != rules(interface):
            raise ValueError(f"settings.rules.{interface}: got {names}; the battery has {rules(interface)}")
    for fault in protocol.values("fault"):
        if fault not in FAULTS or s["right"][fault] != list(FAULTS[fault].rules):
            raise ValueError(f"settings.right.{fault}: got {s['right'].get(fault)}; wanted the rules of a known fault")


def specimens(protocol: Protocol) -> Batch:
    """One call of three faults and their twins, with all that went in and came out. Inputs: default_rng([specimen_seed, number])."""
    shape = protocol.settings["specimen"]
    arrays: dict[str, list[Any]] = {name: [] for name in ("q", "k", "v", "allowed", "output", "textbook")}
    faulty = {"no_key": NoKeyUnguarded, "unwritten": ReadsUnwritten, "corner": TopLeft}
    for factors in protocol.rows("specimens"):
        name = factors["specimen"]
        rng = np.random.default_rng([protocol.settings["specimen_seed"], list(faulty).index(name)])
        n, m, written = shape["queries"], shape["keys"], shape["written"] if name == "unwritten" else shape["keys"]
        q = rng.standard_normal((shape["heads"], n, shape["width"]))
        k, v = (rng.standard_normal((shape["groups"], m, shape["width"])) for _ in range(2))
        allowed = np.arange(m) <= np.arange(written - n, written)[:, None]
        if name == "no_key":
            allowed[1] = False
        k[:, written:], v[:, written:] = np.nan, np.nan
        where = np.zeros(m, np.int64)
        view = View(allowed, "causal", np.arange(written - n, written), np.arange(m), where[:n], where, written)
        system = faulty[name]() if factors["twin"] == "faulty" else ReferenceAttention()
        with np.errstate(invalid="ignore"):
            output = system.attend(q, k, v, view)
        for key, array in (("q", q), ("k", k), ("v", v), ("allowed", allowed.astype(np.uint8)), ("output", output)):
            arrays[key].append(array)
        arrays["textbook"].append(textbook(q, k, v, allowed))
    return Batch("specimens", {name: np.stack(rows) for name, rows in arrays.items()})
