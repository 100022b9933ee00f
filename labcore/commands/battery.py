"""Test whether the requests of any cache, pool or attention function are alone.

The target is module:factory or file.py:factory; the factory takes no arguments and gives a fresh system each time (see docs/battery.md).
Exit code: 0 isolated, 1 not isolated, 2 could not test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from labcore.errors import Refused


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore battery`."""
    parser.add_argument("target", help="module:factory or file.py:factory")
    parser.add_argument("--quick", action="store_true", help="fewer cases: seconds instead of half a minute")
    parser.add_argument("--only", default="", help="rules to run, such as A101,C206")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (default 0)")
    parser.add_argument("--seconds", type=float, default=0.0, help="limit of one call (default 20); one that takes longer hangs")
    parser.add_argument("--report", type=Path, default=Path("report.json"), help="where the results go (default report.json)")
    parser.add_argument("--html", type=Path, help="write one self-contained page here, too")


def main(arguments: argparse.Namespace) -> int:
    """Run all applicable checks in a child process; table, report, page."""
    from labcore.battery import report as says
    from labcore.battery.runner import CHECKS, FULL, FULL_SECONDS, QUICK, QUICK_SECONDS, SECONDS, Report
    from labcore.battery.supervise import results
    from labcore.progress import Progress

    rules = [rule for rule in arguments.only.split(",") if rule] or list(CHECKS)
    unknown = [rule for rule in rules if rule not in CHECKS]
    if unknown:
        raise Refused(f"--only: got {', '.join(unknown)}; wanted rules from {', '.join(CHECKS)}")
    if arguments.seed < 0:
        raise Refused(f"--seed: got {arguments.seed}; wanted 0 or more")
    options = {
        "effort": QUICK if arguments.quick else FULL,
        "total": QUICK_SECONDS if arguments.quick else FULL_SECONDS,
        "seed": arguments.seed,
        "seconds": arguments.seconds or SECONDS,
        "shrink": 0.5 if arguments.quick else 2.0,
    }
    report = Report()
    with Progress(len(rules), "checks") as progress:
        for result in results(arguments.target, rules, **options):
            report.results.append(result)
            progress.add(1)
    print(says.lines(report))
    arguments.report.write_text(says.document(report, arguments.target, options), encoding="utf-8")
    written = [str(arguments.report)]
    if arguments.html:
        arguments.html.write_text(says.page(report, arguments.target), encoding="utf-8")
        written.append(str(arguments.html))
    print(f"written: {', '.join(written)}")
    return report.code
