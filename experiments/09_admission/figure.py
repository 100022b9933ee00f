"""Work and copies per admission policy beside time as a ratio to no store, and where the time goes."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MARKER, MORE, PAGE_WIDTH
from labcore.sealed import Sealed

ROLE = {"none": "reference", "all": "control", "longest": "correct"}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"admission": admission(run)}


def admission(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.7))
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
        left.plot(copies, rows + jitter, MARKER[ROLE[policy]], color=COLOUR[ROLE[policy]], linestyle="none", label=policy, fillstyle="none")
    left.set_xlabel("bytes copied, thousands")
    left.set_ylabel("projected rows / those of none")
    left.set_ylim(0, 1.35)
    left.legend(loc="upper left", ncols=3, columnspacing=0.8, handletextpad=0.2)
    left.set_title("Keeping the longest saves copies,\nat the same rows or fewer")

    seconds, none = (run.array("ratios", name).min(axis=1).sum(axis=1) for name in ("seconds", "none_seconds"))
    ratio = (seconds / none).reshape(len(run.protocol.seeds), len(budgets), len(traces), len(policies))
    for policy in ("all", "longest"):
        values = ratio[..., policies.index(policy)].transpose(2, 0, 1).reshape(len(traces), -1)
        shift = -0.12 if policy == "all" else 0.12
        for place, row in enumerate(values):
            middle.plot(np.full(len(row), place + shift), row, MARKER[ROLE[policy]], color=COLOUR[ROLE[policy]], linestyle="none",
                        label=policy if place == 0 else None)  # fmt: skip
    middle.axhline(1.0, color=COLOUR["reference"], linewidth=0.8)
    middle.set_ylim(0, 1.25 * ratio.max())
    middle.set_xticks(range(len(traces)), [trace.replace("-", "\n") for trace in traces])
    middle.set_ylabel("time / time of none")
    middle.legend(loc="upper left", ncols=2)
    middle.set_title(
        f"So small a network gains nothing:\nreuse takes {ratio[..., 1:].min():.1f} to {ratio[..., 1:].max():.1f} times as long"
    )

    parts = run.protocol.settings["parts"]
    shape = (len(run.protocol.seeds), len(budgets), len(traces), len(policies), 5, 12)
    base = shortest_repeats(run.array("times", "total").reshape(shape))[policies.index("none")]
    bottom = np.zeros(len(policies))
    for part, colour, hatch in zip(
        parts, (MORE[0], MORE[1], MORE[2], COLOUR["correct"], MORE[3]), ("//", "..", "xx", "", "\\\\"), strict=True
    ):
        share = shortest_repeats(run.array("times", part).reshape(shape)) / base
        right.bar(policies, share, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3, label=part)
        bottom += share
    right.set_ylabel("time / time of none")
    right.set_ylim(0, bottom.max() * 1.45)
    right.legend(loc="upper left", ncols=2, columnspacing=0.8)
    right.set_title("Pieces and hashing cost\nmore than the rows saved")
    return figure


def shortest_repeats(seconds: np.ndarray) -> np.ndarray:
    """[policy]: seconds [seed, budget, trace, policy, repeat, request], the shortest repeat of each request, summed over the rest."""
    return seconds.min(axis=4).sum(axis=(0, 1, 2, 4))
