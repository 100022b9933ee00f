"""Draw the figures of a run from its sealed arrays (the kept run, or --run)."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from labcore.cli import ROOT
from labcore.errors import GOOD, Refused
from labcore.figures import draw
from labcore.workspace import Workspace, growing, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore figure`."""
    parser.add_argument("experiment", help="number or name, such as 06")
    parser.add_argument("--run", help="a run's name, or its beginning, or - to read it from standard input; default: the kept run")
    parser.add_argument("--growing", type=Path, help="a temporary folder for what is not finished, cleared by whoever made it")


def main(arguments: argparse.Namespace) -> int:
    """Draw; prints the paths."""
    workspace = Workspace(ROOT)
    experiment = workspace.find(arguments.experiment)
    name = sys.stdin.readline().strip() if arguments.run == "-" else arguments.run
    if arguments.run and not name:
        return GOOD  # whoever would have named a run has ended
    run = workspace.run(experiment, name) if name else workspace.kept(experiment)
    if run is None:
        raise Refused(f"{experiment}: no kept run; `make run EXP={experiment[:2]}` makes one, or name one with --run")
    with machine_errors(run), _place(workspace.local / experiment, arguments.growing) as folder:
        for path in draw(run, workspace.experiments / experiment, folder):
            print(f"figure {path.relative_to(ROOT)}")
    return GOOD


def _place(own: Path, given: Path | None) -> AbstractContextManager[Path]:
    return nullcontext(given) if given else growing(own)
