"""Measures and expressions (FORMAT 3): SQL from strangers, in a database that holds nothing but the tables of one run."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

FUNCTIONS = {"min", "max", "sum", "avg", "count", "abs", "round", "total", "coalesce"}
STEPS = 50_000_000
"""Steps of SQLite's machine that one measure may take; counted in slices of `SLICE`."""
SLICE = 10_000
MAX_TEXT = 20_000
COMMON = re.compile(r"\b(\w+)\s*(?:\([\w\s,]*\)\s*)?AS\s*(?:NOT\s+)?(?:MATERIALIZED\s*)?\(", re.IGNORECASE)
COLUMN = re.compile(r"[a-z][a-z0-9_]*")


class NotAllowed(Exception):
    """SQL that is not allowed, or that fails; the message says why."""


class _Mean:
    """avg by a correctly rounded sum; the last digits of SQLite's own depend on its version."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def step(self, value: float | None) -> None:
        if value is not None:
            self._values.append(value)

    def finalize(self) -> float | None:
        return math.fsum(self._values) / len(self._values) if self._values else None


class Tables:
    """The tables of one run: `add` them, then ask for measures and expressions over them."""

    def __init__(self, steps: int = STEPS) -> None:
        self._names: set[str] = set()
        self._readable: set[str] = set()
        self._steps = steps
        self._common: set[str] = set()
        self._left = 0
        self._open = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
        self._open.create_aggregate("avg", 1, _Mean)  # type: ignore[arg-type]
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2 * MAX_TEXT),
            (sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        ):
            self._open.setlimit(limit, value)

    def add(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """A table; the names come from a checked protocol."""
        self._open.set_authorizer(None)
        listed = ", ".join(f'"{column}"' for column in columns)
        self._open.execute(f'CREATE TABLE "{name}" ({listed})')
        self._open.execute("BEGIN")
        self._open.executemany(f'INSERT INTO "{name}" VALUES ({",".join("?" * len(columns))})', rows)
        self._open.execute("COMMIT")
        self._names.add(name)

    def measure(self, text: str) -> dict[str, Any]:
        """Column -> value of the one row that the SELECT gives."""
        self._readable = self._names
        cursor, rows = self._run(text, ())
        names = [column[0] for column in cursor.description]
        if len(rows) != 1:
            raise NotAllowed(f"gives {'no row' if not rows else 'more than one row'}; wanted one")
        if len(set(names)) != len(names) or not all(COLUMN.fullmatch(name) for name in names):
            raise NotAllowed(f"the columns {', '.join(names)} are not distinct names")
        for name, value in zip(names, rows[0], strict=True):
            if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
                raise NotAllowed(f"the column {name} is {value!r}")
        return dict(zip(names, rows[0], strict=True))

    def expression(self, text: str, values: dict[str, Any]) -> Any:
        """The value of an expression over a measure's row; it sees no table."""
        self._readable = set()
        columns = ", ".join(f'? AS "{name}"' for name in values)
        _, rows = self._run(f"SELECT ({text}\n) FROM (SELECT {columns})", tuple(values.values()), text)
        if len(rows) != 1 or len(rows[0]) != 1:
            raise NotAllowed("is not one expression")
        return rows[0][0]

    def _run(self, statement: str, values: tuple[Any, ...], text: str = "") -> tuple[sqlite3.Cursor, list[tuple[Any, ...]]]:
        for part in (statement, text):
            if len(part) > MAX_TEXT or ";" in part or "\0" in part:
                raise NotAllowed("is longer than allowed, or holds a semicolon or NUL")
        self._left = self._steps // SLICE
        named = (name.lower() for name in COMMON.findall(statement))
        self._common = {name for name in named if not name.startswith(("sqlite_", "pragma_"))}
        self._open.set_authorizer(self._allow)
        self._open.set_progress_handler(self._tick, SLICE)
        try:
            cursor = self._open.execute(statement, values)
            if cursor.description is None:
                raise NotAllowed("is not a SELECT")
            return cursor, cursor.fetchmany(2)
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError, UnicodeError) as error:
            why = f"takes more than {self._steps} steps" if self._left < 0 else str(error)
            raise NotAllowed(why) from None
        finally:
            self._open.set_progress_handler(None, 0)

    def _tick(self) -> int:
        self._left -= 1
        return int(self._left < 0)

    def _allow(self, action: int, first: str | None, second: str | None, schema: str | None, _: str | None) -> int:
        if action == sqlite3.SQLITE_SELECT:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and schema in ("main", None) and first in self._readable:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and schema is None and not second and first is not None and first.lower() in self._common:
            return sqlite3.SQLITE_OK  # count(*) over a common table expression reads "no column" of its name
        if action == sqlite3.SQLITE_FUNCTION and second is not None and second.lower() in FUNCTIONS:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY
