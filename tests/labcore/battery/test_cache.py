"""Caches of requests: faults that are not among the public ones are seen, and right caches of unusual make are not."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from labcore.battery import CacheClaims, Started, run
from labcore.battery.adapters.plain import Uncached
from labcore.battery.reference_attention import turn
from labcore.battery.reference_cache import EXPAND, GROUPS, HEAD, WIDTH, ReferenceCache, State, weights

FULL = CacheClaims(scopes=True, adapters=("red", "blue"), placeholder=0)
PLAIN = CacheClaims()
DEEP = CacheClaims(drop_recomputes=False)
WIDE = CacheClaims(vocabulary=70000)


class NoScope(ReferenceCache):
    """The scope is not in the key."""

    def domain(self, request: Any) -> Any:
        return (request.adapter, self.version)


class NoAdapter(ReferenceCache):
    """The adapter is not in the key."""

    def domain(self, request: Any) -> Any:
        return (request.scope, self.version)


class FoldedScope(ReferenceCache):
    """Scopes in any case are one."""

    def domain(self, request: Any) -> Any:
        return (request.scope.lower(), request.adapter, self.version)


class Unordered(ReferenceCache):
    """A beginning is found by its tokens in any order."""

    def find(self, domain: Any, names: Any, adapter: str) -> Any:
        for length in range(len(names) - 1, 0, -1):
            for state in self.kept:
                if state.domain == domain and sorted(map(str, state.names[:length])) == sorted(map(str, names[:length])):
                    return self.copy(state, length), length
        return State(domain, adapter), 0


class FourBits(ReferenceCache):
    """Ids are kept in four bits."""

    def names(self, request: Any) -> Any:
        return [name % 16 if isinstance(name, int) else name for name in super().names(request)]


class SixteenBits(ReferenceCache):
    """Ids are kept in sixteen bits."""

    def names(self, request: Any) -> Any:
        return [name % 65536 if isinstance(name, int) else name for name in super().names(request)]


class OneTooMany(ReferenceCache):
    """One token more than matched is taken from what is kept."""

    def find(self, domain: Any, names: Any, adapter: str) -> Any:
        state, length = super().find(domain, names, adapter)
        if 0 < length < len(names) - 1:
            for kept in self.kept:
                if kept.domain == domain and kept.names[:length] == names[:length] and len(kept.names) > length:
                    return self.copy(kept, length + 1), length + 1
        return state, length


class ChunkFromZero(ReferenceCache):
    """Positions of a chunk start again."""

    def positions(self, state: Any, n: int) -> Any:
        return np.arange(n) if n > 1 else super().positions(state, n)


class StaleOutput(ReferenceCache):
    """A step in which only some take part gives the first of them what it gave last time."""

    last: Any = None

    def step(self, feeds: Any) -> Any:
        outs = dict(super().step(feeds))
        if self.last is not None and len(feeds) < len(self.running):
            handle = next(iter(feeds))
            outs[handle] = self.last.get(handle, outs[handle])
        self.last = dict(outs)
        return outs


class ForkAliases(ReferenceCache):
    """A fork is the same state."""

    def fork(self, handle: Any) -> Any:
        return self.enter(self.running[handle])


class CropOneMore(ReferenceCache):
    """Crop keeps one too many, except at the end."""

    def crop(self, handle: Any, length: int) -> None:
        super().crop(handle, min(length + (length > 0), len(self.running[handle].names)))


class CropForgetsPosition(ReferenceCache):
    """Crop removes keys, the next position stays."""

    def crop(self, handle: Any, length: int) -> None:
        old = len(self.running[handle].names)
        super().crop(handle, length)
        self.running[handle].media = [np.asarray(old - length)]

    def positions(self, state: Any, n: int) -> Any:
        return super().positions(state, n) + (int(state.media[0]) if state.media else 0)


class EvictsLive(ReferenceCache):
    """When many have come, the oldest loses its keys, running or not."""

    def admit(self, request: Any) -> Any:
        started = super().admit(request)
        if self.count > 4 and len(self.running) > 1:
            oldest = self.running[min(self.running)]
            oldest.k, oldest.v = [0 * k for k in oldest.k], [0 * v for v in oldest.v]
        return started


class OrderMixed(ReferenceCache):
    """Outputs come in the order of handles, and are handed out in the order of the call."""

    def step(self, feeds: Any) -> Any:
        outs = super().step({handle: feeds[handle] for handle in sorted(feeds)})
        return dict(zip(feeds, outs.values(), strict=True))


class PadsAttended(ReferenceCache):
    """Prompts of a batch are filled up with id 1 in front, and nobody masks it."""

    def start(self, requests: Any) -> Any:
        longest = max(len(request.tokens) for request in requests)
        return [self.admit(replace(r, tokens=(1,) * (longest - len(r.tokens)) + r.tokens)) for r in requests]


class SlotsUncleared(ReferenceCache):
    """Four slots of memory, last in first out; a request reads its whole slot as far as anyone wrote."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.slots, self.slot_of = [], {}  # type: ignore[var-annotated]

    def admit(self, request: Any) -> Any:
        slot = self.slots.pop() if self.slots else None
        started = super().admit(request)
        state = self.running[started.handle]
        if slot is not None and slot.k[0].shape[1] > state.k[0].shape[1]:
            held = state.k[0].shape[1]
            state.media = [slot.k[0][:, held:], slot.v[0][:, held:]]
        return started

    def finish(self, handle: Any) -> None:
        self.slots.append(self.running.pop(handle))

    abort = finish

    def feed(self, state: Any, inputs: Any, names: Any) -> Any:
        if not state.media:
            return super().feed(state, inputs, names)
        k, v = state.media
        own = [state.k[0], state.v[0]]
        state.k, state.v = [np.concatenate([state.k[0], k], 1)], [np.concatenate([state.v[0], v], 1)]
        out = super().feed(state, inputs, names)
        n = len(inputs)
        state.k, state.v = [np.concatenate([own[0], state.k[0][:, -n:]], 1)], [np.concatenate([own[1], state.v[0][:, -n:]], 1)]
        return out


