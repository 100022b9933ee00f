"""The printed minimal cache and a right one, as plain lists, under the same short lists of commands."""

from __future__ import annotations

from typing import Any

from audit.pages import Refused, Stack

ALLOCATE, SHARED, FREED = 1, 2, 3
QUERIES = 3
PROBES = {
    "plain": "a1:7",
    "allocate_twice": "a1:7 a1:7",
    "share_into_allocated": "a1:7 a2:7 s1>2:7",
    "share_into_empty": "a1:7 a2:0 s1>2:7",
    "share_into_unknown": "a1:7 s1>2:7",
    "share_from_unknown": "a2:7 s1>2:7",
    "share_past_source": "a1:7 a2:13 s1>2:13",
    "share_part_of_block": "a1:7 a2:5 s1>2:5",
    "exhaust": "a1:40 a2:8",
    "free_source_first": "a1:7 a2:7 s1>2:7 f1 f2",
    "free_twice": "a1:7 f1 f1",
    "negative_tokens": "a1:-5",
}
NONE = [-1, -1, -1, -1]


def commands(probe: str) -> list[list[int]]:
    """[kind, request, other, tokens] of each command."""
    result = []
    for word in PROBES[probe].split():
        names, _, tokens = word[1:].partition(":")
        request, _, other = names.partition(">")
        kind = {"a": ALLOCATE, "s": SHARED, "f": FREED}[word[0]]
        result.append([kind, int(request), int(other or -1), int(tokens or 0)])
    return result


def examine(probe: str, cache: str, blocks: int, slots: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Arrays and counts of one case."""
    outcome = [-1] * 5
    pool = Stack(blocks)
    queue = list(range(blocks))  # the printed class takes from the front and gives back to the end
    tables: dict[int, list[int]] = {}
    length: dict[int, int] = {}
    shared: dict[int, int] = {}
    proper: dict[int, int] = {}  # lengths as a careful reader would have them
    wanted = shares = nonsense = 0
    for place, (kind, request, other, tokens) in enumerate(commands(probe)):
        before = (list(pool.counts), list(queue), list(pool.stack), {r: list(t) for r, t in tables.items()})
        try:
            if cache == "printed":
                printed(kind, request, other, tokens, pool.counts, queue, tables, slots)
            else:
                paged(kind, request, other, tokens, pool, tables, length, slots)
            outcome[place] = 0
        except (Refused, LookupError):
            outcome[place] = 1 if before == (pool.counts, queue, pool.stack, tables) else 2
        if outcome[place] == 0:
            if kind == ALLOCATE:
                length[request] = max(tokens, 0)
                wanted += max(tokens, 0)
            elif kind == SHARED:
                length[other] = shared[other] = tokens
                shares += 1
        nonsense += careless(kind, request, other, tokens, proper) and outcome[place] == 0
    held = [sum(table.count(block) for table in tables.values()) for block in range(blocks)]
    free = [(queue if cache == "printed" else pool.stack).count(block) for block in range(blocks)]
    shown = dict.fromkeys(("cells", "hidden_cells", "future_shown", "unwritten_shown", "foreign_shown", "unshared_shown"), 0)
    for request, table in tables.items():
        written = length.get(request, 0)
        for query in range(written - QUERIES, written) if written >= QUERIES else ():
            for key in range(len(table) * slots):
                visible = cache == "printed" or key <= query
                shown["cells"] += 1
                shown["hidden_cells"] += not visible
                shown["future_shown"] += visible and query < key < written
                shown["unwritten_shown"] += visible and key >= written
                shown["unshared_shown"] += visible and request in shared and key >= shared[request]
    stored = 0
    if cache == "paged":  # every open request's rows, shared ones once
        stored = len({(table[p // slots], p % slots) for r, table in tables.items() for p in range(length[r])})
    arrays = {
        "commands": (commands(probe) + [NONE] * 5)[:5],
        "outcome": outcome,
        "counts_after": list(pool.counts),
        "held_after": held,
        "free_after": free,
    }
    return arrays, {
        "lost": sum(1 for block in range(blocks) if held[block] == 0 and free[block] == 0),
        "inflated": sum(pool.counts[b] - held[b] for b in range(blocks) if held[b] and pool.counts[b] > held[b]),
        "half_done": outcome.count(2),
        "accepted_nonsense": nonsense,
        **shown,
        "rows_wanted": wanted,
        "rows_stored": stored,
        "shares": shares,
    }


def printed(kind: int, request: int, other: int, tokens: int, counts: list[int], queue: list[int], tables: Any, slots: int) -> None:
    """One call of the printed class; what it changed before an error stays."""
    pages = (tokens + slots - 1) // slots
    if kind == ALLOCATE:
        if pages > len(queue):
            raise Refused
        tables[request] = [queue.pop(0) for _ in range(pages)]
        for block in tables[request]:
            counts[block] = 1
    elif kind == SHARED:
        source, target = tables[request], tables[other]
        for page in range(pages):
            counts[source[page]] += 1
            target[page] = source[page]
    else:
        for block in tables[request]:
            counts[block] -= 1
            if counts[block] == 0:
                queue.append(block)
        del tables[request]


def paged(kind: int, request: int, other: int, tokens: int, pool: Stack, tables: Any, length: dict[int, int], slots: int) -> None:
    """One call of a pool that refuses what is not sound, before it changes anything."""
    if kind == ALLOCATE:
        if tokens < 0 or request in tables:
            raise Refused
        tables[request] = pool.take(-(-tokens // slots))
    elif kind == SHARED:
        if request not in tables or other in tables or not 0 <= tokens <= length[request]:
            raise Refused
        pages = tables[request][: -(-tokens // slots)]
        pool.share(pages)
        tables[other] = list(pages)
    else:
        pool.release(tables.pop(request) if request in tables else unknown())


def unknown() -> list[int]:
    """A request that is not open."""
    raise Refused


def careless(kind: int, request: int, other: int, tokens: int, proper: dict[int, int]) -> bool:
    """Whether a command should have been refused: an id in use, a negative length, an unknown request, a share over pages that are
    there or past what is written. Keeps `proper`, the lengths of open requests."""
    if kind == ALLOCATE:
        bad = request in proper or tokens < 0
        if not bad:
            proper[request] = tokens
        return bad
    if kind == SHARED:
        bad = request not in proper or proper.get(other, 0) > 0 or tokens > proper[request]
        if not bad:
            proper[other] = tokens
        return bad
    return proper.pop(request, None) is None
