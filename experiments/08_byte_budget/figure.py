"""What a budget keeps on the published traces; hit rates of policies; blocks lost in use; orders of eviction."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, COLUMN_WIDTH, GUIDE, MARKER, MORE, headline, panels, shades
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    return {"budget": budget(run), "policies": policies(run)}


def budget(run: Sealed) -> Figure:
    """Rows recomputed, request by request, for the first seed (counts are the same for all)."""
    table = run.table("published")
    budgets, traces = run.protocol.values("budget"), run.protocol.values("trace")
    figure, axes = plt.subplots(1, 3, figsize=(COLUMN_WIDTH, 2.6), sharey=True)
    for axis, trace in zip(axes, traces, strict=True):
        for size, line, marker, colour in zip(budgets, (":", "--", "-"), "^so", shades(len(budgets)), strict=True):
            rows = [
                i for i, (s, b, t) in enumerate(zip(table["seed"], table["budget"], table["trace"], strict=True))
                if s == run.protocol.seeds[0] and b == size and t == trace
            ]  # fmt: skip
            at, cost = ([table[column][i] for i in rows] for column in ("index", "projected_rows"))
            axis.plot(at, cost, line, marker=marker, markersize=3, linewidth=1, color=colour, label=f"{size} bytes")
        axis.set_title(trace.replace("-", "\n"))
        axis.set_ylim(0, 80)
        axis.set_xticks(range(0, 12, 5))
    axes[0].set_ylabel("projected rows")
    axes[1].set_xlabel("request")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, columnspacing=1.2)
    headline(figure, "LRU that cannot hold all prefixes of a cycle hits none of them; with room for all it hits every time")
    return figure


def policies(run: Sealed) -> Figure:
    figure, (rates, live, orders) = panels(2.4, 1.9, 2.1)
    hit_rates(rates, run)

    table = run.table("live")
    names = run.protocol.values("live_policy")
    for place, name in enumerate(names):
        lost = [n for n, policy in zip(table["lost_requests"], table["live_policy"], strict=True) if policy == name]
        role = "faulty" if name == "lru" else "correct"
        spread = place + np.linspace(-0.2, 0.2, len(lost))
        live.plot(lost, spread, MARKER[role], color=COLOUR[role], linestyle="none")
    live.set_yticks(range(len(names)), [name.replace("_", "-aware ").replace("lru", "LRU") for name in names])
    live.set_ylim(len(names) - 0.5, -0.5)
    live.set_xlabel("requests that lost a block in use, of a run")
    live.set_title("recency alone takes blocks in use")

    table = run.table("orders")
    names = run.protocol.values("eviction_order")
    keys = list(zip(table["seed"], table["trial"], table["capacity"], strict=True))
    rows = list(zip(keys, table["eviction_order"], table["recomputed_blocks"], strict=True))
    base = {key: blocks for key, order, blocks in rows if order == "count_age"}
    for place, name in enumerate(names):
        ratio = [blocks / base[key] for key, order, blocks in rows if order == name]
        marker, colour = ("D", MORE[1]) if name == "count_tick_small" else ("o", MORE[0])
        orders.plot(ratio, np.full(len(ratio), place), marker, color=colour, linestyle="none", markersize=3)
    orders.axvline(1.0, color=GUIDE, linewidth=0.6)
    orders.set_yticks(range(len(names)), [name.replace("_", ", ") for name in names])
    orders.invert_yaxis()
    orders.set_xlabel("recomputed blocks / those of count, age")
    orders.set_title("size as last criterion (diamonds): no gain")
    values = hit_shares(run, 0.5)
    best = max(values[name] for name in ("fifo", "lru", "lfu"))
    said = "yet beats FIFO and LFU" if values["lru"] == best else "and is beaten by FIFO or LFU"
    headline(figure, f"With half of the requests returning, LRU falls to {values['lru'] / values['belady']:.2f} of the optimum, {said}")
    return figure


def hit_shares(run: Sealed, comeback: float, capacity: int | None = None) -> dict[str, float]:
    """Policy -> blocks hit over blocks asked for, at one share of returning requests; at one capacity or over all."""
    table = run.table("policies")
    hit: dict[str, int] = {}
    asked: dict[str, int] = {}
    for policy, share, size, hits, blocks in zip(
        *(table[name] for name in ("policy", "comeback", "capacity", "hit_blocks", "asked_blocks")), strict=True
    ):
        if share == comeback and capacity in (None, size):
            hit[policy], asked[policy] = hit.get(policy, 0) + hits, asked.get(policy, 0) + blocks
    return {policy: hit[policy] / asked[policy] for policy in hit}


def hit_rates(axis: Any, run: Sealed) -> None:
    comeback, capacities = run.protocol.values("comeback"), run.protocol.values("capacity")
    looks = {"fifo": ("v", MORE[1]), "lru": ("o", MORE[2]), "lfu": ("X", MORE[0]), "belady": ("s", COLOUR["reference"])}
    names = {"fifo": "FIFO", "lru": "LRU", "lfu": "LFU", "belady": "Belady (optimum)"}
    for policy, (marker, colour) in looks.items():
        for size, line in zip(capacities, ("--", "-"), strict=True):
            shares = [hit_shares(run, share, size)[policy] for share in comeback]
            label = names[policy] if line == "-" else None
            axis.plot(comeback, shares, line, marker=marker, color=colour, linewidth=1, label=label)
    axis.set_xlabel("share of returning requests")
    axis.set_ylabel("blocks hit / asked for")
    axis.set_ylim(0.3, 1.2)
    axis.set_xticks(comeback)
    axis.legend(loc="upper right", ncols=4, columnspacing=0.7, handlelength=1.2, handletextpad=0.4)
    axis.set_title(f"memory of {capacities[-1]} blocks, dashed: {capacities[0]}")
