"""Checks of a cache of requests, rules C201 to C226.

The specification of every output is the same tokens given to a fresh system at once ("cold"). Exact checks compare two histories of the
same shapes that differ in foreign tokens alone. This request's tokens come from the lower half of the vocabulary and foreign ones from the
upper half, so that nothing is shared unless a check shares it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.battery.attention_checks import change
from labcore.battery.check import Case, Check, Lab, Measured
from labcore.battery.guard import Guard, Misbehaved, NotApplicable
from labcore.battery.interfaces import CacheClaims, Request, Started
from labcore.battery.pairs import pairs

Array = NDArray[Any]
CAP = 0.02  # of the effect of one own token: a difference that no rounding explains, unless the system claims coarser arithmetic
OWN, FOREIGN = 0, 1
KEY_BITS = 60  # a key with fewer bits that vary meets itself by chance within 2**30 requests


class Session:
    """A guarded system with the calls as checks want them; what the system cannot take at once is given one by one."""

    def __init__(self, lab: Lab, version: int = 0) -> None:
        self.claims: CacheClaims = lab.claims
        self.guard: Guard = lab.system()
        self.tokens: dict[Hashable, tuple[int, ...]] = {}
        if version:
            self.guard.call("update", version)

    def start(self, *requests: Request) -> list[Started]:
        """Admit requests; outputs checked, as float64."""
        batches = [list(requests)] if self.claims.batches else [[request] for request in requests]
        result: list[Started] = []
        for batch in batches:
            before = [media.tobytes() for request in batch for media in request.media]
            got = self.guard.call("start", batch)
            if [media.tobytes() for request in batch for media in request.media] != before:
                raise Misbehaved("mutated", self.guard.where(), "changed the media of a request")
            if (
                not isinstance(got, Sequence)
                or len(got) != len(batch)
                or not all(hasattr(s, "handle") and hasattr(s, "output") for s in got)
            ):
                raise Misbehaved("shape", self.guard.where(), f"gave {type(got).__name__} {got!r:.80}; wanted {len(batch)} Started")
            for request, one in zip(batch, got, strict=True):
                if one.handle in self.tokens:
                    raise Misbehaved("shape", self.guard.where(), f"gave the handle {one.handle!r} of a running request again")
                self.tokens[one.handle] = request.tokens
                result.append(Started(one.handle, self.guard.array(one.output, None), getattr(one, "reused", None)))
        return result

    def step(self, feeds: dict[Hashable, Sequence[int]]) -> dict[Hashable, Array]:
        """Feed tokens; the output of each one's last."""
        for handle, tokens in feeds.items():
            self.tokens[handle] = (*self.tokens[handle], *tokens)
        if not self.claims.chunks and any(len(tokens) > 1 for tokens in feeds.values()):
            rounds: list[dict[Hashable, Sequence[int]]] = []
            for index in range(max(map(len, feeds.values()))):
                rounds.append({h: tokens[index : index + 1] for h, tokens in feeds.items() if index < len(tokens)})
        else:
            rounds = [feeds]
        if not self.claims.batches:
            rounds = [{handle: tokens} for part in rounds for handle, tokens in part.items()]
        result: dict[Hashable, Array] = {}
        for part in rounds:
            got = self.guard.call("step", {handle: tuple(tokens) for handle, tokens in part.items()})
            if not hasattr(got, "keys") or set(got.keys()) != set(part):
                raise Misbehaved("shape", self.guard.where(), f"gave {type(got).__name__}; wanted an output for each of {list(part)}")
            result.update({handle: self.guard.array(got[handle], None) for handle in part})
        return result

    def end(self, handle: Hashable, how: str = "finish") -> None:
        """Finish or abort, where the system has it."""
        self.tokens.pop(handle, None)
        if self.guard.has(how):
            self.guard.call(how, handle)

    def edit(self, name: str, handle: Hashable, count: int) -> None:
        """crop, trim, drop or reset."""
        arguments = () if name == "reset" else (count,)
        self.guard.call(name, handle, *arguments)
        held = self.tokens[handle]
        left = {"crop": held[:count], "trim": held[: max(len(held) - count, 0)], "drop": held[count:], "reset": ()}
        self.tokens[handle] = left[name]

    def fork(self, handle: Hashable) -> Hashable:
        """A second request."""
        other: Hashable = self.guard.call("fork", handle)
        if other in self.tokens:
            raise Misbehaved("shape", self.guard.where(), f"gave the handle {other!r} of a running request again")
        self.tokens[other] = self.tokens[handle]
        return other

    def serve(self, request: Request, more: Sequence[int] = (), how: str = "finish") -> Started:
        """One request from start to end, with some steps."""
        one = self.start(request)[0]
        if self.guard.has("step"):
            for token in more:
                self.step({one.handle: [token]})
        self.end(one.handle, how)
        return one


