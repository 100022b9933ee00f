"""Canonical JSON and SHA-256, as evidence/FORMAT.md section 2 fixes them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from labcore.errors import Refused

CHUNK = 1 << 20
MAX_DEPTH = 64


def dumps(value: Any) -> bytes:
    """The canonical bytes of `value`.

    >>> dumps({"b": 1.0, "a": [True, "ä"]}).decode()
    '{\\n "a": [\\n  true,\\n  "ä"\\n ],\\n "b": 1.0\\n}\\n'
    """
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def line(value: Any) -> bytes:
    """One ledger line: canonical JSON without indent, with its line break."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def loads(data: bytes, where: str) -> Any:
    """Parse JSON strictly: no duplicate keys, no NaN, bounded depth. `where` names the file in the refusal."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise Refused(f"{where}: the key {twice!r} stands twice in one object; wanted once")
        return result

    def constant(name: str) -> Any:
        raise Refused(f"{where}: got the number {name}; JSON has finite numbers only")

    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise Refused(f"{where}: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise Refused(f"{where}: nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise Refused(f"{where}: not JSON ({error})") from None
    if _depth(value) > MAX_DEPTH:
        raise Refused(f"{where}: nested deeper than {MAX_DEPTH}")
    return value


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            break
        children: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        level = children
    return depth


def sha256(data: bytes) -> str:
    """SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
