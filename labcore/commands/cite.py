"""Print the citation of an archive: text, BibTeX and CITATION.cff, with its SHA-256, SWHID and the claims decided in it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from labcore import metadata
from labcore.archive import latest
from labcore.cli import ROOT
from labcore.errors import FINDING, GOOD, Refused, printable
from labcore.verification import Wanted, opened
from labcore.workspace import Workspace, clear_leftovers, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore cite`."""
    parser.add_argument("experiment", nargs="?", help="number or name, such as 06")
    parser.add_argument("--run", help="a run's name, or its beginning; default: the kept run")
    parser.add_argument("--file", type=Path, help="an archive, instead of an experiment")
    parser.add_argument("--form", choices=["all", "text", "bibtex", "cff"], default="all")


def main(arguments: argparse.Namespace) -> int:
    """Check the archive, then cite it."""
    workspace = Workspace(ROOT)
    if bool(arguments.file) == bool(arguments.experiment):
        raise Refused("cite: say which experiment (make cite EXP=06), or which archive (FILE=...)")
    path = arguments.file or latest(workspace, workspace.find(arguments.experiment), arguments.run)
    with machine_errors(workspace.local):
        for line in clear_leftovers(workspace):
            print(line, file=sys.stderr)
        with opened(workspace, path, Wanted(identity=True)) as checked:
            pass
    if checked.findings or checked.facts is None:
        print(f"{path.name}: NOT VERIFIED, so it is not cited: {(checked.findings or ['not judged'])[0]}")
        return FINDING
    sha256, swhid, facts = checked.sha256, checked.swhid, checked.facts
    forms = {"text": metadata.text, "bibtex": metadata.bibtex, "cff": metadata.cff_with_identity}
    chosen = [form for name, form in forms.items() if arguments.form in ("all", name)]
    print("\n\n".join("\n".join(map(printable, form(facts, sha256, swhid).strip().splitlines())) for form in chosen))
    return GOOD
