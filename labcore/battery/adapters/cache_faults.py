"""The public faults of request caches, on the reference cache with one part replaced."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labcore.battery.adapters.fault import Fault, Make, Seeded
from labcore.battery.interfaces import CacheClaims, Floats, Request, Started
from labcore.battery.reference_attention import turn
from labcore.battery.reference_cache import GROUPS, HEAD, HEADS, WIDTH, Domain, ReferenceCache, State
from labcore.faults.content_keys import raw_bytes, untagged
from labcore.faults.trimming import relative_crop

PLAIN = CacheClaims()
SCOPED = CacheClaims(scopes=True)
ADAPTED = CacheClaims(scopes=True, adapters=("red", "blue"))
PICTURES = CacheClaims(placeholder=0)


class Padded(ReferenceCache):
    """Prompts of a batch are padded on the left to one length. Learned positions, taken from the mask: a twin of BR-08."""

    rotary = False
    drop = None  # type: ignore[assignment]

    def start(self, requests: Sequence[Request]) -> Sequence[Started]:
        longest = max(len(request.tokens) for request in requests)
        started = []
        for request in requests:
            self.pads = longest - len(request.tokens)
            started.append(self.admit(request))
        return started

    def enter(self, state: State) -> Hashable:
        state.media = [np.asarray(self.shift())]  # where its first token stands
        return super().enter(state)

    def shift(self) -> int:
        """Position of the first token of the request that is being admitted."""
        return 0

    def positions(self, state: State, n: int) -> Floats:
        first = int(state.media[0]) if state.media else self.shift()
        return super().positions(state, n) + first

    def feed(self, state: State, inputs: list[Any], names: list[Any]) -> Floats:
        self.now = self.positions(state, len(inputs))
        return super().feed(state, inputs, names)

    def embed(self, inputs: list[Any], embedding: Floats) -> Floats:
        table = np.random.default_rng(self.seed + 8).standard_normal((4 * self.claims.longest, WIDTH))
        return super().embed(inputs, embedding) + (0 if self.rotary else table[self.now])

    def mix(self, q: Floats, k: Floats, v: Floats, new: Floats) -> Floats:
        return self.softmax(q, k, v)

    def softmax(self, q: Floats, k: Floats, v: Floats) -> Floats:
        """Causal attention of queries and keys as they are."""
        k, v = np.repeat(k, HEADS // GROUPS, axis=0), np.repeat(v, HEADS // GROUPS, axis=0)
        scores = np.where(self.allowed(q.shape[1], k.shape[1]), q @ k.swapaxes(1, 2) / np.sqrt(HEAD), -np.inf)
        weight = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.asarray(weight / weight.sum(axis=2, keepdims=True) @ v)


class PaddingCounts(Padded):
    """BR-08: positions run from the beginning of the padded row."""

    def shift(self) -> int:
        return self.pads


class PaddingCountsRotary(PaddingCounts):
    """Control: rotary positions, all of a request shifted alike."""

    rotary = True

    def mix(self, q: Floats, k: Floats, v: Floats, new: Floats) -> Floats:
        first = int(new[-1]) + 1 - k.shape[1]
        return self.softmax(turn(q, new), turn(k, np.arange(first, first + k.shape[1])), v)


class SuffixOnly(ReferenceCache):
    """BR-13: after a hit the first pass attends to the new tokens alone."""

    def admit(self, request: Request) -> Started:
        self.blind = True
        started = super().admit(request)
        self.blind = False
        return started

    blind = False

    def mix(self, q: Floats, k: Floats, v: Floats, new: Floats) -> Floats:
        n, m = q.shape[1], k.shape[1]
        if not self.blind or n == m:
            return super().mix(q, k, v, new)
        return super().mix(q, np.where(np.arange(m)[:, None] < m - n, 0, k), v, new)

    def allowed(self, n: int, m: int) -> Floats:
        seen = super().allowed(n, m)
        return seen & (np.arange(m) >= m - n) if self.blind else seen


class RelativeCrop(ReferenceCache):
    """BR-15: crop(0) keeps all, trim beyond the beginning keeps some, reset leaves zero keys."""

    def crop(self, handle: Hashable, length: int) -> None:
        super().crop(handle, relative_crop(len(self.running[handle].names), length))

    def trim(self, handle: Hashable, count: int) -> None:
        self.running[handle] = self.copy(self.running[handle], relative_crop(len(self.running[handle].names), -count))

    def reset(self, handle: Hashable) -> None:
        state = self.running[handle]
        state.k, state.v = [0 * k for k in state.k], [0 * v for v in state.v]


class RelativeCropWithin(RelativeCrop):
    """Control: never to nothing, never beyond, no reset."""

    reset = None  # type: ignore[assignment]


class Ring(ReferenceCache):
    """Keeps the last `window` keys, token t in row t mod window. A kept ring is continued whole, or if it has not wrapped: a twin of
    BR-17."""

    window = 8

    def feed(self, state: State, inputs: list[Any], names: list[Any]) -> Floats:
        out = np.empty(0)
        for one, name in zip(inputs, names, strict=True):
            out = super().feed(state, [one], [name])
        return out

    def store(self, x: Floats, old: int, what: str) -> Floats:
        """The new row goes where the oldest was."""
        if old < self.window:
            return x
        ring = x[:, :old].copy()
        ring[:, self.now % self.window] = x[:, -1]
        return ring

    def mix(self, q: Floats, k: Floats, v: Floats, new: Floats) -> Floats:
        rows, now = np.arange(k.shape[1]), int(new[0])
        token = now - (now - rows) % self.window if k.shape[1] == self.window else rows
        k = np.repeat(turn(k, token), HEADS // GROUPS, axis=0)
        v = np.repeat(v, HEADS // GROUPS, axis=0)
        scores = turn(q, new) @ k.swapaxes(1, 2) / np.sqrt(HEAD)
        weight = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.asarray(weight / weight.sum(axis=2, keepdims=True) @ v)

    def positions(self, state: State, n: int) -> Floats:
        self.now = len(state.names)
        return super().positions(state, n)

    def copy(self, state: State, length: int) -> State:
        wrapped = len(state.names) > self.window
        return super().copy(state, self.kept_of(len(state.names), length) if wrapped else length)

    def kept_of(self, held: int, length: int) -> int:
        """How many of a wrapped ring's tokens may be continued."""
        return length if length == held else 0

    fork = crop = trim = reset = drop = None  # type: ignore[assignment]


