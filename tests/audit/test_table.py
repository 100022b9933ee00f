"""results.csv: splitting into cells, their forms, and what the header must be."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.findings import Damaged, Findings
from audit.schema import check
from audit.table import boolean, header, integer, number, quote, read, split, text
from tests.audit import tiny

cells = st.text(st.sampled_from('ab,"\n\r é'), max_size=4)


@given(st.lists(st.lists(cells, min_size=2, max_size=4), min_size=1, max_size=4))
def test_what_is_written_reads_back(lines):
    data = "".join(",".join(map(quote, line)) + "\n" for line in lines).encode()
    assert split(data) == lines
    assert list(csv.reader(io.StringIO(data.decode(), newline=""))) == lines


@given(st.text(st.sampled_from('a,"\n'), max_size=9))
def test_any_text_is_split_or_refused(content):
    try:
        lines = split(content.encode())
    except Damaged as error:
        assert error.rule == "S115"
    else:
        assert "".join(",".join(map(quote, line)) + "\n" for line in lines) == content


@pytest.mark.parametrize("data", [b"", b"a", b"a,b\r\n", b'"a"\n', b'"a\n', b'a"b\n', b'"a"b\n', b'"a""\n', b"\xff\n", b'"a,"x\n'])
def test_refused(data):
    with pytest.raises(Damaged):
        split(data)


@pytest.mark.parametrize(
    "cell", ["", "1.0", "01", "-0", "+1", "1e3", " 1", "1_0", "9223372036854775808", "-9223372036854775809", "٣", "9" * 30]
)
def test_not_an_integer(cell):
    with pytest.raises(ValueError):
        integer(cell)


@pytest.mark.parametrize(
    "cell", ["", "1", "0.10", "1e3", "NaN", "Infinity", " 0.5", "0.1000000000000000055", "1_0.0", "0x1p3", "1.0" + "0" * 40]
)
def test_not_a_float(cell):
    with pytest.raises(ValueError):
        number(cell)


def test_cells_that_are_fine():
    assert [integer(cell) for cell in ("0", "-7", "9223372036854775807", "-9223372036854775808")] == [0, -7, 2**63 - 1, -(2**63)]
    assert [number(cell) for cell in ("0.1", "-0.0", "1e-300", "inf", "-inf")] == [0.1, 0.0, 1e-300, float("inf"), float("-inf")]
    assert (boolean("true"), boolean("false")) == (True, False)
    for cell in ("True", "1", ""):
        with pytest.raises(ValueError):
            boolean(cell)
    assert [text(value) for value in (True, 3, 0.5, "x")] == ["true", "3", "0.5", "x"]


def test_header_has_seed_first_and_each_group_sorted():
    columns = header(check(tiny.protocol()))
    assert columns == ["case", "block", "row", "seed", "flag", "kind", "scale", "size", "large", "bits_set", "gap", "nans", "peak", "third"]


def test_values_come_typed_by_block():
    evidence = tiny.evidence()
    findings = Findings()
    columns = read(evidence.csv(), check(evidence.protocol), findings)
    assert findings.kept == []
    assert set(columns) == {("main", name) for name in ("large", "bits_set", "gap", "nans", "third")} | {("scaled", "peak")}
    assert columns["scaled", "peak"] == [0.5, 1.5, 2.5, 3.5] and all(type(value) is bool for value in columns["main", "large"])


def test_a_cell_where_the_block_has_none_is_a_finding():
    evidence = tiny.evidence()
    evidence.lines[-1][evidence.column("gap")] = "0.5"
    findings = Findings()
    read(evidence.csv(), check(evidence.protocol), findings)
    assert [(item.rule, item.where) for item in findings.kept] == [("S115", "scaled/gap[3]")]
