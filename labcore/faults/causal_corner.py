"""Which corner a causal mask is anchored to, when queries are fewer than keys (BR-05). PyTorch.

Faulty: PyTorch's causal flag, anchored at the top left, as if cached keys were the future. Twins: `lower_right` (PyTorch's explicit
bias) and `own` (positions given). Control: as many queries as keys, where all three agree.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

Tensor = Any
WAYS = ("flag", "lower_right", "own")


def attend(q: Tensor, k: Tensor, v: Tensor, way: str) -> Tensor:
    """Output [batch, head, query, d] of the last queries of a sequence of keys."""
    queries, keys = q.shape[-2], k.shape[-2]
    if way == "flag":
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    if way == "lower_right":
        from torch.nn.attention.bias import causal_lower_right

        return scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(queries, keys))
    positions = torch.arange(keys - queries, keys)
    return scaled_dot_product_attention(q, k, v, attn_mask=torch.arange(keys) <= positions[:, None])
