"""01: masks as rules on single cells, attention one query at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from audit.masked import Row, entropy, mass, pour, scores, weigh
from audit.study import Array, Derived, Study

NEAR = (1e-12, "sums of at most 64 products of numbers below 10 in binary64, a softmax of at most 178 terms: below 1e-13 in any order")
SINGLE = (1e-4, "float32: a sum of 64 products with sum |qk|/8 < 12 errs by 63 * 2**-24 * 12 < 5e-5, weights by half of that, |v| < 5")
BOUNDS = {
    **{f"inputs/{name}": NEAR for name in "qkv"},
    **{f"published/{n}": NEAR for n in ("weights", "output", "alone", "changed", "leak", "entropy", "focus", "rest", "row_sum")},
    **{f"published32/{n}": SINGLE for n in ("weights", "output", "alone", "leak")},
    **{f"domains/{n}": NEAR for n in ("weights", "relation_leak", "leak", "entropy", "focus")},
    "passphrase/first": NEAR,
    "passphrase/second": NEAR,
    "padded/token_leak": NEAR,
    "padded/padding_leak": NEAR,
    "sums/coefficients": NEAR,
    "sums/leak": NEAR,
    "paged/leak": NEAR,
    "broadcast/leak": NEAR,
    "packed/shared": NEAR,
    "packed/by_itself": NEAR,
}
GIVEN: dict[str, str] = {}


class Model:
    """The random heads of a seed, drawn again: an embedding of ten ids, then the three projections."""

    def __init__(self, seed: int, heads: int, width: int, dim: int) -> None:
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0, 1, (10, width))
        self.maps = [rng.normal(0, width**-0.5, (heads, width, dim)) for _ in range(3)]

    def qkv(self, tokens: list[int], positions: list[int], scale: float = 1.0) -> list[Array]:
        """q, k, v, each [head, token, dim], of embeddings plus sinusoidal positions."""
        x = scale * self.table[tokens] + np.array([code(position, self.table.shape[1]) for position in positions])
        return [np.einsum("tw,hwd->htd", x, part) for part in self.maps]


@cache
def code(position: int, width: int) -> list[float]:
    """The sinusoidal position of a token."""
    angles = [position / 10000.0 ** (i / width) for i in range(0, width, 2)]
    return [wave(angle) for angle in angles for wave in (math.sin, math.cos)]


@cache
def model(seed: int, heads: int, width: int, dim: int) -> Model:
    return Model(seed, heads, width, dim)


def of(study: Study, seed: int) -> Model:
    s = study.settings
    return model(seed, s["heads"], s["width"], s["head_dim"])


Rule = Callable[[int, int, int, int], int]
# (request, head, place of the query in its request, slot of the key) -> how often the key counts; six slots, three to a request.
RULES: dict[str, Rule] = {
    "correct": lambda r, h, i, j: int(j // 3 == r and j <= 3 * r + i),
    "no_mask": lambda r, h, i, j: 1,
    "causal_only": lambda r, h, i, j: int(j <= 3 * r + i),
    "padding_as_isolation": lambda r, h, i, j: int(j % 3 <= i),
    "sum_as_keep": lambda r, h, i, j: int(j <= 3 * r + i or j // 3 == r),
    "axes_swapped": lambda r, h, i, j: int(j // 3 == r and j >= 3 * r + i),
    "batch_over_heads": lambda r, h, i, j: int(j // 3 == h and j <= 3 * h + i),
    "boundary_off_by_one": lambda r, h, i, j: int(3 * r - 1 <= j <= min(3 * r + 3, 3 * r + i)),
}


def coefficients(condition: str, r: int, h: int, i: int, row: Row) -> Row:
    """What reaches the values in one query's row."""
    if condition == "sum_as_factor":
        return [w * ((j <= 3 * r + i) + (j // 3 == r)) for j, w in enumerate(weigh(row, [True] * 6))]
    return weigh(row, [RULES[condition](r, h, i, j) > 0 for j in range(6)])


def grid(function: Callable[[int, int, int], Any], *sizes: int) -> Array:
    """An array over three axes from a function of the places."""
    a, b, c = sizes
    return np.array([[[function(x, y, z) for z in range(c)] for y in range(b)] for x in range(a)])


def condition_arrays(name: str, q: Array, k: Array, v: Array, other: list[Array]) -> dict[str, Array]:
    """All arrays of one condition; q, k, v [request, head, token, dim]."""
    slots_k, slots_v = (np.concatenate([x[0], x[1]], axis=1) for x in (k, v))

    def weights(r: int, h: int, i: int) -> Row:
        return coefficients(name, r, h, i, scores(q[r, h, i], slots_k[h]))

    def changed(r: int, h: int, i: int) -> Row:
        keys, values = ([*own[0, h], *own[1, h]] for own in (swapped(k, other[0], r), swapped(v, other[1], r)))
        return pour(coefficients(name, r, h, i, scores(q[r, h, i], keys)), values)

    def alone(r: int, h: int, i: int) -> Row:
        return pour(weigh(scores(q[r, h, i], k[r, h]), [j <= i for j in range(3)]), v[r, h])

    w = grid(weights, 2, 2, 3)
    out = {
        "weights": w,
        "output": grid(lambda r, h, i: pour(w[r, h, i].tolist(), slots_v[h]), 2, 2, 3),
        "alone": grid(alone, 2, 2, 3),
        "leak": grid(lambda r, h, i: mass(w[r, h, i].tolist(), [j // 3 != r for j in range(6)]), 2, 2, 3),
    }
    if other:
        out["changed"] = grid(changed, 2, 2, 3)
        out["entropy"] = grid(lambda r, h, i: entropy(w[r, h, i].tolist()), 2, 2, 3)
        out["focus"] = grid(lambda r, h, i: mass(w[r, h, i].tolist(), [j // 3 == r for j in range(6)]), 2, 2, 3)
        out["row_sum"] = grid(lambda r, h, i: math.fsum(w[r, h, i]), 2, 2, 3)
        out["rest"] = 1 - out["leak"]
    return out


def softmax(rows: Array, seen: Array) -> Array:
    """Weights of logits [..., key] over the seen keys, 0 elsewhere; all 0 if none is seen."""
    hidden = np.where(seen, rows, -np.inf)
    top = hidden.max(axis=-1, keepdims=True)
    powers = np.exp(hidden - np.where(np.isneginf(top), 0.0, top))
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1.0, total))


def swapped(own: Array, other: Array, request: int) -> Array:
    """Rows with those of every other request replaced."""
    return np.array([own[r] if r == request else other[r] for r in range(2)])


def two_requests(study: Study) -> Iterator[Derived]:
    """The blocks inputs, published and published32."""
    wanted = []
    for seed in study.seeds:
        parts = [of(study, seed).qkv([3 * r, 3 * r + 1, 3 * r + 2], [0, 1, 2]) for r in range(2)]
        wanted.append([np.array([part[i] for part in parts]) for i in range(3)])
    yield Derived("inputs", arrays={name: np.array([w[i] for w in wanted]) for i, name in enumerate("qkv")})
    stored = [study.read("inputs", name) for name in "qkv"]
    for block in ("published", "published32"):
        for row in study.chosen(block):
            factors = study.rows(block)[row]
            place = study.seeds.index(factors["seed"])
            q, k, v = (part[place] for part in stored)
            if block == "published":
                rng = np.random.default_rng([factors["seed"], study.settings["foreign_stream"]])
                other = [rng.normal(size=k.shape), rng.normal(size=v.shape)]
            else:
                q, k, v = (part.astype(np.float32).astype(np.float64) for part in (q, k, v))
                other = []
            arrays = condition_arrays(factors["condition"], q, k, v, other)
            yield Derived(block, [row], {name: a[None] for name, a in arrays.items()})


def passphrase(study: Study) -> Iterator[Derived]:
    """The nine tokens with their ends, and correlations across seeds."""
    tokens = [7, 0, 1, 2, 3, 4, 5, 6, 8]
    rows = []
    for seed in study.seeds:
        q, k, _ = of(study, seed).qkv(tokens, list(range(9)))
        rows.append([[weigh(scores(q[h, i], k[h]), [j <= i for j in range(9)]) for i in range(9)] for h in range(len(q))])
    yield Derived("passphrase", arrays={"first": np.array(rows), "second": np.array(rows)})
    means, least = [], []
    for factors in study.rows("across"):
        a, b = (rows[int(place)] for place in factors["pair"].split("-"))
        found = [pearson(a[h][i][: i + 1], b[h][i][: i + 1]) for h in range(len(a)) for i in range(2, 9)]
        means.append(math.fsum(found) / len(found))
        least.append(min(found))
    yield Derived("across", own={"correlation_mean": means, "correlation_min": least})


def pearson(a: Row, b: Row) -> float:
    """Correlation of two rows."""
    x, y = ([value - math.fsum(row) / len(row) for value in row] for row in (a, b))
    product = math.fsum(p * q for p, q in zip(x, y, strict=True))
    return product / math.sqrt(math.fsum(p * p for p in x) * math.fsum(p * p for p in y))


def dense(q: Array, k: Array, v: Array, hidden: Array) -> Array:
    """Attention by matrix products and an additive mask of minus infinity, [head, query, dim]."""
    s = np.matmul(q, k.transpose(0, 2, 1)) / math.sqrt(q.shape[-1]) + np.where(hidden, -np.inf, 0.0)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(np.matmul(p, v) / p.sum(axis=-1, keepdims=True))


def many(study: Study, factors: dict[str, Any]) -> Derived:
    """2 to 16 requests; here with dense products, where hidden keys are multiplied by an exact 0."""
    s = study.settings
    owner: list[int] = []
    position: list[int] = []
    for r in range(factors["requests"]):
        n = s["many_lengths"][r % len(s["many_lengths"])]
        owner += [r] * n
        position += range(n)
    total = len(owner)
    q, k, v = of(study, factors["seed"]).qkv([j % 7 for j in range(total)], position)
    cells = range(total)
    right = np.array([[owner[i] != owner[j] or j > i for j in cells] for i in cells])
    faulty = np.array([[j > i for j in cells] for i in cells])
    rng = np.random.default_rng([factors["seed"], s["foreign_stream"]])
    other_k, other_v = rng.normal(size=k.shape), rng.normal(size=v.shape)
    out, faulty_out = dense(q, k, v, right), dense(q, k, v, faulty)
    errors, moved, faulty_moved = [], 0, []
    for r in range(factors["requests"]):
        mine = [j for j in cells if owner[j] == r]
        new_k, new_v = other_k.copy(), other_v.copy()
        new_k[:, mine], new_v[:, mine] = k[:, mine], v[:, mine]
        moved += int((dense(q, new_k, new_v, right)[:, mine] != out[:, mine]).sum())
        single = dense(q[:, mine], k[:, mine], v[:, mine], right[np.ix_(mine, mine)])
        errors.append(float(np.abs(single - out[:, mine]).max()))
        if r:
            faulty_moved.append(float(np.abs(dense(q, new_k, new_v, faulty) - faulty_out)[:, mine].max()))
    foreign = dense(q, k, np.array([np.eye(total)] * len(q)), right) * (np.array(owner)[:, None] != np.array(owner))
    own: dict[str, Sequence[float]] = {
        "leak_most": [float(foreign.sum(axis=-1).max())],
        "error_most": [max(errors)],
        "faulty_moved_least": [min(faulty_moved)],
    }
    return Derived("many", None, counts={"moved_elements": [moved]}, own=own)


def padded(study: Study, factors: dict[str, Any]) -> Derived:
    """A padding mask as isolation mask."""
    size = study.settings["padded_length"]
    lengths = [size, size] if factors["lengths"] == "equal" else [3, size]
    made = [
        of(study, factors["seed"]).qkv([(i + 3 * r) % 7 if i < lengths[r] else 9 for i in range(size)], list(range(size))) for r in range(2)
    ]
    keys = [np.concatenate([made[0][1][h], made[1][1][h]]) for h in range(2)]

    def seen(r: int, i: int, j: int) -> bool:
        to, place = divmod(j, size)
        if place > i:
            return False
        if factors["extension"] == "tiled":
            return bool(place < lengths[r])
        return bool(place < lengths[to] and (factors["extension"] == "flat" or to == r))

    def leak(r: int, h: int, i: int, of_padding: bool) -> float:
        if i >= lengths[r]:
            return 0.0
        w = weigh(scores(made[r][0][h, i], keys[h]), [seen(r, i, j) for j in range(2 * size)])
        return mass(w, [j // size != r and (j % size >= lengths[j // size]) == of_padding for j in range(2 * size)])

    parts = {
        "token_leak": grid(lambda r, h, i: leak(r, h, i, False), 2, 2, size)[None],
        "padding_leak": grid(lambda r, h, i: leak(r, h, i, True), 2, 2, size)[None],
    }
    return Derived("padded", None, parts)


def summed(polarity: str, use: str, row: Row, first: list[bool], second: list[bool]) -> Row:
    """Coefficients of one query when the two masks are added; first and second: is the key visible?"""
    ones = [int(a == (polarity == "keep")) + int(b == (polarity == "keep")) for a, b in zip(first, second, strict=True)]
    if use == "factor":
        return [w * n for w, n in zip(weigh(row, [True] * len(row)), ones, strict=True)]
    if use == "one_minus":
        return [w * (1 - n) for w, n in zip(weigh(row, [True] * len(row)), ones, strict=True)]
    if use == "added":
        return weigh([x + n for x, n in zip(row, ones, strict=True)], [True] * len(row))
    if use == "inverted":
        return weigh(row, [n == 0 for n in ones])
    if use == "bitwise_not":
        return weigh(row, [-1 - n != 0 for n in ones])
    flags = [n == 1 if use == "equals_one" else n > 0 for n in ones]
    return weigh(row, flags if polarity == "keep" else [not flag for flag in flags])


def sums(study: Study, factors: dict[str, Any]) -> Derived:
    """Every reading of an added mask."""
    made = [of(study, factors["seed"]).qkv([3 * r, 3 * r + 1, 3 * r + 2], [0, 1, 2]) for r in range(2)]
    keys, values = ([np.concatenate([made[0][n][h], made[1][n][h]]) for h in range(2)] for n in (1, 2))
    counts = dict.fromkeys(("newly_visible", "doubly_visible", "newly_hidden", "empty_rows"), 0)
    errors = []

    def one(r: int, h: int, i: int) -> Row:
        first, second = [j <= 3 * r + i for j in range(6)], [j // 3 == r for j in range(6)]
        row = scores(made[r][0][h, i], keys[h])
        out = summed(factors["polarity"], factors["use"], row, first, second)
        right = weigh(row, [a and b for a, b in zip(first, second, strict=True)])
        for w, a, b in zip(out, first, second, strict=True):
            counts["newly_visible"] += w != 0 and not (a and b)
            counts["doubly_visible"] += w != 0 and not a and not b
            counts["newly_hidden"] += w == 0 and a and b
        counts["empty_rows"] += not any(out)
        errors.append(max(abs(x - y) for x, y in zip(pour(out, values[h]), pour(right, values[h]), strict=True)))
        return out

    table = grid(one, 2, 2, 3)
    leak = grid(lambda r, h, i: math.fsum(abs(w) for j, w in enumerate(table[r, h, i]) if j // 3 != r), 2, 2, 3)
    made_counts: dict[str, Sequence[int]] = {name: [int(value)] for name, value in counts.items()}
    return Derived("sums", None, {"coefficients": table[None], "leak": leak[None]}, counts=made_counts, own={"error": [max(errors)]})


def paged(study: Study, factors: dict[str, Any]) -> Derived:
    """Right page tables; a right or wrong mask over what they gather."""
    s = study.settings
    size, tables = s["page_size"], s["page_tables"]
    made = [of(study, factors["seed"]).qkv([3 * r, 3 * r + 1, 3 * r + 2], [0, 1, 2]) for r in range(2)]
    pool = np.random.default_rng([factors["seed"], s["stale_stream"]]).normal(size=(s["pages"] * size, s["heads"], s["head_dim"]))
    for r in range(2):
        for i in range(3):
            for h in range(s["heads"]):
                pool[tables[r][i // size] * size + i % size, h] = made[r][1][h, i]

    def leak(r: int, h: int, i: int) -> float:
        keys, mine, seen = [], [], []
        for to in range(2) if factors["reach"] == "batch" else (r,):
            for place in range(len(tables[to]) * size):
                keys.append(pool[tables[to][place // size] * size + place % size, h])
                mine.append(to == r and place < 3)
                rightly = place <= i and place < 3
                if factors["mask"] == "right":
                    seen.append(rightly and to == r)
                else:
                    seen.append(rightly if factors["reach"] == "batch" else True)
        return mass(weigh(scores(made[r][0][h, i], keys), seen), [not flag for flag in mine])

    return Derived("paged", None, {"leak": grid(leak, 2, 2, 3)[None]})


def key_axis(study: Study, factors: dict[str, Any]) -> Derived:
    """Masks with three lengths of the key axis: an axis fits if it has the cache's length, or length 1."""
    lengths = {"equal": [3, 3], "unequal": [3, 5], "short": [1, 5], "single": [5]}[factors["cache"]]
    total = sum(lengths)
    owner = [r for r, n in enumerate(lengths) for _ in range(n)]
    start = [sum(lengths[:r]) for r in range(len(lengths))]
    q, k, _ = of(study, factors["seed"]).qkv([j % 7 for j in range(total)], [j - start[owner[j]] for j in range(total)])
    accepted, as_meant, worst = 0, 0, 0.0
    for r, n in enumerate(lengths):
        keys = {"own": n, "padded": max(lengths), "total": total}[factors["built"]]
        if keys not in (1, total):
            continue
        accepted += 1
        meant = True
        for i in range(n):
            right = [owner[j] == r and j <= start[r] + i for j in range(total)]
            seen = right if factors["built"] == "total" else [(j if keys > 1 else 0) <= i for j in range(total)]
            meant &= seen == right
            for h in range(len(q)):
                worst = max(worst, mass(weigh(scores(q[h, start[r] + i], k[h]), seen), [o != r for o in owner]))
        as_meant += meant
    counts: dict[str, Sequence[int]] = {"asked": [len(lengths)], "accepted": [accepted], "as_meant_masks": [as_meant]}
    return Derived("key_axis", None, counts=counts, own={"leak_most": [worst]})


def broadcast(study: Study, factors: dict[str, Any]) -> Derived:
    """A mask along a wrong axis, cell by cell."""
    s = study.settings
    n, short, variant = s["broadcast_batch"], s["broadcast_length"], factors["variant"]
    lengths = [short, short + factors["difference"] // 2, short + factors["difference"]]
    longest, total = max(lengths), sum(lengths)
    shared = variant in ("right_owner", "owner_as_heads")
    rng = np.random.default_rng([factors["seed"], factors["difference"]])
    q = rng.normal(size=(n, n, longest, s["head_dim"]))
    k = rng.normal(size=(1 if shared else n, n, total, s["head_dim"]))
    owner = [r for r, m in enumerate(lengths) for _ in range(m)]
    keys = total if shared else longest

    to, head, place, key = np.ogrid[:n, :n, :n, :keys]
    mine, by_owner = np.array(lengths)[to], np.array(owner)
    if shared:
        seen, foreign = by_owner[key] == (to if variant == "right_owner" else head), by_owner[key] != to
    else:
        limit = {"right_padded": to, "padded_as_heads": head, "padded_as_queries": place}.get(variant)
        seen, foreign = key < (keys if limit is None else np.array(lengths)[limit]), key >= mine
    at = mine - n + place if variant == "padded_on_query_axis" else place
    row = np.einsum("rhid,rhjd->rhij", q[to, head, at][..., 0, :], np.broadcast_to(k, (n, *k.shape[1:]))[:, :, :keys])
    weights = softmax(row / math.sqrt(s["head_dim"]), seen)
    return Derived("broadcast", None, {"leak": (weights * foreign).sum(axis=-1)[None]})


def shapes(study: Study, factors: dict[str, Any]) -> Derived:
    """Which wrong axes are a shape error: an axis fits if the lengths are equal or its own is 1."""
    s, batch = study.settings["shapes"], factors["batch"]
    heads, queries, keys = s["heads"], s["queries"], s["keys"]
    size = {
        "right_padded": (batch, batch),
        "padded_as_heads": (batch, heads),
        "padded_as_queries": (batch, queries),
        "padded_on_query_axis": (keys, queries),
        "right_owner": (batch, batch),
        "owner_as_heads": (batch, heads),
    }[factors["variant"]]
    fits = size[0] in (1, size[1])
    # Laid on a wrong axis it is the mask meant only where the batch has one request: all rows of the masks differ.
    meant = fits and (factors["variant"].startswith("right") or batch == 1)
    return Derived("broadcast_shapes", None, decisions={"fits": [fits], "as_meant": [meant]})


def packed(study: Study, factors: dict[str, Any]) -> Derived:
    """BR-06, rotary positions as complex turns."""
    s = study.settings
    width, dim, lengths = s["width"], s["packed_head_dim"], s["packed_lengths"]
    owner = [r for r, n in enumerate(lengths) for _ in range(n)]
    rng = np.random.default_rng([factors["seed"], dim])
    x, maps = rng.normal(size=(len(owner), width)), rng.normal(0, width**-0.5, (3, s["heads"], width, dim))
    table = rng.normal(size=(s["packed_positions"], width))

    def outputs(slots: list[int], positions: list[int], block: bool) -> list[list[Row]]:
        states = [x[j] if factors["positions"] == "rotary" else x[j] + table[p] for j, p in zip(slots, positions, strict=True)]
        q, k, v = ([[state @ maps[n, h] for state in states] for h in range(s["heads"])] for n in range(3))
        if factors["positions"] == "rotary":
            q, k = ([[turned(row, p) for row, p in zip(head, positions, strict=True)] for head in part] for part in (q, k))
        out = []
        for h in range(s["heads"]):
            rows = []
            for i, slot in enumerate(slots):
                seen = [j <= i and (not block or owner[slots[j]] == owner[slot]) for j in range(len(slots))]
                rows.append(pour(weigh(scores(q[h][i], k[h]), seen), v[h]))
            out.append(rows)
        return out

    first = lengths[0]
    contiguous = factors["numbering"] == "contiguous"
    positions = [j if contiguous or j < first else j - first for j in range(len(owner))]
    row = outputs(list(range(len(owner))), positions, factors["packing"] == "block")
    single = outputs(list(range(first, len(owner))), list(range(lengths[1])), True)
    forbidden = 0 if factors["packing"] == "block" else lengths[0] * lengths[1]
    arrays = {"shared": np.array([head[first:] for head in row])[None], "by_itself": np.array(single)[None]}
    return Derived("packed", None, arrays, counts={"forbidden_pairs": [forbidden]})


def turned(row: Array, position: int) -> Array:
    """Rotary turn of pairs (i, i + half)."""
    half = len(row) // 2
    pairs = [complex(row[i], row[i + half]) * np.exp(1j * position / 10000.0 ** (i / half)) for i in range(half)]
    return np.array([p.real for p in pairs] + [p.imag for p in pairs])


def variance(study: Study, factors: dict[str, Any]) -> Derived:
    """Sums of squares between group means, group by group."""
    made, scale = of(study, factors["seed"]), factors["token_scale"]
    other = made.qkv([8] * 7, list(range(7)), scale)[1]
    # token and position of each place of the 49 windows, and q, k of all 49 pairs of them
    token, position = (np.array([[(start[axis] + i) % 7 for i in range(7)] for start in np.ndindex(7, 7)]) for axis in range(2))
    q, k, _ = made.qkv([j // 7 for j in range(49)], [j % 7 for j in range(49)], scale)
    pair = 7 * token + position  # [window, place]
    query, root = q[:, pair[:, 6]], math.sqrt(q.shape[-1])
    mine, cross = np.einsum("hwd,hwjd->hwj", query, k[:, pair]) / root, np.einsum("hwd,hjd->hwj", query, other) / root
    both, everything = np.concatenate([cross, mine], axis=-1), np.ones(14, bool)
    states = softmax(mine, everything[:7]), softmax(both, np.arange(14) >= 7)[..., 7:], softmax(both, everything)[..., 7:]
    data = np.stack(states).reshape(3, len(q), 7, 7, 7).transpose(2, 3, 0, 1, 4)  # [token, position, state, head, key]
    grand = data.mean(axis=(0, 1, 2))
    shares = []
    for axis in range(3):
        means = data.mean(axis=tuple({0, 1, 2} - {axis}))
        shares.append(float(((means - grand) ** 2).sum() / len(means) / ((data - grand) ** 2).mean(axis=(0, 1, 2)).sum()))
    values = [*shares, 1 - math.fsum(shares), float(data[:, :, 0, :, 5:].sum(axis=-1).mean())]
    names = ("token_share", "position_share", "state_share", "mixed_share", "neighbour_weight")
    return Derived("variance", None, own={name: [value] for name, value in zip(names, values, strict=True)})


def domains(study: Study, factors: dict[str, Any]) -> Derived:
    """Turns, documents with a question, and images between texts."""
    s, domain, size = study.settings, factors["domain"], study.settings["domain_slots"]
    owner, image = s[f"{domain}_owner"], s["modal_image"]
    q, k, _ = of(study, factors["seed"]).qkv([j % 7 for j in range(size)], list(range(size)))

    def permitted(i: int, j: int) -> bool:
        if domain == "modal":
            return owner[i] == owner[j] and (j <= i or bool(image[i] and image[j]))
        return j <= i and (owner[i] == owner[j] or (domain == "rag" and owner[i] == 2))

    def wrong(i: int, j: int) -> bool:
        return bool(image[i] and image[j]) or (owner[i] == owner[j] and j <= i) if domain == "modal" else j <= i

    rule = permitted if factors["mask"] == "right" else wrong
    cells = range(size)
    table = [[weigh(scores(q[h, i], k[h]), [rule(i, j) for j in cells]) for i in cells] for h in range(len(q))]

    def masses(flag: Callable[[int, int], bool]) -> Array:
        return np.array([[mass(row, [flag(i, j) for j in cells]) for i, row in enumerate(head)] for head in table])[None]

    arrays = {
        "weights": np.array(table)[None],
        "relation_leak": masses(lambda i, j: not permitted(i, j)),
        "leak": masses(lambda i, j: owner[i] != owner[j]),
        "focus": masses(lambda i, j: owner[i] == owner[j]),
        "entropy": np.array([[entropy(row) for row in head] for head in table])[None],
    }
    return Derived("domains", None, arrays)


ROWS: dict[str, Callable[[Study, dict[str, Any]], Derived]] = {
    "many": many,
    "padded": padded,
    "sums": sums,
    "paged": paged,
    "key_axis": key_axis,
    "broadcast": broadcast,
    "broadcast_shapes": shapes,
    "packed": packed,
    "variance": variance,
    "domains": domains,
}


def derive(study: Study) -> Iterator[Derived]:
    """Everything, row by row."""
    yield from two_requests(study)
    yield from passphrase(study)
    for name, function in ROWS.items():
        for row in study.chosen(name):
            made = function(study, study.rows(name)[row])
            yield Derived(name, [row], made.arrays, made.decisions, made.counts, made.own)
