"""Make a VERIFIED confirmatory run the kept one, with ledger lines; the one before leaves the tree."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from labcore import canonical, ledger
from labcore.cli import ROOT
from labcore.errors import GOOD, Refused
from labcore.sealed import Sealed
from labcore.workspace import Workspace, growing, machine_errors, publish

RUN_LIMIT, ALL_LIMIT = 3 << 20, 40 << 20  # bytes


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore keep`."""
    parser.add_argument("experiment", help="number or name, such as 06")
    parser.add_argument("--run", help="a run's name, or its beginning; default: the newest confirmatory local run")
    parser.add_argument("--why", default="", help="a sentence for the ledger")


def main(arguments: argparse.Namespace) -> int:
    """Audit, copy, record, and only then remove the one before."""
    workspace = Workspace(ROOT)
    experiment = workspace.find(arguments.experiment)
    source = _choose(workspace, experiment, arguments.run)
    manifest = Sealed(source).manifest
    if manifest["kind"] != "confirmatory":
        raise Refused(f"{source.name}: an exploratory run is not kept; commit the protocol and the sources and run again")
    with machine_errors(workspace.evidence):
        workspace.local.mkdir(parents=True, exist_ok=True)
        with (workspace.local / "keep.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _keep(workspace, experiment, source, arguments.why)


def _choose(workspace: Workspace, experiment: str, name: str | None) -> Path:
    if name:
        return workspace.run(experiment, name)
    runs = [run for run in workspace.runs(experiment, kept=False) if Sealed(run).manifest["kind"] == "confirmatory"]
    if not runs:
        raise Refused(f"{experiment}: no confirmatory local run; `make run EXP={experiment[:2]}` on a clean commit makes one")
    return max(runs, key=lambda run: (run / "sealed" / "manifest.json").stat().st_mtime)


def _keep(workspace: Workspace, experiment: str, source: Path, why: str) -> int:
    if _audit(source, "--no-write") != GOOD:
        raise Refused(f"{source.name}: NOT VERIFIED; `python -m audit {source.relative_to(ROOT)}` says why. Only verified runs are kept")
    digest = canonical.sha256_file(source / "sealed" / "manifest.json")
    target = workspace.evidence / experiment / source.name
    before = [run for run in workspace.runs(experiment, local=False) if run != target]
    if ledger.kept(ledger.read(workspace.ledger)).get(experiment) == source.name and target.is_dir() and not before:
        print(f"{experiment} {source.name}: already the kept run")
        return GOOD
    with growing(workspace.local / experiment) as folder:
        copy = folder / "run"
        shutil.copytree(source / "sealed", copy / "sealed")
        if (source / "figures").is_dir():
            shutil.copytree(source / "figures", copy / "figures")
        _check_size(workspace, copy, before)
        publish(copy, target)
    for run in before:
        ledger.append(workspace.ledger, "superseded", experiment, run.name, canonical.sha256_file(run / "sealed" / "manifest.json"), why)
    ledger.append(workspace.ledger, "kept", experiment, source.name, digest, why)
    for run in before:
        shutil.rmtree(run)
    _audit(target)
    if not (target / "figures").is_dir():
        subprocess.run([sys.executable, "-m", "labcore", "figure", experiment, "--run", source.name], cwd=ROOT, check=True)
    print(f"{experiment} {source.name}: kept" + "".join(f"; {run.name} superseded" for run in before))
    return GOOD


def _audit(run: Path, *options: str) -> int:
    done = subprocess.run([sys.executable, "-m", "audit", "--quiet", *options, str(run)], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    return done.returncode


def _check_size(workspace: Workspace, copy: Path, before: list[Path]) -> None:
    size = _bytes(copy)
    others = sum(_bytes(run) for name in workspace.names() for run in workspace.runs(name, local=False) if run not in before)
    others += _bytes(workspace.evidence / "archives")
    if size > RUN_LIMIT:
        raise Refused(f"{copy.parent.parent.name}: {size / 1e6:.2f} MB with its figures; at most {RUN_LIMIT / 1e6:.2f} are kept")
    if size + others > ALL_LIMIT:
        raise Refused(f"evidence/: {(size + others) / 1e6:.1f} MB with this run; at most {ALL_LIMIT / 1e6:.1f} are kept in all")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
