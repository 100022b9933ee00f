"""Fault: every query sees every key, later ones too. Correct twin: `network.advance`; control: the last token, which may see all."""

from __future__ import annotations

import numpy as np

from labcore import network
from labcore.network import Floats, Ints, Weights


def faulty(weights: Weights, tokens: Ints) -> Floats:
    """States [g, n, d] of a full pass over [g, n] without any mask."""
    n = tokens.shape[1]
    x = network.embed(weights, tokens, np.arange(n))
    return network.attend(weights, x, np.ones((n, n), bool))[0]
