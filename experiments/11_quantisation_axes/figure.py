"""Two figures: which axis the scale follows and what an outlier costs; error over length and the range of FP8."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MORE, headline, panels
from labcore.sealed import Sealed

NAMES = {"none": "no outlier", "clean": "clean", "key_channel": "key channel x40", "first_token": "token 0's key x40"}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"axes": axes(run), "length": length(run)}


def spread(table: dict[str, list[Any]], column: str, **wanted: Any) -> np.ndarray:
    keep = [i for i in range(len(table["row"])) if all(table[k][i] == v for k, v in wanted.items())]
    return np.array([table[column][i] for i in keep])


def axes(run: Sealed) -> Figure:
    figure, (marks, grid) = panels(2.3, 2.6)
    table = run.table("published")
    conditions = run.protocol.values("condition")
    looks = {"tensor": ("s", MORE[1]), "row": ("^", MORE[2]), "hybrid": ("o", MORE[0])}
    names = {"tensor": "tensor", "row": "row (token)", "hybrid": "hybrid: K per channel, V per token"}
    for shift, (method, (marker, colour)) in zip((-0.2, 0, 0.2), looks.items(), strict=True):
        for place, condition in enumerate(conditions):
            values = spread(table, "relative_error", condition=condition, method=method, target="KV", length=256)
            label = names[method] if place == 0 else None
            marks.scatter(np.full(len(values), place + shift), values, marker=marker, color=colour, s=16, label=label)
    marks.set_yscale("log")
    marks.set_xlim(-0.5, len(conditions) - 0.5)
    marks.set_xticks(range(len(conditions)), ["clean", "key channel x40", "value token x40"])
    marks.set_ylim(5e-3, 2)
    marks.set_ylabel("relative L2 error\nof the output")
    marks.set_title("INT8, K and V, 256 tokens; one scale per ...")
    marks.legend(loc="upper left")
    heat(grid, run)
    headline(figure, "The scale must follow the axis of the outlier")
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
        text = f"{value:.2f}" if value >= 0.095 else f"{value:.3f}".removeprefix("0")
        axis.text(x, y, text, ha="center", va="center", fontsize=6, color="white" if np.log10(value) < -1.2 else "black")
    axis.set_yticks(
        range(len(schemes)), [s.replace("_g", ", groups of ").replace("_first", ", token 0 apart") for s in schemes], fontsize=6
    )
    axis.set_xticks(range(len(columns)), [code.replace("_asymmetric", " asym.") for _, code in columns], rotation=90)
    for place, outlier in enumerate(outliers):
        axis.text(place * len(codes) + 1, -0.7, NAMES[outlier], ha="center", fontsize=6)
        if place:
            axis.axvline(place * len(codes) - 0.5, color="white", linewidth=2)
    axis.grid(False)
    axis.set_title("K and V, 320 tokens, median over seeds", pad=16)


def length(run: Sealed) -> Figure:
    figure, axes_ = panels(2.1, 2.2, 1.8)
    table = run.table("growth")
    looks = {
        "int8_token": ("o", "-", MORE[3]),
        "fp8_token": ("s", "-.", MORE[0]),
        "int4_token": ("^", "--", MORE[2]),
        "int4_hybrid": ("v", ":", MORE[1]),
    }
    lengths = run.protocol.values("growth_length")
    for axis, sharpness, title in zip(
        axes_, run.protocol.values("sharpness"), ("flat attention", "peaked attention (q times 4)"), strict=False
    ):
        for store, (marker, line, colour) in looks.items():
            points = np.array([spread(table, "relative_error", store=store, sharpness=sharpness, growth_length=n) for n in lengths])
            axis.plot(lengths, points.mean(axis=1), line, marker=marker, color=colour, linewidth=1, label=store.replace("_", ", "))
            axis.fill_between(lengths, points.min(axis=1), points.max(axis=1), color=colour, alpha=0.12, linewidth=0)
        axis.set_xscale("log", base=4)
        axis.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_ylim(3e-3, 2)
        axis.set_title(title)
    axes_[1].set_xlabel("tokens in the cache")
    axes_[0].legend(loc="upper center", ncols=2)
    fp8(axes_[2], run)
    for axis in axes_:
        axis.set_ylabel("relative L2 error\nof the output")
    headline(figure, "Relative error hardly follows the length of the cache; FP8 needs a computed scale")
    return figure


def fp8(axis: Any, run: Sealed) -> None:
    table = run.table("fp8")
    sizes = run.protocol.values("magnitude")
    for scale, marker, line, colour in (("computed", "o", "-", COLOUR["correct"]), ("unit", "X", "--", COLOUR["faulty"])):
        points = np.array([spread(table, "relative_error", fp8_scale=scale, magnitude=size) for size in sizes])
        axis.plot(range(len(sizes)), points.mean(axis=1), line, marker=marker, color=colour, linewidth=1, label=f"{scale} scale")
        axis.fill_between(range(len(sizes)), points.min(axis=1), points.max(axis=1), color=colour, alpha=0.15, linewidth=0)
    axis.set_xticks(range(len(sizes)), ["1/256", "1", "256"])
    axis.set_yscale("log")
    axis.set_ylim(3e-3, 2)
    axis.set_xlabel("size of K and V")
    axis.set_title("FP8 E4M3, a scale per token")
    axis.legend(loc="upper center")
