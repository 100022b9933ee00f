"""Write the skeleton of a new experiment, such as 23_name; its test fails until it is filled."""

from __future__ import annotations

import argparse

from labcore.cli import ROOT
from labcore.errors import GOOD, Refused
from labcore.protocol import EXPERIMENT
from labcore.scaffold import files
from labcore.workspace import Workspace


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore new`."""
    parser.add_argument("name", help="two digits, an underscore, and a name in lower case: 23_name")


def main(arguments: argparse.Namespace) -> int:
    """Write all files, or none."""
    name = arguments.name
    if not EXPERIMENT.fullmatch(name):
        raise Refused(f"EXP: got {name!r}; wanted two digits, an underscore and a name in lower case, such as 23_name")
    taken = [other for other in Workspace(ROOT).names() if other[:2] == name[:2]]
    skeleton = files(name)
    taken += [path for path in skeleton if (ROOT / path).exists()]
    if taken:
        raise Refused(f"EXP: got {name!r}; its number or a file of it is taken: {', '.join(taken)}")
    for path, text in skeleton.items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        print(path)
    number = name[:2]
    print(f"next: fill them, then make protocol EXP={number}, commit, make run EXP={number}, make keep EXP={number}")
    return GOOD
