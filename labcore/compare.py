"""Compare two sealed runs array by array: bitwise equal, within the tolerance, or changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.sealed import Sealed

SHOWN = 8  # differing parts of a protocol that are named
FINGERPRINT = ("cpu", "blas", "threads", "python", "packages")


@dataclass(frozen=True)
class Comparison:
    """outcome: identical, within tolerance or changed; lines say why, arrays: path -> its own outcome."""

    outcome: str
    lines: list[str]
    arrays: dict[str, str]


def compare(a: Sealed, b: Sealed) -> Comparison:
    """Compare run b with run a under a's tolerance. Never raises for what differs; that is the answer."""
    if a.manifest["run"] == b.manifest["run"] and a.manifest["experiment"] == b.manifest["experiment"]:
        count = len(a.manifest["data"]["arrays"])
        return Comparison("identical", [f"identical: {count} arrays and all results, bit for bit"], {})
    differing = fingerprint(a, b)
    outcomes, lines, worst = {}, [], 0.0
    if a.manifest["protocol"]["sha256"] != b.manifest["protocol"]["sha256"]:
        keys = _different_keys(a.protocol.resolved, b.protocol.resolved)
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        lines.append(f"the protocols differ: {', '.join(keys[:SHOWN])}{more}")
    left, right = a.manifest["data"]["arrays"], b.manifest["data"]["arrays"]
    for path in sorted({*left, *right}):
        block, name = path.split("/")
        if path not in left or path not in right:
            outcomes[path] = "changed: only in " + ("the first" if path in left else "the second")
        elif left[path] == right[path]:
            outcomes[path] = "bitwise equal"
        elif a.protocol.blocks[block].machine and differing:
            outcomes[path] = "not compared: depends on the machine, and the machines differ"
        elif (left[path]["dtype"], left[path]["shape"]) != (right[path]["dtype"], right[path]["shape"]):
            outcomes[path] = f"changed: {left[path]['dtype']} {left[path]['shape']} against {right[path]['dtype']} {right[path]['shape']}"
        else:
            distance = _distance(a.array(block, name), b.array(block, name))
            worst = max(worst, distance)
            within = distance <= a.protocol.tolerance
            outcomes[path] = f"{'within tolerance' if within else 'changed'}: largest difference {distance:.3g}"
    changed = [path for path, text in outcomes.items() if text.startswith("changed")]
    moved = [path for path, text in outcomes.items() if text.startswith("within")]
    exact = _exact_results(a, b)
    if changed or exact or lines:
        outcome = "changed"
        lines = [*lines, *exact, *(f"{path}: {outcomes[path]}" for path in changed)]
    else:
        outcome = "within tolerance"
        lines = [
            f"within tolerance: {len(moved)} of {len(outcomes)} arrays differ, by at most {worst:.3g} (allowed {a.protocol.tolerance:.3g})"
        ]
        lines += [f"the fingerprint differs in {', '.join(differing)}"] if differing else ["on the same fingerprint"]
    return Comparison(outcome, lines, outcomes)


def fingerprint(a: Sealed, b: Sealed) -> list[str]:
    """The parts of the recorded environment that differ between two runs."""
    left, right = (run.manifest["recorded"]["environment"] for run in (a, b))
    return [key for key in FINGERPRINT if left.get(key) != right.get(key)]


def _distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    if x.size == 0:
        return 0.0
    same = (x == y) | ((x != x) & (y != y))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(x.astype(np.float64) - y.astype(np.float64)))
    return float(np.nan_to_num(gap, nan=np.inf).max())


def _exact_results(a: Sealed, b: Sealed) -> list[str]:
    """Decisions and counts are exact: any that differ, by block and column."""
    lines = []
    for name, block in a.protocol.blocks.items():
        other = b.protocol.blocks.get(name)
        if block.rows != "csv" or other != block or block.machine:
            continue
        left, right = a.table(name), b.table(name)
        for column in (*block.decisions, *block.counts):
            if left[column] != right[column]:
                lines.append(f"{name}.{column}: changed")
    return lines


def _different_keys(a: Any, b: Any, at: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [key for k in sorted({*a, *b}) for key in _different_keys(a.get(k), b.get(k), f"{at}.{k}" if at else k)]
    return [] if a == b else [at]
