"""Strict JSON: what is refused, and the canonical bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.strictjson import NotJson, parse, write, write_line

REFUSED = {
    "twice the same key": b'{"a": 1, "a": 1}',
    "twice, one of them escaped": b'{"a": 1, "\\u0061": 1}',
    "NaN": b"[NaN]",
    "infinity": b"[-Infinity]",
    "too large for binary64": b"[1e999]",
    "byte-order mark": b"\xef\xbb\xbf{}",
    "not UTF-8": b'"\xff"',
    "half a surrogate pair": b'"\\ud800"',
    "too deep": b"[" * 65 + b"]" * 65,
    "far too deep": b"[" * 200_000,
    "deep after brackets in a text": b'["]]]]", ' + b"[" * 64 + b"]" * 65,
    "too deep after many shallow ones": b"[" + b"[]," * 70 + b"[" * 64 + b"]" * 65,
    "two values": b"1 2",
    "nothing": b"",
    "a trailing comma": b"[1,]",
    "a comment": b"[1] // one",
    "an integer of 5,000 digits": b"9" * 5000,
    "a control character": b'"\n"',
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_refused(data):
    with pytest.raises(NotJson):
        parse(data)


def test_depth_64_and_brackets_in_texts_are_fine():
    assert parse(b"[" * 64 + b"]" * 64)
    assert parse(b'["' + b"[" * 100 + b'"]') == ["[" * 100]
    assert parse(b'["\\"[[", "\\\\"]') == ['"[[', "\\"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_written_values_read_back_the_same(value):
    assert parse(write(value)) == value
    assert parse(write_line(value)) == value
    assert write_line(value).count(b"\n") == 1


def test_canonical_bytes_are_those_of_the_contract():
    value = {"b": [1, 2.0, True, None], "ä": "\u2028é\n", "a": {}}
    assert write(value) == (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
