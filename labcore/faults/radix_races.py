"""Two operations on one radix tree, step by step, without and with a lock, for `labcore.interleave`.

A step is what happens between two yields. Without the lock an operation may write what it read before another one wrote: a leaf is lost, or
an edge is cut at the wrong place and a sequence nobody stored can be reached. Control: the same operations one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from labcore.interleave import Actor

Path = tuple[int, ...]
OLD, BRANCH = (1, 2, 3, 4), (1, 2, 7)
NEW, DEEP = (1, 2, 8), (1, 2, 3, 9)
DEEPEST = 5


@dataclass
class Node:
    """edge from the parent; stored: a sequence ends here."""

    edge: Path = ()
    children: dict[int, Node] = field(default_factory=dict)
    stored: bool = False


@dataclass
class Tree:
    """The root, and who holds the lock."""

    root: Node = field(default_factory=Node)
    locked: bool = False


def reachable(node: Node, before: Path = (), depth: int = 0) -> Iterator[Path]:
    """All stored sequences that a walk finds; deeper than `DEEPEST` nodes the tree bites its tail, and -1 stands for what follows."""
    path = before + node.edge
    if depth > DEEPEST:
        yield (*path, -1)
        return
    if node.stored:
        yield path
    for child in node.children.values():
        yield from reachable(child, path, depth + 1)


def insert(tree: Tree, ids: Path) -> list[Callable[[], None]]:
    """Steps: find the edge to split, cut it, hang the new parent and the leaf."""
    memory: dict[str, Any] = {}

    def find() -> None:
        parent, rest = tree.root, ids
        while True:
            child = parent.children.get(rest[0])
            shared = (
                0 if child is None else next((i for i, (a, b) in enumerate(zip(child.edge, rest, strict=False)) if a != b), len(child.edge))
            )
            if child is None or shared < len(child.edge):
                break
            parent, rest = child, rest[shared:]
        memory.update(parent=parent, child=child, rest=rest, shared=shared, edge=child.edge if child else ())

    def cut() -> None:
        child, edge, shared = memory["child"], memory["edge"], memory["shared"]
        if child is not None:
            memory["middle"] = Node(edge[:shared], {edge[shared]: child})
            child.edge = edge[shared:]

    def hang() -> None:
        parent, rest, shared = memory["parent"], memory["rest"], memory["shared"]
        below = memory.get("middle", parent)
        if below is not parent:
            parent.children[rest[0]] = below
        below.children[rest[shared]] = Node(rest[shared:], stored=True)

    return [find, cut, hang]


def evict(tree: Tree, ids: Path) -> list[Callable[[], None]]:
    """Steps: find the leaf and its parent, unlink it, join the parent with an only child."""
    memory: dict[str, Any] = {}

    def find() -> None:
        above, parent, rest = tree.root, tree.root, ids
        node = parent.children.get(rest[0])
        while node is not None and len(node.edge) < len(rest):
            rest = rest[len(node.edge) :]
            above, parent, node = parent, node, node.children.get(rest[0])
        memory.update(above=above, parent=parent, node=node, first=rest[0])

    def unlink() -> None:
        if memory["node"] is not None and memory["node"].edge:
            memory["parent"].children.pop(memory["first"], None)

    def join() -> None:
        parent = memory["parent"]
        if parent is not tree.root and not parent.stored and len(parent.children) == 1:
            (child,) = parent.children.values()
            parent.edge, parent.children, parent.stored = parent.edge + child.edge, child.children, child.stored

    return [find, unlink, join]


PAIRS: dict[str, tuple[Sequence[tuple[str, Path]], frozenset[Path]]] = {
    "insert_insert": ((("insert", NEW), ("insert", DEEP)), frozenset({OLD, NEW, DEEP})),
    "insert_evict": ((("insert", NEW), ("evict", OLD)), frozenset({NEW})),
    "split_join": ((("insert", DEEP), ("evict", BRANCH)), frozenset({OLD, DEEP})),
}


def start(pair: str) -> Tree:
    """OLD is stored; for split_join BRANCH too, so that evicting it joins the edge that the insert splits."""
    tree = Tree()
    for step in insert(tree, OLD):
        step()
    if pair == "split_join":
        for step in insert(tree, BRANCH):
            step()
    return tree


def build(pair: str, locked: bool) -> tuple[Tree, list[Actor]]:
    """A fresh tree and the two operations as actors."""
    tree = start(pair)
    makers = {"insert": insert, "evict": evict}
    steps = [makers[kind](tree, ids) for kind, ids in PAIRS[pair][0]]
    return tree, [_actor(tree, one, locked) for one in steps]


def _actor(tree: Tree, steps: list[Callable[[], None]], locked: bool) -> Actor:
    if locked:
        yield lambda: not tree.locked
        tree.locked = True
    for place, step in enumerate(steps):
        if place:
            yield None
        step()
    if locked:
        tree.locked = False


def judge(pair: str, tree: Tree) -> tuple[bool, bool]:
    """(a sequence that should be there is lost, one that should not be there is reached)."""
    found, wanted = set(reachable(tree.root)), PAIRS[pair][1]
    return bool(wanted - found), bool(found - wanted)