class SwapsOnLeave(ReferenceCache):
    """When one ends the last one takes its place, and its handle is not told."""

    def finish(self, handle: Any) -> None:
        last = max(self.running)
        state = self.running[last]
        for other in list(self.running):
            if other != handle and other != last:
                self.running[other] = state
                break
        del self.running[handle]


class OneBuffer(ReferenceCache):
    """Outputs are views of one buffer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.buffer = np.zeros(WIDTH)

    def feed(self, state: Any, inputs: Any, names: Any) -> Any:
        self.buffer[:] = super().feed(state, inputs, names)
        return self.buffer


class OddVersions(ReferenceCache):
    """Only the last bit of the weights' version is in the key."""

    def domain(self, request: Any) -> Any:
        return (request.scope, request.adapter, self.version % 2)


class LooseBlocks(ReferenceCache):
    """Tokens are found by themselves, not by what stands before them."""

    def find(self, domain: Any, names: Any, adapter: str) -> Any:
        for state in self.kept:
            if state.domain == domain:
                for begin in range(len(state.names) - 1):
                    if state.names[begin : begin + 2] == names[:2] and len(names) > 2:
                        whole = self.copy(state, begin + 2)
                        return State(domain, adapter, names[:2], [k[:, begin:] for k in whole.k], [v[:, begin:] for v in whole.v]), 2
        return State(domain, adapter), 0


class PicturesAsSet(ReferenceCache):
    """All pictures of a request have one name, whatever their order."""

    def names(self, request: Any) -> Any:
        name = "".join(sorted(str(self.digest(m)) for m in request.media))
        return [name if t == self.claims.placeholder and request.media else t for t in request.tokens]


class FirstRows(ReferenceCache):
    """A picture is named by its first bytes."""

    def digest(self, media: Any) -> Any:
        return hashlib.sha256(f"{media.dtype.str} {media.shape}".encode() + media.tobytes()[:16]).hexdigest()


class ShortKeys(ReferenceCache):
    """The key of a prompt has 32 bits."""

    def key(self, request: Any) -> Any:
        return hashlib.sha256(repr(super().key(request)).encode()).hexdigest()[:8]


class DropOneMore(ReferenceCache):
    """After a drop the rest stands one too far."""

    def drop(self, handle: Any, count: int) -> None:
        super().drop(handle, count)
        self.running[handle].media = [np.asarray(1)]

    def positions(self, state: Any, n: int) -> Any:
        return super().positions(state, n) + (1 if state.media else 0)


class LeaksOnAbort(ReferenceCache):
    """Room of aborted requests is not given back."""

    lost = 0

    def abort(self, handle: Any) -> None:
        self.finish(handle)
        self.lost += 1

    def available(self) -> int:
        return super().available() - self.lost


class WritesBack(ReferenceCache):
    """What a request adds lands in what is kept, too, a little."""

    def feed(self, state: Any, inputs: Any, names: Any) -> Any:
        out = super().feed(state, inputs, names)
        for kept in self.kept:
            kept.v = [v + 1e-7 * state.v[0].mean() for v in kept.v]
        return out


