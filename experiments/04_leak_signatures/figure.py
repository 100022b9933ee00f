"""Three figures: the restored table of leaks, who is taken for whom and where naming fails, and weights against lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import GUIDE, headline, panels, shades
from labcore.sealed import Sealed

NAMES = ("clean", "boundary", "global", "position", "intermittent")
MARKS = "sov^DX"


def draw(run: Sealed) -> dict[str, Figure]:
    return {"confusion": confusion(run), "table": table(run), "weights": weights(run)}


def confusion(run: Sealed) -> Figure:
    judged = run.table("judged")
    faults, lengths, scales = (run.protocol.values(name) for name in ("fault", "length", "scale"))
    cases = np.array(judged["cases"])
    figure, (upper, lower) = panels(2.3, 2.3)
    matrix = np.zeros((len(faults), len(NAMES)))
    for y, fault in enumerate(faults):
        rows = np.array([f == fault for f in judged["fault"]])
        for x, name in enumerate(NAMES):
            matrix[y, x] = np.array(judged[f"named_{name}"])[rows].sum() / cases[rows].sum()
    _squares(upper, matrix)
    upper.set_xticks(range(len(NAMES)), NAMES, fontsize=6)
    upper.set_yticks(range(len(faults)), faults)
    upper.set_ylabel("planted")
    upper.set_xlabel("named")
    upper.set_title("share of cases, all lengths and scales")
    single = np.array([f in ("position", "intermittent", "boundary") for f in judged["fault"]])
    named = np.array([judged[f"named_{fault}"][i] for i, fault in enumerate(judged["fault"])])
    share = np.zeros((len(scales), len(lengths)))
    for y, scale in enumerate(scales):
        for x, length in enumerate(lengths):
            here = single & (np.array(judged["scale"]) == scale) & (np.array(judged["length"]) == length)
            share[y, x] = named[here].sum() / cases[here].sum()
    _squares(lower, share)
    lower.set_xticks(range(len(lengths)), lengths)
    lower.set_yticks(range(len(scales)), [f"{s:g}" for s in scales])
    lower.set_xlabel("length of A and of B")
    lower.set_ylabel("logit scale")
    lower.set_title("faults of a single cell, share named right")
    headline(figure, "Leaks are named from rows alone; sharp attention over many keys hides single cells")
    return figure


def _squares(axis: Any, matrix: np.ndarray) -> None:
    axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for (y, x), value in np.ndenumerate(matrix):
        axis.text(
            x, y, "0" if value == 0 else f"{value:.2f}", ha="center", va="center", fontsize=6, color="white" if value > 0.6 else "black"
        )
    axis.grid(False)


CAUSES = {
    "boundary": "range one\nkey too long",
    "global": "no isolation\nmask",
    "position": "one wrong\ncell",
    "intermittent": "the same, one\nof five steps",
}
ROWS = {
    "cells": "foreign cells open",
    "weight_mean": "weight, mean",
    "weight_min": "weight, least",
    "weight_max": "weight, most",
    "queries": "queries touched",
    "steps": "steps shown",
    "changed": "outputs changed",
    "named": "named right\nfrom rows",
}


def table(run: Sealed) -> Figure:
    found = run.table("signatures")
    figure, (axis,) = panels(2.7)
    axis.axis("off")
    cells = [[CAUSES[name] for name in found["planted"]]]
    for key in ROWS:
        values = found[key if key.startswith("weight") else f"{key}_share"]
        cells.append([f"{x:.0e}" if key == "weight_min" else f"{x:.3f}" if key.startswith("weight") else f"{x:.1%}" for x in values])
    widths = [0.2] * len(found["planted"])
    labels = ["cause (planted)", *ROWS.values()]
    drawn = axis.table(cells, rowLabels=labels, colLabels=found["planted"], bbox=(0.24, 0, 0.76, 1), cellLoc="center", colWidths=widths)
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(6)
    for (row, _), cell in drawn.get_celld().items():
        cell.set_linewidth(0.4)
        cell.set_height(cell.get_height() * (1.6 if row in (1, len(labels)) else 1))
    headline(figure, "Weights from nearly 0 to 1 occur in every kind of leak; cells, queries and steps tell the kinds apart")
    return figure


def weights(run: Sealed) -> Figure:
    figure, (edge_axis, whole_axis, entropy_axis) = panels(2.0, 2.0, 2.0)
    scales = run.protocol.values("scale")
    edge, whole, rising = run.table("boundary"), run.table("whole"), run.table("entropy")
    lengths, cached = run.protocol.values("length"), run.protocol.values("cached")
    for scale, colour, mark in zip(scales, shades(len(scales)), MARKS, strict=True):
        style = {"color": colour, "marker": mark, "markersize": 3, "linewidth": 0.9, "label": f"{scale:g}"}
        edge_axis.plot(lengths, [_mean(edge, "on_b_mean", layout="adjacent", scale=scale, length=n) for n in lengths], **style)
        pairs = sorted({(o / (a + o), a, o) for a in run.protocol.values("own") for o in run.protocol.values("others")})
        values = [_mean(whole, "leak_mean", scale=scale, own=a, others=o) for _, a, o in pairs]
        whole_axis.plot([p[0] for p in pairs], values, **(style | {"linewidth": 0}))
        entropy_axis.plot(cached, [_mean(rising, "entropy_mean", scale=scale, cached=n) for n in cached], **style)
    edge_axis.axhspan(0.1, 0.5, color="#dddddd", zorder=0)
    edge_axis.annotate("the article: 0.1 to 0.5", (0.98, 0.45), xycoords=("axes fraction", "data"), ha="right", va="top", fontsize=6)
    edge_axis.set_xscale("log")
    edge_axis.set_yscale("log")
    edge_axis.set_xlabel("length of A")
    edge_axis.set_ylabel("mean weight on\nB's first key")
    edge_axis.set_title("range one key too long")
    whole_axis.plot([0, 1], [0, 1], color=GUIDE, linewidth=0.6, zorder=0)
    whole_axis.annotate("the article:\nequal", (0.52, 0.52), (8, -4), textcoords="offset points", va="top", fontsize=6)
    whole_axis.set_xlabel("length of B / length of both")
    whole_axis.set_ylabel("mean weight on B")
    whole_axis.set_title("no mask")
    entropy_axis.plot(cached, [math.log(n) for n in cached], color=GUIDE, linewidth=0.6, zorder=0)
    entropy_axis.annotate("ln n", (cached[-3], math.log(cached[-3])), (-8, 4), textcoords="offset points", ha="right", fontsize=6)
    entropy_axis.set_xscale("log")
    entropy_axis.set_xlabel("keys n")
    entropy_axis.set_ylabel("mean position\nentropy (nats)")
    entropy_axis.set_title("correct mask")
    figure.legend(*entropy_axis.get_legend_handles_labels(), title="logit scale", loc="outside lower center", ncols=6, columnspacing=1.0)
    headline(figure, "A leak through one key shrinks with length; without a mask B gets its share of the weight if attention is flat")
    return figure


def _mean(table: dict[str, list[Any]], column: str, **wanted: Any) -> float:
    keep = [i for i in range(len(table["row"])) if all(table[key][i] == value for key, value in wanted.items())]
    return float(np.mean([table[column][i] for i in keep]))
