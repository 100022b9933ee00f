"""One prefix in PyTorch on CPU under other batches, pieces, paddings, threads, dtypes and back ends: which bits stay, which rules err."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel

from labcore.batch import Batch
from labcore.protocol import Protocol
from labcore.timing import Stopwatch

Ids = NDArray[np.int64]
Product = Callable[[Any, Any], Any]
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INTEGERS = {"float64": torch.int64, "float32": torch.int32, "bfloat16": torch.int16, "float16": torch.int16}


def batches(protocol: Protocol) -> Iterator[Batch]:
    """Everything on one thread but where a case says otherwise; the caller's thread count comes back at the end."""
    with torch.inference_mode(), threads(1):
        for dtype in DTYPES:
            yield bits(protocol, dtype)
            yield fixed(protocol, dtype)
        for dtype in ("float32", "bfloat16", "float16"):
            yield alarms(protocol, dtype)
        for dtype in DTYPES:
            yield reuse(protocol, f"reuse_{dtype}", dtype, 16, 1, 4)
            yield reuse(protocol, f"reuse_wide_{dtype}", dtype, 96, 4, 1)
        yield cost(protocol)
        yield kernels()


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# The network: x <- tanh(x + heads(x)), as the teaching network with several heads; positions sinusoidal


class Network(NamedTuple):
    """embedding (vocabulary, d) in float64, for inputs that are rounded once; weights per layer (q, k, v), each (d, d);

    table (vocabulary, d): logits of a state are its products with the rows.
    """

    embedding: NDArray[np.float64]
    table: Any
    layers: list[tuple[Any, Any, Any]]
    heads: int
    dtype: Any


class Cache(NamedTuple):
    """Per layer k, v (b, h, n, e); `hidden` (n,) marks keys that only padding may see; `window` or None."""

    k: list[Any]
    v: list[Any]
    hidden: Any


def network(s: dict[str, Any], seed: int, dtype: str) -> Network:
    """Drawn in float64 by NumPy (embedding, then Q, K, V of each layer, then the table of the logits), rounded once to the dtype."""
    rng = np.random.default_rng([1, seed])
    embedding = rng.standard_normal((s["vocabulary"], s["width"])) * s["embedding_scale"]
    drawn = rng.standard_normal((s["layers"], 3, s["width"], s["width"])) * (s["weight_scale"] / math.sqrt(s["width"]))
    return build(embedding, drawn, s["heads"], dtype, rng.standard_normal((s["vocabulary"], s["width"])))


def build(embedding: Any, drawn: Any, heads: int, dtype: str, table: Any = None) -> Network:
    kind = DTYPES[dtype]
    layers = [tuple(torch.from_numpy(w).to(kind) for w in layer) for layer in drawn]
    return Network(embedding, torch.from_numpy(embedding if table is None else table).to(kind), layers, heads, kind)


def embed(net: Network, ids: Ids, start: int) -> Any:
    """Embedding plus position for ids (b, m) at places start.. (negative: padding), rounded once; (b, m, d)."""
    d = net.embedding.shape[1]
    places = np.arange(start, start + ids.shape[1])
    angle = places[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
    position = np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(len(places), d)
    return torch.from_numpy(net.embedding[ids] + position).to(net.dtype)


def advance(
    net: Network,
    x: Any,
    cache: Cache | None = None,
    pad: int = 0,
    attend: Callable[..., Any] | None = None,
    product: Product = torch.matmul,
    window: int | None = None,
) -> tuple[Any, Cache]:
    """States (b, m, d) of new tokens and the cache with them. pad: so many of the new tokens, the first ones, are padding."""
    attend = attend or usual
    b, m, d = x.shape
    past = 0 if cache is None else cache.k[0].shape[2]
    hidden = torch.cat([torch.zeros(0, dtype=torch.bool) if cache is None else cache.hidden, torch.arange(m) < pad])
    query, key = torch.arange(past, past + m)[:, None], torch.arange(past + m)[None]
    visible = (key <= query) & (~hidden[None] | (hidden[past:, None] & (key == query)))
    if window is not None:
        visible &= key > query - window
    ks, vs = [], []
    for at, (wq, wk, wv) in enumerate(net.layers):
        q, k, v = (product(x, w).reshape(b, m, net.heads, d // net.heads).transpose(1, 2) for w in (wq, wk, wv))
        if cache is not None:
            k, v = torch.cat([cache.k[at], k], dim=2), torch.cat([cache.v[at], v], dim=2)
        ks.append(k)
        vs.append(v)
        mixed = attend(q, k, v, visible)
        x = torch.tanh(x + mixed.transpose(1, 2).reshape(b, m, d))
    return x, Cache(ks, vs, hidden)


def usual(q: Any, k: Any, v: Any, visible: Any) -> Any:
    """Two matrix products around a softmax."""
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return torch.matmul(torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1), v)


def fused(backend: Any) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any, visible: Any) -> Any:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)

    return attend


