"""A right cache of requests over a small network, in NumPy: prefixes are kept and reused. Its parts may be replaced, for planted faults.

The network: 1 layer (or more) of grouped rotary attention, 4 heads on 2 key-value groups of width 4, with a tanh behind. float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from labcore.battery.interfaces import CacheClaims, Floats, Request, Started
from labcore.battery.reference_attention import turn_from

HEADS, GROUPS, HEAD = 4, 2, 4
WIDTH = HEADS * HEAD
EXPAND = np.arange(HEADS) // (HEADS // GROUPS)  # the group that each head reads
Domain = tuple[Hashable, ...]


@cache
def weights(seed: int, layers: int, vocabulary: int, adapter: str) -> tuple[Floats, tuple[tuple[Floats, ...], ...]]:
    """Embedding [vocabulary, 16] and per layer W_Q [16, 16], W_K, W_V [16, 8], W_O [16, 16]; an adapter adds to W_Q and W_V. Read-only."""
    rng = np.random.default_rng(seed)
    shapes = ((WIDTH, WIDTH), (WIDTH, GROUPS * HEAD), (WIDTH, GROUPS * HEAD), (WIDTH, WIDTH))
    embedding = rng.standard_normal((vocabulary, WIDTH))
    drawn = tuple(tuple(rng.standard_normal(shape) * 0.4 for shape in shapes) for _ in range(layers))
    if adapter:
        more = np.random.default_rng([seed, int.from_bytes(adapter.encode())])
        drawn = tuple((q + more.normal(0, 0.3, q.shape), k, v + more.normal(0, 0.3, v.shape), o) for q, k, v, o in drawn)
    return embedding, drawn


@dataclass
class State:
    """A running request. domain: all but the tokens that enters its state. names: what each token is, media included.

    k, v: per layer [g, m, d], keys before they are turned. Arrays are replaced, never written to.
    """

    domain: Domain
    adapter: str
    names: list[Hashable] = field(default_factory=list)
    k: list[Floats] = field(default_factory=list)
    v: list[Floats] = field(default_factory=list)
    media: list[Floats] = field(default_factory=list)
    output: Floats | None = None


class ReferenceCache:
    """Keeps the last `keep` prompts, with scope, adapter and weights' version in the key, and continues from their longest common
    beginning."""

    def __init__(self, claims: CacheClaims | None = None, seed: int = 0, layers: int = 1, keep: int = 4) -> None:
        self.claims = claims or CacheClaims(scopes=True, adapters=("red", "blue"), placeholder=0, drop_recomputes=layers == 1)
        self.seed, self.layers, self.keep, self.version = seed, layers, keep, 0
        self.running: dict[Hashable, State] = {}
        self.kept: list[State] = []
        self.count = 0

    # -- the protocol

    def start(self, requests: Sequence[Request]) -> Sequence[Started]:
        """Admit requests."""
        return [self.admit(request) for request in requests]

    def step(self, feeds: Mapping[Hashable, Sequence[int]]) -> Mapping[Hashable, Floats]:
        """Feed each request its tokens."""
        return {handle: self.feed(self.running[handle], list(tokens), list(tokens)) for handle, tokens in feeds.items()}

    def fork(self, handle: Hashable) -> Hashable:
        """A second request on the same state."""
        return self.enter(self.copy(self.running[handle], len(self.running[handle].names)))

    def crop(self, handle: Hashable, length: int) -> None:
        """Keep the first tokens."""
        self.running[handle] = self.copy(self.running[handle], length)

    def trim(self, handle: Hashable, count: int) -> None:
        """Remove the last tokens."""
        self.crop(handle, max(len(self.running[handle].names) - count, 0))

    def reset(self, handle: Hashable) -> None:
        """Forget all tokens."""
        self.crop(handle, 0)

    def drop(self, handle: Hashable, count: int) -> None:
        """Forget the first tokens; the keys are kept unturned, so the rest moves to the front by itself."""
        state = self.running[handle]
        state.names = state.names[count:]
        state.k, state.v = [k[:, count:].copy() for k in state.k], [v[:, count:].copy() for v in state.v]

    def finish(self, handle: Hashable) -> None:
        """The request ends."""
        del self.running[handle]

    abort = finish

    def update(self, version: int) -> None:
        """Other weights."""
        self.version = version

    def key(self, request: Request) -> Hashable:
        """Domain and names."""
        return (self.domain(request), *self.names(request))

    def length(self, handle: Hashable) -> int:
        """Tokens held."""
        return len(self.running[handle].names)

    def available(self) -> int:
        """Requests that may still start."""
        return self.claims.capacity - len(self.running)

    # -- its parts

    def admit(self, request: Request) -> Started:
        """Begin from the longest kept beginning, but feed the last token at least."""
        names = self.names(request)
        state, reused = self.find(self.domain(request), names, request.adapter)
        inputs: list[Any] = []
        media = iter(request.media)
        for token in request.tokens:
            inputs.append(next(media) if token == self.claims.placeholder and request.media else token)
        output = self.feed(state, inputs[reused:], names[reused:])
        self.remember(state)
        return Started(self.enter(state), output, reused)

    def enter(self, state: State) -> Hashable:
        """A handle for a state."""
        self.count += 1
        self.running[self.count] = state
        return self.count

    def domain(self, request: Request) -> Domain:
        """All that enters a state besides its tokens, and whose it is."""
        return (("scope", request.scope), ("adapter", request.adapter), ("version", self.version))

    def names(self, request: Request) -> list[Hashable]:
        """Each token, or the digest of the picture in its place."""
        media = iter(request.media)
        return [self.digest(next(media)) if t == self.claims.placeholder and request.media else t for t in request.tokens]

    def digest(self, media: Floats) -> Hashable:
        """SHA-256 over a header and the bytes."""
        return hashlib.sha256(f"{media.dtype.str} {media.shape} ".encode() + media.tobytes()).hexdigest()

    def find(self, domain: Domain, names: list[Hashable], adapter: str) -> tuple[State, int]:
        """A copy of the longest kept beginning, one token short of the whole at most, and its length."""
        best, length = None, 0
        for state in self.kept:
            if state.domain == domain:
                common = 0
                for one, other in zip(state.names, names[:-1], strict=False):
                    if one != other:
                        break
                    common += 1
                if common > length:
                    best, length = state, common
        state = self.copy(best, length) if best else State(domain, adapter)
        return state, len(state.names)

    def remember(self, state: State) -> None:
        """Keep a copy; the oldest goes."""
        if self.claims.reuses:
            self.kept = [*self.kept, self.copy(state, len(state.names))][-self.keep :]

    def copy(self, state: State, length: int) -> State:
        """The first tokens of a state in memory of their own."""
        k, v = [k[:, :length].copy() for k in state.k], [v[:, :length].copy() for v in state.v]
        return State(state.domain, state.adapter, state.names[:length], k, v)

    def embed(self, inputs: list[Any], embedding: Floats) -> Floats:
        """Input vectors [n, 16] of tokens and pictures."""
        if not any(isinstance(x, np.ndarray) for x in inputs):
            return np.asarray(embedding[inputs])
        return np.stack([self.picture(x) if isinstance(x, np.ndarray) else embedding[x] for x in inputs])

    def picture(self, media: Floats) -> Floats:
        """A vector that depends on all of a picture: shape, dtype, every value."""
        seed = hashlib.sha256(f"{media.dtype.str} {media.shape}".encode() + media.tobytes()).digest()
        return np.random.default_rng(list(seed)).standard_normal(WIDTH)

    def positions(self, state: State, n: int) -> Floats:
        """Positions of n new tokens."""
        return np.arange(len(state.names), len(state.names) + n)

    def feed(self, state: State, inputs: list[Any], names: list[Any]) -> Floats:
        """Append tokens to a state; the last one's output [16]."""
        embedding, layers = weights(self.seed + 1000 * self.version, self.layers, self.claims.vocabulary, state.adapter)
        x = self.embed(inputs, embedding)
        n = len(inputs)
        new = self.positions(state, n)
        if not state.k:
            state.k = [np.zeros((GROUPS, 0, HEAD))] * self.layers
            state.v = list(state.k)
        for layer, (w_q, w_k, w_v, w_o) in enumerate(layers):
            q = (x @ w_q).reshape(n, HEADS, HEAD).swapaxes(0, 1)
            k = np.concatenate([state.k[layer], (x @ w_k).reshape(n, GROUPS, HEAD).swapaxes(0, 1)], axis=1)
            v = np.concatenate([state.v[layer], (x @ w_v).reshape(n, GROUPS, HEAD).swapaxes(0, 1)], axis=1)
            old = state.k[layer].shape[1]
            state.k[layer], state.v[layer] = self.store(k, old, "k"), self.store(v, old, "v")
            mixed = self.mix(q, state.k[layer], state.v[layer], new)
            x = np.tanh(x + mixed.swapaxes(0, 1).reshape(n, WIDTH) @ w_o)
        state.names = [*state.names, *names]
        return np.asarray(x[-1])

    def store(self, x: Floats, old: int, what: str) -> Floats:
        """How keys ("k") or values ("v") are kept; the first `old` are kept already."""
        return x

    def mix(self, q: Floats, k: Floats, v: Floats, new: Floats) -> Floats:
        """Causal attention [h, n, d] of queries at positions `new`, one after another, on all keys [g, m, d]."""
        n, m = q.shape[1], k.shape[1]
        q = turn_from(q, int(new[0])) if n else q
        k = turn_from(k, 0)[EXPAND]
        v = v[EXPAND]
        scores = q @ k.swapaxes(1, 2)
        scores /= np.sqrt(HEAD)
        if n > 1:
            scores = np.where(self.allowed(n, m), scores, -np.inf)
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        return np.asarray(scores @ v)

    def allowed(self, n: int, m: int) -> Floats:
        """The mask of n new queries on m keys."""
        return np.arange(m) <= np.arange(m - n, m)[:, None]
