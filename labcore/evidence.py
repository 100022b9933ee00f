"""Write one sealed folder from an experiment's batches, streaming: memory does not grow with the evidence.

Arrays are written in place where the protocol fixes all their shapes, else to temporary files until the last batch, while their digests
run along; results.csv is written block by block. All is joined in the order that evidence/FORMAT.md fixes, so that the same numbers give
the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from labcore import canonical, metrics
from labcore.batch import Batch
from labcore.bits import decode
from labcore.errors import Refused
from labcore.protocol import Array, Protocol
from labcore.workspace import sync_file

PIECE = 1 << 22


class _ArrayWriter:
    """Appends rows of one array to a place in an open file, and keeps their digest."""

    def __init__(self, where: str, spec: Array, rows: int) -> None:
        self.where, self.spec, self.rows = where, spec, rows
        self.per_row = spec.shape[:1] == ["case"]
        self.file, self.start, self.size = -1, 0, 0  # descriptor, where in it the array begins, bytes so far
        self.digest = hashlib.sha256()
        self.tail: tuple[int, ...] | None = None
        self.written = 0

    def append(self, values: NDArray[Any]) -> NDArray[Any]:
        """Add rows (or the whole array, without a row axis); returns them as stored."""
        got: NDArray[Any] = np.asarray(values)
        array: NDArray[Any] = np.ascontiguousarray(got, dtype=self.spec.dtype).reshape(got.shape)
        if got.dtype.kind != array.dtype.kind and not (self.spec.bits == "bool" and got.dtype == bool):
            raise Refused(f"{self.where}: got dtype {got.dtype}; wanted {self.spec.dtype}")
        if got.dtype.itemsize > array.dtype.itemsize and not np.array_equal(array.astype(got.dtype), got, equal_nan=got.dtype.kind == "f"):
            raise Refused(f"{self.where}: values of dtype {got.dtype} do not fit {self.spec.dtype}")
        self._check_shape(array.shape)
        if not self.spec.nan:
            self._check_finite(array)
        data = array.reshape(-1).view(np.uint8).data
        self.digest.update(data)
        _write(self.file, data, self.start + self.size)
        self.size += len(data)
        self.written += array.shape[0] if self.per_row else 1
        return array

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self.spec.shape[1:] if self.per_row else self.spec.shape
        tail = shape[1:] if self.per_row else shape
        fits = len(shape) == len(self.spec.shape) and all(isinstance(w, str) or w == t for w, t in zip(wanted, tail, strict=True))
        if not fits or self.tail not in (None, tail):
            raise Refused(f"{self.where}: got shape {shape}; wanted {self.spec.shape} (axes {' '.join(self.spec.axes)})")
        self.tail = tail

    def _check_finite(self, array: NDArray[Any]) -> None:
        if self.spec.bits == "bool":
            bad = array > 1
        elif self.spec.bits:
            bad = ~np.isfinite(decode(array, self.spec.bits))
        elif array.dtype.kind == "f":
            bad = ~np.isfinite(array)
        else:
            return
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            raise Refused(f"{self.where}{list(place)}: got {array[place]}; the protocol allows no such value here (`nan: true` would)")

    @property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape that the protocol fixes; None where a dimension is free."""
        sizes = [self.rows if self.per_row and axis == 0 else size for axis, size in enumerate(self.spec.shape)]
        return None if any(isinstance(size, str) for size in sizes) else tuple(map(int, sizes))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what was given."""
        return (self.written, *(self.tail or ())) if self.per_row else (self.tail or ())


class _BlockWriter:
    """Checks and stores the batches of one block."""

    def __init__(self, name: str, protocol: Protocol, columns: list[str], first: int, folder: Path) -> None:
        self.name, self.block = name, protocol.blocks[name]
        self.rows, self.first = protocol.row_count(name), first
        self.factors = itertools.product(*(protocol.values(factor) for factor in self.block.factors))
        self.arrays = {a: _ArrayWriter(f"{name}/{a}", spec, self.rows) for a, spec in self.block.arrays.items()}
        self.columns = columns
        self.text: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", newline="", dir=folder)  # noqa: SIM115
        self.written = 0

    def add(self, batch: Batch) -> int:
        """Store one batch; returns its number of rows."""
        own = [name for name, metric in self.block.metrics.items() if metric.op == "own"]
        for got, wanted, what in (
            (batch.arrays, list(self.block.arrays), "arrays"),
            (batch.decisions, self.block.decisions, "decisions"),
            (batch.counts, self.block.counts, "counts"),
            (batch.own, own, "own metrics"),
        ):
            if set(got) != set(wanted):
                raise Refused(f"block {self.name}: got {what} {sorted(got)}; wanted {sorted(wanted)}")
        stored = {name: writer.append(batch.arrays[name]) for name, writer in self.arrays.items()}
        lengths = {name: array.shape[0] for name, array in stored.items() if self.arrays[name].per_row}
        lengths |= {name: len(v) for part in (batch.decisions, batch.counts, batch.own) for name, v in part.items()}
        if len(set(lengths.values())) > 1:
            raise Refused(f"block {self.name}: rows differ within one batch: {lengths}")
        count = next(iter(lengths.values()), self.rows)
        self.written += count
        if self.written > self.rows:
            raise Refused(f"block {self.name}: got more than {self.rows} rows; the protocol's factors give {self.rows}")
        if self.block.rows == "csv" and count:
            self._lines(batch, stored, count)
        return count

    def _lines(self, batch: Batch, stored: Mapping[str, NDArray[Any]], count: int) -> None:
        values: dict[str, Sequence[Any]] = {}
        for names in (batch.decisions, batch.counts):
            for name, given in names.items():
                values[name] = np.asarray(given).tolist()
        for name, given in batch.own.items():
            values[name] = list(given) if isinstance(given, list) else np.asarray(given).tolist()
        for name in batch.decisions:
            _require(set(map(type, values[name])) <= {bool}, f"{self.name}.{name}: a decision is true or false")
        for name in batch.counts:
            _require(set(map(type, values[name])) <= {int}, f"{self.name}.{name}: a count is an integer")
        for name in batch.own:
            finite = all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values[name])
            _require(finite, f"{self.name}.{name}: an own metric is a finite number")
        values |= metrics.compute(self.block, stored)
        values |= zip(self.block.factors, zip(*itertools.islice(self.factors, count), strict=True), strict=True)
        start = self.written - count
        values |= {"case": range(self.first + start, self.first + self.written), "block": [self.name] * count}
        values["row"] = range(start, self.written)
        values |= {name: _cells(values[name]) for name in (*self.block.factors, *self.block.decisions)}
        nothing, lines = [""] * count, io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(zip(*(values.get(column, nothing) for column in self.columns), strict=True))
        self.text.write(lines.getvalue())

    def finish(self) -> None:
        for writer in self.arrays.values():
            if writer.tail is None or (writer.per_row and writer.written != self.rows):
                raise Refused(f"{writer.where}: got {writer.written} rows; the protocol's factors give {self.rows}")
        if self.written != self.rows:
            raise Refused(f"block {self.name}: got {self.written} rows; the protocol's factors give {self.rows}")
        free: dict[str, int] = {}
        for writer in self.arrays.values():
            for name, size in zip(writer.spec.shape, writer.shape, strict=True):
                if isinstance(name, str) and name != "case" and free.setdefault(name, size) != size:
                    raise Refused(f"{writer.where}: dimension {name} is {size}; another array of the block has {free[name]}")


class _File:
    """One HDF5 file. HDF5 lays it out; the values are written in place by plain writes.

    Where the protocol fixes all shapes the layout comes first, and room for the values is had or refused at once. Else the values wait in
    temporary files, on the disk that will hold the run, until their shapes are known.

    HDF5 cannot be told gracefully that a disk is full (it may even crash while closing): so room for its own few bytes is
    reserved first, and the values, which are the bulk, never pass through it.
    """

    def __init__(self, path: Path, blocks: list[str], arrays: Mapping[str, _ArrayWriter]) -> None:
        self.path, self.blocks, self.arrays = path, blocks, arrays
        self.files: list[IO[bytes]] = []
        shapes = {at: writer.fixed for at, writer in arrays.items()}
        known = {at: shape for at, shape in shapes.items() if shape is not None}
        self.in_place = len(known) == len(shapes)
        if self.in_place:
            self._lay_out(known)
            return
        for writer in arrays.values():
            self.files.append(tempfile.TemporaryFile(dir=path.parent.parent))  # noqa: SIM115 - closed by `close`
            writer.file = self.files[-1].fileno()

    def _lay_out(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Make the file, and give every array its place in it."""
        _reserve(self.path, 65536 + 4096 * len(shapes))
        with h5py.File(self.path, "w", libver="earliest") as file:
            groups = {block: file.create_group(block) for block in self.blocks}
            starts = {at: _dataset(groups[at.split("/")[0]], at.split("/")[1], self.arrays[at].spec, shapes[at]) for at in shapes}
        self.files.append(self.path.open("r+b"))
        os.posix_fallocate(self.files[-1].fileno(), 0, self.path.stat().st_size)
        for at, start in starts.items():
            self.arrays[at].file, self.arrays[at].start = self.files[-1].fileno(), start

    def finish(self) -> dict[str, Any]:
        """Complete the file; the manifest's lines on its arrays."""
        if not self.in_place:
            waiting = {at: writer.file for at, writer in self.arrays.items()}
            self._lay_out({at: writer.shape for at, writer in self.arrays.items()})
            for at, writer in self.arrays.items():
                _copy(waiting[at], writer.file, writer.start)
        return {at: {"dtype": w.spec.dtype, "shape": list(w.shape), "sha256": w.digest.hexdigest()} for at, w in self.arrays.items()}

    def close(self) -> None:
        """Close all files, in the end or after a failure."""
        for file in self.files:
            file.close()


