"""Two requests in one cache: the correct mask, eight wrong ones, and the layouts in which masks go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore import masks, passphrase
from labcore.attention import attend, entropy, logits, mix, softmax
from labcore.batch import Batch
from labcore.faults import packed, summed_masks, wrong_broadcast, wrong_masks
from labcore.passphrase import Heads
from labcore.protocol import Protocol

Floats = NDArray[Any]
Ints = NDArray[np.int64]


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks; the heads of each seed are drawn once."""
    s = protocol.settings
    models = [passphrase.heads(seed, s["heads"], s["width"], s["head_dim"]) for seed in protocol.seeds]
    own = [model.project(np.array(passphrase.REQUESTS), np.tile(np.arange(3), (2, 1))) for model in models]
    q, k, v = (np.stack(part) for part in zip(*own, strict=True))
    yield Batch("inputs", {"q": q, "k": k, "v": v})
    yield from published(protocol, q, k, v)
    yield from repeats(protocol, models)
    for name, function in ROWS.items():
        for row in protocol.rows(name):
            yield function(protocol, models, row)


def published(protocol: Protocol, q: Floats, k: Floats, v: Floats) -> Iterator[Batch]:
    """Every condition in float64 and float32; q, k, v [seed, request, head, token, head_dim]."""
    owner = masks.owners([3, 3])
    for index, seed in enumerate(protocol.seeds):
        rng = np.random.default_rng([seed, protocol.settings["foreign_stream"]])
        other_k, other_v = rng.normal(size=k[index].shape), rng.normal(size=v[index].shape)
        for condition in protocol.values("condition"):
            batch = {}
            for dtype in (np.float64, np.float32):
                mine = [part[index].astype(dtype) for part in (q, k, v)]
                batch[dtype] = _condition(wrong_masks.VARIANTS[condition], owner, *mine)
            arrays = batch[np.float64]
            arrays["changed"] = _changed(wrong_masks.VARIANTS[condition], owner, q[index], k[index], v[index], other_k, other_v)
            arrays |= {"rest": 1 - arrays["leak"], "entropy": entropy(arrays["weights"]), "row_sum": arrays["weights"].sum(-1)}
            arrays["focus"] = _where(arrays["weights"], owner[None, :] == np.arange(2)[:, None])
            yield Batch("published", {name: a[None] for name, a in arrays.items()})
            yield Batch("published32", {name: batch[np.float32][name][None] for name in ("weights", "output", "alone", "leak")})


Variant = Callable[[Floats, Ints], Floats]


def _condition(variant: Variant, owner: Ints, q: Floats, k: Floats, v: Floats) -> dict[str, Floats]:
    """Weights, output and leak of a variant in the shared cache, and the output of each request alone."""
    weights = variant(logits(q, _shared(k)), owner)
    alone, _ = attend(q, k, v, masks.causal([[0, 1, 2]], [0, 1, 2])[:, None])
    return {
        "weights": weights,
        "output": mix(weights, _shared(v), weights != 0),
        "alone": alone,
        "leak": _where(weights, owner[None, :] != np.arange(2)[:, None]),
    }


def _changed(variant: Variant, owner: Ints, q: Floats, k: Floats, v: Floats, other_k: Floats, other_v: Floats) -> Floats:
    """Output of each request after every key and value of the other one was replaced."""
    out = []
    for request in range(2):
        keep = (np.arange(2) == request)[:, None, None, None]
        weights = variant(logits(q, _shared(np.where(keep, k, other_k))), owner)
        out.append(mix(weights, _shared(np.where(keep, v, other_v)), weights != 0)[request])
    return np.stack(out)


def _shared(x: Floats) -> Floats:
    """Rows of all requests one after the other: [request, head, token, d] -> [1, head, slot, d]."""
    return np.concatenate(list(x), axis=1)[None]


def _where(weights: Floats, cells: NDArray[np.bool_]) -> Floats:
    """Sum of weights [request, head, query, key] over the keys that `cells` [request, key] marks."""
    return np.asarray(np.where(cells[:, None, None], weights, np.zeros((), weights.dtype)).sum(-1))


