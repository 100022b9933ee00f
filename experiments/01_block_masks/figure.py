"""Two figures: which metric notices which wrong mask; leak against the difference of lengths for masks along a wrong axis."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, LINE, MARKER, MORE, PAGE_WIDTH, with_zero
from labcore.sealed import Sealed

PANELS = (("leak_max", "largest leak"), ("error", "largest change of the output"), ("entropy_mean", "mean position entropy (nats)"))


def draw(run: Sealed) -> dict[str, Figure]:
    return {"metrics": metrics(run), "broadcast": broadcast(run)}


def metrics(run: Sealed) -> Figure:
    table = run.table("published")
    conditions = run.protocol.values("condition")[::-1]
    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.9), sharey=True)
    for axis, (column, label) in zip(axes, PANELS, strict=True):
        log = column != "entropy_mean"
        for place, condition in enumerate(conditions):
            values = [v for v, c in zip(table[column], table["condition"], strict=True) if c == condition]
            kind = "correct" if condition == "correct" else "faulty"
            shown = with_zero(values, 1e-4) if log else values
            axis.scatter(shown, [place] * len(values), marker=MARKER[kind], color=COLOUR[kind], s=18, zorder=3)
        if log:
            axis.set_xscale("log")
            axis.set_xlim(4e-5, 20)
            axis.axvline(1e-4, color="#999999", linewidth=0.6)
            axis.set_xticks([1e-4, 1e-2, 1e-1, 1, 10], ["exactly 0", "0.01", "0.1", "1", "10"])
            axis.minorticks_off()
        axis.set_xlabel(label)
    axes[0].set_yticks(range(len(conditions)), [c.replace("_", " ") for c in conditions])
    figure.suptitle("Swapped axes leak nothing and are wrong all the same: a leak of 0 is no proof", x=0.01, ha="left", fontsize=10)
    return figure


def broadcast(run: Sealed) -> Figure:
    table = run.table("broadcast")
    figure, axis = plt.subplots(figsize=(PAGE_WIDTH * 0.62, 2.9))
    differences = run.protocol.values("difference")
    looks = {
        "right_padded": (COLOUR["correct"], MARKER["correct"], LINE["correct"]),
        "padded_as_heads": (COLOUR["faulty"], "X", "--"),
        "padded_as_queries": (MORE[1], "v", "-."),
        "padded_on_query_axis": (MORE[2], "s", ":"),
        "owner_as_heads": (MORE[0], "D", "--"),
    }
    rows = list(zip(table["variant"], table["difference"], table["leak_mean"], strict=True))
    for variant, (colour, marker, line) in looks.items():
        means = [float(np.mean([leak for v, d, leak in rows if (v, d) == (variant, difference)])) for difference in differences]
        label = variant.replace("_", " ")
        axis.plot(range(len(differences)), with_zero(means, 1e-3), color=colour, marker=marker, linestyle=line, label=label)
    axis.set_yscale("log")
    axis.set_yticks([1e-3, 1e-2, 1e-1, 1], ["exactly 0", "0.01", "0.1", "1"])
    axis.minorticks_off()
    axis.set_xticks(range(len(differences)), differences)
    axis.set_xlabel("difference of lengths in the batch (tokens)")
    axis.set_ylabel("mean weight on foreign slots")
    axis.set_ylim(5e-4, 1.5)
    figure.legend(loc="outside right center")
    figure.suptitle("One token of difference is enough, and owners need none", x=0.01, ha="left", fontsize=10)
    return figure