class Writer:
    """Collects the batches of one run and seals them into a folder.

    folder: an empty folder that will hold the sealed files. Use as a context manager (it holds open files).
    `add` may be called in any order of blocks; `seal` checks that every
    row came, writes the files and returns the manifest. Nothing is a run before `seal` returned.
    """

    def __init__(self, protocol: Protocol, folder: Path) -> None:
        self.protocol, self.folder = protocol, folder
        self.columns = columns(protocol)
        first = 0
        self.blocks: dict[str, _BlockWriter] = {}
        for name in sorted(protocol.blocks):
            self.blocks[name] = _BlockWriter(name, protocol, self.columns, first, folder.parent)
            first += self.blocks[name].rows if protocol.blocks[name].rows == "csv" else 0
        timing = {name: protocol.blocks[name].rows == "timing" for name in self.blocks}
        self.arrays = self._file("arrays.h5", [name for name in self.blocks if not timing[name]])
        self.timings = self._file("timings.h5", [name for name in self.blocks if timing[name]]) if any(timing.values()) else None
        self.open = [file for file in (self.arrays, self.timings) if file]

    def _file(self, name: str, blocks: list[str]) -> _File:
        arrays = {f"{block}/{a}": w for block in blocks for a, w in sorted(self.blocks[block].arrays.items())}
        return _File(self.folder / name, blocks, arrays)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for block in self.blocks.values():
            block.text.close()
        for file in self.open:
            file.close()

    def add(self, batch: Batch) -> int:
        """Store a batch; returns its number of csv rows (0 for other blocks)."""
        if batch.block not in self.blocks:
            raise Refused(f"got a batch of block {batch.block!r}; the protocol has {', '.join(self.blocks)}")
        rows = self.blocks[batch.block].add(batch)
        return rows if self.protocol.blocks[batch.block].rows == "csv" else 0

    def seal(self, sources: Mapping[str, bytes], described: Mapping[str, Any]) -> dict[str, Any]:
        """Write all files and the manifest. described: kind, overrides, differing, recorded."""
        for block in self.blocks.values():
            block.finish()
        data = self.arrays.finish()
        timings = self.timings.finish() if self.timings else {}
        self._results()
        _zip(self.folder / "sources.zip", sources)
        paths = sorted(self.folder.iterdir())
        with ThreadPoolExecutor(1) as disk:
            synced = disk.map(sync_file, paths)  # on their way to the disk while they are read
            files = {path.name: canonical.sha256_file(path) for path in paths}
            list(synced)
        resolved = self.protocol.resolved
        manifest = {
            "schema": "1",
            "experiment": self.protocol.experiment,
            "run": run_name(self.protocol.sha256, data, files["results.csv"]),
            "protocol": {"sha256": self.protocol.sha256, "resolved": resolved},
            "data": {"arrays": data, "results_sha256": files["results.csv"]},
            "timings": timings,
            "files": files,
            "sources": {name: canonical.sha256(content) for name, content in sources.items()},
            **described,
        }
        (self.folder / "manifest.json").write_bytes(canonical.dumps(manifest))
        return manifest

    def _results(self) -> None:
        with (self.folder / "results.csv").open("w", encoding="utf-8", newline="") as out:
            out.write(",".join(self.columns) + "\n")
            for block in self.blocks.values():
                block.text.seek(0)
                shutil.copyfileobj(block.text, out, PIECE)


