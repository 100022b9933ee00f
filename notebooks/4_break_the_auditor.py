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
# # How the auditor works, and how to break it
#
# A hash shows that bytes did not change since the hash was made. Whoever changes the bytes can make a new hash, too. So the auditor
# does more: it draws the inputs again from the seeds, computes the outputs again with algorithms of its own, and recomputes every metric.
#
# Here you are the forger. You work on a copy in a temporary folder; the kept run is only read. Rules have permanent numbers, and
# `evidence/FORMAT.md` says what each means: **S** the seal, **M** metrics, **R** re-derivation, **V** verdicts, **L** the ledger.

# %%
import copy
import shutil
import tempfile
from pathlib import Path

import numpy as np
import tour

from audit import rederive
from audit.committed import around
from audit.run import audit
from tests.audit.reseal import Evidence

run = tour.kept("06")
folder = Path(tempfile.mkdtemp(prefix="forger-"))


def judge(path):
    """Audit a run's folder; print the verdict and the findings, give back the rules that were broken."""
    document = audit(path).document
    print(path.name, document["verdict"])
    for finding in document["findings"][:4]:
        print("  ", finding["rule"], finding["where"], "-", finding["text"])
    return sorted({finding["rule"] for finding in document["findings"]})


def copied():
    """A fresh copy of the kept run."""
    shutil.rmtree(folder / run.path.name, ignore_errors=True)
    return Path(shutil.copytree(run.path, folder / run.path.name))


# %% [markdown]
# ## An untouched copy

# %%
assert judge(copied()) == []

# %% [markdown]
# ## Predict: one bit
#
# One bit of one number in `arrays.h5` is flipped, the last of its fifty-two after the point. Which kinds of rule find it: S, M, R?

# %%
said = ...  # for example "S", or "S and R"

# %%
target = copied()
path = target / "sealed" / "arrays.h5"
data = bytearray(path.read_bytes())
data[data.index(run.array("published", "fresh").tobytes())] ^= 1
path.write_bytes(data)
found = judge(target)
tour.answer(said, found)
assert found == ["M201", "S105", "S111"]

# %% [markdown]
# S105 is the digest of the file, S111 that of the array, both in the manifest: that is the cheap part, and a forger mends it. M201: the
# error in `results.csv` is not what the arrays give, to the bit. No R: the last bit is far below the bound within which two right
# programs may differ.
#
# ## Predict: one number, sealed again
#
# Now you own a program that writes evidence: it changes what you like and makes all digests and the run's name anew. It is
# the one by which the auditor's tests deceive the auditor. You raise one element of a `fresh` state by a thousandth.

# %%
said = ...  # "VERIFIED", or the letter of the rule that finds it

# %%
evidence = Evidence.load(run.path)


def forge(change):
    """A copy of the evidence, changed and sealed again."""
    forged = copy.deepcopy(evidence)
    change(forged)
    return forged.seal(folder)


def raise_one(forged, by=1e-3):
    """One element of the first row's fresh states."""
    forged.arrays["published/fresh"][0, 0, 0] += by


found = judge(forge(raise_one))
tour.answer(said, found)
assert found == ["M201", "R302"]

# %% [markdown]
# The seal holds: no S. But the errors in `results.csv` are not what the arrays give (M201), and the array is not what the weights and ids
# give (R302), by loops and correctly rounded sums that share no code with the experiment.
#
# ## A better forger
#
# You change all three answers of the row alike, so that every error stays what it was.

# %%


def raise_all(forged):
    """The same element of fresh, unchecked and guarded, set to the same value."""
    for name in ("fresh", "unchecked", "guarded"):
        forged.arrays[f"published/{name}"][0, 0, 0] = 0.5


found = judge(forge(raise_all))
assert found == ["R302"]

# %% [markdown]
# ## Predict: change the question
#
# If the numbers cannot be moved, move the rule: control and claims are part of the protocol, and the protocol is part of what you seal. You
# rewrite D08 so that it demands a hit from another reader's scope. Which rule finds it in this temporary folder?

