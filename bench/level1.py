"""Level 1 of the audit against the limit: reading and hashing the same file once. And its memory as evidence grows."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.commands import ROOT
from labcore.batch import Batch
from labcore.evidence import Writer
from labcore.protocol import parse

LEVEL_1 = """
import sys, time
from pathlib import Path
from audit.findings import Findings
from audit.seal import read
found = Findings()
start = time.perf_counter()
sealed = read(Path(sys.argv[1]), found)
seconds = time.perf_counter() - start
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss is inherited from the parent
print(seconds, int(peak) * 1024, found.errors)
"""


def measure(quick: bool) -> list[tuple[str, str]]:
    """Bytes a second and peak memory at 10 MB, 100 MB and 1 GB."""
    lines = []
    for size in (10_000_000, 100_000_000) if quick else (10_000_000, 100_000_000, 1_000_000_000):
        with tempfile.TemporaryDirectory() as place:
            run = make(Path(place), size)
            file = run / "sealed" / "arrays.h5"
            hash_once(file)
            start = time.perf_counter()
            hash_once(file)
            limit = time.perf_counter() - start
            done = subprocess.run([sys.executable, "-c", LEVEL_1, str(run)], cwd=ROOT, check=True, capture_output=True, text=True)
            seconds, memory, errors = (float(word) for word in done.stdout.split())
            assert not errors
            text = f"{limit / seconds:.2f} of the limit (goal 0.5), peak {memory / 1e6:.0f} MB"
            lines.append((f"{size / 1e6:.0f} MB: level 1 against one reading and hashing", text))
    return lines


def hash_once(path: Path) -> None:
    """The limit: one pass."""
    with path.open("rb") as handle:
        hashlib.file_digest(handle, "sha256")


def make(place: Path, size: int) -> Path:
    """A sealed run of about `size` bytes in ten arrays."""
    rows = size // (10 * 8 * 1000)
    array = {"dtype": "<f8", "shape": ["case", 1000], "axes": ["case", "width"], "unit": "1"}
    protocol = parse(
        {
            "schema": "1",
            "experiment": "06_stale_prefix",
            "question": "?",
            "seeds": list(range(rows)),
            "tolerance": 0.0,
            "rederive": 1,
            "settings": {},
            "factors": {},
            "blocks": {"main": {"factors": ["seed"], "arrays": {f"a{n}": array for n in range(10)}}},
            "controls": {"c": {"measure": "SELECT 1 AS one", "holds": "one = 1", "note": ""}},
            "claims": {},
        },
        "bench",
    )
    folder = place / "growing"
    folder.mkdir()
    rng = np.random.default_rng(1)
    with Writer(protocol, folder) as writer:
        for first in range(0, rows, 500):
            count = min(500, rows - first)
            writer.add(Batch("main", {f"a{n}": rng.random((count, 1000)) for n in range(10)}))
        described = {"kind": "exploratory", "overrides": [], "differing": [], "recorded": {"git": {"commit": ""}, "environment": {}}}
        described["recorded"] |= {"start": "2000-01-01T00:00:00Z", "end": "2000-01-01T00:00:00Z"}  # type: ignore[operator]
        manifest = writer.seal({"experiments/06_stale_prefix/experiment.py": b""}, described)
    run = place / manifest["run"]
    run.mkdir()
    folder.rename(run / "sealed")
    return run
