"""The protocol (FORMAT 3): its check, and the parts of it that the auditor uses, as plain frozen data."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from audit.bits import DTYPES
from audit.findings import Damaged

NAME = re.compile(r"[a-z][a-z0-9_]*")
CLAIM = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
EXPERIMENT = re.compile(r"[0-9]{2}_[a-z0-9_]+")
FIXED_NAMES = {"case", "block", "row"}
STORED = {"<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1"}
PAIRS = {"max_abs_error", "rmse", "relative_l2", "equal"}
SINGLES = {"max_abs", "max", "min", "sum", "mean", "count_nonzero", "count_nan", "size", "nbytes"}
WHOLE = {"count_nonzero", "count_nan", "size", "nbytes", "equal"}
"""Operations whose value is an integer."""
BYTEWISE = {"equal", "nbytes", "size"}
"""Operations that do not read their arrays as numbers."""
MAX_ROWS = 5_000_000
"""Rows of all blocks together that this auditor is willing to list."""


@dataclass(frozen=True)
class ArraySpec:
    """An array as the protocol declares it; `shape[0] == "case"` means one part per row."""

    dtype: str
    shape: tuple[str | int, ...]
    axes: tuple[str, ...]
    unit: str
    bits: str
    nan: bool

    @property
    def by_row(self) -> bool:
        """Whether the first axis runs over the rows of the block."""
        return bool(self.shape) and self.shape[0] == "case"


@dataclass(frozen=True)
class Metric:
    """`op` over the arrays `of`; `bound` is for `own` only; `wide`: the op reads integers that binary64 may not hold."""

    op: str
    of: tuple[str, ...]
    bound: float
    wide: bool


@dataclass(frozen=True)
class Block:
    """Arrays of an equal number of rows, and what is measured on each row."""

    factors: tuple[str, ...]
    rows: str
    arrays: dict[str, ArraySpec]
    metrics: dict[str, Metric]
    decisions: tuple[str, ...]
    counts: tuple[str, ...]


@dataclass(frozen=True)
class Protocol:
    """A protocol that passed the check."""

    document: dict[str, Any]
    blocks: dict[str, Block]

    @cached_property
    def domains(self) -> dict[str, list[Any]]:
        """The values of each factor, `seed` among them."""
        return {**self.document["factors"], "seed": self.document["seeds"]}

    def count(self, block: str) -> int:
        """How many rows a block has."""
        return math.prod(len(self.domains[name]) for name in self.blocks[block].factors)

    def rows(self, block: str) -> Iterable[tuple[Any, ...]]:
        """The factors' values of each row, in order: the last factor moves fastest."""
        return itertools.product(*(self.domains[name] for name in self.blocks[block].factors))

    def of_kind(self, *kinds: str) -> list[str]:
        """The names, sorted, of the blocks whose rows are of one of these kinds."""
        return sorted(name for name, block in self.blocks.items() if block.rows in kinds)


def check(document: Any) -> Protocol:
    """The protocol in `document`; raises Damaged (S106) at the first rule that it breaks."""
    top = _object(document, "protocol", "schema experiment question seeds tolerance rederive settings factors blocks controls claims")
    _need(top["schema"] == "1", "schema", 'wanted "1"')
    _need(isinstance(top["experiment"], str) and EXPERIMENT.fullmatch(top["experiment"]), "experiment", "not NN_name")
    _need(isinstance(top["question"], str) and top["question"].strip(), "question", "wanted a sentence")
    seeds = top["seeds"]
    _need(isinstance(seeds, list) and seeds and all(map(_seed, seeds)), "seeds", "wanted integers from 0 to below 2**63")
    _need(len(set(seeds)) == len(seeds), "seeds", "a seed stands twice")
    _need(type(top["tolerance"]) is float and top["tolerance"] >= 0, "tolerance", "wanted a float >= 0")
    rederive = top["rederive"]
    _need(rederive == "all" or (type(rederive) is int and rederive >= 1), "rederive", 'wanted "all" or an integer >= 1')
    _need(isinstance(top["settings"], dict), "settings", "wanted an object")
    _named(top["factors"], "factors")
    for name, values in top["factors"].items():
        kinds = {type(value) for value in values} if isinstance(values, list) else set()
        _need(len(kinds) == 1 and kinds <= {str, int, float, bool}, f"factors.{name}", "wanted a list of values of one kind")
        _need(kinds != {int} or all(-(2**63) <= value < 2**63 for value in values), f"factors.{name}", "wanted integers of 64 bits")
        _need(len(set(values)) == len(values) and name != "seed", f"factors.{name}", "a value stands twice, or the name is built in")
    _named(top["blocks"], "blocks")
    _need(bool(top["blocks"]), "blocks", "wanted at least one")
    domains = {**top["factors"], "seed": seeds}
    blocks = {name: _block(name, block, domains) for name, block in top["blocks"].items()}
    plan = Protocol(top, blocks)
    _roles(plan)
    _need(sum(plan.count(name) for name in blocks) <= MAX_ROWS, "blocks", f"more than {MAX_ROWS} rows", "S119")
    _rules(top)
    return plan


