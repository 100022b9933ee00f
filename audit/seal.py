"""Level 1: the sealed folder, file by file, against its manifest and its protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit import bundle, manifest, schema, table
from audit.files import Blob
from audit.findings import Damaged, Findings
from audit.h5form import Dataset, Parser
from audit.strictjson import write
from audit.values import Scan

PIECE = 8 << 20
"""Bytes of an array that are looked at in one go."""


@dataclass(slots=True)
class Sealed:
    """What could be read of a run."""

    manifest: dict[str, Any]
    digest: str
    plan: schema.Protocol | None = None
    files: dict[str, Blob] = field(default_factory=dict)
    arrays: dict[tuple[str, str], tuple[Blob, Dataset]] = field(default_factory=dict)
    columns: table.Columns | None = None

    def read(self, block: str, array: str, rows: Sequence[int] | None = None) -> NDArray[Any]:
        """Stored values, of all rows or of some; rows that lie side by side are read together."""
        blob, item = self.arrays[block, array]
        dtype = np.dtype(item.dtype)
        if rows is None or (isinstance(rows, range) and rows == range(item.shape[0])):
            data = blob.read(item.offset, item.nbytes)
            return np.frombuffer(data, dtype).reshape(item.shape).copy()
        result = np.empty((len(rows), *item.shape[1:]), dtype)
        width = item.nbytes // item.shape[0] if item.shape[0] else 0
        at = 0
        while at < len(rows):
            stop = at + 1
            while stop < len(rows) and rows[stop] == rows[stop - 1] + 1:
                stop += 1
            if not 0 <= rows[at] <= rows[stop - 1] < item.shape[0]:
                raise IndexError(f"{block}/{array} has {item.shape[0]} rows, not one numbered {rows[at]}")
            data = blob.read(item.offset + rows[at] * width, (stop - at) * width)
            result[at:stop] = np.frombuffer(data, dtype).reshape((stop - at, *item.shape[1:]))
            at = stop
        return result

    def pieces(self, block: str) -> list[range]:
        """Ranges of rows of a block of which no array takes more than `PIECE` bytes, or single rows."""
        assert self.plan is not None
        count = self.plan.count(block)
        largest = max((item.nbytes for (name, _), (_, item) in self.arrays.items() if name == block), default=0)
        step = max(1, count * PIECE // max(largest, 1))
        return [range(start, min(start + step, count)) for start in range(0, count, step)]

    def close(self) -> None:
        """Close all files."""
        for blob in self.files.values():
            blob.close()


def read(folder: Path, findings: Findings) -> Sealed:
    """Read and check `<folder>/sealed`; Damaged where not even the manifest can be read."""
    sealed = folder / "sealed"
    present = _listing(sealed)
    if "manifest.json" not in present:
        raise Damaged("S104", "manifest.json", "is missing")
    blob = Blob(sealed / "manifest.json")
    data = blob.whole()
    blob.close()
    value = manifest.read(data, findings)
    result = Sealed(value, hashlib.sha256(data).hexdigest())
    if folder.name != value["run"]:
        findings.add("S101", "run", "the folder's name is not the run's name", folder.name, value["run"])
    name = manifest.name(value)
    if name != value["run"]:
        findings.add("S102", "run", "the name does not follow from the digests", value["run"], name)
    try:
        result.plan = _protocol(value, findings)
    except Damaged as error:
        findings.damaged(error)
    timed = bool(result.plan and result.plan.of_kind("timing")) or (result.plan is None and "timings.h5" in value["files"])
    wanted = {"arrays.h5", "results.csv", "sources.zip"} | ({"timings.h5"} if timed else set())
    for name in sorted((present - {"manifest.json"}) ^ wanted):
        findings.add("S104", name, "is missing" if name in wanted else "is not declared")
    if value["files"].keys() != wanted:
        findings.add("S104", "manifest.json", "declares other files than the protocol needs", sorted(value["files"]), sorted(wanted))
    for name in sorted(wanted & present):
        try:
            result.files[name] = Blob(sealed / name)
        except Damaged as error:
            findings.damaged(error)
    for name in ("arrays.h5", "timings.h5"):
        if name in result.files:
            _hdf5(name, result, findings)
    _csv(result, findings)
    if "sources.zip" in result.files:
        content = result.files["sources.zip"].whole()
        _digest("sources.zip", hashlib.sha256(content).hexdigest(), value, findings)
        bundle.check(content, value["sources"], value["experiment"], findings)
    return result


def _listing(sealed: Path) -> set[str]:
    try:
        if sealed.is_symlink() or not sealed.is_dir():
            raise Damaged("S104", "sealed", "is not there, or not a folder")
        return {item.name for item in sealed.iterdir()}
    except OSError as error:
        raise Damaged("S119", "sealed", f"cannot be listed: {error.strerror}") from None


def _protocol(value: dict[str, Any], findings: Findings) -> schema.Protocol:
    stored, resolved = value["protocol"]["sha256"], value["protocol"]["resolved"]
    actual = hashlib.sha256(write(resolved)).hexdigest()
    if actual != stored:
        findings.add("S106", "protocol", "the digest", stored, actual)
    plan = schema.check(resolved)
    if plan.document["experiment"] != value["experiment"]:
        findings.add("S106", "protocol.experiment", "is not the manifest's", plan.document["experiment"], value["experiment"])
    return plan


def _digest(name: str, actual: str, value: dict[str, Any], findings: Findings) -> None:
    stored = value["files"].get(name)
    if stored is not None and stored != actual:
        findings.add("S105", name, "the file's digest", stored, actual)


def _csv(result: Sealed, findings: Findings) -> None:
    blob = result.files.get("results.csv")
    if blob is None:
        return
    content = blob.whole()
    actual = hashlib.sha256(content).hexdigest()
    _digest("results.csv", actual, result.manifest, findings)
    stored = result.manifest["data"]["results_sha256"]
    if stored != actual:
        findings.add("S116", "results.csv", "the digest of the results", stored, actual)
    if result.plan is not None:
        try:
            result.columns = table.read(content, result.plan, findings)
        except Damaged as error:
            findings.damaged(error)


def _hdf5(name: str, result: Sealed, findings: Findings) -> None:
    """Form, digests and coverage of one HDF5 file."""
    blob = result.files[name]
    declared: dict[str, Any] = result.manifest["data"]["arrays"] if name == "arrays.h5" else result.manifest["timings"]
    try:
        groups = Parser(name, blob.size, blob.read).blocks()
    except Damaged as error:
        findings.damaged(error)
        _digest(name, blob.digest(), result.manifest, findings)
        return
    found = {(group, key): item for group, members in groups.items() for key, item in members.items()}
    if result.plan is not None:
        _coverage(name, groups, found, result, findings)
    scans = _scans(found, result)
    whole, parts = blob.digests(
        [(item.offset, item.nbytes) for item in found.values()], lambda place, data: scans[place].feed(data) if place in scans else None
    )
    for place, (block, array) in enumerate(found):
        if place in scans:
            scans[place].report(f"{block}/{array}", found[block, array].shape, findings)
    _digest(name, whole, result.manifest, findings)
    for (group, key), item, actual in zip(found, found.values(), parts, strict=True):
        entry = declared.get(f"{group}/{key}")
        if entry is None:
            findings.add("S110", f"{group}/{key}", "is not in the manifest")
            continue
        if (entry["dtype"], entry["shape"]) != (item.dtype, list(item.shape)):
            findings.add("S112", f"{group}/{key}", "the manifest declares another dtype or shape", _kind(entry), _kind(item))
        if entry["sha256"] != actual:
            findings.add("S111", f"{group}/{key}", "the array's digest", entry["sha256"], actual)
    for path in sorted(declared.keys() - {"/".join(key) for key in found}):
        findings.add("S110", path, f"is not in {name}")


def _scans(found: dict[tuple[str, str], Dataset], result: Sealed) -> dict[int, Scan]:
    """What looks at the values of each array, by its place; arrays whose values are free are left out."""
    scans: dict[int, Scan] = {}
    for place, (block, array) in enumerate(found):
        if result.plan is not None and (block, array) in result.arrays:
            scan = Scan(result.plan.blocks[block].arrays[array])
            if not scan.idle:
                scans[place] = scan
    return scans


def _kind(item: Any) -> str:
    dtype, shape = (item["dtype"], item["shape"]) if isinstance(item, dict) else (item.dtype, item.shape)
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}"


def _coverage(name: str, groups: dict[str, Any], found: dict[tuple[str, str], Dataset], result: Sealed, findings: Findings) -> None:
    """Exactly the arrays that the protocol declares, each of its dtype, shape, axes and unit."""
    plan = result.plan
    assert plan is not None
    blocks = plan.of_kind("timing") if name == "timings.h5" else plan.of_kind("csv", "none")
    wanted = {(block, key) for block in blocks for key in plan.blocks[block].arrays}
    for block in sorted(groups.keys() ^ set(blocks)):
        findings.add("S113", f"{name}:{block}", "is no block of this file" if block in groups else "the block has no group")
    for block, key in sorted(found.keys() - wanted):
        findings.add("S110", f"{block}/{key}", "is not declared by the protocol")
    for block, key in sorted(wanted - found.keys()):
        findings.add("S110", f"{block}/{key}", "is declared by the protocol, but missing")
    free: dict[tuple[str, str], int] = {}
    for block, key in sorted(wanted & found.keys()):
        item, spec, where = found[block, key], plan.blocks[block].arrays[key], f"{block}/{key}"
        sizes: list[Any] = []
        for place, size in enumerate(spec.shape):
            if isinstance(size, int):
                sizes.append(size)
            elif size == "case":
                sizes.append(plan.count(block))
            else:
                sizes.append(free.setdefault((block, size), item.shape[place] if place < len(item.shape) else -1))
        if (item.dtype, list(item.shape)) != (spec.dtype, sizes):
            got = f"{spec.dtype} {'x'.join(map(str, sizes)) or 'scalar'}"
            findings.add("S112", where, "another dtype or shape than the protocol gives", _kind(item), got)
            continue
        if item.attributes != {"axes": " ".join(spec.axes), "unit": spec.unit}:
            findings.add("S113", where, "other attributes than axes and unit of the protocol", str(item.attributes))
        result.arrays[block, key] = (result.files[name], item)
