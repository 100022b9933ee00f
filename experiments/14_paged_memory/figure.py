"""Three figures: how much of the memory holds tokens, what becomes of requests, what a page table costs in decoding."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, COLUMN_WIDTH, MORE, PAGE_WIDTH
from labcore.sealed import Sealed

FILLINGS = {"at_once": "all there at arrival", "growing": "growing as decoded"}


def draw(run: Sealed) -> dict[str, Figure]:
    """All figures."""
    return {"memory": settled(memory(run)), "decode": settled(decode(run))}


def settled(figure: Figure) -> Figure:
    """The layout worked out once and kept: a second drawing would move the axes a little."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def mean(table: dict[str, list[Any]], name: str, filling: str, layout: str) -> list[float]:
    """A column's values over seeds."""
    return [v for v, f, one in zip(table[name], table["filling"], table["layout"], strict=True) if (f, one) == (filling, layout)]


def memory(run: Sealed) -> Figure:
    """Tokens written per slot reserved, unusable free memory, and requests turned away, by layout."""
    table, layouts = run.table("memory"), run.protocol.values("layout")
    names = [name.replace("_", "\n") for name in layouts]
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.8))
    for filling, marker, colour, shift in (("at_once", "s", COLOUR["control"], -0.12), ("growing", "o", COLOUR["correct"], 0.12)):
        points = [(place + shift, value) for place, one in enumerate(layouts) for value in mean(table, "utilisation", filling, one)]
        left.plot(
            *zip(*points, strict=True),
            linestyle="none",
            marker=marker,
            color=colour,
            label="all there at arrival" if filling == "at_once" else "growing as decoded",
        )
    left.axhspan(0.204, 0.382, color=MORE[2], alpha=0.35, linewidth=0)
    left.annotate("published before paging: 20.4 to 38.2 %", (9.4, 0.29), ha="right", va="center", fontsize=6.5)
    left.axhline(0.96, color=COLOUR["faulty"], linewidth=0.8, linestyle="--")
    left.annotate("published for pages: over 96 %", (0.6, 0.945), va="top", fontsize=6.5, color=COLOUR["faulty"])
    left.set_xticks(range(len(layouts)), names, fontsize=6)
    left.set(ylabel="tokens written / slots reserved", ylim=(0, 1.05))
    left.legend(loc="lower right")
    most = max(mean(table, "utilisation", "growing", "max_length"))
    least = min(mean(table, "utilisation", "growing", "paged_16"))
    left.set_title(f"Pages of 16 hold {least:.0%}, maximum length {most:.0%}")
    width = 0.38
    for filling, shift, shades in (("at_once", -width / 2, ["#bbbbbb", "#777777"]), ("growing", width / 2, ["#56B4E9", COLOUR["correct"]])):
        holes = np.array([sum(mean(table, "refused_by_holes", filling, one)) for one in layouts])
        away = np.array([sum(mean(table, "refused", filling, one)) + sum(mean(table, "preempted", filling, one)) for one in layouts])
        place = np.arange(len(layouts)) + shift
        right.bar(place, away, width, color=shades[1], label=FILLINGS[filling])
        right.bar(place, holes, width, color=shades[0], hatch="///", edgecolor="white", label="of these: enough free, no hole")
    right.set_xticks(range(len(layouts)), names, fontsize=6)
    total = run.protocol.settings["requests"] * len(run.protocol.seeds)
    right.set(ylabel=f"turned away or preempted, of {total}")
    right.legend(fontsize=6)
    right.set_title("Requests that found no room")
    return figure


def decode(run: Sealed) -> Figure:
    """Best of the repeats, as a ratio to contiguous rows by the same means; and how many more requests fit."""
    lengths, methods = run.protocol.values("length"), run.protocol.values("method")
    shape = (len(lengths), len(methods), len(run.protocol.values("repeat")))
    best = run.array("decode", "seconds").reshape(shape).min(axis=2)
    column = {name: best[:, place] for place, name in enumerate(methods)}
    table = run.table("capacity")
    more = [
        sum(p for p, one in zip(table["fits_paged"], table["length"], strict=True) if one == length)
        / sum(m for m, one in zip(table["fits_max_length"], table["length"], strict=True) if one == length)
        for length in lengths
    ]
    figure, axis = plt.subplots(figsize=(COLUMN_WIDTH, 3.3))
    axis.plot(lengths, column["walked"] / column["contiguous"], "v:", color=COLOUR["control"], label="page by page in Python")
    axis.plot(lengths, more, "s-", color=COLOUR["reference"], label="requests that fit, paged / maximum")
    axis.plot(lengths, column["gathered"] / column["contiguous"], "X--", color=COLOUR["faulty"], label="time: gathered pages")
    if column["fused_contiguous"].min() > 0:
        axis.plot(lengths, column["fused_paged"] / column["fused_contiguous"], "o-", color=COLOUR["correct"], label="time: fused walk in C")
    axis.axhline(1, color="black", linewidth=0.6)
    axis.axvline(512, color="black", linewidth=0.6, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.minorticks_off()
    axis.set_yticks([1, 1.5, 2, 5, 10, 20], ["1", "1.5", "2", "5", "10", "20"])
    axis.set(xlabel="tokens in the cache", ylabel="ratio to contiguous, same means")
    figure.legend(loc="outside lower center", ncols=1)
    axis.set_title("The page table's price and gain\nat every length: no crossing at 512")
    return figure
