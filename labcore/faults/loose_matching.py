"""Faulty ways to answer "how much of this sequence is stored?" (the twin is any index of `labcore.matchers`).

`answer(fault, stored, query)` is a pure function: stored [(scope, ids)], query (scope, ids) -> tokens that would be reused. Control:
`answer("none", ...)`, which compares every id. All take ids of any size and refuse nothing, as code without checks would.
"""

from __future__ import annotations

from collections.abc import Sequence

Ids = Sequence[int]
Stored = Sequence[tuple[str, Ids]]
FAULTS = (
    "length_only",
    "sampled",
    "joined_text",
    "short_length",
    "rounded_up",
    "zero_is_padding",
    "empty_matches",
    "first_64",
    "last_token_lost",
    "no_scope",
    "low_byte",
    "one_per_first",
)
BLOCK, HEAD = 16, 64


def shared(a: Ids, b: Ids) -> int:
    """Leading ids in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def sample_places(length: int) -> list[int]:
    """The four places that sampled comparison looks at.

    >>> sample_places(19)
    [0, 4, 9, 14]
    """
    return [length * quarter // 4 for quarter in range(4)]


def edit_distance(a: Ids, b: Ids) -> int:
    """Insertions, deletions and substitutions that make a into b.

    >>> edit_distance([1, 2, 3, 4], [1, 3, 4, 5])
    2
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        left, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (x != y))
    return row[-1]


def answer(fault: str, stored: Stored, query: tuple[str, Ids]) -> int:
    """Tokens that a store with this fault would reuse; the longest over what is stored. ValueError for an unknown fault."""
    scope, ids = query
    mine = [other for owner, other in stored if owner == scope or fault == "no_scope"]
    if fault == "one_per_first":  # a later sequence with the same first id takes the place of an earlier one
        mine = list({other[0]: other for other in mine if len(other)}.values())
    if fault == "empty_matches" and not len(ids):
        return max(map(len, mine), default=0)
    return max((_one(fault, other, ids) for other in mine), default=0)


def _one(fault: str, other: Ids, ids: Ids) -> int:
    right = shared(other, ids)
    if fault in ("none", "no_scope", "one_per_first", "empty_matches"):
        return right
    if fault == "length_only":
        return len(other) if len(other) == len(ids) else right
    if fault == "sampled":  # a stored sequence that is no longer counts as a prefix if four places agree
        fits = 0 < len(other) <= len(ids) and all(other[at] == ids[at] for at in sample_places(len(other)))
        return len(other) if fits else right
    if fault == "joined_text":  # ids are written one behind the other, without a mark between them
        text, wanted = "".join(map(str, other)), "".join(map(str, ids))
        return len(other) if text and wanted.startswith(text) else right
    if fault == "short_length":  # the length is kept in one byte
        return right % 256
    if fault == "rounded_up":  # the last, partly agreeing block counts as a full one
        return min(-(-right // BLOCK) * BLOCK, len(other))
    if fault == "zero_is_padding":
        return shared([i for i in other if i], [i for i in ids if i])
    if fault == "first_64":  # what agrees so far is taken to agree to the end
        return len(other) if right >= HEAD and len(other) <= len(ids) else right
    if fault == "last_token_lost":  # a stored sequence asked for whole
        return right - 1 if right == len(other) == len(ids) and right else right
    if fault == "low_byte":
        return shared([i % 256 for i in other], [i % 256 for i in ids])
    raise ValueError(f"fault: got {fault!r}; wanted none, {', '.join(FAULTS)}")
