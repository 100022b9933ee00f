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


def brain(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Bit patterns of bfloat16, rounded to the nearest, ties to even; NaN and infinity stay."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isfinite(values), rounded, np.where(np.isnan(values), 0x7FC0, 0x7F80)).astype(np.uint16)


def value_of(bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    """The numbers of bfloat16 patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def limits(limit: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest limit of each rule over the seeds [rule]; NaN where it never applied."""
    none = np.isnan(limit).all(axis=0)
    low = np.where(np.isnan(limit), np.inf, limit).min(axis=0)
    high = np.where(np.isnan(limit), -np.inf, limit).max(axis=0)
    return np.where(none, np.nan, low), np.where(none, np.nan, high)


def decide(seen: Seen, bits: NDArray[np.uint16], high: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rule fired on which seed [seed, rule]: value > limit. What is stored must say the same as what was measured."""
    with np.errstate(invalid="ignore"):
        measured, stored = seen.value > seen.limit, value_of(bits) > high
    if not np.array_equal(measured, stored):
        raise ValueError(f"{int((measured != stored).sum())} values lie within their limits' range over the seeds; wanted none")
    return np.asarray(stored)


def batches(protocol: Protocol) -> Iterator[Batch]:
    """Blocks attention, cache, pool: values [fault, variant, seed, rule]; matrix: their reductions; specimens."""
    s = protocol.settings
    check_settings(protocol)
    columns = [(interface, rule) for interface in s["rules"] for rule in s["rules"][interface]]
    held: dict[str, dict[str, list[Any]]] = {i: {"value": [], "limit_low": [], "limit_high": []} for i in s["rules"]}
    fired, right = [], []
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["matrix"].counts}
    for fault, _, seen in matrix(protocol.seeds, protocol.values("fault")):
        interface = INTERFACE[fault]
        bits = brain(seen.value)
        low, high = limits(seen.limit)
        for name, array in (("value", bits), ("limit_low", low), ("limit_high", high)):
            held[interface][name].append(array)
        hit = decide(seen, bits, high)
        own = np.array([i == interface for i, _ in columns])
        applies, reasons = ~np.isnan(high), np.array([rule in s["right"][fault] for _, rule in columns])
        row = np.full(len(columns), -1)
        row[own] = np.where(applies, hit.sum(axis=0), -1)
        fired.append(row)
        right.append(reasons)
        counts["seeds_fired"].append(int(hit.any(axis=1).sum()))
        counts["seeds_right"].append(int(hit[:, reasons[own]].any(axis=1).sum()))
        counts["seeds_broken"].append(int((seen.value == BROKEN).any(axis=1).sum()))
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
