"""Two 0/1 masks that are added instead of combined by AND, in both polarities and eight readings of the sum.

`effective(scores, first, second, polarity, use)` gives the coefficients that reach the values. polarity "keep": 1 is visible;
"block": 1 is hidden. Twin: `labcore.masks.both`. Control: where `HARMLESS` names (polarity, use), the sum is read as the AND.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
POLARITIES = ("keep", "block")
USES = ("positive", "factor", "one_minus", "inverted", "bitwise_not", "added", "boolean", "equals_one")
HARMLESS = {("block", "positive"), ("block", "inverted"), ("block", "boolean")}


def effective(scores: Floats, first: NDArray[np.bool_], second: NDArray[np.bool_], polarity: str, use: str) -> Floats:
    """Coefficients [..., query, key] of scores [..., query, key]; first and second [..., query, key], True is visible.

    Uses of the sum s of the two masks in their polarity:
      positive     s > 0 is the flag (to keep, or to block)
      factor       softmax over all keys, times s
      one_minus    softmax over all keys, times 1 - s
      inverted     not s is "visible"
      bitwise_not  ~s of the integers, whatever is not 0 is "visible"
      added        s is added to the logits as it is
      boolean      True + True = True is the flag (to keep, or to block)
      equals_one   s == 1 is the flag (to keep, or to block)
    Rows that see nothing are all zero.
    """
    masks = (first, second) if polarity == "keep" else (~first, ~second)
    total = masks[0].astype(np.int64) + masks[1].astype(np.int64)
    everything = np.ones_like(total, bool)
    if use == "factor":
        return np.asarray(_soft(scores, everything) * total)
    if use == "one_minus":
        return np.asarray(_soft(scores, everything) * (1 - total))
    if use == "added":
        return _soft(scores + total, everything)
    if use in ("inverted", "bitwise_not"):
        return _soft(scores, total == 0 if use == "inverted" else ~total != 0)
    flag = {"positive": total > 0, "boolean": masks[0] | masks[1], "equals_one": total == 1}[use]
    return _soft(scores, flag if polarity == "keep" else ~flag)


def _soft(scores: Floats, visible: NDArray[np.bool_]) -> Floats:
    seen = np.broadcast_to(visible, scores.shape)
    some = seen.any(-1, keepdims=True)
    top = np.max(np.where(seen, scores, -np.inf), -1, keepdims=True)
    powers = np.where(seen, np.exp(np.where(seen, scores - np.where(some, top, 0), -np.inf)), 0.0)
    return np.asarray(powers / np.where(some, powers.sum(-1, keepdims=True), 1.0))
