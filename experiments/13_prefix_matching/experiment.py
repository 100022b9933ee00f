"""Prefix matching: what exact indexes find, and what each shortcut lets through.

Functions are in the order of the protocol's blocks. Networks of all seeds run side by side (axis g), so most cases are computed for all
seeds at once and laid out as rows of seed times case by `rows`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from labcore.batch import Batch
from labcore.common_prefix import CommonPrefixStore
from labcore.faults import content_keys, hit_path, loose_matching, radix_races, stale_entry, stale_weights, timing_channel, trimming
from labcore.faults.handed_out import Copied, Shared
from labcore.footprint import footprint
from labcore.interleave import explore
from labcore.matchers import BlockHash, Dictionary, RadixTree, WholeHash, common, make, pack
from labcore.network import Cache, Floats, Weights, advance, attend, draw, empty, sinusoid, visible
from labcore.protocol import Protocol
from labcore.timing import Stopwatch

ROWS_PER_TOKEN = 6
BLOCK = 16
LOOK_ALIKE = {"a": "\u0430", "i": "\u0456"}  # Cyrillic letters that look like the Latin ones
Ids = list[int]


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks."""
    weights = draw(protocol.seeds)
    yield classes(protocol, weights)
    yield edits(protocol, weights)
    yield mechanism(protocol, weights)
    texts = Texts(protocol, weights)
    yield texts.vocabulary()
    yield invisible(protocol, texts)
    yield cascade(protocol, weights)
    yield from collisions(protocol)
    yield images(protocol)
    yield geometry(protocol)
    yield domains(protocol)
    yield updates(protocol, weights)
    yield hit_paths(protocol, weights)
    yield from trims(protocol, weights)
    yield stale_entries(protocol)
    yield handed_out(protocol, weights)
    yield channel(protocol)
    yield structures(protocol)
    yield races(protocol)
    yield dynamic(protocol)
    yield conversations(protocol, weights)
    yield fuzzy(protocol, weights)
    yield two_tokenizers(protocol, texts)
    yield chat(protocol, texts)
    yield extreme(protocol)
    yield layout(protocol)


class Cases:
    """Collects arrays [g, ...] and counts case by case, and lays them out as rows of seed times case."""

    def __init__(self, g: int) -> None:
        self.g = g
        self.arrays: dict[str, list[Floats]] = {}
        self.counts: dict[str, list[int]] = {}

    def add(self, arrays: dict[str, Floats], **counts: int) -> None:
        """One case for all seeds; its counts are the same for each."""
        for name, value in arrays.items():
            self.arrays.setdefault(name, []).append(value)
        for name, count in counts.items():
            self.counts.setdefault(name, []).append(count)

    def batch(self, block: str, decisions: Sequence[str] = ()) -> Batch:
        """The block; counts that are named as decisions become those."""
        arrays = {}
        for name, values in self.arrays.items():
            stacked = np.stack(values, axis=1)
            arrays[name] = stacked.reshape(-1, *stacked.shape[2:])
        made = {name: [bool(v) for v in self.counts[name]] * self.g for name in decisions}
        return Batch(block, arrays, made, {name: values * self.g for name, values in self.counts.items() if name not in decisions})


def per_seed(block: str, seeds: list[dict[str, list[Any]]], decisions: Sequence[str] = (), **more: Any) -> Batch:
    """Counts that differ from seed to seed, one dictionary of columns a seed."""
    columns = {name: [value for one in seeds for value in one[name]] for name in seeds[0]}
    return Batch(
        block,
        decisions={name: [bool(v) for v in columns[name]] for name in decisions},
        counts={name: values for name, values in columns.items() if name not in decisions},
        **more,
    )


def plain_ids(count: int) -> Ids:
    """Ids (7 i + 3) mod 32."""
    return [(7 * i + 3) % 32 for i in range(count)]


def tail(count: int) -> Ids:
    """Ids (11 i + 5) mod 32: what follows a prefix."""
    return [(11 * i + 5) % 32 for i in range(count)]


def other(ids: Ids) -> Ids:
    """Every id replaced by the next one."""
    return [(i + 1) % 32 for i in ids]


def last(weights: Weights, ids: Ids, cache: Cache | None = None) -> Floats:
    """Last state [g, d] of ids behind a cache."""
    return advance(weights, ids, cache)[0][:, -1]


def splice(first: Cache, second: Cache, start: int) -> Cache:
    """Keys of one cache followed by those of another from row `start` on, numbered through: the second's values keep the places and the
    context they were computed at."""
    k = np.concatenate([first.k, second.k[:, :, start:]], axis=2)
    v = np.concatenate([first.v, second.v[:, :, start:]], axis=2)
    return Cache(k, v, np.arange(k.shape[2]), k.shape[2])


