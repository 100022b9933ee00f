"""Random damages to evidence: of bytes, JSON leaves, table cells, array elements and files; some sealed again with fresh digests.

Each is a function (rng, ...) -> Change or None (nothing to change there, draw again). A Change says what was done and, where the contract
leaves such a thing free, why nobody can find it (`free`), or by how much a number moved (`moved`, of the array or column `place`).
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.audit.reseal import Evidence, canonical

RECORDED = "what was recorded is part of no comparison (FORMAT 7)"
FILES = ("arrays.h5", "results.csv", "sources.zip", "manifest.json", "timings.h5")


@dataclass
class Change:
    """What was done."""

    text: str
    place: str = ""
    moved: float = math.inf
    free: str = ""


# --- bytes and files, as they lie


def some_file(rng: random.Random, sealed: Path) -> Path:
    return sealed / rng.choice([name for name in FILES if (sealed / name).exists()])


def flip_bits(rng: random.Random, sealed: Path) -> Change:
    path = some_file(rng, sealed)
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return Change(f"{path.name}: a bit at {at}")


def write_noise(rng: random.Random, sealed: Path) -> Change | None:
    path = some_file(rng, sealed)
    data = bytearray(path.read_bytes())
    at, count = rng.randrange(len(data)), rng.choice([1, 2, 8, 64, 1000])
    noise = rng.choice([rng.randbytes(count), bytes(count), b"\xff" * count])[: len(data) - at]
    if data[at : at + len(noise)] == noise:
        return None
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    return Change(f"{path.name}: {len(noise)} bytes at {at}")


def cut_or_grow(rng: random.Random, sealed: Path) -> Change:
    path = some_file(rng, sealed)
    data = path.read_bytes()
    at, count = rng.randrange(len(data)), rng.choice([1, 8, 100])
    kind = rng.choice(["truncated", "removed", "inserted", "appended"])
    if kind == "truncated":
        data = data[:at]
    elif kind == "removed":
        data = data[:at] + data[at + count :]
    elif kind == "inserted":
        data = data[:at] + rng.randbytes(count) + data[at:]
    else:
        data += rng.choice([b"\n", b"\0", b" ", rng.randbytes(count)])
    path.write_bytes(data)
    return Change(f"{path.name}: {kind} at {at}")


def move_files(rng: random.Random, sealed: Path) -> Change | None:
    path, other = some_file(rng, sealed), some_file(rng, sealed)
    kind = rng.choice(["deleted", "renamed", "swapped", "copied", "emptied", "made a folder", "made a link", "added", "run renamed"])
    if kind == "swapped":
        if path.read_bytes() == other.read_bytes():
            return None
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
    elif kind == "copied":
        if path.read_bytes() == other.read_bytes():
            return None
        other.write_bytes(path.read_bytes())
    elif kind == "added":
        (sealed / rng.choice(["notes.txt", "arrays.h5~", ".hidden", "arrays.H5"])).write_bytes(b"x")
    elif kind == "run renamed":
        sealed.parent.rename(sealed.parent.with_name(f"{rng.randrange(16**12):012x}"))
    elif kind == "emptied":
        path.write_bytes(b"")
    elif kind == "renamed":
        path.rename(path.with_suffix(".old"))
    else:
        content = path.read_bytes()
        path.unlink()
        if kind == "made a folder":
            path.mkdir()
        elif kind == "made a link":
            (sealed.parent / path.name).write_bytes(content)
            path.symlink_to(f"../{path.name}")
    return Change(f"{path.name}: {kind}")


def change_cell(rng: random.Random, sealed: Path) -> Change | None:
    path = sealed / "results.csv"
    lines = [line.split(",") for line in path.read_text().splitlines()]
    text = edit_cell(rng, lines)
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    return None if text is None else Change(f"results.csv: {text}")


def change_manifest(rng: random.Random, sealed: Path) -> Change | None:
    path = sealed / "manifest.json"
    value = json.loads(path.read_bytes())
    where = edit_leaf(rng, value)
    if where is None:
        return None
    path.write_bytes(canonical(value))
    return Change(f"manifest: {where}", free=free_leaf(where, value))


def free_leaf(where: str, value: dict[str, Any]) -> str:
    """Why a leaf of the manifest may have any value of its form."""
    if where.startswith("recorded/environment") or where in ("recorded/start", "recorded/end"):
        return RECORDED
    if where == "recorded/git/commit":
        return "a commit that is not here: HEAD has the same sources, so they are the committed ones"
    return ""


# --- JSON


def edit_leaf(rng: random.Random, value: Any) -> str | None:
    """Change one leaf, or the shape of one container; its path comes back."""
    paths: list[tuple[Any, Any, str]] = []

    def walk(node: Any, path: str) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            where = f"{path}/{key}".lstrip("/")
            paths.append((node, key, where))
            if isinstance(node[key], dict | list):
                walk(node[key], where)

    walk(value, "")
    node, key, where = rng.choice(paths)
    old = copy.deepcopy(node[key])
    kind = rng.random()
    if kind < 0.12:
        del node[key]
        return where
    if kind < 0.2:
        if isinstance(node, dict):
            node[f"{key}x"] = old
        else:
            node.insert(key, old)
        return where
    node[key] = other_value(rng, old)
    return None if node[key] == old and type(node[key]) is type(old) else where


def other_value(rng: random.Random, old: Any) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice([old + 1, old - 1, -old, old * 2, float(old), str(old), None])
    if isinstance(old, float):
        return rng.choice([old * 2, old + 1.0, -old, float(np.nextafter(old, math.inf)), str(old)])
    if isinstance(old, str):
        at = rng.randrange(len(old) + 1)
        changed = old[:at] + rng.choice(["0", "a", " ", "'"]) + old[at + 1 :]
        return rng.choice([changed, changed, changed, "", old + "x", 1])
    return rng.choice([[], {}, None, "x"]) if rng.random() < 0.3 else old[:-1] if isinstance(old, list) else {}


# --- the table


def edit_cell(rng: random.Random, lines: list[list[str]]) -> str | None:
    """Change one cell, or exchange two of a column, or lines."""
    row = rng.randrange(1, len(lines)) if rng.random() < 0.97 else 0
    filled = [place for place, cell in enumerate(lines[row]) if cell]
    column = rng.choice(filled)
    old = lines[row][column]
    kind = rng.random()
    if kind < 0.2 and row:
        other = rng.randrange(1, len(lines))
        lines[row][column], lines[other][column] = lines[other][column], old
        return f"{lines[0][column]}[{row}] exchanged with [{other}]" if lines[row][column] != old else None
    if kind < 0.24 and row:
        action = rng.choice(["removed", "twice", "moved"])
        line = lines.pop(row)
        if action != "removed":
            lines.insert(rng.randrange(1, len(lines) + 1), line)
        if action == "twice":
            lines.insert(row, list(line))
        elif action == "moved" and lines[row] == line:
            return None
        return f"line {row} {action}"
    lines[row][column] = other_cell(rng, old)
    return f"{lines[0][column]}[{row}] from {old!r} to {lines[row][column]!r}" if lines[row][column] != old else None


def other_cell(rng: random.Random, old: str) -> str:
    if old in ("true", "false"):
        return rng.choice(["true" if old == "false" else "false", "", "1", old.upper()])
    try:
        number = float(old)
    except ValueError:
        return rng.choice([old + "x", "", old.swapcase()])
    if "." in old or "e" in old:
        near = repr(float(np.nextafter(number, rng.choice([-math.inf, math.inf]))))
        return rng.choice(
            [near, near, repr(round(number, rng.randrange(1, 17))), repr(number * 2), repr(-number), "0.0", "nan", old + "0", ""]
        )
    return rng.choice([str(int(number) + 1), str(int(number) - 1), "0", old + ".0", "0" + old, ""])


# --- what the files hold; sealed again


def change_results(rng: random.Random, evidence: Evidence) -> Change | None:
    text = edit_cell(rng, evidence.lines)
    if text is None:
        return None
    blocks = [line[1] for line in evidence.lines if len(line) > 1]
    column, _, rest = text.partition("[")
    row = rest.partition("]")[0]
    place = f"{blocks[int(row)]}/{column}" if row.isdigit() and int(row) < len(blocks) else ""
    return Change(f"results: {text}", place)


def change_element(rng: random.Random, evidence: Evidence) -> Change | None:
    """One element by a bit, an ulp, a unit, a factor; or elements or rows exchanged."""
    arrays = {**evidence.arrays, **evidence.timings}
    name = rng.choice(sorted(name for name in arrays if arrays[name].size))
    array = arrays[name]
    flat, before = array.reshape(-1), array.copy()
    at, kind = rng.randrange(flat.size), rng.random()
    if kind < 0.15 and array.ndim and len(array) > 1:
        one, other = rng.sample(range(len(array)), 2)
        array[[one, other]] = array[[other, one]]
        text = f"rows {one} and {other} exchanged"
    elif kind < 0.25:
        other = rng.randrange(flat.size)
        flat[[at, other]] = flat[[other, at]]
        text = f"elements {at} and {other} exchanged"
    elif kind < 0.6:
        octets = flat.view(np.uint8).reshape(flat.size, -1)
        octets[at, rng.randrange(octets.shape[1])] ^= 1 << rng.randrange(8)
        text = f"a bit of element {at}"
    elif array.dtype.kind == "f":
        step = rng.choice([1e-15, 1e-13, 3e-12, 1e-9, 1e-6, 1e-3, 1.0])
        flat[at] = rng.choice([flat[at] + step, flat[at] - step, -flat[at], np.nextafter(flat[at], np.inf), 0.0])
        text = f"element {at}"
    else:
        flat[at] ^= rng.choice([1, 2, 3, 16])
        text = f"element {at}"
    if before.tobytes() == array.tobytes():
        return None
    with np.errstate(all="ignore"):
        moved = np.abs(array.astype(float) - before.astype(float)) if array.dtype.kind == "f" else np.full(1, np.inf)
    largest = float(moved.max()) if np.isfinite(moved).all() else math.inf
    return Change(f"{name}: {text} by {largest:.3g}, sealed again", name, largest)


def change_arrays(rng: random.Random, evidence: Evidence) -> Change | None:
    """An array dropped, added, renamed, of another dtype, shape or attribute."""
    arrays = evidence.arrays
    name = rng.choice(sorted(arrays))
    kind = rng.choice(["dropped", "added", "renamed", "dtype", "shape", "longer", "axes", "unit"])
    declared = evidence.protocol["blocks"][name.split("/")[0]]["arrays"][name.split("/")[1]]
    if kind in ("dropped", "renamed"):
        array = arrays.pop(name)
        if kind == "renamed":
            arrays[name + "x"] = array
    elif kind == "added":
        arrays[name + "_more"] = arrays[name]
    elif kind == "dtype":
        dtype = rng.choice(["<f8", "<f4", "<i8", "<i4", "|u1"])
        if np.dtype(dtype) == arrays[name].dtype:
            return None
        with np.errstate(all="ignore"):
            arrays[name] = arrays[name].astype(dtype)
    elif kind == "shape":
        arrays[name] = arrays[name].reshape(-1)[None]
    elif kind == "longer":
        arrays[name] = np.concatenate([arrays[name], arrays[name][:1]])
    else:
        axes = " ".join(declared["axes"])
        evidence.attributes[name] = {"axes": axes + "x", "unit": declared["unit"]} if kind == "axes" else {"axes": axes, "unit": "x"}
    return Change(f"{name}: {kind}, sealed again")


def change_protocol(rng: random.Random, evidence: Evidence) -> Change | None:
    where = edit_leaf(rng, evidence.protocol)
    return None if where is None else Change(f"protocol: {where}, sealed again")


def change_sources(rng: random.Random, evidence: Evidence) -> Change:
    name = rng.choice(sorted(evidence.sources))
    kind = rng.choice(["dropped", "renamed", "changed", "changed", "emptied", "added"])
    content = evidence.sources[name]
    if kind in ("dropped", "renamed"):
        del evidence.sources[name]
    if kind == "renamed":
        evidence.sources["old/" + name] = content
    elif kind == "changed":
        evidence.sources[name] = content + b"\n"
    elif kind == "emptied":
        evidence.sources[name] = b"" if content else b"\n"
    elif kind == "added":
        evidence.sources["labcore/more.py"] = b"\n"
    loose = kind == "dropped" and (name.endswith(".lock") or name == "labcore/runner.py")
    return Change(f"sources: {name} {kind}, sealed again", free="a source that no other source imports" if loose else "")


def change_record(rng: random.Random, evidence: Evidence) -> Change | None:
    """A leaf of what the sealing does not make afresh."""
    keys = ("schema", "experiment", "kind", "overrides", "differing", "recorded")
    part = {key: evidence.manifest[key] for key in keys}
    where = edit_leaf(rng, part)
    for key in keys:
        evidence.manifest.pop(key)
    evidence.manifest.update(part)
    return None if where is None else Change(f"manifest: {where}, sealed again", free=free_leaf(where, evidence.manifest))


Raw = Callable[[random.Random, Path], Change | None]
Resealed = Callable[[random.Random, Evidence], Change | None]
RAW: tuple[Raw, ...] = (flip_bits, write_noise, cut_or_grow, move_files, change_cell, change_manifest)
ELEMENTS: tuple[Resealed, ...] = (change_element,) * 3 + (change_results,) * 2
SEALED: tuple[Resealed, ...] = (*ELEMENTS, change_arrays, change_protocol, change_sources, change_record)
