"""One style for all figures and a deterministic way to save them.

Colours mean the same everywhere: reference, correct, faulty, control. Each pairs with a marker and a line style, so that
a figure reads in black and white too. What has none of these meanings takes colours of MORE, ordered values `shades`. A figure is
one journal column wide, so that it reads there and on a phone; panels stand one above the other.
"""

from __future__ import annotations

import math
import textwrap
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
from labcore.workers import in_order, processors

# Okabe and Ito's palette: apart from each other in colour-blind eyes, and in grey by lightness.
COLOUR = {"reference": "#000000", "correct": "#0072B2", "faulty": "#D55E00", "control": "#999999"}
MORE = ["#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442"]
GUIDE = "#555555"  # thin lines and notes that are no data
MARKER = {"reference": "s", "correct": "o", "faulty": "X", "control": "^"}
LINE = {"reference": "-", "correct": "-", "faulty": "--", "control": ":"}
COLUMN_WIDTH = 3.5  # inches, one column of a journal
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}  # by kind: nothing that changes

STYLE: dict[Any, Any] = {
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "figure.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "legend.title_fontsize": 6.5,
    "lines.markersize": 4.0,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "kv-isolation-evidence",
    "figure.constrained_layout.use": True,
    "image.cmap": "cividis",
}


def panels(*heights: float, **options: Any) -> tuple[Figure, list[Any]]:
    """A figure one column wide and its panels from top to bottom; heights in inches, labels included (the headline takes from all)."""
    figure, axes = plt.subplots(len(heights), 1, figsize=(COLUMN_WIDTH, sum(heights)), height_ratios=heights, squeeze=False, **options)
    return figure, list(axes[:, 0])


def headline(figure: Figure, finding: str) -> None:
    """What the figure shows, as a sentence above it. It also goes into the files, for readers who cannot see the picture."""
    figure.suptitle("\n".join(textwrap.wrap(finding, 50)), x=0.01, ha="left")


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
    axis.axhline(floor, color=GUIDE, linewidth=0.6, zorder=0)
    look = {"ha": "right", "va": "top", "fontsize": 6, "color": GUIDE}
    axis.annotate("exactly 0", (1.0, floor), (0, -3), ("axes fraction", "data"), "offset points", **look)


def with_zero(values: list[float], floor: float = 1e-17) -> list[float]:
    """The values with exact zeros put on the marked line."""
    return [floor if v == 0 else v for v in values]


def built(run: Path, experiment_folder: Path) -> dict[str, Figure]:
    """All figures of a run, by name: what experiment_folder's figure.py gives with `draw(run: Sealed)`. To be called in `style()`."""
    figures: dict[str, Figure] = load(experiment_folder / "figure.py").draw(Sealed(run))
    return figures


def lay_out(figure: Figure) -> Figure:
    """The same figure, its layout worked out once: a second drawing would move the axes a little. To be called, and saved, in `style()`."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    return figure


def draw(run: Path, experiment_folder: Path, growing: Path) -> list[Path]:
    """Draw all figures of a run into `<run>/figures/`, svg and png, side by side; returns the paths, sorted.

    growing: a temporary folder on the run's disk, in which they grow: the run gets all of them, or none.
    """
    with style():
        figures = built(run, experiment_folder)
        for _ in in_order(lambda name: _save(lay_out(figures[name]), growing / name), sorted(figures), min(len(figures), processors())):
            pass
        for figure in figures.values():
            plt.close(figure)
    folder = run / "figures"
    folder.mkdir(exist_ok=True)
    kinds = (f"{name}.{kind}" for name in sorted(figures) for kind in METADATA)
    return sorted((growing / name).replace(folder / name) for name in kinds)


def _save(figure: Figure, path: Path) -> None:
    """Write one figure as svg and png, beside each other."""
    said = " ".join(figure.get_suptitle().split())
    for kind, metadata in METADATA.items():
        figure.savefig(f"{path}.{kind}", format=kind, metadata={**metadata, "Title": said})
