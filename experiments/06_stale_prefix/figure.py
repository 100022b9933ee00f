"""Errors of blind and of guarded reuse, and what each component of the key prevents."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from labcore.figures import COLOUR, headline, panels, with_zero, zero_log_axis
from labcore.sealed import Sealed

FEW = 31  # above that many seeds the figure shows spreads


def draw(run: Sealed) -> dict[str, Figure]:
    """errors: block published. key: blocks probes and dropped."""
    return {"errors": errors(run), "key": key(run)}


def errors(run: Sealed) -> Figure:
    """Largest error by condition and seed."""
    table = {name: np.array(values) for name, values in run.table("published").items()}
    conditions = run.protocol.values("condition")
    seeds = len(run.protocol.seeds)
    figure, (axis,) = panels(3.2)
    zero_log_axis(axis, [*table["unchecked_error"], *table["guarded_error"]])
    for place, condition in enumerate(conditions):
        here = table["condition"] == condition
        blind, guarded = table["unchecked_error"][here], table["guarded_error"][here]
        hit = bool(table["reused"][here].all())
        if seeds <= FEW:
            spread = np.linspace(-0.13, 0.13, seeds) if seeds > 1 else np.zeros(1)
            fill = COLOUR["correct"] if hit else "white"
            axis.plot(place + 0.2 + spread, with_zero(list(guarded)), "o", color=COLOUR["correct"], mfc=fill)
            axis.plot(place - 0.2 + spread, with_zero(list(blind)), "x", color=COLOUR["faulty"])
        else:
            for values, shift, name in ((guarded, 0.12, "correct"), (blind, -0.12, "faulty")):
                low, high = with_zero([values.min(), values.max()])
                axis.plot([place + shift] * 2, [low, high], "-" if name == "correct" else "--", color=COLOUR[name], linewidth=2)
                fill = COLOUR[name] if name == "faulty" or hit else "white"
                marker = "o" if name == "correct" else "x"
                axis.plot([place + shift], with_zero([float(np.median(values))]), marker, color=COLOUR[name], mfc=fill)
    axis.set_xticks(range(len(conditions)), [name.replace("-", "\n", 1) for name in conditions], fontsize=6)
    axis.set_xlim(-0.6, len(conditions) + 0.5)  # room for the zero line's label
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("largest error of a suffix state (1)")
    headline(figure, title(table))
    marks = [
        Line2D([], [], linestyle="", marker="x", color=COLOUR["faulty"], label="unchecked"),
        Line2D([], [], linestyle="", marker="o", color=COLOUR["correct"], label="guarded: continued"),
        Line2D([], [], linestyle="", marker="o", color=COLOUR["correct"], mfc="white", label="guarded: recomputed"),
    ]
    axis.legend(handles=marks, loc="center", bbox_to_anchor=(0.5, 0.42))
    return figure


def title(table: dict[str, np.ndarray]) -> str:
    """The finding, from the numbers."""
    stale = table["unchecked_error"][np.isin(table["condition"], ["edited-prefix", "different-weights", "different-window"])]
    scope = table["unchecked_error"][table["condition"] == "different-scope"]
    first = f"Stale caches err by {stale.min():.2g} to {stale.max():.2g}, the keyed store by {table['guarded_error'].max():.1g}"
    return f"{first}; another scope errs by {scope.max():.1g} and is refused all the same"


def key(run: Sealed) -> Figure:
    """Component left out x probe: recomputed, reused rightly, reused wrongly on some network."""
    dropped, probed = run.table("dropped"), run.table("probes")
    probes, components = run.protocol.values("probe"), run.protocol.values("component")
    error = dict(zip(zip(probed["network"], probed["probe"], strict=True), probed["unchecked_error"], strict=True))
    grid = np.zeros((len(components), len(probes)))
    for network, component, probe, reused in zip(*(dropped[name] for name in ("network", "component", "probe", "reused")), strict=True):
        wrong = error[network, probe] > run.protocol.tolerance or probe == "different-scope"
        cell = components.index(component), probes.index(probe)
        grid[cell] = max(grid[cell], reused * (1 + wrong))
    figure, (axis,) = panels(3.7)
    shades = ["#ffffff", "#c6dbef", COLOUR["faulty"]]
    axis.imshow(grid, cmap=ListedColormap(shades), vmin=0, vmax=2, aspect="auto")
    for row, column in zip(*np.nonzero(grid == 2), strict=True):
        axis.text(column, row, "x", ha="center", va="center")
    axis.set_xticks(np.arange(len(probes)), probes, rotation=90)
    axis.set_yticks(np.arange(len(components)), [("whole key" if c == "nothing" else c) for c in components])
    axis.set_xticks(np.arange(len(probes) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(components) + 1) - 0.5, minor=True)
    axis.grid(visible=False, which="major")
    axis.grid(which="minor", color="#999999", linewidth=0.5)
    axis.tick_params(which="minor", length=0)
    axis.set_xlabel("what the continuing request changed")
    axis.set_ylabel("left out of the key")
    needed = int((grid[1:] == 2).any(axis=1).sum())
    headline(figure, f"{needed} of {len(components) - 1} components each prevent a wrong reuse; the whole key lets none through")
    names = ["recomputed", "continued, rightly", "continued, wrongly"]
    patches = [Patch(facecolor=c, edgecolor="#999999", label=n) for c, n in zip(shades, names, strict=True)]
    figure.legend(handles=patches, loc="outside lower center", ncols=3, columnspacing=1.0, handlelength=1.2)
    return figure
