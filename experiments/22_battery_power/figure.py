"""The detection matrix: share of seeds on which each rule fired, for each fault; and what fired on twins and controls."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from labcore.figures import COLOUR, headline, panels
from labcore.sealed import Sealed

FADE = LinearSegmentedColormap.from_list("fade", ["#f4ede8", COLOUR["faulty"]])


def draw(run: Sealed) -> dict[str, Figure]:
    """One panel for each interface: faults from left to right, rules downwards."""
    rules, faults = run.protocol.settings["rules"], run.protocol.settings["faults"]
    fired, right = run.array("matrix", "fired"), run.array("matrix", "right")
    table = run.table("matrix")
    seeds = len(run.protocol.seeds)
    wide = max(len(names) for names in faults.values())
    figure, axes = panels(*(0.125 * len(names) + 0.55 for names in rules.values()))
    start = 0
    for axis, interface in zip(axes, rules, strict=True):
        count = len(rules[interface])
        rows = [table["row"][i] for i, f in enumerate(table["fault"]) if f in faults[interface] and table["variant"][i] == "faulty"]
        cells = fired[rows, start : start + count].T.astype(float)
        shares = np.where(cells < 0, np.nan, cells / seeds)
        axis.imshow(shares, cmap=FADE, vmin=0, vmax=1, aspect="auto", extent=(-0.5, len(rows) - 0.5, count - 0.5, -0.5))
        for y, x in zip(*np.nonzero(cells < 0), strict=True):
            axis.plot([x - 0.2, x + 0.2], [y, y], color="#bbbbbb", linewidth=0.6)
        for y, x in zip(*np.nonzero(right[rows, start : start + count].T), strict=True):
            axis.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=COLOUR["reference"], linewidth=1.1))
        for y, x in zip(*np.nonzero(cells > 0), strict=True):
            axis.text(x, y, f"{100 * shares[y, x]:.0f}", ha="center", va="center", fontsize=6)
        axis.set_xticks(range(len(rows)), [name.removeprefix("BR-") for name in faults[interface]])
        axis.set_yticks(range(count), rules[interface], fontsize=6)
        axis.set_xlim(-0.5, wide - 0.5)
        axis.spines[["left", "bottom"]].set_visible(False)
        axis.tick_params(length=0)
        axis.grid(False)
        axis.set_title(f"faults of the {interface}, BR- ...")
        start += count
    alarms = sum(n for n, v in zip(table["seeds_fired"], table["variant"], strict=True) if v != "faulty")
    caught = sum(n == seeds for n, v in zip(table["seeds_right"], table["variant"], strict=True) if v == "faulty")
    total = sum(len(names) for names in faults.values())
    axes[-1].set_xlabel(
        "% of seeds on which the rule fired on the faulty variant;\nframed: a rule that looks at what is wrong; dash: does not apply",
        x=0.45,
    )
    headline(
        figure, f"{caught} of {total} faults caught on all {seeds} seeds for the right reason; {alarms} alarms on their twins and controls"
    )
    return {"matrix": figure}
