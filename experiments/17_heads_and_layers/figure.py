"""Two figures: where a pollution goes in heads and layers; what probes find and what compact caches save."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, MORE, headline, panels
from labcore.sealed import Sealed

KINDS = {"random": ("random", "-", MORE[0]), "trained_like": ("trained-like", "--", MORE[1])}
DEPTHS = (4, 8, 12)
MARKS = ("o", "s", "^", "v")


def draw(run: Sealed) -> dict[str, Figure]:
    return {"paths": paths(run), "probes_and_bytes": probes_and_bytes(run)}


def chosen(run: Sealed, block: str, **wanted: Any) -> list[int]:
    return [i for i, row in enumerate(run.protocol.rows(block)) if all(row[name] == value for name, value in wanted.items())]


def paths(run: Sealed) -> Figure:
    figure, (heads, growth, layers) = panels(2.9, 1.9, 1.8)
    groups = run.protocol.values("kv_heads")
    error = run.array("heads", "head_error")
    lines, names = [], []
    for kv_heads in groups:
        rows = chosen(run, "heads", kv_heads=kv_heads)
        for later, text in ((0, "same layer"), (1, "next layer")):
            lines.append(error[rows, :, later].mean(axis=(0, 1)))
            names.append(f"{kv_heads} KV head{'s' * (kv_heads > 1)}, {text}" if later == 0 else text)
    grid = np.array(lines)
    image = heads.imshow(np.where(grid == 0, np.nan, grid), aspect="auto", cmap="cividis", vmin=0)
    figure.colorbar(image, ax=heads, location="top", pad=0.02, aspect=40).set_label("mean error (white: exactly 0)")
    heads.set_facecolor("white")
    heads.set_yticks(range(len(names)), names, fontsize=6)
    for edge in range(1, len(groups)):
        heads.axhline(2 * edge - 0.5, color="black", linewidth=0.8)
    heads.set_xticks(range(0, 16, 5))
    heads.set_xlabel("query head, one KV head polluted")
    heads.grid(False)
    states, clean = run.array("trace_12", "error"), run.array("trace_12", "clean_norm")
    for kind, (label, line, colour) in KINDS.items():
        rows = chosen(run, "trace_12", weights=kind, scope="block", kv_heads=4)
        for place, fault in enumerate((0, 4, 8)):
            mean = states[rows, fault].mean(axis=0)
            text = label if place == 0 else None
            growth.plot(range(fault, 12), mean[fault:], line, color=colour, linewidth=1, marker=MARKS[place], markersize=3, label=text)
        relative = (states[rows, :, -1] / clean[rows, -1:]).mean(axis=0)
        layers.plot(range(12), relative, line, color=colour, linewidth=1, marker="o", markersize=3, label=label)
    growth.set_yscale("log")
    growth.set_ylim(0.3, 20)
    growth.set_xticks(range(0, 12, 4))
    growth.set_xlabel("layer of the probe")
    growth.set_ylabel("size of the error")
    growth.set_title("a block polluted at layer 0, 4 or 8")
    growth.legend(loc="upper right", ncols=2, columnspacing=1.0)
    layers.set_ylim(0, None)
    layers.set_xticks(range(0, 12, 4))
    layers.set_xlabel("polluted layer")
    layers.set_ylabel("error / state\nat the output")
    layers.set_title("the same block polluted at each layer")
    headline(figure, "A head's pollution reaches its group at once and all heads one layer later; it grows slowly")
    return figure


def apart(places: list[float], gap: float = 1.5) -> list[float]:
    """Ascending heights for labels at ascending places of a logarithmic axis, each at least a factor above the one before."""
    heights: list[float] = []
    for place in places:
        heights.append(max(place, heights[-1] * gap) if heights else place)
    return heights


def probes_and_bytes(run: Sealed) -> Figure:
    figure, (probes, weights) = panels(2.5, 2.7)
    sizes = run.protocol.values("size")
    looks = [
        ("right_exact", "foreign", "exact clean reference", "o", "-", MORE[3]),
        ("right_noisy", "foreign", "reference with 0.1 % noise", "s", "--", MORE[0]),
        ("right_none", "noise", "no reference, loud noise", "^", "-.", MORE[1]),
        ("right_none", "foreign", "no reference, foreign state", "X", ":", MORE[2]),
    ]
    for name, state, label, marker, line, colour in looks:
        shares = []
        for size in sizes:
            tables = [(run.table(f"probes_{depth}"), chosen(run, f"probes_{depth}", state=state, size=size)) for depth in DEPTHS]
            hits, faults = (sum(table[column][i] for table, rows in tables for i in rows) for column in (name, "faults"))
            shares.append(hits / faults)
        probes.plot(sizes, shares, line, marker=marker, color=colour, linewidth=1, label=label)
    chance = 3 / sum(DEPTHS)  # a guess is right once a trace
    probes.axhline(chance, color=GUIDE, linewidth=0.6)
    probes.annotate(
        "by guessing", (sizes[-1], chance), (0, 2), textcoords="offset points", fontsize=6, va="bottom", ha="right", color=GUIDE
    )
    probes.set_xscale("log")
    probes.set_ylim(-0.05, 1.08)
    probes.set_xlabel("share of K and V that is not the layer's own")
    probes.set_ylabel("polluted layer\nnamed rightly")
    probes.set_title("probes at every layer")
    probes.legend(loc="center left", bbox_to_anchor=(0.0, 0.62))
    table, private = run.table("bytes"), run.protocol.values("private")
    layouts = run.protocol.values("layout")
    colours = dict.fromkeys(layouts, MORE[0]) | {"separate": COLOUR["reference"], "shared": MORE[1]}
    colours |= {"shared_gqa": MORE[2], "shared_gqa_int4": MORE[2]}
    ends: list[tuple[float, str]] = []
    for place, layout in enumerate(layouts):
        size = [table["kv_bytes"][i] / 1e6 for i in chosen(run, "bytes", layout=layout, requests=32)]
        line = "-" if layout in ("separate", "shared") else "--"
        weights.plot(private, size, line, color=colours[layout], linewidth=1, marker="osv^<>DPX"[place])
        ends.append((size[-1], layout.replace("_", " ")))
    for (size_at, name), label_at in zip(sorted(ends), apart([size_at for size_at, _ in sorted(ends)]), strict=True):
        arrow = {"arrowstyle": "-", "color": GUIDE, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
        weights.annotate(name, (private[-1], size_at), xytext=(private[-1] * 1.6, label_at), fontsize=6, va="center", arrowprops=arrow)
    weights.set_xscale("log", base=2)
    weights.set_xticks(private, [str(n) for n in private])
    weights.minorticks_off()
    weights.set_xlim(None, private[-1] * 11)
    weights.set_yscale("log")
    weights.set_xlabel("private tokens a request")
    weights.set_ylabel("MB of K and V")
    weights.set_title("32 requests, 512 shared tokens")
    headline(figure, "Probes need a clean reference; sharing wins on short private parts, compact K and V on long")
    return figure
