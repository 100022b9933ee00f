"""Run an experiment into a sealed folder: batches in, evidence out. Knows nothing of audits, figures or ledgers.

`python -m labcore.runner PROTOCOL FOLDER` does it for an archived source tree, which is how a run is replicated.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from labcore import canonical, provenance
from labcore.evidence import Writer
from labcore.ledger import now
from labcore.loading import load
from labcore.progress import Progress
from labcore.protocol import Protocol, parse

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt


@dataclass(frozen=True)
class Origin:
    """What a run is made from, read before it starts: sources, HEAD, and whether they agree."""

    sources: Mapping[str, bytes]
    commit: str
    differing: list[str]
    kind: str


def origin(root: Path, protocol: Protocol, overrides: list[str]) -> Origin:
    """Look at the sources before they run. Confirmatory: nothing overridden, nothing differs from HEAD."""
    found = provenance.sources(root, protocol.experiment)
    path = f"experiments/{protocol.experiment}/protocol.json"
    commit, blobs = provenance.committed(root, [*found, path])
    differing = provenance.differing(found, blobs)
    same = blobs.get(path) == provenance.blob(canonical.dumps(protocol.resolved))
    confirmatory = bool(commit) and not overrides and same and not differing
    return Origin(found, commit, differing, "confirmatory" if confirmatory else "exploratory")


def execute(root: Path, protocol: Protocol, overrides: list[str], folder: Path, made_from: Origin | None = None) -> dict[str, Any]:
    """Run and seal into `folder`, an existing empty folder; returns the manifest. Raises what the experiment raises."""
    made_from = made_from or origin(root, protocol, overrides)
    start = now()
    keep_freed_memory()
    module = load(root / "experiments" / protocol.experiment / "experiment.py")
    total = sum(protocol.row_count(name) for name, block in protocol.blocks.items() if block.rows == "csv")
    with Writer(protocol, folder) as writer:
        # One BLAS thread: products here are small and would only wait for each other, and their bits would depend on the processors.
        with threadpool_limits(1), Progress(total, protocol.experiment) as progress:
            for batch in module.batches(protocol):
                progress.add(writer.add(batch))
        return writer.seal(
            made_from.sources,
            {
                "kind": made_from.kind,
                "overrides": overrides,
                "differing": made_from.differing,
                "recorded": {
                    "git": {"commit": made_from.commit},
                    "environment": provenance.environment(),
                    "start": start,
                    "end": now(),
                },
            },
        )


def keep_freed_memory() -> None:
    """Let the C library keep what arrays of up to 32 MB free, for the next ones: fresh pages for each cost more than filling them."""
    with suppress(OSError, AttributeError):  # not glibc: then it keeps its own ways
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(TRIM_THRESHOLD, 1 << 30)


def main(arguments: list[str]) -> int:
    """PROTOCOL FOLDER: run the experiment of this source tree under a resolved protocol, sealed into FOLDER."""
    path, folder = Path(arguments[0]), Path(arguments[1])
    protocol = parse(canonical.loads(path.read_bytes(), str(path)), str(path))
    folder.mkdir(parents=True)
    manifest = execute(Path(__file__).resolve().parents[1], protocol, [], folder)
    print(manifest["run"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