class RingSliced(Ring):
    """BR-17: the first physical rows of a wrapped ring are taken for the first tokens."""

    def kept_of(self, held: int, length: int) -> int:
        return length


class Recurrent:
    """A recurrent network whose states stand in one array, a row a request. A fresh request gets a row of zeros: a twin of BR-19."""

    def __init__(self, claims: CacheClaims, seed: int) -> None:
        self.claims = claims
        rng = np.random.default_rng(seed)
        self.embedding, self.matrix = rng.standard_normal((claims.vocabulary, WIDTH)), rng.standard_normal((WIDTH, WIDTH)) * 0.4
        self.states = np.zeros((0, WIDTH))
        self.rows: dict[Hashable, int] = {}
        self.count = 0

    def start(self, requests: Sequence[Request]) -> Sequence[Started]:
        """Join the batch."""
        handles: list[Hashable] = list(range(self.count, self.count + len(requests)))
        self.count += len(requests)
        self.join(len(requests))
        for handle in handles:
            self.rows[handle] = len(self.rows)
        outs = self.step({handle: request.tokens for handle, request in zip(handles, requests, strict=True)})
        return [Started(handle, outs[handle]) for handle in handles]

    def join(self, count: int) -> None:
        """Extend the batch by fresh rows."""
        self.states = np.concatenate([self.states, np.zeros((count, WIDTH))])

    def step(self, feeds: Mapping[Hashable, Sequence[int]]) -> Mapping[Hashable, Floats]:
        """Feed tokens."""
        outs = {}
        for handle, tokens in feeds.items():
            row = self.rows[handle] % len(self.states)  # as a backend that wraps indices
            for token in tokens:
                self.states[row] = np.tanh(self.states[row] @ self.matrix + self.embedding[token])
            outs[handle] = self.states[row].copy()
        return outs

    def finish(self, handle: Hashable) -> None:
        """Leave the batch."""
        row = self.rows.pop(handle)
        if row < len(self.states):
            self.states = np.delete(self.states, row, axis=0)
        self.rows = {other: r - (r > row) for other, r in self.rows.items()}


