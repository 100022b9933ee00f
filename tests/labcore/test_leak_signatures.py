"""Planted leaks and the classifier that names them from rows alone."""

import numpy as np
import pytest

from labcore.attention import softmax
from labcore.faults import leak_patterns
from labcore.leak_signatures import NAMES, classify, logged

STEPS, OWN, FOREIGN = 5, 7, 3


def named(mask, seed=3, scale=1.0, threshold=0.0, presence=0.3):
    scores = scale * np.random.default_rng(seed).normal(size=mask.shape)
    rows = logged(softmax(scores, mask))[None]
    return NAMES[classify(rows, OWN, threshold, presence)[0]]


def test_each_fault_is_named_on_every_seed():
    shape = (STEPS, OWN, FOREIGN)
    for seed in range(11):
        assert named(leak_patterns.healthy(*shape), seed) == "clean"
        assert named(leak_patterns.boundary(*shape), seed) == "boundary"
        assert named(leak_patterns.everything(*shape), seed) == "global"
        assert named(leak_patterns.position(*shape, 2, 1), seed) == "position"
        assert named(leak_patterns.intermittent(*shape, 2, 1, 4), seed) == "intermittent"


def test_control_what_no_one_can_tell_apart():
    shape = (STEPS, OWN, FOREIGN)
    assert np.array_equal(leak_patterns.position(*shape, OWN - 1, 0), leak_patterns.boundary(*shape))
    one = (1, OWN, FOREIGN)
    assert np.array_equal(leak_patterns.intermittent(*one, 2, 1, 0), leak_patterns.position(*one, 2, 1))


def test_failure_region_a_weight_that_rounds_to_zero():
    mask = leak_patterns.position(STEPS, OWN, FOREIGN, 2, 1)
    assert {named(mask, seed, scale=30.0) for seed in range(20)} > {"clean"}
    assert named(mask, threshold=0.999) == "clean"


@pytest.mark.parametrize("times, name", [(1, "intermittent"), (2, "position"), (5, "position")])
def test_presence(times, name):
    rows = np.zeros((1, STEPS, OWN, OWN + FOREIGN), np.float16)
    rows[0, :times, 2, OWN + 1] = 0.25
    assert NAMES[classify(rows, OWN, 0.0, 0.3)[0]] == name
