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
# # Prefix reuse
#
# A new request shares its first tokens with a stored one. How much of the cache may it continue, and what goes wrong at the cut?
# Experiments 07 and 13 answer with the teaching network: every error below is the distance from a full pass over the request's own ids.

# %%
import numpy as np
import tour

from labcore import matchers, metrics, network
from labcore.common_prefix import CommonPrefixStore
from labcore.faults import stale_next_position

run = tour.kept("07")
settings = run.protocol.settings
print(run.protocol.question)
print("stored:", settings["stored"])

# %% [markdown]
# ## Predict: the cut
#
# The request is 1 2 3 4 **20** 6 7 8 9 10 11 12. The store holds `a` = 1..8 and `b` = 1 2 3 4 5 20 21 22. How many tokens may be
# reused, and how many of 72 projected rows must still be computed?

# %%
said = ...  # for example {"cut": 7, "projected_rows": 30}

# %%
query = settings["conditions"]["edit-middle"]["query"]
weights = network.draw([7])
store = CommonPrefixStore(settings["capacity"])
for ids in settings["stored"].values():
    store.remember(weights, ids, settings["owner"])
counter = network.Counter()
states, cut = store.serve(weights, query, settings["owner"], counter=counter)
sealed = tour.row(run, "published", "cut projected_rows max_error wrong_error", seed=7, condition="edit-middle")
tour.answer(said, {"cut": cut, "projected_rows": counter.projected_rows})
assert (cut, counter.projected_rows) == (sealed["cut"], sealed["projected_rows"]) == (4, 48)

# %% [markdown]
# Four tokens agree; what stands behind the edit is useless even where the ids agree again, since those rows have seen the old id.
#
# ## Predict: a forgotten number
#
# The cache is cropped to the cut, keys and values are right, but the *next position* stays where the stored sequence ended. The new
# tokens are embedded four places too late. Is that (a) rounding, (b) some percent, or (c) as large as the states themselves, which lie
# between -1 and 1?

# %%
said = ...  # "a", "b" or "c"

# %%
entry, cut = store.find(weights, query, settings["owner"])
wrong = stale_next_position.faulty(weights, entry.cache, np.array(query), cut)
fresh, _ = network.advance(weights, query)


def error(made):
    """Largest error of the states behind the cut, as the protocol's own metric."""
    return metrics.compute(run.protocol.blocks["published"], {"reuse": made, "wrong": made, "fresh": fresh[:, cut:]})["max_error"][0]


tour.answer(said, f"{error(wrong):.4f}, so (c)")
assert f"{error(wrong):.4f}" == f"{sealed['wrong_error']:.4f}" == "1.3775"
assert error(states) <= run.protocol.tolerance and sealed["max_error"] <= run.protocol.tolerance
tour.show(tour.rows(run, "published", "condition cut projected_rows max_error wrong_error", seed=7))

# %% [markdown]
# An error of 1.3775. Where wrong_error is 0 or rounding nothing was cropped, and the forgotten number happens to be right: a test that
# only ever appends to a stored sequence cannot see this fault.

# %%
tour.figure(run, "cut")

# %% [markdown]
# ## Predict: blocks
#
# Engines index prefixes in blocks. The request leaves the stored sequence after 21 tokens. What do indexes with blocks of 16, of 4, and
# a radix tree find?

# %%
said = ...  # for example {"block_16": 21, "block_4": 21, "radix": 21}

# %%
grains = ("block_16", "block_4", "radix", "whole")
found = {grain: tour.row(run, "grains", "reusable entries", grain=grain, shared=21) for grain in grains}
tour.answer(said, {grain: line["reusable"] for grain, line in found.items()})
assert [line["reusable"] for line in found.values()] == [16, 20, 21, 0]
rounding = tour.rows(run, "inside_block", "block_size down up down_error up_error", seed=7, inside=21)
tour.show(rounding)
assert all(line["down_error"] <= run.protocol.tolerance and line["up_error"] > 0.01 for line in rounding)

# %% [markdown]
# A block index rounds *down* and loses some tokens. One that takes the block whole because its first tokens agree errs by more than
# 0.01 at every block size.
#
# ## Predict: what else looks alike
#
# Experiment 13 reuses what merely looks alike. Which of these four is exact: a stored **prefix**; a **substring** that stands at the
# same places behind another beginning; the same substring **moved**; a sequence with one **mismatch**?

# %%
said = ...  # for example {"prefix", "substring"}

# %%
more = tour.kept("13")
classes = tour.rows(more, "classes", "match_class reused_tokens class_error", seed=7)
tour.answer(said, {line["match_class"] for line in classes if line["class_error"] <= more.protocol.tolerance})
tour.show(classes)
assert {line["match_class"] for line in classes if line["class_error"] <= more.protocol.tolerance} == {"full", "prefix"}
tour.claim(more, "C04")

# %% [markdown]
# Only what agrees from the first token on. Shortcuts spread, too: a key made of *some* tokens (`sampled`) lets a wrong entry in, what
# is computed behind it is stored as well, and every generation adds one.

# %%
cascade = tour.rows(more, "cascade", "generation generation_error polluted_entries", seed=7, entry_key="sampled")
tour.show(cascade)
assert [line["polluted_entries"] for line in cascade] == [line["generation"] for line in cascade]
assert all(line["polluted_entries"] == 0 for line in tour.rows(more, "cascade", "polluted_entries", entry_key="exact"))
tour.figure(more, "matching")

# %% [markdown]
# ## Change one thing
#
# Put your own sequences into the real indexes. `block` is the size of a block. Say first how many tokens each will find.

# %%
block = 4
stored = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
asked = [1, 2, 3, 4, 5, 6, 7, 20, 21]

for name in ("dictionary", "whole_hash", "block_hash", "trie", "radix"):
    index = matchers.make(name, block)
    index.add("owner", stored)
    print(f"{name:10} finds {index.longest('owner', asked)} for its owner, {index.longest('other', asked)} for another scope")
    assert index.longest("other", asked) == 0
