"""A command's cost, measured by a fresh process: a child's peak memory begins at that of the process that it was forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CODE = """
import resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
spent, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.stdout)
print(spent, used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)
sys.exit(done.returncode)
"""


@dataclass(frozen=True)
class Cost:
    """What it printed; wall seconds; peak memory in bytes of its largest process; CPU seconds of all its processes."""

    text: str
    seconds: float
    memory: int
    processor: float


def cost(root: Path, module: str, *arguments: str) -> Cost:
    """Run a module in a project's folder, on one BLAS thread. CalledProcessError where it fails."""
    command = [sys.executable, "-c", CODE, sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    *text, last = done.stdout.strip().splitlines()
    seconds, memory, processor = last.split()
    return Cost("\n".join(text), float(seconds), int(memory), float(processor))
