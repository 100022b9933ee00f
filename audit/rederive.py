"""Level 3: compares what a derive module gives with what is stored, and counts what it does not give."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.bits import decode
from audit.findings import Findings
from audit.study import Derived, Study

Array = NDArray[Any]


class Unfit(Exception):
    """What the module gave does not fit the protocol."""


@dataclass(slots=True)
class Rederived:
    """The outcome: which rows of what were compared, and the auditor's own values of `own` metrics."""

    covered: dict[tuple[str, str], set[int] | None] = field(default_factory=dict)
    touched: dict[str, set[int]] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    largest: float = 0.0
    own: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)

    def document(self, of: int) -> dict[str, Any]:
        """The entry `rederived` of audit.json; `of` is the number of rows of all blocks."""
        return {
            "rows": sum(map(len, self.touched.values())),
            "of": of,
            "arrays": len(self.arrays),
            "given": len(self.given),
            "largest_difference": _at_most(self.largest),
        }


def _rounded(value: float) -> float:
    """Nine digits: the last ones of a derived value depend on the machine."""
    return float(f"{value:.9g}")


def _at_most(difference: float) -> float:
    """The least power of ten, from 1e-10 on, that a difference does not exceed: smaller ones depend on the machine's own arithmetic.

    >>> _at_most(5.6e-16), _at_most(1.2e-07)
    (1e-10, 1e-06)
    """
    return next((power for power in (float(f"1e{n}") for n in range(-10, 309)) if difference <= power), difference)


def load(experiment: str) -> ModuleType:
    """The derive module of an experiment; Unfit where there is none or it cannot be loaded."""
    name = f"audit.derive.e{experiment[:2]}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        text = f"no module for {experiment}" if error.name == name else f"{name} needs {error.name}, which is not here"
    except Exception as error:  # a module that does not load judges nothing: a finding, not a traceback
        text = f"{name} cannot be loaded: {type(error).__name__}: {error}"
    raise Unfit(text)


def run(study: Study, module: ModuleType, findings: Findings) -> Rederived:
    """Compare everything that the module derives; whatever it raises is a finding (R307), never a traceback."""
    result = Rederived()
    bounds: Mapping[str, tuple[float, str]] = getattr(module, "BOUNDS", {})
    given: Mapping[str, str] = getattr(module, "GIVEN", {})
    where = module.__name__
    try:
        with np.errstate(all="ignore"):  # what does not compute is not what is stored, and found so
            for item in module.derive(study):
                _compare(study, item, bounds, result, findings)
    except Unfit as error:
        findings.add("R307", where, str(error))
    except Exception as error:  # whatever hostile evidence does to a derivation is a finding
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        line = f"{place.tb_frame.f_code.co_filename.rpartition('/')[2]}:{place.tb_lineno}" if place else ""
        findings.add("R307", where, f"failed on this evidence: {type(error).__name__}: {error} ({line})"[:300])
    else:
        _coverage(study, given, result, findings)
    return result


def _coverage(study: Study, given: Mapping[str, str], result: Rederived, findings: Findings) -> None:
    for name, block in study.plan.blocks.items():
        own = [key for key, metric in block.metrics.items() if metric.op == "own"]
        for key in [*block.arrays, *block.decisions, *block.counts, *own]:
            if f"{name}/{key}" in given:
                result.given.add(f"{name}/{key}")
                continue
            has = result.covered.get((name, key), set())
            missing = set() if has is None else set(study.chosen(name)) - has
            if (name, key) not in result.covered or missing:
                rows = "" if not missing or len(missing) == len(study.chosen(name)) else f" in {len(missing)} rows, first {min(missing)}"
                findings.add("R306", f"{name}/{key}", f"neither derived nor named as given{rows}")


def _compare(study: Study, item: Derived, bounds: Mapping[str, tuple[float, str]], result: Rederived, findings: Findings) -> None:
    block = study.plan.blocks.get(item.block)
    if block is None:
        raise Unfit(f"derives {item.block!r}, which is no block of the protocol")
    count = study.plan.count(item.block)
    rows: Sequence[int] = range(count) if item.rows is None else [int(row) for row in item.rows]
    if any(not 0 <= row < count for row in rows):
        raise Unfit(f"derives a row outside of {item.block}, which has {count}")
    by_row = False
    for name, values in item.arrays.items():
        if name not in block.arrays:
            raise Unfit(f"derives {item.block}/{name}, which is no array of the protocol")
        spec = block.arrays[name]
        if not spec.by_row and item.rows is not None:
            raise Unfit(f"derives rows of {item.block}/{name}, which has none")
        by_row |= spec.by_row
        stored = study.read(item.block, name, None if item.rows is None else rows)
        where = f"{item.block}/{name}"
        bound = bounds[where][0] if where in bounds else None
        _array(where, rows if spec.by_row else None, stored, values, bound, spec.bits, result, findings)
        result.arrays.add(where)
        _cover(result, item.block, name, rows if spec.by_row else None)
    for role, rule, columns in (("decisions", "R303", item.decisions), ("counts", "R304", item.counts), ("own", "R305", item.own)):
        for name, given in columns.items():
            allowed = {
                "decisions": block.decisions,
                "counts": block.counts,
                "own": [m for m in block.metrics if block.metrics[m].op == "own"],
            }
            if name not in allowed[role]:
                raise Unfit(f"derives {item.block}/{name}, which is none of its {role}")
            _column(study, item.block, name, rows, list(given), rule, result, findings)
            _cover(result, item.block, name, rows)
            by_row = True
    if by_row:
        result.touched.setdefault(item.block, set()).update(rows)