def classes(protocol: Protocol, weights: Weights) -> Batch:
    """The last state after each kind of match."""
    sizes, stored = protocol.settings["classes"], plain_ids(protocol.settings["stored_length"])
    after, cases = tail(sizes["suffix"]), Cases(len(protocol.seeds))
    _, cache = advance(weights, stored)
    wrong = stored.copy()
    wrong[sizes["wrong"]] = other(wrong)[sizes["wrong"]]
    for kind in protocol.values("match_class"):
        if kind == "full":
            query, behind, reused = stored, cache, len(stored)
        elif kind == "prefix":
            query, behind, reused = (
                stored[: sizes["shared"]] + other(stored[sizes["shared"] :]),
                cache.crop(sizes["shared"]),
                sizes["shared"],
            )
        elif kind == "mismatch":
            query, behind, reused = wrong, cache, len(stored)
        else:
            own = other(stored[: sizes["own" if kind == "substring" else "moved"]])
            query = own + stored[sizes["own"] :]
            behind, reused = splice(advance(weights, own)[1], cache, sizes["own"]), len(stored) - sizes["own"]
        whole = query + after
        arrays = {"fresh": last(weights, whole), "reuse": last(weights, whole[behind.next_position :], behind)}
        cases.add(arrays, reused_tokens=reused)
    return cases.batch("classes")


def edits(protocol: Protocol, weights: Weights) -> Batch:
    """Largest change of every state after one id was edited."""
    ids = plain_ids(protocol.settings["edit_length"])
    before, _ = advance(weights, ids)
    cases = Cases(len(protocol.seeds))
    for place in protocol.values("edited"):
        edited = [*ids[:place], *other(ids[place : place + 1]), *ids[place + 1 :]]
        cases.add({"change": np.abs(advance(weights, edited)[0] - before).max(axis=2)})
    batch = cases.batch("edits")
    places = protocol.values("edited") * len(protocol.seeds)
    rows = list(zip(places, batch.arrays["change"].tolist(), strict=True))
    own = {"least_after": [min(row[place:]) for place, row in rows], "most_before": [max(row[:place], default=0.0) for place, row in rows]}
    return Batch("edits", batch.arrays, own=own)


def mechanism(protocol: Protocol, weights: Weights) -> Batch:
    """An abnormal request behind n - 1, n or more entries of a normal one, and a normal request after it."""
    sizes = protocol.settings["mechanism"]
    n, normal, suffix = sizes["prefix"], plain_ids(sizes["prefix"]), tail(sizes["suffix"])
    abnormal = [*normal[:-1], *other(normal[-1:]), *suffix]
    following = [*normal, *other(suffix)]
    _, cache = advance(weights, normal + suffix)
    cases = Cases(len(protocol.seeds))
    for entries in protocol.values("reused_entries"):
        reused = {"n_minus_1": n - 1, "n": n, "with_suffix": len(abnormal) - 1}[entries]
        states, after = advance(weights, abnormal[reused:], cache.crop(reused))
        for stored_under in protocol.values("stored_under"):
            again = n - 1 if stored_under == "own_ids" else n
            arrays = {
                "fresh": last(weights, abnormal),
                "reuse": states[:, -1],
                "later_fresh": last(weights, following),
                "later": last(weights, following[again:], after.crop(again)),
            }
            cases.add(arrays, later_reused=again)
    return cases.batch("mechanism")


class Texts:
    """Two byte-level BPE tokenizers trained here, and the teaching network with an embedding for their ids."""

    def __init__(self, protocol: Protocol, weights: Weights) -> None:
        self.settings = protocol.settings
        self.tokenizers = {name: train(self.settings, spec) for name, spec in self.settings["tokenizers"].items()}
        size = max(t.get_vocab_size() for t in self.tokenizers.values()) + len(self.settings["roles"])
        spec = self.settings["text_embedding"]
        drawn = [
            np.random.default_rng([s, spec["stream"]]).normal(0, spec["scale"], (size, self.settings["width"])) for s in protocol.seeds
        ]
        self.weights = Weights(np.stack(drawn), weights.qkv)

    def ids(self, text: str, name: str = "a") -> Ids:
        """A text's ids."""
        return list(self.tokenizers[name].encode(text).ids)

    def advance(self, ids: Ids, cache: Cache | None = None) -> tuple[Floats, Cache]:
        """States [g, n, d] behind a cache, and the cache after them; as network.advance, but for ids of any vocabulary."""
        g = len(self.weights.embedding)
        past = empty(g) if cache is None else cache
        new = np.arange(past.next_position, past.next_position + len(ids))
        keys = np.concatenate([past.positions, new])
        states, k, v = attend(self.weights, self.weights.embedding[:, ids] + sinusoid(new), visible(new, keys), past)
        return states, Cache(k, v, keys, len(keys))

    def vocabulary(self) -> Batch:
        """The trained tables: the id of each byte, and each merge as (left id, right id, id of both), in order of rank."""
        alphabet, arrays = byte_letters(), {}
        for name, tokenizer in self.tokenizers.items():
            table = tokenizer.get_vocab()
            model = json.loads(tokenizer.to_str())["model"]
            pairs = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
            arrays[f"bytes_{name}"] = np.array([table[alphabet[byte]] for byte in range(256)], np.int32)
            arrays[f"merges_{name}"] = np.array([[table[a], table[b], table[a + b]] for a, b in pairs], np.int32)
        return Batch("vocabulary", arrays)


def byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


