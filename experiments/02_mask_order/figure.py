"""Two figures: what of B reaches A's output under each order; how the late mask's error grows with the foreign rows."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from labcore.figures import COLOUR, COLUMN_WIDTH, GUIDE, LINE, MARKER, headline, panels, shades, with_zero
from labcore.sealed import Sealed

FLOOR = 1e-17


def draw(run: Sealed) -> dict[str, Figure]:
    return {"dependence": dependence(run), "growth": growth(run)}


def dependence(run: Sealed) -> Figure:
    table = run.table("published")
    variants = run.protocol.values("variant")[::-1]
    figure, axes = plt.subplots(1, 3, figsize=(COLUMN_WIDTH, 2.4), sharey=True)
    columns = (("key_effect", "one key of B\nchanged"), ("value_effect", "one value of B\nchanged"), ("error", "against\nA alone"))
    for axis, (column, label) in zip(axes, columns, strict=True):
        for place, variant in enumerate(variants):
            values = [x for x, name in zip(table[column], table["variant"], strict=True) if name == variant]
            kind = "correct" if variant == "before" else "faulty"
            axis.scatter(with_zero(values, FLOOR), [place] * len(values), marker=MARKER[kind], color=COLOUR[kind], s=14, zorder=3)
        axis.set_xscale("log")
        axis.set_xlim(FLOOR / 20, 400)
        axis.axvline(FLOOR, color=GUIDE, linewidth=0.6)
        axis.set_xticks([FLOOR, 1e-9, 1], ["0", "$10^{-9}$", "1"])
        axis.minorticks_off()
        axis.set_xlabel(label)
    labels = {"after": "after (multiply)", "add_small": "add -10", "replace_small": "replace by -10", "add_large": "add -10000"}
    axes[0].set_yticks(range(len(variants)), [labels.get(v, v.replace("_", ", ")) for v in variants])
    figure.supxlabel("largest change of A's output", fontsize=7)
    headline(figure, "Masked after softmax, A's output depends on B's keys and on none of B's values")
    return figure


def growth(run: Sealed) -> Figure:
    table = run.table("sweep")
    lengths, scales = run.protocol.values("foreign"), run.protocol.values("scale")
    figure, (upper, lower) = panels(2.3, 2.3, sharex=True)
    looks = list(zip(scales, shades(len(scales)), "sovDX", strict=False))
    rows = [row for row in zip(table["variant"], table["scale"], table["foreign"], table["row_sum_max"], table["key_effect"], strict=True)]
    for scale, colour, marker in ((s, c, m) for s, c, m in looks):
        for axis, column in ((upper, 3), (lower, 4)):
            chosen = [[row[column] for row in rows if row[:3] == ("after", scale, n)] for n in lengths]
            middle = [sorted(values)[len(values) // 2] for values in chosen]
            axis.plot(lengths, middle, color=colour, marker=marker, linestyle=LINE["faulty"], linewidth=1.0, label=f"{scale:g}")
    for axis in (upper, lower):
        axis.set_xscale("log")
        axis.set_yscale("log")
    lower.set_xlabel("foreign rows in the cache")
    upper.set_ylabel("largest row sum of A")
    lower.set_ylabel("change of A's output\nby one key of B")
    figure.legend(*upper.get_legend_handles_labels(), title="logit scale", loc="outside lower center", ncols=5)
    headline(figure, "The more foreign rows, the less the late mask leaves of A's weights")
    return figure
