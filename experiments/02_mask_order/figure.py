"""Two figures: what of B reaches A's output under each order; how the late mask's error grows with the foreign rows."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from labcore.figures import COLOUR, LINE, MARKER, PAGE_WIDTH, shades, with_zero
from labcore.sealed import Sealed

FLOOR = 1e-17


def draw(run: Sealed) -> dict[str, Figure]:
    return {"dependence": dependence(run), "growth": growth(run)}


def dependence(run: Sealed) -> Figure:
    table = run.table("published")
    variants = run.protocol.values("variant")[::-1]
    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.6), sharey=True)
    panels = (("key_effect", "one key of B changed"), ("value_effect", "one value of B changed"), ("error", "against A alone"))
    for axis, (column, label) in zip(axes, panels, strict=True):
        for place, variant in enumerate(variants):
            values = [x for x, name in zip(table[column], table["variant"], strict=True) if name == variant]
            kind = "correct" if variant == "before" else "faulty"
            axis.scatter(with_zero(values, FLOOR), [place] * len(values), marker=MARKER[kind], color=COLOUR[kind], s=18, zorder=3)
        axis.set_xscale("log")
        axis.set_xlim(FLOOR / 8, 100)
        axis.axvline(FLOOR, color="#999999", linewidth=0.6)
        axis.set_xticks([FLOOR, 1e-12, 1e-6, 1], ["0", "$10^{-12}$", "$10^{-6}$", "1"])
        axis.minorticks_off()
        axis.set_xlabel(f"change of A's output:\n{label}")
    labels = {"after": "after (multiply)", "add_small": "add -10", "replace_small": "replace by -10", "add_large": "add -10000"}
    axes[0].set_yticks(range(len(variants)), [labels.get(v, v.replace("_", ", ")) for v in variants])
    figure.suptitle("Masked after softmax, A's output depends on B's keys and on none of B's values", x=0.01, ha="left", fontsize=10)
    return figure


def growth(run: Sealed) -> Figure:
    table = run.table("sweep")
    lengths, scales = run.protocol.values("foreign"), run.protocol.values("scale")
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.7))
    looks = list(zip(scales, shades(len(scales)), "sovDX", strict=False))
    rows = [row for row in zip(table["variant"], table["scale"], table["foreign"], table["row_sum_max"], table["key_effect"], strict=True)]
    for scale, colour, marker in ((s, c, m) for s, c, m in looks):
        for axis, column in ((left, 3), (right, 4)):
            chosen = [[row[column] for row in rows if row[:3] == ("after", scale, n)] for n in lengths]
            middle = [sorted(values)[len(values) // 2] for values in chosen]
            axis.plot(lengths, middle, color=colour, marker=marker, linestyle=LINE["faulty"], label=f"{scale:g}")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("foreign rows in the cache")
    left.set_ylabel("largest row sum of A")
    right.set_ylabel("change of A's output by one key of B")
    right.legend(title="logit scale", title_fontsize=7)
    figure.suptitle("The more foreign rows, the less is left of A's weights", x=0.01, ha="left", fontsize=10)
    return figure
