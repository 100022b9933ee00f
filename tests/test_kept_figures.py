"""Every kept figure is what its figure.py draws from the sealed run today; a figure that lacks one artist is not."""

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

from labcore.figures import style
from labcore.loading import load
from labcore.sealed import Sealed

ROOT = Path(__file__).resolve().parents[1]
KEPT = sorted(path.parents[1] for path in ROOT.glob("evidence/[0-9][0-9]_*/*/sealed/manifest.json"))
LEVELS = 64 / 255  # edges of letters and lines differ by less between versions of the rasteriser
PIXELS = 20  # so many may differ by more; the smallest mark covers some fifty


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
    module = load(ROOT / "experiments" / run.parent.name / "figure.py")
    with style():
        figures = module.draw(Sealed(run))
        assert sorted(figures) == sorted(path.stem for path in (run / "figures").glob("*.png"))
        for name, figure in figures.items():
            figure.draw_without_rendering()  # the kept PNG was drawn after an SVG: a crowded layout settles then
            found = differing(rendered(figure), image(run / "figures" / f"{name}.png"))
            plt.close(figure)
            assert found <= PIXELS, f"{name}: {found} pixels differ; python -m labcore figure {run.parent.name[:2]} draws it again"


def test_a_missing_artist_is_noticed() -> None:
    run = next(run for run in KEPT if run.parent.name == "06_stale_prefix")
    module = load(ROOT / "experiments" / run.parent.name / "figure.py")
    with style():
        for name, figure in module.draw(Sealed(run)).items():
            whole = image(run / "figures" / f"{name}.png")
            drawn = artists(figure)
            for artist in drawn[:: max(1, len(drawn) // 4)]:
                artist.set_visible(False)
                assert differing(rendered(figure), whole) > PIXELS, (name, artist)
                artist.set_visible(True)
            plt.close(figure)
