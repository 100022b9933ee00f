"""Indexes of stored token sequences: how much of a new sequence has been seen before?

Five structures behind one contract, `Matcher`. All hold a multiset of (scope, ids) and answer with a number of tokens, never with a
guess: a hash only points to a place where the ids themselves are compared.

    WholeHash      one digest a sequence; finds whole stored sequences only
    BlockHash      one digest a full block, chained over what is before it; finds whole blocks
    Trie           one node a token; finds any prefix
    RadixTree      one node a branching; finds any prefix
    Dictionary     the specification: all sequences, compared one by one

Ids are packed as little-endian int32 (`pack`), so that comparing a segment is one comparison of bytes. `scope` is any non-empty
text; `identity` makes one of all conditions that enter a state.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

WIDTH = 4  # bytes of a packed id
LARGEST = 2**31 - 1


class Matcher(Protocol):
    """What every index of this module does.

    add, discard    mutate the index and nothing else; ids are copied (packed), so the caller may change its list afterwards.
    longest         mutates nothing; returns how many leading tokens of ids some stored sequence of the same scope shares, as far
                    as the structure can know (see `Matcher.grain`). 0 is a miss.
    Precondition of all three, checked before any change: scope a non-empty str; ids a non-empty flat sequence of integers from 0
    to 2**31 - 1, neither bool nor float nor str. TypeError or ValueError names what was got.
    """

    def add(self, scope: str, ids: Any) -> None:
        """Store one more copy of the sequence."""

    def discard(self, scope: str, ids: Any) -> bool:
        """Take one copy away; False, and nothing changes, if none is stored."""

    def longest(self, scope: str, ids: Any) -> int:
        """Tokens that may be reused."""

    def entries(self) -> int:
        """Nodes, blocks or sequences that the index holds: what its memory is proportional to."""


def identity(**fields: str | int | float | bool | None) -> str:
    """One text of all conditions, each tagged with its name and type, so that no two different sets read the same.

    >>> identity(adapter="x") == identity(salt="x")
    False
    """
    return json.dumps(sorted([name, type(value).__name__, value] for name, value in fields.items()), ensure_ascii=False, allow_nan=False)


def check_scope(scope: Any) -> str:
    """A non-empty str. TypeError or ValueError otherwise."""
    if not isinstance(scope, str):
        raise TypeError(f"scope: got {type(scope).__name__} {scope!r}; wanted a non-empty str")
    if not scope:
        raise ValueError("scope: got an empty str; wanted a non-empty one")
    return scope


def check_positive(name: str, value: Any) -> int:
    """A positive int, not a bool. TypeError or ValueError otherwise."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: got {type(value).__name__} {value!r}; wanted a positive integer")
    if value < 1:
        raise ValueError(f"{name}: got {value}; wanted a positive integer")
    return int(value)


def pack(ids: Any) -> bytes:
    """The ids as little-endian int32, four bytes each. Refuses before it converts.

    >>> pack([1, 258]).hex()
    '0100000002010000'
    >>> pack([1, True])
    Traceback (most recent call last):
    TypeError: ids[1]: got bool True; wanted an integer
    """
    if isinstance(ids, array):
        ids = np.frombuffer(ids, ids.typecode) if len(ids) else np.empty(0, np.int64)
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise TypeError(f"ids: got {ids.dtype} with {ids.ndim} dimensions; wanted integers with 1")
        if not ids.size:
            raise ValueError("ids: got none; wanted at least one")
        if ids.min() < 0 or ids.max() > LARGEST:
            raise ValueError(f"ids: got {ids.min()} to {ids.max()}; wanted 0 to {LARGEST}")
        return ids.astype("<i4").tobytes()
    if isinstance(ids, str | bytes | bytearray) or not isinstance(ids, Sequence):
        raise TypeError(f"ids: got {type(ids).__name__}; wanted a list, tuple or array of integers")
    if not ids:
        raise ValueError("ids: got none; wanted at least one")
    if set(map(type, ids)) != {int}:
        for place, value in enumerate(ids):
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
                raise TypeError(f"ids[{place}]: got {type(value).__name__} {value!r}; wanted an integer")
    try:
        packed = array("i", ids)
    except OverflowError:
        raise ValueError(f"ids: got {min(ids)} to {max(ids)}; wanted 0 to {LARGEST}") from None
    values = np.frombuffer(packed, np.int32)
    if values.min() < 0:
        raise ValueError(f"ids: got {values.min()}; wanted 0 to {LARGEST}")
    return values.astype("<i4", copy=False).tobytes()


