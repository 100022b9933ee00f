"""Two figures: attention in tiles and in INT8; a prefix computed once for many requests, and whole results reused."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, LINE, MARKER, MORE, PAGE_WIDTH, with_zero, zero_log_axis
from labcore.sealed import Sealed

PAIRS = {
    "same_suffix": "same\nsuffix",
    "same_last": "same last\ntoken",
    "other_last": "other last\ntoken",
    "other_place": "same token,\none later",
}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"pieces": pieces(run), "sharing": sharing(run)}


def values(table: dict[str, list[Any]], column: str, **wanted: Any) -> list[float]:
    return [table[column][i] for i in range(len(table["row"])) if all(table[k][i] == v for k, v in wanted.items())]


def pieces(run: Sealed) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.7))
    table, lengths = run.table("published"), run.protocol.values("length")
    for column, kind, label in (
        ("tile_mean_error", "faulty", "mean of the tiles' outputs"),
        ("tiled_error", "correct", "running maximum and sum"),
    ):
        for place, n in enumerate(lengths):
            points = values(table, column, length=n)
            left.scatter([place] * len(points), points, marker=MARKER[kind], color=COLOUR[kind], s=16, label=label if place == 0 else None)
    left.set_yscale("log")
    left.set_ylim(1e-17, 10)
    left.set_title("Tiles of 32 keys")
    left.legend(loc="center left")
    table = run.table("int8")
    looks = {("normal", "tensor"): ("o", "-", COLOUR["correct"]), ("normal", "row"): ("s", "--", MORE[0])}
    looks |= {("outlier", "tensor"): ("X", "-", COLOUR["faulty"]), ("outlier", "row"): ("^", "--", MORE[1])}
    for (condition, scale_of), (marker, line, colour) in looks.items():
        points = np.array([values(table, "int8_error", condition=condition, scale_of=scale_of, length=n) for n in lengths])
        label = f"{condition}, a scale per {scale_of}"
        right.plot(range(len(lengths)), points.mean(axis=1), marker=marker, linestyle=line, color=colour, label=label)
        right.fill_between(range(len(lengths)), points.min(axis=1), points.max(axis=1), color=colour, alpha=0.12, linewidth=0)
    right.set_yscale("log")
    right.set_ylim(5e-4, 100)
    right.set_title("K and V in INT8")
    right.legend(loc="upper right", ncols=2, fontsize=6)
    for axis in (left, right):
        axis.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths])
        axis.set_xlabel("keys")
        axis.set_ylabel("largest error to dense attention")
    figure.suptitle("Tiles merge exactly, their mean does not; one outlier costs INT8 two digits", x=0.01, ha="left", fontsize=10)
    return figure


def sharing(run: Sealed) -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.7))
    speed(axes[0], run)
    table = run.table("equal_q")
    for shift, layer, marker, colour in ((-0.12, 0, "v", MORE[0]), (0.12, 1, "^", MORE[1])):
        for place, pair in enumerate(PAIRS):
            points = values(table, "reuse_error", pair=pair, layer=layer)
            label = f"layer {layer + 1}" if place == 0 else None
            axes[1].scatter([place + shift] * len(points), with_zero(points, 1e-8), marker=marker, color=colour, s=14, label=label)
    zero_log_axis(axes[1], table["reuse_error"], 1e-8)
    axes[1].set_xticks(range(len(PAIRS)), list(PAIRS.values()), fontsize=5.5)
    axes[1].set_ylabel("largest error")
    axes[1].set_title("The other request's result\nreused", fontsize=8)
    axes[1].legend(loc="center right")
    table, shifts = run.table("near_q"), run.protocol.values("shift")
    points = np.array([values(table, "near_error", shift=shift) for shift in shifts])
    axes[2].plot(with_zero(shifts, 1e-15), with_zero(points.mean(axis=1).tolist(), 1e-15), color=COLOUR["faulty"], marker=MARKER["faulty"])
    axes[2].plot(shifts[1:], shifts[1:], linestyle=LINE["control"], color=COLOUR["control"], label="error = distance")
    axes[2].set_xscale("log")
    axes[2].set_yscale("log")
    axes[2].set_xticks([1e-15, 1e-12, 1e-9, 1e-6, 1e-3], ["0", "$10^{-12}$", "$10^{-9}$", "$10^{-6}$", "$10^{-3}$"], fontsize=6)
    axes[2].set_yticks([1e-15, 1e-12, 1e-9, 1e-6, 1e-3], ["0", "$10^{-12}$", "$10^{-9}$", "$10^{-6}$", "$10^{-3}$"], fontsize=6)
    axes[2].minorticks_off()
    axes[2].set_xlabel("distance of the two queries")
    axes[2].set_title("Nearly equal Q\nreused", fontsize=8)
    axes[2].legend(loc="upper left")
    figure.suptitle("A prefix may be computed once for all queries; a result only where Q is equal", x=0.01, ha="left", fontsize=10)
    return figure


def speed(axis: Any, run: Sealed) -> None:
    rows = list(run.protocol.rows("shared_time"))
    lengths = run.protocol.values("shared_length")
    fastest = {name: run.array("shared_time", name).min(axis=1) for name in ("own_copy", "in_place", "shared_once")}
    looks = [
        ("own_copy", 32, "o", "-", COLOUR["correct"]),
        ("own_copy", 8, "s", "--", MORE[0]),
        ("own_copy", 1, "^", ":", COLOUR["control"]),
    ]
    looks += [("in_place", 32, "v", "-.", MORE[1])]
    for name, requests, marker, line, colour in looks:
        keep = [i for i, row in enumerate(rows) if row["requests"] == requests]
        label = f"{requests}, {'own copies' if name == 'own_copy' else 'one copy, read each time'}"
        axis.plot(lengths, (fastest[name] / fastest["shared_once"])[keep], marker=marker, linestyle=line, color=colour, label=label)
    axis.axhline(1, color="black", linewidth=0.6)
    axis.set_xscale("log", base=4)
    axis.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axis.minorticks_off()
    axis.set_ylim(0, None)
    axis.set_xlabel("shared keys")
    axis.set_ylabel("time per request / time shared")
    axis.set_title("Requests, and what each\nis compared with", fontsize=8)
    axis.legend(loc="upper left", fontsize=5.5)
