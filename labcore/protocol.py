"""A protocol as plain frozen data, checked against the schema of evidence/FORMAT.md section 3.

`load` reads a committed protocol.json; `parse` checks any resolved mapping, naming the nearest right key where one is unknown.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from labcore import canonical
from labcore.errors import Refused

SCHEMA = "1"
NAME = re.compile(r"[a-z][a-z0-9_]*")
EXPERIMENT = re.compile(r"[0-9]{2}_[a-z0-9_]+")
RESERVED = {"case", "block", "row", "seed"}
TWO_ARRAYS = {"max_abs_error", "rmse", "relative_l2", "equal"}

Dtype = Literal["<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1"]
Bits = Literal["float16", "bfloat16", "float8_e4m3", "bool"]
BITS_DTYPE = {"float16": "<u2", "bfloat16": "<u2", "float8_e4m3": "|u1", "bool": "|u1"}
Op = Literal[
    "max_abs_error", "rmse", "relative_l2", "max_abs", "max", "min", "sum", "mean",
    "count_nonzero", "count_nan", "size", "equal", "nbytes", "own",
]  # fmt: skip
Scalar = str | int | float | bool


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    pass


class Array(_Struct, frozen=True, kw_only=True):
    """One array of a block: dtype, shape (see FORMAT.md), axis names and unit."""

    dtype: Dtype
    shape: list[int | str]
    axes: list[str]
    unit: str
    bits: Bits | None = None
    nan: bool = False


class Metric(_Struct, frozen=True, kw_only=True):
    """An operation of the vocabulary on arrays of the same block."""

    op: Op
    of: list[str] = []
    bound: float | None = None


class Block(_Struct, frozen=True, kw_only=True):
    """Arrays of one number of rows; the rows are the product of `factors`."""

    factors: list[str] = []
    rows: Literal["csv", "none", "timing"] = "csv"
    machine: bool = False
    arrays: dict[str, Array] = {}
    metrics: dict[str, Metric] = {}
    decisions: list[str] = []
    counts: list[str] = []


class Control(_Struct, frozen=True, kw_only=True):
    """A variant that must fail."""

    measure: str
    holds: str
    note: str


class Claim(_Struct, frozen=True, kw_only=True):
    """A claim's rule, or why it stays open or out of reach."""

    note: str
    measure: str | None = None
    reproduced: str | None = None
    contradicted: str | None = None
    qualified: str | None = None
    open: str | None = None
    out_of_reach: str | None = None


class Protocol(_Struct, frozen=True, kw_only=True):
    """A whole protocol. `resolved` gives it back as plain JSON data, `sha256` its identity."""

    schema: Literal["1"]
    experiment: str
    question: str
    seeds: list[int]
    tolerance: float
    rederive: Literal["all"] | int
    settings: dict[str, Any]
    factors: dict[str, list[Scalar]]
    blocks: dict[str, Block]
    controls: dict[str, Control]
    claims: dict[str, Claim]

    @property
    def resolved(self) -> Any:
        """The protocol as JSON data, defaults left out."""
        return msgspec.to_builtins(self)

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON."""
        return canonical.sha256(canonical.dumps(self.resolved))

    def values(self, factor: str) -> list[Any]:
        """The values of a factor, `seed` included."""
        return list(self.seeds) if factor == "seed" else list(self.factors[factor])

    def row_count(self, block: str) -> int:
        """Number of rows of a block."""
        count = 1
        for factor in self.blocks[block].factors:
            count *= len(self.values(factor))
        return count

    def rows(self, block: str) -> Iterator[dict[str, Any]]:
        """The factor values of every row of a block, in order."""
        names = self.blocks[block].factors
        for combination in itertools.product(*(self.values(name) for name in names)):
            yield dict(zip(names, combination, strict=True))


def load(path: Path) -> Protocol:
    """Read and check a protocol.json. Raises Refused naming the file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Refused(f"{path}: no such file; `make protocol EXP={path.parent.name[:2]}` writes it") from None
    protocol = parse(canonical.loads(data, str(path)), str(path))
    if canonical.dumps(protocol.resolved) != data:
        raise Refused(f"{path}: not in canonical form; `make protocol EXP={path.parent.name[:2]}` writes it")
    return protocol


def parse(value: Any, where: str) -> Protocol:
    """Check resolved data against the schema. Raises Refused with what was got, what is wanted and where."""
    _known_keys(value, Protocol, where, "")
    try:
        protocol = msgspec.convert(value, Protocol)
    except msgspec.ValidationError as error:
        raise Refused(f"{where}: {error}") from None
    for problem in _problems(protocol):
        raise Refused(f"{where}: {problem}")
    return protocol


_CHILDREN: dict[str, type[_Struct]] = {"blocks": Block, "controls": Control, "claims": Claim, "arrays": Array, "metrics": Metric}


