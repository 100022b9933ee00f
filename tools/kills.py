"""kill -9 a run at random moments: nothing may look complete that is not, and the next start must report and clear what was left.

`python tools/kills.py --count 100 [--seed N]` works on a copy of the project, so that it touches no evidence.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def kill_one(root: Path, experiment: str, delay: float) -> bool:
    """Start a run, kill it after `delay` seconds; whether it was still running."""
    process = subprocess.Popen(
        [sys.executable, "-m", "labcore", "run", experiment, "--no-audit"], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def problems(root: Path, experiment: str) -> tuple[list[str], float]:
    """What is wrong after a kill and one undisturbed run ([] is good), and the seconds of that run."""
    place = next(iter((root / "evidence" / "local").glob(f"{experiment}_*")), None)
    for folder in place.iterdir() if place else ():
        if not folder.name.startswith(".") and not (folder / "sealed" / "manifest.json").is_file():
            return [f"{folder.name} looks like a run and has no manifest"], 0.0
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "labcore", "run", experiment, "--no-audit"], cwd=root, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - start
    if done.returncode:
        return [f"the next run ended with {done.returncode}: {done.stderr}"], seconds
    found = []
    place = next((root / "evidence" / "local").glob(f"{experiment}_*"))
    left = [folder.name for folder in place.iterdir() if folder.name.startswith(".")]
    # A killed process may not have locked its folder yet; such a one is left alone for a minute.
    found += [f"{name} was not cleared" for name in left if (place / name / "lock").exists()]
    command = [sys.executable, "-m", "audit", "--no-write", "--quiet", "--experiment", experiment]
    audit = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if audit.returncode:
        found.append(f"the audit finds: {audit.stdout}")
    return found, seconds


def campaign(root: Path, experiment: str, count: int, seed: int) -> tuple[int, list[str]]:
    """Until `count` runs were killed while running, each at a moment drawn from the time that the run before it took; returns the
    number of runs that ended before their kill, and every problem."""
    draw = random.Random(seed)
    found, whole = problems(root, experiment)
    killed = missed = 0
    while killed < count and missed < 3 * count:
        for run in (root / "evidence" / "local").glob(f"{experiment}_*/[0-9a-f]*"):
            shutil.rmtree(run)  # the name is free again, so that publishing is part of what is disturbed
        running = kill_one(root, experiment, draw.uniform(0.0, whole))
        killed, missed = killed + running, missed + (not running)
        new, whole = problems(root, experiment)
        found += [f"kill {killed}: {text}" for text in new]
    return missed, found


def main() -> int:
    """Run the campaign on a copy; exit code 1 with the problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--experiment", default="06")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "project"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        missed, found = campaign(copy, options.experiment, options.count, options.seed)
        ledger = copy / "evidence" / "local" / "LEDGER.jsonl"
        events = [json.loads(line)["event"] for line in ledger.read_text().splitlines()]
    print("\n".join(found))
    left = events.count("leftover")
    print(f"{options.count} runs killed ({missed} more ended before), {left} leftovers reported and removed, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
