"""Every hostile archive is refused with its own reason, in one line, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from labcore.errors import Refused
from labcore.verification import opened
from tests.hostile import make

LEAST = 40


@pytest.fixture(scope="module")
def cases(frozen: Any, tmp_path_factory: Any) -> list[make.Case]:
    return list(make.cases(frozen.path, tmp_path_factory.mktemp("hostile")))


def test_each_is_refused_with_its_own_reason(frozen: Any, cases: list[make.Case], tmp_path: Path) -> None:
    reasons: dict[str, str] = {}
    names = {case.name for case in cases}
    assert len(names) == len(cases) >= LEAST
    for case in cases:
        path = tmp_path / "x.tar"
        path.write_bytes(case.data)
        with pytest.raises(Refused) as caught, opened(frozen.workspace, path):
            pass
        text = str(caught.value)
        assert case.reason and case.reason in text, f"{case.name}: {text}"
        assert text.startswith("x.tar: ") and len(text.splitlines()) == 1 and text.isprintable(), f"{case.name}: {text!r}"
        assert reasons.setdefault(text, case.name) == case.name, f"{case.name} and {reasons[text]}: {text}"
        assert [item.name for item in tmp_path.iterdir()] == ["x.tar"], case.name
        assert not list((frozen.workspace.local / "archives").iterdir()), case.name


def test_the_command_gives_one_line_and_2(frozen: Any, cases: list[make.Case], tmp_path: Path) -> None:
    for name in ("parent-path", "hdf5-external-storage"):
        path = tmp_path / "x.tar"
        path.write_bytes(next(case.data for case in cases if case.name == name))
        done = frozen.project.call("verify", str(path))
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert done.stderr.startswith("REFUSED x.tar: ")


def test_special_files_are_refused(frozen: Any, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.tar")
    for path in (tmp_path / "pipe.tar", tmp_path, Path("/dev/zero")):
        with pytest.raises(Refused, match="not a regular file"), opened(frozen.workspace, path):
            pass


def test_the_good_archive_is_not_refused(frozen: Any) -> None:
    """Else every case above could pass for a wrong reason."""
    with opened(frozen.workspace, frozen.path) as checked:
        assert checked.verdict == "VERIFIED"
