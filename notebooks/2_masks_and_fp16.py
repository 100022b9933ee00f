# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Masks, and numbers that stand for minus infinity
#
# Experiments 01 to 03 put two requests into one physical cache. A is 红 橙 黄, B is 绿 青 蓝; their keys and values lie in six slots, one
# after the other. A mask is all that keeps them apart. Three questions, each with a prediction of yours first.

# %%
import numpy as np
import tour

from labcore import masks
from labcore.attention import logits, mix
from labcore.faults import wrong_masks

run = tour.kept("01")
print(run.protocol.question)
print(run.path.name, run.audit["verdict"])

# %% [markdown]
# ## The right mask, by hand
#
# The sealed inputs of seed 7 have the axes request, head, token, width. The cache holds the keys of both requests; the correct mask is
# causal AND block-diagonal. `owner` says whose slot it is.

# %%
place = run.protocol.seeds.index(7)
q, k, v = (run.array("inputs", name)[place] for name in "qkv")
cache_k, cache_v = (np.concatenate(list(part), axis=1)[None] for part in (k, v))
owner = masks.owners([3, 3])
print("owner of each slot:", owner.tolist())


def answer_under(condition):
    """Weights and output of both requests under one of the experiment's masks."""
    weights = wrong_masks.VARIANTS[condition](logits(q, cache_k), owner)
    return weights, mix(weights, cache_v, weights != 0)


weights, output = answer_under("correct")
row = tour.row(run, "published", seed=7, condition="correct")["row"]
assert np.allclose(output, run.array("published", "output")[row], rtol=0, atol=run.protocol.tolerance)
print("weights of A's last query, first head:", np.round(weights[0, 0, 2], 3))

# %% [markdown]
# ## The strongest check needs no reference
#
# Replace every key and value of the *other* request. Nothing of yours may move: not by rounding, but by exactly 0, since a hidden key
# is selected away before anything is added up.

# %%
moved = run.array("published", "changed")[row], run.array("published", "output")[row]
assert np.array_equal(*moved)
print("outputs after all foreign keys and values changed: equal to the bit")

# %% [markdown]
# ## Predict: the swapped mask
#
# Someone hands over the mask with query and key axes swapped. *Leak* is the sum of a row's weights on foreign slots. How large is the
# leak, and how large is the error of the output (values are about one in size)?

# %%
said = ...  # for example {"leak": 0.3, "error": 0.3}

# %%
swapped = tour.row(run, "published", "leak_max error", seed=7, condition="axes_swapped")
tour.answer(said, swapped)
assert swapped["leak_max"] == 0 and f"{swapped['error']:.2f}" == "2.30"
tour.show(tour.rows(run, "published", "condition leak_max row_sum_min error", seed=7))

# %% [markdown]
# The leak is exactly 0, and the output is off by 2.30: the swapped mask keeps requests apart and lets each query see its own *future*.
# A metric that looks for foreign weight alone gives it a clean bill. That is why A04 is only qualified.

# %%
tour.claim(run, "A04")
tour.figure(run, "metrics")

# %% [markdown]
# ## Predict: the mask comes after the softmax
#
# `softmax(s) * m` instead of a softmax over the visible keys. B's weights are zeroed, but they were in the sum. Does A's output depend
# on B's keys, on B's values, or on both?

# %%
said = ...  # "keys", "values" or "both"

# %%
order = tour.kept("02")
tour.answer(said, tour.row(order, "published", "key_effect value_effect", seed=7, variant="after"))
tour.show(tour.rows(order, "published", "variant row_sum_max error key_effect value_effect", seed=7))
for line in tour.rows(order, "published", "key_effect value_effect", variant="after"):
    assert line["key_effect"] > 0.4 and line["value_effect"] == 0
tour.claim(order, "A03")

# %% [markdown]
# Keys only. On all three seeds a changed key of B moves A's output by more than 0.4, and a changed value of B by exactly 0: B turns A's
# volume up and down, and none of its content gets in. Dividing by the row sum again undoes even that, up to rounding.
#
# ## Predict: fp16 and -1e9
#
# A masked key gets -1e9 added in float16, whose largest number is 65504. How many of the 49 x 49 pairs of logits (visible, masked)
# leave weight on the masked key? And with -1e4, a number that float16 can hold?

# %%
said = ...  # for example {"minus_1e9": 100, "minus_1e4": 0}

# %%
half = tour.kept("03")
where = {"dtype": "float16", "softmax": "same"}
leaking = {fill: tour.row(half, "phase", "leaking winning", fill=fill, **where) for fill in ("minus_1e9", "minus_1e4")}
tour.answer(said, {fill: counts["leaking"] for fill, counts in leaking.items()})
assert leaking["minus_1e9"]["leaking"] == 0 and leaking["minus_1e4"]["leaking"] > 0
assert leaking["minus_1e4"]["winning"] > 0.9 * leaking["minus_1e4"]["leaking"]
tour.claim(half, "A17")

# %% [markdown]
# The fill that float16 cannot hold is the safe one: it silently becomes minus infinity. The one that fits leaks, and where it leaks the
# masked key mostly *wins*, because a large masked logit with -1e4 added is still above a small visible one.

# %%
tour.figure(half, "phase")

# %% [markdown]
# ## Change one thing
#
# Choose a dtype, a fill and two logits; the nearest ones of the sealed axis are taken. Before you run it, say whether the masked key
# keeps weight. Try `minus_1e4` with masked 10000 and visible 4: the gap is what counts, not the size.

# %%
dtype, fill = "float16", "minus_1e4"
visible, masked = 4.0, 10000.0

axis = half.array(f"phase_{dtype}", "axis").astype(np.float64)
of, x, y = half.protocol.values("fill").index(fill), np.abs(axis - visible).argmin(), np.abs(axis - masked).argmin()
weight = half.array(f"phase_{dtype}", "weight_same")[of, x, y]
print(f"{dtype}, {fill}: visible {axis[x]:g}, masked {axis[y]:g}")
print(f"the masked key keeps {weight:.3g} of the weight")
assert 0 <= weight <= 1 or np.isnan(weight)
