"""Work in forked processes: the order, what is raised, the bound, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from labcore.workers import FEW, in_order

ROOT = Path(__file__).resolve().parents[2]


def squared(values: np.ndarray) -> np.ndarray:
    return values**2


@pytest.mark.parametrize("workers", [None, 0, 1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, FEW, FEW + 1, 40])
def test_results_come_in_order_whatever_the_number_of_workers(workers: int | None, count: int) -> None:
    items = [np.arange(place, place + 3) for place in range(count)]
    assert [got.tolist() for got in in_order(squared, items, workers)] == [(item**2).tolist() for item in items]


def test_another_process_does_the_work_where_it_is_much_and_none_where_it_is_little() -> None:
    assert set(in_order(lambda _: os.getpid(), range(FEW))) == {os.getpid()}
    assert os.getpid() not in set(in_order(lambda _: os.getpid(), range(20), workers=2))


def test_what_work_raises_is_raised_after_the_results_before_it() -> None:
    made = in_order(lambda n: 1 // (5 - n), range(9), workers=2)
    assert [next(made) for _ in range(5)] == [0, 0, 0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(made)


def test_a_killed_worker_is_an_error_and_not_an_end() -> None:
    def work(n: int) -> int:
        if n == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    with pytest.raises(MemoryError, match="exit code -9"):
        list(in_order(work, range(9), workers=2))


def test_no_worker_runs_ahead_and_none_is_left(tmp_path: Path) -> None:
    def work(n: int) -> bytes:
        (tmp_path / str(n)).touch()
        return bytes(1 << 20)

    made = in_order(work, range(64), workers=2)
    for _ in range(4):
        next(made)
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) <= 4 + 2 * 2
    made.close()  # type: ignore[attr-defined]
    done = len(list(tmp_path.iterdir()))
    time.sleep(0.2)
    assert len(list(tmp_path.iterdir())) == done
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib, os; from labcore.workers import in_order\n"
        "def work(n):\n    pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(0.05); return n\n"
        "for _ in in_order(work, range(10000), workers=2): pass"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    while any(_runs(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_runs(pid) for pid in workers)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
