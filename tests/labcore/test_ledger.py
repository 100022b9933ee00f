"""Ledgers: a chain of hashes, whole under many writers, never extended where it is torn."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from labcore import canonical
from labcore.errors import Refused
from labcore.ledger import START, append, kept, read


def chain_is_whole(path: Path) -> bool:
    previous = START
    for n, line in enumerate(path.read_bytes().splitlines(keepends=True)):
        entry = canonical.loads(line, "x")
        if entry["n"] != n or entry["previous"] != previous or canonical.line(entry) != line:
            return False
        previous = canonical.sha256(line)
    return True


def write_many(path: Path, who: int) -> None:
    for n in range(40):
        append(path, "ran", f"{who:02d}_x", text="t" * (n * 97))


def test_many_writers_leave_one_whole_chain(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(path, who)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read(path)) == 160 and chain_is_whole(path)


def test_a_torn_ledger_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append(path, "ran", "06_x")
    torn = path.read_bytes() + b'{"half":'
    path.write_bytes(torn)
    with pytest.raises(Refused, match="torn"):
        append(path, "ran", "06_x")
    assert path.read_bytes() == torn


def test_a_line_that_cannot_be_written_whole_is_not_written() -> None:
    with pytest.raises(OSError):
        append(Path("/dev/full"), "ran", "06_x")


def test_the_last_kept_line_counts_unless_superseded(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    for event, run in (("kept", "a"), ("superseded", "a"), ("kept", "b")):
        append(path, event, "06_x", run)
    assert kept(read(path)) == {"06_x": "b"}
    append(path, "superseded", "06_x", "b")
    assert kept(read(path)) == {}
