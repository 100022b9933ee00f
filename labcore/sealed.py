"""Read a sealed run for figures, notebooks and reports: arrays, the results table and the audit. Never writes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from labcore import canonical
from labcore.bits import decode
from labcore.errors import Refused
from labcore.protocol import Block, Protocol, parse


class Sealed:
    """One run's folder (the one that holds `sealed/`).

    manifest, protocol, audit: the three JSON files; `audit` is {} before the audit.
    array(block, name): a copy of the stored array, `bits` decoded to float64 or bool; timings too.
    table(block): results.csv's lines of one block, column -> list; numbers parsed, empty cells left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        manifest = self.path / "sealed" / "manifest.json"
        if not manifest.is_file():
            raise Refused(f"{self.path}: not a run's folder; wanted one that holds sealed/manifest.json")
        self.manifest: dict[str, Any] = canonical.loads(manifest.read_bytes(), str(manifest))
        self.protocol: Protocol = parse(self.manifest["protocol"]["resolved"], str(manifest))

    @cached_property
    def audit(self) -> dict[str, Any]:
        path = self.path / "audit.json"
        return dict(canonical.loads(path.read_bytes(), str(path))) if path.is_file() else {}

    def array(self, block: str, name: str) -> NDArray[Any]:
        spec = self.protocol.blocks[block].arrays[name]
        timing = self.protocol.blocks[block].rows == "timing"
        path = self.path / "sealed" / ("timings.h5" if timing else "arrays.h5")
        with _whole(path, f"{block}/{name}"), h5py.File(path, "r") as file:
            values = np.asarray(file[block][name][()])
        return decode(values, spec.bits) if spec.bits else values

    @property
    def _csv(self) -> Path:
        return self.path / "sealed" / "results.csv"

    @cached_property
    def _lines(self) -> tuple[list[str], dict[str, list[str]]]:
        """results.csv: its header, and by block its lines, not yet parsed: a reader of one block does not wait for the others."""
        lines: dict[str, list[str]] = {}
        block, quoted = "", 0
        with self._csv.open(encoding="utf-8", newline="") as handle:
            header = next(csv.reader(handle), [])
            for line in handle:
                block = block if quoted else line.split(",", 2)[1]  # a text may hold a line break
                quoted ^= line.count('"') % 2
                lines.setdefault(block, []).append(line)
        return header, lines

    def table(self, block: str) -> dict[str, list[Any]]:
        spec = self.protocol.blocks[block]
        with _whole(self._csv, block):
            return self._table(block, spec)

    def _table(self, block: str, spec: Block) -> dict[str, list[Any]]:
        header, lines = self._lines
        text = dict(zip(header, zip(*csv.reader(lines[block]), strict=True), strict=True)) if block in lines else {}
        columns: dict[str, list[Any]] = {"row": [int(cell) for cell in text.get("row", ())]}
        if len(columns["row"]) != self.protocol.row_count(block):
            raise ValueError(f"{len(columns['row'])} rows; the protocol gives {self.protocol.row_count(block)}")
        for name in spec.factors:
            kind = type(self.protocol.values(name)[0])
            columns[name] = [cell == "true" if kind is bool else kind(cell) for cell in text[name]]
        for name in spec.decisions:
            columns[name] = [cell == "true" for cell in text[name]]
        for name in spec.counts:
            columns[name] = [int(cell) for cell in text[name]]
        for name in spec.metrics:
            columns[name] = [float(cell) for cell in text[name]]
        return columns


@contextmanager
def _whole(path: Path, what: str) -> Iterator[None]:
    """Refuse, in one line, a file that does not hold what the protocol says: it was damaged, and only an audit says how."""
    try:
        yield
    except (ValueError, LookupError, TypeError, csv.Error) as error:
        raise Refused(f"{path}: {what} cannot be read ({error}); `python -m audit {path.parents[1]}` says what is wrong") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise Refused(f"{path}: not HDF5 ({error}); `python -m audit {path.parents[1]}` says what is wrong") from error
