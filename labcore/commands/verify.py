"""Check an archive from anyone: bag, digests, SWHID, signature, HDF5 form, and the whole audit by the installed auditor.

Nothing in the archive is executed. Exit code 0 VERIFIED, 1 NOT VERIFIED, 2 REFUSED (malformed).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from labcore.cli import ROOT
from labcore.errors import REFUSED, Refused, printable
from labcore.verification import Wanted, opened
from labcore.workspace import Workspace, clear_leftovers, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore verify`."""
    parser.add_argument("file", type=Path, help="an archive, such as evidence/archives/NAME.tar")
    parser.add_argument("--sha256", default="", help="the SHA-256 that a citation gives")
    parser.add_argument("--swhid", default="", help="the SWHID that a citation gives")
    parser.add_argument("--key", type=Path, action="append", default=[], help="trust this public key besides those in evidence/keys/")
    parser.add_argument("--signed", action="store_true", help="NOT VERIFIED unless a trusted key signed it")


def main(arguments: argparse.Namespace) -> int:
    """One line a step, then the verdict."""
    workspace = Workspace(ROOT)
    wanted = Wanted(arguments.sha256.removeprefix("sha256:").lower(), arguments.swhid, arguments.key, arguments.signed)
    for name, value, form in (("SHA256", wanted.sha256, "[0-9a-f]{64}"), ("SWHID", wanted.swhid, "swh:1:dir:[0-9a-f]{40}")):
        if value and not re.fullmatch(form, value):
            raise Refused(f"{name}: got {value[:90]!r}; wanted {form}")
    with machine_errors(workspace.local):
        for line in clear_leftovers(workspace):
            print(line)
        try:
            with opened(workspace, arguments.file, wanted) as checked:
                for step, text in checked.steps:
                    print(f"{step:<10} {printable(text)}")
                for text in dict.fromkeys(checked.findings):
                    print(f"finding    {printable(text)}")
        except Refused as error:
            print(f"REFUSED {printable(str(error))}", file=sys.stderr)
            return REFUSED
    run = f"{checked.facts.experiment} {checked.facts.run}" if checked.facts else arguments.file.name
    draft = ", a draft" if checked.facts and checked.facts.draft else ""
    print(f"{checked.verdict} {run}{draft}, {checked.signature if checked.signature != 'not checked' else 'signature not checked'}")
    return checked.code
