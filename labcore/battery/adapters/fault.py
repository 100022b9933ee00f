"""One public fault: its three variants, and the rules that see it for the right reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Make = Callable[[int], Any]


@dataclass(frozen=True)
class Seedless:
    """A factory for which the seed means nothing: kind(argument). Equal ones make equal systems."""

    kind: Callable[[Any], Any]
    argument: Any

    def __call__(self, seed: int) -> Any:
        return self.kind(self.argument)


@dataclass(frozen=True)
class Seeded:
    """A factory of systems whose weights follow from the seed: kind(argument, seed)."""

    kind: Callable[[Any, int], Any]
    argument: Any

    def __call__(self, seed: int) -> Any:
        return self.kind(self.argument, seed)


@dataclass(frozen=True)
class Fault:
    """faulty, correct, control: a fresh system from a seed. control: the faulty code where its trigger is out of reach, as its claims say.

    rules: those that look at what is wrong; at least one of them must fire on the faulty variant.
    """

    id: str
    title: str
    faulty: Make
    correct: Make
    control: Make
    rules: tuple[str, ...]

    def make(self, variant: str) -> Make:
        """The factory of "faulty", "correct" or "control"."""
        return {"faulty": self.faulty, "correct": self.correct, "control": self.control}[variant]
