"""Rows of prefill tell whether a guessed prefix is cached (BR-25).

Faulty: one index for all. Twin: a salt per tenant. Control: the tenant itself, who must still hit.

Counts tokens, not time: what an observer of the time to the first token could at best learn.
"""

from __future__ import annotations

from labcore.matchers import Matcher


def prefill(index: Matcher, salt: str, ids: list[int]) -> int:
    """Tokens that must be computed for a request of a tenant."""
    return len(ids) - index.longest(salt, ids)


def auc(lower: list[int], higher: list[int]) -> float:
    """Probability that a value of `higher` exceeds one of `lower`, ties counted half: 0.5 tells nothing, 1.0 everything.

    >>> auc([0, 0], [16, 16]), auc([16], [16])
    (1.0, 0.5)
    """
    wins = sum((b > a) + 0.5 * (b == a) for a in lower for b in higher)
    return wins / (len(lower) * len(higher))


def probe(index: Matcher, salt: str, length: int, block: int, alphabet: int) -> tuple[list[int], int]:
    """Guess a stored sequence block by block: (what was found, probes). Each probe asks for one more block and looks at the rows."""
    found: list[int] = []
    probes = 0
    while len(found) < length:
        for guess in range(alphabet**block):
            digits = [guess // alphabet**place % alphabet for place in range(block)]
            probes += 1
            if prefill(index, salt, found + digits) == 0:
                found += digits
                break
        else:
            return found, probes
    return found, probes
