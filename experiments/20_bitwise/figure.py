"""Two figures: which paths keep the bits, as a table; which rule raises false alarms or misses, and what fixed sums cost."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, MORE, PAGE_WIDTH
from labcore.sealed import Sealed

DTYPES = ("float64", "float32", "bfloat16", "float16")
RULES = {
    "alarm_bits": "other bits",
    "alarm_tolerance": "beyond tolerance",
    "alarm_tokens": "other tokens",
    "alarm_perturbation": "others changed",
}


def draw(run: Sealed) -> dict[str, Figure]:
    return {"table": table(run), "alarms": alarms(run)}


def table(run: Sealed) -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.4), sharey=True)
    paths = run.protocol.values("path")[1:]
    for axis, what, title in zip(axes, ("kv", "output"), ("K and V of the prefix", "Last state of the suffix"), strict=True):
        grid, texts = np.zeros((len(paths), len(DTYPES))), {}
        for x, dtype in enumerate(DTYPES):
            rows = run.table(f"bits_{dtype}")
            for y, path in enumerate(paths):
                mine = [i for i, name in enumerate(rows["path"]) if name == path]
                same = [rows["output_equal"][i] if what == "output" else rows["k_equal"][i] and rows["v_equal"][i] for i in mine]
                error = max(rows[f"{what}_error"][i] for i in mine)
                grid[y, x] = 1 - sum(same) / len(same)
                differ = len(same) - sum(same)
                texts[y, x] = f"{differ} of {len(same)}\n{f'{error:.0e}' if error else 'other rows'}" if differ else "="
        axis.imshow(grid, aspect="auto", cmap="Oranges", vmin=0, vmax=1.6)
        for (y, x), text in texts.items():
            axis.text(x, y, text, ha="center", va="center", fontsize=5.5)
        axis.set_xticks(range(len(DTYPES)), DTYPES)
        axis.set_yticks(range(len(paths)), [path.replace("_", " ") for path in paths])
        axis.grid(False)
        axis.set_title(title)
    title = "Only repeating a path keeps all bits (=); else: seeds that differ, and by how much"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def alarms(run: Sealed) -> Figure:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.6))
    panels = ((left, "clean", True, "False alarms, clean"), (middle, "contaminated", False, "Missed, contaminated"))
    looks = {"float32": (-0.27, "", COLOUR["correct"]), "bfloat16": (0.0, "//", MORE[2]), "float16": (0.27, "..", MORE[0])}
    for axis, situation, wrong, title in panels:
        for dtype, (shift, hatch, colour) in looks.items():
            rows = run.table(f"alarms_{dtype}")
            shares = []
            for rule in RULES:
                mine = [rows[rule][i] for i, name in enumerate(rows["situation"]) if name == situation]
                shares.append(sum(value == wrong for value in mine) / len(mine))
            axis.bar(np.arange(len(RULES)) + shift, shares, 0.25, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4, label=dtype)
        axis.set_xticks(range(len(RULES)), [name.replace(" ", "\n") for name in RULES.values()], fontsize=6)
        axis.set_ylim(0, 1)
        axis.set_title(title)
    left.set_ylabel("share of batches")
    left.legend(loc="upper right")
    rows = list(run.protocol.rows("cost"))
    usual, fixed = (run.array("cost", name).min(axis=1) for name in ("usual", "fixed"))
    for (dtype, marker, line), colour in zip(
        (("float64", "s", ":"), ("float32", "o", "-"), ("bfloat16", "^", "--"), ("float16", "v", "-.")),
        ("#000000", COLOUR["correct"], MORE[2], MORE[0]),
        strict=True,
    ):
        mine = [i for i, row in enumerate(rows) if row["dtype"] == dtype]
        right.plot([rows[i]["others"] for i in mine], (fixed / usual)[mine], line, marker=marker, color=colour, label=dtype)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks(run.protocol.values("others"), [str(n) for n in run.protocol.values("others")])
    right.set_ylim(0.7, 200)
    right.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    right.minorticks_off()
    right.set_xlabel("requests in the batch")
    right.set_title("Time of fixed sums / usual")
    right.legend(loc="upper right", ncols=2, fontsize=6)
    title = "Changing the other requests errs neither way; comparing bits or tokens does"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure
