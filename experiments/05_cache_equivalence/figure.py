"""Errors of each comparison, work against length, and what a trained network says when its positions are reset."""

import numpy as np
from matplotlib.figure import Figure

from labcore.figures import COLOUR, GUIDE, MARKER, MORE, headline, panels, with_zero, zero_log_axis
from labcore.sealed import Sealed

COMPARISONS = {
    "causal_future_error": ("later ids,\ncausal mask", "correct"),
    "prefix_error": ("every prefix\nanew", "correct"),
    "cache_error": ("token by\ntoken", "correct"),
    "chunk_error": ("in chunks", "correct"),
    "sliding_error": ("sliding\nwindow", "correct"),
    "unmasked_future_change": ("later ids,\nno mask", "faulty"),
    "wrong_chunk_mask_error": ("mask from\nfirst key", "faulty"),
    "reset_position_error": ("positions\nreset", "faulty"),
    "cropped_recompute_error": ("last 4 ids\nalone", "control"),
}
WORDS = 10


def draw(run: Sealed) -> dict[str, Figure]:
    """errors: block published. cost: block scaling. reset: block generation."""
    return {"errors": errors(run), "cost": cost(run), "reset": reset(run)}


def errors(run: Sealed) -> Figure:
    """Every metric of the published block."""
    table = run.table("published")
    figure, (axis,) = panels(3.3)
    zero_log_axis(axis, [value for name in COMPARISONS for value in table[name]])
    for place, (name, (_, kind)) in enumerate(COMPARISONS.items()):
        values = np.array(table[name])
        spread = np.linspace(-0.2, 0.2, len(values)) if len(values) <= 31 else np.zeros(len(values))
        axis.plot(place + spread, with_zero(list(values)), MARKER[kind], color=COLOUR[kind], rasterized=len(values) > 31)
    axis.axhline(run.protocol.tolerance, color=GUIDE, linewidth=0.6, linestyle=":")
    axis.annotate(
        "tolerance", (1.0, run.protocol.tolerance), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6, color=GUIDE
    )
    axis.set_xticks(range(len(COMPARISONS)), [label for label, _ in COMPARISONS.values()], rotation=60, ha="right", fontsize=6)
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("largest difference (1)")
    right = max(max(table[name]) for name, (_, kind) in COMPARISONS.items() if kind == "correct")
    wrong = min(min(table[name]) for name, (_, kind) in COMPARISONS.items() if kind == "faulty")
    headline(figure, f"Cached and full passes agree to {right:.1g}; a wrong mask or position errs by {wrong:.1g} or more")
    return figure


def cost(run: Sealed) -> Figure:
    """Rows and score cells against length."""
    table, counts, lengths = run.table("scaling"), run.array("scaling", "count"), run.protocol.settings["lengths"]
    figure, (axis,) = panels(3.0)
    for row, (way, work) in enumerate(zip(table["way"], table["work"], strict=True)):
        name, colour, look = ("every prefix anew", MORE[1], "o--") if way == "every-prefix" else ("with a cache", MORE[0], "s-")
        fill = colour if work == "score-elements" else "white"
        label = f"{name}, {work.replace('-', ' ')}: n^{table['exponent'][row]:.2f}"
        axis.loglog(lengths, counts[row], look, color=colour, mfc=fill, linewidth=1, label=label)
    axis.set_xticks(lengths, [str(n) for n in lengths])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("tokens decoded")
    axis.set_ylabel("work (rows, cells)")
    axis.set_ylim(top=counts.max() * 300)
    axis.legend(loc="upper left")
    headline(figure, "Without a cache rows grow with the square, score cells with the cube of the length")
    return figure


def reset(run: Sealed) -> Figure:
    """Ids said by the first trained network behind some words."""
    table, words, said = run.table("generation"), run.array("generation", "words"), run.array("generation", "generated")
    first = run.protocol.values("network")[0]
    figure, axes = panels(1.8, 1.7, sharex=True)
    names = {"true-positions": "true positions", "reset-to-0": "reset to 0"}
    image = None
    for axis, (rule, name) in zip(axes, names.items(), strict=True):
        row = next(r for r, key in enumerate(zip(table["network"], table["input_positions"], strict=True)) if key == (first, rule))
        ids = np.concatenate([words[row, :WORDS], said[row, :WORDS]], axis=1)
        image = axis.imshow(ids, vmin=0, vmax=31, aspect="auto", interpolation="nearest")
        axis.axvline(words.shape[2] - 0.5, color="white", linewidth=1.5)
        axis.grid(visible=False)
        axis.set_yticks([])
        axis.set_ylabel("word")
        axis.set_title(f"{name}: {table['right_share'][row]:.0%} right, {table['loop_share'][row]:.0%} end in a loop")
    axes[1].set_xticks(range(0, 20, 5))
    axes[1].set_xlabel("token (left of the line: given)")
    figure.colorbar(image, ax=axes, label="id", aspect=30)
    headline(figure, "Inputs reset to position 0 turn recall into loops")
    return figure
