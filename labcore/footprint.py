"""Bytes of a whole Python structure: every object that it reaches, once. Of one interpreter on one machine; compare as ratios only."""

from __future__ import annotations

import sys
from typing import Any


def footprint(root: Any) -> int:
    """Bytes of root and of all that its attributes, slots, keys, values and items reach. Types and functions are not counted.

    >>> both = [1] * 7
    >>> footprint([both, both]) - footprint([both]) == sys.getsizeof([0, 0]) - sys.getsizeof([0])
    True
    """
    seen: set[int] = set()
    stack, total = [root], 0
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type) or callable(item):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        if isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(item)
        if hasattr(item, "__dict__"):
            stack.append(vars(item))
        for kind in type(item).__mro__:
            names = kind.__dict__.get("__slots__", ())
            stack.extend(getattr(item, name) for name in ([names] if isinstance(names, str) else names) if hasattr(item, name))
    return total