def train(settings: dict[str, Any], spec: dict[str, int]) -> Tokenizer:
    """A byte-level BPE without special tokens, trained on sentences drawn from the word lists. Words are cut at spaces, a space goes with
    the word behind it."""
    rng = np.random.default_rng(spec["stream"])
    words = settings["words"]
    parts = [
        [words[role][rng.integers(len(words[role]))] for role in ("subject", "verb", "object", "place")] for _ in range(spec["sentences"])
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec["vocabulary"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator([" ".join(sentence).capitalize() + "." for sentence in parts], trainer)
    return tokenizer


def abnormal_text(settings: dict[str, Any], variant: str, mark: str) -> str:
    """The system prompt with one character that the eye does not see, or takes for another, at the marked word."""
    text, word = settings["system"], settings["marks"][mark]
    at = text.index(word)
    if variant == "zero_width_joiner":
        return str(text[: at + 1] + "\u200d" + text[at + 1 :])
    if variant == "no_break_space":
        return str(text[: at - 1] + "\u00a0" + text[at:])
    place = next(at + i for i, letter in enumerate(word) if letter in LOOK_ALIKE)
    return str(text[:place] + LOOK_ALIKE[text[place]] + text[place + 1 :])


class TextStore:
    """Prompts and their caches, found by one of the matchers. `declared` tokens are what a whole-prefix or loose key calls the prefix."""

    def __init__(self, matcher: str, declared: int, run: Callable[..., tuple[Floats, Cache]]) -> None:
        self.matcher, self.declared, self.run = matcher, declared, run
        self.entries: list[tuple[Ids, Cache]] = []
        self.index = {"whole_hash": WholeHash(), "block_hash": BlockHash(BLOCK), "radix": RadixTree()}.get(matcher, Dictionary())

    def find(self, ids: Ids) -> tuple[Cache | None, int]:
        """The newest entry that fits, and how many of its tokens are taken."""
        if self.matcher == "length_sampled":
            places = loose_matching.sample_places(self.declared)
            fitting = [cache for held, cache in reversed(self.entries) if all(held[at] == ids[at] for at in places)]
            return (fitting[0], self.declared) if fitting else (None, 0)
        cut = min(self.index.longest("owner", ids), len(ids) - 1)
        packed = pack(ids)
        return next(((cache, cut) for held, cache in reversed(self.entries) if cut and common(pack(held), packed) >= cut), (None, 0))

    def serve(self, ids: Ids) -> tuple[Floats, int]:
        """Last state [g, d] and the tokens reused; the prompt is stored."""
        found, cut = self.find(ids)
        states, cache = self.run(ids[cut:], found.crop(cut) if found else None)
        self.entries.append((ids, cache))
        self.index.add("owner", ids[: self.declared] if self.matcher == "whole_hash" else ids)
        return states[:, -1], cut


def invisible(protocol: Protocol, texts: Texts) -> Batch:
    """An abnormal and a normal request on each matcher, in both orders of arrival."""
    settings = protocol.settings
    first, second, third = (" " + question for question in settings["questions"])
    declared = len(texts.ids(settings["system"]))
    cases = Cases(len(protocol.seeds))
    for row in protocol.rows("invisible"):
        if row["seed"] != protocol.seeds[0]:
            break
        abnormal = texts.ids(abnormal_text(settings, row["variant"], row["mark"]) + second)
        normal = texts.ids(settings["system"] + third)
        store = TextStore(row["text_matcher"], declared, texts.advance)
        if row["arrival"] == "normal_first":
            store.serve(texts.ids(settings["system"] + first))
        abnormal_state, abnormal_cut = store.serve(abnormal)
        normal_state, normal_cut = store.serve(normal)
        arrays = {
            "abnormal_fresh": texts.advance(abnormal)[0][:, -1],
            "abnormal": abnormal_state,
            "normal_fresh": texts.advance(normal)[0][:, -1],
            "normal": normal_state,
        }
        cases.add(arrays, abnormal_reused=abnormal_cut, normal_reused=normal_cut, abnormal_tokens=len(abnormal))
    return cases.batch("invisible")


def cascade(protocol: Protocol, weights: Weights) -> Batch:
    """Generation 0 is the abnormal request; each later one is a normal conversation, one turn longer, and stores what it computed."""
    sizes = protocol.settings["cascade"]
    prefix, cases = plain_ids(sizes["prefix"]), Cases(len(protocol.seeds))
    wrong = [*prefix[: sizes["wrong"]], *other(prefix[sizes["wrong"] : sizes["wrong"] + 1]), *prefix[sizes["wrong"] + 1 :]]
    places = loose_matching.sample_places(sizes["prefix"])
    for key in protocol.values("entry_key"):
        held, cache, polluted, turns = wrong, None, 0, []
        for generation in protocol.values("generation"):
            turns += [(5 * generation + 3 * j + 1) % 32 for j in range(sizes["turn"])]
            ids = (prefix if generation else wrong) + turns
            if cache is None:
                cut = 0
            elif key == "exact":
                cut = common(pack(held), pack(ids))
            else:
                cut = len(held) if all(held[at] == ids[at] for at in places) else 0
            states, after = advance(weights, ids[cut:], cache.crop(cut) if cache and cut else None)
            fresh, true = advance(weights, ids)
            polluted += bool(max(np.abs(after.k - true.k).max(), np.abs(after.v - true.v).max()) > 1e-9)
            cases.add({"fresh": fresh[:, -1], "reuse": states[:, -1]}, reused_tokens=cut, polluted_entries=polluted)
            held, cache = ids, after
    return cases.batch("cascade")


def collisions(protocol: Protocol) -> Iterator[Batch]:
    """Digests of random prefixes, and how many of them truncation makes equal."""
    spec = protocol.settings["collisions"]
    n, digests, length_only = spec["prefixes"], [], []
    columns: list[dict[str, list[Any]]] = []
    for seed in protocol.seeds:
        ids = np.random.default_rng([seed, spec["stream"]]).integers(0, 32, (n, spec["length"]))
        full = [content_keys.number(pack(row)) for row in ids]
        digests.append(full)
        length_only.append(sum(not np.array_equal(row, ids[0]) for row in ids))
        found: dict[str, list[Any]] = {name: [] for name in ("within_bound", "colliding_pairs", "wrong_unchecked", "wrong_checked")}
        for bits in protocol.values("bits"):
            short = [digest >> (64 - bits) for digest in full]
            table: dict[int, int] = {}
            for place, key in enumerate(short):
                table.setdefault(key, place)
            _, copies = np.unique(np.array(short, np.uint64), return_counts=True)
            pairs, expected = int((copies * (copies - 1) // 2).sum()), expected_pairs(n, bits)
            served = [table[key] for key in short]
            found["colliding_pairs"].append(pairs)
            found["within_bound"].append(abs(pairs - expected) <= 4 * math.sqrt(expected))
            found["wrong_unchecked"].append(sum(first != place for place, first in enumerate(served)))
            found["wrong_checked"].append(
                sum(first != place and np.array_equal(ids[first], ids[place]) for place, first in enumerate(served))
            )
        columns.append(found)
    yield Batch("digests", {"digest": np.array(digests, np.uint64)}, counts={"length_only_wrong": length_only})
    own = [expected_pairs(n, bits) for bits in protocol.values("bits")] * len(protocol.seeds)
    yield per_seed("collisions", columns, ["within_bound"], own={"expected_pairs": own})


def expected_pairs(n: int, bits: int) -> float:
    """Birthday bound: equal pairs among n random digests."""
    return n * (n - 1) / 2 / 2**bits


def images(protocol: Protocol) -> Batch:
    """Identities of images in 16 and in 64 bits."""
    n = protocol.settings["images"]
    digests, own = [], []
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["images"].counts}
    for key in protocol.values("image_key"):
        short = key == "bits16"
        made = [(content_keys.short_image if short else content_keys.wide_image)(i) for i in range(n)]
        space = 2.0 ** (16 if short else 64)
        seen: dict[int, int] = {}
        pair = next(((seen[d], i) for i, d in enumerate(made) if seen.setdefault(d, i) != i), (-1, -1))
        alone, half = 1.0, -1
        for i in range(n):
            alone *= 1 - i / space
            if alone <= 0.5:
                half = i + 1
                break
        digests.append(made)
        own.append(n + space * math.expm1(n * math.log1p(-1 / space)))
        for name, value in zip(counts, (n - len(set(made)), *pair, half), strict=True):
            counts[name].append(value)
    return Batch("images", {"image_digest": np.array(digests, np.uint64)}, counts=counts, own={"expected_images": own})


def geometry(protocol: Protocol) -> Batch:
    """Content keys of arrays with equal bytes."""
    pairs = content_keys.array_pairs()
    keys = {"raw": content_keys.raw_bytes, "header": content_keys.with_header}
    digests = [[keys[row["hashing"]](values) for values in pairs[row["pair"]]] for row in protocol.rows("geometry")]
    return Batch("geometry", {"content_digest": np.array(digests, np.uint64)}, {"equal": [a == b for a, b in digests]})


def domains(protocol: Protocol) -> Batch:
    """Keys of two requests whose optional fields differ."""
    requests = {
        "adapter_or_salt": ({"adapter": "x", "salt": ""}, {"adapter": "", "salt": "x"}),
        "adapter_and_salt": ({"adapter": "ab", "salt": "c"}, {"adapter": "a", "salt": "bc"}),
        "different": ({"adapter": "x", "salt": ""}, {"adapter": "y", "salt": ""}),
    }
    keys = {"untagged": content_keys.untagged, "tagged": content_keys.tagged}
    digests = [[keys[row["tagging"]](fields) for fields in requests[row["fields"]]] for row in protocol.rows("domains")]
    return Batch("domains", {"key_digest": np.array(digests, np.uint64)}, {"equal": [a == b for a, b in digests]})


def updates(protocol: Protocol, weights: Weights) -> Batch:
    """A prefix stored before the weights moved, found by ids and by the full key."""
    ids, cases = plain_ids(8), Cases(len(protocol.seeds))
    store = CommonPrefixStore(1)
    store.remember(weights, ids[:6], "owner")
    for updated in protocol.values("updated"):
        model = stale_weights.update(weights, protocol.seeds, protocol.settings["noise"]) if updated else weights
        entry, cut = stale_weights.faulty_hit(store, ids)
        _, keyed = stale_weights.correct_hit(store, model, ids, "owner")
        arrays = {"fresh": last(model, ids), "stale": store.resume(entry, model, ids, cut)[:, -1]}
        cases.add(arrays, unkeyed_hit=cut, keyed_hit=keyed)
    return cases.batch("updates")


def hit_paths(protocol: Protocol, weights: Weights) -> Batch:
    """New tokens that see the cache, and that see only themselves."""
    ids, cases = np.array(plain_ids(protocol.settings["hit_path"]["length"])), Cases(len(protocol.seeds))
    for cached in protocol.values("cached"):
        arrays = {
            "fresh": last(weights, ids.tolist()),
            "suffix_only": hit_path.suffix_only(weights, ids, cached)[:, -1],
            "behind_cache": hit_path.cached(weights, ids, cached)[:, -1],
        }
        cases.add(arrays)
    return cases.batch("hit_path")


def trims(protocol: Protocol, weights: Weights) -> Iterator[Batch]:
    """Crops by argument, a reset that leaves zero keys, and a ring before and after it wraps."""
    arguments = protocol.values("argument")
    counts = {"relative_kept": [trimming.relative_crop(3, a) for a in arguments], "kept": [trimming.crop(3, a) for a in arguments]}
    yield Batch("crops", counts=counts)
    new = np.array(tail(2))
    zeros = trimming.reset_in_place(advance(weights, plain_ids(3))[1])
    arrays = {
        "zero_weights": trimming.weights_after(weights, zeros, new)[:, :3],
        "fresh": last(weights, new.tolist()),
        "behind_zeros": trimming.states_after(weights, zeros, new)[:, -1],
    }
    yield Batch("resets", arrays)
    window, writes = protocol.settings["ring_window"], protocol.values("writes")
    arrays = {
        "physical": np.array([trimming.ring(window, n) for n in writes]),
        "sliced": np.array([trimming.ring_prefix(window, n, 2) for n in writes]),
    }
    yield Batch("rings", arrays, counts={"usable": [len(trimming.ring_tokens(window, n, 2)) for n in writes]})


def stale_entries(protocol: Protocol) -> Batch:
    """What a request for content 1 reads before and after the block was given to content 2; -1 is a miss."""
    counts: dict[str, list[int]] = {"kept_reads": [], "dropped_reads": []}
    for moment in protocol.values("moment"):
        for name, kind in (("kept_reads", stale_entry.Kept), ("dropped_reads", stale_entry.Dropped)):
            block = kind()
            for content in (1, 2) if moment == "after" else (1,):
                block.fill(content)
            read = block.look_up(1)
            counts[name].append(-1 if read is None else read)
    return Batch("stale_entries", counts=counts)


def handed_out(protocol: Protocol, weights: Weights) -> Batch:
    """The second request behind a prefix that the first one extended, or a copy of."""
    sizes, cases = protocol.settings["handed_out"], Cases(len(protocol.seeds))
    prefix, first, second = plain_ids(sizes["prefix"]), tail(sizes["first"]), other(tail(sizes["second"]))
    states, lengths = {}, {}
    for name, kind in (("shared", Shared), ("copied", Copied)):
        store = kind(advance(weights, prefix)[1])
        store.serve(weights, np.array(first))
        states[f"{name}_prefix"], lengths[f"{name}_length"] = store.serve(weights, np.array(second))
    arrays = {"fresh": last(weights, prefix + second)} | {name: value[:, -1] for name, value in states.items()}
    cases.add(arrays, **lengths)
    return cases.batch("handed_out")


def channel(protocol: Protocol) -> Batch:
    """Rows that a stranger's right and wrong guesses cost, and probes that find a secret."""
    spec = protocol.settings["channel"]
    right, wrong, own = [], [], []
    counts: dict[str, list[Any]] = {"secret_found": [], "probes": [], "own_rows": []}
    for row in protocol.rows("channel"):
        rng = np.random.default_rng([row["seed"], spec["stream"]])
        stored, others = rng.integers(0, spec["base"], (2, spec["stored"], spec["secret"])).tolist()
        secret = rng.integers(0, spec["base"], spec["digits"] // row["probed_block"] * row["probed_block"]).tolist()
        victim, stranger = ("victim", "stranger") if row["salted"] else ("all", "all")
        index, alone = BlockHash(row["probed_block"]), BlockHash(row["probed_block"])
        for ids in stored:
            index.add(victim, ids)
        alone.add(victim, secret)
        right.append([timing_channel.prefill(index, stranger, ids) for ids in stored])
        wrong.append([timing_channel.prefill(index, stranger, ids) for ids in others])
        own.append(timing_channel.auc(right[-1], wrong[-1]))
        found, probes = timing_channel.probe(alone, stranger, len(secret), row["probed_block"], spec["base"])
        for name, value in zip(
            counts, (found == secret, probes, max(timing_channel.prefill(index, victim, ids) for ids in stored)), strict=True
        ):
            counts[name].append(value)
    decisions = {"secret_found": counts.pop("secret_found")}
    return Batch("channel", {"right_rows": np.array(right), "wrong_rows": np.array(wrong)}, decisions, counts, {"auc": own})


def overlapping(spec: dict[str, int], seed: int, length: int) -> tuple[list[Ids], dict[str, list[Ids]]]:
    """Stored sequences in groups that share their first half; requests that extend one of them, or leave one at a random place."""
    rng = np.random.default_rng([seed, spec["stream"], length])
    half = length // 2
    bases = [rng.integers(0, spec["vocabulary"], half).tolist() for _ in range(spec["groups"])]
    stored = [bases[i % spec["groups"]] + rng.integers(0, spec["vocabulary"], length - half).tolist() for i in range(spec["stored"])]
    asked: dict[str, list[Ids]] = {"extend": [], "branch": []}
    for _ in range(spec["asked"]):
        which, cut = int(rng.integers(spec["stored"])), int(rng.integers(1, length))
        more = rng.integers(0, spec["vocabulary"], length + 13).tolist()
        asked["extend"].append(stored[which] + more[:13])
        asked["branch"].append(stored[which][:cut] + more[: length + 13 - cut])
    return stored, asked


def structures(protocol: Protocol) -> Batch:
    """What each index finds, holds and hashes."""
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["structures"].counts}
    for row in protocol.rows("structures"):
        stored, asked = overlapping(protocol.settings["structures"], row["seed"], row["length"])
        kind, _, size = row["index_kind"].partition("_")
        index = make({"block": "block_hash", "whole": "whole_hash"}.get(kind, kind), int(size) if kind == "block" else 1)
        for ids in stored:
            index.add("owner", ids)
        requests = asked[row["sharing"]]
        found = [index.longest("owner", ids) for ids in requests]
        entries, digests = index.entries(), 0
        if kind == "block":
            digests = sum(min(hit // int(size) + 1, len(ids) // int(size)) for hit, ids in zip(found, requests, strict=True))
            nbytes = entries * (32 + 32 + 4 * int(size))
        elif kind == "whole":
            digests, nbytes = len(requests), entries * 32 + 4 * sum(map(len, stored))
        else:
            trie = make("trie")
            for ids in stored:
                trie.add("owner", ids)
            nbytes = 28 * entries if kind == "trie" else 24 * entries + 4 * trie.entries()
        for name, value in zip(counts, (sum(map(len, requests)), sum(found), entries, digests, nbytes), strict=True):
            counts[name].append(value)
    return Batch("structures", counts=counts)


def races(protocol: Protocol) -> Batch:
    """Every interleaving of two operations on a radix tree."""
    counts: dict[str, list[int]] = {"interleavings": [], "lost": [], "phantom": []}
    for row in protocol.rows("races"):
        pair, locked = row["race"], row["locked"]
        seen = explore(
            lambda pair=pair, locked=locked: radix_races.build(pair, locked), lambda tree, pair=pair: radix_races.judge(pair, tree)
        )
        counts["interleavings"].append(seen.orders)
        counts["lost"].append(sum(n for (lost, _), n in seen.outcomes.items() if lost))
        counts["phantom"].append(sum(n for (_, phantom), n in seen.outcomes.items() if phantom))
    return Batch("races", counts=counts)


def dynamic(protocol: Protocol) -> Batch:
    """Hit rate of requests whose fixed, dynamic and own parts stand in another order. A hit is at least one block of 16 tokens."""
    spec = protocol.settings["dynamic"]
    counts: dict[str, list[int]] = {name: [] for name in protocol.blocks["dynamic"].counts}
    for row in protocol.rows("dynamic"):
        rng = np.random.default_rng([row["seed"], spec["stream"]])
        fixed = rng.integers(0, spec["vocabulary"], max(protocol.values("fixed_tokens")))[: row["fixed_tokens"]].tolist()
        changing, user = (
            rng.integers(0, spec["vocabulary"], (spec["requests"], max(protocol.values(name))))[:, : row[name]].tolist()
            for name in ("dynamic_tokens", "user_tokens")
        )
        split = {"front": 0, "middle": len(fixed) // 2, "behind": len(fixed)}[row["dynamic_place"]]
        index, found, asked = RadixTree(), [], 0
        for now, question in zip(changing, user, strict=True):
            ids = fixed[:split] + now + fixed[split:] + question
            found.append(index.longest("owner", ids))
            asked += len(ids)
            index.add("owner", ids)
        for name, value in zip(counts, (asked, sum(found), sum(hit >= BLOCK for hit in found)), strict=True):
            counts[name].append(value)
    return Batch("dynamic", counts=counts)


def history(spec: dict[str, int], turns: list[Ids], turn: int) -> tuple[Ids, int]:
    """The prompt of a turn, and how many of the oldest turns were dropped to keep it within the limit."""
    system, dropped = list(range(1, spec["system"] + 1)), 0
    while len(system) + spec["turn"] * (turn + 1 - dropped) > spec["limit"]:
        dropped += 1
    return system + [i for one in turns[dropped : turn + 1] for i in one], dropped


def conversations(protocol: Protocol, weights: Weights) -> Batch:
    """The cache of the turn before, found by the conversation's id, by tokens, or by id and dropped turns."""
    spec, columns = protocol.settings["conversation"], []
    fresh, reuse = [], []
    for g, seed in enumerate(protocol.seeds):
        model = weights.take([g])
        turns = np.random.default_rng([seed, spec["stream"]]).integers(0, 32, (len(protocol.values("turn")), spec["turn"])).tolist()
        found: dict[str, list[Any]] = {name: [] for name in ("truncated", "wrong_hit", "prompt_tokens", "reused_tokens")}
        for key in protocol.values("conversation_key"):
            held: dict[Any, tuple[Ids, Cache]] = {}
            for turn in protocol.values("turn"):
                ids, dropped = history(spec, turns, turn)
                name = dropped if key == "id_and_dropped" else "id"
                before, cache = held.get(name, ([], None))
                cut = min(len(before), len(ids) - 1)
                if key == "tokens" and before:
                    cut = min(common(pack(before), pack(ids)), cut)
                states, after = advance(model, ids[cut:], cache.crop(cut) if cache and cut else None)
                held[name] = (ids, after)
                fresh.append(last(model, ids)[0])
                reuse.append(states[0, -1])
                for column, value in zip(found.values(), (dropped > 0, ids[:cut] != before[:cut], len(ids), cut), strict=True):
                    column.append(value)
        columns.append(found)
    return per_seed("conversations", columns, ["truncated", "wrong_hit"], arrays={"fresh": np.array(fresh), "reuse": np.array(reuse)})


def edited(ids: Ids, seed: list[int], count: int) -> Ids:
    """Ids after so many random edits, none in the last three places: 0 substitutes by another id, 1 inserts, 2 deletes."""
    rng, result = np.random.default_rng(seed), list(ids)
    for _ in range(count):
        kind, place, value = (int(rng.integers(limit)) for limit in (3, len(result) - 3, 31))
        if kind == 0:
            result[place] = (result[place] + 1 + value) % 32
        elif kind == 1:
            result.insert(place, value)
        else:
            del result[place]
    return result


def fuzzy(protocol: Protocol, weights: Weights) -> Batch:
    """The nearest stored sequence by edit distance, taken for the beginning of the request."""
    spec, columns = protocol.settings["fuzzy"], []
    fresh, reuse = [], []
    after = list(range(1, spec["after"] + 1))
    for g, seed in enumerate(protocol.seeds):
        model = weights.take([g])
        stored = np.random.default_rng([seed, spec["stream"]]).integers(0, 32, (spec["stored"], spec["length"])).tolist()
        caches = [advance(model, ids)[1] for ids in stored]
        found: dict[str, list[int]] = {name: [] for name in protocol.blocks["fuzzy"].counts}
        for distance in protocol.values("distance"):
            for query in protocol.values("query"):
                body = edited(stored[query], [seed, spec["stream"], distance, query], distance)
                ids = body + after
                distances = [loose_matching.edit_distance(ids_, body) for ids_ in stored]
                nearest = distances.index(min(distances))
                cut = min(spec["length"], len(body))
                fresh.append(last(model, ids)[0])
                reuse.append(last(model, ids[cut:], caches[nearest].crop(cut))[0])
                exact = max(loose_matching.shared(ids_, ids) for ids_ in stored)
                for name, value in zip(found, (exact, cut, min(distances)), strict=True):
                    found[name].append(value)
        columns.append(found)
    return per_seed("fuzzy", columns, arrays={"fresh": np.array(fresh), "reuse": np.array(reuse)})


def ends(texts: Texts, ids: Ids, name: str) -> list[int]:
    """Bytes of text that each token and those before it cover."""
    letters = {token: text for text, token in texts.tokenizers[name].get_vocab().items()}
    return np.cumsum([len(letters[i]) for i in ids]).tolist()


def two_tokenizers(protocol: Protocol, texts: Texts) -> Batch:
    """A text's cache made with tokenizer a, continued by a request that counts its tokens with b."""
    settings, cases = protocol.settings, Cases(len(protocol.seeds))
    question = texts.ids(" " + settings["questions"][0], "b")
    right = texts.ids(settings["system"], "b")
    for second in protocol.values("second_tokenizer"):
        name = "a" if second == "other" else "b"
        first = texts.ids(settings["system"], name)
        vocabulary = texts.tokenizers[name].get_vocab_size()
        unrelated = [(i + 1) % vocabulary for i in first]
        arrays = {
            "fresh": texts.advance(right + question)[0][:, -1],
            "reuse": texts.advance(question, texts.advance(first)[1])[0][:, -1],
            "unrelated": texts.advance(question, texts.advance(unrelated)[1])[0][:, -1],
        }
        off = len(set(ends(texts, first, name)) ^ set(ends(texts, right, "b")))
        cases.add(arrays, right_tokens=len(right) + len(question), mixed_tokens=len(first) + len(question), misaligned=off)
    return cases.batch("two_tokenizers")


def prompt(texts: Texts, template: str, said: list[tuple[str, str]]) -> Ids:
    """The ids of a conversation up to where the assistant begins."""
    roles = {name: texts.tokenizers["a"].get_vocab_size() + place for place, name in enumerate(texts.settings["roles"])}
    if template == "plain":
        names = {"system": "", "user": "User: ", "assistant": "Assistant:"}
        return texts.ids("".join(names[role] + text + ("" if role == "assistant" else "\n") for role, text in said) + "Assistant:")
    ids: Ids = []
    for role, text in said:
        if template == "roles_stripped" and role == "assistant":
            text = text.strip()
        ids += [roles[role], *texts.ids(text), roles["end"]]
    return [*ids, roles["assistant"]]


def chat(protocol: Protocol, texts: Texts) -> Batch:
    """Five rounds of a conversation: is what the cache holds really the beginning of the next prompt?"""
    settings, columns = protocol.settings, []
    letters = {token: text for text, token in texts.tokenizers["a"].get_vocab().items()}
    usual = [token for token in sorted(letters) if all(" " <= c <= "~" or c == "\u0120" for c in letters[token])]
    for seed in protocol.seeds:
        found: dict[str, list[Any]] = {name: [] for name in ("prompt_is_prefix", "answer_is_prefix", *protocol.blocks["chat"].counts)}
        for template in protocol.values("template"):
            for answered in protocol.values("answered"):
                said, before, held = [("system", settings["system"])], [], []
                for number in protocol.values("round"):
                    said.append(("user", settings["questions"][number % len(settings["questions"])]))
                    ids = prompt(texts, template, said)
                    reused = min(loose_matching.shared(held, ids), len(ids) - 1)
                    values = (
                        ids[: len(before)] == before, ids[: len(held)] == held, len(ids), reused,
                        ROWS_PER_TOKEN * (len(ids) - reused), ROWS_PER_TOKEN * len(ids),
                    )  # fmt: skip
                    for column, value in zip(found.values(), values, strict=True):
                        column.append(value)
                    if answered == "canonical":
                        answer = texts.ids(" " + settings["answers"][number] + "\n")
                    else:
                        rng = np.random.default_rng([seed, settings["turns"]["stream"], number])
                        answer = [usual[i] for i in rng.integers(0, len(usual), settings["turns"]["sampled"])]
                    before, held = ids, ids + answer
                    said.append(("assistant", texts.tokenizers["a"].decode(answer)))
        columns.append(found)
    return per_seed("chat", columns, ["prompt_is_prefix", "answer_is_prefix"])


def prompt_set(spec: dict[str, int], seed: int, name: str) -> tuple[list[tuple[str, Ids]], list[Ids]]:
    """What is stored, and what is asked.

    Ordinary: prompts of 25 to 49 ids behind three beginnings. Extreme: empty, very long, special ids,
    one beginning with all kinds of endings.
    """
    if name == "ordinary":
        rng = np.random.default_rng([seed, spec["stream"]])
        bases = rng.integers(0, spec["vocabulary"], (3, 20)).tolist()
        made = [bases[i % 3] + rng.integers(0, spec["vocabulary"], int(rng.integers(5, 30))).tolist() for i in range(spec["ordinary"])]
        half = spec["ordinary"] // 2
        return [("a", ids) for ids in made[:half]], made[half:]
    long, special, same = [(7 * i + 3) % 251 for i in range(700)], [0, 0, 255, 256, 299, 1, 12], list(range(5, 25))
    stored = [long, special, [*same, 30, 31, 32], [*same, *[40] * 9], [1, 12, 7]]
    asked = [
        [], long, [*long, 9], [*long[:333], 9, *long[334:], 9], [*long[:300], *[9] * 50], [*long[:64], *[9] * 700], [3],
        special, [*special, 8], [0, *special], [0, 0, 255, 0, 299, 1, 12], [11, 2, 7],
        same, [*same, 30, 31, 33], [*same, *[40] * 9], [*same, 40, 40, 40, 41], [*same, 99],
    ]  # fmt: skip
    return [("a", ids) for ids in stored], asked


def extreme(protocol: Protocol) -> Batch:
    """How many answers of each planted fault differ from the right ones, on both sets of prompts."""
    decisions, counts = [], []
    for row in protocol.rows("extreme"):
        stored, asked = prompt_set(protocol.settings["extreme"], row["seed"], row["prompts"])
        wrong = sum(
            loose_matching.answer(row["planted"], stored, ("a", ids)) != loose_matching.answer("none", stored, ("a", ids)) for ids in asked
        )
        decisions.append(wrong > 0)
        counts.append(wrong)
    return Batch("extreme", decisions={"caught": decisions}, counts={"differences": counts})


def branching_tree(length: int, branching: int) -> list[Ids]:
    """branching**2 sequences that part after a third and after two thirds."""
    cut = [0, length // 3, 2 * length // 3, length]
    result = []
    for first in range(branching):
        for second in range(branching):
            marks = (0, 1 + first, 1 + branching + branching * first + second)
            result.append([(31 * i + 1009 * mark) % 50021 for part, mark in enumerate(marks) for i in range(cut[part], cut[part + 1])])
    return result


def layout(protocol: Protocol) -> Batch:
    """Bytes of whole structures and seconds of a lookup, each repeat the mean of enough lookups to be timed."""
    sizes, seconds = [], []
    for row in protocol.rows("layout"):
        name, _, size = row["structure"].partition("_")
        index = make("block_hash" if name == "block" else name, int(size or 1))
        sequences = branching_tree(row["prefix_tokens"], row["branching"])
        for ids in sequences:
            index.add("owner", ids)
        loops, repeats = max(1, 20000 // row["prefix_tokens"]), []
        for _ in range(5):
            watch = Stopwatch()
            with watch("lookup"):
                for turn in range(loops):
                    index.longest("owner", sequences[turn % len(sequences)])
            repeats.append(watch.get("lookup") / loops)
        sizes.append(footprint(index))
        seconds.append(repeats)
    return Batch("layout", {"measured_bytes": np.array(sizes, np.int64), "lookup": np.array(seconds)})
