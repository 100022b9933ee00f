"""The cut: exact reuse beside the stale position; what coarser indexes find; what taking a whole block costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, MARKER, headline, panels, shades, with_zero, zero_log_axis
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    return {"cut": cut(run)}


def cut(run: Sealed) -> Figure:
    figure, (cases, found, inside) = panels(3.0, 1.9, 1.9)
    table = run.table("published")
    names = run.protocol.values("condition")
    at = np.array([names.index(name) for name in table["condition"]])
    pairs = (("max_error", "correct", "cropped cache"), ("wrong_error", "faulty", "old next position"))
    beside(cases, table, at, pairs)
    cases.axhline(run.protocol.tolerance, color=GUIDE, linewidth=0.6, linestyle=":")
    cases.set_xticks(range(len(names)), names, rotation=90)
    cases.set_ylabel("largest error\nof the computed states")
    cases.legend(loc="center right", bbox_to_anchor=(0.98, 0.68))

    table = run.table("grains")
    grains = {"token": "token, radix, block 1", "block_4": "block 4", "block_16": "block 16", "whole": "whole sequence"}
    for (grain, label), line, colour in zip(grains.items(), ("-", "--", "-.", ":"), shades(len(grains)), strict=True):
        rows = [i for i, name in enumerate(table["grain"]) if name == grain]
        shared, reusable = ([table[column][i] for i in rows] for column in ("shared", "reusable"))
        found.plot(shared, reusable, line, color=colour, linewidth=1.2, label=label, drawstyle="steps-post")
    found.set_xlabel("tokens shared")
    found.set_ylabel("tokens reusable")
    found.legend(loc="upper left")
    found.set_title("coarser indexes find less")

    table = run.table("inside_block")
    sizes = run.protocol.values("block_size")
    at = np.array([sizes.index(size) for size in table["block_size"]])
    beside(inside, table, at, (("down_error", "correct", "block left out"), ("up_error", "faulty", "block taken whole")))
    inside.set_xticks(range(len(sizes)), sizes)
    inside.set_xlim(-0.5, len(sizes) - 0.5)
    inside.set_xlabel("block size")
    inside.set_ylabel("largest error, last state")
    inside.legend(loc="center", bbox_to_anchor=(0.5, 0.6))
    inside.set_title("a cut inside a block must leave the block out")
    wrong = run.table("published")
    least = min(
        e for e, cut in zip(wrong["wrong_error"], wrong["condition"], strict=True) if cut in ("edit-middle", "edit-last", "shorter")
    )
    headline(figure, f"Reuse is exact at every cut; after a cut, the old next position errs by {least:.2g} or more")
    return figure


def beside(axis: Any, table: dict[str, list[Any]], at: np.ndarray, pairs: tuple[tuple[str, str, str], ...]) -> None:
    """Two columns of errors, each a little to its side of the same places."""
    zero_log_axis(axis, [value for column, _, _ in pairs for value in table[column]])
    for (column, role, label), shift in zip(pairs, (-0.14, 0.14), strict=True):
        axis.plot(at + shift, with_zero(table[column]), MARKER[role], color=COLOUR[role], label=label, linestyle="none")
