"""The refusals that a command turns into one line and an exit code."""

from __future__ import annotations

GOOD, FINDING, REFUSED, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 3, 130


class Refused(Exception):
    """Input that is not accepted: says what was got, what is wanted and where (exit code 2)."""


class Environment(Exception):
    """The machine stands in the way: space, permission, a missing tool (exit code 3)."""


def printable(text: str) -> str:
    """One line that a terminal cannot be steered with: texts in an archive may come from anyone.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