def columns(protocol: Protocol) -> list[str]:
    """The header of results.csv (FORMAT.md section 5)."""
    blocks = [block for block in protocol.blocks.values() if block.rows == "csv"]

    def union(names: Iterable[Iterable[str]]) -> list[str]:
        return sorted({name for group in names for name in group})

    factors = union(b.factors for b in blocks)
    seed = ["seed"] if "seed" in factors else []
    rest = [name for name in factors if name != "seed"]
    decisions, counts = union(b.decisions for b in blocks), union(b.counts for b in blocks)
    return ["case", "block", "row", *seed, *rest, *decisions, *counts, *union(b.metrics for b in blocks)]


def run_name(protocol: str, arrays: Mapping[str, Mapping[str, Any]], results: str) -> str:
    """The run's name from the digests (FORMAT.md section 6)."""
    lines = [f"protocol {protocol}"]
    for path, array in sorted(arrays.items()):
        shape = "x".join(str(n) for n in array["shape"]) or "scalar"
        lines.append(f"array {path} {array['dtype']} {shape} {array['sha256']}")
    lines.append(f"results {results}")
    return canonical.sha256("".join(line + "\n" for line in lines).encode())[:12]


def _write(target: int, data: memoryview, offset: int) -> None:
    """All bytes into an open file from an offset on."""
    done = 0
    while done < len(data):
        done += os.pwrite(target, data[done:], offset + done)


