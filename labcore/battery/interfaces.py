"""What the battery can test: an attention function, a cache of requests, a pool of blocks. Implement what you have, leave out the rest.

A system is any object with the methods of one (or more) of the three protocols below; nothing is inherited. Methods marked *optional*
may be missing: the checks that need them are reported as not applicable, never as passed. Its attribute `claims`, also optional, says
what the system promises and where it ends; a check asks nothing outside of the claims. Where a method means something else than here, the
attribute `interfaces`, such as ("cache",), names those that are meant.

A system that cannot do one particular thing raises NotImplementedError there: not applicable, with its text as the reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
KINDS = ("causal", "padded", "packed", "window", "any", "full")


@dataclass(frozen=True)
class View:
    """Which keys each query may see, told in every way a kernel may want to be told. n queries, m keys.

    allowed [n, m] bool: the whole truth; the rest says the same in parts.
    kind: "causal" (all see the keys up to themselves; n <= m, the queries are the last n of m), "padded" (causal, and only the first
        `length` keys are written: the memory behind holds anything), "packed" (several requests behind each other, each causal in
        itself), "window" (causal, the last `window` keys), "any" (any mask),
        "full" (all keys).
    query_positions [n], key_positions [m] int: position of each token in its own request.
    query_owner [n], key_owner [m] int: whose token it is.
    length: keys that are written. window: see kind; 0 where there is none.
    """

    allowed: NDArray[np.bool_]
    kind: str
    query_positions: NDArray[np.int64]
    key_positions: NDArray[np.int64]
    query_owner: NDArray[np.int64]
    key_owner: NDArray[np.int64]
    length: int
    window: int = 0


@dataclass(frozen=True)
class AttentionClaims:
    """What an attention function promises.

    heads, groups, width: sizes it is given (two heads a group, and i % groups differs from i // 2). dtype: of the arrays.
    kinds: the views it takes. grouped: fewer key-value heads than heads, head i reading group
    i // (heads / groups). plain: it computes softmax(q k / sqrt(d)) v and may be compared with the textbook; False for caps, sinks,
    other scales.
    rotary: it turns q and k by their positions itself, so that only distances count; max_position: up to where.
    no_key: what a query without any allowed key gives: "zero", "refuse" (ValueError) or "unspecified" (never asked).
    garbage: what memory that is not written may hold: "any" (NaN too), "finite", "none" (never asked).
    short_queries: it takes fewer queries than keys. largest_score: |q k / sqrt(d)| up to which it is right.
    rounding: largest relative error of its arithmetic, where it is coarser than dtype (quantised keys and values); None: measured.
    outliers: one channel or token may be much larger than the rest. row_exact: a query's result has the same bits alone or among others.
    """

    heads: int = 6
    groups: int = 3
    width: int = 6
    dtype: str = "float64"
    kinds: tuple[str, ...] = KINDS
    grouped: bool = True
    plain: bool = True
    rotary: bool = False
    max_position: int = 16384
    no_key: Literal["zero", "refuse", "unspecified"] = "zero"
    garbage: Literal["any", "finite", "none"] = "any"
    short_queries: bool = True
    largest_score: float = 1e4
    rounding: float | None = None
    outliers: bool = True
    row_exact: bool = False


class Attention(Protocol):
    """Attention of one layer.

    >>> import numpy as np
    >>> from labcore.battery import run
    >>> class Mine:
    ...     def attend(self, q, k, v, view):
    ...         k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    ...         written = view.allowed.any(axis=0)[:, None]
    ...         k, v = np.where(written, k, 0), np.where(written, v, 0)
    ...         scores = np.where(view.allowed, q @ k.swapaxes(1, 2) / q.shape[2] ** 0.5, -np.inf)
    ...         top = scores.max(axis=2, keepdims=True)
    ...         weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    ...         total = weights.sum(axis=2, keepdims=True)
    ...         return weights / np.where(total > 0, total, 1) @ v
    >>> run(Mine, effort=1).verdict
    'isolated'
    """

    def attend(self, q: Floats, k: Floats, v: Floats, view: View) -> Floats | tuple[Floats, Floats]:
        """Output [h, n, d] of queries q [h, n, d] on k and v [g, m, d]; or (output, log of the sum of exponentials [h, n]).

        Must not change its inputs; the output is memory of its own.
        """
        ...


@dataclass(frozen=True)
class Request:
    """A prompt and all that may enter a key. tokens: ids. scope: whose request (a tenant's salt). adapter: name of added weights, ""
    for none.

    media: arrays (pictures) standing, in order, for the tokens equal to `claims.placeholder`.
    """

    tokens: tuple[int, ...]
    scope: str = ""
    adapter: str = ""
    media: tuple[Floats, ...] = ()

    def __str__(self) -> str:
        parts = [f"tokens {list(self.tokens)}"]
        parts += [f"scope {self.scope!r}"] if self.scope else []
        parts += [f"adapter {self.adapter!r}"] if self.adapter else []
        parts += [f"media {', '.join(f'{m.dtype}{list(m.shape)}' for m in self.media)}"] if self.media else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Started:
    """A request that runs. output [w]: logits or state of its last token. reused: how many tokens came from a cache; None: not told."""

    handle: Hashable
    output: Floats
    reused: int | None = None


@dataclass(frozen=True)
class CacheClaims:
    """What a cache of requests promises.

    vocabulary: ids are 0 to this, exclusive. longest: tokens of one request. capacity: how many may run at once.
    batches: `start` and `step` take several at once. joins: a request may start while others run. chunks: `step` takes several tokens of a
    request. scopes: nothing of one scope is reused in another. adapters: names that it serves. placeholder: the id that stands for a
    picture, None without media; shapes, dtypes: of the media. reach: how many tokens back an output still looks (several layers of a
    window);
    None: all. rounding: largest relative difference between two right ways of computing one output; None: measured.
    exact: warm, cold, alone, mixed, whole and chunked give the same bits. shortest_crop: least length that crop may leave.
    drop_recomputes: after `drop` the rest stands as if it had been fed alone (true of one layer only).
    reuses: it may continue from what an earlier request left.
    """

    vocabulary: int = 32
    longest: int = 40
    capacity: int = 4
    batches: bool = True
    joins: bool = True
    chunks: bool = True
    scopes: bool = False
    adapters: tuple[str, ...] = ()
    placeholder: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ((3, 10), (10, 3), (30,), (5, 6))
    dtypes: tuple[str, ...] = ("uint8", "float32", "uint32")
    reach: int | None = None
    rounding: float | None = None
    exact: bool = False
    shortest_crop: int = 0
    drop_recomputes: bool = True
    reuses: bool = True


class RequestCache(Protocol):
    """A server of requests in one process, with whatever it keeps between them. Two systems from one factory answer alike.

    The rest of the methods is optional:

    step(feeds: Mapping[handle, tokens]) -> Mapping[handle, output]    feed each one or more tokens; output [w] of each one's last
    fork(handle) -> handle                    a second request that goes on from the same state
    crop(handle, length)                      keep the first `length` tokens
    trim(handle, count)                       remove the last `count` tokens, all if there are fewer
    reset(handle)                             forget all tokens
    drop(handle, count)                       forget the first `count` tokens, the rest moves to the front
    finish(handle), abort(handle)             the request ends, as planned or not
    update(version)                           other weights, from now on; version 0 are the first
    key(request) -> Hashable                  under which its whole prompt is kept
    length(handle) -> int                     tokens that it holds
    available() -> int                        free room, in any unit; the same whenever nothing runs

    >>> import numpy as np
    >>> from labcore.battery import Request, Started, run
    >>> class Mine:
    ...     def __init__(self):
    ...         self.running = {}
    ...     def start(self, requests):
    ...         first = len(self.running)
    ...         outs = self.step({first + i: request.tokens for i, request in enumerate(requests)})
    ...         return [Started(handle, output) for handle, output in outs.items()]
    ...     def step(self, feeds):
    ...         self.running.update({handle: (*self.running.get(handle, ()), *tokens) for handle, tokens in feeds.items()})
    ...         return {handle: np.cos(np.cumsum(np.array(self.running[handle]) + 1.0))[-1:] for handle in feeds}
    >>> report = run(Mine, effort=1)
    >>> report.verdict, report.result("C211").status
    ('isolated', 'not applicable')
    """

    def start(self, requests: Sequence[Request]) -> Sequence[Started]:
        """Admit requests together; the result is in their order."""
        ...


@dataclass(frozen=True)
class PoolClaims:
    """What a pool promises. capacity: blocks; block: slots of one; width: numbers of a slot.

    part_blocks: `share` takes a length that ends inside a block. Two requests may be written to after sharing (copy on write).
    exact_available: `available` counts blocks, and all of them when nothing runs (kept blocks that may be taken count as free).
    in_order: slots are written the first time one after another. launch_appends: `launch` takes the slot behind the last, without
    allocate, and
    the request is not touched until it lands. threads: calls may come from several threads.
    """

    capacity: int = 16
    block: int = 4
    width: int = 2
    part_blocks: bool = True
    exact_available: bool = True
    in_order: bool = False
    launch_appends: bool = False
    threads: bool = False


class BlockPool(Protocol):
    """Paged memory for requests, each with slots 0, 1, 2, ... of its own. A request exists from its first allocate, share or match.

    The rest of the methods is optional:

    share(source, target, slots)              a new request `target` begins with the first slots of `source`
    publish(request, tokens)                  its first len(tokens) slots, all written, may be found under these tokens
    match(request, tokens) -> int             a new request begins with the longest kept beginning of tokens; how many slots
    abort(request)                            as free, at any moment
    available() -> int                        blocks that allocate could give
    table(request) -> Sequence[int]           its blocks
    launch(request, slot, value) -> ticket    a write that lands later
    land(ticket)                              it lands: on the request's slot, or nowhere if the request has ended
    expire()                                  more time passes than any write could take; those not landed never may

    >>> import numpy as np
    >>> from labcore.battery import run
    >>> class Mine:
    ...     def __init__(self):
    ...         self.rows = {}
    ...     def allocate(self, request, slots):
    ...         if slots > 64:
    ...             raise MemoryError(f"{slots} slots; there are 64")
    ...         self.rows[request] = self.rows.get(request, []) + [np.zeros(2)] * slots
    ...     def write(self, request, slot, value):
    ...         self.rows[request][slot] = value.copy()
    ...     def read(self, request, slots):
    ...         return np.array(self.rows[request][:slots])
    ...     def free(self, request):
    ...         del self.rows[request]
    >>> run(Mine, effort=1).verdict
    'isolated'
    """

    def allocate(self, request: Hashable, slots: int) -> None:
        """Room for that many more slots. MemoryError, and nothing changed, where there is none."""
        ...

    def write(self, request: Hashable, slot: int, value: Floats) -> None:
        """Set a slot [width]."""
        ...

    def read(self, request: Hashable, slots: int) -> Floats:
        """The first slots, [slots, width], memory of their own. Slots that were never written: refused, left out, or nobody's values."""
        ...

    def free(self, request: Hashable) -> None:
        """The request has ended. A second time: refused (any exception) or nothing."""
        ...


Feeds = Mapping[Hashable, Sequence[int]]
