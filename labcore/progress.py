"""Progress of a run: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

QUIET = 5.0  # seconds between plain lines


class Progress:
    """Counts cases: done, rate, time left. Use as a context manager and call `add` after each batch."""

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label, self.done = total, label, 0
        self.start = self.last = time.monotonic()
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, desc=label, unit="case", leave=False, file=sys.stderr)

    def add(self, cases: int) -> None:
        """Report more finished cases."""
        self.done += cases
        if self.bar is not None:
            self.bar.update(cases)
        elif time.monotonic() - self.last >= QUIET:
            self.last = time.monotonic()
            rate = self.done / (self.last - self.start)
            left = f", about {(self.total - self.done) / rate:.0f} s left" if rate else ""
            print(f"{self.label}: {self.done} of {self.total} cases, {rate:.0f} a second{left}", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.close()
