"""Two figures: which metric notices which wrong mask; leak against the difference of lengths for masks along a wrong axis."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, COLUMN_WIDTH, GUIDE, MARKER, headline, panels, with_zero
from labcore.sealed import Sealed

COLUMNS = (("leak_max", "largest leak"), ("error", "largest change\nof the output"), ("entropy_mean", "mean position\nentropy (nats)"))


def draw(run: Sealed) -> dict[str, Figure]:
    return {"metrics": metrics(run), "broadcast": broadcast(run)}


def metrics(run: Sealed) -> Figure:
    table = run.table("published")
    conditions = run.protocol.values("condition")[::-1]
    figure, axes = plt.subplots(1, 3, figsize=(COLUMN_WIDTH, 2.6), sharey=True)
    for axis, (column, label) in zip(axes, COLUMNS, strict=True):
        log = column != "entropy_mean"
        for place, condition in enumerate(conditions):
            values = [v for v, c in zip(table[column], table["condition"], strict=True) if c == condition]
            kind = "correct" if condition == "correct" else "faulty"
            shown = with_zero(values, 1e-3) if log else values
            axis.scatter(shown, [place] * len(values), marker=MARKER[kind], color=COLOUR[kind], s=14, zorder=3)
        if log:
            axis.set_xscale("log")
            axis.set_xlim(3e-4, 20)
            axis.axvline(1e-3, color=GUIDE, linewidth=0.6)
            axis.set_xticks([1e-3, 1e-1, 10], ["0", "0.1", "10"])
            axis.minorticks_off()
        axis.set_xlabel(label)
    axes[0].set_yticks(range(len(conditions)), [c.replace("_", " ") for c in conditions])
    headline(figure, "Swapped axes leak nothing and are wrong all the same: a leak of 0 is no proof")
    return figure


def broadcast(run: Sealed) -> Figure:
    table = run.table("broadcast")
    figure, (axis,) = panels(3.2)
    differences = run.protocol.values("difference")
    looks = {
        "right_padded": ("correct", "o", "-"),
        "padded_as_heads": ("faulty", "X", "--"),
        "padded_as_queries": ("faulty", "v", "-."),
        "padded_on_query_axis": ("faulty", "s", ":"),
        "owner_as_heads": ("faulty", "D", (0, (5, 1))),
    }
    rows = list(zip(table["variant"], table["difference"], table["leak_mean"], strict=True))
    for variant, (kind, marker, line) in looks.items():
        means = [float(np.mean([leak for v, d, leak in rows if (v, d) == (variant, difference)])) for difference in differences]
        look = {"color": COLOUR[kind], "marker": marker, "linestyle": line, "linewidth": 1.0, "label": variant.replace("_", " ")}
        axis.plot(range(len(differences)), with_zero(means, 1e-3), **look)
    axis.set_yscale("log")
    axis.set_yticks([1e-3, 1e-2, 1e-1, 1], ["exactly 0", "0.01", "0.1", "1"])
    axis.minorticks_off()
    axis.set_xticks(range(len(differences)), differences)
    axis.set_xlabel("difference of lengths in the batch (tokens)")
    axis.set_ylabel("mean weight on foreign slots")
    axis.set_ylim(5e-4, 1.5)
    figure.legend(loc="outside lower center", ncols=2)
    headline(figure, "A mask of lengths along a wrong axis leaks at one token of difference, a mask of owners without any")
    return figure
