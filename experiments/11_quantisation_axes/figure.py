"""Two figures: which axis the scale follows and what an outlier costs; error over length and the range of FP8."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MORE, PAGE_WIDTH
from labcore.sealed import Sealed

NAMES = {"none": "no outlier", "clean": "clean", "key_channel": "key channel x40", "first_token": "key of token 0 x40"}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"axes": axes(run), "length": length(run)}


def spread(table: dict[str, list[Any]], column: str, **wanted: Any) -> np.ndarray:
    keep = [i for i in range(len(table["row"])) if all(table[k][i] == v for k, v in wanted.items())]
    return np.array([table[column][i] for i in keep])


def axes(run: Sealed) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.0), width_ratios=[1, 1.5])
    table = run.table("published")
    conditions = run.protocol.values("condition")
    looks = {"tensor": ("X", COLOUR["faulty"]), "row": ("^", COLOUR["control"]), "hybrid": ("o", COLOUR["correct"])}
    for shift, (method, (marker, colour)) in zip((-0.2, 0, 0.2), looks.items(), strict=True):
        for place, condition in enumerate(conditions):
            values = spread(table, "relative_error", condition=condition, method=method, target="KV", length=256)
            left.scatter(
                np.full(len(values), place + shift), values, marker=marker, color=colour, s=16, label=method if place == 0 else None
            )
    left.set_yscale("log")
    left.set_xlim(-0.5, len(conditions) - 0.5)
    left.set_xticks(range(len(conditions)), ["clean", "key channel\nx40", "value token\nx40"], fontsize=7)
    left.set_ylabel("relative L2 error of the output")
    left.set_title("INT8, K and V, 256 tokens")
    left.legend(title="one scale per", loc="upper left", title_fontsize=7)
    heat(right, run)
    figure.suptitle("The scale must follow the axis of the outlier", x=0.01, ha="left", fontsize=10)
    return figure


def heat(axis: Any, run: Sealed) -> None:
    table = run.table("wide")
    schemes, codes, outliers = (run.protocol.values(name) for name in ("scheme", "code", "outlier"))
    columns = [(outlier, code) for outlier in outliers for code in codes]
    grid = np.array(
        [
            [np.median(spread(table, "relative_error", scheme=scheme, outlier=outlier, code=code)) for outlier, code in columns]
            for scheme in schemes
        ]
    )
    axis.imshow(np.log10(grid), aspect="auto", cmap="cividis", vmin=-3, vmax=0.3)
    for (y, x), value in np.ndenumerate(grid):
        text = f"{value:.2f}" if value >= 0.095 else f"{value:.3f}"
        axis.text(x, y, text, ha="center", va="center", fontsize=5.5, color="white" if np.log10(value) < -1.2 else "black")
    axis.set_yticks(range(len(schemes)), [s.replace("_g", ", groups of ").replace("_first", ", token 0 apart") for s in schemes])
    axis.set_xticks(range(len(columns)), [code.replace("_asymmetric", "\nasym.") for _, code in columns], fontsize=6)
    for place, outlier in enumerate(outliers):
        axis.text(place * len(codes) + 1, -0.75, NAMES[outlier], ha="center", fontsize=7)
        if place:
            axis.axvline(place * len(codes) - 0.5, color="white", linewidth=2)
    axis.grid(False)
    axis.set_title("Median over seeds, 320 tokens\n ")


def length(run: Sealed) -> Figure:
    figure, axes_ = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.6))
    table = run.table("growth")
    looks = {
        "int8_token": ("o", "-", COLOUR["correct"]),
        "fp8_token": ("s", "-.", MORE[0]),
        "int4_token": ("^", "--", COLOUR["faulty"]),
        "int4_hybrid": ("v", ":", MORE[1]),
    }
    lengths = run.protocol.values("growth_length")
    for axis, sharpness, title in zip(axes_, run.protocol.values("sharpness"), ("Flat attention", "Peaked attention"), strict=False):
        for store, (marker, line, colour) in looks.items():
            points = np.array([spread(table, "relative_error", store=store, sharpness=sharpness, growth_length=n) for n in lengths])
            axis.plot(lengths, points.mean(axis=1), marker=marker, linestyle=line, color=colour, label=store.replace("_", ", "))
            axis.fill_between(lengths, points.min(axis=1), points.max(axis=1), color=colour, alpha=0.12, linewidth=0)
        axis.set_xscale("log", base=4)
        axis.set_xticks(lengths, [f"{n:,}" for n in lengths], fontsize=6)
        axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_ylim(3e-3, 2)
        axis.set_xlabel("tokens in the cache")
        axis.set_title(title)
    axes_[0].set_ylabel("relative L2 error of the output")
    axes_[1].legend(loc="lower right", ncols=2, fontsize=6)
    fp8(axes_[2], run)
    figure.suptitle("Relative error hardly follows the length of the cache; FP8 needs a computed scale", x=0.01, ha="left", fontsize=10)
    return figure


def fp8(axis: Any, run: Sealed) -> None:
    table = run.table("fp8")
    sizes = run.protocol.values("magnitude")
    for scale, marker, line, colour in (("computed", "o", "-", COLOUR["correct"]), ("unit", "X", "--", COLOUR["faulty"])):
        points = np.array([spread(table, "relative_error", fp8_scale=scale, magnitude=size) for size in sizes])
        axis.plot(range(len(sizes)), points.mean(axis=1), marker=marker, linestyle=line, color=colour, label=f"{scale} scale")
        axis.fill_between(range(len(sizes)), points.min(axis=1), points.max(axis=1), color=colour, alpha=0.15, linewidth=0)
    axis.set_xticks(range(len(sizes)), ["1/256", "1", "256"])
    axis.set_yscale("log")
    axis.set_ylim(3e-3, 2)
    axis.set_xlabel("size of K and V")
    axis.set_title("FP8 E4M3, per token")
    axis.legend(loc="upper center")
