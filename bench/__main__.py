"""`python -m bench [NAME ...] [--quick]`: run every module of bench/ that has `measure(quick) -> [(name, value), ...]`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Print one aligned line a measurement; 2 for an unknown name."""
    known = sorted(path.stem for path in HERE.glob("[a-z]*.py"))
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(known)}; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repeats")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"bench: got {', '.join(unknown)}; wanted some of {', '.join(known)}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    print(f"load before: {load:.2f} on {os.cpu_count()} cores" + ("; ratios will be unsteady" if load > 1 else ""))
    for name in options.names or known:
        for label, value in importlib.import_module(f"bench.{name}").measure(options.quick):
            print(f"{name:<12} {label:<58} {value}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
