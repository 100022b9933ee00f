"""Aligned tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labcore.sealed import Sealed

LONG = 24  # rows beyond which a block is summed up


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned: numbers right, text left.

    >>> print(table(["name", "n"], [["a", 1], ["bc", 20]]))
    name   n
    a      1
    bc    20
    """
    cells = [[show(value) for value in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(header, *cells, strict=True)]
    right = [bool(rows) and all(_number(row[i]) for row in rows) for i in range(len(header))]
    lines = []
    for line in (header, *cells):
        parts = [text.rjust(width) if r else text.ljust(width) for text, width, r in zip(line, widths, right, strict=True)]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def show(value: Any) -> str:
    """A value for people: floats to six significant digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def results(run: Sealed) -> str:
    """The results of a run: short blocks whole, long ones as their range."""
    parts = []
    for name, block in sorted(run.protocol.blocks.items()):
        if block.rows != "csv":
            continue
        columns = run.table(name)
        names = [*block.factors, *block.decisions, *block.counts, *block.metrics]
        count = len(columns["row"])
        if count <= LONG:
            parts.append(f"{name}\n" + table(names, list(zip(*(columns[c] for c in names), strict=True))))
        else:
            numbers = [c for c in names if c in block.metrics or c in block.counts]
            ranges = [[c, min(columns[c]), max(columns[c])] for c in numbers]
            parts.append(f"{name}: {count} rows\n" + (table(["column", "least", "most"], ranges) if ranges else ""))
    return "\n\n".join(parts)