def common(a: bytes, b: bytes) -> int:
    """Length in tokens of the longest common prefix of two packed sequences.

    >>> common(pack([1, 2, 3]), pack([1, 2, 4, 5]))
    2
    """
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size // WIDTH
    return int(np.argmax(np.frombuffer(a, "<i4", size // WIDTH) != np.frombuffer(b, "<i4", size // WIDTH)))


class Dictionary:
    """The specification: every stored sequence, compared with each question. Slow and plain."""

    def __init__(self) -> None:
        self.stored: Counter[tuple[str, bytes]] = Counter()

    def add(self, scope: str, ids: Any) -> None:
        self.stored[check_scope(scope), pack(ids)] += 1

    def discard(self, scope: str, ids: Any) -> bool:
        key = check_scope(scope), pack(ids)
        if not self.stored[key]:
            del self.stored[key]
            return False
        self.stored[key] -= 1
        if not self.stored[key]:
            del self.stored[key]
        return True

    def longest(self, scope: str, ids: Any) -> int:
        wanted, packed = check_scope(scope), pack(ids)
        return max((common(packed, other) for owner, other in self.stored if owner == wanted), default=0)

    def entries(self) -> int:
        return len(self.stored)


class WholeHash:
    """A table from the digest of a whole sequence to its ids. Finds the longest stored sequence that is a prefix of the question.

    One pass over the question: the digest is continued from one stored length to the next, so the cost is linear in its tokens.
    """

    def __init__(self) -> None:
        self.table: dict[bytes, tuple[str, bytes]] = {}
        self.copies: Counter[bytes] = Counter()
        self.lengths: dict[str, Counter[int]] = {}

    def _digest(self, scope: str, packed: bytes) -> bytes:
        state = _start(scope)
        state.update(packed)
        return bytes(state.digest())

    def add(self, scope: str, ids: Any) -> None:
        packed = pack(ids)
        key = self._digest(check_scope(scope), packed)
        self.table[key] = (scope, packed)
        self.copies[key] += 1
        self.lengths.setdefault(scope, Counter())[len(packed)] += 1

    def discard(self, scope: str, ids: Any) -> bool:
        packed = pack(ids)
        key = self._digest(check_scope(scope), packed)
        if self.table.get(key) != (scope, packed):
            return False
        self.copies[key] -= 1
        if not self.copies[key]:
            del self.copies[key], self.table[key]
        lengths = self.lengths[scope]
        lengths[len(packed)] -= 1
        if not lengths[len(packed)]:
            del lengths[len(packed)]
        if not lengths:
            del self.lengths[scope]
        return True

    def longest(self, scope: str, ids: Any) -> int:
        packed, best, at = pack(ids), 0, 0
        state = _start(check_scope(scope))
        for length in sorted(self.lengths.get(scope, ())):
            if length > len(packed):
                break
            state.update(packed[at:length])
            at = length
            if self.table.get(state.digest()) == (scope, packed[:length]):
                best = length
        return best // WIDTH

    def entries(self) -> int:
        return len(self.table)


class BlockHash:
    """A table of full blocks. A block's key is the digest of the key before it and its own ids, so that equal blocks behind different
    beginnings differ. `longest` walks until the first block that is not there; a last block that is not full is never stored.
    """

    def __init__(self, block: int) -> None:
        self.block = check_positive("block", block)
        self.table: dict[bytes, bytes] = {}  # key -> the key before and the packed ids of the block, one behind the other
        self.copies: Counter[bytes] = Counter()
        self.ends: Counter[tuple[bytes, bytes]] = Counter()  # (last key, ids behind it): which sequences are stored

    def chain(self, scope: str, packed: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(key, key before and block) of each full block in turn."""
        size = self.block * WIDTH
        key = _start(scope).digest()
        for at in range(0, len(packed) - size + 1, size):
            content = key + packed[at : at + size]
            key = hashlib.sha256(content).digest()
            yield key, content

    def _end(self, scope: str, packed: bytes, chain: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        last = chain[-1][0] if chain else _start(scope).digest()
        return last, packed[len(chain) * self.block * WIDTH :]

    def add(self, scope: str, ids: Any) -> None:
        packed = pack(ids)
        chain = list(self.chain(check_scope(scope), packed))
        for key, content in chain:
            self.table[key] = content
            self.copies[key] += 1
        self.ends[self._end(scope, packed, chain)] += 1

    def discard(self, scope: str, ids: Any) -> bool:
        packed = pack(ids)
        chain = list(self.chain(check_scope(scope), packed))
        end = self._end(scope, packed, chain)
        if end not in self.ends:
            return False
        for key, _ in chain:
            self.copies[key] -= 1
            if not self.copies[key]:
                del self.copies[key], self.table[key]
        self.ends[end] -= 1
        if not self.ends[end]:
            del self.ends[end]
        return True

    def longest(self, scope: str, ids: Any) -> int:
        blocks, table = 0, self.table
        for key, content in self.chain(check_scope(scope), pack(ids)):
            if table.get(key) != content:
                break
            blocks += 1
        return blocks * self.block

    def entries(self) -> int:
        return len(self.table)


class TrieNode:
    """children: next id -> node; passing: stored copies whose path goes through or ends here; ending: copies that end here."""

    __slots__ = ("children", "ending", "passing")

    def __init__(self) -> None:
        self.children: dict[int, TrieNode] = {}
        self.passing = self.ending = 0


class Trie:
    """One node a token."""

    def __init__(self) -> None:
        self.roots: dict[str, TrieNode] = {}

    def add(self, scope: str, ids: Any) -> None:
        packed = pack(ids)
        node = self.roots.setdefault(check_scope(scope), TrieNode())
        node.passing += 1
        for token in np.frombuffer(packed, "<i4").tolist():
            node = node.children.setdefault(token, TrieNode())
            node.passing += 1
        node.ending += 1

    def discard(self, scope: str, ids: Any) -> bool:
        tokens = np.frombuffer(pack(ids), "<i4").tolist()
        root = self.roots.get(check_scope(scope))
        path = [] if root is None else [root]
        for token in tokens:
            child = path[-1].children.get(token) if path else None
            if child is None:
                return False
            path.append(child)
        if not path or not path[-1].ending:
            return False
        path[-1].ending -= 1
        for node in path:
            node.passing -= 1
        for parent, token, node in zip(path, tokens, path[1:], strict=False):
            if not node.passing:  # nothing else goes this way: the whole rest leaves with it
                del parent.children[token]
                break
        if not path[0].passing:
            del self.roots[scope]
        return True

    def longest(self, scope: str, ids: Any) -> int:
        packed, depth = pack(ids), 0
        node = self.roots.get(check_scope(scope))
        if node is None:
            return 0
        for token in np.frombuffer(packed, "<i4").tolist():
            child = node.children.get(token)
            if child is None:
                break
            node, depth = child, depth + 1
        return depth

    def entries(self) -> int:
        count, stack = 0, list(self.roots.values())
        while stack:
            node = stack.pop()
            count += len(node.children)
            stack.extend(node.children.values())
        return count


class RadixNode:
    """edge: packed ids from the parent to here; children: first packed id of an edge -> node; ending: copies that end here."""

    __slots__ = ("children", "edge", "ending")

    def __init__(self, edge: bytes) -> None:
        self.edge = edge
        self.children: dict[bytes, RadixNode] = {}
        self.ending = 0


class RadixTree:
    """One node a branching: a chain of tokens without a choice is one edge. Inserting may split an edge, discarding may join two."""

    def __init__(self) -> None:
        self.roots: dict[str, RadixNode] = {}

    def add(self, scope: str, ids: Any) -> None:
        packed = pack(ids)
        node, at = self.roots.setdefault(check_scope(scope), RadixNode(b"")), 0
        while at < len(packed):
            first = packed[at : at + WIDTH]
            child = node.children.get(first)
            if child is None:
                child = node.children[first] = RadixNode(packed[at:])
            shared = common(child.edge, packed[at : at + len(child.edge)]) * WIDTH
            if shared < len(child.edge):
                child = node.children[first] = _split(child, shared)
            node, at = child, at + shared
        node.ending += 1

    def discard(self, scope: str, ids: Any) -> bool:
        packed, at = pack(ids), 0
        node = self.roots.get(check_scope(scope))
        path: list[RadixNode] = []
        while node is not None and packed.startswith(node.edge, at):
            path.append(node)
            at += len(node.edge)
            if at == len(packed):
                break
            node = node.children.get(packed[at : at + WIDTH])
        if not path or at != len(packed) or not path[-1].ending:
            return False
        last = path[-1]
        last.ending -= 1
        if not last.ending and not last.children:
            del path[-2].children[last.edge[:WIDTH]]
            path.pop()
        _join(path)
        if not self.roots[scope].children:
            del self.roots[scope]
        return True

    def longest(self, scope: str, ids: Any) -> int:
        packed, at = pack(ids), 0
        node = self.roots.get(check_scope(scope))
        while node is not None:
            child = node.children.get(packed[at : at + WIDTH])
            if child is None:
                break
            if not packed.startswith(child.edge, at):
                return at // WIDTH + common(child.edge, packed[at : at + len(child.edge)])
            at += len(child.edge)
            node = child
        return at // WIDTH

    def entries(self) -> int:
        count, stack = 0, list(self.roots.values())
        while stack:
            node = stack.pop()
            count += len(node.children)
            stack.extend(node.children.values())
        return count


def _split(node: RadixNode, at: int) -> RadixNode:
    """A new parent for the first `at` bytes of the node's edge; the node keeps the rest, its children and its copies."""
    parent = RadixNode(node.edge[:at])
    node.edge = node.edge[at:]
    parent.children[node.edge[:WIDTH]] = node
    return parent


def _join(path: list[RadixNode]) -> None:
    """Join the last node of a path from a root with its only child, if no sequence ends there and it is not the root."""
    node = path[-1]
    if len(path) > 1 and not node.ending and len(node.children) == 1:
        (child,) = node.children.values()
        node.edge, node.children, node.ending = node.edge + child.edge, child.children, child.ending


def _start(scope: str) -> Any:
    """SHA-256 begun with the scope, its length in front so that no scope runs into the ids."""
    data = scope.encode()
    return hashlib.sha256(len(data).to_bytes(8, "little") + data)


def make(name: str, block: int = 16) -> Matcher:
    """A new index by name: dictionary, whole_hash, block_hash, trie or radix. ValueError for another.

    >>> index = make("block_hash", 2)
    >>> index.add("owner", [1, 2, 3, 4, 5])
    >>> index.longest("owner", [1, 2, 3, 9])
    2
    """
    if name == "block_hash":
        return BlockHash(block)
    kinds: dict[str, Callable[[], Matcher]] = {"dictionary": Dictionary, "whole_hash": WholeHash, "trie": Trie, "radix": RadixTree}
    if name not in kinds:
        raise ValueError(f"matcher: got {name!r}; wanted block_hash, {', '.join(sorted(kinds))}")
    return kinds[name]()
