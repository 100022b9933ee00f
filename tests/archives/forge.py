"""An adversary's tools: take an archive or its run apart, change anything, and make all digests and derived files anew."""

import copy
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from labcore import bag, canonical, confined, contents, evidence, tape
from labcore.metadata import Facts


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def members(archive: Path) -> dict[str, bytes]:
    """Name behind the top folder -> content."""
    with archive.open("rb") as handle:
        found, _ = tape.read(handle.fileno(), archive.name)
        data = archive.read_bytes()
    return {m.name.partition("/")[2]: data[m.offset : m.offset + m.size] for m in found}


def rebag(files: dict[str, bytes]) -> dict[str, bytes]:
    """Fresh manifests, tag manifests and Payload-Oxum over changed files."""
    payload = {name: data for name, data in files.items() if name.startswith("data/")}
    size = sum(map(len, payload.values()))
    info = []
    for line in files["bag-info.txt"].decode().splitlines():
        label, value = line.split(": ", 1)
        info.append((label, f"{size}.{len(payload)}" if label == "Payload-Oxum" else value))
    tags = bag.tag_files({name: sha(data) for name, data in payload.items()}, info)
    return {**payload, **tags}


def retag(files: dict[str, bytes]) -> dict[str, bytes]:
    """A fresh tag manifest only, over tag files as they are."""
    tags = {name: data for name, data in files.items() if not name.startswith("data/") and not name.startswith("tagmanifest-")}
    return {**files, "tagmanifest-sha256.txt": bag.manifest({name: sha(data) for name, data in tags.items()})}


def pack(top: str, files: dict[str, bytes], date: int) -> bytes:
    """The canonical tar of these files."""
    out = io.BytesIO()
    tape.write(out, {f"{top}/{name}": data for name, data in files.items()}, date)
    return out.getvalue()


def raw(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A tar of raw headers and contents, ended as it should be."""
    body = b"".join(head + data + bytes(tape.padding(len(data))) for head, data in entries)
    return body + bytes(1024 + tape.padding(len(body) + 1024, tape.RECORD))


def header(name: bytes, data: bytes, stamp: int, /, **fields: bytes) -> bytes:
    """A header with any field replaced (mode, size, type, link, ...), its checksum right."""
    block = bytearray(tape.header("x", len(data), stamp))
    block[0:100] = name[:100].ljust(100, b"\0")
    for field, start, end in tape.FIELDS:
        value = fields.get(field.replace("'s ", "_"))
        if value is not None:
            block[start:end] = value.ljust(end - start, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


class Forged:
    """A copy of a run's folder, to be changed and sealed again."""

    def __init__(self, run: Path, place: Path, root: Path) -> None:
        self.root, self.place = root, place
        self.run = place / run.name
        shutil.copytree(run, self.run)
        self.sealed = self.run / "sealed"
        self.manifest: dict[str, Any] = json.loads((self.sealed / "manifest.json").read_bytes())

    def array(self, at: str, change: Callable[[np.ndarray], None]) -> "Forged":
        """Change an array's values in place."""
        path = self.sealed / "arrays.h5"
        with h5py.File(path) as file:
            values, offset = file[at][()], file[at].id.get_offset()
        change(values)
        data = bytearray(path.read_bytes())
        data[offset : offset + values.nbytes] = values.tobytes()
        path.write_bytes(data)
        self.manifest["data"]["arrays"][at]["sha256"] = sha(values.tobytes())
        return self

    def csv(self, old: str, new: str) -> "Forged":
        path = self.sealed / "results.csv"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        self.manifest["data"]["results_sha256"] = sha(path.read_bytes())
        return self

    def protocol(self, change: Callable[[dict[str, Any]], None]) -> "Forged":
        resolved = self.manifest["protocol"]["resolved"]
        change(resolved)
        self.manifest["protocol"]["sha256"] = sha(canonical.dumps(resolved))
        return self

    def source(self, name: str, data: bytes) -> "Forged":
        import zipfile

        with zipfile.ZipFile(self.sealed / "sources.zip") as archive:
            sources = {n: archive.read(n) for n in archive.namelist()}
        sources[name] = data
        evidence._zip(self.sealed / "sources.zip", sources)
        self.manifest["sources"] = {n: sha(d) for n, d in sources.items()}
        return self

    def seal(self) -> "Forged":
        """All digests and the run's name anew."""
        self.manifest["files"] = {name: sha((self.sealed / name).read_bytes()) for name in self.manifest["files"]}
        data = self.manifest["data"]
        self.manifest["run"] = evidence.run_name(self.manifest["protocol"]["sha256"], data["arrays"], data["results_sha256"])
        (self.sealed / "manifest.json").write_bytes(canonical.dumps(self.manifest))
        if self.run.name != self.manifest["run"]:
            self.run = self.run.rename(self.place / self.manifest["run"])
            self.sealed = self.run / "sealed"
        return self

    def archive(self, change: Callable[[dict[str, Any]], None] | None = None, draft: list[str] | None = None) -> tuple[str, bytes]:
        """Top folder and archive of the run as it is now; `change` edits the audit's document, which is made to say VERIFIED."""
        with confined.Child(self.place) as child:
            document = copy.deepcopy(child.judge(self.run, {}, "forged", 0)["document"])
        document |= {"verdict": "VERIFIED", "findings": []}
        if change is not None:
            change(document)
        facts = Facts(self.manifest, document, contents.sealed_swhid(self.sealed), draft or [])
        files = contents.assemble(self.run, self.root, facts, canonical.dumps(document))
        out = io.BytesIO()
        tape.write(out, files, contents.seconds(facts))
        return contents.top(facts), out.getvalue()