class NotExtended(Recurrent):
    """BR-19: one side of the merge is empty, the other is returned as it is."""

    def join(self, count: int) -> None:
        if not len(self.states):
            super().join(count)


class ShortDigest(ReferenceCache):
    """BR-21: a picture is named by the last 16 bits of its digest."""

    def digest(self, media: Floats) -> Hashable:
        return str(super().digest(media))[-4:]


class BytesOnly(ReferenceCache):
    """BR-22: a picture is named by its bytes, without shape and type."""

    def digest(self, media: Floats) -> Hashable:
        return raw_bytes(media)


class Untagged(ReferenceCache):
    """BR-23: optional fields are appended without their names."""

    def domain(self, request: Request) -> Domain:
        return (self.version, untagged({"adapter": request.adapter, "salt": self.salt(request)}))

    def salt(self, request: Request) -> str:
        """The scope as it stands in the key."""
        return request.scope


class UntaggedApart(Untagged):
    """Control: no scope has the name of an adapter."""

    def salt(self, request: Request) -> str:
        return f"salt/{request.scope}" if request.scope else ""


class NoVersion(ReferenceCache):
    """BR-24: the weights are not in the key."""

    def domain(self, request: Request) -> Domain:
        return (("scope", request.scope), ("adapter", request.adapter))


class NeverUpdated(NoVersion):
    """Control: the weights stay."""

    update = None  # type: ignore[assignment]


class Unscoped(ReferenceCache):
    """BR-25: one store for all scopes."""

    def domain(self, request: Request) -> Domain:
        return (("adapter", request.adapter), ("version", self.version))


