"""List the experiments: their kept run, its verdict, and the local runs."""

from __future__ import annotations

import argparse
import json

from labcore.cli import ROOT
from labcore.errors import GOOD
from labcore.sealed import Sealed
from labcore.tables import table
from labcore.workspace import Workspace


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore list`."""
    parser.add_argument("--json", action="store_true", help="for programs")


def main(arguments: argparse.Namespace) -> int:
    """One line an experiment."""
    workspace = Workspace(ROOT)
    rows = []
    for name in workspace.names():
        kept = workspace.kept(name)
        audit = Sealed(kept).audit if kept else {}
        rows.append(
            {
                "experiment": name,
                "kept": kept.name if kept else "",
                "verdict": audit.get("verdict", "not audited") if kept else "",
                "claims": len(audit.get("claims", {})),
                "local": len(workspace.runs(name, kept=False)),
            }
        )
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print(table(["experiment", "kept", "verdict", "claims", "local"], [list(row.values()) for row in rows]))
    return GOOD
