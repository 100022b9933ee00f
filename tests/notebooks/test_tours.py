"""The guided tours hold: run as plain scripts, their assertions are checked against the kept evidence; numbers in prose stand in one."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOURS = sorted((ROOT / "notebooks").glob("[0-9]_*.py"))
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?(?![\w])")


def prose(text: str) -> str:
    """All markdown cells of a paired text."""
    return "\n".join(cell for cell in text.split("# %%") if cell.startswith(" [markdown]"))


def asserted(text: str) -> str:
    """The source of all assertions."""
    return "\n".join(ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert))


@pytest.mark.parametrize("path", TOURS, ids=lambda path: path.stem)
def test_a_tour_runs_and_its_assertions_hold(path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, path], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("path", TOURS, ids=lambda path: path.stem)
def test_numbers_in_prose_are_asserted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    questions = re.sub(r"\(\w\)[^—\n]*", "", prose(text))  # the choices of a question are no findings
    missing = [number for number in NUMBER.findall(questions) if number not in asserted(text)]
    assert missing == []
    assert "Predict" in text and "## Change one thing" in text


def test_an_unasserted_number_is_noticed() -> None:
    text = "# %% [markdown]\n# It errs by 0.125.\n# %%\nassert True\n"
    assert [number for number in NUMBER.findall(prose(text)) if number not in asserted(text)] == ["0.125"]
