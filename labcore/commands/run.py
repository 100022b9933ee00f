"""Run an experiment: seal it, audit it, draw it, compare it with the kept run.

Without overrides the committed protocol.json is read and the run is confirmatory (if the sources are the committed ones). With
overrides, such as `seeds=[1,2,3]` or `seeds=range(0,10000)`, Hydra composes conf/ and the run is exploratory: it decides no claim.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from labcore import canonical, ledger
from labcore.cli import ROOT
from labcore.errors import ENVIRONMENT, FINDING, GOOD, INTERRUPTED, REFUSED, Environment, Refused
from labcore.protocol import Protocol, load
from labcore.runner import execute, origin
from labcore.tether import tied
from labcore.workspace import Workspace, clear_leftovers, growing, machine_errors, publish

BIG = 100_000_000  # bytes from which a run says what it will take
RECORD = "ran"


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore run`."""
    parser.add_argument("experiment", help="number or name, such as 06")
    parser.add_argument("overrides", nargs="*", help="key=value for keys of the protocol; the run is then exploratory")
    parser.add_argument("--no-audit", action="store_true", help="seal only: neither audit nor figure")
    parser.add_argument("--no-figure", action="store_true", help="seal and audit only")


def main(arguments: argparse.Namespace) -> int:
    """Run; the exit code is the audit's where it ran."""
    workspace = Workspace(ROOT)
    experiment = workspace.find(arguments.experiment)
    figures = not (arguments.no_audit or arguments.no_figure)
    with ExitStack() as children:
        with machine_errors(workspace.local, "; nothing was kept of this run"):
            for line in clear_leftovers(workspace):
                print(line)
            if arguments.overrides:
                from labcore.compose import resolve

                protocol = resolve(ROOT, experiment, arguments.overrides)
            else:
                protocol = load(workspace.experiments / experiment / "protocol.json")
            _ask_for_space(workspace, protocol)
            # Its libraries load for a second: beside the run, unless the run measures time.
            timed = any(block.rows == "timing" for block in protocol.blocks.values())
            drawing = None if timed or not figures else children.enter_context(_drawing(workspace, experiment))
            run, manifest = make(workspace, protocol, arguments.overrides)
        print(f"{experiment} {run.name}: {manifest['kind']}, sealed in {run.relative_to(ROOT)}")
        _say_kind(manifest)
        _print_results(run)
        code = GOOD
        if figures:
            drawing = drawing or children.enter_context(_drawing(workspace, experiment))
            _name(drawing, run)
        if not arguments.no_audit:
            code = _code(children.enter_context(_child("audit", str(run))))
            with machine_errors(workspace.local):
                text = {GOOD: "VERIFIED", FINDING: "NOT VERIFIED"}.get(code, f"the auditor ended with exit code {code}")
                ledger.append(workspace.local_ledger, "audited", experiment, run.name, text=text)
        if drawing:
            print(drawing.stdout.read() if drawing.stdout else "", end="")
            drawn = _code(drawing)
            code = code or (REFUSED if drawn == FINDING else drawn)  # a figure.py that fails is no finding of the auditor's
    _print_comparison(workspace, run)
    return code


