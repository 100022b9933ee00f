"""Judge a run's folder in a child process with limits on memory, time and files written: the auditor, then the form of the HDF5 files.

`Child` starts the process and takes its answer; `python -m labcore.confined` is the child, which alone imports `audit` and h5py.
Nothing that lies in the folder is executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from labcore.errors import Refused
from labcore.tether import tied

MEMORY = 4 << 30  # bytes of address space; NumPy and its BLAS reserve about one of them
ANSWER = 64 << 20
SECONDS, SECONDS_A_GIGABYTE = 300, 300
MARGIN = 16 << 20
ROOT = Path(__file__).resolve().parents[1]


class Child:
    """A child process for one task, ended with the block, whatever happens. `start` lets it import while the caller still hashes.

    scratch: an existing folder that the child may write to. descriptor: an open file that it may read.
    """

    def __init__(self, scratch: Path, descriptor: int | None = None) -> None:
        self.scratch, self.descriptor = scratch, descriptor
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, once."""
        if self.process is not None:
            return self.process
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "HDF5_", "GIT_"))}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment |= {"HDF5_PLUGIN_PATH": "/nowhere", "HDF5_USE_FILE_LOCKING": "FALSE"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "labcore.confined"], cwd=self.scratch, env=environment, stdin=pipe, stdout=pipe, stderr=pipe,
            pass_fds=[] if self.descriptor is None else [self.descriptor], preexec_fn=tied(),
        )  # fmt: skip
        return self.process

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is None:
            return
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()

    def judge(
        self,
        folder: Path,
        given: Mapping[str, tuple[int, int, str]],
        where: str,
        size: int,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """The audit's document and what is wrong with the HDF5 files' bytes: {"document": ..., "hdf5": {name: reason or ""}}.

        given: path in the folder -> (offset, size, SHA-256) of a file that is not there but stands in the open file; size: bytes of the
        archive or of the run; meanwhile: what the caller has to do anyway, done while the child works.
        Raises Refused where the child goes over its limits or ends without an answer.
        """
        seconds = SECONDS + SECONDS_A_GIGABYTE * size // 10**9
        scratch, descriptor = str(self.scratch), self.descriptor
        task = {"folder": str(folder), "scratch": scratch, "given": given, "descriptor": descriptor, "seconds": seconds, "size": size}
        try:
            process = self.start()
            assert process.stdin is not None
            with contextlib.suppress(OSError), process.stdin:
                process.stdin.write(json.dumps(task).encode())
            process.stdin = None
            meanwhile()
            output, errors = process.communicate(timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            raise Refused(f"{where}: the audit took more than {seconds + 60} s") from None
        if process.returncode:
            last = (errors.decode("utf-8", "replace").strip().splitlines() or [f"signal {-process.returncode}"])[-1]
            raise Refused(f"{where}: the audit's process ended without an answer: {last[:200]}")
        if len(output) > ANSWER:
            raise Refused(f"{where}: the audit's answer has {len(output)} bytes; at most {ANSWER} are taken")
        return dict(json.loads(output))


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


def limit(seconds: int, size: int) -> None:
    """Set this process's own limits, for good. size: of what it judges; it lays out a file of that size at most."""
    for kind, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, size + MARGIN),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 128),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def main() -> int:
    """Read the task, set the limits, answer. A failure is one line on stderr."""
    # All that it takes, while the caller still hashes.
    import audit.run  # noqa: F401
    import labcore.skeleton  # noqa: F401

    task = json.loads(sys.stdin.buffer.read())
    limit(task["seconds"], task["size"])
    try:
        answer = child(task)
    except MemoryError:
        print(f"more than {MEMORY >> 30} GiB of memory were asked for", file=sys.stderr)
        return 1
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the caller waits for the end, and there is nothing to tidy up