class OneScale(ReferenceCache):
    """Values are kept with eight bits and one scale for all that run."""

    def store(self, x: Any, old: int, what: str) -> Any:
        if what == "k":
            return x
        step = max([np.abs(x).max(), *(np.abs(s.v[0]).max() for s in self.running.values() if s.v)]) / 127
        return np.round(x / step) * step


class AgesByCalls(ReferenceCache):
    """Positions count the calls of the system, not the tokens of the request, once another request has been."""

    def positions(self, state: Any, n: int) -> Any:
        return super().positions(state, n) + (1 if len(self.running) > 1 else 0)


class MeanOfBatch(ReferenceCache):
    """A millionth of the batch's mean is in every output."""

    def step(self, feeds: Any) -> Any:
        outs = super().step(feeds)
        mean = sum(outs.values()) / len(outs)
        return {handle: out + 1e-6 * mean for handle, out in outs.items()}


class KeepsAborted(ReferenceCache):
    """What an aborted request had computed is kept, without its first row."""

    def abort(self, handle: Any) -> None:
        state = self.running.pop(handle)
        rest = [k[:, 1:] for k in state.k], [v[:, 1:] for v in state.v]
        self.kept.insert(0, State(state.domain, state.adapter, list(state.names), *rest))


FAULTS = [
    (MeanOfBatch, PLAIN, 1, "C201"),
    (KeepsAborted, PLAIN, 1, "C209"),
    (NoScope, FULL, 1, "C220"),
    (NoAdapter, FULL, 1, "C216"),
    (FoldedScope, FULL, 1, "C217"),
    (Unordered, PLAIN, 1, "C216"),
    (FourBits, PLAIN, 1, "C216"),
    (SixteenBits, WIDE, 1, "C216"),
    (OneTooMany, PLAIN, 1, "C206"),
    (ChunkFromZero, PLAIN, 1, "C223"),
    (StaleOutput, PLAIN, 1, "C219"),
    (ForkAliases, PLAIN, 1, "C211"),
    (CropOneMore, PLAIN, 1, "C212"),
    (CropForgetsPosition, PLAIN, 1, "C212"),
    (EvictsLive, PLAIN, 1, "C210"),
    (OrderMixed, PLAIN, 1, "C219"),
    (PadsAttended, PLAIN, 1, "C202"),
    (SlotsUncleared, replace(PLAIN, reuses=False), 1, "C205"),
    (SwapsOnLeave, PLAIN, 1, "C204"),
    (OneBuffer, PLAIN, 1, "C222"),
    (OddVersions, PLAIN, 1, "C221"),
    (LooseBlocks, DEEP, 2, "C216"),
    (PicturesAsSet, FULL, 1, "C216"),
    (FirstRows, FULL, 1, "C217"),
    (ShortKeys, PLAIN, 1, "C218"),
    (DropOneMore, PLAIN, 1, "C214"),
    (LeaksOnAbort, PLAIN, 1, "C225"),
    (WritesBack, PLAIN, 1, "C205"),
    (OneScale, PLAIN, 1, "C202"),
    (AgesByCalls, DEEP, 2, "C203"),
]


@pytest.mark.parametrize("kind, claims, layers, rule", FAULTS, ids=lambda x: getattr(x, "__name__", None))
def test_a_planted_fault_is_seen_for_the_right_reason(kind: Any, claims: CacheClaims, layers: int, rule: str) -> None:
    for seed in range(2):
        fired = run(partial(kind, claims, seed, layers), effort=2, seed=seed, shrink=0).fired
        assert rule in fired, fired


class Single(ReferenceCache):
    """float32 throughout."""

    def feed(self, state: Any, inputs: Any, names: Any) -> Any:
        return super().feed(state, inputs, names).astype(np.float32)


class HalfStore(ReferenceCache):
    """Keys and values are kept in half precision; a first pass uses what it computed, so warm and cold differ."""

    def store(self, x: Any, old: int, what: str) -> Any:
        return np.concatenate([np.asarray(x[:, :old], np.float16).astype(x.dtype), x[:, old:]], axis=1)


class EightBitStore(ReferenceCache):
    """Each row of values is kept with eight bits and a scale of its own."""

    def store(self, x: Any, old: int, what: str) -> Any:
        step = np.abs(x).max(axis=2, keepdims=True) / 127
        return np.round(x / step) * step


