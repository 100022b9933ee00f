"""Compare two runs array by array: bitwise equal, within tolerance or changed (exit code 1)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labcore.cli import ROOT
from labcore.compare import compare
from labcore.errors import FINDING, GOOD, Refused, printable
from labcore.sealed import Sealed
from labcore.tables import table
from labcore.workspace import Workspace, clear_leftovers, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore diff`."""
    parser.add_argument("a", help="a run's folder, an archive, or NN/RUN such as 06/1a2b")
    parser.add_argument("b", help="the other one")


def main(arguments: argparse.Namespace) -> int:
    """Print the outcome of every array."""
    workspace = Workspace(ROOT)
    with machine_errors(workspace.local):
        for line in clear_leftovers(workspace):
            print(line)
        with sealed(workspace, arguments.a) as a, sealed(workspace, arguments.b) as b:
            return _print(a, b)


@contextmanager
def sealed(workspace: Workspace, text: str) -> Iterator[Sealed]:
    """The run that a text names; an archive's is checked first, and there while the block lasts."""
    if Path(text).is_file():
        from labcore.verification import run_of

        with run_of(workspace, Path(text)) as run:
            yield run
    else:
        yield Sealed(find(workspace, text))


def _print(a: Sealed, b: Sealed) -> int:
    result = compare(a, b)
    print(f"{a.manifest['experiment']} {a.manifest['run']} against {b.manifest['experiment']} {b.manifest['run']}: {result.outcome}")
    print("\n".join(f"  {printable(line)}" for line in result.lines))
    if result.arrays:
        print(table(["array", "outcome"], sorted(result.arrays.items())))
    return FINDING if result.outcome == "changed" else GOOD


def find(workspace: Workspace, text: str) -> Path:
    """The folder of a run given as a path or as NN/RUN."""
    path = Path(text)
    if (path / "sealed" / "manifest.json").is_file():
        return path
    experiment, slash, run = text.partition("/")
    if slash and not path.exists():
        return workspace.run(workspace.find(experiment), run)
    raise Refused(f"got {text!r}; wanted a run's folder, an archive, or NN/RUN such as 06/1a2b")