class Rotated(ReferenceCache):
    """Keeps keys turned to their positions; `drop` turns the rest back: a twin of BR-35."""

    def store(self, x: Floats, old: int, what: str) -> Floats:
        return np.concatenate([x[:, :old], turn(x[:, old:], np.arange(old, x.shape[1]))], axis=1) if what == "k" else x

    def mix(self, q: Floats, k: Floats, v: Floats, new: Floats) -> Floats:
        k, v = np.repeat(k, HEADS // GROUPS, axis=0), np.repeat(v, HEADS // GROUPS, axis=0)
        scores = np.where(self.allowed(q.shape[1], k.shape[1]), turn(q, new) @ k.swapaxes(1, 2) / np.sqrt(HEAD), -np.inf)
        weight = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.asarray(weight / weight.sum(axis=2, keepdims=True) @ v)

    def drop(self, handle: Hashable, count: int) -> None:
        super().drop(handle, count)
        state = self.running[handle]
        state.k = [self.moved(k, count) for k in state.k]

    def moved(self, k: Floats, count: int) -> Floats:
        """Keys of the rest, at positions lower by count."""
        return turn(k, np.full(k.shape[1], -count))


class NotTurned(Rotated):
    """BR-35: the rest keeps the turn of its old positions."""

    def moved(self, k: Floats, count: int) -> Floats:
        return k


class NeverDropped(NotTurned):
    """Control: nothing is dropped."""

    drop = None  # type: ignore[assignment]


class HandedOut(ReferenceCache):
    """BR-36: a stored prompt that is a beginning of the request is handed out itself, and extended in place."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stored: dict[tuple[Hashable, ...], State] = {}

    def find(self, domain: Domain, names: list[Hashable], adapter: str) -> tuple[State, int]:
        for length in range(len(names) - 1, 0, -1):
            state = self.stored.get((domain, *names[:length]))
            if state is not None:
                return self.hand_out(state), length
        return State(domain, adapter), 0

    def hand_out(self, state: State) -> State:
        """For a request to continue."""
        return state

    def remember(self, state: State) -> None:
        if self.claims.reuses:
            self.stored.setdefault((state.domain, *state.names), self.copy(state, len(state.names)))


class Copied(HandedOut):
    """The twin: a copy is handed out."""

    def hand_out(self, state: State) -> State:
        return self.copy(state, len(state.names))


def made(kind: Any, claims: CacheClaims) -> Make:
    """A factory that takes the seed of the weights."""
    return Seeded(kind, claims)


SMALL_PICTURES = replace(PICTURES, shapes=((3, 10),), dtypes=("uint8",))
WINDOW = replace(PLAIN, reach=Ring.window)
FAULTS = [
    Fault(
        "BR-08", "padding counts as positions", made(PaddingCounts, PLAIN), made(Padded, PLAIN), made(PaddingCountsRotary, PLAIN), ("C202",)
    ),
    Fault(
        "BR-13",
        "the kept beginning is skipped",
        made(SuffixOnly, PLAIN),
        made(ReferenceCache, PLAIN),
        made(SuffixOnly, replace(PLAIN, reuses=False)),
        ("C206", "C207", "C208"),
    ),
    Fault(
        "BR-15",
        "crop, trim and reset at the edge",
        made(RelativeCrop, PLAIN),
        made(ReferenceCache, PLAIN),
        made(RelativeCropWithin, replace(PLAIN, shortest_crop=1)),
        ("C212", "C213", "C215"),
    ),
    Fault(
        "BR-17",
        "a wrapped ring is sliced",
        made(RingSliced, WINDOW),
        made(Ring, WINDOW),
        made(RingSliced, replace(WINDOW, reuses=False)),
        ("C206",),
    ),
    Fault(
        "BR-19",
        "batch state not extended",
        made(NotExtended, PLAIN),
        made(Recurrent, PLAIN),
        made(NotExtended, replace(PLAIN, joins=False)),
        ("C203",),
    ),
    Fault(
        "BR-21",
        "pictures named by 16 bits",
        made(ShortDigest, PICTURES),
        made(ReferenceCache, PICTURES),
        made(ShortDigest, PLAIN),
        ("C218",),
    ),
    Fault(
        "BR-22",
        "pictures named by their bytes",
        made(BytesOnly, PICTURES),
        made(ReferenceCache, PICTURES),
        made(BytesOnly, SMALL_PICTURES),
        ("C216", "C217"),
    ),
    Fault(
        "BR-23",
        "fields of a key without names",
        made(Untagged, ADAPTED),
        made(ReferenceCache, ADAPTED),
        made(UntaggedApart, ADAPTED),
        ("C216", "C217"),
    ),
    Fault("BR-24", "weights not in the key", made(NoVersion, PLAIN), made(ReferenceCache, PLAIN), made(NeverUpdated, PLAIN), ("C221",)),
    Fault(
        "BR-25",
        "work tells of other scopes",
        made(Unscoped, SCOPED),
        made(ReferenceCache, SCOPED),
        made(Unscoped, PLAIN),
        ("C220",),
    ),
    Fault("BR-35", "kept keys not turned after a drop", made(NotTurned, PLAIN), made(Rotated, PLAIN), made(NeverDropped, PLAIN), ("C214",)),
    Fault(
        "BR-36",
        "a stored prefix extended in place",
        made(HandedOut, PLAIN),
        made(Copied, PLAIN),
        made(HandedOut, replace(PLAIN, reuses=False)),
        ("C205", "C206", "C208", "C224"),
    ),
]
