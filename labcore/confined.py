"""Judge a run's folder in a child process with limits on memory, time and files written: the auditor, then the form of the HDF5 files.

`judge` starts the child and takes its answer; `python -m labcore.confined` is the child, which alone imports `audit` and h5py.
Nothing that lies in the folder is executed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labcore.errors import Refused

MEMORY = 4 << 30  # bytes of address space; NumPy and its BLAS reserve about one of them
ANSWER = 64 << 20
SECONDS, SECONDS_A_GIGABYTE = 300, 300
ROOT = Path(__file__).resolve().parents[1]


def judge(
    folder: Path, scratch: Path, given: Mapping[str, tuple[int, int, str]], descriptor: int | None, where: str, size: int = 0
) -> dict[str, Any]:
    """The audit's document and what is wrong with the HDF5 files' bytes: {"document": ..., "hdf5": {name: reason or ""}}.

    scratch: an existing folder that the child may write to.
    given: path in the folder -> (offset, size, SHA-256) of a file that is not there but stands in the open file `descriptor`.
    Raises Refused where the child goes over its limits or ends without an answer.
    """
    seconds = SECONDS + SECONDS_A_GIGABYTE * size // 10**9
    task = {"folder": str(folder), "scratch": str(scratch), "given": given, "descriptor": descriptor, "seconds": seconds}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "HDF5_", "GIT_"))}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HDF5_PLUGIN_PATH": "/nowhere", "HDF5_USE_FILE_LOCKING": "FALSE"}
    command = [sys.executable, "-P", "-m", "labcore.confined"]
    environment["PYTHONPATH"] = str(ROOT)
    try:
        done = subprocess.run(
            command, input=json.dumps(task).encode(), cwd=scratch, env=environment, capture_output=True, check=False,
            timeout=seconds + 60, pass_fds=[] if descriptor is None else [descriptor],
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(f"{where}: the audit took more than {seconds + 60} s") from None
    if done.returncode:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"signal {-done.returncode}"])[-1]
        raise Refused(f"{where}: the audit's process ended without an answer: {last[:200]}")
    if len(done.stdout) > ANSWER:
        raise Refused(f"{where}: the audit's answer has {len(done.stdout)} bytes; at most {ANSWER} are taken")
    return dict(json.loads(done.stdout))


def child(task: dict[str, Any]) -> dict[str, Any]:
    """What the child does, once its limits are set."""
    import audit.files
    from audit.run import audit as run_audit

    folder = Path(task["folder"])
    for name, (offset, size, digest) in task["given"].items():
        audit.files.GIVEN[folder / name] = (task["descriptor"], offset, size, digest)
    document = run_audit(folder).document
    forms: dict[str, str] = {}
    if document["verdict"] == "VERIFIED":
        from labcore.skeleton import differing

        for name in ("arrays.h5", "timings.h5"):
            if (folder / "sealed" / name).exists():
                blob = audit.files.Blob(folder / "sealed" / name)
                forms[name] = differing(folder, name, blob.size, blob.read, Path(task["scratch"]))
    return {"document": document, "hdf5": forms}


def limit(seconds: int) -> None:
    """Set this process's own limits, for good."""
    for kind, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 128),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def main() -> int:
    """Read the task, set the limits, answer. A failure is one line on stderr."""
    task = json.loads(sys.stdin.buffer.read())
    limit(task["seconds"])
    try:
        answer = child(task)
    except MemoryError:
        print(f"more than {MEMORY >> 30} GiB of memory were asked for", file=sys.stderr)
        return 1
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