def _copy(source: int, target: int, offset: int) -> None:
    """All bytes of one open file into another from an offset on, by the kernel."""
    os.lseek(target, offset, os.SEEK_SET)
    done, size = 0, os.fstat(source).st_size
    while done < size:
        done += os.sendfile(target, source, done, size - done)


def _reserve(path: Path, size: int) -> None:
    """Raise OSError now if the disk cannot take `size` more bytes."""
    with path.open("wb") as handle:
        os.posix_fallocate(handle.fileno(), 0, size)
    path.unlink()


def _dataset(group: h5py.Group, name: str, spec: Array, shape: tuple[int, ...]) -> int:
    """Create a contiguous dataset whose place in the file is fixed; returns its offset, 0 where it is empty."""
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_layout(h5py.h5d.CONTIGUOUS)
    dcpl.set_obj_track_times(False)
    dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    dcpl.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple(shape)
    kind = h5py.h5t.py_create(np.dtype(spec.dtype))
    dataset = h5py.Dataset(h5py.h5d.create(group.id, name.encode(), kind, space, dcpl))
    for key, text in (("axes", " ".join(spec.axes)), ("unit", spec.unit)):
        _attribute(dataset, key, text)
    return int(dataset.id.get_offset()) if math.prod(shape) else 0


def _attribute(dataset: h5py.Dataset, name: str, text: str) -> None:
    data = text.encode() or b"\0"
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(data))
    kind.set_cset(h5py.h5t.CSET_UTF8)
    kind.set_strpad(h5py.h5t.STR_NULLPAD)
    space = h5py.h5s.create(h5py.h5s.SCALAR)
    attribute = h5py.h5a.create(dataset.id, name.encode(), kind, space)
    attribute.write(np.array(data, dtype=f"S{len(data)}"), kind)


def _zip(path: Path, sources: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(sources.items()):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, content)


def _cells(values: Sequence[Any]) -> Sequence[Any]:
    """A column that may hold booleans as FORMAT.md writes them; the rest, a number as its shortest exact text, is csv's own way."""
    return ["true" if value else "false" for value in values] if set(map(type, values)) == {bool} else values


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise Refused(text)