# %%
said = ...  # "VERIFIED", or the letter of the rule that finds it


# %%
def other_rule(forged):
    """D08 turned around: reproduced if the store serves the other reader."""
    rule = forged.protocol["claims"]["D08"]
    rule["reproduced"], rule["contradicted"] = "hits > 0", "hits = 0"


forged = forge(other_rule)
found = judge(forged)
tour.answer(said, found or "VERIFIED")
document = audit(forged).document
print("D08 is now", document["claims"]["D08"]["verdict"])
print("committed protocol:", document["levels"]["committed_protocol"])
assert found == [] and document["claims"]["D08"]["verdict"] == "contradicted"

# %% [markdown]
# You broke it, or rather: outside a repository the auditor cannot know which protocol was committed, and it says so in `levels`. Read that
# line before you believe a folder from a stranger. Beside the repository's history the same folder is found:

# %%
repository = around(tour.ROOT)
if repository is None:
    print("this copy of the suite is no git repository; in one, S107 finds the forged protocol")
else:
    repository.start()
    found = [finding["rule"] for finding in audit(forged, repository).document["findings"]]
    repository.close()
    print(found)
    assert "S107" in found

# %% [markdown]
# Another protocol is another name, too, and a kept run without its line in the ledger breaks L503.

# %%
print("kept:", run.path.name, " forged:", forged.name)
assert forged.name != run.path.name

# %% [markdown]
# ## What it takes as given
#
# Not everything can be derived. The auditor names what it takes as given, with the reason, and counts it.

# %%
module = rederive.load("06_stale_prefix")
tour.show([{"array": name, "reason": reason} for name, reason in module.GIVEN.items()])
print("given:", run.audit["rederived"]["given"])

# %% [markdown]
# ## Predict: the clock
#
# A hit was measured to save next to no time in so small a network (D07). You replace the measured seconds of hits by a
# millionth of a second, and seal.

# %%
said = ...  # "VERIFIED", or the letter of the rule that finds it


# %%
def faster(forged):
    """Every hit takes a microsecond."""
    parts = run.protocol.values("part")
    forged.timings["request_time/seconds"][parts.index("hit")] = 1e-6


forged = forge(faster)
found = judge(forged)
tour.answer(said, found or "VERIFIED")
print("D07 was", run.audit["claims"]["D07"]["verdict"], "and is", audit(forged).document["claims"]["D07"]["verdict"])
assert found == [] and audit(forged).document["claims"]["D07"]["verdict"] == "contradicted"

# %% [markdown]
# Nobody can recompute a time that has passed. Claims on times rest on whoever measured; `make replicate EXP=06` measures again on your
# machine. That is why times lie in a file of their own, outside the run's name and of every exact comparison.
#
# ## Change one thing
#
# How small a lie gets through? Choose `by`. Metrics must follow from the arrays to the bit, so a raised `fresh` alone is always found by
# M201. Raise all three answers alike, and only the bound of re-derivation stands in the way: 1e-12 in this network, for the reason
# that FORMAT.md section 8 gives.

# %%
by = 1e-13


def small(forged):
    """Raise the same element of all three answers in a row where they are equal to the bit."""
    values = forged.arrays["published/fresh"][0, 0, 0] + by
    for name in ("fresh", "unchecked", "guarded"):
        forged.arrays[f"published/{name}"][0, 0, 0] = values


found = judge(forge(small))
assert np.array_equal(evidence.arrays["published/fresh"][0], evidence.arrays["published/guarded"][0])
assert module.BOUNDS["published/fresh"][0] == 1e-12
assert found == ([] if by < 9e-13 else ["R302"])

# %% [markdown]
# A lie below the bound is one that no verdict can notice: D06 asks for errors up to 1e-12 as well. Raise `by` to 1e-11 and see it found.

# %%
shutil.rmtree(folder)
