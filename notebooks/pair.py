"""Write the notebooks from their paired text, without outputs: `python notebooks/pair.py [--check]`.

Outputs stay out of the committed notebooks: they would answer before the reader has predicted, and hide a change in a wall of JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat

HERE = Path(__file__).resolve().parent


def tours() -> list[Path]:
    """The paired texts, in order."""
    return sorted(HERE.glob("[0-9]_*.py"))


def notebook(text: Path) -> Any:
    """The notebook of a paired text: no outputs, cells named by their place."""
    made = jupytext.read(text)
    made.metadata = {"jupytext": {"formats": "ipynb,py:percent"}, "kernelspec": made.metadata["kernelspec"]}
    made.nbformat, made.nbformat_minor = 4, 5
    for place, cell in enumerate(made.cells):
        cell["id"] = f"cell-{place:02}"
        cell["source"] = cell["source"].strip("\n")  # the text's blank lines between cells belong to neither
    return made


def written(text: Path) -> str:
    """The bytes of that notebook, as text."""
    return nbformat.writes(notebook(text), version=nbformat.NO_CONVERT) + "\n"


def current(text: Path) -> str:
    """The committed notebook's text, "" where there is none."""
    path = text.with_suffix(".ipynb")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main() -> int:
    """Write all, or compare; exit code 1 names the pair that differs."""
    differing = [text for text in tours() if current(text) != written(text)]
    if "--check" in sys.argv:
        for text in differing:
            print(f"{text.name} and {text.stem}.ipynb differ; python notebooks/pair.py writes the notebook from the text")
        return bool(differing)
    for text in differing:
        text.with_suffix(".ipynb").write_text(written(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
