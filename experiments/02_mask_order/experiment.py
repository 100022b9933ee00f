"""The mask before or after the softmax: what of B reaches A's output, by perturbing one foreign row at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore import passphrase
from labcore.attention import attend, logits, mix
from labcore.batch import Batch
from labcore.faults.late_masks import VARIANTS, printed, repaired
from labcore.passphrase import Heads
from labcore.protocol import Protocol

Floats = NDArray[Any]
OWN = 3  # A's tokens


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks, seed by seed."""
    s = protocol.settings
    models = [passphrase.heads(seed, s["heads"], s["width"], s["head_dim"]) for seed in protocol.seeds]
    for model in models:
        q, k, v = _requests(model)
        for variant in protocol.values("variant"):
            yield _published(variant, q[0], np.concatenate([*k], 1), np.concatenate([*v], 1), s["step"])
    for seed, model in zip(protocol.seeds, models, strict=True):
        yield from _sweep(protocol, seed, model)
    for model in models:
        for snippet in protocol.values("snippet"):
            yield _snippet(snippet, *_requests(model))


def _requests(model: Heads) -> tuple[Floats, Floats, Floats]:
    """q, k, v of A and B, each [request, head, token, head_dim]."""
    return model.project(np.array(passphrase.REQUESTS), np.tile(np.arange(OWN), (2, 1)))


def _visible(keys: int) -> NDArray[np.bool_]:
    """A's causal view of its own slots, which are the first ones. [query, key]"""
    return np.asarray(np.arange(keys) <= np.arange(OWN)[:, None])


def _perturbed(q: Floats, k: Floats, scores: Floats, scale: float, step: float) -> Floats:
    """Scores after `step` was added to foreign key j, for each j: [j, head, query, key]. Only column j differs."""
    foreign = k.shape[-2] - OWN
    all_scores = np.repeat(scores[None], foreign, axis=0)
    changed = logits(q, k[:, OWN:] + step, scale)
    for j in range(foreign):
        all_scores[j, ..., OWN + j] = changed[..., j]
    return all_scores


def _pour(coefficients: Floats, v: Floats) -> Floats:
    """Output over the keys that any coefficient reaches; a coefficient of 0 multiplies nothing."""
    used = (coefficients != 0).any(tuple(range(coefficients.ndim - 1)))
    chosen = coefficients[..., used]
    return mix(chosen, v[..., used, :], chosen != 0)


def _value_moved(coefficients: Floats, v: Floats, step: float) -> Floats:
    """Output after `step` was added to foreign value j, for each j, minus the output: [j, head, query, head_dim]."""
    foreign = v.shape[-2] - OWN
    reached = np.flatnonzero((coefficients[..., OWN:] != 0).any((0, 1)))
    moved = np.zeros((foreign, *coefficients.shape[:-1], v.shape[-1]))
    if len(reached) == 0:
        return moved
    output = _pour(coefficients, v)
    total = np.zeros((len(reached), *output.shape))
    for i in range(v.shape[-2]):
        row = v[None, :, None, i] + step * (reached == i - OWN)[:, None, None, None]
        total += coefficients[None, :, :, i, None] * row
    moved[reached] = total - output
    return moved


def _published(variant: str, q: Floats, k: Floats, v: Floats, step: float) -> Batch:
    rule, visible = VARIANTS[variant], _visible(k.shape[-2])
    scores = logits(q, k)
    coefficients = rule(scores, visible)
    output = _pour(coefficients, v)
    key_moved = _pour(rule(_perturbed(q, k, scores, 1.0, step), visible), v) - output
    arrays = {
        "coefficients": coefficients,
        "row_sum": coefficients.sum(-1),
        "output": output,
        "alone": attend(q, k[:, :OWN], v[:, :OWN], _visible(OWN))[0],
        "key_moved": key_moved,
        "value_moved": _value_moved(coefficients, v, step),
    }
    return Batch("published", {name: a[None] for name, a in arrays.items()})


def _sweep(protocol: Protocol, seed: int, model: Heads) -> Iterator[Batch]:
    """All scales and foreign lengths of a seed, for each variant in turn."""
    scales, lengths = protocol.values("scale"), protocol.values("foreign")
    step = protocol.settings["step"]
    q, k, v = (part[0] for part in _requests(model))
    cells = []
    for scale in scales:
        alone, _ = attend(q, k, v, _visible(OWN), scale)
        for n in lengths:
            rng = np.random.default_rng([seed, n])
            shape = (k.shape[0], n, k.shape[-1])
            all_k, all_v = (np.concatenate([part, rng.normal(size=shape)], 1) for part in (k, v))
            scores = logits(q, all_k, scale)
            cells.append((alone, scores, _perturbed(q, all_k, scores, scale, step), all_v))
    for variant in protocol.values("variant"):
        rows: dict[str, list[Floats]] = {"row_sum": [], "distance": [], "by_key": [], "by_value": []}
        for alone, scores, perturbed, all_v in cells:
            rule, visible = VARIANTS[variant], _visible(scores.shape[-1])
            coefficients = rule(scores, visible)
            output = _pour(coefficients, all_v)
            rows["row_sum"].append(coefficients.sum(-1))
            rows["distance"].append(np.abs(output - alone).max(-1))
            rows["by_key"].append(np.abs(_pour(rule(perturbed, visible), all_v) - output).max((0, -1)))
            rows["by_value"].append(np.abs(_value_moved(coefficients, all_v, step)).max((0, -1)))
        yield Batch("sweep", {name: np.stack(values) for name, values in rows.items()})


def _snippet(name: str, q: Floats, k: Floats, v: Floats) -> Batch:
    """The printed code with the first head, in the shapes that a reader might give it, and its repair."""
    q, k, v = q[:, 0], k[:, 0], v[:, 0]  # [request, token, d]
    shape: dict[str, Any] = {
        "printed_two_rows": lambda x: np.stack([x, x]),
        "printed_one_row": lambda x: x[None],
        "printed_no_batch": lambda x: x,
        "printed_heads": lambda x: np.stack([x, x])[:, None].repeat(2, 1),
        "repaired": lambda x: x[None],
    }
    rows = [shape[name](x) for x in (k[0], k[1], v[0], v[1])]
    queries = q[:, None].repeat(2, 1) if name == "printed_heads" else q
    try:
        _, coefficients, joined = (repaired if name == "repaired" else printed)(queries, *rows)
    except ValueError:
        return Batch(
            "snippets",
            decisions={"accepted": [False]},
            counts={key: [0] for key in ("copies", "keys_seen", "future_seen", "foreign_seen")},
            own={"row_sum_min": [0.0], "row_sum_max": [0.0]},
        )
    stored = joined.reshape(-1, joined.shape[-1])
    slot = np.arange(6)
    owner, position = slot // OWN, slot % OWN
    seen = coefficients != 0
    future = (owner == np.arange(2)[:, None, None]) & (position > np.arange(OWN)[:, None])
    counts = {
        "copies": int(max((stored == key).all(-1).sum() for key in k.reshape(-1, k.shape[-1]))),
        "keys_seen": int(seen.sum(-1).max()),
        "future_seen": int((seen & future).sum()),
        "foreign_seen": int((seen & (owner != np.arange(2)[:, None, None])).sum()),
    }
    sums = coefficients.sum(-1)
    return Batch(
        "snippets",
        decisions={"accepted": [True]},
        counts={key: [value] for key, value in counts.items()},
        own={"row_sum_min": [float(sums.min())], "row_sum_max": [float(sums.max())]},
    )
