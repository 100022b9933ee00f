"""Long lists of equal work on all processors: results in order, memory bounded, nothing left running.

Processes, not threads: between two NumPy calls on small arrays a thread waits for the interpreter. They are forked, so that the work
needs no import of its own, and hand their results through pipes, which are full after one: no worker runs ahead of the reader.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from labcore.tether import tied

T = TypeVar("T")
R = TypeVar("R")
FEW = 8  # items up to which no worker is worth its start
PIPE = 1 << 20  # bytes that a pipe holds: fewer changes between reader and worker


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def in_order(work: Callable[[T], R], items: Sequence[T], workers: int | None = None) -> Iterator[R]:
    """`work` of each item, in the order of the items, as `map` gives it; what `work` raises is raised here.

    workers: processes; by default as many as processors(), but for up to FEW items 1. One is none: a plain `map`.

    >>> list(in_order(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    if workers is None:
        workers = 1 if len(items) <= FEW else processors()
    if workers < 2:
        yield from map(work, items)
        return
    fork = multiprocessing.get_context("fork")
    running = []
    pipes = []
    tie = tied()
    try:
        for worker in range(workers):
            reader, writer = fork.Pipe(duplex=False)
            with suppress(OSError, AttributeError):  # more than a user may have, or not Linux: then it stays small
                fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, PIPE)
            process = fork.Process(target=_serve, args=(work, items[worker::workers], writer, tie), daemon=True)
            process.start()
            writer.close()  # the worker holds the only one, so that its death is an end of file here
            running.append(process)
            pipes.append(reader)
        for place in range(len(items)):
            try:
                good, result = pipes[place % workers].recv()
            except EOFError:
                process = running[place % workers]
                process.join()
                raise MemoryError(f"a worker process ended with exit code {process.exitcode}") from None
            if not good:
                raise result
            yield result
    finally:
        for process in running:
            process.kill()
            process.join()
        for reader in pipes:
            reader.close()


def _serve(work: Callable[[T], R], items: Sequence[T], pipe: Connection, tie: Callable[[], None]) -> None:
    """In a worker: send (True, result) of each item, or (False, what was raised) and end. Dies with its parent."""
    tie()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its workers
    for item in items:
        try:
            answer: tuple[bool, Any] = (True, work(item))
        except Exception as error:
            answer = (False, error)
        pipe.send(answer)
        if not answer[0]:
            return
