"""python -m audit: judge sealed runs, decide their claims, check the ledgers."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from audit import __version__, report
from audit.committed import Repository, around
from audit.places import is_kept, ledgers, runs
from audit.strictjson import write

HELP = """\
Without PATH: all kept runs evidence/NN_name/RUN and local runs evidence/local/NN_name/RUN of the repository around the current
folder, and its ledgers. With PATH: these folders, wherever they lie; each is a run, i.e. it holds sealed/manifest.json.
"""
END = """\
A run is VERIFIED if no check finds an error. What is checked, and every rule's number, is in evidence/FORMAT.md.
Nothing that is stored in evidence is executed. Findings go to RUN/audit.json.

exit codes: 0 all VERIFIED and the ledgers good, 1 a finding, 2 usage, no such path or nothing to audit
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code comes back."""
    options = _options(arguments)
    here = Path.cwd()
    around_here = around(here)
    if options.path:
        places = _given(options.path)
        if places is None:
            return 2
    elif around_here is None:
        return _refuse("no PATH given, and the current folder lies in no repository")
    else:
        wanted = [number.zfill(2) for number in options.experiment]
        places = [
            (folder, kept, around_here)
            for folder, kept in runs(around_here.root, lambda name: not wanted or name[:2] in wanted or name in wanted)
        ]
        lacking = [number for number in wanted if not any(number in (place[0].parent.name, place[0].parent.name[:2]) for place in places)]
        if lacking or not places:
            return _refuse(f"no run of experiment {', '.join(lacking)}" if lacking else "no run is kept or local here")
    for _, _, repository in places:
        if repository is not None:
            repository.start()
    good = True
    documents = []
    for folder, kept, repository in places:
        document, saved = _one(folder, kept, repository, options)
        documents.append(document)
        good &= document["verdict"] == "VERIFIED" and saved
    seen = {id(repository): repository for _, kept, repository in places if repository is not None and (kept or not options.path)}
    chains = [document for repository in seen.values() for document in ledgers(repository.root, repository)]
    good &= all(chain["verdict"] == "VERIFIED" for chain in chains)
    if options.json:
        sys.stdout.write("".join(write(document).decode() for document in [*documents, *chains]))
    else:
        _print_ledgers(chains, options.quiet)
        if not options.quiet:
            judged = [(document, kept) for document, (_, kept, _) in zip(documents, places, strict=True)]
            print("".join(line + "\n" for line in report.claims_table(judged, options.claims)), end="")
    for repository in {id(place[2]): place[2] for place in places}.values():
        if repository is not None:
            repository.close()
    return 0 if good else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m audit", description=HELP, epilog=END, formatter_class=form)
    parser.add_argument("path", nargs="*", metavar="PATH", type=Path, help="the folder of a run")
    parser.add_argument("--experiment", action="append", default=[], metavar="NN", help="only runs of this experiment; may be repeated")
    parser.add_argument("--claims", action="store_true", help="claims with their values and the rule that held, and controls")
    parser.add_argument("--quiet", action="store_true", help="only what is not VERIFIED")
    parser.add_argument("--json", action="store_true", help="print the documents instead: audit.json of each run, then the ledgers")
    parser.add_argument("--no-write", action="store_true", help="do not write RUN/audit.json")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(arguments)
    if options.path and options.experiment:
        parser.error("PATH and --experiment exclude each other")
    return options


def _refuse(text: str) -> int:
    print(f"audit: {text}", file=sys.stderr)
    return 2


def _given(paths: list[Path]) -> list[tuple[Path, bool, Repository | None]] | None:
    """The folders named on the command line, with the repository around each; None where one is not there."""
    places: list[tuple[Path, bool, Repository | None]] = []
    repositories: dict[Path, Repository] = {}
    for path in paths:
        try:
            folder = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            _refuse(f"{path}: {getattr(error, 'strerror', None) or error}")
            return None
        if not folder.is_dir():
            _refuse(f"{path}: not a folder")
            return None
        repository = around(folder)
        if repository is not None:
            repository = repositories.setdefault(repository.root, repository)
        places.append((folder, repository is not None and is_kept(folder, repository.root), repository))
    return places


def _one(folder: Path, kept: bool, repository: Repository | None, options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Audit one run, write its audit.json, print its lines."""
    from audit.run import audit

    document = audit(folder, repository, kept).document
    problem = "" if options.no_write else _save(folder, write(document))
    if not options.json and (document["verdict"] != "VERIFIED" or not options.quiet):
        lines = [report.run_line(document), *map(report.finding_line, document["findings"])]
        lines += [] if options.quiet else report.levels_line(document)
        lines += report.controls_lines(document) if options.claims else []
        print("\n".join(lines))
    if problem:
        print(f"{folder.name}: audit.json not written: {problem}", file=sys.stderr)
    return document, True


def _save(folder: Path, data: bytes) -> str:
    """Write audit.json whole or not at all; says why it could not."""
    target = folder / "audit.json"
    try:
        if not target.is_symlink() and target.is_file() and target.read_bytes() == data:
            return ""
        made = folder / f".audit-{os.getpid()}"
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            made.replace(target)
        except OSError:
            made.unlink(missing_ok=True)
            raise
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _print_ledgers(chains: list[dict[str, Any]], quiet: bool) -> None:
    for chain in chains:
        if chain["verdict"] != "VERIFIED" or not quiet:
            print(f"{chain['ledger']:<48} {chain['verdict']:<12} {chain['lines']} lines; HEAD {chain['head']}")
            for finding in chain["findings"]:
                print(report.finding_line(finding))


if __name__ == "__main__":
    sys.exit(main())
