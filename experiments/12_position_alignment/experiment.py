"""Cached keys at another place: shifts, another left context, padding, dropped tokens, rounded positions, and a small trained model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from labcore.batch import Batch
from labcore.faults import bf16_positions, context_shift, left_padding
from labcore.placed_network import HEADS, WIDTH, Weights, draw, joined, log_probabilities, moved, run
from labcore.positions import Floats, rotate
from labcore.protocol import Protocol


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks."""
    weights = {seed: draw(seed) for seed in protocol.seeds}
    yield shifts(protocol, weights)
    yield contexts(protocol, weights)
    yield padding(protocol, weights)
    yield dropped(protocol, weights)
    yield repeated(protocol)
    yield bf16(protocol)
    yield bf16_states(protocol, weights)
    yield from trained(protocol)


def walk(count: int, step: int, start: int) -> np.ndarray:
    """Ids (step i + start) mod 32."""
    return (step * np.arange(count) + start) % 32


def parts(settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Segment, query, left context, other left context."""
    left = walk(settings["left"], 3, 1)
    return walk(settings["segment"], 7, 3), walk(settings["query"], 11, 5), left, (left + 13) % 32


def collect(block: str, rows: list[dict[str, Any]]) -> Batch:
    """Rows of arrays as one batch."""
    return Batch(block, {name: np.stack([row[name] for row in rows]) for name in rows[0]})


def shifts(protocol: Protocol, weights: dict[int, Weights]) -> Batch:
    """A segment alone, cached at 0, serves a query behind it at another place; last states of both layers."""
    segment, query, *_ = parts(protocol.settings)
    rows = []
    for row in protocol.rows("shifts"):
        model, rule, shift = weights[row["seed"]], row["rule"], row["shift"]
        whole = np.concatenate([segment, query])
        fresh, _ = run(model, rule, whole, shift + np.arange(len(whole)))
        _, cache = run(model, rule, segment, np.arange(len(segment)))
        if row["handling"] == "realigned":
            cache = moved(cache, rule, shift)
        reuse, _ = run(model, rule, query, shift + np.arange(len(segment), len(whole)), cache)
        rows.append({"fresh": fresh[:, 0, -1], "reuse": reuse[:, 0, -1]})
    return collect("shifts", rows)


def contexts(protocol: Protocol, weights: dict[int, Weights]) -> Batch:
    """A middle segment cached behind one left context and used behind another, `moved` places further.

    total: both the place and the context are those of the cache. position: the segment's keys have the right context but the cache's place.
    context: the right place but the cache's context. All three are handled alike.
    """
    segment, query, left, other = parts(protocol.settings)
    a, n = len(left), len(segment)
    rows = []
    for row in protocol.rows("contexts"):
        model, rule, shift = weights[row["seed"]], row["rule"], row["moved"]
        whole = np.concatenate([other, segment, query])
        fresh, true = run(model, rule, whole, shift + np.arange(len(whole)))
        sources = {
            "total": (left, 0),
            "position": (other, 0),
            "context": (left, shift),
        }
        front, found = true.rows(0, a), {}
        for name, (before, start) in sources.items():
            _, cache = run(model, rule, np.concatenate([before, segment]), start + np.arange(a + n))
            part = cache.rows(a, a + n)
            if row["handling"] == "realigned":
                part = moved(part, rule, shift - start)
            if name == "total":
                found |= {"keys_fresh": true.k[1, 0, a : a + n], "keys_reused": part.k[1, 0]}
            states, _ = run(model, rule, query, shift + np.arange(a + n, len(whole)), joined(front, part))
            found |= {f"{name}_one": states[0, 0, -1], f"{name}_two": states[1, 0, -1]}
        rows.append({"fresh_one": fresh[0, 0, -1], "fresh_two": fresh[1, 0, -1], **found})
    return collect("contexts", rows)


def padding(protocol: Protocol, weights: dict[int, Weights]) -> Batch:
    """A short row alone, and padded on the left under both numberings."""
    spec, rows = protocol.settings["padding"], []
    ids = walk(spec["length"], 7, 3)
    for row in protocol.rows("padding"):
        model, rule = weights[row["seed"]], row["rule"]
        fresh, _ = run(model, rule, ids, np.arange(len(ids)))
        rows.append({"fresh": fresh[-1, 0, -1], "padded": left_padding.last_state(model, rule, ids, spec["pads"], row["numbering"])})
    return collect("padding", rows)


def dropped(protocol: Protocol, weights: dict[int, Weights]) -> Batch:
    """RoPE: the oldest tokens are dropped and one more token comes, against keys built at the new positions from the kept tokens alone."""
    spec, rows = protocol.settings["context_shift"], []
    ids, after = walk(spec["length"], 7, 3), walk(1, 1, 9)
    for row in protocol.rows("context_shift"):
        model = weights[row["seed"]]
        gone = 0 if row["kept"] == "all" else spec["dropped"]
        _, cache = run(model, "rope", ids, np.arange(len(ids)))
        cache = cache.rows(gone, len(ids))
        if row["kept"] == "realigned":
            cache = moved(cache, "rope", -gone)
        at = np.arange(len(ids) - gone, len(ids) - gone + 1)
        kept, _ = run(model, "rope", after, at, cache)
        _, built = run(model, "rope", ids[gone:], np.arange(len(ids) - gone))
        states, _ = run(model, "rope", after, at, built)
        found = {"built": states, "kept": kept}
        rows.append({f"{name}_{word}": v[layer, 0, -1] for name, v in found.items() for layer, word in enumerate(("one", "two"))})
    return collect("context_shift", rows)


def repeated(protocol: Protocol) -> Batch:
    """Keys moved back by many places, at once or one by one, as few bits keep them."""
    spec, rows = protocol.settings["repeated"], []
    for row in protocol.rows("repeated"):
        keys = np.random.default_rng([row["seed"], spec["stream"]]).normal(size=(spec["keys"], HEADS, WIDTH // HEADS))
        move = context_shift.in_steps if row["way"] == "in_steps" else context_shift.at_once
        exact = rotate(keys, np.full(len(keys), -spec["shift"]))
        rows.append({"exact": exact, "kept": move(keys, spec["shift"], row["precision"])})
    return collect("repeated", rows)


def bf16(protocol: Protocol) -> Batch:
    """Positions as bfloat16 holds them, and the cosine of the fastest pair (angle = position)."""
    spec = protocol.settings["bf16"]
    places = np.arange(spec["places"])
    rounded = bf16_positions.rounded(places)
    arrays = {"place": bf16_positions.bits(places)[None], "cosine": np.cos(places)[None], "cosine_bf16": np.cos(rounded)[None]}
    counts = {
        "places_apart": [len(np.unique(rounded))],
        "first_wrong": [int(np.flatnonzero(rounded != places)[0])],
        "far_rounded": [int(bf16_positions.rounded([spec["far"]])[0])],
    }
    return Batch("bf16", arrays, counts=counts)


def bf16_states(protocol: Protocol, weights: dict[int, Weights]) -> Batch:
    """RoPE with true and with rounded positions, near the start and far from it."""
    ids, rows = walk(protocol.settings["bf16"]["length"], 7, 3), []
    for row in protocol.rows("bf16_states"):
        places = row["start"] + np.arange(len(ids))
        fresh, _ = run(weights[row["seed"]], "rope", ids, places)
        rounded, _ = run(weights[row["seed"]], "rope", ids, bf16_positions.rounded(places))
        rows.append({"fresh": fresh[-1, 0, -1], "rounded": rounded[-1, 0, -1]})
    return collect("bf16_states", rows)


def sequences(spec: dict[str, Any], rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Ids [count, length]: each repeats one of the `recent` ids before it with probability `copy`, else is any of 32."""
    ids = rng.integers(0, 32, (count, length))
    back, copied = rng.integers(1, spec["recent"] + 1, (count, length)), rng.random((count, length)) < spec["copy"]
    for i in range(spec["recent"], length):
        ids[:, i] = np.where(copied[:, i], ids[np.arange(count), i - back[:, i]], ids[:, i])
    return ids


def trained(protocol: Protocol) -> Iterator[Batch]:
    """A model for each rule and seed, and the log-probabilities of held-out continuations by four ways.

    full: one pass. training_path: one pass again, with the misaligned cache in the process: training never asks a cache. aligned,
    misaligned: behind a cache of the first ids, moved where it stands, or with every new token `shift` places further away.
    """
    spec, check = protocol.settings["training"], protocol.settings["evaluation"]
    models, results = [], []
    for row in protocol.rows("models"):
        model, curve = fit(protocol, row["seed"], row["rule"])
        length = spec["length"]
        models.append({"embedding": model.embedding, "table": model.table[:length], "qkvo": model.qkvo, "loss_curve": curve})
        ids = sequences(spec, np.random.default_rng([row["seed"], 12, check["stream"]]), check["sequences"], length + 1)
        results.append({"ids": ids.astype(np.int8), **scores(model, row["rule"], ids, check["cached"], check["shift"])})
    yield collect("models", models)
    yield collect("trained", results)


def scores(model: Weights, rule: str, ids: np.ndarray, cached: int, shift: int) -> dict[str, Floats]:
    """Log-probabilities [sequence, token] of ids[:, cached + 1:]."""
    asked, targets, places = ids[:, :-1], ids[:, cached + 1 :], np.arange(ids.shape[1] - 1)
    _, cache = run(model, rule, asked[:, :cached], places[:cached])
    ways = {"full": lambda: run(model, rule, asked, places)[0][-1][:, cached:]}
    ways["aligned"] = lambda: run(model, rule, asked[:, cached:], places[cached:], cache)[0][-1]
    # The keys stay where they are and the new tokens are numbered on from too far: under absolute rules the other way round.
    wrong = moved(cache, rule, -shift) if rule in ("rope", "alibi") else run(model, rule, asked[:, :cached], places[:cached][::-1])[1]
    ways["misaligned"] = lambda: run(model, rule, asked[:, cached:], places[cached:], wrong)[0][-1]
    ways["training_path"] = ways["full"]
    return {name: log_probabilities(model, way(), targets) for name, way in ways.items()}


def fit(protocol: Protocol, seed: int, rule: str) -> tuple[Weights, Floats]:
    """Train by Adam on the next id, in PyTorch, one thread, float64; the weights and the loss at every tenth step."""
    import torch

    spec = protocol.settings["training"]
    torch.set_num_threads(1)
    start, rng = draw(seed), np.random.default_rng([seed, 12, spec["stream"]])
    embedding, table, qkvo = (torch.tensor(v, requires_grad=True) for v in (start.embedding, start.table, start.qkvo))
    optimiser = torch.optim.Adam([embedding, table, qkvo], lr=spec["rate"])
    length, curve = spec["length"], []
    places = np.arange(length)
    hidden = torch.tensor(np.where(np.tril(np.ones((length, length), bool)), 0.0, -np.inf))
    fixed = fixed_tables(rule, places)
    for step in range(spec["steps"]):
        ids = torch.tensor(sequences(spec, rng, spec["batch"], length + 1))
        x = embedding[ids[:, :-1]] + (table[:length] if rule == "learned" else 0.0) + fixed["added"]
        for layer in range(2):
            q, k, v = ((x @ qkvo[layer, p]).unflatten(2, (HEADS, -1)) for p in range(3))
            if rule == "rope":
                q, k = turn(q, fixed), turn(k, fixed)
            shares = (torch.einsum("bnhe,bmhe->bhnm", q, k) / np.sqrt(WIDTH // HEADS) + fixed["bias"] + hidden).softmax(-1)
            x = torch.tanh(x + torch.einsum("bhnm,bmhe->bnhe", shares, v).flatten(2) @ qkvo[layer, 3])
        loss = torch.nn.functional.cross_entropy((x @ embedding.T).flatten(0, 1), ids[:, 1:].flatten())
        if step % 10 == 0:
            curve.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Weights(*(v.detach().numpy() for v in (embedding, table, qkvo))), np.array(curve)


def fixed_tables(rule: str, places: np.ndarray) -> dict[str, Any]:
    """What a rule adds to inputs and scores, and rope's cosines and sines, as tensors."""
    import torch

    from labcore.positions import BASE, alibi, sinusoidal

    angle = places[:, None] / BASE ** (2 * np.arange(WIDTH // HEADS // 2) / (WIDTH // HEADS))
    return {
        "added": torch.tensor(sinusoidal(places, WIDTH)) if rule == "sinusoidal" else 0.0,
        "bias": torch.tensor(alibi(places, places, HEADS)) if rule == "alibi" else 0.0,
        "cos": torch.tensor(np.cos(angle)[:, None]),
        "sin": torch.tensor(np.sin(angle)[:, None]),
    }


def turn(x: Any, fixed: dict[str, Any]) -> Any:
    """RoPE on a tensor [b, n, h, e]."""
    import torch

    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * fixed["cos"] - odd * fixed["sin"], even * fixed["sin"] + odd * fixed["cos"]], -1).flatten(-2)
