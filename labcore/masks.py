"""Which query may see which key: boolean visibility over [request, query, key], True is visible.

Each rule is a mask of its own, built from who owns what, where it stands and what is written; `both` combines them by AND.
Letters: r request, q query, k key (a slot of the shared cache). -1 owns nothing: a free slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
AXES = ("request", "query", "key")
FREE = -1


def owners(lengths: Any) -> Ints:
    """Owner of every slot of requests that stand one after the other; lengths [r] -> [k]. Raises for a request of length 0.

    >>> owners([3, 2]).tolist()
    [0, 0, 0, 1, 1]
    """
    sizes = _integers("lengths", lengths, 1)
    for request, size in enumerate(sizes.tolist()):
        if size < 1:
            raise ValueError(f"axis request: got length {size} of request {request}; wanted at least 1")
    return np.repeat(np.arange(len(sizes)), sizes)


def placed(slots: Sequence[Any], keys: int) -> Ints:
    """Owner of every slot of a cache of `keys` slots, from each request's own slots (a page table spelled out). -> [k].

    Raises for overlapping owners, a slot outside of the cache, and a request without slots.

    >>> placed([[4, 1], [0]], 5).tolist()
    [1, 0, -1, -1, 0]
    """
    owner = np.full(keys, FREE, np.int64)
    for request, own in enumerate(slots):
        place = _integers(f"slots of request {request}", own, 1)
        if len(place) == 0:
            raise ValueError(f"axis request: got no slot for request {request}; wanted at least 1")
        if place.min() < 0 or place.max() >= keys:
            raise ValueError(f"axis key: got slots {place.min()} to {place.max()} of request {request}; wanted 0 to {keys - 1}")
        taken = place[owner[place] != FREE]
        if len(taken) or len(set(place.tolist())) != len(place):
            twice = int(taken[0]) if len(taken) else int(place[0])
            raise ValueError(f"axis key: got slot {twice} owned twice (again by request {request}); wanted one owner a slot")
        owner[place] = request
    return owner


def block_diagonal(owner: Any, requests: int) -> Mask:
    """A request sees the slots that it owns. owner [k] -> [r, 1, k]."""
    own = _integers("owner", owner, 1)
    if own.size == 0:
        raise ValueError("axis key: got length 0; wanted at least 1")
    if own.max() >= requests or own.min() < FREE:
        raise ValueError(f"axis request: got owners {own.min()} to {own.max()}; wanted {FREE} to {requests - 1}")
    return np.asarray(np.arange(requests)[:, None, None] == own[None, None, :])


def causal(query_positions: Any, key_positions: Any) -> Mask:
    """A query sees keys at its own position and before. query_positions [r, q], key_positions [k] or [r, k] -> [r, q, k]."""
    query, key = _positions(query_positions, key_positions)
    return np.asarray(key[:, None, :] <= query[:, :, None])


def window(query_positions: Any, key_positions: Any, width: int) -> Mask:
    """A query sees only the last `width` positions, its own included. -> [r, q, k]. Combine it with `causal`.

    Raises for a width below 1: such a query would see nothing.
    """
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
        raise ValueError(f"window: got {width!r}; wanted an integer of at least 1")
    query, key = _positions(query_positions, key_positions)
    return np.asarray(key[:, None, :] > query[:, :, None] - width)


def written(flags: Any) -> Mask:
    """Slots that hold data. flags, boolean: [k], or [r, k] if requests see different caches -> [1 or r, 1, k]."""
    flag = np.asarray(flags)
    if flag.dtype != bool:
        raise TypeError(f"written: got dtype {flag.dtype}; wanted bool")
    if flag.ndim not in (1, 2):
        raise ValueError(f"written: got {flag.ndim} axes; wanted key, or request and key")
    return np.asarray(np.atleast_2d(flag)[:, None, :])


def both(*masks: Any) -> Mask:
    """AND of masks over [request, query, key]; axes of length 1 stretch, nothing else does.

    >>> both(causal([[0, 1]], [0, 1]), written(np.array([True, False]))).astype(int).tolist()
    [[[1, 0], [1, 0]]]
    """
    checked = [check(mask) for mask in masks]
    for axis, name in enumerate(AXES):
        sizes = {mask.shape[axis] for mask in checked} - {1}
        if len(sizes) > 1:
            raise ValueError(f"axis {name}: got lengths {sorted(sizes)}; wanted equal ones")
    return np.asarray(reduce(np.logical_and, checked))


def check(mask: Any, requests: int | None = None, queries: int | None = None, keys: int | None = None) -> Mask:
    """The mask, if it is boolean over [request, query, key] and has the lengths wanted. Nothing is stretched or converted."""
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"mask: got dtype {array.dtype}; wanted bool (True is visible)")
    if array.ndim != 3:
        raise ValueError(f"mask: got {array.ndim} axes {array.shape}; wanted 3: {', '.join(AXES)}")
    wanted = (requests, queries, keys)
    for axis, (name, want) in enumerate(zip(AXES, wanted, strict=True)):
        got = array.shape[axis]
        if want is not None and got != want:
            swapped = " (query and key are swapped)" if (queries, keys) == (array.shape[2], array.shape[1]) and axis else ""
            raise ValueError(f"axis {name}: got length {got}; wanted {want}{swapped}")
    return array


def _positions(query: Any, key: Any) -> tuple[Ints, Ints]:
    q, k = _integers("query_positions", query, 2), _integers("key_positions", key, None)
    if k.ndim not in (1, 2):
        raise ValueError(f"key_positions: got {k.ndim} axes; wanted key, or request and key")
    k = np.atleast_2d(k)
    if len(k) not in (1, len(q)):
        raise ValueError(f"axis request: got {len(k)} rows of key_positions; wanted 1 or {len(q)}")
    return q, k


def _integers(name: str, values: Any, axes: int | None) -> Ints:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: got dtype {array.dtype}; wanted integers")
    if axes is not None and array.ndim != axes:
        raise ValueError(f"{name}: got {array.ndim} axes {array.shape}; wanted {axes}")
    return np.asarray(array, np.int64)
