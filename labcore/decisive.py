"""Where a claim's numbers can be looked at: the figures that show the tables its measure reads, else those tables.

Read from the sources (the claim's SQL, `experiments/NN_name/figure.py`) without running them, so that nobody keeps a list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from labcore.protocol import Protocol


def shown(source: str, blocks: Iterable[str]) -> dict[str, set[str]]:
    """Figure -> blocks that figure.py reads for it (`run.table("x")`, `run.array(f"x_{y}", ...)`).

    A figure is drawn by the function of its name and what that calls; one without such a function, by `draw`.

    >>> text = "def draw(run):\\n  return {'one': one(run)}\\ndef one(run):\\n  return run.table('published')"
    >>> shown(text, ["published", "other"])
    {'draw': {'published'}, 'one': {'published'}}
    """
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}

    blocks = list(blocks)
    found: dict[str, set[str]] = {name: set() for name in functions}
    calls: dict[str, set[str]] = {name: set() for name in functions}
    for name, function in functions.items():
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("table", "array") and node.args:
                found[name] |= {block for block in blocks if re.fullmatch(_pattern(node.args[0]), block)}
            elif isinstance(node.func, ast.Name) and node.func.id in functions:
                calls[name].add(node.func.id)
    return {name: set().union(*(found[other] for other in _reached(name, calls))) for name in functions}


def _reached(name: str, calls: dict[str, set[str]]) -> set[str]:
    """A function and all that it calls, directly or not; each is looked at once, however they call each other."""
    reached, left = set(), [name]
    while left:
        if (one := left.pop()) not in reached:
            reached.add(one)
            left += calls[one]
    return reached


def _pattern(text: ast.expr) -> str:
    """What a text of the source may be: itself, or for an f-string anything where it has a value; nothing for other expressions."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return re.escape(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(_pattern(part) if isinstance(part, ast.Constant) else ".+" for part in text.values)
    return "(?!)"


def read_by(protocol: Protocol, claim: str) -> list[str]:
    """Blocks that a claim's measure reads, sorted; none for an open one."""
    measure = re.sub("'[^']*'", "", protocol.claims[claim].measure or "")  # a factor's value may be called as a block is
    return sorted(name for name in protocol.blocks if re.search(rf"\b{name}\b", measure))


def places(protocol: Protocol, source: str, figures: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Claim -> ("figure", name) of each figure that shows a block of its measure, else ("table", block) of each block.

    figures: the names of those that were drawn.
    """
    by_function = shown(source, protocol.blocks)
    drawn = {name: by_function.get(name, by_function.get("draw", set())) for name in figures}
    found = {}
    for claim in protocol.claims:
        tables = read_by(protocol, claim)
        found[claim] = [("figure", name) for name, blocks in sorted(drawn.items()) if blocks & set(tables)]
        found[claim] = found[claim] or [("table", name) for name in tables if protocol.blocks[name].rows == "csv"]
    return found
