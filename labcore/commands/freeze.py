"""Freeze a run (the kept one, or --run) into one deterministic, citable archive in evidence/archives/.

Only a VERIFIED confirmatory run from a clean commit is frozen; --draft freezes any other sealed run, and the archive says so inside.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from labcore.archive import freeze
from labcore.cli import ROOT
from labcore.commands.key import private
from labcore.errors import GOOD, Refused
from labcore.workspace import Workspace, clear_leftovers, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore freeze`."""
    parser.add_argument("experiment", help="number or name, such as 06")
    parser.add_argument("--run", help="a run's name, or its beginning; default: the kept run")
    parser.add_argument("--draft", action="store_true", help="freeze what is not VERIFIED, confirmatory and committed")
    parser.add_argument("--sign", action="store_true", help="sign with the default key")
    parser.add_argument("--key", type=Path, help="sign with this private key")
    parser.add_argument("--replace", action="store_true", help="put it in the place of another archive of the same run")


def main(arguments: argparse.Namespace) -> int:
    """Freeze; prints the archive and its identity."""
    workspace = Workspace(ROOT)
    experiment = workspace.find(arguments.experiment)
    run = workspace.run(experiment, arguments.run) if arguments.run else workspace.kept(experiment)
    if run is None:
        raise Refused(f"{experiment}: no kept run; `make keep EXP={experiment[:2]}` keeps one, or name one with --run")
    key = arguments.key or (private() if arguments.sign else None)
    with machine_errors(workspace.local):
        for line in clear_leftovers(workspace):
            print(line)
        frozen = freeze(workspace, run, draft=arguments.draft, key=key, replace=arguments.replace)
    where = frozen.path.relative_to(ROOT)
    print(f"{where}: {frozen.path.stat().st_size} bytes{', as it was' if frozen.before else ''}")
    for reason in frozen.facts.draft:
        print(f"DRAFT: {reason}")
    print(f"sha256:{frozen.sha256}\n{frozen.swhid}")
    made = "signed: " if frozen.signed else "signature, as it was: "
    print(made + str(frozen.envelope.relative_to(ROOT)) if frozen.envelope else "unsigned")
    return GOOD