def _need(good: Any, where: str, text: str, rule: str = "S106") -> None:
    if not good:
        raise Damaged(rule, f"protocol.{where}" if where != "protocol" else where, text)


def _object(value: Any, where: str, needed: str, optional: str = "") -> dict[str, Any]:
    _need(isinstance(value, dict), where, "wanted an object")
    for key in needed.split():
        _need(key in value, where, f"the key {key!r} is missing")
    for key in value:
        _need(key in needed.split() or key in optional.split(), where, f"the key {key!r} is not allowed")
    assert isinstance(value, dict)
    return value


def _named(value: Any, where: str) -> None:
    _need(isinstance(value, dict), where, "wanted an object")
    for name in value:
        _need(NAME.fullmatch(name) and name not in FIXED_NAMES, where, f"the name {name!r} is not allowed")


def _texts(value: Any, where: str) -> tuple[str, ...]:
    _need(isinstance(value, list) and all(isinstance(item, str) for item in value), where, "wanted a list of texts")
    _need(len(set(value)) == len(value), where, "a text stands twice")
    return tuple(value)


def _block(name: str, value: Any, domains: dict[str, Any]) -> Block:
    where = f"blocks.{name}"
    block = _object(value, where, "", "factors arrays rows machine metrics decisions counts")
    factors = _texts(block.get("factors", []), f"{where}.factors")
    for factor in factors:
        _need(factor in domains, f"{where}.factors", f"{factor!r} is not a factor")
    defaults = {"factors": [], "arrays": {}, "rows": "csv", "machine": False, "metrics": {}, "decisions": [], "counts": []}
    for key, default in defaults.items():
        _need(block.get(key) != default, f"{where}.{key}", "a default value is left out")
    rows = block.get("rows", "csv")
    _need(rows in ("csv", "none", "timing"), f"{where}.rows", "wanted csv, none or timing")
    _need(block.get("machine", True) is True, f"{where}.machine", "wanted true")
    _named(block.get("arrays", {}), f"{where}.arrays")
    arrays = {key: _array(f"{where}.arrays.{key}", item, rows) for key, item in block.get("arrays", {}).items()}
    _named(block.get("metrics", {}), f"{where}.metrics")
    metrics = {key: _metric(f"{where}.metrics.{key}", item, arrays) for key, item in block.get("metrics", {}).items()}
    lists = {}
    for role in ("decisions", "counts"):
        lists[role] = _texts(block.get(role, []), f"{where}.{role}")
        for item in lists[role]:
            _need(NAME.fullmatch(item) and item not in FIXED_NAMES | {"seed"}, f"{where}.{role}", f"the name {item!r} is not allowed")
    used = [*factors, *metrics, *lists["decisions"], *lists["counts"]]
    _need(len(set(used)) == len(used) and "seed" not in metrics, where, "a name has two roles")
    _need(rows == "csv" or not (lists["decisions"] or lists["counts"]), where, "decisions and counts are for rows in results.csv")
    _need(rows != "none" or not metrics, where, "metrics are for blocks with rows")
    return Block(factors, rows, arrays, metrics, lists["decisions"], lists["counts"])


