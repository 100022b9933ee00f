"""Three figures: the restored table of leaks, who is taken for whom and where naming fails, and weights against lengths."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import PAGE_WIDTH, shades
from labcore.sealed import Sealed

NAMES = ("clean", "boundary", "global", "position", "intermittent")
MARKS = "sov^DX"


def draw(run: Sealed) -> dict[str, Figure]:
    return {"confusion": confusion(run), "table": table(run), "weights": weights(run)}


def confusion(run: Sealed) -> Figure:
    judged = run.table("judged")
    faults, lengths, scales = (run.protocol.values(name) for name in ("fault", "length", "scale"))
    cases = np.array(judged["cases"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.9), width_ratios=[1.1, 1])
    matrix = np.zeros((len(faults), len(NAMES)))
    for y, fault in enumerate(faults):
        rows = np.array([f == fault for f in judged["fault"]])
        for x, name in enumerate(NAMES):
            matrix[y, x] = np.array(judged[f"named_{name}"])[rows].sum() / cases[rows].sum()
    _squares(left, matrix)
    left.set_xticks(range(len(NAMES)), NAMES, rotation=25, fontsize=6)
    left.set_yticks(range(len(faults)), faults, fontsize=7)
    left.set_ylabel("planted")
    left.set_xlabel("named")
    single = np.array([f in ("position", "intermittent", "boundary") for f in judged["fault"]])
    named = np.array([judged[f"named_{fault}"][i] for i, fault in enumerate(judged["fault"])])
    share = np.zeros((len(scales), len(lengths)))
    for y, scale in enumerate(scales):
        for x, length in enumerate(lengths):
            here = single & (np.array(judged["scale"]) == scale) & (np.array(judged["length"]) == length)
            share[y, x] = named[here].sum() / cases[here].sum()
    _squares(right, share)
    right.set_xticks(range(len(lengths)), lengths)
    right.set_yticks(range(len(scales)), [f"{s:g}" for s in scales])
    right.set_xlabel("length of A and of B")
    right.set_ylabel("logit scale")
    right.set_title("single-cell faults named right", fontsize=8)
    left.set_title("share of cases, all lengths and scales", fontsize=8)
    figure.suptitle("Leaks are named from rows alone; sharp attention hides single cells", x=0.01, ha="left", fontsize=10)
    return figure


def _squares(axis: Any, matrix: np.ndarray) -> None:
    axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for (y, x), value in np.ndenumerate(matrix):
        axis.text(
            x, y, "0" if value == 0 else f"{value:.2f}", ha="center", va="center", fontsize=6, color="white" if value > 0.6 else "black"
        )
    axis.grid(False)


CAUSES = {
    "boundary": "range of keys one too long",
    "global": "isolation mask missing",
    "position": "one wrong cell",
    "intermittent": "one wrong cell in one of five steps",
}
COLUMNS = (
    "cause (planted)",
    "foreign cells\nopen",
    "weight, mean\n(least to most)",
    "queries\ntouched",
    "steps\nshown",
    "outputs\nchanged",
    "named right\nfrom rows",
)


def table(run: Sealed) -> Figure:
    found = run.table("signatures")
    figure, axis = plt.subplots(figsize=(PAGE_WIDTH, 1.9))
    axis.axis("off")
    cells = []
    for i, name in enumerate(found["planted"]):
        low, mean, high = (found[f"weight_{key}"][i] for key in ("min", "mean", "max"))
        shares = [f"{found[f'{key}_share'][i]:.1%}" for key in ("cells", "queries", "steps", "changed", "named")]
        cells.append([CAUSES[name], shares[0], f"{mean:.3f} ({low:.0e} to {high:.2f})", *shares[1:]])
    drawn = axis.table(
        cells,
        rowLabels=found["planted"],
        colLabels=COLUMNS,
        loc="center",
        cellLoc="center",
        colWidths=[0.25, 0.11, 0.22, 0.1, 0.1, 0.1, 0.12],
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(6.5)
    drawn.scale(1, 1.5)
    for (row, _), cell in drawn.get_celld().items():
        cell.set_linewidth(0.4)
        if row == 0:
            cell.set_height(cell.get_height() * 1.5)
    figure.suptitle(
        "The lost table, restored from planted faults: all lengths 3 to 127 and logit scales 0.25 to 8", x=0.01, ha="left", fontsize=9
    )
    return figure


def weights(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.8))
    scales = run.protocol.values("scale")
    edge, whole, rising = run.table("boundary"), run.table("whole"), run.table("entropy")
    lengths = run.protocol.values("length")
    for scale, colour, mark in zip(scales, shades(len(scales)), MARKS, strict=True):
        style = {"color": colour, "marker": mark, "markersize": 3, "linewidth": 0.9, "label": f"{scale:g}"}
        left.plot(lengths, [_mean(edge, "on_b_mean", layout="adjacent", scale=scale, length=n) for n in lengths], **style)
        pairs = sorted({(o / (a + o), a, o) for a in run.protocol.values("own") for o in run.protocol.values("others")})
        values = [_mean(whole, "leak_mean", scale=scale, own=a, others=o) for _, a, o in pairs]
        middle.plot([p[0] for p in pairs], values, **(style | {"linewidth": 0}))
        cached = run.protocol.values("cached")
        right.plot(cached, [_mean(rising, "entropy_mean", scale=scale, cached=n) for n in cached], **style)
    left.axhspan(0.1, 0.5, color="#dddddd", zorder=0)
    left.annotate("0.1 to 0.5", (0.98, 0.5), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6)
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("length of A")
    left.set_ylabel("mean weight on B's first key")
    left.set_title("boundary", fontsize=8)
    middle.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, zorder=0)
    middle.set_xlabel("len(B) / total")
    middle.set_ylabel("mean weight on B")
    middle.set_title("no mask", fontsize=8)
    cached = run.protocol.values("cached")
    right.plot(cached, [math.log(n) for n in cached], color="#999999", linewidth=0.8, zorder=0)
    right.annotate("ln n", (cached[-3], math.log(cached[-3])), (-8, 4), textcoords="offset points", ha="right", fontsize=6)
    right.set_xscale("log")
    right.set_xlabel("keys")
    right.set_ylabel("mean position entropy (nats)")
    right.set_title("correct mask", fontsize=8)
    figure.legend(*right.get_legend_handles_labels(), title="logit scale", title_fontsize=7, loc="outside right center")
    figure.suptitle("What a leak weighs follows from length and logit scale", x=0.01, ha="left", fontsize=10)
    return figure


def _mean(table: dict[str, list[Any]], column: str, **wanted: Any) -> float:
    keep = [i for i in range(len(table["row"])) if all(table[key][i] == value for key, value in wanted.items())]
    return float(np.mean([table[column][i] for i in keep]))
