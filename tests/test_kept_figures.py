"""Every kept figure is what its figure.py draws from the sealed run today (one that lacks an artist is not), and readable in a column."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import Collection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from labcore.figures import COLUMN_WIDTH, built, lay_out, style

ROOT = Path(__file__).resolve().parents[1]
KEPT = sorted(path.parents[1] for path in ROOT.glob("evidence/[0-9][0-9]_*/*/sealed/manifest.json"))
LEVELS = 64 / 255  # edges of letters and lines differ by less between versions of the rasteriser
PIXELS = 20  # so many may differ by more; the smallest mark covers some fifty
POINTS = 6  # the smallest text: 5.4 points where a column is 8 cm wide


def image(png: Any) -> np.ndarray:
    """Levels [y, x, colour] of a PNG file."""
    return np.asarray(plt.imread(png, format="png"))[..., :3]


def rendered(figure: Any) -> np.ndarray:
    """A figure as its PNG would be."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    buffer.seek(0)
    return image(buffer)


def differing(one: np.ndarray, two: np.ndarray) -> float:
    """How many pixels differ by more than LEVELS; infinity for another size."""
    return float((np.abs(one - two).max(axis=2) > LEVELS).sum()) if one.shape == two.shape else np.inf


def labels(figure: Any) -> list[tuple[Text, Any]]:
    """All texts that a figure shows, with their extents in pixels of the saved file."""
    figure.set_dpi(plt.rcParams["savefig.dpi"])
    figure.canvas.draw()
    shown = set()
    for axis in figure.axes:
        ticks = [tick for side in (axis.xaxis, axis.yaxis) for tick in (*side.get_major_ticks(), *side.get_minor_ticks())]
        inside = [tick for side in (axis.xaxis, axis.yaxis) if axis.axison for tick in side._update_ticks()]  # the others are not drawn
        shown |= {id(label) for tick in ticks if tick not in inside for label in (tick.label1, tick.label2)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and id(text) not in shown]
    return [(text, Text.get_window_extent(text)) for text in texts]


def unreadable(figure: Any) -> list[str]:
    """What is wrong with a figure's texts where it stands in a journal's column: too wide, too small, cut off, one over another."""
    wrong = [] if figure.get_suptitle() else ["no headline"]
    if figure.get_figwidth() > COLUMN_WIDTH + 1e-9:
        wrong.append(f"{figure.get_figwidth():.2f} inches wide")
    found = labels(figure)
    width, height = figure.canvas.get_width_height()
    for place, (text, box) in enumerate(found):
        if text.get_fontsize() < POINTS:
            wrong.append(f"{text.get_text()!r} has {text.get_fontsize()} points")
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1:
            wrong.append(f"{text.get_text()!r} is cut off")
        for other, beside in found[place + 1 :]:
            across = min(box.x1, beside.x1) - max(box.x0, beside.x0) > 1 and min(box.y1, beside.y1) - max(box.y0, beside.y0) > 3
            if across and not any(one.get_rotation() % 90 for one in (text, other)):  # a slanted text is smaller than its box
                wrong.append(f"{text.get_text()!r} lies over {other.get_text()!r}")
    return wrong


def artists(figure: Any) -> list[Any]:
    """What was drawn on the axes: lines, bars, areas, images and texts that can be seen."""
    kinds = (Line2D, Collection, AxesImage, Rectangle, Text)
    found = []
    for axis in figure.axes:
        drawn = [artist for artist in axis.get_children() if isinstance(artist, kinds) and artist not in (axis.patch, axis.title)]
        found += [a for a in drawn if a.get_visible() and not (isinstance(a, Text) and not a.get_text().strip())]
    return found


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.parent.name)
def test_kept_figures_are_drawn_from_the_sealed_run(run: Path) -> None:
    with style():
        figures = built(run, ROOT / "experiments" / run.parent.name)
        assert sorted(figures) == sorted(path.stem for path in (run / "figures").glob("*.png"))
        for name, figure in figures.items():
            found = differing(rendered(lay_out(figure)), image(run / "figures" / f"{name}.png"))
            assert found <= PIXELS, f"{name}: {found} pixels differ; python -m labcore figure {run.parent.name[:2]} draws it again"
            assert unreadable(figure) == [], name
            plt.close(figure)


def test_a_missing_artist_is_noticed() -> None:
    run = next(run for run in KEPT if run.parent.name == "06_stale_prefix")
    with style():
        for name, figure in built(run, ROOT / "experiments" / run.parent.name).items():
            lay_out(figure)
            whole = image(run / "figures" / f"{name}.png")
            every = artists(figure)
            for artist in every[:: max(1, len(every) // 4)]:
                artist.set_visible(False)
                assert differing(rendered(figure), whole) > PIXELS, (name, artist)
                artist.set_visible(True)
            plt.close(figure)


def test_a_figure_that_cannot_be_read_in_a_column_is_noticed() -> None:
    with style():
        figure, axis = plt.subplots(figsize=(2 * COLUMN_WIDTH, 2))
        axis.set_xticks([0, 0.001, 1], ["one label", "over another", "small"], fontsize=5)
        axis.set_xlabel("a label longer than the figure is wide " * 5)
        found = " ".join(unreadable(figure))
        plt.close(figure)
    assert all(word in found for word in ("inches wide", "no headline", "lies over", "5.0 points", "cut off")), found
