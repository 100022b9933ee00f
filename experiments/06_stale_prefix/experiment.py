"""When may a stored prefix cache be continued? Six conditions, reused blindly, reused behind a key, and computed afresh."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from labcore import network, network_variants, prefix, store_checks
from labcore.batch import Batch
from labcore.faults.open_stores import CopyStore, OpenStore, found_in_process
from labcore.faults.prefix_stores import STORES, ExtendsInPlace
from labcore.network import Cache, Counter, Floats, Ints, Weights
from labcore.network_variants import Conditions, Rows
from labcore.prefix import PrefixStore
from labcore.protocol import Protocol
from labcore.scopes import Authority, BoundStore, Handle
from labcore.store_process import RemoteStore
from labcore.timing import Stopwatch, shuffled
from labcore.workers import in_order, processors

T = TypeVar("T")
CHUNK = 64  # seeds at a time: bounds memory, and their weights stay in the processor's cache


@dataclass(frozen=True)
class Case:
    """A condition: what the continuing request brings. The entry was stored with the first scope, no window, unchanged weights."""

    prefix: Ints
    suffix: Ints
    window: int | None
    scope: int
    weight_change: float

    def weights(self, base: Weights) -> Weights:
        """The networks of this condition."""
        return base if self.weight_change == 0 else change_first_key(base, self.weight_change)


def cases(settings: dict[str, Any]) -> dict[str, Case]:
    """The six conditions, each one change away from the first."""
    ids, after = np.array(settings["prefix"]), np.array(settings["suffix"])
    edited = ids.copy()
    edited[settings["edited_place"]] = settings["edited_id"]
    return {
        "same-prefix": Case(ids, after, None, 0, 0.0),
        "edited-prefix": Case(edited, after, None, 0, 0.0),
        "different-weights": Case(ids, after, None, 0, settings["weight_change"]),
        "different-window": Case(ids, after, settings["window"], 0, 0.0),
        "different-scope": Case(ids, after, None, 1, 0.0),
        "new-suffix": Case(ids, np.array(settings["new_suffix"]), None, 0, 0.0),
    }


def change_first_key(base: Weights, by: float) -> Weights:
    """Copies of networks with element [0, 0] of the first layer's W_K changed."""
    qkv = base.qkv.copy()
    qkv[:, 0, 1, 0, 0] += by
    return Weights(base.embedding, qkv)


def fresh(weights: Weights, case: Case, counter: Counter | None = None) -> Floats:
    """The suffix's states by a full pass under the case's own conditions [g, 4, 16]."""
    states, _ = network.advance(weights, np.concatenate([case.prefix, case.suffix]), window=case.window, counter=counter)
    return states[:, -len(case.suffix) :]


class Answers:
    """What networks answer behind one stored case. Cases often share a pass (another scope is no other arithmetic): each runs once."""

    def __init__(self, networks: Weights, stored_case: Case) -> None:
        self.networks, self.stored_case = networks, stored_case
        _, self.stored = network.advance(networks, stored_case.prefix)
        self.made: dict[tuple[Any, ...], Any] = {}

    def full(self, case: Case) -> tuple[Floats, int]:
        """States by a full pass [g, 4, 16] and its projected rows."""
        key = ("full", case.weight_change, case.window, *case.prefix, -1, *case.suffix)
        return self._once(key, lambda: counted(lambda counter: fresh(self._weights(case), case, counter)))

    def unchecked(self, case: Case) -> tuple[Floats, int]:
        """States by continuing the stored cache, whatever the case's prefix [g, 4, 16], and projected rows."""

        def states(counter: Counter) -> Floats:
            return network.advance(self._weights(case), case.suffix, self.stored, case.window, counter)[0]

        return self._once(("unchecked", case.weight_change, case.window, *case.suffix), lambda: counted(states))

    def same_key(self, case: Case, scopes: list[str]) -> network.Bools:
        """Whether each network's key of a case is the stored one [g]."""
        entries, wanted = self._keys(self.stored_case, scopes), self._keys(case, scopes)
        return np.array([key == entry for key, entry in zip(wanted, entries, strict=True)])

    def guarded(self, case: Case, reused: network.Bools) -> tuple[Floats, Ints]:
        """What a keyed store gives: hits continue the stored cache, misses are full passes. States [g, 4, 16], projected rows [g]."""
        (hit, hit_rows), (miss, miss_rows) = self.unchecked(case), self.full(case)
        return np.where(reused[:, None, None], hit, miss), np.where(reused, hit_rows, miss_rows)

    def _weights(self, case: Case) -> Weights:
        return self._once(("weights", case.weight_change), lambda: case.weights(self.networks))

    def _keys(self, case: Case, scopes: list[str]) -> list[prefix.Key]:
        digests = self._once(("digests", case.weight_change), lambda: prefix.weight_digests(self._weights(case)))
        key = ("keys", scopes[case.scope], case.weight_change, case.window, *case.prefix)
        return self._once(key, lambda: prefix.keys(scopes[case.scope], digests, case.prefix, case.window))

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self.made:
            self.made[key] = make()
        made: T = self.made[key]
        return made


