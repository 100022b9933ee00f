"""Run the archived sources of a sealed run in a fresh environment and compare array by array.

This executes code that lies in the evidence: only this verb does, and only because you asked. `--here` uses the present environment
instead of a fresh one (seconds instead of a minute).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path, PurePosixPath

from labcore import canonical, ledger
from labcore.cli import ROOT
from labcore.compare import Comparison, compare, fingerprint
from labcore.errors import FINDING, GOOD, Environment, Refused, printable
from labcore.sealed import Sealed
from labcore.tables import table
from labcore.tether import tied
from labcore.workspace import MACHINE, Workspace, clear_leftovers, growing, machine_errors


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore replicate`."""
    parser.add_argument("experiment", nargs="?", help="number or name, such as 06")
    parser.add_argument("--file", type=Path, help="an archive, instead of an experiment: replicates from it alone")
    parser.add_argument("--run", help="a run's name, or its beginning; default: the kept run")
    parser.add_argument("--here", action="store_true", help="use the present environment instead of a fresh one")


def main(arguments: argparse.Namespace) -> int:
    """Replicate a run of the tree, or of an archive that was VERIFIED first."""
    workspace = Workspace(ROOT)
    if bool(arguments.file) == bool(arguments.experiment):
        raise Refused("replicate: say which experiment (make replicate EXP=06), or which archive (FILE=...)")
    if arguments.file:
        from labcore.verification import run_of

        with machine_errors(workspace.local):
            for line in clear_leftovers(workspace):
                print(line)
            with run_of(workspace, arguments.file) as original:
                return replicate(workspace, original, here=arguments.here)
    experiment = workspace.find(arguments.experiment)
    run = workspace.run(experiment, arguments.run) if arguments.run else workspace.kept(experiment)
    if run is None:
        raise Refused(f"{experiment}: no kept run; name a run with --run")
    return replicate(workspace, Sealed(run), here=arguments.here)


def replicate(workspace: Workspace, original: Sealed, *, here: bool) -> int:
    """Run the sources sealed in `original` and compare; prints the table, writes a ledger line, returns the exit code."""
    manifest = original.manifest
    experiment, name = manifest["experiment"], manifest["run"]
    with machine_errors(workspace.local):
        for line in clear_leftovers(workspace):
            print(line)
        with growing(workspace.local / experiment) as folder:
            tree = folder / "tree"
            unpack(original, tree)
            (tree / "protocol.json").write_bytes(canonical.dumps(manifest["protocol"]["resolved"]))
            python = Path(sys.executable) if here else environment(tree, folder / "venv", manifest)
            command = [str(python), "-m", "labcore.runner", "protocol.json", str(folder / "again" / "sealed")]
            clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
            done = subprocess.run(command, cwd=tree, env=clean, capture_output=True, text=True, check=False, preexec_fn=tied())
            if done.returncode:
                last = printable((done.stderr.strip().splitlines() or ["no output"])[-1])
                number = re.search(r"\[Errno (\d+)\]", last)
                if number and int(number[1]) in MACHINE:
                    raise Environment(f"{folder.parent}: {os.strerror(int(number[1]))}; the archived sources could not run")
                ledger.append(workspace.local_ledger, "replicated", experiment, name, text=f"failed: {last}"[:500])
                print(f"{experiment} {name}: the archived sources did not run: {last}")
                return FINDING
            again = Sealed(folder / "again")
            result = compare(original, again)
            report(original, again, result)
    digest = canonical.sha256_file(original.path / "sealed" / "manifest.json")
    ledger.append(workspace.local_ledger, "replicated", experiment, name, digest, result.outcome)
    return FINDING if result.outcome == "changed" else GOOD


def unpack(run: Sealed, tree: Path) -> None:
    """Write the sealed sources into `tree`, each checked against the manifest; refuses a name that leaves it."""
    tree.mkdir(parents=True)
    with zipfile.ZipFile(run.path / "sealed" / "sources.zip") as archive:
        for name, digest in run.manifest["sources"].items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name:
                raise Refused(f"sources.zip: got the name {name!r}; wanted a path inside the project")
            content = archive.read(name)
            if canonical.sha256(content) != digest:
                raise Refused(f"sources.zip: {name} does not have the digest of the manifest; `make audit` says more")
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def environment(tree: Path, place: Path, manifest: dict[str, object]) -> Path:
    """A fresh virtual environment from the archived lock files; returns its Python."""
    print("making a fresh environment from the archived lock files ...", flush=True)
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    packages = manifest["recorded"]["environment"]["packages"]  # type: ignore[index]
    steps = [["--require-hashes", "--no-deps", "-r", "requirements/build.lock"]]
    locks = ["run", *(name for name in ("torch", "tokenizers") if name in packages)]
    steps += [["--require-hashes", "--no-deps", "--no-build-isolation", "-r", f"requirements/{name}.lock"] for name in locks]
    if "torch" in packages:
        steps.append(["--no-deps", f"torch=={packages['torch']}"])
    for step in steps:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *step]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, preexec_fn=tied())
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Environment(f"pip could not install the archived environment: {last}")
    return python


def report(original: Sealed, again: Sealed, result: Comparison) -> None:
    """Print what came out the same and what did not."""
    print(f"{original.manifest['experiment']} {original.manifest['run']} replicated: {result.outcome}")
    print("\n".join(f"  {printable(line)}" for line in result.lines))
    if result.arrays:
        print(table(["array", "outcome"], sorted(result.arrays.items())))
    differing = fingerprint(original, again)
    print(f"fingerprint: {'the same' if not differing else 'differs in ' + ', '.join(differing)}")
