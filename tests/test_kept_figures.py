"""Every kept figure is what its figure.py draws from the sealed run today (one that lacks an artist is not), and readable in a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from matplotlib.collections import Collection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text

from labcore.figures import COLUMN_WIDTH, STYLE, built, lay_out, style

ROOT = Path(__file__).resolve().parents[1]
KEPT = sorted(path.parents[1] for path in ROOT.glob("evidence/[0-9][0-9]_*/*/sealed/manifest.json"))
TOLERANCE = 1.0  # root mean square of 255 levels: another rasteriser moves edges by less, a missing mark makes 1.7 and more
POINTS = 6  # the smallest text: 5.4 points where a column is 8 cm wide


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


def compared(run: Path, name: str) -> Any:
    """A test's parameters and, for pytest-mpl, the kept file that the figure it returns must equal."""
    options = {"baseline_dir": str(run / "figures"), "filename": f"{name}.png", "tolerance": TOLERANCE, "style": STYLE}
    return pytest.param(run, name, marks=pytest.mark.mpl_image_compare(**options), id=f"{run.parent.name}-{name}")


@pytest.mark.parametrize(("run", "name"), [compared(run, path.stem) for run in KEPT for path in sorted((run / "figures").glob("*.png"))])
def test_kept_figures_are_drawn_from_the_sealed_run(run: Path, name: str) -> Any:
    """On a difference: `python -m labcore figure NN` draws it again."""
    figures = built(run, ROOT / "experiments" / run.parent.name)
    figure = lay_out(figures.pop(name))
    for other in figures.values():
        plt.close(other)
    assert unreadable(figure) == []
    return figure


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.parent.name)
def test_every_figure_is_kept(run: Path) -> None:
    with style():
        assert sorted(built(run, ROOT / "experiments" / run.parent.name)) == sorted(path.stem for path in (run / "figures").glob("*.png"))
        plt.close("all")


def test_a_missing_artist_is_noticed(tmp_path: Path) -> None:
    run = next(run for run in KEPT if run.parent.name == "06_stale_prefix")
    with style():
        for name, figure in built(run, ROOT / "experiments" / run.parent.name).items():
            lay_out(figure)
            every = artists(figure)
            for artist in every[:: max(1, len(every) // 4)]:
                artist.set_visible(False)
                figure.savefig(tmp_path / "less.png")
                told = compare_images(str(run / "figures" / f"{name}.png"), str(tmp_path / "less.png"), TOLERANCE)
                assert told is not None, (name, artist)
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
