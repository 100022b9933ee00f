"""A check: its permanent rule, the cases that it tries, one measurement of a case; and how a case that fires is made smaller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labcore.battery.guard import FINDINGS, Guard, Misbehaved, NotApplicable, OutOfTime

Case = dict[str, Any]
PATIENCE = 5  # cases of a check that may raise before it is given up
PASSED, FAILED, ERROR, NOT_APPLICABLE = "passed", "failed", "error", "not applicable"


@dataclass(frozen=True)
class Measured:
    """One case: it fires if value > threshold. text: what was seen, in words."""

    value: float
    threshold: float
    text: str = ""

    @property
    def fired(self) -> bool:
        return not self.value <= self.threshold


@dataclass(frozen=True)
class Check:
    """rule: permanent, a number is never used twice. interface: "attention", "cache" or "pool". title, reason: one line each.

    needs: methods that the system must have. applies(claims): "" or why the check asks nothing of this system. cases(lab, rng, effort):
    what to try, small first. measure(lab, case). least: smallest value of each number or length of each list in a case, for shrinking;
    what is not named stays.
    """

    rule: str
    interface: str
    title: str
    reason: str
    cases: Callable[[Any, np.random.Generator, int], Iterator[Case]]
    measure: Callable[[Any, Case], Measured]
    needs: tuple[str, ...] = ()
    applies: Callable[[Any], str] = lambda claims: ""
    least: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Result:
    """Outcome of one check. value, threshold: of the case that fired, else of the one with the largest value; NaN where nothing was
    measured.

    kind: of the misbehaviour, if there was one. case: the smallest one found that fires. call: the call that broke.
    """

    rule: str
    interface: str
    title: str
    reason: str
    status: str
    value: float = float("nan")
    threshold: float = float("nan")
    text: str = ""
    kind: str = ""
    call: str = ""
    case: Case = field(default_factory=dict)
    cases: int = 0
    seconds: float = 0.0


class Lab:
    """Fresh systems of one factory, and what several checks want to know of it."""

    def __init__(self, make: Callable[[], Any], claims: Any, seed: int, seconds: float = 0.0) -> None:
        self.make, self.claims, self.seed, self.seconds = make, claims, seed, seconds
        self.guard: Guard | None = None
        self.memory: dict[Any, Any] = {}
        self.seen: Callable[[], Measured] | None = None  # what the case that is being measured has shown so far

    def system(self) -> Guard:
        """A new system."""
        self.guard = None
        self.guard = Guard(self.make, self.seconds)
        return self.guard

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The value of `compute`, kept under the key."""
        if key not in self.memory:
            self.memory[key] = compute()
        return self.memory[key]


def perform(lab: Lab, check: Check, effort: int, shrink: float = 0.0, enough: float = 0.0) -> Result:
    """The cases of one check until one fires; then up to `shrink` seconds for a smaller case.

    enough: after so many seconds no further case is begun; 0: all are.
    """
    result = Result(check.rule, check.interface, check.title, check.reason, PASSED)
    start = time.monotonic()  # the battery's own limits, not a measurement of evidence
    rng = np.random.default_rng([lab.seed, int(check.rule[1:])])
    reason, broken = "", 0
    try:
        for case in check.cases(lab, rng, effort):
            if enough and result.cases and time.monotonic() - start > enough:
                break
            lab.seen = None
            try:
                measured = attempt(lab, check, case)
            except NotApplicable as error:
                reason = reason or str(error)
                continue
            except (Misbehaved, OutOfTime) as error:
                # A system that breaks after it has answered wrongly is found out by its answer.
                so_far = lab.seen() if lab.seen else None
                if so_far is None or not so_far.fired:
                    _blame(lab, result, error, case)
                    broken += 1
                    if result.status == FAILED or result.kind != "raised" or broken > PATIENCE:
                        break
                    continue  # another case may show more than that it raises
                measured = so_far
            result.cases += 1
            if measured.fired or (result.status == PASSED and not result.value >= measured.value):
                result.value, result.threshold, result.text = measured.value, measured.threshold, measured.text
            if measured.fired:
                result.status, result.case, result.kind, result.call = FAILED, case, "", ""
                break
    except NotApplicable as error:  # while cases were being made
        reason = reason or str(error)
    except (Misbehaved, OutOfTime) as error:
        _blame(lab, result, error, {})
    if result.status == FAILED and shrink:
        _shrink(lab, check, result, shrink)
    if result.status == PASSED and not result.cases:
        result.status, result.text = NOT_APPLICABLE, reason or "no case fits the claims"
    result.seconds = time.monotonic() - start
    return result


