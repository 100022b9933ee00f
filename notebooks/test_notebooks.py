"""The notebooks equal their paired text, hold no outputs, and run from top to bottom in a kernel: `make test-notebooks`."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pair
import pytest
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent


def test_every_text_has_its_notebook() -> None:
    assert [path.stem for path in pair.tours()] == sorted(path.stem for path in HERE.glob("*.ipynb"))
    assert len(pair.tours()) == 4


@pytest.mark.parametrize("text", pair.tours(), ids=lambda path: path.stem)
def test_pair_is_equal_and_the_notebook_runs(text: Path) -> None:
    path = text.with_suffix(".ipynb")
    assert path.read_text(encoding="utf-8") == pair.written(text), f"{path.name}: python notebooks/pair.py writes it from {text.name}"
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in notebook.cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs) or text.stem.startswith("4"), "a tour shows a figure"
