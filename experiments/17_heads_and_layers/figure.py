"""Two figures: where a pollution goes in heads and layers; what probes find and what compact caches save."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MORE, PAGE_WIDTH
from labcore.sealed import Sealed

KINDS = {"random": ("random weights", "-", MORE[0]), "trained_like": ("trained-like weights", "--", MORE[1])}
DEPTHS = (4, 8, 12)
MARKS = ("o", "s", "^", "v")


def draw(run: Sealed) -> dict[str, Figure]:
    return {"paths": paths(run), "probes_and_bytes": probes_and_bytes(run)}


def chosen(run: Sealed, block: str, **wanted: Any) -> list[int]:
    return [i for i, row in enumerate(run.protocol.rows(block)) if all(row[name] == value for name, value in wanted.items())]


def paths(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.8), width_ratios=[1.25, 1, 1])
    groups = run.protocol.values("kv_heads")
    error = run.array("heads", "head_error")
    lines, names = [], []
    for kv_heads in groups:
        rows = chosen(run, "heads", kv_heads=kv_heads)
        for later, text in ((0, "same layer"), (1, "next layer")):
            lines.append(error[rows, :, later].mean(axis=(0, 1)))
            names.append(f"{kv_heads} KV heads, {text}" if later == 0 else text)
    grid = np.array(lines)
    image = left.imshow(np.where(grid == 0, np.nan, grid), aspect="auto", cmap="cividis", vmin=0)
    figure.colorbar(image, ax=left, pad=0.02, aspect=30).set_label("mean error", size=6, labelpad=2)
    left.set_facecolor("white")
    left.set_yticks(range(len(names)), names, fontsize=6)
    for edge in range(1, len(groups)):
        left.axhline(2 * edge - 0.5, color="black", linewidth=0.8)
    left.set_xticks(range(0, 16, 5))
    left.set_xlabel("query head")
    left.grid(False)
    left.set_title("One KV head polluted\n(white: exactly 0)", fontsize=8)
    states, clean = run.array("trace_12", "error"), run.array("trace_12", "clean_norm")
    for kind, (label, line, colour) in KINDS.items():
        rows = chosen(run, "trace_12", weights=kind, scope="block", kv_heads=4)
        for place, fault in enumerate((0, 4, 8)):
            mean = states[rows, fault].mean(axis=0)
            text = label if place == 0 else None
            middle.plot(range(fault, 12), mean[fault:], line, color=colour, marker=MARKS[place], markersize=3, label=text)
        relative = (states[rows, :, -1] / clean[rows, -1:]).mean(axis=0)
        right.plot(range(12), relative, line, color=colour, marker="o", markersize=3, label=label)
    middle.set_yscale("log")
    middle.set_ylim(0.3, 20)
    middle.set_xlabel("layer of the probe")
    middle.set_ylabel("size of the error")
    middle.set_title("A block polluted at\nlayer 0, 4 or 8", fontsize=8)
    middle.legend(loc="upper left")
    right.set_ylim(0, None)
    right.set_xlabel("polluted layer")
    right.set_ylabel("error / state at the output")
    right.set_title("The same fault at\neach layer", fontsize=8)
    title = "A head's pollution reaches its group at once and all heads one layer later; it grows slowly"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def apart(places: list[float], gap: float = 1.36) -> list[float]:
    """Ascending heights for labels at ascending places of a logarithmic axis, each at least a factor above the one before."""
    heights: list[float] = []
    for place in places:
        heights.append(max(place, heights[-1] * gap) if heights else place)
    return heights


def probes_and_bytes(run: Sealed) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.8))
    sizes = run.protocol.values("size")
    looks = [
        ("right_exact", "foreign", "exact clean reference", "o", "-", COLOUR["correct"]),
        ("right_noisy", "foreign", "reference with 0.1 % noise", "s", "--", MORE[0]),
        ("right_none", "noise", "no reference, loud noise", "^", "-.", MORE[1]),
        ("right_none", "foreign", "no reference, foreign state", "X", ":", COLOUR["faulty"]),
    ]
    for name, state, label, marker, line, colour in looks:
        shares = []
        for size in sizes:
            tables = [(run.table(f"probes_{depth}"), chosen(run, f"probes_{depth}", state=state, size=size)) for depth in DEPTHS]
            hits, faults = (sum(table[column][i] for table, rows in tables for i in rows) for column in (name, "faults"))
            shares.append(hits / faults)
        left.plot(sizes, shares, line, marker=marker, color=colour, label=label)
    chance = 3 / sum(DEPTHS)  # a guess is right once a trace
    left.axhline(chance, color=COLOUR["control"], linewidth=0.8)
    left.annotate("guess", (sizes[0], chance), fontsize=6, va="bottom", color="#555555")
    left.set_xscale("log")
    left.set_ylim(-0.03, 1.08)
    left.set_xlabel("share of the block that is not its own")
    left.set_ylabel("polluted layer named rightly")
    left.set_title("Probes at every layer")
    left.legend(loc="center left", bbox_to_anchor=(0.0, 0.62), fontsize=6)
    table, private = run.table("bytes"), run.protocol.values("private")
    layouts = run.protocol.values("layout")
    colours = dict.fromkeys(layouts, COLOUR["control"]) | {"separate": "#000000", "shared": COLOUR["faulty"]}
    colours |= {"shared_gqa": COLOUR["correct"], "shared_gqa_int4": COLOUR["correct"]}
    ends: list[tuple[float, str]] = []
    for place, layout in enumerate(layouts):
        size = [table["kv_bytes"][i] / 1e6 for i in chosen(run, "bytes", layout=layout, requests=32)]
        right.plot(private, size, "-" if layout in ("separate", "shared") else "--", color=colours[layout], marker="osv^<>DPX"[place])
        ends.append((size[-1], layout.replace("_", " ")))
    for (size_at, name), label_at in zip(sorted(ends), apart([size_at for size_at, _ in sorted(ends)]), strict=True):
        arrow = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
        right.annotate(name, (private[-1], size_at), xytext=(private[-1] * 1.6, label_at), fontsize=5.5, va="center", arrowprops=arrow)
    right.set_xscale("log", base=2)
    right.set_xticks(private, [str(n) for n in private])
    right.minorticks_off()
    right.set_xlim(None, private[-1] * 9)
    right.set_yscale("log")
    right.set_xlabel("private tokens a request")
    right.set_ylabel("MB of K and V")
    right.set_title("32 requests, 512 shared tokens")
    title = "Probes need a clean reference; sharing wins on short private parts, compact K and V on long"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure
