"""Resolve conf/experiment/NN_name.yaml into the committed protocol.json (`--check` only compares)."""

from __future__ import annotations

import argparse

from labcore import canonical
from labcore.cli import ROOT
from labcore.compose import resolve
from labcore.errors import FINDING, GOOD
from labcore.workspace import Workspace


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore protocol`."""
    parser.add_argument("experiment", help="number or name, such as 06")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if protocol.json is not what conf/ gives")


def main(arguments: argparse.Namespace) -> int:
    """Write or check protocol.json."""
    experiment = Workspace(ROOT).find(arguments.experiment)
    protocol = resolve(ROOT, experiment, [])
    data = canonical.dumps(protocol.resolved)
    path = ROOT / "experiments" / experiment / "protocol.json"
    same = path.is_file() and path.read_bytes() == data
    if not same and not arguments.check:
        part = path.with_suffix(".json.part")
        part.write_bytes(data)
        part.replace(path)
    state = "unchanged" if same else "differs from conf/" if arguments.check else "written"
    print(f"{path.relative_to(ROOT)}: {state} (sha256 {protocol.sha256[:12]})")
    return FINDING if arguments.check and not same else GOOD
