"""What a budget keeps on the published traces; hit rates of policies; blocks lost in use; orders of eviction."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MARKER, MORE, PAGE_WIDTH, shades
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    return {"budget": budget(run), "policies": policies(run)}


def budget(run: Sealed) -> Figure:
    """Rows recomputed and bytes resident, request by request, for the first seed (counts are the same for all)."""
    table = run.table("published")
    budgets, traces = run.protocol.values("budget"), run.protocol.values("trace")
    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.4), sharey=True)
    for axis, trace in zip(axes, traces, strict=True):
        for size, line, marker, colour in zip(budgets, (":", "--", "-"), "^so", shades(len(budgets)), strict=True):
            rows = [
                i for i, (s, b, t) in enumerate(zip(table["seed"], table["budget"], table["trace"], strict=True))
                if s == run.protocol.seeds[0] and b == size and t == trace
            ]  # fmt: skip
            axis.plot(
                [table["index"][i] for i in rows],
                [table["projected_rows"][i] for i in rows],
                line,
                marker=marker,
                color=colour,
                label=f"{size} B",
            )
        axis.set_title(trace)
        axis.set_xlabel("request")
        axis.set_ylim(0, 80)
        axis.set_xticks(range(0, 12, 2))
    axes[0].set_ylabel("projected rows")
    axes[2].legend(loc="center right", title="budget", bbox_to_anchor=(1.0, 0.6))
    figure.suptitle(
        "A budget just below what the trace cycles through gives LRU no hit at all; just above, every hit", fontsize=9, x=0.01, ha="left"
    )
    return figure


def policies(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.7), width_ratios=[1.25, 0.8, 1.15])
    table = run.table("policies")
    comeback = run.protocol.values("comeback")
    shown = {"fifo": ("v", MORE[1]), "lru": ("o", COLOUR["correct"]), "lfu": ("X", MORE[0]), "belady": ("s", COLOUR["reference"])}
    for policy, (marker, colour) in shown.items():
        for size, line in zip(run.protocol.values("capacity"), ("--", "-"), strict=True):
            rates = []
            for share in comeback:
                keep = [
                    i for i in range(len(table["row"]))
                    if table["policy"][i] == policy and table["comeback"][i] == share and table["capacity"][i] == size
                ]  # fmt: skip
                rates.append(sum(table["hit_blocks"][i] for i in keep) / sum(table["asked_blocks"][i] for i in keep))
            left.plot(comeback, rates, line, marker=marker, color=colour, label=policy if line == "-" else None)
    left.set_xlabel("share of returning requests")
    left.set_ylabel("blocks hit / asked")
    left.set_ylim(0.3, 1.15)
    left.legend(loc="upper right", ncols=4, columnspacing=0.8, handlelength=1.2)
    values = run.audit["claims"]["A09"]["values"]
    left.set_title(f"LRU falls to {values['lru'] / values['best']:.2f} of the optimum,\nand is still the best online policy")

    table = run.table("live")
    names = run.protocol.values("live_policy")
    for place, name in enumerate(names):
        lost = [n for n, policy in zip(table["lost_requests"], table["live_policy"], strict=True) if policy == name]
        role = "faulty" if name == "lru" else "correct"
        spread = place + np.linspace(-0.2, 0.2, len(lost))
        middle.plot(spread, lost, MARKER[role], color=COLOUR[role], linestyle="none")
    middle.set_xticks(range(len(names)), [name.replace("_", "\n") for name in names])
    middle.set_xlim(-0.5, len(names) - 0.5)
    middle.set_ylabel("requests that lost a block")
    middle.set_title("Recency alone takes\nblocks in use")

    table = run.table("orders")
    orders = run.protocol.values("eviction_order")
    base = {
        (s, k, c): n
        for s, k, c, o, n in zip(
            table["seed"], table["trial"], table["capacity"], table["eviction_order"], table["recomputed_blocks"], strict=True
        )
        if o == "count_age"
    }
    for place, order in enumerate(orders):
        ratio = [
            n / base[s, k, c]
            for s, k, c, o, n in zip(
                table["seed"], table["trial"], table["capacity"], table["eviction_order"], table["recomputed_blocks"], strict=True
            )
            if o == order
        ]
        claimed = order == "count_tick_small"
        role = "faulty" if claimed else "correct"
        right.plot(ratio, np.full(len(ratio), place), MARKER[role], color=COLOUR[role], linestyle="none")
    right.axvline(1.0, color=COLOUR["control"], linewidth=0.8)
    right.set_yticks(range(len(orders)), [order.replace("_", ", ") for order in orders])
    right.invert_yaxis()
    right.set_xlabel("recomputed blocks\n/ those of count, age")
    right.set_title("Size as the last criterion (X)\nsaves no work")
    return figure
