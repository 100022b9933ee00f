"""Make `.venv` hold what a make target needs: `python3 requirements/install.py [--experiment NN] [SET ...]`.

Sets: run (always), test, torch, tokenizers, sign, site, browser, notebooks; oracles goes into `.venv-oracles`. With --experiment,
torch and tokenizers are added where that experiment imports them.
Only the standard library is used. Each set is installed from its hashed lock by pip, once, until its lock changes.
PyTorch itself is installed by version without hashes: its wheels differ between places.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / ".venv"
TORCH = "torch==2.13.0"
SETS = ("run", "test", "torch", "tokenizers", "sign", "site", "browser", "notebooks", "oracles")
OPTIONAL = ("torch", "tokenizers")
APART = {"oracles": ROOT / ".venv-oracles"}


def main() -> int:
    """Install what is missing; exit code 3 with one line where the machine stands in the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []])
    parser.add_argument("--experiment", default="")
    arguments = parser.parse_args()
    if sys.hexversion < 0x030B0000:
        return say(f"got Python {sys.version.split()[0]}; wanted 3.11 or newer (make PYTHON=python3.12 ... names another)")
    if shutil.which("git") is None:
        return say("git: not found; the suite records the commit of every run. Install git and try again")
    if arguments.experiment and not folder(arguments.experiment):
        known = ", ".join(path.parent.name for path in sorted((ROOT / "experiments").glob("*/experiment.py")))
        print(f"EXP: got {arguments.experiment!r}; wanted one of {known}", file=sys.stderr)
        return 2
    wanted = ["run", *arguments.sets, *needed(arguments.experiment)]
    try:
        with (ROOT / ".venv.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in SETS:
                if name in wanted and not install(name):
                    return 3
    except OSError as error:
        return say(f"{error.filename or VENV}: {os.strerror(error.errno or 0)}")
    return 0


def needed(experiment: str) -> list[str]:
    """The optional sets that an experiment's sources import."""
    if not experiment:
        return []
    sys.path.insert(0, str(ROOT))
    from labcore import provenance

    imported = set()
    for name, source in provenance.sources(ROOT, folder(experiment)).items():
        if name.endswith(".py"):
            imported |= {module.split(".")[0] for module in provenance.imports(source, name)}
    return [name for name in OPTIONAL if name in imported]


def folder(experiment: str) -> str:
    """The folder's name of an experiment given by number or name, "" where there is none."""
    number = experiment.zfill(2) if experiment.isdigit() else experiment
    names = [path.parent.name for path in (ROOT / "experiments").glob("*/experiment.py")]
    return next((name for name in sorted(names) if number in (name, name[:2])), "")


def install(name: str) -> bool:
    """Install one set unless its stamp says that this lock is installed."""
    place = APART.get(name, VENV)
    python = place / "bin" / "python"
    lock = HERE / f"{name}.lock"
    digest = hashlib.sha256(lock.read_bytes() + (HERE / "build.lock").read_bytes() + TORCH.encode()).hexdigest()
    stamp = place / f".{name}"
    if stamp.is_file() and stamp.read_text() == digest and python.exists():
        return True
    print(f"installing {name} into {place.name} ...", flush=True)
    if not python.exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
    hashed = ["--require-hashes", "--no-deps"]
    steps = [[*hashed, "-r", str(HERE / "build.lock")], [*hashed, "--no-build-isolation", "-r", str(lock)]]
    if name == "torch":
        steps.append(["--no-deps", TORCH])
    for step in steps:
        done = pip(python, step)
        if done.returncode:
            say(f"pip could not install {name}: {reason(done.stderr)}")
            return False
    stamp.write_text(digest)
    return True


def pip(python: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a venv's pip, its output kept for the one line of a failure."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def reason(output: str) -> str:
    """The line of pip's output that says why."""
    # pip, told to be quiet, says no more than this where it reached nothing at all.
    if any(text in output for text in ("Failed to establish a new connection", "name resolution", "from versions: none")):
        return "no network: the package registry cannot be reached"
    if "No space left on device" in output:
        return "no space left on the disk"
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR")] or output.splitlines()[-1:]
    return lines[0] if lines else "no reason given"


def say(text: str) -> int:
    """One line to stderr; returns exit code 3."""
    print(f"install: {text}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
