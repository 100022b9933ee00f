"""The cut: exact reuse beside the stale position; what coarser indexes find; what taking a whole block costs."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, LINE, MARKER, MORE, PAGE_WIDTH, with_zero, zero_log_axis
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    return {"cut": cut(run)}


def cut(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.7), width_ratios=[1.35, 1, 0.9])
    table = run.table("published")
    names = run.protocol.values("condition")
    at = np.array([names.index(name) for name in table["condition"]])
    zero_log_axis(left, table["max_error"] + table["wrong_error"])
    for column, role, shift, label in (
        ("max_error", "correct", -0.16, "cropped cache"),
        ("wrong_error", "faulty", 0.16, "old next position"),
    ):
        left.plot(at + shift, with_zero(table[column]), MARKER[role], color=COLOUR[role], label=label, linestyle="none")
    left.axhline(1e-12, color=COLOUR["control"], linestyle=LINE["control"])
    left.set_xticks(range(len(names)), names, rotation=45, ha="right")
    left.set_ylabel("largest error, computed states")
    left.legend(loc="center right", bbox_to_anchor=(0.98, 0.62))
    least = run.audit["controls"]["stale_position"]["values"]["least"]
    left.set_title(f"Reuse is exact at every cut;\na stale position errs by {least:.2g} or more")

    table = run.table("grains")
    styles = {
        "token": ("-", COLOUR["reference"]),
        "block_4": ("--", MORE[0]),
        "block_16": ("-.", MORE[1]),
        "whole": (":", COLOUR["faulty"]),
    }
    for grain, (line, colour) in styles.items():
        rows = [i for i, name in enumerate(table["grain"]) if name == grain]
        label = {"token": "token, radix, block 1", "whole": "whole sequence"}.get(grain, grain.replace("_", " "))
        middle.plot(
            [table["shared"][i] for i in rows],
            [table["reusable"][i] for i in rows],
            line,
            color=colour,
            label=label,
            drawstyle="steps-post",
        )
    middle.set_xlabel("tokens shared")
    middle.set_ylabel("tokens reusable")
    middle.set_ylim(-2, 68)
    middle.legend(loc="upper left")
    middle.set_title("Coarser indexes find less")

    table = run.table("inside_block")
    sizes = run.protocol.values("block_size")
    at = np.array([sizes.index(size) for size in table["block_size"]])
    zero_log_axis(right, table["down_error"] + table["up_error"])
    for column, role, shift, label in (
        ("down_error", "correct", -0.12, "block left out"),
        ("up_error", "faulty", 0.12, "block taken whole"),
    ):
        right.plot(at + shift, with_zero(table[column]), MARKER[role], color=COLOUR[role], label=label, linestyle="none")
    right.set_xticks(range(len(sizes)), sizes)
    right.set_xlim(-0.5, len(sizes) - 0.5)
    right.set_xlabel("block size")
    right.legend(loc="center", bbox_to_anchor=(0.5, 0.6))
    right.set_title("A cut inside a block\nmust leave it out")
    return figure
