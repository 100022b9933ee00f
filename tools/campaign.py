"""The auditor against random damages: `python tools/campaign.py [--count N] [--seed S] [--run PATH]... [--write FILE]`.

Half of the mutants are damages to sealed files, half are made by someone who seals again with fresh digests and a fresh name. Each
is audited as a kept run of this repository, whose commit has the protocol and the sources. The ledger, which would find every mutant
whose manifest changed, is left out. Prints the share found, by rule, and every survivor with the reason why nobody can find it. A
survivor without a reason, or a crash, is exit code 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from audit import rederive  # noqa: E402
from audit.committed import Repository, around  # noqa: E402
from audit.run import audit  # noqa: E402
from tests.audit.reseal import Evidence, reseal_files  # noqa: E402
from tools.evidence_mutants import RAW, RECORDED, SEALED, Change  # noqa: E402

DEFAULT = ("05", "06")


class Base:
    """A run that is VERIFIED, to make mutants of."""

    def __init__(self, run: Path, repository: Repository) -> None:
        self.run, self.repository = run, repository
        self.evidence = Evidence.load(run)
        self.experiment = str(self.evidence.manifest["experiment"])
        module = rederive.load(self.experiment)
        self.bounds = {name: bound for name, (bound, _) in getattr(module, "BOUNDS", {}).items()}
        self.given = dict(getattr(module, "GIVEN", {}))
        self.metrics = {
            f"{block}/{name}": metric
            for block, part in self.evidence.protocol["blocks"].items()
            for name, metric in part.get("metrics", {}).items()
        }

    def why(self, change: Change, run: Path) -> str:
        """Why a change that was not found cannot be; empty where it should have been found."""
        if change.free:
            return change.free
        value = json.loads((run / "sealed" / "manifest.json").read_bytes())
        if {**value, "recorded": 0} == {**self.evidence.manifest, "recorded": 0} and change.text.startswith("manifest"):
            return RECORDED
        if change.place in self.given:
            return f"not derivable: {self.given[change.place]}"
        if change.moved <= self.bounds.get(change.place, -1.0):
            return "below the bound of the array, and no metric changed"
        if change.place in self.metrics and self.metrics[change.place].get("bound"):
            return "below the bound of the metric"
        return ""


def mutate(base: Base, rng: random.Random, room: Path) -> tuple[Path, Change]:
    """One mutant under `room`, and what was done to it."""
    while True:
        parent = room / "evidence" / base.experiment
        shutil.rmtree(room, ignore_errors=True)
        parent.mkdir(parents=True)
        if rng.random() < 0.5:
            evidence = copy.deepcopy(base.evidence)
            change = rng.choice(SEALED)(rng, evidence)
            if change is not None:
                try:
                    return evidence.seal(parent), change
                except (KeyError, TypeError, ValueError, AttributeError):
                    continue  # the writer itself cannot seal such a thing: draw again
        else:
            run = parent / base.run.name
            shutil.copytree(base.run / "sealed", run / "sealed")
            change = rng.choice(RAW)(rng, run / "sealed")
            if change is not None:
                run = next(item for item in parent.iterdir() if item.is_dir())
                if rng.random() < 0.15 and (run / "sealed" / "manifest.json").is_file() and "arrays.h5" in change.text:
                    change = _fresh_file_digests(base, run, change)
                return run, change


def _fresh_file_digests(base: Base, run: Path, change: Change) -> Change:
    """Digests of the files fresh, those of the arrays as they were: what only the form of the container can tell."""
    try:
        reseal_files(run)
    except (OSError, ValueError):
        return change
    return Change(change.text + ", files sealed again", free="bytes of the container that hold neither a value nor a name")


def campaign(bases: list[Base], count: int, seed: int, out: list[str]) -> int:
    """Run it; the number of survivors without a reason, and of crashes, comes back."""
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    rules: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    survivors: list[tuple[str, str, str]] = []
    crashes: list[str] = []
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            base = bases[number % len(bases)]
            run, change = mutate(base, rng, Path(folder) / "room")
            try:
                document = audit(run, base.repository, kept=True).document
            except Exception as error:  # a crash is what this search is for
                crashes.append(f"{number} {base.experiment}: {change.text}: {type(error).__name__}: {error}")
                continue
            found = {item["rule"] for item in document["findings"] if item["severity"] == "error"}
            rules.update(found)
            alone.update(found if len(found) == 1 else ())
            if not found:
                survivors.append((base.why(change, run), base.experiment, f"{number}: {change.text}"))
    unexplained = [item for item in survivors if not item[0]]
    out.append(
        f"{count} mutants of {', '.join(base.experiment for base in bases)}, seed {seed}: {count - len(survivors) - len(crashes)} found,"
    )
    out.append(
        f"{len(survivors) - len(unexplained)} survive for a stated reason, {len(unexplained)} without one, {len(crashes)} crash the auditor"
    )
    out.append("")
    out.append("rule   mutants  share  found by it alone")
    out += [f"{rule}   {hits:7}  {hits / count:5.1%}  {alone[rule]:5}" for rule, hits in sorted(rules.items())]
    for reason, group in sorted(Counter(item[0] for item in survivors).items()):
        out += ["", f"{group} survivors: {reason or 'NO REASON'}"]
        out += [f"  {experiment} {text}" for why, experiment, text in survivors if why == reason]
    out += [f"CRASH {text}" for text in crashes]
    return len(unexplained) + len(crashes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=Path, action="append", default=[], help="a VERIFIED run; by default the kept ones of 05 and 06")
    parser.add_argument("--write", type=Path, help="write the report here as well")
    options = parser.parse_args()
    kept = [path.parent for number in DEFAULT for path in sorted(ROOT.glob(f"evidence/{number}_*/*/sealed"))]
    repository = around(ROOT)
    if not (options.run or kept) or repository is None:
        print("campaign: no run is kept, or this is no repository; name runs with --run", file=sys.stderr)
        return 2
    bases = [Base(run.resolve(), repository) for run in options.run or kept]
    for base in bases:
        if not audit(base.run, repository, kept=True).verified:
            print(f"campaign: {base.run.name} is not VERIFIED", file=sys.stderr)
            return 2
    out: list[str] = []
    bad = campaign(bases, options.count, options.seed, out)
    repository.close()
    print("\n".join(out))
    if options.write:
        options.write.write_text("\n".join(out) + "\n", "utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
