"""Make an Ed25519 key pair: the private key outside of the repository, the public one in evidence/keys/."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from labcore import attest
from labcore.cli import ROOT
from labcore.errors import GOOD, Refused
from labcore.workspace import Workspace, machine_errors


def private() -> Path:
    """The default place of the private key."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "kv-isolation-evidence" / "signing-key.pem"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore key`."""
    parser.add_argument("name", nargs="?", default="signer", help="the public key becomes evidence/keys/NAME.pub")
    parser.add_argument("--key", type=Path, help="where the private key goes; default: the user's configuration folder")


def main(arguments: argparse.Namespace) -> int:
    """Make both files; prints where they are."""
    workspace = Workspace(ROOT)
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", arguments.name):
        raise Refused(f"NAME: got {arguments.name!r}; wanted lower case letters, digits and '-'")
    secret = (arguments.key or private()).expanduser().absolute()
    if secret.resolve().is_relative_to(workspace.root):
        raise Refused(f"{secret}: lies inside the repository; wanted a place outside of it for a private key")
    public = workspace.evidence / "keys" / f"{arguments.name}.pub"
    with machine_errors(secret):
        identity = attest.make_key(secret, public)
    print(f"private key: {secret}\npublic key:  {public.relative_to(ROOT)}\nkey id:      {identity}")
    print("commit the public key; without it in evidence/keys/ nobody here takes its signatures for signed")
    return GOOD