def _cover(result: Rederived, block: str, name: str, rows: Sequence[int] | None) -> None:
    if rows is None:
        result.covered[block, name] = None
        return
    covered = result.covered.setdefault((block, name), set())
    if covered is not None:
        covered.update(rows)


def _array(
    where: str,
    rows: Sequence[int] | None,
    stored: Array,
    values: Any,
    bound: float | None,
    bits: str,
    result: Rederived,
    findings: Findings,
) -> None:
    derived = _fit(where, values, stored.dtype)
    rule = "R301" if bound is None else "R302"
    if derived.shape != stored.shape:
        findings.add(rule, where, "another shape than derived", list(stored.shape), list(derived.shape))
        return
    if bound is None:
        width = stored.dtype.itemsize
        bad = (_octets(stored, width) != _octets(derived, width)).any(axis=1)
        for place in np.flatnonzero(bad):
            findings.add(
                rule, _place(where, rows, stored.shape, int(place)), "not exactly what is derived", *_pair(stored, derived, int(place))
            )
        return
    one, other = decode(stored, bits).ravel(), decode(derived, bits).ravel()
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(one - other))
    finite = gap[np.isfinite(gap)]
    result.largest = max(result.largest, float(finite.max(initial=0.0)))
    for place in np.flatnonzero(~(gap <= bound)):
        text = f"differs by {gap[place]:.3g}, the bound is {bound:.3g}"
        findings.add(rule, _place(where, rows, stored.shape, int(place)), text, float(one[place]), _rounded(float(other[place])))


def _fit(where: str, values: Any, dtype: np.dtype[Any]) -> Array:
    """Derived values in the stored dtype; floats may round to it, integers must fit exactly."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(array.shape, dtype)
    if dtype.kind == "f" and array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            return array.astype(dtype, order="C")
    if dtype.kind in "iu" and array.dtype.kind in "iub":
        cast = array.astype(dtype, order="C")
        if np.array_equal(cast, array):
            return cast
    raise Unfit(f"{where}: derived {array.dtype} values do not fit {dtype.str}")


def _octets(array: Array, width: int) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, width)


def _place(where: str, rows: Sequence[int] | None, shape: tuple[int, ...], flat: int) -> str:
    index = [int(part) for part in np.unravel_index(flat, shape)] if shape else []
    if rows is not None and index:
        index[0] = rows[index[0]]
    return f"{where}[{','.join(map(str, index))}]"


def _pair(stored: Array, derived: Array, flat: int) -> tuple[Any, Any]:
    return stored.reshape(-1)[flat].item(), derived.reshape(-1)[flat].item()


def _column(
    study: Study, block: str, name: str, rows: Sequence[int], values: list[Any], rule: str, result: Rederived, findings: Findings
) -> None:
    where = f"{block}/{name}"
    if len(values) != len(rows):
        raise Unfit(f"{where}: {len(values)} values for {len(rows)} rows")
    own = rule == "R305"
    stored = study.stored(block, name)
    bound = study.plan.blocks[block].metrics[name].bound if own else 0.0
    for row, value in zip(rows, values, strict=True):
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, bool if rule == "R303" else int | float) or (rule == "R304" and type(plain) is not int):
            raise Unfit(f"{where}[{row}]: {plain!r} is of the wrong kind")
        settled = plain
        if stored is not None:
            gap = abs(stored[row] - plain) if own and math.isfinite(stored[row]) and math.isfinite(plain) else 0.0
            result.largest = max(result.largest, gap)
            if stored[row] == plain or (own and 0.0 < gap <= bound):
                # Within its bound a derived value differs from machine to machine in its last digits; the stored one does not.
                settled = stored[row]
            else:
                findings.add(rule, f"{where}[{row}]", "not what is derived", stored[row], _rounded(plain) if bound else plain)
        if own:
            result.own.setdefault((block, name), {})[row] = settled