def prompt(lab: Lab, rng: np.random.Generator, n: int, side: int = OWN) -> tuple[int, ...]:
    """n ids of the lower (own) or upper (foreign) half, never the placeholder."""
    half, hole = lab.claims.vocabulary // 2, lab.claims.placeholder
    low, high = (0, half) if side == OWN else (half, lab.claims.vocabulary)
    skip = hole is not None and low <= hole < high
    drawn = rng.integers(low, high - skip, n)
    return tuple(int(t) + (skip and int(t) >= (hole or 0)) for t in drawn)


def cold(lab: Lab, request: Request | Sequence[int], version: int = 0) -> Array:
    """Output of a request given at once to a fresh system."""
    request = request if isinstance(request, Request) else Request(tuple(request))
    key = (request.tokens, request.scope, request.adapter, tuple((m.dtype.str, m.shape, m.tobytes()) for m in request.media), version)
    return np.asarray(lab.once(key, lambda: Session(lab, version).start(request)[0].output))


def exact(lab: Lab) -> float:
    """The control of exact checks: change between two fresh systems with the same history (0 for a deterministic one), with room."""

    def measure() -> float:
        rng = np.random.default_rng(lab.seed)
        tokens = prompt(lab, rng, 5)
        outs = []
        for _ in range(3):
            session = Session(lab)
            one = session.start(Request(tokens))[0]
            more = session.step({one.handle: tokens[:1]})[one.handle] if session.guard.has("step") else one.output
            outs.append(np.concatenate([one.output, more]))
        control = max(change(outs[0], out) for out in outs[1:])
        return 16 * control  # a system that is not deterministic moves by as much again, and by more at times

    return float(lab.once("exact", measure))


def tolerance(lab: Lab) -> float:
    """The control of comparisons with cold outputs, absolute.

    Claimed (times the size of outputs), or measured where nothing foreign has been: the same prompt twice, and in two pieces. At least 256
    units in the last place of the coarsest format that holds the outputs; at most CAP of the effect of one own token, so that a path
    that is
    wrong by itself does not excuse itself.
    """

    def measure() -> float:
        rng = np.random.default_rng([lab.seed, 1])
        tokens = prompt(lab, rng, min(7, lab.claims.longest))
        base = cold(lab, tokens)
        effects, size = [], float(np.abs(base).max())
        for place in range(len(tokens)):
            other = (*tokens[:place], prompt(lab, rng, 1, FOREIGN)[0], *tokens[place + 1 :])
            effects.append(change(base, cold(lab, other)))
        floor = 256 * precision(lab) * max(size, 1e-30)
        if lab.claims.rounding is not None:
            return max(floor, float(lab.claims.rounding) * size)
        session = Session(lab)
        first = session.serve(Request(tokens)).output
        control = max(change(first, base), change(session.serve(Request(tokens)).output, base))
        if session.guard.has("step") and len(tokens) > 3:
            one = session.start(Request(tokens[:3]))[0]
            control = max(control, change(session.step({one.handle: tokens[3:]})[one.handle], base))
        return max(floor, min(8 * control, CAP * float(np.median(effects))))

    return float(lab.once("tolerance", measure))


def precision(lab: Lab) -> float:
    """Unit in the last place of the coarsest format that holds some outputs exactly."""
    rng = np.random.default_rng([lab.seed, 2])
    values = np.concatenate([cold(lab, prompt(lab, rng, n)) for n in (1, 2, 3)])
    with np.errstate(over="ignore"):
        for dtype in ("float16", "float32"):
            if np.array_equal(values.astype(dtype).astype(np.float64), values) and len(np.unique(values)) > 8:
                return float(np.finfo(dtype).eps)
        bits = values.astype(np.float32)
    if np.array_equal(bits.astype(np.float64), values):
        return float(np.finfo("float32").eps)
    return float(np.finfo("float64").eps)


