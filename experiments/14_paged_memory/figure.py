"""Two figures: how much of the memory holds tokens and who finds no room, by layout; what a page table costs in decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import GUIDE, MORE, headline, panels
from labcore.sealed import Sealed

FILLINGS = {"at_once": ("all there at arrival", "s", MORE[1], -0.14), "growing": ("growing as decoded", "o", MORE[0], 0.14)}


def draw(run: Sealed) -> dict[str, Figure]:
    """All figures."""
    return {"memory": memory(run), "decode": decode(run)}


def over_seeds(table: dict[str, list[Any]], name: str, filling: str, layout: str) -> list[float]:
    """A column's values over seeds."""
    return [v for v, f, one in zip(table[name], table["filling"], table["layout"], strict=True) if (f, one) == (filling, layout)]


def memory(run: Sealed) -> Figure:
    """Tokens written per slot reserved, and requests turned away or preempted, by layout."""
    table, layouts = run.table("memory"), run.protocol.values("layout")
    names = [name.replace("max_length", "max.\nlength").replace("exact_fit", "exact\nfit").replace("paged_", "") for name in layouts]
    figure, (used, refused) = panels(2.6, 2.3)
    for filling, (label, marker, colour, shift) in FILLINGS.items():
        points = [(place + shift, value) for place, one in enumerate(layouts) for value in over_seeds(table, "utilisation", filling, one)]
        used.plot(*zip(*points, strict=True), linestyle="none", marker=marker, markersize=3.5, color=colour, label=label)
    used.axhspan(0.204, 0.382, color="#dddddd", linewidth=0, zorder=0)
    used.annotate("published before paging: 20.4 to 38.2 %", (9.4, 0.29), ha="right", va="center", fontsize=6)
    used.axhline(0.96, color=GUIDE, linewidth=0.6, linestyle="--")
    used.annotate("published for pages: over 96 %", (1.6, 0.94), va="top", fontsize=6, color=GUIDE)
    used.set_xticks(range(len(layouts)), names, fontsize=6)
    used.set(ylabel="tokens written / slots reserved", ylim=(0, 1.05))
    used.legend(loc="lower right")
    width = 0.38
    for filling, (label, _, colour, shift) in FILLINGS.items():
        holes = np.array([sum(over_seeds(table, "refused_by_holes", filling, one)) for one in layouts])
        away = np.array(
            [sum(over_seeds(table, "refused", filling, one)) + sum(over_seeds(table, "preempted", filling, one)) for one in layouts]
        )
        place = np.arange(len(layouts)) + np.sign(shift) * width / 2
        refused.bar(place, away, width, color=colour, label=label)
        look = {"color": colour, "alpha": 0.5, "hatch": "////", "edgecolor": "black", "linewidth": 0}
        refused.bar(place, holes, width, label="of these: enough free, no hole", **look)
    refused.set_xticks(range(len(layouts)), names, fontsize=6)
    total = run.protocol.settings["requests"] * len(run.protocol.seeds)
    refused.set(ylabel=f"turned away or preempted,\nof {total}", xlabel="layout; a number: pages of so many slots")
    refused.legend(loc="upper right")
    most = max(over_seeds(table, "utilisation", "growing", "max_length"))
    least = min(over_seeds(table, "utilisation", "growing", "paged_16"))
    headline(
        figure,
        f"While requests grow, pages of 16 hold tokens in {least:.0%} or more of what they reserve, maximum lengths in {most:.0%} or less",
    )
    return figure


def decode(run: Sealed) -> Figure:
    """Best of the repeats, as a ratio to contiguous rows by the same means; and how many more requests fit."""
    lengths, methods = run.protocol.values("length"), run.protocol.values("method")
    shape = (len(lengths), len(methods), len(run.protocol.values("repeat")))
    best = run.array("decode", "seconds").reshape(shape).min(axis=2)
    column = {name: best[:, place] for place, name in enumerate(methods)}
    table = run.table("capacity")
    more = np.array(
        [
            sum(p for p, one in zip(table["fits_paged"], table["length"], strict=True) if one == length)
            / sum(m for m, one in zip(table["fits_max_length"], table["length"], strict=True) if one == length)
            for length in lengths
        ]
    )
    gathered = column["gathered"] / column["contiguous"]
    figure, (axis,) = panels(3.5)
    axis.plot(lengths, column["walked"] / column["contiguous"], "v:", color=MORE[2], linewidth=1, label="time: page by page in Python")
    axis.plot(lengths, more, "s-", color=MORE[3], linewidth=1, label="requests that fit, pages / maximum lengths")
    axis.plot(lengths, gathered, "X--", color=MORE[1], linewidth=1, label="time: gathered pages")
    if column["fused_contiguous"].min() > 0:
        fused = column["fused_paged"] / column["fused_contiguous"]
        axis.plot(lengths, fused, "o-.", color=MORE[0], linewidth=1, label="time: fused walk in C")
    axis.axhline(1, color=GUIDE, linewidth=0.6)
    axis.axvline(512, color=GUIDE, linewidth=0.6, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.minorticks_off()
    axis.set_yticks([1, 1.5, 2, 5, 10, 20], ["1", "1.5", "2", "5", "10", "20"])
    axis.set(xlabel="tokens in the cache", ylabel="ratio to contiguous, same means")
    figure.legend(loc="outside lower center", ncols=1)
    where = "At every length" if (more > gathered).all() else "At some lengths only"
    headline(figure, f"{where}, pages make room for more requests than gathering them costs time")
    return figure
