"""results.csv (FORMAT 5): its lines against the rows that the protocol gives, its cells as typed values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from audit.findings import Damaged, Findings
from audit.schema import WHOLE, Protocol

FILE = "results.csv"
_INTEGER = re.compile(r"-?[1-9][0-9]*|0")
Columns = dict[tuple[str, str], list[Any]]


def header(plan: Protocol) -> list[str]:
    """The columns, in order."""
    blocks = [plan.blocks[name] for name in plan.of_kind("csv")]
    factors = {name for block in blocks for name in block.factors}
    groups = [
        factors - {"seed"},
        {name for block in blocks for name in block.decisions},
        {name for block in blocks for name in block.counts},
        {name for block in blocks for name in block.metrics},
    ]
    return ["case", "block", "row"] + ["seed"] * ("seed" in factors) + [name for group in groups for name in sorted(group)]


def read(data: bytes, plan: Protocol, findings: Findings) -> Columns:
    """Typed columns of decisions, counts and metrics, or Damaged where the lines are not those of the protocol.

    A cell of the wrong form is a finding; its value is then None.
    """
    lines = split(data)
    columns = header(plan)
    if not lines or lines[0] != columns:
        raise Damaged("S115", FILE, "other columns than the protocol gives", ",".join(lines[0]) if lines else "", ",".join(columns))
    _rows(lines[1:], plan, columns)
    result: Columns = {}
    start = 1
    for name in plan.of_kind("csv"):
        count = plan.count(name)
        part = lines[start : start + count]
        start += count
        block = plan.blocks[name]
        readers: dict[str, Callable[[str], Any]] = {
            **dict.fromkeys(block.decisions, boolean),
            **dict.fromkeys(block.counts, integer),
            **{key: _reader(metric.op) for key, metric in block.metrics.items()},
        }
        for place, column in enumerate(columns):
            if column in ("case", "block", "row", *block.factors):
                continue
            reader = readers.get(column, _nothing)
            if reader is _nothing and not any(cells[place] for cells in part):
                continue
            values = []
            for row, cells in enumerate(part):
                try:
                    values.append(reader(cells[place]))
                except ValueError:
                    findings.add("S115", f"{name}/{column}[{row}]", "the form of the cell", cells[place])
                    values.append(None)
            if column in readers:
                result[name, column] = values
    return result


def _rows(lines: list[list[str]], plan: Protocol, columns: list[str]) -> None:
    """Every line is the row that the protocol puts there; raises Damaged (S114) at the first that is not."""
    total = sum(plan.count(name) for name in plan.of_kind("csv"))
    if len(lines) != total:
        raise Damaged("S114", FILE, "another number of cases", len(lines), total)
    case = 0
    for name in plan.of_kind("csv"):
        places = [columns.index(factor) for factor in plan.blocks[name].factors]
        for row, values in enumerate(plan.rows(name)):
            cells = lines[case]
            if len(cells) != len(columns):
                raise Damaged("S115", f"{FILE}[{case}]", "the number of cells", len(cells), len(columns))
            got = [*cells[:3], *(cells[place] for place in places)]
            wanted = [str(case), name, str(row), *map(text, values)]
            if got != wanted:
                raise Damaged("S114", f"{FILE}[{case}]", "not the row that stands here", ",".join(got), ",".join(wanted))
            case += 1


def split(data: bytes) -> list[list[str]]:
    """Lines of unquoted cells; Damaged (S115) where the bytes are not written as section 5 says."""
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged("S115", FILE, f"not UTF-8 at byte {error.start}") from None
    if not content.endswith("\n"):
        raise Damaged("S115", FILE, "no line break at the end")
    if '"' not in content and "\r" not in content:
        return [line.split(",") for line in content[:-1].split("\n")]
    lines = _quoted(content)
    if "".join(",".join(map(quote, cells)) + "\n" for cells in lines) != content:
        raise Damaged("S115", FILE, "not written as section 5 says: quotes or line breaks")
    return lines


def _quoted(content: str) -> list[list[str]]:
    lines: list[list[str]] = []
    cells: list[str] = []
    at = 0
    while at < len(content):
        if content[at] == '"':
            parts = []
            while True:
                stop = content.find('"', at + 1)
                if stop < 0:
                    raise Damaged("S115", FILE, "a quote is not closed")
                parts.append(content[at + 1 : stop])
                at = stop + 1
                if content[at : at + 1] != '"':
                    break
            cells.append('"'.join(parts))
        else:
            stop = min(place for mark in ",\n" if (place := content.find(mark, at)) >= 0)
            cells.append(content[at:stop])
            at = stop
        mark = content[at : at + 1]
        if mark not in (",", "\n"):
            raise Damaged("S115", FILE, "text after a closing quote")
        at += 1
        if mark == "\n":
            lines.append(cells)
            cells = []
        elif at == len(content) or content[at] == "\n":
            cells.append("")
            lines.append(cells)
            cells = []
            at += 1
    return lines


def quote(cell: str) -> str:
    """A cell as it must stand."""
    return '"' + cell.replace('"', '""') + '"' if any(mark in cell for mark in ',"\n\r') else cell


def text(value: Any) -> str:
    """A factor's value as a cell, unquoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def boolean(cell: str) -> bool:
    """`true` or `false`."""
    if cell not in ("true", "false"):
        raise ValueError(cell)
    return cell == "true"


def integer(cell: str) -> int:
    """A decimal integer of 64 bits."""
    if len(cell) > 20 or not _INTEGER.fullmatch(cell) or not -(2**63) <= int(cell) < 2**63:
        raise ValueError(cell)
    return int(cell)


def number(cell: str) -> float:
    """A float written as its `repr`."""
    if len(cell) > 32 or repr(float(cell)) != cell:
        raise ValueError(cell)
    return float(cell)


def _either(cell: str) -> float:
    try:
        return integer(cell)
    except ValueError:
        return number(cell)


def _nothing(cell: str) -> None:
    if cell:
        raise ValueError(cell)


def _reader(op: str) -> Callable[[str], Any]:
    if op == "own":
        return _either
    return integer if op in WHOLE else number
