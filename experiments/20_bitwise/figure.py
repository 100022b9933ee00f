"""Two figures: which paths keep the bits, as a table; which rule raises false alarms or misses, and what fixed sums cost."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import MORE, headline, panels
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
    figure, axes = panels(3.3, 3.1)
    paths = run.protocol.values("path")[1:]
    for axis, what, title in zip(axes, ("kv", "output"), ("K and V of the prefix", "last state of the suffix"), strict=True):
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
            axis.text(x, y, text, ha="center", va="center", fontsize=6, linespacing=0.95)
        axis.set_xticks(range(len(DTYPES)), DTYPES)
        axis.set_yticks(range(len(paths)), [path.replace("_", " ") for path in paths])
        axis.grid(False)
        axis.set_title(title)
    headline(figure, "Only the same path again keeps all bits (=) in every dtype; else: seeds that differ, and by how much")
    return figure


def alarms(run: Sealed) -> Figure:
    figure, (false, missed, cost) = panels(2.1, 2.0, 2.1)
    judged = ((false, "clean", True, "false alarms on clean batches"), (missed, "contaminated", False, "contaminated batches missed"))
    looks = {"float32": (-0.27, "", MORE[3]), "bfloat16": (0.0, "//", MORE[2]), "float16": (0.27, "..", MORE[0])}
    for axis, situation, wrong, title in judged:
        for dtype, (shift, hatch, colour) in looks.items():
            rows = run.table(f"alarms_{dtype}")
            shares = []
            for rule in RULES:
                mine = [rows[rule][i] for i, name in enumerate(rows["situation"]) if name == situation]
                shares.append(sum(value == wrong for value in mine) / len(mine))
            axis.bar(np.arange(len(RULES)) + shift, shares, 0.25, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4, label=dtype)
        axis.set_xticks(range(len(RULES)), [name.replace(" ", "\n") for name in RULES.values()])
        axis.set_ylim(0, 1)
        axis.set_title(title)
        axis.set_ylabel("share of batches")
    false.legend(loc="upper right")
    rows = list(run.protocol.rows("cost"))
    usual, fixed = (run.array("cost", name).min(axis=1) for name in ("usual", "fixed"))
    for (dtype, marker, line), colour in zip(
        (("float64", "s", ":"), ("float32", "o", "-"), ("bfloat16", "^", "--"), ("float16", "v", "-.")),
        (MORE[1], MORE[3], MORE[2], MORE[0]),
        strict=True,
    ):
        mine = [i for i, row in enumerate(rows) if row["dtype"] == dtype]
        cost.plot([rows[i]["others"] for i in mine], (fixed / usual)[mine], line, marker=marker, color=colour, linewidth=1, label=dtype)
    cost.set_xscale("log", base=2)
    cost.set_yscale("log")
    cost.set_xticks(run.protocol.values("others"), [str(n) for n in run.protocol.values("others")])
    cost.set_ylim(0.7, 200)
    cost.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    cost.minorticks_off()
    cost.set_xlabel("requests in the batch")
    cost.set_ylabel("time / time of usual sums")
    cost.set_title("what sums in fixed order cost")
    cost.legend(loc="upper right", ncols=2)
    headline(figure, "Changing the other requests errs neither way; comparing bits or tokens does")
    return figure
