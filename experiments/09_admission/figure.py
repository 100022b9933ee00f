"""Work and copies per admission policy beside time as a ratio to no store, and where the time goes."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, MARKER, MORE, headline, panels
from labcore.sealed import Sealed

LOOK = {"none": (MARKER["reference"], COLOUR["reference"]), "all": ("^", MORE[1]), "longest": ("o", MORE[0])}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"admission": admission(run)}


def admission(run: Sealed) -> Figure:
    figure, (work, times, parts) = panels(2.2, 2.1, 2.2)
    policies, traces, budgets = (run.protocol.values(name) for name in ("policy", "trace", "budget"))
    table = run.table("totals")
    seed = run.protocol.seeds[0]
    for policy in policies:
        keep = [
            i for i in range(len(table["row"])) if table["policy"][i] == policy and table["repeat"][i] == 0 and table["seed"][i] == seed
        ]
        rows = np.array([table["projected_rows"][i] for i in keep]) / max(table["projected_rows"])
        copies = np.array([table["explicit_copy_bytes"][i] for i in keep]) / 1000
        jitter = np.linspace(-0.012, 0.012, len(keep))
        marker, colour = LOOK[policy]
        work.plot(copies, rows + jitter, marker, color=colour, linestyle="none", label=policy, fillstyle="none")
    work.set_xlabel("bytes copied, thousands")
    work.set_ylabel("projected rows /\nthose of none")
    work.set_ylim(0, 1.35)
    work.legend(loc="upper left", ncols=3, columnspacing=0.8, handletextpad=0.2)
    work.set_title("keeping the longest saves copies")

    seconds, none = (run.array("ratios", name).min(axis=1).sum(axis=1) for name in ("seconds", "none_seconds"))
    ratio = (seconds / none).reshape(len(run.protocol.seeds), len(budgets), len(traces), len(policies))
    for policy, shift in (("all", -0.12), ("longest", 0.12)):
        values = ratio[..., policies.index(policy)].transpose(2, 0, 1).reshape(len(traces), -1)
        marker, colour = LOOK[policy]
        for place, row in enumerate(values):
            label = policy if place == 0 else None
            times.plot(np.full(len(row), place + shift), row, marker, color=colour, linestyle="none", label=label)
    times.axhline(1.0, color=GUIDE, linewidth=0.6)
    times.set_ylim(0, 1.25 * ratio.max())
    times.set_xticks(range(len(traces)), traces)
    times.set_ylabel("time / time of none")
    times.legend(loc="upper left", ncols=2)
    times.set_title("a mark is a seed and a budget; above the line: slower")

    names = run.protocol.settings["parts"]
    shape = (len(run.protocol.seeds), len(budgets), len(traces), len(policies), -1, 12)
    base = shortest_repeats(run.array("times", "total").reshape(shape))[policies.index("none")]
    bottom = np.zeros(len(policies))
    looks = {
        "lookup": (MORE[2], "//"),
        "hashing": (MORE[1], ".."),
        "copies": (MORE[4], "xx"),
        "compute": (MORE[3], ""),
        "admission": (MORE[0], "\\\\"),
    }
    for part in names:
        share = shortest_repeats(run.array("times", part).reshape(shape)) / base
        colour, hatch = looks[part]
        parts.bar(policies, share, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3, label=part)
        bottom += share
    parts.set_ylabel("time / time of none")
    parts.set_ylim(0, bottom.max() * 1.3)
    parts.legend(loc="upper left", ncols=3, columnspacing=0.8)
    parts.set_title("pieces and hashing cost more than the rows saved")
    least, most = (f(ratio[..., [policies.index(name) for name in ("all", "longest")]]) for f in (np.min, np.max))
    said = "gains nothing" if least > 1 else "gains little"
    headline(figure, f"So small a network {said}: with a store, requests take {least:.1f} to {most:.1f} times as long as without")
    return figure


def shortest_repeats(seconds: np.ndarray) -> np.ndarray:
    """[policy]: seconds [seed, budget, trace, policy, repeat, request], the shortest repeat of each request, summed over the rest."""
    return seconds.min(axis=4).sum(axis=(0, 1, 2, 4))
