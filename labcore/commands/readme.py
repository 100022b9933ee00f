"""Write the generated tables of the READMEs from the kept audits (`--check` only compares)."""

from __future__ import annotations

import argparse

from labcore.cli import ROOT
from labcore.errors import FINDING, GOOD
from labcore.readme import texts
from labcore.workspace import Workspace


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore readme`."""
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table is not what the audits say")


def main(arguments: argparse.Namespace) -> int:
    """Write or check."""
    code = GOOD
    for path, text in texts(Workspace(ROOT)).items():
        if path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            code = FINDING
        else:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'differs from the audits' if arguments.check else 'written'}")
    return code
