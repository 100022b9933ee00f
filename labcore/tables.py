"""Aligned tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labcore.sealed import Sealed

LONG, SCREEN = 24, 40  # rows up to which a block is printed whole, and lines for all of them


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
    """The results of a run: the published block first, short blocks whole while they fit a screen, the rest as a line."""
    parts, room = [], SCREEN
    blocks = {name: block for name, block in run.protocol.blocks.items() if block.rows == "csv"}
    for name in sorted(blocks, key=lambda n: (n != "published", run.protocol.row_count(n), n)):
        block, count = blocks[name], run.protocol.row_count(name)
        names = [*block.factors, *block.decisions, *block.counts, *block.metrics]
        if count <= LONG and count + 2 <= room:
            columns = run.table(name)
            room -= count + 2
            parts.append(f"{name}\n" + table(names, list(zip(*(columns[c] for c in names), strict=True))) + "\n")
        else:
            parts.append(f"{name}: {count} rows in results.csv: {', '.join(names)}")
    return "\n".join(parts)
