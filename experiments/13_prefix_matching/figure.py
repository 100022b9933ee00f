"""What shortcuts let through (matching) and what exact indexes find and weigh (structures)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, LINE, MARKER, MORE, headline, panels, shades, with_zero, zero_log_axis
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    return {"matching": matching(run), "structures": structures(run)}


def matching(run: Sealed) -> Figure:
    figure, (characters, cascade, digests) = panels(2.5, 2.0, 2.1)
    invisible_character(characters, run)

    table = run.table("cascade")
    zero_log_axis(cascade, table["generation_error"])
    for key, role, label in (("exact", "correct", "ids compared"), ("sampled", "faulty", "length and four ids")):
        rows = [i for i, name in enumerate(table["entry_key"]) if name == key]
        generation, error = ([table[column][i] for i in rows] for column in ("generation", "generation_error"))
        cascade.plot(generation, with_zero(error), MARKER[role], color=COLOUR[role], label=label, linestyle="none")
    cascade.set_xlabel("generation of reuse")
    cascade.set_ylabel("error of the request")
    cascade.legend(loc="center right", bbox_to_anchor=(1.0, 0.6))
    cascade.set_title("one abnormal prefix pollutes what is stored after it")

    table = run.table("collisions")
    bits = np.array(table["bits"])
    grid = np.linspace(bits.min(), 30, 100)
    n = run.protocol.settings["collisions"]["prefixes"]
    digests.plot(grid, n * (n - 1) / 2 / 2.0**grid, LINE["reference"], color=COLOUR["reference"], linewidth=1, label="birthday bound")
    pairs = [max(p, 0.02) for p in table["colliding_pairs"]]
    digests.plot(bits, pairs, MARKER["faulty"], color=COLOUR["faulty"], label="equal digests", linestyle="none")
    digests.set_yscale("log")
    digests.set_ylim(0.004, 2e5)
    digests.axhline(0.02, color=GUIDE, linewidth=0.6)
    digests.annotate(
        "none", (1.0, 0.02), (0, -3), ("axes fraction", "data"), "offset points", ha="right", va="top", fontsize=6, color=GUIDE
    )
    digests.set_xlabel("bits of the digest kept")
    digests.set_ylabel(f"pairs among\n{n} prefixes")
    digests.legend(loc="upper right")
    digests.set_title("short digests collide as often as chance says")
    headline(figure, "Keys that look at less than all ids serve wrong states, and what they store is wrong from then on")
    return figure


def invisible_character(axis: Any, run: Sealed) -> None:
    """Errors of the abnormal request and of the normal one after it, by matcher and order of arrival."""
    table = run.table("invisible")
    zero_log_axis(axis, table["abnormal_error"] + table["normal_error"])
    places = [("exact", "normal_first"), ("exact", "abnormal_first"), ("sampled", "normal_first"), ("sampled", "abnormal_first")]
    for kind, role in (("exact", "correct"), ("sampled", "faulty")):
        rows = [i for i, matcher in enumerate(table["text_matcher"]) if (matcher == "length_sampled") == (kind == "sampled")]
        for column, shift, fill, who in (("abnormal_error", -0.15, "none", "abnormal"), ("normal_error", 0.15, "full", "normal")):
            at = [places.index((kind, table["arrival"][i])) + shift for i in rows]
            values = with_zero([table[column][i] for i in rows])
            label = f"{'all ids' if kind == 'exact' else 'four ids'}, {who}"
            axis.plot(
                at, values, MARKER[role], color=COLOUR[role], fillstyle=fill, label=label, linestyle="none", markersize=3.5, rasterized=True
            )
    axis.set_xticks(range(4), ["normal\nfirst", "abnormal\nfirst"] * 2)
    axis.set_xlim(-0.5, 3.5)
    axis.axvline(1.5, color=GUIDE, linewidth=0.6)
    axis.set_ylabel("largest error, last state")
    axis.legend(loc="center left", bbox_to_anchor=(0.0, 0.6))
    axis.set_title("an invisible character: the later one is served wrong")


def structures(run: Sealed) -> Figure:
    figure, (found, cost, rates) = panels(2.2, 2.2, 2.1)
    table = run.table("structures")
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for i, kind in enumerate(table["index_kind"]):
        if table["sharing"][i] == "branch":
            sums[kind, table["length"][i]] += table["reusable_tokens"][i]
    lengths = run.protocol.values("length")
    fine, middle, coarse = shades(3)
    styles = {
        "radix": ("-", "o", COLOUR["reference"]), "block_1": ("--", "s", fine), "block_16": ("-.", "^", middle),
        "block_64": (":", "v", coarse), "whole_hash": ("--", "X", MORE[1]),
    }  # fmt: skip
    for kind, (line, marker, colour) in styles.items():
        share = [sums[kind, length] / sums["radix", length] for length in lengths]
        look = {"marker": marker, "color": colour, "linewidth": 1, "fillstyle": "none" if kind == "block_1" else "full"}
        found.plot(lengths, share, line, label=kind.replace("_", " "), **look)
    found.set_xscale("log")
    found.set_xticks(lengths, lengths)
    found.minorticks_off()
    found.set_xlabel("tokens stored")
    found.set_ylabel("found / found by\na radix tree")
    found.legend(loc="center right", bbox_to_anchor=(1.0, 0.38))
    found.set_title("chained digests of tokens find all that a tree finds")

    measured = timed(run)
    sizes = run.protocol.values("prefix_tokens")
    for structure, marker, line in (("radix", "o", "-"), ("block_16", "^", "--")):
        for column, colour, label in (("bytes", MORE[0], "bytes"), ("seconds", MORE[1], "lookup time")):
            ratio = [
                np.median([measured[column][structure, n, b] / measured[column]["trie", n, b] for b in run.protocol.values("branching")])
                for n in sizes
            ]
            label = f"{structure.replace('_', ' ')}: {label}"
            cost.plot(sizes, ratio, line, marker=marker, color=colour, linewidth=1, label=label)
    cost.axhline(1, color=GUIDE, linewidth=0.6)
    cost.set_xscale("log")
    cost.set_yscale("log")
    cost.set_xlabel("tokens of a prefix")
    cost.set_ylabel("ratio to the trie")
    cost.set_ylim(5e-4, 2)
    cost.legend(loc="lower left", ncols=2)
    cost.set_title("a radix tree is smaller and faster than a trie")

    table = run.table("dynamic")
    for place, marker, colour in zip(("front", "middle", "behind"), "X^o", shades(3), strict=True):
        rows = [i for i, name in enumerate(table["dynamic_place"]) if name == place]
        fixed = [table["fixed_tokens"][i] / (table["fixed_tokens"][i] + table["dynamic_tokens"][i] + table["user_tokens"][i]) for i in rows]
        rate = [table["hit_tokens"][i] / table["asked_tokens"][i] for i in rows]
        rates.plot(fixed, rate, marker, color=colour, label=f"dynamic part {place}", linestyle="none")
    rates.axhline(0.7, color=GUIDE, linestyle=":", linewidth=0.8)
    rates.annotate("the article: over 70 %", (0.02, 0.7), (0, 2), ("axes fraction", "data"), "offset points", fontsize=6, color=GUIDE)
    rates.set_ylim(-0.05, 1.5)
    rates.set_xlabel("fixed share of a request")
    rates.set_ylabel("token hit rate")
    rates.legend(loc="upper left")
    rates.set_title("dynamic part behind: the hit rate is the fixed share")
    token, tree = (sum(sums[kind, length] for length in lengths) for kind in ("block_1", "radix"))
    headline(
        figure, f"Chained digests of single tokens find {token / tree:.0%} of what a radix tree finds; blocks find less, whole hashes none"
    )
    return figure


def timed(run: Sealed) -> dict[str, dict[tuple[str, int, int], float]]:
    """Bytes and the fastest lookup of each measured structure."""
    rows = [(row["structure"], row["prefix_tokens"], row["branching"]) for row in run.protocol.rows("layout")]
    return {
        "bytes": dict(zip(rows, run.array("layout", "measured_bytes").tolist(), strict=True)),
        "seconds": dict(zip(rows, run.array("layout", "lookup").min(axis=1).tolist(), strict=True)),
    }
