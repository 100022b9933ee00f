"""Whether an HDF5 file's bytes, its values aside, are exactly those that sealing would have written.

The file is laid out anew from the manifest and the protocol, without values; what differs outside of the values (a hidden byte in a
gap, another library's habits) is named. The values themselves are covered by the arrays' digests. Foreign bytes are compared only,
never opened by the HDF5 library.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py

from labcore import canonical, evidence
from labcore.protocol import parse

PIECE = 1 << 20


def differing(run: Path, name: str, size: int, read: Callable[[int, int], bytes], scratch: Path) -> str:
    """ "" where the bytes of sealed/<name> are canonical, else what is not.

    read: (offset, count) -> bytes of the file judged; scratch: where to lay out.
    """
    manifest = canonical.loads((run / "sealed" / "manifest.json").read_bytes(), "manifest.json")
    protocol = parse(manifest["protocol"]["resolved"], "manifest.json")
    declared = manifest["timings"] if name == "timings.h5" else manifest["data"]["arrays"]
    timing = {block for block, spec in protocol.blocks.items() if spec.rows == "timing"}
    blocks = sorted(timing if name == "timings.h5" else set(protocol.blocks) - timing)
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        path = Path(place) / name
        spans: list[tuple[int, int]] = []
        with h5py.File(path, "w", libver="earliest") as file:
            groups = {block: file.create_group(block) for block in blocks}
            for at in sorted(declared, key=lambda item: tuple(item.split("/"))):
                block, array = at.split("/")
                offset = evidence._dataset(groups[block], array, protocol.blocks[block].arrays[array], tuple(declared[at]["shape"]))
                spans.append((offset, groups[block][array].nbytes))
        if path.stat().st_size != size:
            return f"{size} bytes; sealing writes {path.stat().st_size}"
        with path.open("rb") as handle:
            at = 0
            for start, count in [*sorted(spans), (size, 0)]:
                while at < start:
                    step = min(PIECE, start - at)
                    handle.seek(at)
                    ours, theirs = handle.read(step), read(at, step)
                    if ours != theirs:
                        place_of = next(n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
                        return f"byte {at + place_of} is {theirs[place_of]:#04x}; sealing writes {ours[place_of]:#04x}"
                    at += step
                at = start + count
    return ""