class Worst:
    """The largest of several differences from cold, with words."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.value, self.text = lab, 0.0, ""
        lab.seen = self.measured

    def cold(self, output: Array, request: Request | Sequence[int], text: str, version: int = 0) -> None:
        """Compare with the cold output."""
        wanted = cold(self.lab, request, version)
        if wanted.shape != output.shape:
            raise Misbehaved("shape", text, f"gave an output of shape {list(output.shape)}; cold {list(wanted.shape)}")
        self.take(change(output, wanted), text, "from the same request alone on a fresh system")

    def take(self, off: float, text: str, than: str) -> None:
        """A difference."""
        if off > self.value or not self.text:
            self.value, self.text = off, f"{text}: differs by {off:.3g} {than}"

    def measured(self, threshold: float | None = None) -> Measured:
        """Against the tolerance of cold outputs, or the control of exact checks."""
        return Measured(self.value, tolerance(self.lab) if threshold is None else threshold, self.text)


def sizes(**ranges: tuple[int, int]) -> Any:
    """Cases: a seed and numbers within ranges (both ends included); lengths stop at `longest`. Names that begin with n are lengths."""

    def make(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
        for index in range(effort):
            case: Case = {"seed": int(rng.integers(2**31))}
            top = lab.claims.longest - 12
            for name, (low, high) in ranges.items():
                high = max(low, min(high, top // 2) if name.startswith("n") else high)
                case[name] = int(rng.integers(low, high + 1))
            if index == 3 and "n" in ranges and top > 300:
                case["n"] = 277  # beyond position 256, a prime
            yield case

    return make


def drawn(lab: Lab, case: Case, *sides: tuple[int, int]) -> list[tuple[int, ...]]:
    """Prompts of a case: (length, side) each."""
    rng = np.random.default_rng([case["seed"], 3])
    return [prompt(lab, rng, n, side) for n, side in sides]


# -- at the same time -----------------------------------------------------------------------------------------------------------


def together(lab: Lab, case: Case) -> Measured:
    """C201: others in the batch change, this request does not."""
    own, other, changed, steps = drawn(lab, case, (case["n"], OWN), (case["n_other"], FOREIGN), (case["n_other"], FOREIGN), (3, OWN))
    outs = []
    for tokens in (other, changed):
        session = Session(lab)
        a, b = session.start(Request(own), Request(tokens))
        seen = [a.output]
        if session.guard.has("step"):
            for index, token in enumerate(steps):
                seen.append(session.step({a.handle: [token], b.handle: [tokens[index % len(tokens)]]})[a.handle])
        outs.append(np.concatenate(seen))
    moved = change(*outs)
    return Measured(moved, exact(lab), f"a request of {len(own)} tokens moved by {moved:.3g} when the other's {len(other)} tokens changed")


def mixed(lab: Lab, case: Case) -> Measured:
    """C202: several of other lengths at once, each as if alone."""
    other = case["n_other"] + 2 * (case["n_other"] == case["n"])  # equal lengths need no padding
    lengths = [(case["n"], OWN), (other, FOREIGN), (case["n_third"], OWN)][: lab.claims.capacity]
    prompts = drawn(lab, case, *lengths)
    session, worst = Session(lab), Worst(lab)
    runs = session.start(*map(Request, prompts))
    for run, tokens in zip(runs, prompts, strict=True):
        worst.cold(run.output, tokens, f"{len(tokens)} tokens among requests of {[len(p) for p in prompts]}")
    if session.guard.has("step"):
        for index in range(2):
            outs = session.step({run.handle: [tokens[index % len(tokens)]] for run, tokens in zip(runs, prompts, strict=True)})
            for run in runs:
                tokens = session.tokens[run.handle]
                worst.cold(outs[run.handle], tokens, f"step {index + 1} to {len(tokens)} tokens among {len(runs)}")
    return worst.measured()


def joining(lab: Lab, case: Case) -> Measured:
    """C203: one starts while another runs, one leaves, one takes its place: each as if alone."""
    first, second, third, steps = drawn(lab, case, (case["n"], OWN), (case["n_other"], FOREIGN), (case["n_third"], OWN), (4, OWN))
    session, worst = Session(lab), Worst(lab)

    def step(*handles: Hashable, token: int) -> None:
        for handle, out in session.step({handle: [token] for handle in handles}).items():
            worst.cold(out, session.tokens[handle], f"{len(session.tokens[handle])} tokens, with {len(handles) - 1} others")

    a = session.start(Request(first))[0]
    step(a.handle, token=steps[0])
    b = session.start(Request(second))[0]
    worst.cold(b.output, second, f"a request of {len(second)} tokens that joins a running one")
    step(a.handle, b.handle, token=steps[1])
    session.end(a.handle)
    step(b.handle, token=steps[2])
    c = session.start(Request(third))[0]
    worst.cold(c.output, third, f"a request of {len(third)} tokens that joins after another left")
    step(b.handle, c.handle, token=steps[3])
    return worst.measured()


def twins(lab: Lab, case: Case) -> Measured:
    """C204: the same prompt twice at the same time, going on differently; one ends, the other goes on."""
    tokens, steps = drawn(lab, case, (case["n"], OWN), (5, OWN))
    others = drawn(lab, {"seed": case["seed"] + 1}, (5, FOREIGN))[0]
    session, worst = Session(lab), Worst(lab)
    a, b = session.start(Request(tokens), Request(tokens))
    for run in (a, b):
        worst.cold(run.output, tokens, "one of two equal prompts")
    if session.guard.has("step"):
        for index in range(2):
            outs = session.step({a.handle: [steps[index]], b.handle: [others[index]]})
            for run in (a, b):
                worst.cold(outs[run.handle], session.tokens[run.handle], f"step {index + 1} after two equal prompts")
        session.end(b.handle, ("finish", "abort")[case["seed"] % 2])
        if lab.claims.joins:
            late = session.start(Request(others))[0]
            worst.cold(late.output, others, "a request after one of two equal prompts ended")
        for index in range(2, 4):
            out = session.step({a.handle: [steps[index]]})[a.handle]
            worst.cold(out, session.tokens[a.handle], "one of two equal prompts, after the other ended")
    return worst.measured()


def order(lab: Lab, case: Case) -> Measured:
    """C219: steps of some requests, in any order, leave nothing behind for those that were not in it."""
    prompts = drawn(lab, case, (case["n"], OWN), (case["n_other"], FOREIGN), (2, OWN))[: lab.claims.capacity]
    session, worst = Session(lab), Worst(lab)
    runs = session.start(*map(Request, prompts))
    rng = np.random.default_rng(case["seed"])
    for _ in range(5):
        some = [runs[i] for i in rng.permutation(len(runs))[: rng.integers(1, len(runs) + 1)]]
        outs = session.step({run.handle: [int(rng.choice(prompts[0]))] for run in some})
        for run in some:
            worst.cold(outs[run.handle], session.tokens[run.handle], f"a step with {len(some)} of {len(runs)} requests")
    return worst.measured()


# -- one after another -----------------------------------------------------------------------------------------------------------


def earlier(lab: Lab, case: Case) -> Measured:
    """C205: what ended requests said, behind a shared beginning or without one, does not matter."""
    shared, own, steps = drawn(lab, case, (case["n_shared"], OWN), (case["n"], OWN), (2, OWN))
    outs = []
    for variant in (0, 1):
        rng = np.random.default_rng([case["seed"], 4 + variant])
        session = Session(lab)
        for _ in range(case["count"]):
            session.serve(Request((*shared, *prompt(lab, rng, case["n_other"], FOREIGN))), prompt(lab, rng, 3, FOREIGN))
        one = session.start(Request((*shared, *own)))[0]
        seen = [one.output]
        if session.guard.has("step"):
            seen += [session.step({one.handle: [token]})[one.handle] for token in steps]
        outs.append(np.concatenate(seen))
    moved = change(*outs)
    text = f"{len(shared)} shared and {len(own)} own tokens moved by {moved:.3g} when {case['count']} earlier requests said something else"
    return Measured(moved, exact(lab), text)


def every_hit(lab: Lab, case: Case) -> Measured:
    """C206: warm against cold, the kept part of every length."""
    tokens, more, rest = drawn(lab, case, (case["n"], OWN), (3, OWN), (4, FOREIGN))
    worst = Worst(lab)
    for length in range(len(tokens) + 1):
        session = Session(lab)
        session.serve(Request(tokens), more)
        tail = rest[: 1 + length % 4]
        asked = (*tokens[:length], *tail)
        worst.cold(session.start(Request(asked))[0].output, asked, f"{length} of {len(tokens)} tokens kept, {len(tail)} new")
    session = Session(lab)
    session.serve(Request(tokens), more)
    longer = (*tokens, *more, *rest)
    for asked in (tokens, (*tokens, *more), longer, longer[:-1]):
        worst.cold(
            session.serve(Request(asked)).output, asked, f"{len(asked)} tokens after a prompt of {len(tokens)} and {len(more)} steps"
        )
    return worst.measured()


def prefix_counts(lab: Lab, case: Case) -> Measured:
    """C207: two beginnings that differ give outputs that differ, also when both are kept."""
    tokens, rest = drawn(lab, case, (case["n"], OWN), (2, FOREIGN))
    other_first = prompt(lab, np.random.default_rng(case["seed"]), 1, FOREIGN)[0]
    reach = lab.claims.reach or len(tokens) + len(rest)
    session, same, text = Session(lab), 0, ""
    session.serve(Request(tokens))
    base = session.serve(Request((*tokens, *rest))).output
    for place in range(len(tokens)):
        if len(tokens) + len(rest) - place > reach:
            continue
        other = (*tokens[:place], other_first, *tokens[place + 1 :])
        if change(cold(lab, (*other, *rest)), cold(lab, (*tokens, *rest))) <= exact(lab):
            continue  # the network itself does not tell them apart
        session.serve(Request(other))
        if change(session.serve(Request((*other, *rest))).output, base) <= exact(lab):
            same, text = same + 1, f"token {place} of a kept beginning of {len(tokens)} has no effect on what follows"
    return Measured(float(same), 0.0, text)


def again(lab: Lab, case: Case, how: str = "finish") -> Measured:
    """C208, C209: the same prompt again and again, each time going on differently, ended as planned or aborted."""
    tokens = drawn(lab, case, (case["n"], OWN))[0]
    session, worst = Session(lab), Worst(lab)
    rng = np.random.default_rng(case["seed"])
    for time in range(3):
        one = session.start(Request(tokens))[0]
        worst.cold(one.output, tokens, f"the same {len(tokens)} tokens for the {('first', 'second', 'third')[time]} time ({how})")
        if session.guard.has("step"):
            for token in prompt(lab, rng, int(rng.integers(1, 4)), FOREIGN):
                out = session.step({one.handle: [token]})[one.handle]
                worst.cold(out, session.tokens[one.handle], "a step behind a prompt that was asked before")
        session.end(one.handle, how)
    longer = (*tokens, *prompt(lab, rng, 2))
    worst.cold(session.start(Request(longer))[0].output, longer, f"the {len(tokens)} tokens and two more")
    return worst.measured()


def aborted(lab: Lab, case: Case) -> Measured:
    """C209."""
    return again(lab, case, "abort")


def evicted(lab: Lab, case: Case) -> Measured:
    """C210: after many others a prompt is asked again; and one that runs all the while is not disturbed."""
    tokens, live = drawn(lab, case, (case["n"], OWN), (case["n_other"], OWN))
    session, worst = Session(lab), Worst(lab)
    rng = np.random.default_rng(case["seed"])
    runs = lab.claims.joins and lab.claims.capacity > 1 and session.guard.has("step")
    running = session.start(Request(live))[0] if runs else None
    session.serve(Request(tokens))
    for index in range(case["count"]):
        other = prompt(lab, rng, int(rng.integers(1, case["n_other"] + 1)), FOREIGN)
        worst.cold(session.serve(Request(other)).output, other, f"request {index + 1} of many")
        if running is not None and len(session.tokens[running.handle]) < lab.claims.longest:
            out = session.step({running.handle: [tokens[0]]})[running.handle]
            worst.cold(out, session.tokens[running.handle], f"a request that runs while {index + 1} others come and go")
    worst.cold(session.serve(Request(tokens)).output, tokens, f"{len(tokens)} tokens again after {case['count']} others")
    return worst.measured()


# -- edits -------------------------------------------------------------------------------------------------------------------------


def forks(lab: Lab, case: Case) -> Measured:
    """C211: after a fork each side goes on alone."""
    tokens, left, right = drawn(lab, case, (case["n"], OWN), (3, OWN), (3, FOREIGN))
    session, worst = Session(lab), Worst(lab)
    one = session.start(Request(tokens))[0].handle
    two = session.fork(one)
    for index in range(2):
        for handle, token in ((one, left[index]), (two, right[index])):
            out = session.step({handle: [token]})[handle]
            worst.cold(out, session.tokens[handle], f"{('the forked', 'the new')[handle == two]} request, step {index + 1}")
    session.end(one)
    out = session.step({two: [right[2]]})[two]
    worst.cold(out, session.tokens[two], "the new request after the forked one ended")
    return worst.measured()


def editing(name: str) -> Any:
    """C212 to C215: crop, trim, drop or reset, then new tokens: as a request of what is left."""

    def measure(lab: Lab, case: Case) -> Measured:
        tokens, more = drawn(lab, case, (case["n"], OWN), (2, FOREIGN))
        n, worst = len(tokens), Worst(lab)
        counts = {"crop": range(lab.claims.shortest_crop, n + 1), "trim": range(n + 3), "drop": range(n), "reset": range(1)}[name]
        if name == "trim" and lab.claims.shortest_crop:
            counts = range(max(n - lab.claims.shortest_crop, 0) + 1)
        for count in counts:
            session = Session(lab)
            handle = session.start(Request(tokens))[0].handle
            session.edit(name, handle, count)
            text = f"{name}({count if name != 'reset' else ''}) of {n} tokens, then new ones"
            for token in more:
                worst.cold(session.step({handle: [token]})[handle], session.tokens[handle], text)
            if name == "drop" and count:
                session.edit(name, handle, 1)
                worst.cold(session.step({handle: [more[0]]})[handle], session.tokens[handle], f"{text}, and drop(1)")
        return worst.measured()

    return measure


# -- keys -----------------------------------------------------------------------------------------------------------------------------


def pair_cases(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
    """One case for each sort of pair."""
    for _ in range(max(1, effort // 4)):
        seed = int(rng.integers(2**31))
        for index, (_, one, _) in enumerate(pairs(lab.claims, np.random.default_rng(seed))):
            # With the least effort a third of the pairs of mere texts is enough: `keys_differ` and the other checks have them too.
            if effort > 1 or one.media or one.adapter or one.scope or rng.random() < 1 / 3:
                yield {"seed": seed, "index": index}


def must_differ(lab: Lab, case: Case) -> Measured:
    """C216: a request after another that looks like it: as if the other had not been."""
    text, first, second = pairs(lab.claims, np.random.default_rng(case["seed"]))[case["index"]]
    session, worst = Session(lab), Worst(lab)
    session.serve(first)
    worst.cold(session.serve(second).output, second, f"{second} after {first} ({text})")
    return worst.measured()


def keys_differ(lab: Lab, case: Case) -> Measured:
    """C217: two requests that must differ have two keys."""
    text, first, second = pairs(lab.claims, np.random.default_rng(case["seed"]), True)[case["index"]]
    guard = lab.system()
    same = guard.call("key", first) == guard.call("key", second)
    return Measured(float(same), 0.0, f"{first} and {second} have one key ({text})")


def key_pair_cases(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
    """As `pair_cases`, with scopes."""
    for _ in range(effort):
        seed = int(rng.integers(2**31))
        for index in range(len(pairs(lab.claims, np.random.default_rng(seed), True))):
            yield {"seed": seed, "index": index}


def width_cases(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
    """Many texts, many pictures."""
    count = 1500 if effort <= 2 else 20000
    yield {"seed": int(rng.integers(2**31)), "count": count // 5, "media": False}
    if lab.claims.placeholder is not None:
        yield {"seed": int(rng.integers(2**31)), "count": count, "media": True}


def width(lab: Lab, case: Case) -> Measured:
    """C218: many requests have as many keys; and digests vary in enough bits for many more."""
    rng = np.random.default_rng(case["seed"])
    guard, claims = lab.system(), lab.claims
    seen: dict[Hashable, int] = {}
    collisions = 0
    base = prompt(lab, rng, 3)
    for index in range(case["count"]):
        if case["media"]:
            media = np.frombuffer(f"picture {index:022d}".encode(), np.uint8).reshape(claims.shapes[0])
            request = Request((*base, claims.placeholder), media=(media,))
        else:
            ids = claims.vocabulary - (claims.placeholder is not None)
            digits = [index // ids**power % ids for power in range(4)]
            request = Request((*base, *(d + (claims.placeholder is not None and d >= claims.placeholder) for d in digits)))
        collisions += seen.setdefault(guard.call("key", request), index) != index
    keys = list(seen)
    varying = varying_bits(keys)
    kind = "pictures" if case["media"] else "prompts"
    if collisions:
        return Measured(float(collisions), 0.0, f"{collisions} of {case['count']} {kind} have the key of another")
    return Measured(
        float(max(KEY_BITS - varying, 0)), 0.0, f"{varying} bits of the key vary over {case['count']} {kind}; wanted {KEY_BITS}"
    )


def varying_bits(keys: list[Any]) -> int:
    """Bits that differ somewhere among digests of one length; KEY_BITS where a key is no digest but says everything.

    >>> varying_bits([3, 5]), varying_bits(["00ff", "0f00"]), varying_bits([(1, 2), (3,)])
    (2, 12, 60)
    """

    def number(key: Any) -> int | None:
        if isinstance(key, bool):
            return None
        if isinstance(key, int):
            return key
        if isinstance(key, bytes):
            return int.from_bytes(key)
        if isinstance(key, str):
            try:
                return int(key, 16)
            except ValueError:
                return None
        return None

    numbers = [number(key) for key in keys]
    if len(numbers) < 2 or any(n is None for n in numbers):
        return KEY_BITS
    union = 0
    for n in numbers:
        union |= int(n or 0) ^ int(numbers[0] or 0)
    return union.bit_count()


def scopes(lab: Lab, case: Case) -> Measured:
    """C220: nothing of one scope is reused in another, so that work tells nothing of it; with the right guess or a wrong one."""
    tokens, wrong, rest = drawn(lab, case, (case["n"], OWN), (case["n"], FOREIGN), (1, FOREIGN))
    session = Session(lab)
    session.serve(Request(tokens, scope="victim"))
    reused = {}
    for name, guess in (("wrong", wrong), ("right", tokens)):
        for scope in ("prober", ""):
            got = session.serve(Request((*guess, *rest), scope=scope)).reused
            if got is None:
                raise NotApplicable("does not tell how much it reused")
            # A prober's own first question must not help its second: each scope asks once.
            reused[name, scope] = int(got)
    right = max(reused["right", "prober"], reused["right", ""])
    text = f"{right} of {len(tokens)} tokens of another scope were reused"
    return Measured(float(max(reused.values())), 0.0, text)


def updated(lab: Lab, case: Case) -> Measured:
    """C221: after other weights, what the old ones left is not used; and after the old ones again, what the new ones left."""
    tokens, rest = drawn(lab, case, (case["n"], OWN), (2, FOREIGN))
    session, worst = Session(lab), Worst(lab)
    for version in (0, 1, 0, 2):
        session.guard.call("update", version)
        for asked in ((*tokens, *rest), tokens):
            worst.cold(
                session.serve(Request(asked)).output, asked, f"{len(asked)} tokens after the weights became version {version}", version
            )
    return worst.measured()


# -- books ----------------------------------------------------------------------------------------------------------------------------


def own_memory(lab: Lab, case: Case) -> Measured:
    """C222: a returned output is not written to by later calls, and writing to it changes nothing."""
    tokens, other = drawn(lab, case, (case["n"], OWN), (3, FOREIGN))
    session = Session(lab)
    one = session.guard.call("start", [Request(tokens)])[0]
    kept = np.asarray(one.output)
    before = np.array(kept, np.float64)
    session.tokens[one.handle] = tokens
    raw = session.guard.call("step", {one.handle: (other[0],)})[one.handle] if session.guard.has("step") else kept
    if not lab.claims.joins or lab.claims.capacity < 2:
        session.end(one.handle)
    again = session.start(Request(other))[0]
    worst = Worst(lab)
    worst.take(change(before, np.array(kept, np.float64)), "a returned output", "after later calls")
    session.end(again.handle)
    for array in (kept, np.asarray(raw)):
        if array.flags.writeable:
            array[...] = 5
    if one.handle in session.tokens:
        session.end(one.handle)
    off = change(session.start(Request(tokens))[0].output, cold(lab, tokens))
    if off > tolerance(lab):
        worst.take(off, "a prompt after its returned output was written to", "from cold")
    return worst.measured(0.0)


def chunks(lab: Lab, case: Case) -> Measured:
    """C223: alone, in pieces of any size: as in one."""
    tokens = drawn(lab, case, (case["n"] + 2, OWN))[0]
    rng, worst = np.random.default_rng(case["seed"]), Worst(lab)
    for largest in (1, 3, len(tokens)):
        session = Session(lab)
        begin = int(rng.integers(1, min(len(tokens), largest + 1)))
        handle = session.start(Request(tokens[:begin]))[0].handle
        pieces = [begin]
        while begin < len(tokens):
            end = min(len(tokens), begin + int(rng.integers(1, largest + 1)))
            pieces.append(end - begin)
            worst.cold(session.step({handle: tokens[begin:end]})[handle], tokens[:end], f"{end} tokens fed in pieces of {pieces}")
            begin = end
    return worst.measured()


def lengths(lab: Lab, case: Case) -> Measured:
    """C224: a request holds as many tokens as it was given, whatever was kept."""
    tokens, more = drawn(lab, case, (case["n"], OWN), (3, FOREIGN))
    session, off, text = Session(lab), 0, ""
    for _ in range(3):
        handle = session.start(Request(tokens))[0].handle
        for token in more:
            held = session.guard.call("length", handle)
            if held != len(session.tokens[handle]) and not off:
                off = abs(int(held) - len(session.tokens[handle]))
                text = f"a request of {len(session.tokens[handle])} tokens holds {held}"
            if session.guard.has("step"):
                session.step({handle: [token]})
        session.end(handle)
    return Measured(float(off), 0.0, text)


def room(lab: Lab, case: Case) -> Measured:
    """C225: when nothing runs there is as much room as at first."""
    session = Session(lab)
    rng = np.random.default_rng(case["seed"])
    first = session.guard.call("available")
    for index in range(case["count"]):
        count = min(2, lab.claims.capacity)
        runs = session.start(*(Request(prompt(lab, rng, case["n"], side)) for side in (OWN, FOREIGN)[:count]))
        for number, run in enumerate(runs):
            session.end(run.handle, ("finish", "abort")[(number + index) % 2] if session.guard.has("abort") else "finish")
    left = session.guard.call("available")
    return Measured(float(abs(first - left)), 0.0, f"{first} free at first, {left} after {case['count']} rounds in which all ended")


def same_bits(lab: Lab, case: Case) -> Measured:
    """C226: with the claim `exact`, warm, mixed and chunked outputs have the bits of the cold one."""
    tokens, other, rest = drawn(lab, case, (case["n"], OWN), (case["n_other"], FOREIGN), (3, OWN))
    session, worst = Session(lab), Worst(lab)
    run = session.start(Request(tokens), Request(other))[0] if lab.claims.batches else session.start(Request(tokens))[0]
    worst.cold(run.output, tokens, "a request among others")
    longer = (*tokens, *rest)
    if session.guard.has("step"):
        worst.cold(session.step({run.handle: rest})[run.handle], longer, "a request in pieces")
    session.end(run.handle)
    worst.cold(session.start(Request(longer))[0].output, longer, "a warm request")
    return worst.measured(0.0)


def histories(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
    """Random histories: (what, which, size) each."""
    for _ in range(effort):
        count = int(rng.integers(6, 10 + 3 * min(effort, 8)))
        moves = tuple((int(rng.integers(10)), int(rng.integers(7)), int(rng.integers(1, 8))) for _ in range(count))
        yield {"seed": int(rng.integers(2**31)), "moves": moves}


def history(lab: Lab, case: Case) -> Measured:
    """C227: any sequence of starts, steps, forks, crops and ends: every output as cold."""
    session, worst = Session(lab), Worst(lab)
    claims, guard = session.claims, session.guard
    rng = np.random.default_rng(case["seed"])
    pool = [prompt(lab, rng, 9, side) for side in (OWN, FOREIGN)] + [prompt(lab, rng, 5)]
    pool.append((*pool[0][:4], *pool[2]))  # shares a beginning with the first
    done: list[str] = []
    for what, which, size in case["moves"]:
        live = list(session.tokens)
        handle = live[which % len(live)] if live else None
        if what <= 3 or handle is None:
            if len(live) >= claims.capacity or (live and not claims.joins):
                continue
            tokens = pool[which % len(pool)][: max(1, size)]
            done.append(f"start {len(tokens)} of prompt {which % len(pool)}")
            worst.cold(session.start(Request(tokens))[0].output, tokens, ", ".join(done))
        elif what <= 6 and guard.has("step"):
            feeds = {h: pool[(which + i) % len(pool)][size % 5 : size % 5 + 1 + size % 2] for i, h in enumerate(live[: 1 + size % 3])}
            feeds = {h: tokens for h, tokens in feeds.items() if len(session.tokens[h]) + len(tokens) <= claims.longest and tokens}
            if feeds:
                done.append(f"step {[live.index(h) for h in feeds]}")
                for h, out in session.step(dict(feeds)).items():
                    worst.cold(out, session.tokens[h], ", ".join(done))
        elif what == 7 and guard.has("fork") and guard.has("step") and len(live) < claims.capacity and claims.joins:
            done.append("fork")
            session.fork(handle)
        elif what == 8 and guard.has("crop") and guard.has("step") and session.tokens[handle]:
            length = max(claims.shortest_crop, size % (len(session.tokens[handle]) + 1))
            done.append(f"crop {length}")
            session.edit("crop", handle, min(length, len(session.tokens[handle])))
        elif what == 9:
            how = "abort" if size % 2 and guard.has("abort") else "finish"
            done.append(how)
            session.end(handle, how)
    return worst.measured()


# -- what applies ----------------------------------------------------------------------------------------------------------------------


def _joins(claims: CacheClaims) -> str:
    return "" if claims.joins and claims.capacity > 1 else "nothing may start while a request runs"


def _batch(claims: CacheClaims) -> str:
    return "" if claims.batches and claims.capacity > 1 else "takes one request at a time"


def _drops(claims: CacheClaims) -> str:
    return "" if claims.drop_recomputes else "the rest after drop is not claimed to be as if fed alone"


def _scopes(claims: CacheClaims) -> str:
    return "" if claims.scopes else "does not claim scopes"


def _exact(claims: CacheClaims) -> str:
    return "" if claims.exact else "does not claim the same bits"


def _any(claims: CacheClaims) -> str:
    return ""


LEAST = {"n": 1, "n_other": 1, "n_third": 1, "n_shared": 0, "count": 1}


def _check(rule: str, measure: Any, made: Any, title: str, reason: str, needs: str = "", applies: Any = _any) -> Check:
    return Check(rule, "cache", title, reason, made, measure, ("start", *needs.split()), applies, {**LEAST, "moves": 1})


ONE = sizes(n=(2, 9))
CHECKS = [
    _check(
        "C201",
        together,
        sizes(n=(1, 9), n_other=(1, 9)),
        "foreign values at once",
        "others in the batch change, this one must not",
        "",
        _batch,
    ),
    _check(
        "C202",
        mixed,
        sizes(n=(1, 9), n_other=(1, 9), n_third=(1, 5)),
        "alone against mixed",
        "a request must be the same alone and among others",
        "",
        _batch,
    ),
    _check(
        "C203",
        joining,
        sizes(n=(1, 7), n_other=(1, 7), n_third=(1, 5)),
        "joining and leaving",
        "starts and ends of others must not matter",
        "step finish",
        _joins,
    ),
    _check("C204", twins, ONE, "equal prompts at once", "two requests with one prompt must go on alone", "", _batch),
    _check(
        "C205",
        earlier,
        sizes(n=(1, 5), n_other=(1, 9), n_shared=(0, 7), count=(1, 5)),
        "foreign values before",
        "what ended requests said must not matter",
    ),
    _check("C206", every_hit, ONE, "warm against cold", "a kept beginning of any length must give what a full pass gives"),
    _check("C207", prefix_counts, ONE, "kept beginning counts", "what follows must depend on every kept token"),
    _check("C208", again, ONE, "again after finish", "a prompt must give the same every time"),
    _check("C209", aborted, ONE, "again after abort", "an aborted request must leave nothing wrong behind", "abort"),
    _check(
        "C210",
        evicted,
        sizes(n=(2, 9), n_other=(2, 7), count=(3, 9)),
        "again after many others",
        "eviction must take what nobody uses, and all of it",
    ),
    _check("C211", forks, ONE, "fork", "both sides of a fork must go on alone", "fork step", _joins),
    _check("C212", editing("crop"), ONE, "crop", "a cropped request must be one of its first tokens", "crop step"),
    _check("C213", editing("trim"), ONE, "trim", "a trimmed request must be one of what is left, down to nothing", "trim step"),
    _check("C214", editing("drop"), ONE, "drop", "a request without its first tokens must stand at the front", "drop step", _drops),
    _check("C215", editing("reset"), ONE, "reset", "a reset request must be an empty one", "reset step"),
    _check("C216", must_differ, pair_cases, "requests that look alike", "a request must not get what another left"),
    _check("C217", keys_differ, key_pair_cases, "keys that look alike", "requests that differ must have keys that differ", "key"),
    _check("C218", width, width_cases, "width of keys", "keys must be wide enough never to meet by chance", "key"),
    _check(
        "C219",
        order,
        sizes(n=(1, 7), n_other=(1, 7)),
        "steps of some",
        "a step must leave nothing behind for those not in it",
        "step",
        _batch,
    ),
    _check("C220", scopes, ONE, "scopes", "work must not tell what another scope asked", "", _scopes),
    _check("C221", updated, ONE, "other weights", "what other weights left must not be used", "update"),
    _check("C222", own_memory, ONE, "memory of outputs", "a returned output must be memory of its own"),
    _check("C223", chunks, ONE, "pieces", "a prompt in pieces must give what it gives at once", "step"),
    _check("C224", lengths, ONE, "lengths", "a request must hold as many tokens as it was given", "length"),
    _check("C225", room, sizes(n=(1, 9), count=(1, 5)), "room", "all room must come back", "available finish"),
    _check(
        "C226", same_bits, sizes(n=(2, 9), n_other=(1, 9)), "same bits", "claimed: any way to an output gives the same bits", "", _exact
    ),
    _check("C227", history, histories, "any history", "any sequence of calls must give what cold requests give"),
]
