"""The network under other conditions: at its defaults the network itself, and each condition does what it says."""

from __future__ import annotations

import numpy as np
import pytest

from labcore import network, network_variants
from labcore.network_variants import Conditions

WEIGHTS = network.draw([7, 19])
IDS = np.array([3, 10, 17, 24, 31, 6, 13])


@pytest.mark.parametrize("window", [None, 3])
def test_defaults_are_the_network(window):
    ours, _ = network_variants.advance(WEIGHTS, IDS, Conditions(window=window))
    assert np.abs(ours - network.advance(WEIGHTS, IDS, window=window)[0]).max() <= 1e-13


@pytest.mark.parametrize("conditions", [Conditions(heads=2), Conditions(layers=(1,)), Conditions(position_base=100.0, score_power=1.0)])
def test_continuing_is_the_full_pass(conditions):
    full, _ = network_variants.advance(WEIGHTS, IDS, conditions)
    _, rows = network_variants.advance(WEIGHTS, IDS[:4], conditions)
    rest, after = network_variants.advance(WEIGHTS, IDS[4:], conditions, rows)
    assert np.abs(rest - full[:, 4:]).max() <= 1e-13
    assert (rows.length, after.length) == (4, 7)
    assert np.abs(full - network.advance(WEIGHTS, IDS)[0]).max() > 1e-3


def test_heads_do_not_meet():
    """Keys of the second head changed: columns of the first head of a one-layer network stay, exactly."""
    one = Conditions(heads=2, layers=(0,))
    before, _ = network_variants.advance(WEIGHTS, IDS, one)
    other = network.Weights(WEIGHTS.embedding, WEIGHTS.qkv.copy())
    other.qkv[:, 0, 1, :, 8:] += 1.0
    after, _ = network_variants.advance(other, IDS, one)
    assert np.abs(after[..., :8] - before[..., :8]).max() == 0.0
    assert np.abs(after[..., 8:] - before[..., 8:]).max() > 1e-3


def test_too_few_layers_of_rows_are_refused():
    _, rows = network_variants.advance(WEIGHTS, IDS, Conditions(layers=(0,)))
    with pytest.raises(ValueError, match="wanted 2"):
        network_variants.advance(WEIGHTS, IDS, Conditions(), rows)