class Backwards(ReferenceCache):
    """Sums over keys from the last to the first where there is more than one new token."""

    def mix(self, q: Any, k: Any, v: Any, new: Any) -> Any:
        m = k.shape[1]
        k, v = turn(k, np.arange(m))[EXPAND], v[EXPAND]
        scores = np.where(self.allowed(q.shape[1], m), turn(q, new) @ k.swapaxes(1, 2) / np.sqrt(HEAD), -np.inf)
        weight = np.exp(scores - scores.max(axis=2, keepdims=True))
        if q.shape[1] == 1:
            return weight @ v / weight.sum(axis=2, keepdims=True)
        return (weight / weight.sum(axis=2, keepdims=True))[:, :, ::-1] @ v[:, ::-1]


class LazySlots(ReferenceCache):
    """Memory of a fixed size that is never cleared; lengths say what counts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.memory = np.full((8, 2, GROUPS, self.claims.longest + 8, HEAD), np.nan)
        self.free, self.slot = list(range(8)), {}  # type: ignore[var-annotated]

    def admit(self, request: Any) -> Any:
        started = super().admit(request)
        self.slot[started.handle] = self.free.pop()
        return started

    def fork(self, handle: Any) -> Any:
        other = super().fork(handle)
        self.slot[other] = self.free.pop()
        return other

    def step(self, feeds: Any) -> Any:
        for handle in feeds:
            state, memory = self.running[handle], self.memory[self.slot[handle]]
            held = len(state.names)
            memory[0, :, :held], memory[1, :, :held] = state.k[0] if held else 0, state.v[0] if held else 0
            state.k, state.v = [memory[0, :, :held].copy()], [memory[1, :, :held].copy()]
        return super().step(feeds)

    def finish(self, handle: Any) -> None:
        super().finish(handle)
        self.free.append(self.slot.pop(handle))

    abort = finish


class Whole(ReferenceCache):
    """Reuses a kept prompt only where it is the whole beginning; keeps twenty."""

    def find(self, domain: Any, names: Any, adapter: str) -> Any:
        for state in reversed(self.kept):
            if state.domain == domain and state.names == names[: len(state.names)] and len(state.names) < len(names):
                return self.copy(state, len(state.names)), len(state.names)
        return State(domain, adapter), 0


class Silent(ReferenceCache):
    """Says nothing of what it reused, has no key, no fork and no edits."""

    key = fork = crop = trim = reset = drop = length = available = update = None  # type: ignore[assignment]

    def admit(self, request: Any) -> Any:
        started = super().admit(request)
        return Started(started.handle, started.output)


def test_a_history_finds_what_chance_brings_together() -> None:
    assert run(lambda: CropOneMore(PLAIN), effort=10, only=["C227"]).verdict == "not isolated"


def test_claimed_bits_are_tested() -> None:
    assert run(lambda: Backwards(replace(PLAIN, exact=True)), effort=2, only=["C226"]).verdict == "not isolated"
    assert run(lambda: Uncached(outputs, CacheClaims(exact=True)), effort=2, only=["C226"]).verdict == "isolated"


def outputs(tokens: tuple[int, ...]) -> Any:
    """A network without attention: a sum with decay."""
    embedding, _ = weights(3, 1, 32, "")
    state = np.zeros(WIDTH)
    for token in tokens:
        state = np.tanh(0.7 * state + embedding[token])
    return state


RIGHT = [
    lambda seed: ReferenceCache(replace(FULL, drop_recomputes=False), seed, layers=2),
    lambda seed: Single(PLAIN, seed),
    lambda seed: HalfStore(PLAIN, seed),
    lambda seed: HalfStore(replace(PLAIN, rounding=1e-2, drop_recomputes=False), seed, layers=2),
    lambda seed: EightBitStore(PLAIN, seed),
    lambda seed: Backwards(PLAIN, seed),
    lambda seed: LazySlots(replace(PLAIN, capacity=3), seed),
    lambda seed: Whole(PLAIN, seed, keep=20),
    lambda seed: Silent(FULL, seed),
    lambda seed: ReferenceCache(replace(PLAIN, batches=False, joins=False, capacity=1, chunks=False), seed),
    lambda seed: Uncached(outputs),
    lambda seed: ReferenceCache(replace(PLAIN, vocabulary=70000, longest=330), seed),
]


@pytest.mark.parametrize("make", RIGHT, ids=range(len(RIGHT)))
def test_a_right_cache_gives_no_alarm(make: Any) -> None:
    for seed in range(2):
        report = run(partial(make, seed), effort=2, seed=seed)
        assert report.verdict == "isolated", [
            (r.rule, r.text, r.value, r.threshold) for r in report.results if r.status in ("failed", "error")
        ]
