"""Requests that open, share and end blocks: each variant played again from the commands, and any log replayed for who could read what."""

from __future__ import annotations

from collections.abc import Sequence

from audit.pages import Refused, Stack

TAKE, HOLD, DROP, FREE = 1, 2, 3, 4
OPEN, SHARE, END, FAIL = 0, 1, 2, 3
Event = tuple[int, int, int, int]


def play(variant: str, commands: Sequence[Sequence[int]], total: int) -> tuple[list[Event], int]:
    """Events and number of refused commands of a variant."""
    pool = Stack(total)
    tables: dict[int, list[int]] = {}
    events: list[Event] = []
    refused = 0
    for number, (kind, request, source, size) in enumerate(commands):
        note = events.append
        try:
            if kind in (OPEN, FAIL) and not (kind == OPEN and request in tables):
                ids = pool.take(size)
                for block in ids:
                    note((number, TAKE, request, block))
                if kind == OPEN:
                    tables[request] = ids
                    for block in ids:
                        note((number, HOLD, request, block))
                elif variant != "lost_on_error":
                    for block in given(variant, pool, ids):
                        note((number, FREE, request, block))
            elif kind == SHARE and source in tables and request not in tables:
                ids = tables[source][:size]
                for _ in range({"never_counted": 0, "counted_twice": 2}.get(variant, 1)):
                    pool.share(ids)
                tables[request] = list(ids)
                for block in ids:
                    note((number, HOLD, request, block))
            elif kind == END and request in tables:
                ids = tables.pop(request)
                for block in ids:
                    note((number, DROP, request, block))
                for block in given(variant, pool, ids):
                    note((number, FREE, request, block))
                last = ids[-1]
                if variant == "freed_twice" and pool.counts[last] == 0 and len(pool.stack) < total:
                    pool.stack.append(last)
                    note((number, FREE, request, last))
            else:
                refused += 1
        except Refused:
            refused += 1
    return events, refused


def given(variant: str, pool: Stack, ids: list[int]) -> list[int]:
    """Give blocks back in the variant's way; those that became free."""
    if variant == "freed_at_first_end":
        gone = []
        for block in ids:
            while pool.counts[block] > 0:
                gone += pool.release([block])
        return gone
    if variant == "never_counted":
        return [gone for block in ids if pool.counts[block] > 0 for gone in pool.release([block])]
    return pool.release(ids)


def read_rights(events: Sequence[Sequence[int]], commands: Sequence[Sequence[int]], total: int) -> dict[str, int]:
    """Replay of a log: frees of a block that a table names, second frees, blocks handed out while a table names them, blocks lost at
    the end, and `stale`: after each command, the table entries whose block was handed out again since its owner got it."""
    free = [1] * total
    life = [0] * total  # how often a block was handed out
    tables: dict[int, list[tuple[int, int]]] = {}  # request -> (block, life of it that the request may read)
    early = twice = owned = stale = place = 0
    for number, (command, _, source, _) in enumerate(commands):
        while place < len(events) and events[place][0] == number:
            _, kind, request, block = events[place]
            named = any(block == b for table in tables.values() for b, _ in table)
            if kind == TAKE:
                owned += named
                free[block] -= 1
                life[block] += 1
            elif kind == HOLD:
                table = tables.setdefault(request, [])
                table.append((block, tables[source][len(table)][1] if command == SHARE else life[block]))
            elif kind == DROP:
                table = tables[request]
                table.remove(next(entry for entry in table if entry[0] == block))
                if not table:
                    del tables[request]
            else:
                early += named
                twice += free[block] > 0
                free[block] += 1
            place += 1
        stale += sum(1 for table in tables.values() for block, made in table if life[block] != made)
    held = {block for table in tables.values() for block, _ in table}
    lost = sum(1 for block in range(total) if free[block] < 1 and block not in held)
    return {"freed_early": early, "freed_twice": twice, "owned_twice": owned, "lost": lost, "stale": stale}
