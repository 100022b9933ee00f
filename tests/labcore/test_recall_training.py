"""The hand-written gradients against finite differences, and that a short training learns."""

from __future__ import annotations

import numpy as np
import pytest

from labcore import network
from labcore.recall_training import Plan, draw_words, gradients, repeated, train


def loss(values, words, plan):
    ids = repeated(words, plan.length)
    weights = network.Weights(*(np.broadcast_to(values[n], (len(ids), *values[n].shape)) for n in ("embedding", "qkv")))
    logits = network.advance(weights, ids)[0] @ values["readout"]
    top = logits.max(axis=2)
    logs = top + np.log(np.exp(logits - top[..., None]).sum(axis=2)) - np.take_along_axis(logits, np.roll(ids, -1, 1)[..., None], 2)[..., 0]
    return logs[:, plan.word - 1 : -1].mean()


@pytest.mark.parametrize("name", ["embedding", "qkv", "readout"])
def test_gradients_are_slopes_of_the_loss(name):
    plan = Plan(word=3, length=11)
    rng = np.random.default_rng(5)
    words = draw_words(rng, 7, plan.word)
    drawn = network.draw([5])
    values = {"embedding": drawn.embedding[0], "qkv": drawn.qkv[0], "readout": rng.normal(0, 0.25, (16, 32))}
    direction = rng.normal(size=values[name].shape)
    step = 1e-6
    sides = [loss({**values, name: values[name] + sign * step * direction}, words, plan) for sign in (1, -1)]
    assert (sides[0] - sides[1]) / (2 * step) == pytest.approx((gradients(values, words, plan)[name] * direction).sum(), rel=1e-6)


def test_a_short_training_learns_and_repeats_to_the_bit():
    plan = Plan(steps=300, length=11)
    model, again = train(7, plan), train(7, plan)
    assert model.readout.tobytes() == again.readout.tobytes()
    values = {"embedding": model.weights.embedding[0], "qkv": model.weights.qkv[0], "readout": model.readout}
    assert loss(values, draw_words(np.random.default_rng(0), 31, plan.word), plan) < 1.0 < np.log(32)