class Fixed:
    """Batch-invariant sums: fixed splits of `split` terms in order, then the splits in order, element by element.

    No element of a result depends on how many others are computed with it, because only element-wise operations are used. Short dtypes
    are summed in float32 and rounded once.
    """

    def __init__(self, split: int) -> None:
        self.split = split

    def sum(self, terms: Callable[[int], Any], count: int) -> Any:
        total = None
        for start in range(0, count, self.split):
            piece = terms(start)
            for at in range(start + 1, min(start + self.split, count)):
                piece = piece + terms(at)
            total = piece if total is None else total + piece
        return total

    def product(self, x: Any, w: Any) -> Any:
        wide = torch.promote_types(x.dtype, torch.float32)
        a, b = x.to(wide), w.to(wide)
        return self.sum(lambda j: a[..., j : j + 1] * b[j], w.shape[0]).to(x.dtype)

    def attend(self, q: Any, k: Any, v: Any, visible: Any) -> Any:
        wide = torch.promote_types(q.dtype, torch.float32)
        # padding in front would move the splits: begin at the first key that the last query sees
        first = int(visible[-1].to(torch.int8).argmax())
        k, v, visible = k[:, :, first:].to(wide), v[:, :, first:].to(wide), visible[:, first:]
        a = q.to(wide)
        scores = self.sum(lambda j: a[..., j : j + 1] * k[..., j][:, :, None, :], q.shape[-1]) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~visible, -torch.inf)
        # the largest element does not depend on any order; a padding query sees nothing here and gets zeros
        top = scores.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(wide).min)
        weights = torch.exp(scores - top)
        n = k.shape[2]
        total = self.sum(lambda j: weights[..., j : j + 1], n).clamp_min(torch.finfo(wide).tiny)
        return (self.sum(lambda j: weights[..., j : j + 1] * v[:, :, j : j + 1], n) / total).to(q.dtype)


# One prefix on many paths


class Requests(NamedTuple):
    """prefix (32, n), suffix (32, m): request 0 is the one looked at; `padding` ids."""

    prefix: Ids
    suffix: Ids
    padding: Ids


def requests(s: dict[str, Any], key: list[int], count: int = 32) -> Requests:
    rng = np.random.default_rng([2, *key])
    prefix, suffix = (rng.integers(0, s["vocabulary"], (count, n)) for n in (s["prefix"], s["suffix"]))
    return Requests(prefix, suffix, rng.integers(0, s["vocabulary"], (1, 16)))


def travel(net: Network, r: Requests, path: str, settings: dict[str, Any], how: dict[str, Any]) -> tuple[Any, Any, Any]:
    """K and V of request 0's prefix (layers, h, n, e) and its last suffix state (d,), on a path."""
    pad, n = settings["padding"], r.prefix.shape[1]
    size = int(path.removeprefix("batch_")) if path.startswith("batch_") else 1
    prefix, suffix = r.prefix[:size], r.suffix[:size]
    place = 0  # of the prefix's first key in the cache
    if path == "one_pass":
        states, cache = advance(net, embed(net, np.concatenate([prefix, suffix], axis=1), 0), **how)
    else:
        if path in ("chunked", "token_by_token"):
            cache, at = None, 0
            for length in settings["pieces"] if path == "chunked" else [1] * n:
                _, cache = advance(net, embed(net, prefix[:, at : at + length], at), cache, **how)
                at += length
        elif path == "right_padded":
            ids = np.concatenate([prefix, r.padding[:, :pad]], axis=1)
            _, cache = advance(net, embed(net, ids, 0), **how)
            cache = Cache([k[:, :, :n] for k in cache.k], [v[:, :, :n] for v in cache.v], cache.hidden[:n])
        elif path == "left_padded":
            ids = np.concatenate([r.padding[:, :pad], prefix], axis=1)
            _, cache = advance(net, embed(net, ids, -pad), pad=pad, **how)
            place = pad
        else:
            _, cache = advance(net, embed(net, prefix, 0), **how)
        states, _ = advance(net, embed(net, suffix, n), cache, **how)
    k, v = (torch.stack([layer[0, :, place : place + n] for layer in side]) for side in (cache.k, cache.v))
    return k, v, states[0, -1]


