"""What shortcuts let through (matching) and what exact indexes find and weigh (structures)."""

from __future__ import annotations

from collections import defaultdict

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, LINE, MARKER, MORE, PAGE_WIDTH, with_zero, zero_log_axis
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    return {"matching": matching(run), "structures": structures(run)}


def matching(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.8), width_ratios=[1.3, 1, 1])
    invisible_character(left, run)

    table = run.table("cascade")
    zero_log_axis(middle, table["generation_error"])
    for key, role, label in (("exact", "correct", "ids compared"), ("sampled", "faulty", "length and four ids")):
        rows = [i for i, name in enumerate(table["entry_key"]) if name == key]
        generation = [table["generation"][i] for i in rows]
        middle.plot(
            generation,
            with_zero([table["generation_error"][i] for i in rows]),
            MARKER[role],
            color=COLOUR[role],
            label=label,
            linestyle="none",
        )
    middle.set_xlabel("generation of reuse")
    middle.set_ylabel("error of the request")
    middle.legend(loc="center right", bbox_to_anchor=(1.0, 0.6))
    polluted = run.audit["claims"]["C14"]["values"]["polluted"]
    middle.set_title(f"One abnormal prefix pollutes\n{polluted} entries after it")

    table = run.table("collisions")
    bits = np.array(table["bits"])
    grid = np.linspace(bits.min(), 30, 100)
    n = run.protocol.settings["collisions"]["prefixes"]
    right.plot(grid, n * (n - 1) / 2 / 2.0**grid, LINE["reference"], color=COLOUR["reference"], label="birthday bound")
    right.plot(
        bits,
        [max(p, 0.02) for p in table["colliding_pairs"]],
        MARKER["faulty"],
        color=COLOUR["faulty"],
        label="equal digests",
        linestyle="none",
    )
    right.set_yscale("log")
    right.set_ylim(0.01, 2e5)
    right.axhline(0.02, color=COLOUR["control"], linewidth=0.6)
    right.annotate("none", (1.0, 0.021), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6, color="#555555")
    right.set_xlabel("bits of the digest kept")
    right.set_ylabel(f"pairs among {n} prefixes")
    right.legend(loc="upper right")
    right.set_title("Short digests collide as\noften as chance says")
    return figure


def invisible_character(axis: plt.Axes, run: Sealed) -> None:
    """Errors of the abnormal request and of the normal one after it, by matcher and order of arrival."""
    table = run.table("invisible")
    zero_log_axis(axis, table["abnormal_error"] + table["normal_error"])
    places = [("exact", "normal_first"), ("exact", "abnormal_first"), ("sampled", "normal_first"), ("sampled", "abnormal_first")]
    for column, role, shift, label in (
        ("abnormal_error", "control", -0.15, "abnormal request"),
        ("normal_error", "faulty", 0.15, "normal request after it"),
    ):
        at, values = [], []
        for i, matcher in enumerate(table["text_matcher"]):
            kind = "sampled" if matcher == "length_sampled" else "exact"
            at.append(places.index((kind, table["arrival"][i])) + shift)
            values.append(table[column][i])
        axis.plot(at, with_zero(values), MARKER[role], color=COLOUR[role], label=label, linestyle="none", rasterized=True)
    axis.set_xticks(range(4), ["normal\nfirst", "abnormal\nfirst", "normal\nfirst", "abnormal\nfirst"])
    axis.set_xlim(-0.5, 3.5)
    axis.axvline(1.5, color=COLOUR["control"], linewidth=0.6)
    axis.set_xlabel("exact indexes        four sampled ids")
    axis.set_ylabel("largest error, last state")
    axis.legend(loc="center left", bbox_to_anchor=(0.0, 0.6))
    axis.set_title("An invisible character: who comes\nfirst decides who is served wrong")


def structures(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.8))
    table = run.table("structures")
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for i, kind in enumerate(table["index_kind"]):
        if table["sharing"][i] == "branch":
            sums[kind, table["length"][i]] += table["reusable_tokens"][i]
    lengths = run.protocol.values("length")
    styles = {
        "radix": ("-", "o", COLOUR["reference"]), "block_1": ("--", "s", COLOUR["correct"]), "block_16": ("-.", "^", MORE[0]),
        "block_64": (":", "v", MORE[1]), "whole_hash": ("--", "X", COLOUR["faulty"]),
    }  # fmt: skip
    for kind, (line, marker, colour) in styles.items():
        share = [sums[kind, length] / sums["radix", length] for length in lengths]
        left.plot(
            lengths,
            share,
            line,
            marker=marker,
            color=colour,
            label=kind.replace("_", " "),
            fillstyle="none" if kind == "block_1" else "full",
        )
    left.set_xscale("log")
    left.set_xticks(lengths, lengths)
    left.minorticks_off()
    left.set_xlabel("tokens stored")
    left.set_ylabel("found / found by radix tree")
    left.legend(loc="center right", bbox_to_anchor=(1.0, 0.38))
    left.set_title("A chained hash of single tokens\nfinds all that a tree finds")

    measured = timed(run)
    sizes = run.protocol.values("prefix_tokens")
    for structure, marker, line in (("radix", "o", "-"), ("block_16", "^", "--")):
        for column, colour, label in (("bytes", MORE[0], "bytes"), ("seconds", MORE[1], "lookup time")):
            ratio = [
                np.median([measured[column][structure, n, b] / measured[column]["trie", n, b] for b in run.protocol.values("branching")])
                for n in sizes
            ]
            middle.plot(sizes, ratio, line, marker=marker, color=colour, label=f"{structure.replace('_', ' ')}: {label}")
    middle.axhline(1, color=COLOUR["control"], linewidth=0.8)
    middle.set_xscale("log")
    middle.set_yscale("log")
    middle.set_xlabel("tokens of a prefix")
    middle.set_ylabel("ratio to the trie")
    middle.set_ylim(1.5e-4, 2)
    middle.legend(loc="lower left", fontsize=6)
    memory = run.audit["claims"]["C17"]["values"]["memory"]
    middle.set_title(f"A radix tree takes {memory:.1%} of a trie's\nbytes or less, and is faster")

    table = run.table("dynamic")
    for place, role in (("front", "faulty"), ("middle", "control"), ("behind", "correct")):
        rows = [i for i, name in enumerate(table["dynamic_place"]) if name == place]
        fixed = [table["fixed_tokens"][i] / (table["fixed_tokens"][i] + table["dynamic_tokens"][i] + table["user_tokens"][i]) for i in rows]
        rate = [table["hit_tokens"][i] / table["asked_tokens"][i] for i in rows]
        right.plot(fixed, rate, MARKER[role], color=COLOUR[role], label=f"dynamic part {place}", linestyle="none")
    right.axhline(0.7, color=COLOUR["control"], linestyle=":")
    right.set_ylim(-0.03, 1.35)
    right.set_xlabel("fixed share of a request")
    right.set_ylabel("token hit rate")
    right.legend(loc="upper left")
    right.set_title("Dynamic part behind: the hit\nrate is the fixed share")
    return figure


def timed(run: Sealed) -> dict[str, dict[tuple[str, int, int], float]]:
    """Bytes and the fastest lookup of each measured structure."""
    rows = [(row["structure"], row["prefix_tokens"], row["branching"]) for row in run.protocol.rows("layout")]
    return {
        "bytes": dict(zip(rows, run.array("layout", "measured_bytes").tolist(), strict=True)),
        "seconds": dict(zip(rows, run.array("layout", "lookup").min(axis=1).tolist(), strict=True)),
    }