def _array(where: str, value: Any, rows: str) -> ArraySpec:
    array = _object(value, where, "dtype shape axes unit", "bits nan")
    _need(array["dtype"] in STORED, f"{where}.dtype", f"got {array['dtype']!r}")
    shape = array["shape"]
    _need(isinstance(shape, list), f"{where}.shape", "wanted a list")
    for place, size in enumerate(shape):
        free = isinstance(size, str) and NAME.fullmatch(size) and (size != "case" or place == 0) and size not in ("row", "block")
        _need(free or (type(size) is int and size >= 1), f"{where}.shape", f"got {size!r}")
    _need(rows == "none" or shape[:1] == ["case"], f"{where}.shape", 'the first entry is "case"')
    axes = array["axes"]
    _need(isinstance(axes, list) and all(isinstance(axis, str) and axis and " " not in axis for axis in axes), f"{where}.axes", "not names")
    _need(len(axes) == len(shape), f"{where}.axes", "wanted one name per axis")
    _need(isinstance(array["unit"], str) and "\0" not in array["unit"] + "".join(axes), f"{where}.unit", "wanted a text")
    _need(array.get("bits") is None or DTYPES.get(array["bits"]) == array["dtype"], f"{where}.bits", "does not fit the dtype")
    _need(array.get("bits", "-") is not None and array.get("nan", True) is True, where, "a default value is left out")
    return ArraySpec(array["dtype"], tuple(shape), tuple(axes), array["unit"], array.get("bits", ""), array.get("nan", False))


def _metric(where: str, value: Any, arrays: dict[str, ArraySpec]) -> Metric:
    metric = _object(value, where, "op", "of bound")
    op, of = metric["op"], metric.get("of", [])
    _need(metric.get("of", "-") != [], f"{where}.of", "a default value is left out")
    _need(
        isinstance(of, list) and all(isinstance(item, str) and item in arrays for item in of), f"{where}.of", "wanted arrays of the block"
    )
    _need(op == "own" or len(of) == (2 if op in PAIRS else 1), f"{where}.of", "the wrong number of arrays")
    _need(op == "own" or op in PAIRS or op in SINGLES, f"{where}.op", f"got {op!r}")
    bound = metric.get("bound")
    _need(bound is None or (op == "own" and type(bound) is float and bound > 0), f"{where}.bound", "wanted a float > 0, of an own metric")
    wide = op not in BYTEWISE and op != "own" and any(arrays[item].dtype in ("<i8", "<u8") for item in of)
    return Metric(op, tuple(of), bound or 0.0, wide)


def _roles(plan: Protocol) -> None:
    roles: dict[str, str] = {}
    for block in plan.blocks.values():
        for role, names in (("factor", block.factors), ("decision", block.decisions), ("count", block.counts), ("metric", block.metrics)):
            for name in names:
                if block.rows == "csv":
                    _need(roles.setdefault(name, role) == role, "blocks", f"{name!r} has two roles")


def _rules(top: dict[str, Any]) -> None:
    _need(isinstance(top["controls"], dict) and top["controls"], "controls", "wanted at least one")
    _named(top["controls"], "controls")
    for name, value in top["controls"].items():
        control = _object(value, f"controls.{name}", "measure holds note")
        _need(all(isinstance(item, str) for item in control.values()), f"controls.{name}", "wanted texts")
    _need(isinstance(top["claims"], dict), "claims", "wanted an object")
    for name, value in top["claims"].items():
        where = f"claims.{name}"
        _need(CLAIM.fullmatch(name), "claims", f"the name {name!r} is not allowed")
        claim = _object(value, where, "note", "open out_of_reach measure reproduced contradicted qualified")
        _need(all(isinstance(item, str) for item in claim.values()), where, "wanted texts")
        kinds = [key for key in ("open", "out_of_reach", "measure") if key in claim]
        _need(len(kinds) == 1, where, "wanted one of open, out_of_reach and measure")
        rules = [key for key in ("reproduced", "contradicted", "qualified") if key in claim]
        _need(bool(rules) == (kinds == ["measure"]), where, "rules go with a measure, at least one")


def _seed(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
