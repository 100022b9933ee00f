"""Five figures: races by enumeration, lines of defence, the printed class, the price of copying, real threads and processes."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, COLUMN_WIDTH, MORE, PAGE_WIDTH
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    """All figures."""
    drawn = {"races": races(run), "lines": lines(run), "printed": printed(run), "price": price(run), "real": real(run)}
    return {name: settled(figure) for name, figure in drawn.items()}


def settled(figure: Figure) -> Figure:
    """The layout worked out once and kept: a second drawing would move the axes a little."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def races(run: Sealed) -> Figure:
    """Share of all orders of the steps that do harm, per scenario."""
    table = run.table("races")
    names, share = table["scenario"], [h / n for h, n in zip(table["harmful"], table["all_orders"], strict=True)]
    figure, axis = plt.subplots(figsize=(PAGE_WIDTH, 4.6))
    place = np.arange(len(names))[::-1]
    colours = [COLOUR["faulty"] if s else COLOUR["correct"] for s in share]
    axis.barh(place, share, color=colours, height=0.7, hatch=None)
    axis.plot([0] * share.count(0.0), [p for p, s in zip(place, share, strict=True) if not s], "o", color=COLOUR["correct"])
    for p, s, harmful, total in zip(place, share, table["harmful"], table["all_orders"], strict=True):
        axis.annotate(f"{harmful:,} of {total:,}", (s, p), xytext=(6, 0), textcoords="offset points", va="center", fontsize=6)
    axis.set_yticks(place, [name.replace("_", " ") for name in names], fontsize=6.5)
    axis.set(xlim=(0, 1.18), xlabel="share of all interleavings that do harm (dots: exactly 0)", ylim=(-0.7, len(names) - 0.3))
    axis.grid(axis="y", visible=False)
    faulty, cured = sum(s > 0 for s in share), sum(s == 0 for s in share)
    axis.set_title(f"{faulty} scenarios go wrong in some order, {cured} (locks, references, one counter) in none")
    return figure


