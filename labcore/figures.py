"""One style for all figures and a deterministic way to save them.

Colours mean the same everywhere: reference, correct, faulty, control. Each pairs with a marker and a line style, so that
a figure reads in black and white too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation

from labcore.loading import load
from labcore.sealed import Sealed

# Okabe and Ito's palette: apart from each other in colour-blind eyes, and in grey by lightness.
COLOUR = {"reference": "#000000", "correct": "#0072B2", "faulty": "#D55E00", "control": "#999999"}
MORE = ["#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"]
MARKER = {"reference": "s", "correct": "o", "faulty": "X", "control": "^"}
LINE = {"reference": "-", "correct": "-", "faulty": "--", "control": ":"}
COLUMN_WIDTH = 3.5  # inches, one column of a journal
PAGE_WIDTH = 7.2

STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.0,
    "lines.markersize": 4.0,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "kv-isolation-evidence",
    "figure.constrained_layout.use": True,
    "image.cmap": "cividis",
}


def shades(count: int) -> list[str]:
    """Colours for values that have an order, dark to light, apart from the four that have a meaning.

    >>> shades(2)
    ['#00224e', '#dac65b']
    """
    return [to_hex(plt.get_cmap("cividis")(0.86 * place / max(1, count - 1))) for place in range(count)]


@contextmanager
def style() -> Iterator[None]:
    """The suite's settings, alone: the user's own matplotlibrc does not enter a figure."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


class AboveZeroLine(LogFormatterSciNotation):
    """Labels of powers of ten, none at or below the line that stands for zero."""

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor = floor

    def __call__(self, x: float, pos: int | None = None) -> str:
        return "" if x < 3 * self.floor else str(super().__call__(x, pos))


def zero_log_axis(axis: Any, values: list[float], floor: float = 1e-17) -> None:
    """Make y a logarithmic axis on which exact zeros stand on a marked line below the smallest decade.

    axis: a matplotlib Axes; values: what will be drawn; draw zeros at `floor` (see `with_zero`).
    """
    axis.set_yscale("log")
    top = max([v for v in values if v > 0], default=1.0)
    decades = math.log10(top * 5 / floor)
    axis.set_ylim(floor / 10 ** (decades / 9), top * 5)  # room for the line's label below it
    axis.yaxis.set_major_formatter(AboveZeroLine(floor))
    axis.axhline(floor, color="#999999", linewidth=0.6, zorder=0)
    look = {"ha": "right", "va": "top", "fontsize": 6, "color": "#555555"}
    axis.annotate("exactly 0", (1.0, floor), (0, -3), ("axes fraction", "data"), "offset points", **look)


def with_zero(values: list[float], floor: float = 1e-17) -> list[float]:
    """The values with exact zeros put on the marked line."""
    return [floor if v == 0 else v for v in values]


def draw(run: Path, experiment_folder: Path) -> list[Path]:
    """Draw all figures of a run into `<run>/figures/`, svg and png; returns the paths, sorted.

    experiment_folder holds figure.py with `draw(run: Sealed) -> dict[str, Figure]`.
    """
    module = load(experiment_folder / "figure.py")
    folder = run / "figures"
    folder.mkdir(exist_ok=True)
    paths = []
    with style():
        figures: dict[str, Figure] = module.draw(Sealed(run))
        for name, figure in sorted(figures.items()):
            for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
                path = folder / f"{name}.{kind}"
                part = path.with_suffix(f".{kind}.part")
                figure.savefig(part, format=kind, metadata=metadata)
                part.replace(path)
                paths.append(path)
            plt.close(figure)
    return sorted(paths)
