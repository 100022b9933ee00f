"""13: matches found by comparing ids one at a time, digests made again, states by exact sums, races by enumeration over copies."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit import teaching
from audit.derive.e07 import agreeing
from audit.study import Derived, Study

STATES = {
    "classes": ("fresh", "reuse"),
    "mechanism": ("fresh", "reuse", "later_fresh", "later"),
    "invisible": ("abnormal_fresh", "abnormal", "normal_fresh", "normal"),
    "cascade": ("fresh", "reuse"),
    "updates": ("fresh", "stale"),
    "hit_path": ("fresh", "suffix_only", "behind_cache"),
    "resets": ("fresh", "behind_zeros", "zero_weights"),
    "handed_out": ("fresh", "shared_prefix", "copied_prefix"),
    "conversations": ("fresh", "reuse"),
    "fuzzy": ("fresh", "reuse"),
    "two_tokenizers": ("fresh", "reuse", "unrelated"),
}
BOUNDS = {f"{block}/{name}": teaching.BOUND for block, names in STATES.items() for name in names} | {"edits/change": teaching.BOUND}
TRAINED = "trained by the tokenizers library; every id and merge that a text uses is checked by encoding it again with these tables"
MEASURED = "measured on one machine"
GIVEN = {f"vocabulary/{table}_{name}": TRAINED for table in ("bytes", "merges") for name in "ab"} | {
    "layout/measured_bytes": MEASURED,
    "layout/lookup": MEASURED,
}
Ids = list[int]
Row = dict[str, Any]
Networks = dict[int, teaching.Network]


def derive(study: Study) -> Iterator[Derived]:
    networks = {seed: teaching.Network.of_seed(seed) for seed in study.seeds}
    texts = Texts(study)
    simple: dict[str, Callable[[Study, Networks, Row], Row]] = {
        "classes": classes, "mechanism": mechanism, "updates": updates, "hit_path": hit_path, "crops": crops, "resets": resets,
        "rings": rings, "stale_entries": stale_entries, "handed_out": handed_out, "channel": channel,
        "races": races, "dynamic": dynamic, "fuzzy": fuzzy, "geometry": geometry, "domains": domains, "images": images,
        "digests": digests, "collisions": collisions, "extreme": extreme,
    }  # fmt: skip
    for block, function in simple.items():
        yield collect(study, block, partial(function, study, networks))
    yield edits(study, networks)
    yield collect(study, "invisible", partial(invisible, study, texts))
    yield collect(study, "two_tokenizers", partial(two_tokenizers, study, texts))
    for block, sequence in (("cascade", cascade), ("conversations", conversations), ("structures", structures)):
        yield collect(study, block, partial(sequence, study, networks, {}))
    yield collect(study, "chat", partial(chat, study, texts, {}))


def collect(study: Study, block: str, function: Callable[[Row], Row]) -> Derived:
    """One dictionary a row, its keys spread over arrays, decisions, counts and own measures as the protocol names them."""
    spec, chosen, rows = study.protocol["blocks"][block], study.chosen(block), study.rows(block)
    found = [function(rows[number]) for number in chosen]
    types = {name: np.dtype(array["dtype"]) for name, array in spec.get("arrays", {}).items()}
    own = [name for name, metric in spec.get("metrics", {}).items() if metric["op"] == "own"]
    return Derived(
        block, chosen,
        {name: np.array([one[name] for one in found], kind) for name, kind in types.items()},
        {name: [bool(one[name]) for one in found] for name in spec.get("decisions", [])},
        {name: [int(one[name]) for one in found] for name in spec.get("counts", [])},
        {name: [one[name] for one in found] for name in own},
    )  # fmt: skip


def walk(count: int, step: int = 7, start: int = 3) -> Ids:
    """Ids (step i + start) mod 32."""
    return [(step * i + start) % 32 for i in range(count)]


def after(count: int) -> Ids:
    """What follows a prefix."""
    return walk(count, 11, 5)


def next_ids(ids: Iterable[int]) -> Ids:
    """Each id plus one."""
    return [(i + 1) % 32 for i in ids]


def changed(ids: Ids, place: int) -> Ids:
    """One id plus one."""
    return [next_ids([i])[0] if at == place else i for at, i in enumerate(ids)]


def all_agreeing(stored: NDArray[np.int64], ids: NDArray[np.int64]) -> list[int]:
    """How many leading ids each of some sequences (sequence, token) shares with one that is as long or longer."""
    other = stored != ids[: stored.shape[1]]
    counts: list[int] = np.where(other.any(axis=1), other.argmax(axis=1), stored.shape[1]).tolist()
    return counts


def last(network: teaching.Network, ids: Ids, cache: teaching.Cache = teaching.EMPTY) -> teaching.Row:
    """The last state of ids behind a cache."""
    return network.run(ids, cache).states[-1]


def classes(study: Study, networks: Networks, row: Row) -> Row:
    sizes, network, kind = study.settings["classes"], networks[row["seed"]], row["match_class"]
    stored = walk(study.settings["stored_length"])
    cache = network.run(stored).cache
    query, reused, behind = stored, len(stored), cache
    if kind == "prefix":
        reused = sizes["shared"]
        query, behind = stored[:reused] + next_ids(stored[reused:]), cache.crop(reused)
    elif kind == "mismatch":
        query = changed(stored, sizes["wrong"])
    elif kind != "full":
        own = next_ids(stored[: sizes["own"] if kind == "substring" else sizes["moved"]])
        query, reused = own + stored[sizes["own"] :], len(stored) - sizes["own"]
        front = network.run(own).cache
        keys = tuple(a + b[sizes["own"] :] for a, b in zip(front.keys, cache.keys, strict=True))
        values = tuple(a + b[sizes["own"] :] for a, b in zip(front.values, cache.values, strict=True))
        behind = teaching.Cache(keys, values, tuple(range(len(query))), len(query), ("splice", kind))
    whole = query + after(sizes["suffix"])
    return {"fresh": last(network, whole), "reuse": last(network, whole[len(behind) :], behind), "reused_tokens": reused}


def edits(study: Study, networks: Networks) -> Derived:
    chosen, rows = study.chosen("edits"), study.rows("edits")
    stored = study.read("edits", "change").tolist()
    change, least, most = [], [], []
    for number in chosen:
        network, place = networks[rows[number]["seed"]], rows[number]["edited"]
        ids = walk(study.settings["edit_length"])
        pairs = zip(network.run(ids).states, network.run(changed(ids, place)).states, strict=True)
        change.append([teaching.error([a], [b]) for a, b in pairs])
        least.append(min(stored[number][place:]))
        most.append(max(stored[number][:place], default=0.0))
    return Derived("edits", chosen, {"change": np.array(change)}, own={"least_after": least, "most_before": most})


def mechanism(study: Study, networks: Networks, row: Row) -> Row:
    sizes, network = study.settings["mechanism"], networks[row["seed"]]
    normal, suffix = walk(sizes["prefix"]), after(sizes["suffix"])
    n = len(normal)
    abnormal, following = changed(normal, n - 1) + suffix, normal + next_ids(suffix)
    reused = {"n_minus_1": n - 1, "n": n, "with_suffix": n + len(suffix) - 1}[row["reused_entries"]]
    served = network.run(abnormal[reused:], network.run(normal + suffix).cache.crop(reused))
    again = n if row["stored_under"] == "normal_key" else agreeing(abnormal, following)
    return {
        "fresh": last(network, abnormal), "reuse": served.states[-1], "later_fresh": last(network, following),
        "later": last(network, following[again:], served.cache.crop(again)), "later_reused": again,
    }  # fmt: skip


class Texts:
    """Byte-level BPE by the stored tables: in each word the pair of lowest rank is joined, until none is left."""

    def __init__(self, study: Study) -> None:
        self.settings = study.settings
        self.byte = {name: study.read("vocabulary", f"bytes_{name}").tolist() for name in "ab"}
        merges = {name: study.read("vocabulary", f"merges_{name}").tolist() for name in "ab"}
        self.rank = {name: {(a, b): (rank, both) for rank, (a, b, both) in enumerate(table)} for name, table in merges.items()}
        self.words: dict[tuple[bytes, str], Ids] = {}
        self.spelled: dict[str, dict[int, bytes]] = {}
        for name in "ab":
            spelled = {token: bytes([value]) for value, token in enumerate(self.byte[name])}
            for a, b, both in merges[name]:
                spelled[both] = spelled[a] + spelled[b]
            self.spelled[name] = spelled
        spec = study.settings["text_embedding"]
        size = max(map(len, self.spelled.values())) + len(study.settings["roles"])
        self.networks = {
            seed: teaching.Network(
                np.random.default_rng([seed, spec["stream"]]).normal(0, spec["scale"], (size, 16)), teaching.draw(seed)[1]
            )
            for seed in study.seeds
        }

    def ids(self, text: str, name: str = "a") -> Ids:
        """A text's ids. A word begins at each space."""
        words: list[str] = [""]
        for letter in text:
            if letter == " ":
                words.append("")
            words[-1] += letter
        return [token for word in words for token in self._word(word.encode(), name)]

    def _word(self, data: bytes, name: str) -> Ids:
        if (data, name) not in self.words:
            self.words[data, name] = self._joined(data, name)
        return self.words[data, name]

    def _joined(self, data: bytes, name: str) -> Ids:
        tokens = [self.byte[name][value] for value in data]
        while True:
            ranked = [self.rank[name][pair] for pair in itertools.pairwise(tokens) if pair in self.rank[name]]
            if not ranked:
                return tokens
            rank, both = min(ranked)
            joined: Ids = []
            at = 0
            while at < len(tokens):
                found = self.rank[name].get((tokens[at], tokens[at + 1])) if at + 1 < len(tokens) else None
                hit = found is not None and found[0] == rank
                joined.append(both if hit else tokens[at])
                at += 2 if hit else 1
            tokens = joined

    def text(self, ids: Ids) -> str:
        """Ids of tokenizer a as text."""
        return b"".join(self.spelled["a"][i] for i in ids).decode()