def on_path(net: Network, r: Requests, path: str, settings: dict[str, Any], how: dict[str, Any]) -> tuple[Any, Any, Any]:
    backends = {"sdpa_math": SDPBackend.MATH, "sdpa_flash": SDPBackend.FLASH_ATTENTION}
    if path in backends:
        how = {"attend": fused(backends[path])}
    with threads(2 if path == "two_threads" else 1):
        return travel(net, r, path, settings, how)


def raw(x: Any, dtype: str) -> NDArray[Any]:
    """A tensor as stored: float64, float32, or the bits of a short float as uint16."""
    x = x.contiguous()
    return x.numpy() if dtype in ("float64", "float32") else x.view(torch.int16).numpy().view(np.uint16)


def ordered(x: NDArray[Any]) -> list[int]:
    """Stored floats as integers in the order of their values: neighbours differ by 1, both zeros are 0."""
    width = x.dtype.itemsize * 8
    patterns = [int(p) for p in np.ascontiguousarray(x).view(f"<u{width // 8}").ravel()]
    sign = 1 << (width - 1)
    return [p if p < sign else sign - p for p in patterns]


def ulps(a: NDArray[Any], b: NDArray[Any]) -> int:
    return max(abs(x - y) for x, y in zip(ordered(a), ordered(b), strict=True))


def sha256(x: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest(), np.uint8)


