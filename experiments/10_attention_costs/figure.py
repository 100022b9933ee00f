"""Two figures: attention in tiles and in INT8; a prefix computed once for many requests, and whole results reused."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, MARKER, MORE, headline, panels, shades, with_zero, zero_log_axis
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
    figure, (tiles, codes) = panels(2.3, 2.3)
    table, lengths = run.table("published"), run.protocol.values("length")
    for column, kind, label in (
        ("tile_mean_error", "faulty", "mean of the tiles' outputs"),
        ("tiled_error", "correct", "running maximum and sum"),
    ):
        for place, n in enumerate(lengths):
            points = values(table, column, length=n)
            tiles.scatter([place] * len(points), points, marker=MARKER[kind], color=COLOUR[kind], s=16, label=label if place == 0 else None)
    tiles.set_ylim(1e-17, 10)
    tiles.set_title("tiles of 32 keys")
    tiles.legend(loc="center left")
    table = run.table("int8")
    looks = {("normal", "tensor"): ("o", "-", MORE[0]), ("normal", "row"): ("s", "--", MORE[0])}
    looks |= {("outlier", "tensor"): ("X", "-", MORE[1]), ("outlier", "row"): ("^", "--", MORE[1])}
    for (condition, scale_of), (marker, line, colour) in looks.items():
        points = np.array([values(table, "int8_error", condition=condition, scale_of=scale_of, length=n) for n in lengths])
        label = f"{condition}, per {scale_of}"
        codes.plot(range(len(lengths)), points.mean(axis=1), line, marker=marker, color=colour, linewidth=1, label=label)
        codes.fill_between(range(len(lengths)), points.min(axis=1), points.max(axis=1), color=colour, alpha=0.12, linewidth=0)
    codes.set_ylim(5e-4, 200)
    codes.set_title("K and V in INT8; one scale per tensor or per row")
    codes.legend(loc="upper right", ncols=2, columnspacing=1.0)
    for axis in (tiles, codes):
        axis.set_yscale("log")
        axis.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths])
        axis.set_ylabel("largest error\nto dense attention")
    codes.set_xlabel("keys")
    headline(figure, "Tiles merge exactly, their mean does not; one outlier costs INT8 two digits")
    return figure


def sharing(run: Sealed) -> Figure:
    figure, (times, reused, near) = panels(2.4, 2.0, 2.0)
    speed(times, run)
    table = run.table("equal_q")
    for shift, layer, marker, colour in zip((-0.12, 0.12), (0, 1), "v^", shades(2), strict=True):
        for place, pair in enumerate(PAIRS):
            points = values(table, "reuse_error", pair=pair, layer=layer)
            label = f"layer {layer + 1}" if place == 0 else None
            reused.scatter([place + shift] * len(points), with_zero(points, 1e-8), marker=marker, color=colour, s=14, label=label)
    zero_log_axis(reused, table["reuse_error"], 1e-8)
    reused.set_xticks(range(len(PAIRS)), list(PAIRS.values()))
    reused.set_ylabel("largest error")
    reused.set_title("the other request's result reused")
    reused.legend(loc="center right")
    table, shifts = run.table("near_q"), run.protocol.values("shift")
    points = np.array([values(table, "near_error", shift=shift) for shift in shifts])
    near.plot(
        with_zero(shifts, 1e-15),
        with_zero(points.mean(axis=1).tolist(), 1e-15),
        marker=MARKER["faulty"],
        color=COLOUR["faulty"],
        linewidth=1,
    )
    near.plot(shifts[1:], shifts[1:], linestyle=":", color=GUIDE, linewidth=0.8, label="error = distance")
    near.set_xscale("log")
    near.set_yscale("log")
    near.set_xticks([1e-15, 1e-12, 1e-9, 1e-6, 1e-3], ["0", "$10^{-12}$", "$10^{-9}$", "$10^{-6}$", "$10^{-3}$"])
    near.set_yticks([1e-15, 1e-12, 1e-9, 1e-6, 1e-3], ["0", "$10^{-12}$", "$10^{-9}$", "$10^{-6}$", "$10^{-3}$"])
    near.minorticks_off()
    near.set_xlabel("distance of the two queries")
    near.set_ylabel("largest error")
    near.set_title("a result reused at nearly equal Q")
    near.legend(loc="upper left")
    headline(figure, "Attention over a prefix may be computed once for all queries; a result may be reused only where Q is equal")
    return figure


def speed(axis: Any, run: Sealed) -> None:
    rows = list(run.protocol.rows("shared_time"))
    lengths = run.protocol.values("shared_length")
    fastest = {name: run.array("shared_time", name).min(axis=1) for name in ("own_copy", "in_place", "shared_once")}
    few, some, many = shades(3)
    looks = [
        ("own_copy", 32, "o", "-", many),
        ("own_copy", 8, "s", "--", some),
        ("own_copy", 1, "^", ":", few),
        ("in_place", 32, "v", "-.", MORE[1]),
    ]
    for name, requests, marker, line, colour in looks:
        keep = [i for i, row in enumerate(rows) if row["requests"] == requests]
        who = f"{requests} request{'s' * (requests > 1)}"
        label = f"{who}, own cop{'ies' if requests > 1 else 'y'}" if name == "own_copy" else f"{who}, one copy"
        ratio = (fastest[name] / fastest["shared_once"])[keep]
        axis.plot(lengths, ratio, line, marker=marker, color=colour, linewidth=1, label=label)
    axis.axhline(1, color=GUIDE, linewidth=0.6)
    axis.set_xscale("log", base=4)
    axis.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axis.minorticks_off()
    axis.set_ylim(0, None)
    axis.set_xlabel("shared keys")
    axis.set_ylabel("time request by request\n/ time computed once")
    axis.set_title("above the line: computing once is faster")
    axis.legend(loc="upper left")