def repeats(protocol: Protocol, models: list[Heads]) -> Iterator[Batch]:
    """The whole passphrase with its ends, computed twice from the ids, and compared across seeds."""
    count = len(passphrase.LONG)
    runs = []
    for _ in range(2):
        qk = [model.project(passphrase.LONG, np.arange(count))[:2] for model in models]
        runs.append(np.stack([softmax(logits(q, k), masks.causal([range(count)], range(count))) for q, k in qk]))
    yield Batch("passphrase", {"first": runs[0], "second": runs[1]})
    correlations = []
    for pair in protocol.values("pair"):
        a, b = (runs[0][int(place)] for place in pair.split("-"))
        rows = [np.corrcoef(a[h, i, : i + 1], b[h, i, : i + 1])[0, 1] for h in range(a.shape[0]) for i in range(2, count)]
        correlations.append(rows)
    yield Batch(
        "across",
        own={"correlation_mean": [float(np.mean(c)) for c in correlations], "correlation_min": [float(min(c)) for c in correlations]},
    )


def many(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """2 to 16 requests of unequal length in one cache, all slots as queries."""
    s, model = protocol.settings, models[protocol.seeds.index(row["seed"])]
    lengths = [s["many_lengths"][i % len(s["many_lengths"])] for i in range(row["requests"])]
    owner = masks.owners(lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    q, k, v = model.project(np.arange(len(owner)) % 7, position)
    right, faulty = wrong_masks.square(owner), packed.causal_only(owner)[0]
    output, weights = attend(q, k, v, right)
    faulty_output, _ = attend(q, k, v, faulty)
    leak = np.where(owner[:, None] != owner, weights, 0).sum(-1)
    rng = np.random.default_rng([row["seed"], s["foreign_stream"]])
    other_k, other_v = rng.normal(size=k.shape), rng.normal(size=v.shape)
    moved, errors, faulty_moved = 0, [], []
    for request in range(row["requests"]):
        mine = owner == request
        alone, _ = attend(q[:, mine], k[:, mine], v[:, mine], right[np.ix_(mine, mine)])
        errors.append(np.abs(output[:, mine] - alone).max())
        new_k, new_v = np.where(mine[:, None], k, other_k), np.where(mine[:, None], v, other_v)
        again, _ = attend(q[:, mine], new_k, new_v, right[mine])
        moved += int(np.count_nonzero(again != output[:, mine]))
        if request > 0:  # the first one sees nobody under a causal mask
            again, _ = attend(q[:, mine], new_k, new_v, faulty[mine])
            faulty_moved.append(np.abs(again - faulty_output[:, mine]).max())
    own = {"leak_most": [float(leak.max())], "error_most": [float(max(errors))], "faulty_moved_least": [float(min(faulty_moved))]}
    return Batch("many", counts={"moved_elements": [moved]}, own=own)


def padded(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """A padding mask taken for an isolation mask; each request has a segment of padded slots."""
    size = protocol.settings["padded_length"]
    lengths = np.array([size, size] if row["lengths"] == "equal" else [3, size])
    model = models[protocol.seeds.index(row["seed"])]
    slot = np.arange(size)
    valid = slot < lengths[:, None]  # [request, slot]
    ids = np.where(valid, (slot + np.array([[0], [3]])) % 7, passphrase.PAD)
    q, k, _ = model.project(ids, np.tile(slot, (2, 1)))
    own = np.repeat(np.eye(2, dtype=bool), size, axis=1)[:, None]
    rule = {
        "owner": own & valid.reshape(1, 1, -1),
        "flat": np.tile(valid.reshape(1, 1, -1), (2, 1, 1)),
        "tiled": np.tile(valid, (1, 2))[:, None],
    }[row["extension"]]
    visible = rule & masks.causal(np.tile(slot, (2, 1)), np.tile(slot, 2))
    weights = softmax(logits(q, _shared(k)), visible[:, None])
    weights = np.where(valid[:, None, :, None], weights, 0)  # queries of padding are no one's
    foreign = ~own[:, None]
    token = np.where(foreign & valid.reshape(-1), weights, 0).sum(-1)
    padding = np.where(foreign & ~valid.reshape(-1), weights, 0).sum(-1)
    return Batch("padded", {"token_leak": token[None], "padding_leak": padding[None]})


def sums(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """The causal and the block-diagonal 0/1 mask added, in both polarities, and each reading of the sum."""
    q, k, v = models[protocol.seeds.index(row["seed"])].project(np.array(passphrase.REQUESTS), np.tile(np.arange(3), (2, 1)))
    owner, slots = masks.owners([3, 3]), np.arange(6)
    first = masks.causal(slots.reshape(2, 3), slots)[:, None]
    second = masks.block_diagonal(owner, 2)[:, None] & np.ones_like(first)
    scores = logits(q, _shared(k))
    coefficients = summed_masks.effective(scores, first, second, row["polarity"], row["use"])
    output = mix(coefficients, _shared(v), coefficients != 0)
    right = softmax(scores, first & second)
    error = np.abs(output - mix(right, _shared(v), right != 0)).max()
    carries = coefficients != 0
    counts = {
        "newly_visible": carries & ~(first & second),
        "doubly_visible": carries & ~first & ~second,
        "newly_hidden": ~carries & first & second,
        "empty_rows": ~carries.any(-1),
    }
    leak = _where(np.abs(coefficients), owner[None, :] != np.arange(2)[:, None])
    return Batch(
        "sums",
        {"coefficients": coefficients[None], "leak": leak[None]},
        counts={name: [int(cells.sum())] for name, cells in counts.items()},
        own={"error": [float(error)]},
    )


def paged(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """Keys gathered through right page tables; the mask over what was gathered is right, or marks more than is written."""
    s = protocol.settings
    q, k, _ = models[protocol.seeds.index(row["seed"])].project(np.array(passphrase.REQUESTS), np.tile(np.arange(3), (2, 1)))
    size = s["page_size"]
    # Every slot of the pool holds a former owner's row until a request writes it.
    pool = np.random.default_rng([row["seed"], s["stale_stream"]]).normal(size=(s["pages"] * size, s["heads"], s["head_dim"]))
    slots = np.array([[page * size + i for page in table for i in range(size)] for table in s["page_tables"]])
    pool[slots[:, :3]] = k.transpose(0, 2, 1, 3)
    span = slots.shape[1]
    position = np.arange(span)
    written = np.tile(position < 3, 2)
    owner = np.repeat(np.arange(2), span)
    if row["reach"] == "batch":
        gathered = pool[slots.reshape(-1)].transpose(1, 0, 2)[None]
        visible = masks.both(masks.causal(np.tile(np.arange(3), (2, 1)), np.tile(position, 2)), masks.written(written))
        if row["mask"] == "right":
            visible = masks.both(visible, masks.block_diagonal(owner, 2))
        mine = (owner == np.arange(2)[:, None]) & written
    else:
        gathered = pool[slots].transpose(0, 2, 1, 3)
        visible = masks.both(masks.causal(np.tile(np.arange(3), (2, 1)), position), masks.written(written[:span]))
        if row["mask"] == "wrong":
            visible = np.ones_like(visible)  # whole pages
        mine = np.tile(written[:span], (2, 1))
    weights = softmax(logits(q, gathered), visible[:, None])
    return Batch("paged", {"leak": _where(weights, ~mine)[None]})


CACHES = {"equal": [3, 3], "unequal": [3, 5], "short": [1, 5], "single": [5]}


def key_axis(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """Masks whose key axis is the request's own length, the padded length or the whole cache."""
    model, lengths = models[protocol.seeds.index(row["seed"])], CACHES[row["cache"]]
    owner = masks.owners(lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    q, k, _ = model.project(np.arange(len(owner)) % 7, position)
    right = wrong_masks.square(owner)
    accepted, as_meant, leaks = 0, 0, [0.0]
    for request, length in enumerate(lengths):
        mine = owner == request
        keys = {"own": length, "padded": max(lengths), "total": len(owner)}[row["built"]]
        mask = right[mine] if row["built"] == "total" else np.arange(keys) <= np.arange(length)[:, None]
        try:
            laid = np.broadcast_to(mask, (length, len(owner)))
        except ValueError:
            continue
        accepted += 1
        as_meant += int(np.array_equal(laid, right[mine]))
        leaks.append(float(np.where(mine, 0, softmax(logits(q[:, mine], k), laid)).sum(-1).max()))
    counts = {"asked": [len(lengths)], "accepted": [accepted], "as_meant_masks": [as_meant]}
    return Batch("key_axis", counts=counts, own={"leak_most": [max(leaks)]})


def broadcast(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """A mask along a wrong axis, against the difference of lengths in the batch. Slots beyond a request's length are a former owner's."""
    s = protocol.settings
    n, shortest = s["broadcast_batch"], s["broadcast_length"]
    lengths = np.array([shortest, shortest + row["difference"] // 2, shortest + row["difference"]])
    longest = int(lengths.max())
    rng = np.random.default_rng([row["seed"], row["difference"]])
    shared = row["variant"] in ("right_owner", "owner_as_heads")
    queries = longest if row["variant"] == "padded_on_query_axis" else n
    keys = int(lengths.sum()) if shared else longest
    q = rng.normal(size=(n, n, longest, s["head_dim"]))[:, :, :queries]
    k = rng.normal(size=(1 if shared else n, n, int(lengths.sum()), s["head_dim"]))[:, :, :keys]
    valid = np.arange(longest) < lengths[:, None]
    owner_mask = np.repeat(masks.block_diagonal(masks.owners(lengths), n), n, axis=1)
    visible = wrong_broadcast.lay(row["variant"], valid, owner_mask, (n, n, queries, keys))
    seen = visible.any(-1)  # rows of padding on the query axis see nothing
    weights = np.where(seen[..., None], softmax(logits(q, k), visible | ~seen[..., None]), 0)
    own = owner_mask[:, 0] if shared else valid
    leak = np.where(own[:, None, None], 0, weights).sum(-1)
    last = lengths - 1 if queries == longest and not shared else None
    if last is not None:  # the last queries that are the request's own
        leak = np.stack([leak[r, :, end - n + 1 : end + 1] for r, end in enumerate(last)])
    return Batch("broadcast", {"leak": leak[None]})


def broadcast_shapes(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """For which batch sizes the wrong axis is a shape error; lengths differ, so a mask laid wrongly is another mask."""
    s = protocol.settings["shapes"]
    batch, keys = row["batch"], s["keys"]
    valid = np.arange(keys) < (keys - np.arange(batch))[:, None]
    owner_mask = np.repeat(masks.block_diagonal(np.arange(keys) % batch, batch), s["queries"], axis=1)
    shape = (batch, s["heads"], s["queries"], keys)
    right = wrong_broadcast.lay("right_owner" if "owner" in row["variant"] else "right_padded", valid, owner_mask, shape)
    try:
        laid = wrong_broadcast.lay(row["variant"], valid, owner_mask, shape)
    except ValueError:
        return Batch("broadcast_shapes", decisions={"fits": [False], "as_meant": [False]})
    return Batch("broadcast_shapes", decisions={"fits": [True], "as_meant": [bool(np.array_equal(laid, right))]})


def packed_documents(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """BR-06: outputs of the second document in the packed row, and by itself."""
    s = protocol.settings
    width, dim = s["width"], s["packed_head_dim"]
    owner = masks.owners(s["packed_lengths"])
    rng = np.random.default_rng([row["seed"], dim])
    x, projections = rng.normal(size=(len(owner), width)), rng.normal(0, width**-0.5, (3, s["heads"], width, dim))
    table = rng.normal(size=(s["packed_positions"], width))
    rotary, second = row["positions"] == "rotary", owner == 1
    mask = (packed.causal_only if row["packing"] == "causal" else packed.block_diagonal)(owner)
    shared = packed.run(x, projections, table, packed.numbered(owner, row["numbering"]), rotary, mask)[:, second]
    single = masks.owners([int(second.sum())])
    alone = packed.run(x[second], projections, table, packed.numbered(single, "reset"), rotary, packed.block_diagonal(single))
    forbidden = int((mask[0] & (owner[:, None] != owner)).sum())
    return Batch("packed", {"shared": shared[None], "by_itself": alone[None]}, counts={"forbidden_pairs": [forbidden]})


def variance(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """Shares of the variance of the last query's row: which id stands where, which position where, and what else the cache holds."""
    model = models[protocol.seeds.index(row["seed"])]
    turn = (np.arange(7)[:, None] + np.arange(7)) % 7
    ids, positions = np.broadcast_arrays(turn[:, None], turn[None])
    q, k, _ = model.project(ids, positions, row["token_scale"])  # [arrangement, positions, head, 7, d]
    other = model.project(np.full(7, passphrase.SEP), np.arange(7), row["token_scale"])[1]
    own = logits(q[..., -1:, :], k)
    cross = logits(q[..., -1:, :], np.broadcast_to(other, k.shape))
    scores = np.concatenate([cross, own], -1)
    hidden = np.concatenate([np.zeros(7, bool), np.ones(7, bool)])
    states = [
        softmax(own, np.ones((1, 7), bool)),
        softmax(scores, hidden[None])[..., 7:],
        softmax(scores, np.ones((1, 14), bool))[..., 7:],
    ]
    rows = np.stack(states, 2)[..., 0, :]  # [arrangement, positions, state, head, key]
    centred = rows - rows.mean((0, 1, 2))
    total = (centred**2).sum()
    effects = [centred.mean(others) for others in ((1, 2), (0, 2), (0, 1))]
    token, position, state = (float((effect**2).sum() * rows.size / effect.size / total) for effect in effects)
    near = float(rows[:, :, 0, :, 5:].sum(-1).mean())
    own_metrics = {
        "token_share": [token],
        "position_share": [position],
        "state_share": [state],
        "mixed_share": [1 - token - position - state],
        "neighbour_weight": [near],
    }
    return Batch("variance", own=own_metrics)


def domains(protocol: Protocol, models: list[Heads], row: dict[str, Any]) -> Batch:
    """Turns of two dialogues, documents with a common question, and images between texts; each under a right and a wrong mask."""
    s = protocol.settings
    model, size = models[protocol.seeds.index(row["seed"])], s["domain_slots"]
    owner = np.array(s[f"{row['domain']}_owner"])
    slots = np.arange(size)
    q, k, _ = model.project(slots % 7, slots)
    triangle = slots <= slots[:, None]
    same = owner[:, None] == owner
    if row["domain"] == "modal":
        image = np.array(s["modal_image"]) == 1
        pictures = image[:, None] & image
        permitted, wrong = (triangle | pictures) & same, (triangle & same) | pictures
    else:
        permitted = triangle & (same | (row["domain"] == "rag") & (owner == 2)[:, None])
        wrong = triangle
    weights = softmax(logits(q, k), permitted if row["mask"] == "right" else wrong)
    arrays = {
        "weights": weights,
        "relation_leak": np.where(permitted, 0, weights).sum(-1),
        "leak": np.where(same, 0, weights).sum(-1),
        "entropy": entropy(weights),
        "focus": np.where(same, weights, 0).sum(-1),
    }
    return Batch("domains", {name: a[None] for name, a in arrays.items()})


ROWS: dict[str, Callable[[Protocol, list[Heads], dict[str, Any]], Batch]] = {
    "many": many,
    "padded": padded,
    "sums": sums,
    "paged": paged,
    "key_axis": key_axis,
    "broadcast": broadcast,
    "broadcast_shapes": broadcast_shapes,
    "packed": packed_documents,
    "variance": variance,
    "domains": domains,
}
