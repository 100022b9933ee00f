"""Five figures: races by enumeration, lines of defence, the printed class, the price of copying, real threads and processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from labcore.figures import COLOUR, GUIDE, MORE, headline, panels, shades
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    """All figures."""
    return {"races": races(run), "lines": lines(run), "printed": printed(run), "price": price(run), "real": real(run)}


def races(run: Sealed) -> Figure:
    """Share of all orders of the steps that do harm, per scenario."""
    table = run.table("races")
    names, share = table["scenario"], [h / n for h, n in zip(table["harmful"], table["all_orders"], strict=True)]
    figure, (axis,) = panels(4.8)
    place = np.arange(len(names))[::-1]
    colours = [COLOUR["faulty"] if s else COLOUR["correct"] for s in share]
    axis.barh(place, share, color=colours, height=0.7, hatch=None)
    axis.plot([0] * share.count(0.0), [p for p, s in zip(place, share, strict=True) if not s], "o", color=COLOUR["correct"])
    for p, s, harmful, total in zip(place, share, table["harmful"], table["all_orders"], strict=True):
        axis.annotate(f"{harmful:,} of {total:,}", (s, p), xytext=(6, 0), textcoords="offset points", va="center", fontsize=6)
    axis.set_yticks(place, [name.replace("_", " ") for name in names], fontsize=6)
    axis.set(xlim=(0, 1.28), xlabel="share of all orders that do harm (dot: 0)", ylim=(-0.7, len(names) - 0.3))
    axis.set_xticks([0, 0.5, 1])
    axis.grid(axis="y", visible=False)
    faulty, cured = sum(s > 0 for s in share), sum(s == 0 for s in share)
    headline(figure, f"{faulty} scenarios go wrong in some order, {cured} (locks, references, one counter) in none")
    return figure


def lines(run: Sealed) -> Figure:
    """Which combination of lines lets another's rows through, under which fault."""
    table = run.table("lines")
    faults = run.protocol.values("fault")
    combos = [(m, p, c) for m in (True, False) for p in (True, False) for c in (True, False)]
    grid = np.zeros((len(combos), len(faults)))
    slots = np.zeros_like(grid)
    moved = {}
    for seed, mask, paged, counted, fault, change, error, foreign in zip(
        *(table[name] for name in ("seed", "masked", "paged", "counted", "fault", "change", "error", "foreign_slots")), strict=True
    ):
        at = combos.index((mask, paged, counted)), faults.index(fault)
        grid[at] = max(grid[at], 2.0 if change > 0 else 1.0 if error > 1e-9 else 0.0)
        slots[at] = max(slots[at], foreign)
        moved[seed, fault, (mask, paged, counted)] = change > 0
    figure, (axis,) = panels(3.3)
    looks = {"A reads its own rows only": "#EAF2F8", "some of A's rows are lost": MORE[4], "A reads so many slots of B": COLOUR["faulty"]}
    axis.imshow(grid, cmap=ListedColormap(list(looks.values())), vmin=0, vmax=2, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        text = {0.0: "-", 1.0: "lost", 2.0: f"{int(slots[row, column])}"}[value]
        axis.text(column, row, text, ha="center", va="center")
    labels = [" + ".join(n for n, on in zip(("mask", "pages", "count"), combo, strict=True) if on) or "nothing" for combo in combos]
    axis.set_yticks(range(len(combos)), labels)
    axis.set_xticks(range(len(faults)), [fault.replace("_", "\n") for fault in faults])
    axis.grid(visible=False)
    axis.set(xlabel="planted fault", ylabel="lines of defence that are on")
    handles = [Patch(facecolor=colour, edgecolor="#999999", label=name) for name, colour in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    everything = (True, True, True)
    alone = [
        sum(
            not moved[seed, fault, everything] and moved[seed, fault, tuple(place != off for place in range(3))]
            for seed in run.protocol.seeds
            for fault in faults
            if fault != "mask_foreign"  # it came later and stands beside
        )
        for off in range(3)
    ]
    headline(
        figure, f"Cases (first four faults, all seeds) that one line alone stops: mask {alone[0]}, counting {alone[2]}, pages {alone[1]}"
    )
    return figure


def printed(run: Sealed) -> Figure:
    """Defects of the printed class by probe, as numbers; the pool under the same commands has none."""
    table = run.table("printed")
    kinds = ["lost", "inflated", "half_done", "accepted_nonsense", "future_shown", "unwritten_shown", "unshared_shown"]
    probes = run.protocol.values("probe")
    grid = np.array([[table[kind][2 * row] for kind in kinds] for row in range(len(probes))])
    ours = sum(table[kind][2 * row + 1] for kind in kinds for row in range(len(probes)))
    figure, (axis,) = panels(3.5)
    axis.imshow(np.minimum(grid, 4), cmap="Oranges", vmin=0, vmax=8, aspect="auto")
    for (row, column), value in np.ndenumerate(grid):
        axis.text(column, row, value or "·", ha="center", va="center", fontsize=6.5)
    names = [
        "blocks\nlost",
        "counts\ntoo high",
        "half done\non error",
        "nonsense\naccepted",
        "future\nshown",
        "unwritten\nshown",
        "unshared\nshown",
    ]
    axis.set_xticks(range(len(kinds)), names, rotation=90)
    axis.set_yticks(range(len(probes)), [probe.replace("_", " ") for probe in probes], fontsize=6.5)
    axis.grid(visible=False)
    hidden, cells = sum(table["hidden_cells"][0::2]), sum(table["cells"][0::2])
    lost = grid[:, 0].sum()
    headline(
        figure,
        f"The printed class loses {lost} blocks and hides {hidden} of {cells} mask cells; the pool under the same calls: {ours} defects",
    )
    return figure


def price(run: Sealed) -> Figure:
    """Copied slots per saved row over the edit rate, a line a block size."""
    table = run.table("price")
    rates, sizes = run.protocol.values("edits_permille"), run.protocol.values("block_size")
    figure, (axis,) = panels(3.1)
    styles: list[Any] = ["-", "--", "-.", ":"] * 2
    for size, line, shade in zip(sizes, styles, shades(len(sizes)), strict=True):
        mean = []
        for rate in rates:
            picked = [
                c / s
                for b, r, c, s in zip(*(table[n] for n in ("block_size", "edits_permille", "copied_slots", "saved_rows")), strict=True)
                if (b, r) == (size, rate)
            ]
            mean.append(sum(picked) / len(picked))
        axis.plot(range(len(rates)), mean, linestyle=line, linewidth=1.2, marker="o", markersize=2.5, color=shade, label=f"{size}")
    axis.axhline(1, color=GUIDE, linewidth=0.8)
    axis.annotate("copied as much as saved", (0.02, 1.02), xycoords=("axes fraction", "data"), fontsize=6, color=GUIDE)
    axis.set_xticks(range(len(rates)), [f"{rate / 10:g}" for rate in rates])
    axis.set(xlabel="edits of the prefix per 100 decoded tokens", ylabel="slots copied / rows saved", ylim=(-0.03, 1.45))
    figure.legend(title="block size", ncols=4, loc="outside lower center")
    headline(figure, "Copying eats what sharing saves at high edit rates, and at once where a block outgrows the prefix")
    return figure


def real(run: Sealed) -> Figure:
    """Missing additions of real workers, and rows and tables torn, lost or foreign."""
    rows = list(run.protocol.rows("real_counter"))
    missing = run.array("real_counter", "missing")
    share = 2 * run.protocol.settings["race_steps"]
    runners, locks = run.protocol.values("runner"), run.protocol.values("lock")
    figure, (counter, places) = panels(2.4, 2.4)
    looks = {
        "none": ("X", COLOUR["faulty"], "no lock"),
        "thread_lock": ("v", MORE[0], "thread lock"),
        "process_lock": ("o", COLOUR["correct"], "process lock"),
    }
    for number, lock in enumerate(locks):
        marker, colour, name = looks[lock]
        for style, fill in (("inline", "none"), ("calls", "full")):
            points = [
                (runners.index(case["runner"]) + 0.24 * (number - 1) + (0.07 if style == "calls" else -0.07), missing[row] / share)
                for row, case in enumerate(rows)
                if case["lock"] == lock and case["style"] == style
            ]
            counter.plot(
                *zip(*points, strict=True), linestyle="none", marker=marker, fillstyle=fill, color=colour, label=f"{name}, {style}"
            )
    counter.set_xticks(range(len(runners)), ["threads", "threads,\nshort turns", "processes,\nshared", "processes,\nprivate"])
    counter.set(ylabel="share of additions missing", ylim=(-0.05, 1.6), yticks=[0, 0.5, 1])
    counter.legend(ncols=3, loc="upper center", fontsize=6, columnspacing=0.8, handletextpad=0.2)
    counter.set_title("a thread lock does not reach across processes")
    cases = list(run.protocol.rows("real_rows"))
    data = {name: run.array("real_rows", name) for name in ("torn", "lost", "table_foreign")}
    bad = np.array([1 + sum(int(data[name][row]) for name in data) for row in range(len(cases))])
    groups = [(team, width) for team in run.protocol.values("team") for width in run.protocol.values("width")]
    for number, (protected, marker) in enumerate(((False, "X"), (True, "o"))):
        for shift, library in ((-0.1, "numpy"), (0.1, "torch")):
            points = [
                (groups.index((case["team"], case["width"])) + shift + 0.02 * number, bad[row])
                for row, case in enumerate(cases)
                if case["protected"] == protected and case["library"] == library
            ]
            colour = COLOUR["correct"] if protected else COLOUR["faulty"]
            label = f"{library}, {'lock' if protected else 'no lock'}"
            fill = "none" if library == "numpy" else "full"
            places.plot(*zip(*points, strict=True), linestyle="none", marker=marker, fillstyle=fill, color=colour, label=label)
    places.set_yscale("log")
    places.set_ylim(0.6, 10 ** (np.log10(max(bad.max(), 10)) + 1.5))
    places.set_xticks(range(len(groups)), [f"{team}\n{width:,}" for team, width in groups])
    places.set(ylabel="1 + bad read-backs", xlabel="workers, numbers in the row")
    places.legend(ncols=2, loc="upper center")
    places.set_title("one row and one table written in place")
    locked = max(int(b) - 1 for b, case in zip(bad, cases, strict=True) if case["protected"])
    headline(figure, f"Without a lock that reaches all workers, additions, rows and tables are lost; with one, {locked} read-backs are bad")
    return figure
