"""Child processes that end with their parent, even where it is killed (on Linux; elsewhere they run on)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial

PR_SET_PDEATHSIG = 1


def tied() -> Callable[[], None]:
    """What a child calls first (`preexec_fn`): it is killed when this process ends, and ends at once where this one has already."""
    with contextlib.suppress(OSError, AttributeError):
        return partial(_tie, ctypes.CDLL(None).prctl, os.getpid())
    return lambda: None


def _tie(prctl: Callable[[int, int], int], parent: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