def counted(work: Callable[[Counter], Floats]) -> tuple[Floats, int]:
    """The states of a pass and the rows that it projected."""
    counter = Counter()
    return work(counter), counter.projected_rows


def rows_of(columns: list[Any]) -> Any:
    """Values per factor level, each [g, ...], as rows [g * levels, ...], the level moving fastest."""
    stacked = np.stack(columns, axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def answers(networks: Weights, stored_case: Case, asked: list[Case], scopes: list[str]) -> dict[str, Any]:
    """fresh, unchecked, guarded, reused and projected rows of cases asked behind one stored case, as rows network x case."""
    given = Answers(networks, stored_case)
    made: dict[str, list[Any]] = {name: [] for name in ("fresh", "unchecked", "guarded", "reused", "rows")}
    for case in asked:
        reused = given.same_key(case, scopes)
        states, rows = given.guarded(case, reused)
        made["fresh"].append(given.full(case)[0])
        made["unchecked"].append(given.unchecked(case)[0])
        made["guarded"].append(states)
        made["reused"].append(reused)
        made["rows"].append(rows)
    return {name: rows_of(values) for name, values in made.items()}


def published(protocol: Protocol) -> Iterator[Batch]:
    """Blocks models and published, a chunk of seeds at a time, on all processors where the seeds are many."""
    for pair in in_order(partial(chunk, protocol), range(0, len(protocol.seeds), CHUNK)):
        yield from pair


def chunk(protocol: Protocol, start: int) -> tuple[Batch, Batch]:
    """The networks of CHUNK seeds from a place on, and their cases."""
    known = cases(protocol.settings)
    order = [known[name] for name in protocol.values("condition")]
    base = network.draw(protocol.seeds[start : start + CHUNK])
    g = len(base.embedding)
    made = answers(base, known["same-prefix"], order, protocol.settings["scopes"])
    inputs = {
        "model": np.repeat(np.arange(start, start + g), len(order)),
        "weight_change": np.tile([case.weight_change for case in order], g),
        "prefix": np.tile([case.prefix for case in order], (g, 1)),
        "suffix": np.tile([case.suffix for case in order], (g, 1)),
        "window": np.tile([case.window or 0 for case in order], g),
        "scope": np.tile([case.scope for case in order], g),
    }
    states = {name: made[name] for name in ("fresh", "unchecked", "guarded")}
    models = Batch("models", {"embedding": base.embedding, "qkv": base.qkv})
    return models, Batch("published", inputs | states, {"reused": made["reused"]}, {"projected_rows": made["rows"]})


def batches(protocol: Protocol) -> Iterator[Batch]:
    """All blocks. Those behind `published` have their own networks and do not grow with the seeds."""
    yield from published(protocol)
    networks = network.draw(protocol.values("network"))
    yield probes(protocol, networks)
    yield dropped(protocol, networks)
    yield refusals(protocol)
    yield request_time(protocol)
    yield trace(protocol)
    yield insertions(protocol)
    yield twice(protocol, networks)
    yield access(protocol)
    yield left_out(protocol, networks)
    yield hash_time(protocol)
    yield misses(protocol, networks)
    yield first_result(protocol, networks)
    yield checks(protocol)
    yield one_id(protocol, networks)
    yield suffix_key(protocol, networks)
    yield boundary(protocol)


# D02: what a key must name.


def brought(settings: dict[str, Any], probe: str) -> dict[str, Any]:
    """All that enters a probe's states: what was stored, with the probe's changes."""
    return {**settings["stored"], "change": None, **settings["probes"][probe]}


def conditions(brings: dict[str, Any]) -> Conditions:
    """The network's conditions of a probe."""
    window = brings["window"] or None
    return Conditions(tuple(brings["layers"]), brings["heads"], brings["position_base"], brings["score_power"], window)


def changed(base: Weights, change: dict[str, Any] | None, by: float) -> Weights:
    """Copies of the networks, `by` added to one weight; the networks themselves if there is no change."""
    if change is None:
        return base
    arrays = {"embedding": base.embedding.copy(), "qkv": base.qkv.copy()}
    arrays[change["array"]][(slice(None), *change["index"])] += by
    return Weights(**arrays)


def probes(protocol: Protocol, networks: Weights) -> Batch:
    """The stored rows continued under each probe's conditions, and the full pass under them."""
    settings = protocol.settings
    at_first = brought(settings, "same-prefix")
    _, stored = network_variants.advance(networks, np.array(at_first["prefix"]), conditions(at_first))
    made: dict[str, list[Floats]] = {"fresh": [], "unchecked": []}
    for probe in protocol.values("probe"):
        brings = brought(settings, probe)
        weights = changed(networks, brings["change"], settings["weight_change"])
        both = np.array(brings["prefix"] + brings["suffix"])
        made["fresh"].append(network_variants.advance(weights, both, conditions(brings))[0][:, -len(brings["suffix"]) :])
        made["unchecked"].append(network_variants.advance(weights, np.array(brings["suffix"]), conditions(brings), stored)[0])
    return Batch("probes", {name: rows_of(states) for name, states in made.items()})


def key_parts(brings: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """Component -> its value in the key of one network."""
    return {
        "scope": brings["scope"],
        "implementation": brings["score_power"],
        "dimensions": (network.WIDTH, brings["heads"]),
        "layers": tuple(brings["layers"]),
        "window": brings["window"],
        "position-rule": brings["position_base"],
        "weights": hashlib.sha256(weights.embedding.tobytes() + weights.qkv.tobytes()).hexdigest(),
        "prefix": tuple(brings["prefix"]),
    }


def dropped(protocol: Protocol, networks: Weights) -> Batch:
    """Whether a key without one component is the same for the entry and for a probe."""
    settings, reused = protocol.settings, []
    for g in range(len(networks.embedding)):
        own = networks.take([g])
        entry = key_parts(brought(settings, "same-prefix"), own)
        wanted = []
        for probe in protocol.values("probe"):
            brings = brought(settings, probe)
            wanted.append(key_parts(brings, changed(own, brings["change"], settings["weight_change"])))
        for component in protocol.values("component"):
            reused += [all(entry[name] == key[name] for name in entry if name != component) for key in wanted]
    return Batch("dropped", decisions={"reused": reused})


# D03: ids are checked before they are converted.

ID_KINDS: dict[str, Any] = {
    "int": [1],
    "numpy-int8": [np.int8(1)],
    "numpy-uint64": np.array([1], np.uint64),
    "float": [1.0],
    "numpy-float64": [np.float64(1)],
    "bool": [True],
    "numpy-bool": [np.bool_(True)],
    "text": ["1"],
    "bytes": b"1",
    "none": [None],
    "complex": [1 + 0j],
    "nested": [[1]],
    "empty": [],
    "negative": [-1],
    "too-large": [32],
    "huge": [2**70],
    "float-array": np.array([1.0]),
    "bool-array": np.array([True]),
    "text-array": np.array(["1"]),
    "object-array": np.array([1], object),
}


def refusals(protocol: Protocol) -> Batch:
    """Each kind of ids at each place where a store takes ids, beside an entry of the prefix [1]."""
    weights = network.draw([protocol.values("network")[0]])
    refused, clear, naive = [], [], []
    for kind in protocol.values("id_kind"):
        ids = ID_KINDS[kind]
        store = PrefixStore()
        store.remember("reader-a", weights, [1])
        calls: dict[str, Callable[[], Any]] = {
            "remember-prefix": partial(store.remember, "reader-a", weights, ids),
            "resume-prefix": partial(store.resume, "reader-a", weights, ids, [2]),
            "resume-suffix": partial(store.resume, "reader-a", weights, [1], ids),
        }
        for argument in protocol.values("argument"):
            try:
                calls[argument]()
                message = None
            except (TypeError, ValueError) as error:
                message = str(error)
            refused.append(message is not None)
            clear.append(message is not None and "got" in message and "wanted" in message)
            naive.append(naive_key(ids) == (1,))
    return Batch("refusals", decisions={"refused": refused, "clear": clear, "naive_same_key": naive})


def naive_key(ids: Any) -> tuple[int, ...] | None:
    """The key that int() makes without a check, or None where int() itself fails."""
    try:
        return tuple(int(value) for value in ids)
    except (TypeError, ValueError):
        return None


# D07: what a hit saves of a whole request.


def request_time(protocol: Protocol) -> Batch:
    """Seconds of whole requests and of their parts, shuffled in each repeat, after one round to warm up."""
    settings = protocol.settings
    weights, ids, after = network.draw([protocol.values("network")[0]]), settings["prefix"], settings["suffix"]
    store = PrefixStore(settings["capacity"])
    store.remember("reader-a", weights, ids)
    _, stored = network.advance(weights, ids)
    parts: dict[str, Callable[[], Any]] = {
        "hit": lambda: store.resume("reader-a", weights, ids, after),
        "miss": lambda: store.resume("reader-b", weights, ids, after),
        "signature": lambda: prefix.signature(weights, None),
        "continue": lambda: network.advance(weights, after, stored),
        "full-pass": lambda: network.advance(weights, ids + after),
    }
    return Batch("request_time", {"seconds": timed(protocol, "request_time", "seconds", parts)})


def timed(protocol: Protocol, block: str, array: str, work: Mapping[Any, Callable[[], Any]]) -> Floats:
    """Seconds [work, repeat], as many repeats as the protocol's array has."""
    repeats = protocol.blocks[block].arrays[array].shape[1]
    assert isinstance(repeats, int)
    seconds = np.empty((len(work), repeats))
    names = list(work)
    for repeat in range(-1, repeats):
        for name in shuffled(names, repeat + 1):
            watch = Stopwatch()
            with watch("work"):
                work[name]()
            if repeat >= 0:
                seconds[names.index(name), repeat] = watch.get("work")
    return seconds


# D09: order of search and of eviction, and what a caller cannot put in.


def trace(protocol: Protocol) -> Batch:
    """A script of calls on one store; beside it the same script on plain lists, first in first out and least recently used."""
    settings = protocol.settings
    names = list(settings["trace_prefixes"])
    ids = {name: settings["trace_prefixes"][name] for name in names}
    weights, store, capacity = network.draw([protocol.values("network")[0]]), PrefixStore(settings["capacity"]), settings["capacity"]
    fifo: list[str] = []
    lru: list[str] = []
    made: dict[str, list[Any]] = {
        "held": [],
        "fifo_held": [],
        "lru_held": [],
        "reused": [],
        "compared": [],
        "newest_first": [],
        "oldest_first": [],
    }
    for kind, name in settings["operations"]:
        reused, counts = False, (0, 0, 0)
        if kind == "remember":
            store.remember("reader-a", weights, ids[name])
            fifo, lru = [*fifo, name][-capacity:], [*lru, name][-capacity:]
        else:
            got = store.resume("reader-a", weights, ids[name], settings["trace_suffix"])
            reused, counts = got.reused, (got.compared, comparisons(fifo[::-1], name), comparisons(fifo, name))
            if name in lru:
                place = len(lru) - 1 - lru[::-1].index(name)
                lru = [*lru[:place], *lru[place + 1 :], name]
        made["held"].append(padded([names.index(n) for key in store.held() for n in names if tuple(ids[n]) == key[2]], capacity))
        made["fifo_held"].append(padded([names.index(n) for n in fifo], capacity))
        made["lru_held"].append(padded([names.index(n) for n in lru], capacity))
        made["reused"].append(reused)
        for column, count in zip(("compared", "newest_first", "oldest_first"), counts, strict=True):
            made[column].append(count)
    arrays = {name: np.array(made[name], np.int64) for name in ("held", "fifo_held", "lru_held")}
    return Batch("trace", arrays, {"reused": made["reused"]}, {name: made[name] for name in ("compared", "newest_first", "oldest_first")})


def comparisons(order: list[str], name: str) -> int:
    """Entries looked at, in this order, until the name is found or all were."""
    return order.index(name) + 1 if name in order else len(order)


def padded(held: list[int], capacity: int) -> list[int]:
    """Indices oldest first, -1 for an empty place."""
    return held + [-1] * (capacity - len(held))


def insertions(protocol: Protocol) -> Batch:
    """Ways to bring foreign K/V into a store through its interface: does any change what it holds or answers?"""
    settings = protocol.settings
    ids, after = np.array(settings["prefix"]), settings["suffix"]
    changed_state = []
    for attempt in protocol.values("attempt"):
        weights = network.draw([protocol.values("network")[0]])
        store, given = CopyStore(), ids.copy()
        store.remember("reader-a", weights, given)
        before = store.held(), store.digests(), store.resume("reader-a", weights, ids, after).states.tobytes()
        _, foreign = network.advance(weights, [31] * len(ids))
        insert(attempt, store, weights, given, after, foreign)
        original = network.draw([protocol.values("network")[0]])
        changed_state.append(before != (store.held(), store.digests(), store.resume("reader-a", original, ids, after).states.tobytes()))
    return Batch("insertions", decisions={"changed": changed_state})


def insert(attempt: str, store: Any, weights: Weights, given: Ints, after: list[int], foreign: Cache) -> None:
    """One attempt. A call that the interface refuses is an attempt that failed."""
    calls: dict[str, Callable[[], Any]] = {
        "remember-with-cache": lambda: store.remember("reader-a", weights, given, cache=foreign),
        "resume-with-cache": lambda: store.resume("reader-a", weights, given, after, cache=foreign),
        "made-with-entries": lambda: type(store)(2, [foreign]),
        "ids-changed-later": lambda: given.fill(31),
        "weights-changed-later": lambda: weights.qkv.fill(0.0),
        "states-changed-later": lambda: store.resume("reader-a", weights, given, after).states.fill(0.0),
        "held-list-changed": lambda: store.held().clear(),
    }
    with suppress(TypeError):
        calls[attempt]()


# D11: two continuations of one entry.


def twice(protocol: Protocol, networks: Weights) -> Batch:
    """Two suffixes in turn from one entry; the second alone; the second after another first; and all that in an aliased store."""
    settings = protocol.settings
    ids, first, second, other = (settings[name] for name in ("prefix", "suffix", "new_suffix", "other_first_suffix"))
    rows: list[dict[str, Floats]] = []
    for g in range(len(networks.embedding)):
        own = networks.take([g])

        def entry(kind: type[PrefixStore], own: Weights = own) -> Any:
            store = kind()
            store.remember("reader-a", own, ids)
            return store

        def ask(store: PrefixStore, suffix: list[int], own: Weights = own) -> Floats:
            return store.resume("reader-a", own, ids, suffix).states

        row, store = {}, entry(CopyStore)
        row["before"] = key_value(store)
        ask(store, first)
        row["between"] = key_value(store)
        row["second"] = ask(store, second)
        row["after"] = key_value(store)
        row["second_alone"] = ask(entry(PrefixStore), second)
        for name, kind in (("second_other", PrefixStore), ("aliased_other", ExtendsInPlace)):
            store = entry(kind)
            ask(store, other)
            row[name] = ask(store, second)
        store = entry(ExtendsInPlace)
        ask(store, first)
        row["aliased"] = ask(store, second)
        rows.append(row)
    return Batch("twice", {name: np.stack([row[name] for row in rows]) for name in rows[0]})


def key_value(store: CopyStore) -> Floats:
    """K and V of a store's newest entry [2, layer, m, d]."""
    cache = store.caches()[-1]
    return np.stack([cache.k[0], cache.v[0]])


# D13: a scope that anyone may say, and one that must be proved.


def access(protocol: Protocol) -> Batch:
    """Who reads reader-a's entry: in the plain store by saying a name, in the bound store by showing a handle."""
    weights = network.draw([protocol.values("network")[0]])
    ids, after = protocol.settings["prefix"], protocol.settings["suffix"]
    authority = Authority(bytes(range(32)))
    a, b = authority.issue("reader-a"), authority.issue("reader-b")
    plain, bound = PrefixStore(), BoundStore(authority)
    plain.remember("reader-a", weights, ids)
    bound.remember(a, weights, ids)
    shown = {
        "owner": ("reader-a", a),
        "other-own-name": ("reader-b", b),
        "other-claims-owner": ("reader-a", Handle("reader-a", b.tag)),
        "other-guesses-tag": ("reader-a", Handle("reader-a", "0" * 64)),
        "other-copied-handle": ("reader-a", Handle(a.name, a.tag)),
    }
    reads, refused = [], []
    for kind in protocol.values("store_kind"):
        for claimant in protocol.values("claimant"):
            name, handle = shown[claimant]
            try:
                got = plain.resume(name, weights, ids, after) if kind == "plain" else bound.resume(handle, weights, ids, after)
                reads.append(got.reused)
                refused.append(False)
            except PermissionError:
                reads.append(False)
                refused.append(True)
    return Batch("access", decisions={"reads": reads, "refused": refused})


# D14: a key for a model too large to hash.


def left_out(protocol: Protocol, networks: Weights) -> Batch:
    """Production keys (scope, revision, adapter, cache dtype, position base, prefix) with one part left out, and what is then reused."""
    settings = protocol.settings
    ids, after = np.array(settings["prefix"]), np.array(settings["suffix"])
    adapted = Weights(networks.embedding, networks.qkv.copy())
    adapted.qkv[:, 0, 2] += settings["adapter_step"]
    plain, other_base = Conditions(), Conditions(position_base=settings["other_position_base"])
    revised = change_first_key(networks, settings["weight_change"])
    now: dict[str, tuple[Weights, Conditions]] = {
        "nothing": (networks, plain),
        "revision": (revised, plain),
        "adapter": (adapted, plain),
        "cache-dtype": (networks, plain),
        "position-base": (networks, other_base),
    }
    key = {
        "scope": "reader-a",
        "revision": "1",
        "adapter": "none",
        "cache-dtype": "float64",
        "position-base": "10000",
        "prefix": tuple(ids),
    }
    news = {"revision": "2", "adapter": "a", "cache-dtype": "float16", "position-base": "100"}
    _, exact = network_variants.advance(networks, ids, plain)
    rounded = Rows(tuple(half(k) for k in exact.k), tuple(half(v) for v in exact.v))
    fresh_states, reused_states, without, within = [], [], [], []
    for omission in protocol.values("omission"):
        weights, rules = now[omission]
        fresh_states.append(network_variants.advance(weights, np.concatenate([ids, after]), rules)[0][:, -len(after) :])
        reused_states.append(network_variants.advance(weights, after, rules, rounded if omission == "cache-dtype" else exact)[0])
        wanted = key | ({omission: news[omission]} if omission in news else {})
        within.append(wanted == key)
        without.append({n: v for n, v in wanted.items() if n != omission} == {n: v for n, v in key.items() if n != omission})
    g = len(networks.embedding)
    decisions = {"reused_without": without * g, "reused_with": within * g}
    return Batch("left_out", {"fresh": rows_of(fresh_states), "unchecked": rows_of(reused_states)}, decisions)


def half(values: Floats) -> Floats:
    """Each value rounded to float16, as float64."""
    return values.astype(np.float16).astype(np.float64)


def hash_time(protocol: Protocol) -> Batch:
    """Seconds to hash a model of so many MiB, and to make and hash a key out of a revision's name."""
    models = {size: np.zeros(size << 17) for size in protocol.values("mebibytes")}
    revision = b"model-1 revision 0123456789abcdef adapter none positions 10000 window none"
    whole = {size: partial(hashlib.sha256, model.data) for size, model in models.items()}
    names = {size: partial(hashlib.sha256, revision) for size in models}
    seconds = {"seconds": timed(protocol, "hash_time", "seconds", whole)}
    return Batch("hash_time", seconds | {"revision_seconds": timed(protocol, "hash_time", "revision_seconds", names)})


# D15, D17, D19, D21: the six conditions again, asked otherwise.


def misses(protocol: Protocol, networks: Weights) -> Batch:
    """The four refusing conditions on a store object: its answer, and its entry before and after."""
    settings, known = protocol.settings, cases(protocol.settings)
    made: dict[str, list[Any]] = {name: [] for name in ("fresh", "guarded", "before", "after", "raised", "reused", "rows")}
    for g in range(len(networks.embedding)):
        own = networks.take([g])
        store = CopyStore(settings["capacity"])
        store.remember(settings["scopes"][0], own, known["same-prefix"].prefix)
        for name in protocol.values("refusing"):
            case = known[name]
            weights = case.weights(own)
            states, raised, reused, rows = np.zeros((len(case.suffix), network.WIDTH)), False, False, 0
            made["before"].append(key_value(store))
            try:
                got = store.resume(settings["scopes"][case.scope], weights, case.prefix, case.suffix, case.window)
                states, reused, rows = got.states, got.reused, got.projected_rows
            except (TypeError, ValueError, LookupError):
                raised = True
            made["after"].append(key_value(store))
            made["fresh"].append(fresh(weights, case)[0])
            for column, value in (("guarded", states), ("raised", raised), ("reused", reused), ("rows", rows)):
                made[column].append(value)
    arrays = {name: np.stack(made[name]) for name in ("fresh", "guarded", "before", "after")}
    return Batch("misses", arrays, {"raised": made["raised"], "reused": made["reused"]}, {"projected_rows": made["rows"]})


def first_result(protocol: Protocol, networks: Weights) -> Batch:
    """Each condition's answers beside the full pass of the first condition, which a careless judge takes for all."""
    known = cases(protocol.settings)
    order = [known[name] for name in protocol.values("condition")]
    made = answers(networks, known["same-prefix"], order, protocol.settings["scopes"])
    first = np.repeat(fresh(networks, known["same-prefix"]), len(order), axis=0)
    return Batch("first_result", {"first": first} | {name: made[name] for name in ("fresh", "unchecked", "guarded")})


def checks(protocol: Protocol) -> Batch:
    """Every planted fault of the store against every check."""
    names = protocol.values("store_check")
    return Batch(
        "checks",
        decisions={"fails": [store_checks.fails(STORES[fault], name) for fault in protocol.values("store_fault") for name in names]},
    )


def one_id(protocol: Protocol, networks: Weights) -> Batch:
    """The id at each place of the prefix in turn becomes edited_id."""
    settings = protocol.settings
    first = cases(settings)["same-prefix"]
    asked = []
    for place in protocol.values("place"):
        ids = first.prefix.copy()
        ids[place] = settings["edited_id"]
        asked.append(Case(ids, first.suffix, None, 0, 0.0))
    made = answers(networks, first, asked, settings["scopes"])
    arrays = {name: made[name] for name in ("fresh", "unchecked", "guarded")}
    return Batch("one_id", arrays, {"reused": made["reused"]}, {"projected_rows": made["rows"]})


def suffix_key(protocol: Protocol, networks: Weights) -> Batch:
    """The six conditions with the suffix left out of the key, and put into it."""
    known = cases(protocol.settings)
    order = [known[name] for name in protocol.values("condition")]
    first, scopes = known["same-prefix"], protocol.settings["scopes"]
    given = Answers(networks, first)
    fresh_states, states, reused_all, rows_all = [], [], [], []
    for kind in protocol.values("key_kind"):
        for case in order:
            same_suffix = kind == "without-suffix" or np.array_equal(case.suffix, first.suffix)
            reused = given.same_key(case, scopes) & same_suffix
            answer, rows = given.guarded(case, reused)
            fresh_states.append(given.full(case)[0])
            states.append(answer)
            reused_all.append(reused)
            rows_all.append(rows)
    arrays = {"fresh": rows_of(fresh_states), "guarded": rows_of(states)}
    return Batch("suffix_key", arrays, {"reused": rows_of(reused_all)}, {"projected_rows": rows_of(rows_all)})


# D22: what code in the same process can reach.


def boundary(protocol: Protocol) -> Batch:
    """Foreign code reads and alters reader-a's entry: in a store that hands out its caches, one that hands out copies, one elsewhere."""
    seed, ids, after = protocol.values("network")[0], protocol.settings["boundary_prefix"], protocol.settings["suffix"]
    keys = [
        (holder, route, act) for holder in protocol.values("holder") for route in protocol.values("route") for act in protocol.values("act")
    ]
    succeeds = in_order(lambda key: attempt(*key, seed, ids, after), keys, processors())
    return Batch("boundary", decisions={"succeeds": list(succeeds)})


def attempt(holder: str, route: str, act: str, seed: int, ids: list[int], after: list[int]) -> bool:
    """Whether foreign code gets the bytes of the entry's K, or changes what its owner is answered."""
    weights = network.draw([seed])
    secret = network.advance(weights, ids)[1].k.tobytes()
    with Held(holder, seed, weights, ids) as held:
        before = held.answer(after)
        reached = [cache for cache in held.reach(route) if cache.k.tobytes() == secret]
        if act == "read":
            return bool(reached)
        for cache in reached:
            cache.k.fill(0.0)
        return held.answer(after) != before


class Held:
    """One entry of reader-a in one kind of store, seen from its owner (`answer`) and from other code in the caller's process (`reach`)."""

    def __init__(self, holder: str, seed: int, weights: Weights, ids: list[int]) -> None:
        self.seed, self.weights, self.ids = seed, weights, ids
        self.store: Any = {"object": OpenStore, "copies": CopyStore, "process": RemoteStore}[holder]()
        self.remote = holder == "process"

    def __enter__(self) -> Held:
        if self.remote:
            self.store.__enter__()
            self.store.remember("reader-a", self.seed, self.ids)
        else:
            self.store.remember("reader-a", self.weights, self.ids)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.remote:
            self.store.__exit__(*error)

    def answer(self, after: list[int]) -> bytes:
        """What the owner gets."""
        if self.remote:
            states, _ = self.store.resume("reader-a", self.seed, self.ids, after)
        else:
            states = self.store.resume("reader-a", self.weights, self.ids, after).states
        return bytes(states.tobytes())

    def reach(self, route: str) -> list[Cache]:
        """Caches that the interface hands out, or that lie among the interpreter's objects."""
        if route == "introspection":
            return found_in_process()
        return list(self.store.caches()) if hasattr(self.store, "caches") else []
