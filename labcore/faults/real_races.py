"""The same races with real threads and real processes: what they do is not repeatable, so their results are measurements.

Each function runs two workers to the end and returns integers. Runners: `threads` share all memory; `processes` are forked and share
one mapping; `processes_private` are forked and share nothing, each works on a copy. Locks: `none`; `thread_lock`, a threading.Lock, of
which a forked process has a copy of its own; `process_lock`, a multiprocessing.Lock. Styles: `inline`, where reading and writing stand in
one expression, between which CPython does not change threads; `calls`, where each is a function call, as in any real program.
"""

from __future__ import annotations

import mmap
import multiprocessing
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.timing import Stopwatch

WORKERS = 2
FORK = multiprocessing.get_context("fork")
SECONDS = 120
DECODE = 0.002
Words = NDArray[np.int64]


def memory(words: int, runner: str) -> Words:
    """Zeros [words] that all workers of this runner see, or of which each has a copy (`processes_private`)."""
    if runner != "processes":
        return np.zeros(words, np.int64)
    return np.frombuffer(mmap.mmap(-1, 8 * words), np.int64)  # anonymous and shared: a fork keeps it


def together(runner: str, work: Callable[[int], None]) -> None:
    """Run work(0) and work(1), started by one gun. Raises RuntimeError if one of them failed or hangs."""
    threads = runner == "threads"
    gun: Any = threading.Barrier(WORKERS) if threads else FORK.Barrier(WORKERS)
    failed: list[int] = []

    def body(me: int) -> None:
        gun.wait(SECONDS)
        try:
            work(me)
        except Exception:
            failed.append(me)
            raise

    make: Any = threading.Thread if threads else FORK.Process
    workers = [make(target=body, args=(me,), daemon=True) for me in range(WORKERS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads that hold none of our locks
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join(SECONDS)
        if worker.is_alive() or failed or getattr(worker, "exitcode", 0):
            raise RuntimeError(f"{runner}: a worker failed, or did not end within {SECONDS} s")


def guard(lock: str) -> AbstractContextManager[Any]:
    """A new lock of that kind."""
    makers: dict[str, Callable[[], Any]] = {"none": nullcontext, "thread_lock": threading.Lock, "process_lock": FORK.Lock}
    return makers[lock]()  # type: ignore[no-any-return]


def counter(runner: str, lock: str, style: str, steps: int) -> int:
    """Each worker adds 1 to one counter `steps` times; returns the additions that are missing at the end."""
    words, held = memory(1, runner), guard(lock)

    def read() -> int:
        return int(words[0])

    def write(value: int) -> None:
        words[0] = value

    def inline(me: int) -> None:
        for _ in range(steps):
            with held:
                words[0] = words[0] + 1

    def calls(me: int) -> None:
        for _ in range(steps):
            with held:
                write(read() + 1)

    together(runner, inline if style == "inline" else calls)
    return WORKERS * steps - int(words[0])


def allocator(runner: str, lock: str, style: str, steps: int, total: int = 7) -> tuple[int, int, int]:
    """Each worker takes a block from one stack and gives it back, `steps` times.

    Returns (blocks got while the other owned them, blocks missing from the stack at the end, failures for a broken top).
    Words: top, stack [total], owner [total], twice [worker], failed [worker]."""
    words, held = memory(1 + 2 * total + 2 * WORKERS, runner), guard(lock)
    words[0] = total
    words[1 : 1 + total] = np.arange(total)
    owner, twice, failed = 1 + total, 1 + 2 * total, 1 + 2 * total + WORKERS

    def top() -> int:
        return int(words[0])

    def move(value: int) -> None:
        words[0] = value

    def pop(me: int) -> int:
        if style == "calls":
            place = top()
            if not 1 <= place <= total:
                return -1
            block = int(words[place])
            move(place - 1)
            return block
        place = int(words[0])
        if not 1 <= place <= total:
            return -1
        words[0] = place - 1
        return int(words[place])

    def push(block: int) -> bool:
        place = top() if style == "calls" else int(words[0])
        if not 0 <= place < total:
            return False
        words[place + 1] = block
        if style == "calls":
            move(place + 1)
        else:
            words[0] = place + 1
        return True

    def work(me: int) -> None:
        for _ in range(steps):
            with held:
                block = pop(me)
            if block < 0:
                words[failed + me] += 1
                continue
            if words[owner + block]:
                words[twice + me] += 1
            words[owner + block] = me + 1
            with held:
                words[owner + block] = 0
                if not push(block):
                    words[failed + me] += 1

    together(runner, work)
    end = min(max(int(words[0]), 0), total)
    lost = total - len(set(words[1 : 1 + end].tolist()))
    return int(words[twice:failed].sum()), lost, int(words[failed:].sum())


def copies(runner: str, lock: str, style: str, rounds: int) -> tuple[int, int]:
    """Both go over `rounds` blocks that they share, and copy each before they write, unless they hold it alone by then.

    Returns (blocks that both copied; blocks whose count at the end is not 2 less the number of copies: lost, or freed too early).
    Words: count [round], copied [worker, round]."""
    words, held = memory(3 * rounds, runner), guard(lock)
    count, copied = words[:rounds], words[rounds:].reshape(WORKERS, rounds)
    count[:] = 2

    def read(block: int) -> int:
        return int(count[block])

    def write(block: int, value: int) -> None:
        count[block] = value

    def inline(me: int) -> None:
        for block in range(rounds):
            with held:
                if count[block] > 1:
                    copied[me, block] = 1
                    count[block] = count[block] - 1

    def calls(me: int) -> None:
        for block in range(rounds):
            with held:
                seen = read(block)
                if seen > 1:
                    copied[me, block] = 1
                    write(block, seen - 1)

    together(runner, inline if style == "inline" else calls)
    twice = copied.sum(axis=0)
    return int((twice == 2).sum()), int((count != 2 - twice).sum())


def rows(runner: str, lock: str, library: str, width: int, steps: int, pages: int = 5) -> tuple[int, int, int]:
    """Both fill one row of `width` numbers with their own tag, and one table of `pages` entries, in place, and read them back.

    Returns (rows read back with both tags: torn; rows with only the other's: lost; tables with an entry of the other's)."""
    words, held = memory(width + pages + 3 * WORKERS, runner), guard(lock)
    row: Any = words[:width]
    table: Any = words[width : width + pages]
    tallies = words[width + pages :].reshape(3, WORKERS)
    if library == "torch":
        import torch

        torch.set_num_threads(1)
        row, table = torch.from_numpy(row), torch.from_numpy(table)

    def numpy_turn(tag: int) -> tuple[int, int]:
        table.fill(tag)
        row.fill(tag)
        return int(np.count_nonzero(row == tag)), int(np.count_nonzero(table == tag))

    def torch_turn(tag: int) -> tuple[int, int]:
        table.fill_(tag)
        row.fill_(tag)
        return int((row == tag).sum()), int((table == tag).sum())

    turn = torch_turn if library == "torch" else numpy_turn

    def work(me: int) -> None:
        for _ in range(steps):
            with held:
                mine, entries = turn(me + 1)
            tallies[0, me] += 0 < mine < width
            tallies[1, me] += mine == 0
            tallies[2, me] += entries < pages

    together(runner, work)
    torn, lost, foreign = tallies.sum(axis=1).tolist()
    return torn, lost, foreign


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    """Let threads take turns this often, for the length of a with block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def copying(scheme: str, steps: int, copy_seconds: float, threads: int = 4, blocks: int = 17) -> tuple[list[float], list[float], float]:
    """Threads that decode and write to blocks, copying a shared one first: seconds each held a lock, each waited, and of the run.

    Decoding a token takes `DECODE` seconds and copying a block `copy_seconds`, both on a device: the host waits and its processor is
    free, so that other load on the machine changes little. One turn in four meets a shared block. Schemes: `one_lock` for everything;
    `block_locks`, one per block; `asked_twice`, one per block, taken only if the block looks shared, and asked again inside; `no_lock`."""
    shared = [False] * blocks
    locks = [threading.Lock() for _ in range(1 if scheme == "one_lock" else blocks)]
    watches = [Stopwatch() for _ in range(threads)]
    device = threading.Event()  # never set: waiting for it takes its time
    whole, gun = Stopwatch(), threading.Barrier(threads + 1)

    def write(block: int) -> None:
        if shared[block]:
            device.wait(copy_seconds)
            shared[block] = False

    def work(me: int) -> None:
        rng, watch = random.Random(me), watches[me]
        gun.wait()
        for _ in range(steps):
            device.wait(DECODE)
            block = rng.randrange(blocks)
            shared[block] |= rng.random() < 0.25
            if scheme == "no_lock" or (scheme == "asked_twice" and not shared[block]):
                write(block)
                continue
            lock = locks[block % len(locks)]
            with watch("waited"):
                lock.acquire()
            try:
                with watch("held"):
                    write(block)
            finally:
                lock.release()

    workers = [threading.Thread(target=work, args=(me,)) for me in range(threads)]
    for worker in workers:
        worker.start()
    gun.wait()
    with whole("total"):
        for worker in workers:
            worker.join()
    return [w.get("held") for w in watches], [w.get("waited") for w in watches], whole.get("total")
