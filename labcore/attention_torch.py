"""The PyTorch twin of `labcore.attention`: the same rule, select before multiply, in the dtypes that users run."""

from __future__ import annotations

from typing import Any

import torch

from labcore.attention import SeesNothing


def attend(q: Any, k: Any, v: Any, visible: Any, softmax_dtype: Any = None, scale: float = 1.0) -> tuple[Any, Any]:
    """Output and weights of tensors q [..., query, width], k [..., key, width], v [..., key, value], visible [..., query, key].

    Logits in the dtype of q, softmax in softmax_dtype (default: that of q), output in the dtype of v. Raises SeesNothing.
    Agrees with the reference within the rounding of the dtype: a few units of 2**-53, 2**-24, 2**-11, 2**-8.
    """
    scores = q @ k.transpose(-2, -1) * (scale / q.shape[-1] ** 0.5)
    weights = softmax(scores, visible, softmax_dtype)
    return mix(weights.to(v.dtype), v, visible), weights


def softmax(scores: Any, visible: Any, dtype: Any = None) -> Any:
    """Weights over the visible keys; exactly 0 elsewhere. visible is a boolean tensor."""
    if visible.dtype != torch.bool:
        raise TypeError(f"visible: got dtype {visible.dtype}; wanted torch.bool (True is visible)")
    if not bool(visible.any(-1).all()):
        raise SeesNothing(f"axis key: a query sees none of {scores.shape[-1]} keys; wanted at least 1")
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), -1, dtype=dtype)


def mix(weights: Any, v: Any, visible: Any) -> Any:
    """Sum of weights times visible values: hidden values are replaced by zero first, query by query."""
    chosen = torch.where(visible[..., None], v[..., None, :, :], torch.zeros((), dtype=v.dtype))
    return (weights[..., None, :] @ chosen)[..., 0, :]
