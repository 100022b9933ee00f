"""A writer of evidence for tests, from evidence/FORMAT.md: loads a run, lets a test change anything, seals it again with fresh digests.

An adversary has such a program; what the auditor still finds after it is what the audit is worth.
"""

import copy
import hashlib
import json
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def canonical(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def attribute(item: Any, name: str, text: str) -> None:
    data = text.encode() or b"\0"
    kind = h5py.string_dtype("utf-8", len(data))
    item.attrs.create(name, np.array(data, dtype=kind), dtype=kind)


@dataclass
class Evidence:
    """All of a run, in memory. `arrays` and `timings` map "block/array" to values; `attributes` may replace axes and unit."""

    protocol: dict[str, Any]
    arrays: dict[str, np.ndarray]
    timings: dict[str, np.ndarray]
    lines: list[list[str]]
    sources: dict[str, bytes]
    manifest: dict[str, Any]
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    resolve: bool = True

    @classmethod
    def load(cls, run: Path) -> "Evidence":
        sealed = run / "sealed"
        manifest = json.loads((sealed / "manifest.json").read_bytes())
        parts = []
        for name in ("arrays.h5", "timings.h5"):
            part = {}
            if (sealed / name).exists():
                with h5py.File(sealed / name) as file:
                    for block in file:
                        for array in file[block]:
                            part[f"{block}/{array}"] = file[block][array][()]
            parts.append(part)
        with zipfile.ZipFile(sealed / "sources.zip") as archive:
            sources = {name: archive.read(name) for name in archive.namelist()}
        lines = [line.split(",") for line in (sealed / "results.csv").read_text().splitlines()]
        return cls(copy.deepcopy(manifest["protocol"]["resolved"]), *parts, lines, sources, manifest)

    def column(self, name: str) -> int:
        return self.lines[0].index(name)

    def csv(self) -> bytes:
        return "".join(",".join(line) + "\n" for line in self.lines).encode()

    def seal(self, parent: Path) -> Path:
        """Write the run under `parent`, all digests and its name fresh."""
        work = parent / "sealing"
        sealed = work / "sealed"
        sealed.mkdir(parents=True)
        blocks = self.protocol["blocks"]
        timed = [name for name, block in blocks.items() if block.get("rows") == "timing"]
        self.hdf5(sealed / "arrays.h5", self.arrays, set(blocks) - set(timed))
        if timed:
            self.hdf5(sealed / "timings.h5", self.timings, set(timed))
        (sealed / "results.csv").write_bytes(self.csv())
        archive(sealed / "sources.zip", self.sources)
        value = self.manifest
        if self.resolve:
            value["protocol"] = {"sha256": sha(canonical(self.protocol)), "resolved": self.protocol}
        value["data"] = {"arrays": describe(self.arrays), "results_sha256": sha(self.csv())}
        value["timings"] = describe(self.timings)
        value["sources"] = {name: sha(data) for name, data in self.sources.items()}
        value["files"] = {item.name: sha(item.read_bytes()) for item in sealed.iterdir()}
        value["run"] = run_name(value)
        (sealed / "manifest.json").write_bytes(canonical(value))
        target = parent / value["run"]
        if target.exists():
            shutil.rmtree(target)
        return work.rename(target)

    def hdf5(self, path: Path, arrays: dict[str, np.ndarray], blocks: set[str]) -> None:
        with h5py.File(path, "w", libver="earliest") as file:
            for block in sorted(blocks | {name.split("/")[0] for name in arrays}):
                group = file.create_group(block)
                for name in sorted(name for name in arrays if name.split("/")[0] == block):
                    array = name.split("/")[1]
                    item = group.create_dataset(array, data=arrays[name], track_times=False)
                    declared = self.protocol["blocks"].get(block, {}).get("arrays", {}).get(array, {"axes": [], "unit": "1"})
                    own = self.attributes.get(name, {"axes": " ".join(declared["axes"]), "unit": declared["unit"]})
                    for key in sorted(own):
                        attribute(item, key, own[key])


def run_name(value: dict[str, Any]) -> str:
    lines = ["protocol " + sha(canonical(value["protocol"]["resolved"]))]
    for name, item in sorted(value["data"]["arrays"].items()):
        lines.append(f"array {name} {item['dtype']} {'x'.join(map(str, item['shape'])) or 'scalar'} {item['sha256']}")
    lines.append("results " + value["data"]["results_sha256"])
    return sha("".join(line + "\n" for line in lines).encode())[:12]


def describe(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    result = {}
    for name, values in arrays.items():
        values = np.asarray(values)
        data = np.ascontiguousarray(values).tobytes()
        result[name] = {"dtype": values.dtype.str, "shape": list(values.shape), "sha256": sha(data)}
    return result


def archive(path: Path, sources: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as out:
        for name in sorted(sources):
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            out.writestr(info, sources[name])


def reseal_files(run: Path) -> Path:
    """Fresh file digests in the manifest after files of `sealed/` were changed by hand; the run keeps its name."""
    sealed = run / "sealed"
    value = json.loads((sealed / "manifest.json").read_bytes())
    value["files"] = {item.name: sha(item.read_bytes()) for item in sealed.iterdir() if item.name in value["files"]}
    (sealed / "manifest.json").write_bytes(canonical(value))
    return run


def line(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n").encode()


def chain(entries: list[dict[str, str]]) -> bytes:
    """A ledger of these entries: numbers and links are filled in."""
    data, previous = b"", "0" * 64
    for number, entry in enumerate(entries):
        base = {"time": "2030-01-02T03:04:05Z", "event": "kept", "experiment": "", "run": "", "manifest": "", "text": ""}
        part = line({**base, **entry, "n": number, "previous": previous})
        data, previous = data + part, sha(part)
    return data
