"""Two figures: the phase diagram of leaked weight, and what each way to mask does to partly and fully masked float16 rows."""

from __future__ import annotations

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from labcore.figures import COLUMN_WIDTH, headline, panels
from labcore.sealed import Sealed

LABELS = {
    "minus_1e4": "-1e4", "minus_3e4": "-3e4", "minus_65504": "-65504", "minus_1e9": "-1e9", "finfo_min": "finfo.min", "minus_inf": "-inf",
}  # fmt: skip
TICKS = {"float16": (16.0, 10000.0), "wide": (1e4, 1e20), "float64": (1e4, 1e100)}
LOWEST = 1e-8


def draw(run: Sealed) -> dict[str, Figure]:
    return {"phase": phase(run), "rows": rows(run)}


def phase(run: Sealed) -> Figure:
    fills, dtypes = run.protocol.values("fill"), run.protocol.values("dtype")
    figure, axes = plt.subplots(len(fills), len(dtypes), figsize=(COLUMN_WIDTH, 5.6), sharex="col")
    colours = matplotlib.colormaps["YlOrRd"].with_extremes(bad="#ffffff")
    norm, image = LogNorm(LOWEST, 1.0), None
    for column, dtype in zip(axes.T, dtypes, strict=True):
        line, sums = run.array(f"phase_{dtype}", "axis"), run.array(f"phase_{dtype}", "sum")
        weights = run.array(f"phase_{dtype}", "weight_same")
        for axis, weight, total in zip(column, weights, sums, strict=True):
            shown = np.where(weight > 0, np.maximum(weight, LOWEST), np.nan).T  # upwards: the masked logit
            image = axis.imshow(shown, origin="lower", cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
            lost = np.isneginf(total)
            overflow = (lost[:, None] & lost[None]).astype(float)
            if overflow.any():
                axis.contourf(overflow, levels=[0.5, 1.5], hatches=["////"], colors="none", extent=(-0.5, len(line) - 0.5) * 2)
            if np.isnan(weight).any():
                axis.contourf(np.isnan(weight).T.astype(float), levels=[0.5, 1.5], colors=["#000000"])
            axis.grid(False)
            axis.spines[["top", "right"]].set_visible(True)
            _ticks(axis, dtype, line)
        column[0].set_title(dtype)
        column[-1].tick_params(labelbottom=True)
    for axis, fill in zip(axes[:, 0], fills, strict=True):
        axis.set_ylabel(LABELS[fill])
    figure.supylabel("fill; in each panel upwards: masked logit, at the same steps", fontsize=7)
    axes[-1, 1].set_xlabel("visible logit", x=1.1)  # between the two columns in the middle
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.8, aspect=40, pad=0.01)
    bar.set_label("weight of the masked key (white: exactly 0)", fontsize=6.5)
    bar.ax.tick_params(labelsize=6)
    patch = Patch(facecolor="none", edgecolor="#000000", hatch="////", label="NaN, if the visible key is masked too")
    figure.legend(handles=[patch], loc="outside lower center")
    headline(figure, "Finite fills leak where a masked logit outgrows them; minus infinity never leaks, but turns fully masked rows to NaN")
    return figure


def _ticks(axis: Any, dtype: str, line: np.ndarray) -> None:
    wanted = TICKS.get(dtype, TICKS["wide"])
    values = [-wanted[1], -wanted[0], 0.0, wanted[0], wanted[1]]
    places = [int(np.abs(line - x).argmin()) for x in values]
    axis.set_xticks(places, [f"{x:.5g}".replace("e+", "e") for x in values], rotation=90, fontsize=6)
    axis.set_yticks(places, [""] * len(places))
    axis.tick_params(length=2, labelbottom=False)


def _label(application: str, stacked: int) -> str:
    if application == "multiply_after":
        return "multiply after (rows\ndo not sum to 1)"
    return f"{application.replace('_', ' ')}, {stacked} mask{'s' * (stacked > 1)}"


WAYS = (("additive", 1), ("additive", 2), ("additive", 3), ("masked_fill", 1), ("where", 1), ("multiply_after", 1))


def rows(run: Sealed) -> Figure:
    """float16, softmax in float16: cells of 49 x 49 that leak, and that are NaN."""
    table, fills = run.table("cells"), run.protocol.values("fill")
    names = ("dtype", "softmax", "fill", "application", "stacked", "rows")
    found = {key: i for i, key in enumerate(zip(*(table[name] for name in names), strict=True))}
    figure, axes = panels(2.4, 2.2, sharex=True)
    for axis, kind in zip(axes, ("partly", "fully"), strict=True):
        axis.set_xlim(-0.5, len(fills) - 0.5)
        axis.set_ylim(len(WAYS) - 0.5, -0.5)
        for y, (application, stacked) in enumerate(WAYS):
            for x, fill in enumerate(fills):
                place = found["float16", "same", fill, application, stacked, kind]
                leaking, nans = table["leaking"][place], table["nans"][place]
                accepted = table["accepted"][place]
                lost = f"NaN {nans}" if leaking else f"NaN\n{nans}"
                text = "\n".join([f"{leaking}"] * (leaking > 0 or nans == 0) + [lost] * (nans > 0)) if accepted else "refused"
                colour = "#dddddd" if not accepted else "#ffffff" if leaking + nans == 0 else "#fecc5c" if nans == 0 else "#e8743b"
                axis.add_patch(plt.Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, edgecolor="#999999", linewidth=0.5))
                axis.text(x, y, text, ha="center", va="center", fontsize=6, linespacing=0.95)
        axis.grid(False)
        axis.set_xticks(range(len(fills)), [LABELS[fill] for fill in fills], fontsize=6)
        axis.set_yticks(range(len(WAYS)), [_label(a, n) for a, n in WAYS], fontsize=6)
        axis.set_title(f"{kind} masked rows")
    axes[-1].set_xlabel("fill")
    cells = len(run.array("phase_float16", "axis")) ** 2
    headline(figure, f"float16, cells of {cells} that leak or are NaN: no fill is right for both kinds of row")
    return figure
