"""Strict JSON (FORMAT 2): parse without duplicate keys, non-finite numbers or absurd depth; write the canonical bytes."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


class NotJson(ValueError):
    """Text that section 2 does not allow; the message says what is wrong."""


def parse(data: bytes) -> Any:
    """The value that `data` holds.

    >>> parse(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise NotJson("starts with a byte-order mark")
    if _deepest(text) > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH}")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
        text_of_all(value)
    except UnicodeEncodeError:
        raise NotJson("a text holds half of a surrogate pair") from None
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(str(error)) from None
    return value


def write(value: Any) -> bytes:
    """The canonical bytes of a value.

    >>> write({"b": 1, "a": []})
    b'{\\n "a": [],\\n "b": 1\\n}\\n'
    """
    return (text_of(value) + "\n").encode()


def write_line(value: Any) -> bytes:
    """The canonical bytes of one ledger line.

    >>> write_line({"b": 1, "a": []})
    b'{"a":[],"b":1}\\n'
    """
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")) + "\n").encode()


def text_of(value: Any) -> str:
    """Canonical text without the line break at the end."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=1)


def text_of_all(value: Any) -> None:
    """Raise UnicodeEncodeError where some text cannot be written as UTF-8."""
    json.dumps(value, ensure_ascii=False).encode()


def _deepest(text: str) -> int:
    """The deepest nesting, counted on the text, so that no parser recurses before it is known."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise NotJson(f"the key {key!r} stands twice in one object")
        result[key] = value
    return result


def _constant(name: str) -> float:
    raise NotJson(f"the number {name} is not finite")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJson(f"the number {text} is not finite as binary64")
    return value
