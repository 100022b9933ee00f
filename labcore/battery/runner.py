"""Run all applicable checks on what a factory makes, in this process. `supervise` does it in a child process, which may be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from labcore.battery.attention_checks import CHECKS as ATTENTION
from labcore.battery.cache_checks import CHECKS as CACHE
from labcore.battery.check import ERROR, FAILED, NOT_APPLICABLE, PASSED, Check, Lab, Result, perform
from labcore.battery.guard import Guard, Misbehaved, NotApplicable, OutOfTime
from labcore.battery.interfaces import AttentionClaims, CacheClaims, PoolClaims
from labcore.battery.pool_checks import CHECKS as POOL

CHECKS: dict[str, Check] = {check.rule: check for check in (*ATTENTION, *CACHE, *POOL)}
ENTRY = {"attention": "attend", "cache": "start", "pool": "allocate"}
CLAIMS = {"attention": AttentionClaims, "cache": CacheClaims, "pool": PoolClaims}
ISOLATED, NOT_ISOLATED, NOT_TESTED = "isolated", "not isolated", "could not test"
QUICK, FULL = 4, 40  # effort: how many cases of each sort a check draws
QUICK_SECONDS, FULL_SECONDS = 4.0, 25.0  # in which all checks together end, on a system that answers in milliseconds
SECONDS = 20.0  # a call that takes longer hangs


@dataclass
class Report:
    """Results in the order of their rules."""

    results: list[Result] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """not isolated: a check failed. could not test: none failed, but one could not be done, or none applied. isolated: else."""
        statuses = {result.status for result in self.results}
        if FAILED in statuses:
            return NOT_ISOLATED
        return NOT_TESTED if ERROR in statuses or PASSED not in statuses else ISOLATED

    @property
    def code(self) -> int:
        """0 isolated, 1 not isolated, 2 could not test."""
        return (ISOLATED, NOT_ISOLATED, NOT_TESTED).index(self.verdict)

    def result(self, rule: str) -> Result:
        """The result of one rule."""
        return next(result for result in self.results if result.rule == rule)

    @property
    def fired(self) -> list[str]:
        """Rules that failed."""
        return [result.rule for result in self.results if result.status == FAILED]


def run(
    factory: Callable[[], Any],
    effort: int = QUICK,
    seed: int = 0,
    seconds: float = SECONDS,
    shrink: float = 1.0,
    only: Iterable[str] | None = None,
    total: float = 0.0,
) -> Report:
    """Test what `factory()` makes; each call must give a fresh system. only: rules. See `check.perform` for the rest.

    seconds: limit of one call. total: seconds that the checks share, so that a slow system is given fewer cases; each gets one at
    least. 0: no such limit.

    The time limits use a signal and hold only in the main thread.
    """
    return Report(list(results(factory, effort, seed, seconds, shrink, only, total)))


def results(
    factory: Callable[[], Any],
    effort: int = QUICK,
    seed: int = 0,
    seconds: float = SECONDS,
    shrink: float = 1.0,
    only: Iterable[str] | None = None,
    total: float = 0.0,
) -> Iterator[Result]:
    """The results of `run`, one at a time."""
    wanted = list(CHECKS) if only is None else list(only)
    chosen = [CHECKS[rule] for rule in wanted]
    try:
        system = Guard(factory, seconds)
    except (Misbehaved, NotApplicable, OutOfTime) as error:
        text = str(error) or f"no answer within {seconds:g} s"
        kind = "hung" if isinstance(error, OutOfTime) else "raised"
        yield from (Result(c.rule, c.interface, c.title, c.reason, ERROR, text=text, kind=kind, call="factory()") for c in chosen)
        return
    offered = getattr(system.system, "interfaces", tuple(ENTRY))
    labs = {
        name: Lab(factory, claims_of(system.system, CLAIMS[name]), seed, seconds)
        for name in ENTRY
        if name in offered and system.has(ENTRY[name])
    }
    reasons = {check.rule: inapplicable(check, system, labs) for check in chosen}
    left, spare = sum(not why for why in reasons.values()), total
    for check in chosen:
        if reasons[check.rule]:
            yield Result(check.rule, check.interface, check.title, check.reason, NOT_APPLICABLE, text=reasons[check.rule])
            continue
        # What quick checks leave over goes to the later ones.
        enough = max(spare / left, 1e-3) if total else 0.0
        result = perform(labs[check.interface], check, effort, shrink, enough)
        left, spare = left - 1, spare - result.seconds
        yield result


def inapplicable(check: Check, system: Guard, labs: dict[str, Lab]) -> str:
    """Why a check asks nothing of a system, or ""."""
    if check.interface not in labs:
        return f"no {ENTRY[check.interface]}()"
    missing = [name for name in check.needs if not system.has(name)]
    return f"no {', '.join(f'{name}()' for name in missing)}" if missing else check.applies(labs[check.interface].claims)


def claims_of(system: Any, kind: type[Any]) -> Any:
    """The system's claims of a kind: its attribute `claims`, one or several, else the defaults."""
    given = getattr(system, "claims", ())
    for item in given if isinstance(given, tuple | list) else (given,):
        if isinstance(item, kind):
            return item
    return kind()


def assert_isolated(factory: Callable[[], Any], **options: Any) -> None:
    """For pytest: AssertionError with the failed rules and their smallest cases, or with what could not be tested."""
    report = run(factory, **options)
    if report.code:
        bad = [r for r in report.results if r.status in (FAILED, ERROR)]
        lines = [f"{r.rule} {r.title}: {r.call + ': ' if r.call else ''}{r.text} {r.case or ''}".strip() for r in bad]
        raise AssertionError(f"{report.verdict}\n" + "\n".join(lines or ["no check applies"]))