def lines(run: Sealed) -> Figure:
    """Which combination of lines lets another's rows through, under which fault."""
    table = run.table("lines")
    faults = run.protocol.values("fault")
    combos = [(m, p, c) for m in (True, False) for p in (True, False) for c in (True, False)]
    grid = np.zeros((len(combos), len(faults)))
    slots = np.zeros_like(grid)
    for mask, paged, counted, fault, change, error, foreign in zip(
        *(table[name] for name in ("masked", "paged", "counted", "fault", "change", "error", "foreign_slots")), strict=True
    ):
        at = combos.index((mask, paged, counted)), faults.index(fault)
        grid[at] = max(grid[at], 2.0 if change > 0 else 1.0 if error > 1e-9 else 0.0)
        slots[at] = max(slots[at], foreign)
    figure, axis = plt.subplots(figsize=(PAGE_WIDTH * 0.72, 2.9))
    axis.imshow(grid, cmap=plt.matplotlib.colors.ListedColormap(["#EAF2F8", "#F0E442", COLOUR["faulty"]]), vmin=0, vmax=2, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        text = {0.0: "own rows only", 1.0: "own rows lost", 2.0: f"{int(slots[row, column])} foreign"}[value]
        axis.text(column, row, text, ha="center", va="center", fontsize=6.5)
    labels = [" + ".join(n for n, on in zip(("mask", "pages", "count"), combo, strict=True) if on) or "nothing" for combo in combos]
    axis.set_yticks(range(len(combos)), labels)
    axis.set_xticks(range(len(faults)), [fault.replace("_", "\n") for fault in faults])
    axis.grid(visible=False)
    values = run.audit["claims"]["A60"]["values"] if run.audit.get("claims") else {"mask": 0, "paging": 0, "counting": 0}
    axis.set(xlabel="planted fault", ylabel="lines of defence that are on")
    stops = f"mask {values['mask']}, counting {values['counting']}, pages {values['paging']}"
    axis.set_title(f"Cases that one line alone stops (first four\nfaults, 3 seeds): {stops}")
    return figure


def printed(run: Sealed) -> Figure:
    """Defects of the printed class by probe, as numbers; the pool under the same commands has none."""
    table = run.table("printed")
    kinds = ["lost", "inflated", "half_done", "accepted_nonsense", "future_shown", "unwritten_shown", "unshared_shown"]
    probes = run.protocol.values("probe")
    grid = np.array([[table[kind][2 * row] for kind in kinds] for row in range(len(probes))])
    ours = sum(table[kind][2 * row + 1] for kind in kinds for row in range(len(probes)))
    figure, axis = plt.subplots(figsize=(PAGE_WIDTH * 0.78, 3.4))
    axis.imshow(np.minimum(grid, 4), cmap="Oranges", vmin=0, vmax=8, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        axis.text(column, row, value or "·", ha="center", va="center", fontsize=7)
    names = [
        "blocks\nlost",
        "counts\ntoo high",
        "half done\non error",
        "nonsense\naccepted",
        "future\nshown",
        "unwritten\nshown",
        "unshared\nshown",
    ]
    axis.set_xticks(range(len(kinds)), names)
    axis.set_yticks(range(len(probes)), [probe.replace("_", " ") for probe in probes])
    axis.grid(visible=False)
    hidden, cells = sum(table["hidden_cells"][0::2]), sum(table["cells"][0::2])
    lost = grid[:, 0].sum()
    axis.set_title(
        f"Printed class: {lost} blocks lost, {hidden} of {cells} mask cells hidden,\nthe pool under the same calls: {ours} defects"
    )
    return figure


def price(run: Sealed) -> Figure:
    """Copied slots per saved row over the edit rate, a line a block size."""
    table = run.table("price")
    rates, sizes = run.protocol.values("edits_permille"), run.protocol.values("block_size")
    figure, axis = plt.subplots(figsize=(COLUMN_WIDTH, 3.1))
    styles: list[Any] = ["-", "--", "-.", ":"] * 2
    for number, size in enumerate(sizes):
        mean = []
        for rate in rates:
            picked = [
                c / s
                for b, r, c, s in zip(*(table[n] for n in ("block_size", "edits_permille", "copied_slots", "saved_rows")), strict=True)
                if (b, r) == (size, rate)
            ]
            mean.append(sum(picked) / len(picked))
        shade = plt.get_cmap("cividis")(number / len(sizes))
        axis.plot(range(len(rates)), mean, linestyle=styles[number], marker="o", markersize=2.5, color=shade, label=f"{size}")
    axis.axhline(1, color=COLOUR["faulty"], linewidth=1)
    axis.annotate("copied as much as saved", (0.02, 1.02), xycoords=("axes fraction", "data"), fontsize=6, color=COLOUR["faulty"])
    axis.set_xticks(range(len(rates)), [f"{rate / 10:g}" for rate in rates])
    axis.set(xlabel="edits of the prefix per 100 decoded tokens", ylabel="slots copied / rows saved", ylim=(-0.03, 1.45))
    figure.legend(title="block size", ncols=4, loc="outside lower center", title_fontsize=7)
    axis.set_title("Copying eats sharing at high edit rates,\nand at once where a block outgrows the prefix")
    return figure


def real(run: Sealed) -> Figure:
    """Missing additions of real workers, and rows and tables torn, lost or foreign."""
    rows = list(run.protocol.rows("real_counter"))
    missing = run.array("real_counter", "missing")
    share = 2 * run.protocol.settings["race_steps"]
    runners, locks = run.protocol.values("runner"), run.protocol.values("lock")
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.7), width_ratios=[3, 2])
    for number, (lock, marker) in enumerate(zip(locks, "Xos", strict=True)):
        for style, fill in (("inline", "none"), ("calls", "full")):
            points = [
                (runners.index(case["runner"]) + 0.22 * (number - 1) + (0.07 if style == "calls" else -0.07), missing[row] / share)
                for row, case in enumerate(rows)
                if case["lock"] == lock and case["style"] == style
            ]
            colour = [COLOUR["faulty"], MORE[0], COLOUR["correct"]][number]
            name = f"{lock.replace('_', ' ')}, {style}"
            left.plot(*zip(*points, strict=True), linestyle="none", marker=marker, fillstyle=fill, color=colour, label=name)
    left.set_xticks(range(len(runners)), ["threads", "threads,\nshort turns", "processes,\nshared", "processes,\nprivate"])
    left.set(ylabel="share of additions missing", ylim=(-0.05, 1.55), yticks=[0, 0.5, 1])
    left.legend(ncols=3, loc="upper center", fontsize=6)
    left.set_title("A thread lock does not reach across processes")
    cases = list(run.protocol.rows("real_rows"))
    data = {name: run.array("real_rows", name) for name in ("torn", "lost", "table_foreign")}
    groups = [(team, width) for team in run.protocol.values("team") for width in run.protocol.values("width")]
    for number, (protected, marker) in enumerate(((False, "X"), (True, "o"))):
        for shift, library in ((-0.08, "numpy"), (0.08, "torch")):
            points = [
                (groups.index((case["team"], case["width"])) + shift + 0.02 * number, 1 + sum(int(data[name][row]) for name in data))
                for row, case in enumerate(cases)
                if case["protected"] == protected and case["library"] == library
            ]
            colour = COLOUR["correct"] if protected else COLOUR["faulty"]
            label = f"{library}, {'lock' if protected else 'no lock'}"
            fill = "none" if library == "numpy" else "full"
            right.plot(*zip(*points, strict=True), linestyle="none", marker=marker, fillstyle=fill, color=colour, label=label)
    right.set_yscale("log")
    right.set_ylim(0.7, 10 ** (np.log10(max(1 + sum(data[n].max() for n in data), 10)) + 1.3))
    right.set_xticks(range(len(groups)), [f"{team}\n{width:,}" for team, width in groups])
    right.set(ylabel="1 + bad read-backs", xlabel="workers, numbers in the row")
    right.legend(ncols=2, loc="upper center", fontsize=6)
    right.set_title("One row and table in place")
    return figure
