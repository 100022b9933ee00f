"""What the guided tours share: where kept runs lie, and how a prediction, a table and a figure are shown. No numbers are made here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from labcore.loading import load  # noqa: E402
from labcore.sealed import Sealed  # noqa: E402
from labcore.tables import show as cell  # noqa: E402
from labcore.tables import table  # noqa: E402
from labcore.workspace import Workspace  # noqa: E402


def kept(number: str) -> Sealed:
    """The kept run of an experiment, opened to read."""
    workspace = Workspace(ROOT)
    name = workspace.find(number)
    folder = workspace.kept(name)
    if folder is None:
        raise FileNotFoundError(f"{name}: no kept run here; wanted evidence/{name}/<run>")
    return Sealed(folder)


def experiment(number: str) -> Any:
    """The module experiments/NN_name/experiment.py: the very code that made the evidence."""
    return load(ROOT / "experiments" / Workspace(ROOT).find(number) / "experiment.py")


def rows(run: Sealed, block: str, columns: str, **where: Any) -> list[dict[str, Any]]:
    """Lines of results.csv as dictionaries: the named columns, where factors have the given values."""
    found = run.table(block)
    lines = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    wanted = [line for line in lines if all(line[name] == value for name, value in where.items())]
    return [{name: line[name] for name in columns.split()} for line in wanted]


def row(run: Sealed, block: str, columns: str = "row", **where: Any) -> dict[str, Any]:
    """The one line of results.csv that has these values."""
    found = rows(run, block, columns, **where)
    if len(found) != 1:
        raise LookupError(f"{block}: {len(found)} lines with {where}; wanted 1")
    return found[0]


def show(lines: list[dict[str, Any]]) -> None:
    """Print lines as an aligned table."""
    print(table(list(lines[0]), [list(line.values()) for line in lines]))


def answer(said: Any, measured: Any) -> None:
    """Print a prediction beside what was measured; `...` stands for no prediction yet."""
    print("You have not said anything yet." if said is ... else f"You said: {said}")
    print(f"It is:    {measured}")


def claim(run: Sealed, name: str) -> None:
    """Print what the auditor decided about a claim, by which numbers."""
    decided = run.audit["claims"][name]
    print(f"{name}: {decided['verdict']}, by the rule  {decided['rule']}")
    for key, value in decided["values"].items():
        print(f"  {key} = {cell(value)}")


def figure(run: Sealed, name: str) -> None:
    """Show a kept figure in a notebook; print its path elsewhere."""
    path = run.path / "figures" / f"{name}.png"
    if "ipykernel" in sys.modules:
        from IPython.display import Image, display

        display(Image(filename=str(path), width=560))
    else:
        print(path.relative_to(ROOT))