def make(workspace: Workspace, protocol: Protocol, overrides: list[str]) -> tuple[Path, dict[str, Any]]:
    """Execute into local evidence, whole or not at all, with a ledger line; returns the run's folder and its manifest."""
    experiment = protocol.experiment
    made_from = origin(workspace.root, protocol, overrides)
    with growing(workspace.local / experiment) as folder:
        sealed = folder / "run" / "sealed"
        sealed.mkdir(parents=True)
        try:
            manifest = execute(workspace.root, protocol, overrides, sealed, made_from)
        except KeyboardInterrupt:
            ledger.append(workspace.local_ledger, "interrupted", experiment, text="stopped by the user; nothing was kept")
            raise
        except (Refused, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            ledger.append(workspace.local_ledger, "failed", experiment, text=text[:500])
            if isinstance(error, MemoryError):
                raise Environment(f"{experiment}: out of memory ({error}); nothing was kept of this run") from error
            if isinstance(error, Refused):
                raise
            raise Refused(f"{experiment}: the experiment refused its input: {text}") from error
        digest = canonical.sha256_file(sealed / "manifest.json")
        target = workspace.local / experiment / manifest["run"]
        event, text = RECORD, manifest["kind"]
        if not publish(folder / "run", target):
            event = "reproduced"
            text = _meet(folder, target, manifest)
        ledger.append(workspace.local_ledger, event, experiment, manifest["run"], digest, text)
    return target, manifest


def _meet(folder: Path, target: Path, manifest: dict[str, Any]) -> str:
    """A run met its own name: the older record stays, unless it was exploratory and the new one is confirmatory."""
    from labcore.sealed import Sealed

    old = Sealed(target)
    same = "the same numbers as before, bit for bit"
    if manifest["kind"] != "confirmatory" or old.manifest["kind"] == "confirmatory":
        print(f"{same}; the record of {old.manifest['recorded']['start']} stays")
        return same
    target.rename(folder / "older")
    publish(folder / "run", target)
    print(f"{same}, and now confirmatory; this record takes the place of the exploratory one")
    return f"{same}; replaces an exploratory record"


def estimate(protocol: Protocol) -> int:
    """Bytes of the arrays whose shape the protocol fixes."""
    total = 0
    for name, block in protocol.blocks.items():
        rows = protocol.row_count(name)
        for array in block.arrays.values():
            sizes = [rows if size == "case" else size if isinstance(size, int) else 0 for size in array.shape]
            total += math.prod(sizes) * np.dtype(array.dtype).itemsize
    return total


def _ask_for_space(workspace: Workspace, protocol: Protocol) -> None:
    workspace.local.mkdir(parents=True, exist_ok=True)
    size, free = estimate(protocol), shutil.disk_usage(workspace.local).free
    # The pieces lie in temporary files and in the sealed file for a moment.
    if size * 2.2 > free:
        raise Environment(f"{workspace.local}: sealing this run takes {size * 2.2 / 1e6:.0f} MB; {free / 1e6:.0f} MB are free")
    if size > BIG:
        print(f"this run will hold about {size / 1e6:.0f} MB of arrays")


@contextmanager
def _child(module: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A module that runs beside this process, and not longer than the `with`. Ctrl-C reaches this process alone, which then ends it."""
    print(end="", flush=True)
    options |= {"start_new_session": True, "preexec_fn": tied()}
    with subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, text=True, **options) as child:
        try:
            yield child
        except BaseException:
            child.kill()
            raise


@contextmanager
def _drawing(workspace: Workspace, experiment: str) -> Iterator[subprocess.Popen[str]]:
    """A child that loads its libraries and then draws the run that it is told; what it has not finished goes when it is ended."""
    with growing(workspace.local / experiment) as folder:
        options = ("--run", "-", "--growing", str(folder))
        with _child("labcore", "figure", experiment, *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            yield child


def _name(drawing: subprocess.Popen[str], run: Path) -> None:
    assert drawing.stdin is not None
    with suppress(BrokenPipeError), drawing.stdin as told:  # one that has ended says why in its exit code
        told.write(f"{run.name}\n")


def _code(child: subprocess.Popen[str]) -> int:
    """Wait for a child; its exit code as ours."""
    code = child.wait()
    if code == -2 or code == INTERRUPTED:
        raise KeyboardInterrupt
    return code if code in (GOOD, FINDING, REFUSED, ENVIRONMENT) else ENVIRONMENT


def _say_kind(manifest: dict[str, Any]) -> None:
    if manifest["kind"] == "confirmatory":
        return
    reasons = [f"overrides {' '.join(manifest['overrides'])}"] if manifest["overrides"] else []
    reasons += [f"files that differ from HEAD: {', '.join(manifest['differing'])}"] if manifest["differing"] else []
    print(f"EXPLORATORY: this run decides no claim ({'; '.join(reasons) or 'the protocol or the sources are not committed'})")


def _print_results(run: Path) -> None:
    from labcore.sealed import Sealed
    from labcore.tables import results

    print(results(Sealed(run)))


def _print_comparison(workspace: Workspace, run: Path) -> None:
    from labcore.compare import compare
    from labcore.sealed import Sealed

    kept = workspace.kept(run.parent.name)
    if kept is None:
        print("compared with the kept run: there is none yet (`make keep` keeps one)")
        return
    if Sealed(run).manifest["overrides"]:
        print(f"not compared with the kept run {kept.name}: that one answers the committed protocol")
        return
    comparison = compare(Sealed(kept), Sealed(run))
    print(f"compared with the kept run {kept.name}: {comparison.outcome}")
    if comparison.outcome != "identical":
        print("\n".join(f"  {line}" for line in comparison.lines[:12]))
