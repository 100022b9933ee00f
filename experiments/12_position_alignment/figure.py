"""Errors of shifted reuse, their split by layer under another context, and what a loss through the cache shows."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MORE, PAGE_WIDTH, with_zero, zero_log_axis
from labcore.sealed import Sealed

SHAPE = {"learned": ("s", MORE[1]), "sinusoidal": ("v", MORE[2]), "rope": ("o", COLOUR["correct"]), "alibi": ("^", MORE[0])}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"alignment": alignment(run), "trained": trained(run)}


def alignment(run: Sealed) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.9), width_ratios=[1, 1.25])
    table = run.table("shifts")
    zero_log_axis(left, table["shift_error"])
    shifts = run.protocol.values("shift")
    for rule, (marker, colour) in SHAPE.items():
        for handling, line in (("as_cached", "--"), ("realigned", "-")):
            rows = [i for i in range(len(table["row"])) if table["rule"][i] == rule and table["handling"][i] == handling]
            worst = [max(table["shift_error"][i] for i in rows if table["shift"][i] == shift) for shift in shifts]
            left.plot(range(len(shifts)), with_zero(worst), line, marker=marker, color=colour, label=f"{rule}" if line == "-" else None,
                      fillstyle="full" if line == "-" else "none")  # fmt: skip
    left.set_xticks(range(len(shifts)), shifts)
    left.set_xlabel("shift of the segment (open: keys as cached)")
    left.set_ylabel("largest error, last state")
    left.legend(loc="center right", bbox_to_anchor=(1.0, 0.55))
    left.set_title("Away from its place, only relative\nrules can be put right")

    table = run.table("contexts")
    names = [f"{part}_layer_{layer}" for layer in (1, 2) for part in ("position", "context", "total")]
    zero_log_axis(right, [value for name in names for value in table[name]])
    for number, (rule, (marker, colour)) in enumerate(SHAPE.items()):
        rows = [
            i
            for i in range(len(table["row"]))
            if table["rule"][i] == rule and table["handling"][i] == "realigned" and table["moved"][i] > 0
        ]
        for place, name in enumerate(names):
            values = with_zero([table[name][i] for i in rows])
            right.plot(
                np.full(len(values), place + 0.17 * (number - 1.5)), values, marker, color=colour, label=rule if place == 0 else None
            )
    right.set_xticks(range(6), ["place", "context", "both"] * 2)
    right.axvline(2.5, color=COLOUR["control"], linewidth=0.6)
    right.set_xlabel("first layer                                     second layer")
    right.set_ylabel("largest error, keys realigned")
    right.legend(loc="center left", bbox_to_anchor=(0.0, 0.55))
    right.set_title("Under another left context the place can be cured,\nthe second layer's context cannot")
    return figure


def trained(run: Sealed) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.5))
    table = run.table("trained")
    rules = run.protocol.values("rule")
    at = np.array([rules.index(rule) for rule in table["rule"]])
    for column, role, marker, shift, label in (
        ("full_mean", "reference", "s", -0.2, "full pass (training)"),
        ("aligned_mean", "correct", "o", 0.0, "cache in place"),
        ("misaligned_mean", "faulty", "X", 0.2, "cache misplaced"),
    ):
        left.plot(at + shift, [-value for value in table[column]], marker, color=COLOUR[role], label=label)
    left.set_xticks(range(len(rules)), rules)
    left.set_ylabel("loss of the continuation, nats")
    left.set_ylim(top=1.25 * max(-value for value in table["misaligned_mean"]))
    left.legend(loc="upper left", ncols=2)
    left.set_title("A misplaced cache need not raise the loss ...")
    zero_log_axis(right, table["misaligned_error"] + table["aligned_error"])
    right.plot(at, with_zero(table["aligned_error"]), "o", color=COLOUR["correct"], label="cache in place")
    right.plot(at, with_zero(table["misaligned_error"]), "X", color=COLOUR["faulty"], label="cache misplaced")
    right.set_xticks(range(len(rules)), rules)
    right.set_ylabel("largest change of a log-probability")
    right.legend(loc="center right", bbox_to_anchor=(1.0, 0.55))
    right.set_title("... but token by token it differs plainly")
    return figure
