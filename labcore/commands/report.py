"""Build the report: static pages in site/ from kept evidence, audited now."""

from __future__ import annotations

import argparse
from pathlib import Path

from labcore.cli import ROOT
from labcore.errors import GOOD
from labcore.site import build
from labcore.workspace import Workspace, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore report`."""
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the pages; made anew (default: site)")


def main(arguments: argparse.Namespace) -> int:
    """Build; prints the front page's path."""
    with machine_errors(arguments.out):
        pages = build(Workspace(ROOT), arguments.out.resolve())
    print(f"{len(pages)} pages; open {arguments.out / 'index.html'}")
    return GOOD
