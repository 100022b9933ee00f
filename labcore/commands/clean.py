"""Remove all local runs, after asking; kept evidence and the local ledger stay."""

from __future__ import annotations

import argparse
import shutil
import sys

from labcore import ledger
from labcore.cli import ROOT
from labcore.errors import GOOD, Refused
from labcore.workspace import Workspace, clear_leftovers, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore clean`."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def main(arguments: argparse.Namespace) -> int:
    """Ask, then remove, with a ledger line for each run."""
    workspace = Workspace(ROOT)
    with machine_errors(workspace.local):
        for line in clear_leftovers(workspace):
            print(line)
        runs = [run for name in workspace.names() for run in workspace.runs(name, kept=False)]
        if not runs:
            print("no local runs")
            return GOOD
        size = sum(path.stat().st_size for run in runs for path in run.rglob("*") if path.is_file())
        if not arguments.yes:
            if not sys.stdin.isatty():
                raise Refused("clean asks first, and there is no terminal to ask on; --yes (make clean YES=1) removes without asking")
            if input(f"remove {len(runs)} local runs, {size / 1e6:.1f} MB? [y/N] ").strip().lower() not in ("y", "yes"):
                print("nothing removed")
                return GOOD
        for run in runs:
            shutil.rmtree(run)
            ledger.append(workspace.local_ledger, "removed", run.parent.name, run.name)
        print(f"removed {len(runs)} local runs, {size / 1e6:.1f} MB")
    return GOOD