def _known_keys(value: Any, kind: type[_Struct], where: str, path: str) -> None:
    """Refuse an unknown key with the nearest right one, which msgspec's message does not give."""
    if not isinstance(value, Mapping):
        return
    known = kind.__struct_fields__
    for key, item in value.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise Refused(f"{where}: unknown key {path + str(key)!r}; {hint}")
        if key in _CHILDREN and isinstance(item, Mapping):
            for name, child in item.items():
                _known_keys(child, _CHILDREN[key], where, f"{path}{key}.{name}.")


def _problems(p: Protocol) -> Iterator[str]:
    if not EXPERIMENT.fullmatch(p.experiment):
        yield f"experiment: got {p.experiment!r}; wanted NN_name in lower case"
    if not p.seeds or len(set(p.seeds)) != len(p.seeds) or min(p.seeds) < 0 or max(p.seeds) >= 2**63:
        yield f"seeds: got {_short(p.seeds)}; wanted at least one, distinct, none negative, below 2**63"
    if not 0 <= p.tolerance < 1:
        yield f"tolerance: got {p.tolerance}; wanted a number from 0 up to 1"
    if isinstance(p.rederive, int) and p.rederive < 1:
        yield f"rederive: got {p.rederive}; wanted 'all' or a positive integer"
    if not p.controls:
        yield "controls: got none; wanted at least one variant that must fail"
    for name, values in p.factors.items():
        yield from _name(f"factors.{name}", name)
        if not values or len(set(map(repr, values))) != len(values) or len({type(v) for v in values}) != 1:
            yield f"factors.{name}: got {_short(values)}; wanted distinct values of one type, at least one"
        if any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in values):
            yield f"factors.{name}: got {_short(values)}; wanted integers of 64 bits"
    for name, block in p.blocks.items():
        yield from _name(f"blocks.{name}", name)
        yield from _block(p, f"blocks.{name}", block)
    roles: dict[str, str] = {}
    for block in p.blocks.values():
        columns = {"factor": block.factors, "decision": block.decisions, "count": block.counts, "metric": list(block.metrics)}
        for role, names in columns.items():
            for name in names:
                if roles.setdefault(name, role) != role:
                    yield f"the name {name!r} is a {roles[name]} in one block and a {role} in another; wanted one role"
    for name, claim in p.claims.items():
        rules = [claim.reproduced, claim.contradicted, claim.qualified]
        reasons = [r for r in (claim.open, claim.out_of_reach) if r is not None]
        if claim.measure is None and len(reasons) != 1:
            yield f"claims.{name}: wanted a measure with rules, or one of open and out_of_reach"
        if claim.measure is not None and (reasons or not any(rules)):
            yield f"claims.{name}: a measure needs reproduced, contradicted or qualified, and neither open nor out_of_reach"
        if claim.measure is None and any(rules):
            yield f"claims.{name}: rules without a measure"


def _block(p: Protocol, path: str, block: Block) -> Iterator[str]:
    for factor in block.factors:
        if factor != "seed" and factor not in p.factors:
            yield f"{path}.factors: unknown factor {factor!r}; known: seed, {', '.join(sorted(p.factors))}"
    if len(set(block.factors)) != len(block.factors):
        yield f"{path}.factors: a factor stands twice"
    if block.rows == "none" and (block.metrics or block.decisions or block.counts):
        yield f"{path}: a block with `rows: none` has no metrics, decisions or counts"
    for name in itertools.chain(block.arrays, block.metrics, block.decisions, block.counts):
        yield from _name(f"{path}.{name}", name)
    columns = [*block.factors, *block.decisions, *block.counts, *block.metrics]
    if len(set(columns)) != len(columns):
        yield f"{path}: a column name stands twice among factors, decisions, counts and metrics"
    for name, array in block.arrays.items():
        at = f"{path}.arrays.{name}"
        if len(array.axes) != len(array.shape):
            yield f"{at}: {len(array.axes)} axes for {len(array.shape)} dimensions"
        if block.rows != "none" and array.shape[:1] != ["case"]:
            yield f"{at}.shape: got {array.shape}; wanted 'case' first"
        for place, size in enumerate(array.shape):
            if (size == "case" and place > 0) or (isinstance(size, int) and size < 1):
                yield f"{at}.shape: got {array.shape}; wanted 'case' first only, sizes positive"
        if array.bits and BITS_DTYPE[array.bits] != array.dtype:
            yield f"{at}: bits {array.bits} with dtype {array.dtype}; wanted {BITS_DTYPE[array.bits]}"
    for name, metric in block.metrics.items():
        at = f"{path}.metrics.{name}"
        if metric.op != "own":
            want = 2 if metric.op in TWO_ARRAYS else 1
            if len(metric.of) != want:
                yield f"{at}.of: got {len(metric.of)} arrays; {metric.op} wants {want}"
            if metric.bound is not None:
                yield f"{at}.bound: only `own` metrics have one"
        for array_name in metric.of:
            if array_name not in block.arrays:
                yield f"{at}.of: unknown array {array_name!r}; known: {', '.join(sorted(block.arrays))}"


def _name(path: str, name: str) -> Iterator[str]:
    if not NAME.fullmatch(name) or name in RESERVED:
        yield f"{path}: the name {name!r} is not allowed; wanted lower case letters, digits and _, not {', '.join(sorted(RESERVED))}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
