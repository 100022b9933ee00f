"""15_block_lifecycle: every log replayed, every interleaving run again, attention by loops; pools are plain lists here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from audit import lifetimes, printed, scenes
from audit.pages import Stack, attend
from audit.study import Derived, Study

SUM = (
    1e-12,
    "a softmax average of at most 21 rows of normal draws (below 7): scores are sums of 5 products, each off by less than 20 u, so "
    "weights by less than 1e-13, relative",
)
BOUNDS: dict[str, tuple[float, str]] = {
    f"{block}/{array}": SUM
    for block, arrays in {
        "placement": ("output", "alone", "output_a", "output_a_changed"),
        "forks": ("output", "alone", "first", "first_changed"),
        "lines": ("output", "output_changed", "alone"),
    }.items()
    for array in arrays
}
TIMED = "what real threads or processes did, or how long it took: not repeatable"
GIVEN: dict[str, str] = {
    f"{block}/{array}": TIMED
    for block, arrays in {
        "real_counter": ("missing", "owned_twice", "lost", "failed", "both_copied", "wrong_counts"),
        "real_rows": ("torn", "lost", "table_foreign"),
        "locks": ("held", "waited", "total"),
        "access": ("checked", "plain"),
    }.items()
    for array in arrays
}
ROW = (2, 2, 5)


def derive(study: Study) -> Iterator[Derived]:
    """Block by block."""
    inputs = {seed: draws(seed, study.settings) for seed in study.seeds}
    names = list(inputs[study.seeds[0]])
    yield Derived("inputs", None, {name: np.stack([inputs[seed][name] for seed in study.seeds]) for name in names})
    for block, one in (("placement", placement), ("forks", forks), ("lines", lines)):
        yield gathered(study, block, lambda case, one=one: one(case, inputs[case["seed"]], study.settings))  # type: ignore[misc]
    for block, other in (
        ("price", price), ("forged", forged), ("traces", traces), ("cycles", cycles), ("printed", printed_case), ("rights", rights),
        ("residue", residue), ("overlap", overlap), ("dying", dying), ("aborts", aborts),
    ):  # fmt: skip
        if block == "traces":
            yield from traced(study)
        else:
            yield gathered(study, block, lambda case, other=other: other(case, study.settings))  # type: ignore[misc]
    found = [scenes.flags(case["scenario"]) for case in study.rows("races")]
    offset = [0]
    for seen in found:
        offset.append(offset[-1] + len(seen))
    yield Derived("interleavings", None, {"offset": offset, "flags": [flag for seen in found for flag in seen]})
    yield Derived("races", None, counts=race_counts(found))


Case = dict[str, Any]
Result = tuple[dict[str, Any], dict[str, int], dict[str, bool]]


def gathered(study: Study, block: str, one: Callable[[Case], Result]) -> Derived:
    """The chosen rows of a block, each derived alone."""
    rows = study.chosen(block)
    results = [one(study.rows(block)[row]) for row in rows]
    arrays = {name: np.array([result[0][name] for result in results]) for name in results[0][0]}
    counts: dict[str, Sequence[int]] = {name: [int(result[1][name]) for result in results] for name in results[0][1]}
    decisions: dict[str, Sequence[bool]] = {name: [bool(result[2][name]) for result in results] for name in results[0][2]}
    return Derived(block, rows, arrays, decisions, counts)


def draws(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """The inputs, in the order of their drawing."""
    rng = np.random.default_rng(seed)
    a, b, step, blocks, size = (settings[name] for name in ("length_a", "length_b", "decode", "blocks", "block_size"))
    result = {}
    shapes: dict[str, tuple[int, ...]] = {
        "rows_a": (a, *ROW), "rows_b": (b, *ROW), "rows_b_changed": (b, *ROW), "residue": (blocks, size, *ROW), "query": (2, 4, 5),
        "branch": (2, step, *ROW), "branch_changed": (step, *ROW), "branch_query": (2, step, 4, 5), "edit": ROW,
    }  # fmt: skip
    for name, shape in shapes.items():
        result[name] = rng.standard_normal(shape)
    return result


# -- attention ------------------------------------------------------------------------------------------------------------------


def placement(case: Case, inputs: Any, settings: Any) -> Result:
    size, blocks = settings["block_size"], settings["blocks"]
    if case["layout"] == "adjacent":
        order = [0, 1, 2, 3, 4, 5, 6]
    elif case["layout"] == "interleaved":
        order = [0, 2, 4, 1, 3, 5, 6]
    elif case["layout"] == "reversed":
        order = [2, 1, 0, 6, 5, 4, 3]
    else:
        order = np.random.default_rng(case["seed"]).permutation(blocks).tolist()[:7]
    tables = [order[:3], order[3:]]
    used = tables if case["addressing"] == "table" else [[(table[0] + n) % blocks for n in range(len(table))] for table in tables]

    def read(rows_b: Any, who: int) -> list[Any]:
        content = {}
        for table, rows in zip(tables, (inputs["rows_a"], rows_b), strict=True):
            for position, row in enumerate(rows):
                content[table[position // size], position % size] = row
        got = []
        for position in range((settings["length_a"], settings["length_b"])[who]):
            place = used[who][position // size], position % size
            got.append(content[place] if place in content else inputs["residue"][place])
        return got

    query = inputs["query"]
    output = [attend(query[who], read(inputs["rows_b"], who)) for who in range(2)]
    arrays = {
        "pages": [[*tables[0], -1], tables[1]],
        "output": output,
        "alone": [attend(query[0], inputs["rows_a"]), attend(query[1], inputs["rows_b"])],
        "output_a": output[0],
        "output_a_changed": attend(query[0], read(inputs["rows_b_changed"], 0)),
    }
    foreign = sum(1 for who in range(2) for block in used[who] if block not in tables[who])
    return arrays, {"foreign_pages": foreign}, {}


def forks(case: Case, inputs: Any, settings: Any) -> Result:
    """Which cells two branches have in common: none, the cells of the prefix's blocks, or all."""
    prefix, size, policy = settings["length_a"], settings["fork_block_size"], case["policy"]
    room = -(-prefix // size) * size  # cells of the blocks that the prefix lies in

    def run(branches: Any, policy: str) -> tuple[Any, dict[Any, Any], list[int]]:
        cells: dict[Any, Any] = {}
        lengths = [prefix, prefix, prefix]

        def key(who: int, position: int) -> Any:
            common = policy == "same_table" or (policy == "in_place" and position < room)
            return position if common else (who, position)

        for position, row in enumerate(inputs["rows_a"]):
            for who in (-1, 0, 1, 2):
                cells[key(who, position)] = row
        output: list[list[Any]] = [[], []]
        for step in range(settings["decode"]):
            for who in (0, 1):
                end = max(lengths) if policy == "same_table" else lengths[who]
                cells[key(who, end)] = branches[who][step]
                lengths = [end + 1] * 3 if policy == "same_table" else [n + (w == who) for w, n in enumerate(lengths)]
                if (who, step) == (1, 1):
                    cells[key(1, prefix - 1)] = inputs["edit"]
                output[who].append(attend(inputs["branch_query"][who][step], [cells[key(who, n)] for n in range(lengths[who])]))
        return output, {n: cells[key(-1, n)] for n in range(prefix)}, lengths

    output, source, lengths = run(inputs["branch"], policy)
    changed, _, _ = run([inputs["branch"][0], inputs["branch_changed"]], policy)
    arrays = {
        "output": output,
        "alone": run(inputs["branch"], "on_write")[0],
        "first": output[0],
        "first_changed": changed[0],
        "source_before": inputs["rows_a"],
        "source_after": [source[n] for n in range(prefix)],
        "lengths": lengths,
    }
    pages, tail = -(-prefix // size), prefix % size
    copies = {"on_write": 2, "eager": 3 * pages}.get(policy, 0)
    return arrays, {"block_copies": copies, "copied_rows": {"on_write": 2 * tail, "eager": 3 * prefix}.get(policy, 0)}, {}


def lines(case: Case, inputs: Any, settings: Any) -> Result:
    pages = {"a": [4, 1, 6], "b": [2, 5]}

    def attended(rows_b: Any) -> list[tuple[Any, bool]]:
        """(row, whether it is B's) that A's last query attends to."""
        cell: dict[tuple[int, int], tuple[Any, str, int]] = {
            (block, slot): (inputs["residue"][block][slot], "", -1) for block in range(7) for slot in range(3)
        }
        for slot in range(3):
            cell[6, slot] = (rows_b[slot], "old b", -1)
        for name, rows, length in (("a", inputs["rows_a"], 7), ("b", rows_b, 5)):
            for position in range(length):
                cell[pages[name][position // 3], position % 3] = (rows[position], name, position)
        if case["fault"] == "sharer_ends" and not case["counted"]:
            for slot in range(3):
                cell[4, slot] = (rows_b[5 + slot], "b", 6 + slot)
        table = [4, 5, 6] if case["fault"] == "table_slip" else [4, 1, 6]
        if case["paged"]:
            wanted = [(block, slot) for block in table for slot in range(3)]
            if case["masked"]:
                wanted = wanted[: 8 if case["fault"] == "mask_slip" else 7]
        else:
            wanted = sorted(cell)
            if case["masked"]:
                slip = {(2, 0)} if case["fault"].startswith("mask_") else set()
                wanted = [at for at in wanted if (cell[at][1] == "a" and cell[at][2] < 7) or at in slip]
        return [(cell[at][0], cell[at][1] in ("b", "old b")) for at in wanted]

    query = inputs["query"][0]
    first, second = attended(inputs["rows_b"]), attended(inputs["rows_b_changed"])
    arrays = {
        "output": attend(query, [row for row, _ in first]),
        "output_changed": attend(query, [row for row, _ in second]),
        "alone": attend(query, inputs["rows_a"]),
    }
    return arrays, {"foreign_slots": sum(1 for _, theirs in second if theirs)}, {}


# -- counting -----------------------------------------------------------------------------------------------------------------------


def price(case: Case, settings: Any) -> Result:
    """Each sharer alone: a page of the prefix is copied at its first write, since the source goes on holding it."""
    want, size = settings["price"], case["block_size"]
    rng = np.random.default_rng(case["seed"] * 10_000 + case["edits_permille"])
    edits = (rng.random((want["sharers"], want["decode"])) < case["edits_permille"] / 1000).tolist()
    places = rng.integers(0, want["prefix"], (want["sharers"], want["decode"])).tolist()
    pages = -(-want["prefix"] // size)
    copies = rows = shared_appends = 0
    for sharer in range(want["sharers"]):
        mine: set[int] = set()
        length = want["prefix"]
        for step in range(want["decode"]):
            targets = [length // size]
            if edits[sharer][step]:
                targets.append(places[sharer][step] // size)
            for turn, page in enumerate(targets):
                if page < pages and page not in mine:
                    mine.add(page)
                    copies += 1
                    rows += min(size, length - page * size)
                    shared_appends += turn == 0
                if turn == 0:
                    length += 1
    sharers = want["sharers"]
    return {}, {
        "saved_rows": sharers * want["prefix"],
        "block_copies": copies,
        "copied_rows": rows,
        "copied_slots": copies * size,
        "appends": sharers * want["decode"],
        "shared_appends": shared_appends,
    }, {}  # fmt: skip


def forged(case: Case, settings: Any) -> Result:
    """The attacker is request 1, the victim 2. The attacker's first block goes to the victim; a third request holds block 1."""
    key = hashlib.sha256(b"key %d" % case["seed"]).digest()
    secret = [case["seed"] * 1000 + n for n in range(3)]

    def tag(*entry: int) -> bytes:
        return hmac.new(key, ",".join(map(str, entry)).encode(), hashlib.sha256).digest()[:16]

    own, victim, old = (1, 0, 2, 0), (2, 0, 0, 1), (1, 0, 0, 0)
    entry, seal = {
        "guessed_block": ((1, 0, 0, 1), tag(*own)),
        "foreign_page": ((1, 1, 0, 1), tag(*own)),
        "other_request": (victim, tag(*victim)),
        "stale": (old, tag(*old)),
        "forged_tag": ((1, 0, 0, 1), bytes(range(16))),
        "key_holder": (victim, tag(*victim)),
    }[case["attack"]]
    if case["entries"] == "raw":
        reads = entry[2] == 0  # whatever block is named is read; block 0 is the victim's
    else:
        who = 2 if case["attack"] == "key_holder" else 1
        live = entry in (victim, own)
        reads = seal == tag(*entry) and entry[0] == who and live
    arrays = {
        "secret": secret, "got": secret if reads else [-1, -1, -1], "entry": list(entry), "tag": list(seal), "key": list(key),
    }  # fmt: skip
    return arrays, {}, {"refused": not reads}


def traces(case: Case, settings: Any) -> tuple[list[list[int]], list[Any], int]:
    """Commands drawn again, the variant played again: (commands, events, refused)."""
    rng = np.random.default_rng(case["seed"])
    total, requests = settings["trace_commands"], settings["trace_requests"]
    kinds = rng.choice(4, total, p=[0.3, 0.3, 0.35, 0.05]).tolist()
    columns = [kinds, *(rng.integers(0, requests, total).tolist() for _ in range(2)), rng.integers(1, 6, total).tolist()]
    commands = [list(command) for command in zip(*columns, strict=True)]
    for request in range(requests):
        commands[total - requests + request] = [lifetimes.END, request, 0, 0]
    return commands, *lifetimes.play(case["variant"], commands, settings["trace_blocks"])


def traced(study: Study) -> Iterator[Derived]:
    """Events from the commands, and what follows from the *stored* events."""
    played = [traces(case, study.settings) for case in study.rows("traces")]
    longest = max(len(events) for _, events, _ in played)
    padded = [[*map(list, events), *[[-1] * 4] * (longest - len(events))] for _, events, _ in played]
    counts: dict[str, Any] = {"refused_commands": [refused for _, _, refused in played]}
    stored, when = study.read("traces", "events").tolist(), study.read("traces", "event_command").tolist()
    for row, (commands, _, _) in enumerate(played):
        log = [[at, *event] for at, event in zip(when[row], stored[row], strict=True) if at >= 0]
        for name, value in lifetimes.read_rights(log, commands, study.settings["trace_blocks"]).items():
            counts.setdefault(name, []).append(value)
    arrays = {
        "commands": [commands for commands, _, _ in played],
        "events": [[event[1:] for event in log] for log in padded],
        "event_command": [[event[0] for event in log] for log in padded],
    }
    yield Derived("traces", None, arrays, counts=counts)


def race_counts(found: list[list[int]]) -> dict[str, Sequence[int]]:
    """Orders by flag."""
    counts: dict[str, Sequence[int]] = {
        name: [sum(1 for flag in seen if flag & bit) for seen in found] for name, bit in scenes.BITS.items()
    }
    counts["all_orders"] = [len(seen) for seen in found]
    counts["harmful"] = [sum(1 for flag in seen if flag & scenes.HARM) for seen in found]
    return counts


def cycles(case: Case, settings: Any) -> Result:
    """What counting never frees is what a cycle refers to, directly or not: found from the closure of the references."""
    nodes, structure = settings["nodes"], case["structure"]
    rng = np.random.default_rng(case["seed"])
    refers = [[False] * nodes for _ in range(nodes)]
    for node in range(1, nodes):
        for _ in range(1 if structure == "tree" else 2):
            other = int(rng.integers(0, nodes if structure == "graph" else node))
            refers[node][other] = other != node
    reach = [list(row) for row in refers]
    for middle in range(nodes):
        for one in range(nodes):
            if reach[one][middle]:
                reach[one] = [a or b for a, b in zip(reach[one], reach[middle], strict=True)]
    left = [reach[n][n] or any(reach[m][m] and reach[m][n] for m in range(nodes)) for n in range(nodes)]
    numbers = {"links": sum(map(sum, refers)), "unreachable_counted": sum(left), "left_after_tracing": 0}
    return {"refers": np.array(refers, np.uint8), "left": np.array(left, np.uint8)}, numbers, {}


def printed_case(case: Case, settings: Any) -> Result:
    want = settings["printed"]
    return *printed.examine(case["probe"], case["cache"], want["blocks"], want["slots"]), {}


def rights(case: Case, settings: Any) -> Result:
    want, where = settings["rights"], case["flag"]
    rng = np.random.default_rng(case["seed"])
    shape = (want["requests"], want["pages"])
    pages = rng.integers(0, want["blocks"], shape).tolist()
    may = (rng.random(shape) < 0.5).tolist()
    attempts = list(zip(*(rng.integers(0, size, want["attempts"]).tolist() for size in shape), strict=True))
    entries = [(r, p) for r in range(shape[0]) for p in range(shape[1])]
    now = {(r, p): pages[r][p] for r, p in entries}
    counts = dict.fromkeys(("intended", "granted", "wrongly_refused", "wrongly_granted", "through_alias", "block_copies"), 0)
    for r, p in attempts:
        if where == "block":
            granted = all(may[x][y] for x, y in entries if pages[x][y] == pages[r][p])
        elif where == "request":
            granted = all(may[r])
        else:
            granted = may[r][p]
        counts["intended"] += may[r][p]
        counts["granted"] += granted
        counts["wrongly_refused"] += may[r][p] and not granted
        counts["wrongly_granted"] += granted and not may[r][p]
        aliases = [at for at in entries if at != (r, p) and now[at] == now[r, p]]
        if granted and aliases and where == "entry_and_copy":
            now[r, p] = 1000 + counts["block_copies"]
            counts["block_copies"] += 1
        elif granted and any(not may[x][y] for x, y in [*aliases, (r, p)]):
            counts["through_alias"] += 1
    counts["flag_bits"] = {"block": want["blocks"], "request": shape[0]}.get(where, shape[0] * shape[1])
    return {"pages": pages, "may_write": np.array(may, np.uint8), "attempts": attempts}, counts, {}


def residue(case: Case, settings: Any) -> Result:
    want = settings["residue"]
    size, pool = want["block_size"], Stack(want["blocks"])
    cells = [[0] * size for _ in range(want["blocks"])]
    old = pool.take(-(-want["former"] // size))
    for n in range(want["former"]):
        cells[old[n // size]][n % size] = 1001 + n
    pool.release(old)
    for block in old if case["clearing"] == "on_free" else ():
        cells[block] = [0] * size
    new = pool.take(-(-want["length"] // size))
    for block in new if case["clearing"] == "on_take" else ():
        cells[block] = [0] * size
    for n in range(want["length"]):
        cells[new[n // size]][n % size] = 2001 + n
    before = [list(block) for block in cells]
    for block in old if case["clearing"] == "late" else ():
        cells[block] = [0] * size
    most = len(new) * size if case["reading"] == "whole_blocks" else want["length"]
    read = [before[new[n // size]][n % size] for n in range(most)]
    counts = {
        "residue_read": sum(1 for tag in read if 1000 < tag < 2000),
        "own_read": sum(1 for tag in read if tag > 2000),
        "own_destroyed": sum(1 for n in range(want["length"]) if cells[new[n // size]][n % size] != 2001 + n),
    }
    return {"before": before, "after": cells}, counts, {}


def overlap(case: Case, settings: Any) -> Result:
    """Page n of the former prefix lies in block n; the last freed blocks are taken again first."""
    want = settings["overlap"]
    size = want["block_size"]
    pages = -(-want["former"] // size)
    retaken = set(range(pages - want["retaken"], pages))
    reused = leftover = foreign = 0
    for page in range(pages):
        whole = (page + 1) * size <= case["overlap"]
        begun = page * size < case["overlap"]
        if not (whole if case["matching"] == "whole_blocks" else begun) or (case["lookup"] == "dropped" and page in retaken):
            break
        for position in range(page * size, (page + 1) * size):
            if page in retaken:
                foreign += 1
            elif position < want["former"]:
                reused += position < case["overlap"]
                leftover += position >= case["overlap"]
    return {}, {"reused_rows": reused, "residue_read": leftover, "foreign_read": foreign}, {}


def dying(case: Case, settings: Any) -> Result:
    """What request 2 still refers to after its end, once the source has gone: blocks named by its table or its step."""
    size, prefix = settings["block_size"], settings["length_a"]
    shared = [("source", page) for page in range(-(-prefix // size))]
    table: list[Any] = []
    step: list[Any] = []
    for stage in range(case["stage"] + 1):
        if stage == 1:
            table = list(shared)
        elif stage == 2:  # four rows: the half-filled block is copied, and one more is taken
            table = [*shared[: prefix // size], *(("own", page) for page in range(prefix // size, -(-(prefix + 4) // size)))]
        elif stage == 3:
            table[0] = ("own", 0)
        elif stage == 4:  # two more rows
            table += [("own", page) for page in range(len(table), -(-(prefix + 6) // size))]
            step = list(table)
        elif stage == 6:
            step = []
        elif stage == 7:
            table = []
    if case["scope"] == "scoped":
        return {}, {"lost": 0}, {}
    if case["scope"] == "own_blocks":
        table = [block for block in table if block in shared]
    return {}, {"lost": len({*table, *step})}, {}


def aborts(case: Case, settings: Any) -> Result:
    """Two aborts, one after the other."""
    blocks, held = settings["abort"]["blocks"], settings["abort"]["held"]
    lost = held if (case["ending"], case["peer"]) == ("wait", "dead") else 0
    late = case["ending"] == "at_once" and case["peer"] == "alive"
    return {}, {
        "leaked": lost, "free": blocks - lost, "overwritten": 2 * late, "third_starts": blocks - 2 * lost >= held,
    }, {}  # fmt: skip
