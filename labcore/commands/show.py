"""Show one experiment: its question, its kept run, controls and claims with their values."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap

from labcore.cli import ROOT
from labcore.errors import GOOD
from labcore.readme import findings, sentence
from labcore.sealed import Sealed
from labcore.tables import show
from labcore.workspace import Workspace

COLOURS = {"reproduced": "32", "contradicted": "31", "qualified": "33", "VERIFIED": "32", "NOT VERIFIED": "31"}


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore show`."""
    parser.add_argument("experiment", help="number or name, such as 06")
    parser.add_argument("--json", action="store_true", help="for programs")


def main(arguments: argparse.Namespace) -> int:
    """Print the kept run as its audit has it."""
    workspace = Workspace(ROOT)
    name = workspace.find(arguments.experiment)
    kept = workspace.kept(name)
    run = Sealed(kept) if kept else None
    audit = run.audit if run else {}
    if arguments.json:
        print(json.dumps({"experiment": name, "run": kept.name if kept else "", "audit": audit}, indent=1))
        return GOOD
    if run is None:
        print(f"{name}: no kept run yet")
        return GOOD
    print(f"{name}  {run.path.name}  {paint(audit.get('verdict', 'not audited'))}\n{run.protocol.question}")
    for key, control in sorted(audit.get("controls", {}).items()):
        values = ", ".join(f"{k} {show(v)}" for k, v in control["values"].items())
        print(f"  control {key}: {'holds' if control['holds'] else 'DOES NOT HOLD'} ({values})")
    said = findings(workspace.experiments / name)
    for key, claim in sorted(audit.get("claims", {}).items()):
        values = ", ".join(f"{k} {show(v)}" for k, v in claim["values"].items())
        print(f"  {key}  {paint(claim['verdict'])}  {values}")
        text = sentence(said[key], claim["values"], key) if key in said else claim["note"]
        print(textwrap.indent(textwrap.fill(" ".join(text.split()), 110), "       ") if text else "", end="\n" if text else "")
    return GOOD


def paint(text: str) -> str:
    """The text, coloured on a terminal only."""
    return f"\033[{COLOURS[text]}m{text}\033[0m" if text in COLOURS and sys.stdout.isatty() else text