def values(x: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    if dtype == "bfloat16":
        return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return (x.view(np.float16) if dtype == "float16" else x).astype(np.float64)


def gap(a: NDArray[Any], b: NDArray[Any], dtype: str) -> float:
    return float(np.abs(values(a, dtype) - values(b, dtype)).max())


def last_token(x: NDArray[Any]) -> NDArray[Any]:
    """(layers, h, n, e) -> (layers, h * e) of the prefix's last token."""
    return np.ascontiguousarray(x[:, :, -1].reshape(len(x), -1))


def bits(protocol: Protocol, dtype: str) -> Batch:
    """The stored rows are the prefix's last token; equality is of the digests of all of K, V and the output."""
    s = protocol.settings
    arrays: dict[str, list[Any]] = {name: [] for name in ("k", "v", "output", "k_sha256", "v_sha256", "output_sha256")}
    own: dict[str, list[float]] = {name: [] for name in ("k_ulp", "v_ulp", "output_ulp", "kv_error", "output_error")}
    decisions: dict[str, list[bool]] = {"k_equal": [], "v_equal": [], "output_equal": []}
    alone: tuple[NDArray[Any], ...] = ()
    for row in protocol.rows(f"bits_{dtype}"):
        net, r = network(s["model"], row["seed"], dtype), requests(s["model"], [row["seed"]])
        got = tuple(raw(x, dtype) for x in on_path(net, r, row["path"], s, {}))
        if row["path"] == "alone":
            alone = got
        k, v, output = last_token(got[0]), last_token(got[1]), got[2]
        k0, v0 = last_token(alone[0]), last_token(alone[1])
        for name, value in (("k", k), ("v", v), ("output", output)):
            arrays[name].append(value)
        for name, value, before in zip(("k", "v", "output"), got, alone, strict=True):
            arrays[f"{name}_sha256"].append(sha256(value))
            decisions[f"{name}_equal"].append(value.tobytes() == before.tobytes())
        own["k_ulp"].append(ulps(k, k0))
        own["v_ulp"].append(ulps(v, v0))
        own["output_ulp"].append(ulps(output, alone[2]))
        own["kv_error"].append(max(gap(k, k0, dtype), gap(v, v0, dtype)))
        own["output_error"].append(gap(output, alone[2], dtype))
    return Batch(f"bits_{dtype}", {name: np.stack(value) for name, value in arrays.items()}, decisions, own=own)


def fixed(protocol: Protocol, dtype: str) -> Batch:
    s = protocol.settings
    sums = Fixed(s["split"])
    how = {"attend": sums.attend, "product": sums.product}
    arrays: dict[str, list[Any]] = {name: [] for name in ("output", "k_sha256", "v_sha256", "output_sha256")}
    decisions: dict[str, list[bool]] = {"k_equal": [], "v_equal": [], "output_equal": []}
    far: list[float] = []
    alone: tuple[NDArray[Any], ...] = ()
    for row in protocol.rows(f"fixed_{dtype}"):
        net, r = network(s["model"], row["seed"], dtype), requests(s["model"], [row["seed"]])
        got = tuple(raw(x, dtype) for x in on_path(net, r, row["fixed_path"], s, how))
        if row["fixed_path"] == "alone":
            alone = got
        arrays["output"].append(got[2])
        for name, value, before in zip(("k", "v", "output"), got, alone, strict=True):
            arrays[f"{name}_sha256"].append(sha256(value))
            decisions[f"{name}_equal"].append(value.tobytes() == before.tobytes())
        far.append(ulps(got[2], alone[2]))
    return Batch(f"fixed_{dtype}", {name: np.stack(value) for name, value in arrays.items()}, decisions, own={"output_ulp": far})


# Alarms


def decode(net: Network, r: Requests, size: int, steps: int, leaked: int | None) -> tuple[Any, list[int]]:
    """Request 0's last suffix state and its greedy tokens, in a batch of `size`; `leaked`: that row of its cache is request 1's."""
    n, m = r.prefix.shape[1], r.suffix.shape[1]
    _, cache = advance(net, embed(net, r.prefix[:size], 0))
    if leaked is not None and size > 1:
        for side in (cache.k, cache.v):
            for layer in side:
                layer[0, :, leaked] = layer[1, :, leaked]
    for at in range(m):  # one at a time, as decoding goes: a batch of one is a matrix-vector product here
        states, cache = advance(net, embed(net, r.suffix[:size, at : at + 1], n + at), cache)
    seen, tokens = states[0, -1], []
    for step in range(steps):
        chosen = torch.argmax(torch.matmul(states[:, -1], net.table.T), dim=-1)
        tokens.append(int(chosen[0]))
        states, cache = advance(net, embed(net, chosen[:, None].numpy(), n + m + step), cache)
    return seen, tokens


def alarms(protocol: Protocol, dtype: str) -> Batch:
    """Does each rule call a fault, in clean batches and in contaminated ones?"""
    s, a = protocol.settings["model"], protocol.settings["alarms"]
    arrays: dict[str, list[Any]] = {name: [] for name in ("alone", "together", "perturbed", "tokens_alone", "tokens_together")}
    decisions: dict[str, list[bool]] = {name: [] for name in ("alarm_bits", "alarm_tolerance", "alarm_tokens", "alarm_perturbation")}
    single: dict[tuple[int, int], tuple[Any, list[int]]] = {}
    for row in protocol.rows(f"alarms_{dtype}"):
        net, r = network(s, row["seed"], dtype), requests(s, [row["seed"], row["request"]])
        key = row["seed"], row["request"]
        if key not in single:
            single[key] = decode(net, r, 1, a["steps"], None)
        leaked = a["leaked_row"] if row["situation"] == "contaminated" else None
        together, tokens = decode(net, r, row["others"], a["steps"], leaked)
        changed = Requests((r.prefix + 7) % s["vocabulary"], (r.suffix + 7) % s["vocabulary"], r.padding)
        changed.prefix[0], changed.suffix[0] = r.prefix[0], r.suffix[0]
        perturbed, _ = decode(net, changed, row["others"], 0, leaked)
        one, two, three = (raw(x, dtype) for x in (single[key][0], together, perturbed))
        for name, value in zip(arrays, (one, two, three, single[key][1], tokens), strict=True):
            arrays[name].append(np.asarray(value, np.int16) if name.startswith("tokens") else value)
        decisions["alarm_bits"].append(one.tobytes() != two.tobytes())
        decisions["alarm_tolerance"].append(gap(one, two, dtype) > a["tolerance"][dtype])
        decisions["alarm_tokens"].append(single[key][1] != tokens)
        decisions["alarm_perturbation"].append(two.tobytes() != three.tobytes())
    return Batch(f"alarms_{dtype}", {name: np.stack(value) for name, value in arrays.items()}, decisions)


# The six conditions of experiment 06 in other dtypes


def reuse(protocol: Protocol, block: str, dtype: str, width: int, heads: int, rows: int) -> Batch:
    """Behind a key that names all that the prefix depends on: hits continue the stored cache, misses recompute. The last `rows` states."""
    s = protocol.settings["reuse"]
    arrays: dict[str, list[Any]] = {"fresh": [], "guarded": []}
    decisions: list[bool] = []
    for row in protocol.rows(block):
        rng = np.random.default_rng([3, row["seed"], width])
        embedding = rng.standard_normal((s["vocabulary"], width)) * s["embedding_scale"]
        drawn = rng.standard_normal((2, 3, width, width)) * (s["weight_scale"] * 4 / math.sqrt(width))
        prefix, suffix, window, scope = np.array([s["prefix"]]), np.array([s["suffix"]]), None, "reader-a"
        stored_key = (scope, window, drawn.tobytes(), prefix.tobytes())
        with threads(row["threads"]):
            net = build(embedding, drawn, heads, dtype)
            _, cache = advance(net, embed(net, prefix, 0))
            if row["condition"] == "edited-prefix":
                prefix[0, s["edited_place"]] = s["edited_id"]
            elif row["condition"] == "different-weights":
                drawn[0, 1, 0, 0] += s["weight_change"]
            elif row["condition"] == "different-window":
                window = s["window"]
            elif row["condition"] == "different-scope":
                scope = "reader-b"
            elif row["condition"] == "new-suffix":
                suffix = np.array([s["new_suffix"]])
            net = build(embedding, drawn, heads, dtype)
            whole = embed(net, np.concatenate([prefix, suffix], axis=1), 0)
            fresh, _ = advance(net, whole, window=window)
            hit = (scope, window, drawn.tobytes(), prefix.tobytes()) == stored_key
            if hit:
                guarded, _ = advance(net, embed(net, suffix, prefix.shape[1]), cache, window=window)
            else:
                guarded, _ = advance(net, whole, window=window)
        arrays["fresh"].append(fresh[0, -rows:].double().numpy())
        arrays["guarded"].append(guarded[0, -rows:].double().numpy())
        decisions.append(hit)
    return Batch(block, {name: np.stack(value) for name, value in arrays.items()}, {"reused": decisions})


# What invariance costs, and on what machine


def cost(protocol: Protocol) -> Batch:
    """Seconds of one prefix pass of a batch, by the usual products and by fixed sums, in turning order."""
    s, c = protocol.settings, protocol.settings["cost"]
    sums = Fixed(s["split"])
    rows = []
    for row in protocol.rows("cost"):
        net, r = network(s["model"], c["seed"], row["dtype"]), requests(s["model"], [c["seed"]])
        x = embed(net, r.prefix[: row["others"]], 0)
        ways = {
            "usual": lambda net=net, x=x: advance(net, x),
            "fixed": lambda net=net, x=x: advance(net, x, attend=sums.attend, product=sums.product),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(-c["warm"], c["rounds"]):
            for name in list(ways)[:: 1 if turn % 2 else -1]:
                watch = Stopwatch()
                with watch(name):
                    ways[name]()
                if turn >= 0:
                    seconds[name].append(watch.get(name))
        rows.append(seconds)
    return Batch("cost", {name: np.array([row[name] for row in rows]) for name in ("usual", "fixed")})


def kernels() -> Batch:
    """What PyTorch says of the kernels and libraries that make the bits."""
    lines = [
        f"torch {torch.__version__}",
        f"vector kernels {torch.backends.cpu.get_cpu_capability()}",
        f"mkl {torch.backends.mkl.is_available()}, oneDNN {torch.backends.mkldnn.is_available()}",
        *(line.strip(" -") for line in torch.__config__.show().splitlines() if "Library" in line or "MKL-DNN" in line or "OpenMP" in line),
        *(line.strip() for line in torch.__config__.parallel_info().splitlines() if "get_max_threads" in line or "num_threads" in line),
    ]
    return Batch("kernels", {"description": np.frombuffer("\n".join(lines).encode(), np.uint8)})