def attempt(lab: Lab, check: Check, case: Case) -> Measured:
    """One measurement. What a check cannot use of an answer (too few items, text for a number) is the system's misbehaviour."""
    try:
        return check.measure(lab, case)
    except (Misbehaved, NotApplicable):
        raise
    except Exception as error:
        where = lab.guard.where() if lab.guard else "factory()"
        raise Misbehaved("shape", where, f"gave an answer that cannot be used: {type(error).__name__}: {error}"[:300]) from error


def _blame(lab: Lab, result: Result, error: Misbehaved | OutOfTime, case: Case) -> None:
    if result.status == PASSED:
        result.case = case
    if isinstance(error, OutOfTime):
        where = lab.guard.where() if lab.guard else "factory()"
        result.status, result.kind, result.call, result.text = ERROR, "hung", where, f"no answer within {lab.seconds:g} s"
        return
    finding = error.kind in FINDINGS
    result.status, result.kind, result.call, result.text = FAILED if finding else ERROR, error.kind, error.call, error.text
    if finding:
        result.value, result.threshold = float("inf"), 0.0


def _shrink(lab: Lab, check: Check, result: Result, seconds: float) -> None:
    """Make the case smaller while it still fires, in the same way."""

    def measure(case: Case) -> Measured | Misbehaved | None:
        lab.seen = None
        try:
            measured = attempt(lab, check, case)
        except Misbehaved as error:
            so_far = lab.seen() if lab.seen else None
            if so_far is None or not so_far.fired:
                return error if error.kind == result.kind else None
            measured = so_far
        except (NotApplicable, OutOfTime):
            return None  # the smaller case makes no sense
        return measured if measured.fired and not result.kind else None

    stop = time.monotonic() + seconds
    smaller = True
    while smaller and time.monotonic() < stop:
        smaller = False
        for case in reductions(result.case, check.least):
            if time.monotonic() > stop:
                break
            seen = measure(case)
            if seen is not None:
                result.case, smaller = case, True
                result.text = seen.text
                if isinstance(seen, Measured):
                    result.value, result.threshold = seen.value, seen.threshold
                else:
                    result.call = seen.call
                break


def reductions(case: Case, least: Mapping[str, int]) -> Iterator[Case]:
    """Smaller cases, the boldest first: numbers towards their least, lists without a part.

    >>> [c["n"] for c in reductions({"n": 8, "seed": 3}, {"n": 1})]
    [1, 4, 7]
    >>> [c["ops"] for c in reductions({"ops": (1, 2, 3)}, {"ops": 1})]
    [(2, 3), (1, 3), (1, 2)]
    """
    for name, low in least.items():
        value = case.get(name)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int):
            seen: list[int] = []
            for smaller in (low, value // 2, value - 1):
                if low <= smaller < value and smaller not in seen:
                    seen.append(smaller)
                    yield {**case, name: smaller}
        elif isinstance(value, tuple):
            size = len(value) // 2 or 1
            while size:
                for begin in reversed(range(0, len(value), size)) if size > 1 else range(len(value)):
                    rest = value[:begin] + value[begin + size :]
                    if low <= len(rest) < len(value):
                        yield {**case, name: rest}
                size //= 2
