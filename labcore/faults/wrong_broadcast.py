"""A mask laid along the wrong axes of logits [batch, head, query, key], as broadcasting allows it.

`lay(variant, valid, owner_mask, shape)` gives the mask stretched to `shape` or raises ValueError where the shapes do not fit.
valid [batch, key]: the slots of each request's padded cache that are its own. owner_mask [batch, query, key]: block-diagonal, for a
shared cache. Twins: `right_padded`, `right_owner`. Control: equal lengths, where valid has equal rows and no padded variant differs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
VARIANTS = (
    "right_padded",
    "padded_as_heads",
    "padded_as_queries",
    "padded_on_query_axis",
    "right_owner",
    "owner_as_heads",
    "owner_swapped",
)


def lay(variant: str, valid: Mask, owner_mask: Mask, shape: tuple[int, int, int, int]) -> Mask:
    """The mask over `shape`. A result that would have grown beyond `shape` is an error too.

    right_padded          valid as [batch, 1, 1, key]
    padded_as_heads       valid as [1, batch, 1, key]: the batch lies on the head axis
    padded_as_queries     valid as [1, 1, batch, key]: the batch lies on the query axis
    padded_on_query_axis  valid as [batch, 1, key, 1]: the keys lie on the query axis
    right_owner           owner_mask as [batch, 1, query, key]
    owner_as_heads        owner_mask as [1, batch, query, key]
    owner_swapped         owner_mask as [batch, 1, key, query]
    """
    small = {
        "right_padded": valid[:, None, None, :],
        "padded_as_heads": valid[None, :, None, :],
        "padded_as_queries": valid[None, None, :, :],
        "padded_on_query_axis": valid[:, None, :, None],
        "right_owner": owner_mask[:, None],
        "owner_as_heads": owner_mask[None],
        "owner_swapped": owner_mask.transpose(0, 2, 1)[:, None],
    }[variant]
    return np.asarray(np.broadcast_to(small, shape))
