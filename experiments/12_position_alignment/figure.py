"""Errors of shifted reuse, their split by layer under another context, and what a loss through the cache shows."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, MORE, headline, panels, with_zero, zero_log_axis
from labcore.sealed import Sealed

SHAPE = {"learned": ("s", MORE[1]), "sinusoidal": ("v", MORE[2]), "rope": ("o", MORE[3]), "alibi": ("^", MORE[0])}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"alignment": alignment(run), "trained": trained(run)}


def alignment(run: Sealed) -> Figure:
    figure, (upper, lower) = panels(2.5, 2.6)
    table = run.table("shifts")
    zero_log_axis(upper, table["shift_error"])
    shifts = run.protocol.values("shift")
    for rule, (marker, colour) in SHAPE.items():
        for handling, line in (("as_cached", "--"), ("realigned", "-")):
            rows = [i for i in range(len(table["row"])) if table["rule"][i] == rule and table["handling"][i] == handling]
            worst = [max(table["shift_error"][i] for i in rows if table["shift"][i] == shift) for shift in shifts]
            look = {"label": rule, "fillstyle": "full"} if line == "-" else {"fillstyle": "none"}
            upper.plot(range(len(shifts)), with_zero(worst), line, marker=marker, color=colour, linewidth=1, **look)
    upper.set_xticks(range(len(shifts)), shifts)
    upper.set_xlabel("shift of the segment (filled: keys realigned; open: as cached)")
    upper.set_ylabel("largest error, last state")
    upper.legend(loc="center right", bbox_to_anchor=(1.0, 0.55))
    upper.set_title("at another place, same left context")

    table = run.table("contexts")
    names = [f"{part}_layer_{layer}" for layer in (1, 2) for part in ("position", "context", "total")]
    zero_log_axis(lower, [value for name in names for value in table[name]])
    for number, (rule, (marker, colour)) in enumerate(SHAPE.items()):
        rows = [
            i
            for i in range(len(table["row"]))
            if table["rule"][i] == rule and table["handling"][i] == "realigned" and table["moved"][i] > 0
        ]
        for place, name in enumerate(names):
            values = with_zero([table[name][i] for i in rows])
            lower.plot(np.full(len(values), place + 0.17 * (number - 1.5)), values, marker, color=colour)
    lower.set_xticks(range(6), [f"{what}\nlayer {layer}" for layer in (1, 2) for what in ("place", "context", "both")])
    lower.axvline(2.5, color=GUIDE, linewidth=0.6)
    lower.set_xlabel("what is wrong, and after which layer")
    lower.set_ylabel("largest error, keys realigned")
    lower.set_title("under another left context")
    headline(figure, "Relative rules can be put right at another place; what the second layer's keys have seen cannot")
    return figure


def trained(run: Sealed) -> Figure:
    figure, (mean_axis, tokens_axis) = panels(2.5, 2.0)
    table = run.table("trained")
    rules = run.protocol.values("rule")
    at = np.array([rules.index(rule) for rule in table["rule"]])
    for column, role, marker, shift, label in (
        ("full_mean", "reference", "s", -0.2, "full pass (as in training)"),
        ("aligned_mean", "correct", "o", 0.0, "cache in place"),
        ("misaligned_mean", "faulty", "X", 0.2, "cache misplaced"),
    ):
        mean_axis.plot(at + shift, [-value for value in table[column]], marker, color=COLOUR[role], label=label)
    mean_axis.set_xticks(range(len(rules)), rules)
    mean_axis.set_ylabel("loss of the continuation, nats")
    mean_axis.set_ylim(top=1.25 * max(-value for value in table["misaligned_mean"]))
    mean_axis.legend(loc="upper left", ncols=2)
    zero_log_axis(tokens_axis, table["misaligned_error"] + table["aligned_error"])
    tokens_axis.plot(at, with_zero(table["aligned_error"]), "o", color=COLOUR["correct"], label="cache in place")
    tokens_axis.plot(at, with_zero(table["misaligned_error"]), "X", color=COLOUR["faulty"], label="cache misplaced")
    tokens_axis.set_xticks(range(len(rules)), rules)
    tokens_axis.set_ylabel("largest change\nof a log-probability")
    tokens_axis.legend(loc="center right", bbox_to_anchor=(1.0, 0.55))
    headline(figure, "A misplaced cache need not raise the loss, but token by token it differs plainly")
    return figure