def abnormal_text(settings: dict[str, Any], variant: str, mark: str) -> str:
    """The system prompt with one character added or replaced."""
    text, word = settings["system"], settings["marks"][mark]
    head, _, rest = text.partition(word)
    if variant == "no_break_space":
        return str(head[:-1] + "\u00a0" + word + rest)
    if variant == "zero_width_joiner":
        return str(head + word[0] + "\u200d" + word[1:] + rest)
    for at, letter in enumerate(word):
        if letter in "ai":
            return str(head + word[:at] + {"a": "\u0430", "i": "\u0456"}[letter] + word[at + 1 :] + rest)
    raise ValueError(f"no letter to replace in {word!r}")


def quarters(length: int) -> list[int]:
    """Four places that a sampled key looks at."""
    return [0, length // 4, length // 2, 3 * length // 4]


def taken(matcher: str, declared: int, entries: list[tuple[Ids, teaching.Cache]], ids: Ids) -> tuple[teaching.Cache | None, int]:
    """The newest fitting entry and its tokens to keep."""
    if matcher == "length_sampled":
        for held, cache in reversed(entries):
            if [held[at] for at in quarters(declared)] == [ids[at] for at in quarters(declared)]:
                return cache, declared
        return None, 0
    shared = [agreeing(held, ids) for held, _ in entries]
    longest = max(shared, default=0)
    if matcher == "whole_hash":
        longest = declared if longest >= declared else 0
    elif matcher == "block_hash":
        longest -= longest % 16
    longest = min(longest, len(ids) - 1)
    fitting = [cache for (_, cache), n in zip(entries, shared, strict=True) if longest and n >= longest]
    return (fitting[-1], longest) if fitting else (None, 0)


def invisible(study: Study, texts: Texts, row: Row) -> Row:
    settings, network = study.settings, texts.networks[row["seed"]]
    first, second, third = settings["questions"]
    declared = len(texts.ids(settings["system"]))
    abnormal = texts.ids(abnormal_text(settings, row["variant"], row["mark"]) + " " + second)
    normal = texts.ids(settings["system"] + " " + third)
    entries: list[tuple[Ids, teaching.Cache]] = []
    results = []
    before = [texts.ids(settings["system"] + " " + first)] if row["arrival"] == "normal_first" else []
    for ids in [*before, abnormal, normal]:
        cache, cut = taken(row["text_matcher"], declared, entries, ids)
        done = network.run(ids[cut:], cache.crop(cut) if cache else teaching.EMPTY)
        entries.append((ids, done.cache))
        results.append((done.states[-1], cut))
    return {
        "abnormal_fresh": last(network, abnormal), "abnormal": results[-2][0],
        "normal_fresh": last(network, normal), "normal": results[-1][0],
        "abnormal_reused": results[-2][1], "normal_reused": results[-1][1], "abnormal_tokens": len(abnormal),
    }  # fmt: skip


def cascade(study: Study, networks: Networks, known: dict[Any, list[Row]], row: Row) -> Row:
    name = row["seed"], row["entry_key"]
    if name not in known:
        sizes, network = study.settings["cascade"], networks[row["seed"]]
        prefix = walk(sizes["prefix"])
        entry: tuple[Ids, teaching.Cache] | None = None
        polluted, turns = 0, []
        known[name] = []
        for generation in study.protocol["factors"]["generation"]:
            turns += [(5 * generation + 3 * j + 1) % 32 for j in range(sizes["turn"])]
            ids = (prefix if generation else changed(prefix, sizes["wrong"])) + turns
            cut = 0
            if entry and row["entry_key"] == "exact":
                cut = agreeing(entry[0], ids)
            elif entry and all(entry[0][at] == ids[at] for at in quarters(len(prefix))):
                cut = len(entry[0])
            done = network.run(ids[cut:], entry[1].crop(cut) if entry and cut else teaching.EMPTY)
            true = network.run(ids)
            pairs = [*zip(done.cache.keys, true.cache.keys, strict=True), *zip(done.cache.values, true.cache.values, strict=True)]
            polluted += max(teaching.error(a, b) for a, b in pairs) > 1e-9
            entry = (ids, done.cache)
            known[name].append({"fresh": true.states[-1], "reuse": done.states[-1], "reused_tokens": cut, "polluted_entries": polluted})
    return known[name][row["generation"]]


def packed(ids: Iterable[int]) -> bytes:
    """Little-endian 32-bit integers."""
    return b"".join(int(i).to_bytes(4, "little") for i in ids)


def short_digest(data: bytes) -> int:
    """The first eight bytes of SHA-256, big-endian."""
    return int(hashlib.sha256(data).hexdigest()[:16], 16)


def digests(study: Study, networks: Networks, row: Row) -> Row:
    spec = study.settings["collisions"]
    ids = np.random.default_rng([row["seed"], spec["stream"]]).integers(0, 32, (spec["prefixes"], spec["length"])).tolist()
    return {"digest": [short_digest(packed(one)) for one in ids], "length_only_wrong": sum(one != ids[0] for one in ids)}


def collisions(study: Study, networks: Networks, row: Row) -> Row:
    """Counted from the stored digests; `digests` shows that they are those of distinct prefixes."""
    spec, bits = study.settings["collisions"], row["bits"]
    stored = study.read("digests", "digest", [study.seeds.index(row["seed"])])[0].tolist()
    ids = np.random.default_rng([row["seed"], spec["stream"]]).integers(0, 32, (spec["prefixes"], spec["length"])).tolist()
    groups: dict[int, list[Ids]] = {}
    for digest, one in zip(stored, ids, strict=True):
        groups.setdefault(digest >> (64 - bits), []).append(one)
    pairs = sum(math.comb(len(group), 2) for group in groups.values())
    expected = math.comb(len(stored), 2) / 2**bits
    return {
        "colliding_pairs": pairs,
        "expected_pairs": expected,
        "within_bound": (pairs - expected) ** 2 <= 16 * expected,
        "wrong_unchecked": sum(len(group) - 1 for group in groups.values()),
        "wrong_checked": sum(one == group[0] for group in groups.values() for one in group[1:]),
    }


def images(study: Study, networks: Networks, row: Row) -> Row:
    n, digits = study.settings["images"], 4 if row["image_key"] == "bits16" else 16
    made = [int(hashlib.sha256(f"image-{i}".encode()).hexdigest()[-digits:], 16) for i in range(n)]
    pairs = [(j, i) for j in range(n) for i in (made.index(made[j]),) if i < j]
    second, first = pairs[0] if pairs else (-1, -1)
    space, apart, half = 16**digits, 1.0, -1
    for count in range(1, n + 1):
        apart *= (space - count + 1) / space
        if apart <= 0.5:
            half = count
            break
    lost = n - space * -math.expm1(n * math.log1p(-1 / space))
    return {
        "image_digest": made, "colliding_images": n - len(set(made)), "first_image": first, "second_image": second, "half_at": half,
        "expected_images": lost,
    }  # fmt: skip


def geometry(study: Study, networks: Networks, row: Row) -> Row:
    pixels = bytes(i % 251 for i in range(3000))
    ones = np.ones(7, "<f4").tobytes()
    described = {
        "shape": ((b"|u1 (30, 100) ", pixels), (b"|u1 (100, 30) ", pixels)),
        "dtype": ((b"<f4 (7,) ", ones), (b"<u4 (7,) ", ones)),
        "same": ((b"|u1 (30, 100) ", pixels), (b"|u1 (30, 100) ", pixels)),
    }
    keys = [short_digest(data if row["hashing"] == "raw" else head + data) for head, data in described[row["pair"]]]
    return {"content_digest": keys, "equal": keys[0] == keys[1]}


def domains(study: Study, networks: Networks, row: Row) -> Row:
    pairs = {
        "adapter_or_salt": (("x", ""), ("", "x")),
        "adapter_and_salt": (("ab", "c"), ("a", "bc")),
        "different": (("x", ""), ("y", "")),
    }
    keys = []
    for adapter, salt in pairs[row["fields"]]:
        tagged = json.dumps([["adapter", "str", adapter], ["salt", "str", salt]])
        keys.append(short_digest((tagged if row["tagging"] == "tagged" else adapter + salt).encode()))
    return {"key_digest": keys, "equal": keys[0] == keys[1]}


def updates(study: Study, networks: Networks, row: Row) -> Row:
    old = networks[row["seed"]]
    model = old
    if row["updated"]:
        embedding, qkv = teaching.draw(row["seed"])
        noise = np.random.default_rng([row["seed"], 24]).normal(0, 1, qkv.shape)
        for layer in range(teaching.LAYERS):
            for projection in range(3):
                qkv[layer, projection] += study.settings["noise"] * np.std(qkv[layer, projection]) * noise[layer, projection]
        model = teaching.Network(embedding, qkv)
    ids = walk(8)
    return {
        "fresh": last(model, ids), "stale": last(model, ids[6:], old.run(ids[:6]).cache),
        "unkeyed_hit": 6, "keyed_hit": 0 if row["updated"] else 6,
    }  # fmt: skip


def hit_path(study: Study, networks: Networks, row: Row) -> Row:
    network, cached = networks[row["seed"]], row["cached"]
    ids = walk(study.settings["hit_path"]["length"])
    alone = network.run(ids[cached:], positions=list(range(cached, len(ids))))
    cache = network.run(ids[:cached]).cache if cached else teaching.EMPTY
    return {"fresh": last(network, ids), "suffix_only": alone.states[-1], "behind_cache": last(network, ids[cached:], cache)}


def crops(study: Study, networks: Networks, row: Row) -> Row:
    argument, tokens = row["argument"], [0, 1, 2]
    relative = tokens[:argument] if argument > 0 else tokens[: 3 + argument]
    return {"relative_kept": len(relative), "kept": min(argument, 3) if argument >= 0 else max(3 + argument, 0)}


def resets(study: Study, networks: Networks, row: Row) -> Row:
    network, new = networks[row["seed"]], after(2)
    nothing = ((0.0,) * 16,) * 3
    zeros = teaching.Cache((nothing,) * 2, (nothing,) * 2, (-3, -2, -1), 0, "zeros")
    embedding, qkv = teaching.draw(row["seed"])
    inputs = [[float(v) for v in embedding[token] + np.array(teaching.place(at))] for at, token in enumerate(new)]
    through = [
        [[math.fsum(x * w for x, w in zip(one, column, strict=True)) for column in qkv[0, p].T.tolist()] for one in inputs] for p in (0, 1)
    ]
    scores = [0.0] * 3 + [math.fsum(a * b for a, b in zip(through[0][-1], key, strict=True)) / 4 for key in through[1]]
    shares = [math.exp(score) for score in scores]
    weights = [share / math.fsum(shares) for share in shares]
    return {"zero_weights": weights[:3], "fresh": last(network, new), "behind_zeros": last(network, new, zeros)}


def rings(study: Study, networks: Networks, row: Row) -> Row:
    window, writes = study.settings["ring_window"], row["writes"]
    rows = [max((t for t in range(writes) if t % window == place), default=-1) for place in range(window)]
    return {"physical": rows, "sliced": rows[:2], "usable": 2 if writes <= window else 0}


def stale_entries(study: Study, networks: Networks, row: Row) -> Row:
    return {"kept_reads": 2, "dropped_reads": -1} if row["moment"] == "after" else {"kept_reads": 1, "dropped_reads": 1}


def handed_out(study: Study, networks: Networks, row: Row) -> Row:
    network, sizes = networks[row["seed"]], study.settings["handed_out"]
    prefix, first, second = walk(sizes["prefix"]), after(sizes["first"]), next_ids(after(sizes["second"]))
    return {
        "fresh": last(network, prefix + second), "copied_prefix": last(network, second, network.run(prefix).cache),
        "shared_prefix": last(network, prefix + first + second),
        "shared_length": len(prefix + first), "copied_length": len(prefix),
    }  # fmt: skip


def channel(study: Study, networks: Networks, row: Row) -> Row:
    spec, block = study.settings["channel"], row["probed_block"]
    rng = np.random.default_rng([row["seed"], spec["stream"]])
    stored, others = rng.integers(0, spec["base"], (2, spec["stored"], spec["secret"])).tolist()
    secret = rng.integers(0, spec["base"], spec["digits"] // block * block).tolist()

    def rows(ids: Ids) -> int:
        shared = 0 if row["salted"] else max(agreeing(one, ids) for one in stored)
        return int(len(ids) - shared // block * block)

    right, wrong = [rows(ids) for ids in stored], [rows(ids) for ids in others]
    wins = sum((w > r) - (w < r) for r in right for w in wrong)
    probes = 0
    for start in range(0, len(secret), block):  # guesses run through the numbers whose lowest digit comes first
        probes += sum(digit * spec["base"] ** place for place, digit in enumerate(secret[start : start + block])) + 1
    found = not row["salted"]
    return {
        "right_rows": right, "wrong_rows": wrong, "auc": 0.5 + wins / (2 * len(right) * len(wrong)), "secret_found": found,
        "probes": probes if found else spec["base"] ** block, "own_rows": 0 if spec["secret"] % block == 0 else spec["secret"] % block,
    }  # fmt: skip


def shared_sets(spec: dict[str, int], seed: int, sharing: str, length: int) -> tuple[list[Ids], Ids, list[Ids], Ids]:
    """Stored sequences in order, what neighbours share, asked sequences, and how much of each is the beginning of a stored one."""
    rng = np.random.default_rng([seed, spec["stream"], length])
    bases = [rng.integers(0, spec["vocabulary"], length // 2).tolist() for _ in range(spec["groups"])]
    tails = [rng.integers(0, spec["vocabulary"], length - length // 2).tolist() for _ in range(spec["stored"])]
    stored = [bases[i % spec["groups"]] + tails[i] for i in range(spec["stored"])]
    asked = []
    for _ in range(spec["asked"]):
        which, cut = int(rng.integers(spec["stored"])), int(rng.integers(1, length))
        more = rng.integers(0, spec["vocabulary"], length + 13).tolist()
        asked.append(stored[which] + more[:13] if sharing == "extend" else stored[which][:cut] + more[: length + 13 - cut])
    order, table = sorted(stored), np.array(stored)
    joins = [agreeing(a, b) for a, b in itertools.pairwise(order)]
    return order, joins, asked, [max(all_agreeing(table, np.array(ids))) for ids in asked]


def structures(study: Study, networks: Networks, known: dict[Any, Any], row: Row) -> Row:
    name = row["seed"], row["sharing"], row["length"]
    if name not in known:
        known.clear()  # rows of one set stand together
        known[name] = shared_sets(study.settings["structures"], *name)
    order, joins, asked, most = known[name]
    length, kind = row["length"], row["index_kind"]
    block = int(kind[6:]) if kind.startswith("block") else 1
    shared = [n // block * block for n in most]
    distinct = len(order[0]) // block + sum(len(ids) // block - n // block for ids, n in zip(order[1:], joins, strict=True))
    computed = 0
    if kind == "whole_hash":
        shared = [length if ids[:length] in order else 0 for ids in asked]
        entries, computed, nbytes = len(order), len(asked), len(order) * (32 + 4 * length)
    elif kind == "radix":
        nodes = {tuple(ids) for ids in order} | {tuple(ids[:n]) for ids, n in zip(order, joins, strict=False)}
        entries = len(nodes - {()})
        nbytes = 24 * entries + 4 * distinct
    elif kind == "trie":
        entries, nbytes = distinct, 28 * distinct
    else:
        entries, nbytes = distinct, distinct * (64 + 4 * block)
        computed = sum(min(n // block + 1, len(ids) // block) for n, ids in zip(shared, asked, strict=True))
    return {
        "asked_tokens": sum(map(len, asked)), "reusable_tokens": sum(shared), "entries": entries, "digests_computed": computed,
        "index_bytes": nbytes,
    }  # fmt: skip


Node = dict[str, Any]  # edge, below {first id: node}, ends
Path = tuple[int, ...]


def races(study: Study, networks: Networks, row: Row) -> Row:
    """Depth first over copies of the whole state: the tree, what each operation remembers, where each stands, the lock."""
    old, branch, new, deep = (1, 2, 3, 4), (1, 2, 7), (1, 2, 8), (1, 2, 3, 9)
    cases: dict[str, tuple[list[tuple[str, Path]], set[Path], list[Path]]] = {
        "insert_insert": ([("insert", new), ("insert", deep)], {old, new, deep}, [old]),
        "insert_evict": ([("insert", new), ("evict", old)], {new}, [old]),
        "split_join": ([("insert", deep), ("evict", branch)], {old, deep}, [old, branch]),
    }
    operations, wanted, begin = cases[row["race"]]
    root: Node = {"edge": (), "below": {}, "ends": False}
    for ids in begin:
        memory: Row = {}
        for step in range(3):
            _step(root, memory, "insert", ids, step)
    wait = 1 if row["locked"] else 0  # arriving at the lock is a step of its own
    result = Counter[str]()

    def go(state: tuple[Node, list[Row], list[int], list[int]]) -> None:
        tree, _, places, lock = state
        if all(place == 3 + wait for place in places):
            found = set(_walk(tree, (), 0))
            result.update(interleavings=1, lost=int(bool(wanted - found)), phantom=int(bool(found - wanted)))
            return
        for actor, (kind, ids) in enumerate(operations):
            if places[actor] == 3 + wait or (wait and places[actor] == 1 and lock):
                continue
            here = copy.deepcopy(state)
            place = here[2][actor]
            here[2][actor] += 1
            if place >= wait:
                if wait and place == 1:
                    here[3].append(actor)
                _step(here[0], here[1][actor], kind, ids, place - wait)
                if wait and place == 3:
                    here[3].clear()
            go(here)

    go((root, [{}, {}], [0, 0], []))
    return {name: result[name] for name in ("interleavings", "lost", "phantom")}


def _walk(node: Node, before: tuple[int, ...], depth: int) -> Iterator[tuple[int, ...]]:
    path = before + node["edge"]
    if depth > 5:
        yield (*path, -1)
        return
    if node["ends"]:
        yield path
    for below in node["below"].values():
        yield from _walk(below, path, depth + 1)


def _step(root: Node, memory: Row, kind: str, ids: tuple[int, ...], step: int) -> None:
    """One step of an operation: find, then write what was found, as each was read."""
    if kind == "insert" and step == 0:
        above, rest = root, ids
        below = above["below"].get(rest[0])
        while below is not None and rest[: len(below["edge"])] == below["edge"]:
            above, rest = below, rest[len(below["edge"]) :]
            below = above["below"].get(rest[0])
        memory.update(above=above, below=below, rest=rest, edge=() if below is None else below["edge"])
        memory["common"] = agreeing(memory["edge"], rest)
    elif kind == "insert" and step == 1 and memory["below"] is not None:
        edge, n = memory["edge"], memory["common"]
        memory["between"] = {"edge": edge[:n], "below": {edge[n]: memory["below"]}, "ends": False}
        memory["below"]["edge"] = edge[n:]
    elif kind == "insert" and step == 2:
        rest, n = memory["rest"], memory["common"]
        leaf = {"edge": rest[n:], "below": {}, "ends": True}
        if "between" in memory:
            memory["above"]["below"][rest[0]] = memory["between"]
            memory["between"]["below"][rest[n]] = leaf
        else:
            memory["above"]["below"][rest[n]] = leaf
    elif kind == "evict" and step == 0:
        above, rest = root, ids
        node = above["below"].get(rest[0])
        while node is not None and len(node["edge"]) < len(rest):
            above, rest = node, rest[len(node["edge"]) :]
            node = above["below"].get(rest[0])
        memory.update(above=above, node=node, first=rest[0])
    elif kind == "evict" and step == 1 and memory["node"] is not None and memory["node"]["edge"]:
        memory["above"]["below"].pop(memory["first"], None)
    elif kind == "evict" and step == 2:
        above = memory["above"]
        if above is not root and not above["ends"] and len(above["below"]) == 1:
            only = next(iter(above["below"].values()))
            above.update(edge=above["edge"] + only["edge"], below=only["below"], ends=only["ends"])


def dynamic(study: Study, networks: Networks, row: Row) -> Row:
    spec, factors = study.settings["dynamic"], study.protocol["factors"]
    rng = np.random.default_rng([row["seed"], spec["stream"]])
    fixed = rng.integers(0, spec["vocabulary"], max(factors["fixed_tokens"])).tolist()[: row["fixed_tokens"]]
    moving = rng.integers(0, spec["vocabulary"], (spec["requests"], max(factors["dynamic_tokens"]))).tolist()
    own = rng.integers(0, spec["vocabulary"], (spec["requests"], max(factors["user_tokens"]))).tolist()
    place = {"front": 0, "middle": row["fixed_tokens"] // 2, "behind": row["fixed_tokens"]}[row["dynamic_place"]]
    seen = [
        fixed[:place] + now[: row["dynamic_tokens"]] + fixed[place:] + question[: row["user_tokens"]]
        for now, question in zip(moving, own, strict=True)
    ]
    table = np.array(seen)
    hits = [max(all_agreeing(table[:at], ids), default=0) for at, ids in enumerate(table)]
    return {"asked_tokens": sum(map(len, seen)), "hit_tokens": sum(hits), "hit_requests": sum(hit >= 16 for hit in hits)}


def conversations(study: Study, networks: Networks, known: dict[Any, list[Row]], row: Row) -> Row:
    name = row["seed"], row["conversation_key"]
    if name not in known:
        spec, network, key = study.settings["conversation"], networks[row["seed"]], row["conversation_key"]
        numbers = study.protocol["factors"]["turn"]
        said = np.random.default_rng([row["seed"], spec["stream"]]).integers(0, 32, (len(numbers), spec["turn"])).tolist()
        held: dict[int, tuple[Ids, teaching.Cache]] = {}
        known[name] = []
        for turn in numbers:
            room = (spec["limit"] - spec["system"]) // spec["turn"]
            dropped = max(0, turn + 1 - room)
            ids = [*range(1, spec["system"] + 1), *(i for one in said[dropped : turn + 1] for i in one)]
            slot = dropped if key == "id_and_dropped" else -1
            before, cache = held.get(slot, ([], teaching.EMPTY))
            cut = min(agreeing(before, ids) if key == "tokens" else len(before), len(ids) - 1)
            done = network.run(ids[cut:], cache.crop(cut) if cut else teaching.EMPTY)
            held[slot] = (ids, done.cache)
            known[name].append({
                "fresh": last(network, ids), "reuse": done.states[-1], "truncated": dropped > 0, "wrong_hit": agreeing(before, ids) < cut,
                "prompt_tokens": len(ids), "reused_tokens": cut,
            })  # fmt: skip
    return known[name][row["turn"]]


def distance(a: Ids, b: Ids) -> int:
    """Edit distance, the whole table."""
    table = [[i + j if not i * j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    return table[-1][-1]


def fuzzy(study: Study, networks: Networks, row: Row) -> Row:
    spec, network = study.settings["fuzzy"], networks[row["seed"]]
    stored = np.random.default_rng([row["seed"], spec["stream"]]).integers(0, 32, (spec["stored"], spec["length"])).tolist()
    rng = np.random.default_rng([row["seed"], spec["stream"], row["distance"], row["query"]])
    body = list(stored[row["query"]])
    for _ in range(row["distance"]):
        kind, place, value = int(rng.integers(3)), int(rng.integers(len(body) - 3)), int(rng.integers(31))
        body[place : place + (kind != 1)] = [[(body[place] + 1 + value) % 32], [value], []][kind]
    ids = body + list(range(1, spec["after"] + 1))
    far = [distance(one, body) for one in stored]
    nearest = stored[far.index(min(far))]
    cut = min(len(nearest), len(body))
    return {
        "fresh": last(network, ids), "reuse": last(network, ids[cut:], network.run(nearest).cache.crop(cut)),
        "exact_tokens": max(agreeing(one, ids) for one in stored), "fuzzy_tokens": cut, "nearest_distance": min(far),
    }  # fmt: skip


def two_tokenizers(study: Study, texts: Texts, row: Row) -> Row:
    network, name = texts.networks[row["seed"]], "a" if row["second_tokenizer"] == "other" else "b"
    question = texts.ids(" " + study.settings["questions"][0], "b")
    right, first = texts.ids(study.settings["system"], "b"), texts.ids(study.settings["system"], name)
    unrelated = [(i + 1) % len(texts.spelled[name]) for i in first]

    def ends(ids: Ids, which: str) -> set[int]:
        return {sum(len(texts.spelled[which][i]) for i in ids[: n + 1]) for n in range(len(ids))}

    return {
        "fresh": last(network, right + question), "reuse": last(network, question, network.run(first).cache),
        "unrelated": last(network, question, network.run(unrelated).cache),
        "right_tokens": len(right + question), "mixed_tokens": len(first + question),
        "misaligned": len(ends(first, name) ^ ends(right, "b")),
    }  # fmt: skip


def prompt(texts: Texts, template: str, turns: list[tuple[str, str]]) -> Ids:
    """Ids of what was said, up to the assistant's turn."""
    if template == "plain":
        lines = [{"system": f"{text}\n", "user": f"User: {text}\n", "assistant": f"Assistant:{text}"}[role] for role, text in turns]
        return texts.ids("".join(lines) + "Assistant:")
    number = {role: len(texts.spelled["a"]) + i for i, role in enumerate(texts.settings["roles"])}
    ids: Ids = []
    for role, text in turns:
        ids.append(number[role])
        ids.extend(texts.ids(text.strip() if role == "assistant" and template == "roles_stripped" else text))
        ids.append(number["end"])
    return [*ids, number["assistant"]]


def chat(study: Study, texts: Texts, known: dict[Any, list[Row]], row: Row) -> Row:
    name = row["seed"], row["template"], row["answered"]
    if name not in known:
        settings = study.settings
        plain = sorted(i for i, spelled in texts.spelled["a"].items() if all(32 <= value <= 126 for value in spelled))
        turns = [("system", settings["system"])]
        prompts: list[Ids] = []
        held: list[Ids] = []
        known[name] = []
        for number in study.protocol["factors"]["round"]:
            turns.append(("user", settings["questions"][number % len(settings["questions"])]))
            ids = prompt(texts, row["template"], turns)
            before, cached = (prompts[-1], held[-1]) if prompts else ([], [])
            reused = min(agreeing(cached, ids), len(ids) - 1)
            known[name].append({
                "prompt_is_prefix": agreeing(before, ids) == len(before), "answer_is_prefix": agreeing(cached, ids) == len(cached),
                "prompt_tokens": len(ids), "reused_tokens": reused, "rows_with": 6 * (len(ids) - reused), "rows_without": 6 * len(ids),
            })  # fmt: skip
            answer = texts.ids(" " + settings["answers"][number] + "\n")
            if row["answered"] == "sampled":
                rng = np.random.default_rng([row["seed"], settings["turns"]["stream"], number])
                answer = [plain[i] for i in rng.integers(0, len(plain), settings["turns"]["sampled"]).tolist()]
            prompts.append(ids)
            held.append(ids + answer)
            turns.append(("assistant", texts.text(answer)))
    return known[name][row["round"]]


def extreme(study: Study, networks: Networks, row: Row) -> Row:
    stored, asked = prompt_set(study.settings["extreme"], row["seed"], row["prompts"])
    wrong = sum(guess(row["planted"], stored, ids) != max(agreeing(one, ids) for one in stored) for ids in asked)
    return {"caught": wrong > 0, "differences": wrong}


def prompt_set(spec: dict[str, int], seed: int, name: str) -> tuple[list[Ids], list[Ids]]:
    """Stored and asked sequences, all of one scope."""
    if name == "ordinary":
        rng = np.random.default_rng([seed, spec["stream"]])
        bases = rng.integers(0, spec["vocabulary"], (3, 20)).tolist()
        made = []
        for number in range(spec["ordinary"]):
            length = int(rng.integers(5, 30))
            made.append(bases[number % 3] + rng.integers(0, spec["vocabulary"], length).tolist())
        return made[: len(made) // 2], made[len(made) // 2 :]
    long, odd, same = [(7 * i + 3) % 251 for i in range(700)], [0, 0, 255, 256, 299, 1, 12], list(range(5, 25))
    one_off = [*long[:333], 9, *long[334:]]
    stored = [long, odd, [*same, 30, 31, 32], same + [40] * 9, [1, 12, 7]]
    asked = [[], long, [*long, 9], [*one_off, 9], long[:300] + [9] * 50, long[:64] + [9] * 700, [3], odd, [*odd, 8], [0, *odd]]
    asked += [[0, 0, 255, 0, 299, 1, 12], [11, 2, 7], same, [*same, 30, 31, 33], same + [40] * 9, [*same, 40, 40, 40, 41], [*same, 99]]
    return stored, asked


def guess(planted: str, stored: Sequence[Ids], ids: Ids) -> int:
    """What a store with a planted fault answers."""
    if planted == "one_per_first":
        stored = [one for n, one in enumerate(stored) if all(later[0] != one[0] for later in stored[n + 1 :])]
    if planted == "empty_matches" and not ids:
        return max(map(len, stored))
    answers = []
    for one in stored:
        n = agreeing(one, ids)
        whole = len(one) <= len(ids)
        if planted in ("length_only", "sampled", "joined_text"):
            fits = {
                "length_only": len(one) == len(ids),
                "sampled": whole and all(one[at] == ids[at] for at in quarters(len(one)) if whole),
                "joined_text": bool(ids) and "".join(f"{i}" for i in ids).startswith("".join(f"{i}" for i in one)),
            }
            n = len(one) if fits[planted] else n
        elif planted == "short_length":
            n &= 255
        elif planted == "rounded_up":
            n = min((n + 15) // 16 * 16, len(one))
        elif planted == "zero_is_padding":
            n = agreeing([i for i in one if i], [i for i in ids if i])
        elif planted == "first_64" and n >= 64 and whole:
            n = len(one)
        elif planted == "last_token_lost" and n == len(one) == len(ids):
            n -= 1
        elif planted == "low_byte":
            n = agreeing([i & 255 for i in one], [i & 255 for i in ids])
        answers.append(n)
    return max(answers)
