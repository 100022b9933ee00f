"""NaN where no one should look: rows that see nothing (BR-02) and slots that were never written (BR-04). PyTorch.

Twin of all: `labcore.attention_torch`, which selects before it multiplies. Controls: finite garbage (1e4) in the slot hides the fault of
BR-04; the dtype's minimum instead of -inf hides that of BR-02, whose padding row is then a mean of values and not zero.
"""

from __future__ import annotations

from typing import Any

import torch

from labcore import attention_torch

Tensor = Any
SLOT_WAYS = ("additive", "fill", "select")
ROW_WAYS = ("minus_inf", "finfo_min", "zero_row")


def read_slots(q: Tensor, k: Tensor, v: Tensor, written: Tensor, way: str) -> Tensor:
    """Output [head, query, d] over slots of which `written` [slot] hold data.

    additive: -inf is added to the scores of unwritten slots (faulty); fill: it is put there (faulty for values); select: the twin.
    """
    if way == "select":
        return attention_torch.attend(q, k, v, written.expand(q.shape[-2], -1))[0]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if way == "additive":
        scores = scores + torch.where(written, 0.0, -torch.inf).to(scores.dtype)
    else:
        scores = scores.masked_fill(~written, -torch.inf)
    return torch.softmax(scores, -1) @ v


def layer(x: Tensor, seen: Tensor, way: str) -> Tensor:
    """One layer in which a token's query, key and value are its state: x [token, d], seen [query, key]; a row may see nothing.

    minus_inf: such a row is NaN (faulty). finfo_min: it is a mean of all values (faulty, no NaN). zero_row: it is zero (correct).
    """
    scores = x @ x.T / x.shape[-1] ** 0.5
    if way == "zero_row":
        some = seen.any(-1, keepdim=True)
        weights = torch.where(seen, attention_torch.softmax(scores, seen | ~some), torch.zeros((), dtype=x.dtype))
        return attention_torch.mix(weights, x, seen)
    fill = -torch.inf if way == "minus_inf" else float(torch.finfo(x.dtype).min)
    return torch.softmax(scores.masked_fill(~seen, fill), -1) @ x
