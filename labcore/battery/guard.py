"""Calls into a system that nobody vouches for: what it raises, returns and does to its inputs, each with the call that did it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.battery.interfaces import AttentionClaims, View

Array = NDArray[Any]
BROKEN = ("raised", "hung", "died", "shape")  # nothing can be said of isolation
FINDINGS = ("nan", "mutated", "changed")  # isolation is broken


class Misbehaved(Exception):
    """kind: one of BROKEN or FINDINGS. call: the call that did it. text: what it did."""

    def __init__(self, kind: str, call: str, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.kind, self.call, self.text = kind, call, text


class NotApplicable(Exception):
    """The system cannot do what a check needs, and says so."""


class OutOfTime(BaseException):
    """Raised into a call that does not return. Not an Exception, so that a system's own handlers let it pass."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """OutOfTime after so many seconds, again every half second. Only in the main thread; elsewhere, or with 0, no limit."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Guard:
    """A system whose every call is recorded in `last` and judged, and stopped by OutOfTime after `seconds` (0: never).

    `Guard.ticks` counts begins and ends of all calls of the process, `Guard.newest` is the guard made last: a watcher sees a call
    that hangs.
    """

    ticks = 0
    newest: Guard | None = None

    def __init__(self, make: Callable[[], Any], seconds: float = 0.0) -> None:
        self.last: tuple[str, tuple[Any, ...]] = ("factory", ())
        self.seconds = seconds
        Guard.newest = self
        self.system: Any = self._judged(make)

    def has(self, name: str) -> bool:
        """Whether the system offers a method."""
        return callable(getattr(self.system, name, None))

    def call(self, name: str, *arguments: Any, expect: tuple[type[BaseException], ...] = ()) -> Any:
        """Call a method. Exceptions in `expect` pass; all others become Misbehaved."""
        self.last = (name, arguments)
        return self._judged(getattr(self.system, name), *arguments, expect=expect)

    def _judged(self, function: Callable[..., Any], *arguments: Any, expect: tuple[type[BaseException], ...] = ()) -> Any:
        Guard.ticks += 1
        try:
            if not self.seconds:
                return function(*arguments)
            with limit(self.seconds):
                return function(*arguments)
        except expect:
            raise
        except NotImplementedError as error:
            raise NotApplicable(f"{self.last[0]} refuses: {error}") from error
        except Exception as error:
            raise Misbehaved("raised", self.where(), f"{type(error).__name__}: {error}"[:300]) from error
        finally:
            Guard.ticks += 1

    def where(self) -> str:
        """The last call, as text."""
        name, arguments = self.last
        return f"{name}({', '.join(show(item) for item in arguments)})"

    def attend(self, claims: AttentionClaims, q: Array, k: Array, v: Array, view: View, nan: bool = False) -> Array:
        """The output [h, n, d] as float64, checked; see `attend_lse`."""
        return self.attend_lse(claims, q, k, v, view, nan)[0]

    def attend_lse(
        self, claims: AttentionClaims, q: Array, k: Array, v: Array, view: View, nan: bool = False
    ) -> tuple[Array, Array | None]:
        """Output and, where given, log of the sum of exponentials, as float64 copies. Inputs are cast to the claimed dtype.

        nan: NaN in the output is the caller's to judge.
        """
        with np.errstate(over="ignore"):
            given = [np.array(x, dtype=claims.dtype) for x in (q, k, v)]
        watched = [*given, view.allowed, view.query_positions, view.key_positions, view.query_owner, view.key_owner]
        before = [x.tobytes() for x in watched]
        with np.errstate(all="ignore"):
            raw = self.call("attend", *given, view)
        for name, array, octets in zip(("q", "k", "v", "view.allowed", *["view"] * 4), watched, before, strict=True):
            if array.tobytes() != octets:
                raise Misbehaved("mutated", self.where(), f"changed its input {name}")
        out, lse = raw if isinstance(raw, tuple) else (raw, None)
        return self.array(out, q.shape, nan), None if lse is None else self.array(lse, q.shape[:2], True)

    def array(self, value: Any, shape: tuple[int, ...] | None, nan: bool = False) -> Array:
        """A returned array as a float64 copy. shape None: any flat one that is not empty."""
        try:
            got = np.array(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise Misbehaved("shape", self.where(), f"gave {type(value).__name__}; wanted an array of numbers") from None
        if (shape is not None and got.shape != shape) or (shape is None and (got.ndim != 1 or not got.size)):
            wanted = list(shape) if shape is not None else "[w], not empty"
            raise Misbehaved("shape", self.where(), f"gave shape {list(got.shape)}; wanted {wanted}")
        if not nan and not np.isfinite(got).all():
            raise Misbehaved("nan", self.where(), f"{int((~np.isfinite(got)).sum())} of {got.size} numbers are NaN or infinite")
        return got


def show(item: Any) -> str:
    """An argument in a few characters."""
    if isinstance(item, np.ndarray):
        return f"{item.dtype}{list(item.shape)}"
    if isinstance(item, View):
        return f"view {item.kind} {list(item.allowed.shape)}"
    if isinstance(item, list | tuple) and item and not isinstance(item[0], int | float):
        return "[" + "; ".join(show(part) for part in item) + "]"
    text = str(item) if not isinstance(item, str) else repr(item)
    return text if len(text) <= 90 else text[:87] + "..."
