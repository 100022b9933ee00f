"""Checks of a pool of blocks, rules P301 to P313: random sequences of calls beside a model that has a list for each request.

A sequence is a list of (what, which, size), read against the state that the model has at that point, so that every call is allowed
and there
is always room by the most careful count (no sharing, one block for each copy). So any sub-list is a sequence too, and a failing one
shrinks.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.battery.check import Case, Check, Lab, Measured
from labcore.battery.guard import Guard, Misbehaved, NotApplicable
from labcore.battery.interfaces import PoolClaims

Array = NDArray[Any]
Op = tuple[str, int, int]


class Model:
    """The pool beside its specification. slots: request -> values written, None where nothing was. wrong, text: what has been seen."""

    def __init__(self, lab: Lab) -> None:
        self.claims: PoolClaims = lab.claims
        lab.seen = lambda: Measured(self.wrong, 0.0, self.text)
        self.guard: Guard = lab.system()
        self.slots: dict[Hashable, list[float | None]] = {}
        self.tokens: dict[Hashable, tuple[int, ...]] = {}  # of requests whose values follow from their tokens
        self.published: list[tuple[int, ...]] = []
        self.flying: list[tuple[Any, Hashable, int, float]] = []
        self.owed: dict[Hashable, int] = {}  # blocks of ended requests that writes in flight may hold
        self.next = 0
        self.value = 0.0
        self.wrong, self.text, self.done = 0.0, "", []  # type: float, str, list[str]
        self.counted = self.guard.has("available") and self.claims.exact_available

    def blocks(self, slots: int) -> int:
        return -(-slots // self.claims.block)

    def held(self) -> int:
        """Blocks in use by the most careful count."""
        return sum(self.blocks(len(s)) for s in self.slots.values()) + len(self.flying) + sum(self.owed.values())

    def say(self, wrong: float, text: str) -> None:
        """Something is wrong; the first stays."""
        if wrong and not self.wrong:
            last = self.done[-12:]
            self.wrong, self.text = wrong, f"{text}, after {'... ' if len(last) < len(self.done) else ''}{', '.join(last)}"

    def fresh(self) -> float:
        """A value that no slot has had."""
        self.value += 1.0
        return self.value

    def content(self, tokens: tuple[int, ...]) -> float:
        """The value of the last of some tokens: another for all other beginnings."""
        number = 0
        for token in tokens:
            number = (number * 1000003 + token + 7) % 2147483647
        return -1.0 - number

    def call(self, name: str, *arguments: Any) -> Any:
        """A call that must succeed."""
        shown = [a.tolist()[0] if isinstance(a, np.ndarray) else a for a in arguments]
        self.done.append(f"{name}({', '.join(map(str, shown))})")
        try:
            return self.guard.call(name, *arguments, expect=(MemoryError,))
        except MemoryError:
            self.say(1.0, f"refused for want of room with {self.held()} of {self.claims.capacity} blocks in use")
            return None

    def vector(self, value: float) -> Array:
        return np.full(self.claims.width, value)

    # -- what may be done

    def allocate(self, request: Hashable, count: int, spare: int = 1) -> None:
        if self.held() + self.blocks(count) + spare <= self.claims.capacity:
            self.call("allocate", request, count)
            self.slots.setdefault(request, []).extend([None] * count)

    def open(self, which: int, size: int) -> None:
        """A new request with its first slots written."""
        request = self.next
        self.next += 1
        count = 1 + size % (2 * self.claims.block + 1)
        self.allocate(request, count)
        if request in self.slots and which % 4:
            for slot in range(count if which % 2 else count // 2):
                self.put(request, slot)

    def churn(self, which: int, size: int) -> None:
        """Fill the pool with small requests and end them out of order: what is free now was somebody's, and lies scattered."""
        rng = np.random.default_rng([which, size])
        mine = []
        while self.held() < self.claims.capacity:
            request, self.next = self.next, self.next + 1
            self.allocate(request, 1 + int(rng.integers(self.claims.block)), 0)
            self.put(request, 0)
            mine.append(request)
        for index in rng.permutation(len(mine)):
            self.end(mine[index], "free")

    def crowd(self, which: int, size: int) -> None:
        """Requests that stay, in most of the pool."""
        while self.held() + 6 < self.claims.capacity:
            self.open(1, which % (2 * self.claims.block))

    def extend(self, which: int, size: int) -> None:
        request = self.pick(which)
        if request is not None and request not in self.tokens and not self.busy(request):
            self.allocate(request, 1 + size % self.claims.block)

    def write(self, which: int, size: int) -> None:
        request = self.pick(which)
        # A copy may need a block.
        if request is None or self.busy(request) or not self.slots[request]:
            return
        if self.held() + self.copies() < self.claims.capacity:
            slot = size % len(self.slots[request])
            unwritten = [s for s, value in enumerate(self.slots[request]) if value is None]
            self.put(request, min(slot, *unwritten, slot) if self.claims.in_order else slot)
            self.tokens.pop(request, None)

    def busy(self, request: Hashable) -> bool:
        """A write of it is in flight and nothing else may touch it."""
        return self.claims.launch_appends and any(owner == request for _, owner, _, _ in self.flying)

    def copies(self) -> int:
        return len(self.slots) if self.guard.has("share") or self.guard.has("match") else 0

    def put(self, request: Hashable, slot: int) -> None:
        value = self.fresh()
        self.call("write", request, slot, self.vector(value))
        self.slots[request][slot] = value

    def free(self, which: int, size: int) -> None:
        self.end(self.pick(which), "free")

    def abort(self, which: int, size: int) -> None:
        self.end(self.pick(which), "abort")

    def end(self, request: Hashable, how: str) -> None:
        if request is not None:
            self.call(how, request)
            slots = self.slots.pop(request)
            self.tokens.pop(request, None)
            if any(owner == request for _, owner, _, _ in self.flying):
                self.owed[request] = self.blocks(len(slots))

    def share(self, which: int, size: int) -> None:
        source = self.pick(which)
        if source is None or not self.slots[source]:
            return
        count = 1 + size % len(self.slots[source])
        if self.claims.in_order:
            count = min(count, sum(value is not None for value in self.slots[source]))
        if not self.claims.part_blocks:
            count -= count % self.claims.block
        if any(owner == source for _, owner, _, _ in self.flying):
            return  # whether a write in flight reaches both is nobody's promise
        if count and self.held() + self.blocks(count) + 1 <= self.claims.capacity:
            target, self.next = self.next, self.next + 1
            self.call("share", source, target, count)
            self.slots[target] = list(self.slots[source][:count])

    def prompt(self, which: int, size: int) -> tuple[int, ...]:
        """One of a few prompts that share beginnings."""
        rng = np.random.default_rng(which % 5)
        base = [int(t) for t in rng.integers(0, 3, 3 * self.claims.block)]
        base = [7] * (self.claims.block if which % 2 else 0) + base
        length = self.claims.block + size % (2 * self.claims.block)
        # Some end in zeros: as what is not written might be taken for.
        return tuple(base[:length] if which % 7 else [*base[: length - 1], *[0] * self.claims.block])

    def serve(self, which: int, size: int) -> None:
        """Match a prompt, compute the rest, publish all of it, and go on or end."""
        tokens = self.prompt(which, size)
        if self.held() + self.blocks(len(tokens)) + 1 > self.claims.capacity:
            return
        request, self.next = self.next, self.next + 1
        found = self.call("match", request, tokens)
        if isinstance(found, bool) or not isinstance(found, int | np.integer) or not 0 <= found <= len(tokens):
            raise Misbehaved("shape", self.guard.where(), f"gave {found!r}; wanted 0 to {len(tokens)}")
        known = max((common(tokens, other) for other in self.published), default=0)
        if found > known:
            self.say(float(found - known), f"match gave {found} slots of {list(tokens)}; only {known} were ever published")
        self.slots[request] = [self.content(tokens[: slot + 1]) for slot in range(found)]
        self.tokens[request] = tokens
        self.check(request)
        if len(tokens) > found:
            self.call("allocate", request, len(tokens) - found)
            self.slots[request] += [None] * (len(tokens) - found)
            for slot in range(int(found), len(tokens)):
                value = self.content(tokens[: slot + 1])
                self.call("write", request, slot, self.vector(value))
                self.slots[request][slot] = value
        self.call("publish", request, tokens)
        self.published.append(tokens)
        if size % 3 == 0:
            self.end(request, "free")

    def launch(self, which: int, size: int) -> None:
        request = self.pick(which)
        if request is None or not self.slots[request] or self.held() + self.copies() + 1 >= self.claims.capacity:
            return
        slot = size % len(self.slots[request])
        if self.claims.launch_appends:
            if self.busy(request) or None in self.slots[request]:
                return
            slot = len(self.slots[request])
            self.slots[request].append(None)
        if any(owner == request and at == slot for _, owner, at, _ in self.flying):
            return  # two writes in flight to one slot may land in either order
        value = self.fresh()
        ticket = self.call("launch", request, slot, self.vector(value))
        self.tokens.pop(request, None)
        self.slots[request][slot] = None  # old or new until it lands
        self.flying.append((ticket, request, slot, value))

    def land(self, which: int, size: int) -> None:
        if self.flying:
            ticket, request, slot, value = self.flying.pop(which % len(self.flying))
            self.call("land", ticket)
            if request in self.slots:
                self.slots[request][slot] = value
            if not any(owner == request for _, owner, _, _ in self.flying):
                self.owed.pop(request, None)

    def expire(self, which: int, size: int) -> None:
        """Time passes; and then one comes all the same."""
        if self.guard.has("expire"):
            self.call("expire")
            late = [item for item in self.flying if item[1] not in self.slots]
            for _, request, slot, _ in self.flying:
                if request in self.slots and self.claims.launch_appends:
                    del self.slots[request][slot:]  # it never came to be
            self.flying.clear()
            self.owed.clear()
            self.open(1, size)
            for ticket, *_ in late[:1]:
                self.call("land", ticket)

    def pick(self, which: int) -> Hashable | None:
        live = list(self.slots)
        return live[which % len(live)] if live else None

    # -- what must hold

    def check(self, request: Hashable) -> None:
        """A request reads what it wrote."""
        want = self.slots[request]
        written = [slot for slot, value in enumerate(want) if value is not None]
        if not written or self.wrong:
            return
        count = written[-1] + 1
        raw = self.guard.call("read", request, count)
        if getattr(raw, "ndim", 0) == 2 and len(raw) > count:
            self.say(float(len(raw) - count), f"request {request} asked for {count} slots and reads {len(raw)}")
            return
        got = self.guard.array(raw, (count, self.claims.width), nan=True)
        bad = [slot for slot in written if not (got[slot] == want[slot]).all()]
        if bad:
            self.say(float(len(bad)), f"request {request} reads {got[bad[0], 0]:g} in slot {bad[0]}, where {want[bad[0]]:g} belongs")

    def everything(self) -> None:
        """All requests, and the books."""
        for request in list(self.slots):
            self.check(request)
        if self.counted and not self.wrong:
            free = self.guard.call("available")
            low = self.claims.capacity - self.held()
            if not low <= free <= self.claims.capacity:
                self.say(
                    float(max(low - free, free - self.claims.capacity)),
                    f"{free} blocks are available, at least {low} of {self.claims.capacity} must be",
                )

    def tables(self) -> None:
        """Without sharing, no block stands in two tables."""
        if self.guard.has("table") and not self.wrong:
            seen: dict[int, Hashable] = {}
            for request in self.slots:
                for block in self.guard.call("table", request):
                    if block in seen:
                        self.say(1.0, f"block {block} stands in the tables of {seen[block]} and {request}")
                    seen[int(block)] = request

    def close(self) -> None:
        """All end; every block must be back."""
        for request in list(self.slots):
            self.end(request, "free")
        if self.guard.has("expire") and (self.flying or self.owed):
            self.call("expire")
        else:
            while self.flying:
                self.land(0, 0)
        if self.counted and not self.wrong:
            free = self.guard.call("available")
            self.say(float(abs(self.claims.capacity - free)), f"{free} of {self.claims.capacity} blocks are available when nothing runs")


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Length of the common beginning."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


BASIC = ("open", "open", "extend", "write", "write", "free")
KINDS: dict[str, tuple[str, ...]] = {
    "basic": BASIC,
    "share": (*BASIC, "share", "share", "write"),
    "index": (*BASIC, "serve", "serve", "serve", "free"),
    "abort": (*BASIC, "abort", "abort"),
    "late": (*BASIC, "launch", "launch", "land", "free"),
    "all": (*BASIC, "share", "serve", "serve", "abort", "launch", "land"),
}
NEEDS = {
    "share": "share",
    "index": "publish match",
    "serve": "publish match",
    "abort": "abort",
    "late": "launch land",
    "launch": "launch land",
}
WORDS = {"launch": "launch", "land": "land", "share": "share", "serve": "match", "abort": "abort"}


def sequences(kind: str) -> Any:
    """Random sequences of a kind, longer with effort."""

    def make(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
        names = KINDS[kind]
        for index in range(2 * effort):
            count = int(rng.integers(8, 24 + 8 * min(effort, 12)))
            ops = [(names[int(rng.integers(len(names)))], int(rng.integers(40)), int(rng.integers(40))) for _ in range(count)]
            if index % 2 == 0:  # a fresh pool hides what a fragmented one shows
                ops = [*opening(names, rng, lab.claims.block), *ops]
            elif "serve" in names:
                served: Op = ("serve", int(rng.integers(40)), 3 * int(rng.integers(4)) + 3 * lab.claims.block)
                ops = [served, ("crowd", int(rng.integers(40)), 0), served, *ops]
            yield {"ops": tuple(ops)}

    return make


def opening(names: tuple[str, ...], rng: np.random.Generator, block: int) -> list[Op]:
    """What chance would seldom do: scatter the free blocks; share all and write to either side; publish, press, and ask again."""
    churn: Op = ("churn", int(rng.integers(40)), int(rng.integers(40)))
    ops = [churn, ("open", 1, 2 * block), ("open", 1, 2 * block - 1)]
    if "share" in names:
        ops += [("share", 0, 2 * block), ("write", 2, 0), ("share", 1, 2 * block - 1), ("write", 1, 1), ("write", 3, 2)]
    if "serve" in names:
        which, size = int(rng.integers(20)), 3 * int(rng.integers(4)) + 3 * block
        ended, lives = ("serve", which, size), ("serve", which + 1, size + 1)
        # The same tokens behind another beginning: five further on.
        zeros = next(which + 10 * j for j in range(7) if (which + 10 * j) % 7 == 0)
        padded = [("serve", which, size - 1), ("serve", zeros, size)]
        ops = [lives, ended, churn, ended, ("serve", which + 5, size), *padded, ("crowd", which, 0), ended, *ops[1:]]
    return ops


def replay(lab: Lab, ops: tuple[Op, ...], tables: bool = False) -> Model:
    """The model after a sequence, everything checked after every call, and closed."""
    model = Model(lab)
    for name, which, size in ops:
        if name in WORDS and not model.guard.has(WORDS[name]):
            continue
        getattr(model, name)(which, size)
        if tables:
            model.tables()
        model.everything()
        if model.wrong:
            return model
    model.close()
    return model


def sequence(tables: bool = False) -> Any:
    """P301 to P306: measured by a replay."""

    def measure(lab: Lab, case: Case) -> Measured:
        model = replay(lab, case["ops"], tables)
        return Measured(model.wrong, 0.0, model.text)

    return measure


def small(lab: Lab, rng: np.random.Generator, effort: int) -> Iterator[Case]:
    """One number a case."""
    for index in range(2 * effort):
        yield {"seed": int(rng.integers(2**31)), "count": int(rng.integers(1, 6)), "late": index % 2 == 1}


def stuck(lab: Lab, case: Case) -> Measured:
    """P307: writes in flight whose request is aborted and that never land do not keep their blocks for ever."""
    model = Model(lab)
    if not model.guard.has("expire") and not model.counted:
        raise NotApplicable("no expire() and no exact available()")
    rng = np.random.default_rng(case["seed"])
    how = "abort" if model.guard.has("abort") else "free"
    for _ in range(case["count"]):
        model.open(1, int(rng.integers(40)))
        request = model.pick(0)
        if request is None:
            break
        model.launch(0, int(rng.integers(40)))
        model.end(request, how)
        if model.guard.has("expire"):
            model.call("expire")
        model.flying.clear()
        model.owed.clear()
        model.everything()
        for other in list(model.slots):
            model.end(other, "free")
    if model.counted and not model.wrong:
        free = model.guard.call("available")
        lost = model.claims.capacity - free
        model.say(float(abs(lost)), f"{free} of {model.claims.capacity} blocks are available after {case['count']} aborted writes")
    return Measured(model.wrong, 0.0, model.text)


def overwritten(lab: Lab, case: Case) -> Measured:
    """P308: a write in flight whose request has ended lands in nobody else's slots."""
    model = Model(lab)
    rng = np.random.default_rng(case["seed"])
    for _ in range(case["count"]):
        model.open(1, int(rng.integers(40)))
    while model.slots and not model.wrong:
        request = model.pick(int(rng.integers(9)))
        assert request is not None
        for slot in rng.permutation(len(model.slots[request]))[:3]:
            model.launch(list(model.slots).index(request), int(slot))
        model.end(request, "free")
        for _ in range(2):
            model.open(1, 2 * model.claims.block - 1)  # whole blocks: every slot is somebody's
        model.everything()
        if case["late"]:
            model.expire(0, 0)  # and one comes after its time
        while model.flying and not model.wrong:
            model.land(int(rng.integers(9)), 0)
            model.everything()
        if len(model.done) > 120:
            break
        model.end(model.pick(0), "free")
        model.end(model.pick(0), "free")
    return Measured(model.wrong, 0.0, model.text)


def twice(lab: Lab, case: Case) -> Measured:
    """P309: ending a request twice gives nothing back twice."""
    model = Model(lab)
    rng = np.random.default_rng(case["seed"])
    how = "abort" if model.guard.has("abort") and case["seed"] % 2 else "free"
    for _ in range(2):
        model.open(1, int(rng.integers(40)))
    for _ in range(case["count"]):
        request = model.pick(0)
        if request is None:
            break
        model.end(request, how)
        model.done.append(f"{how}({request}) again")
        try:
            model.guard.call(how, request)
        except Misbehaved as error:
            if error.kind != "raised":
                raise
        model.everything()
        for _ in range(2):
            model.open(1, int(rng.integers(40)))
        model.tables()
        model.everything()
    model.close()
    return Measured(model.wrong, 0.0, model.text)


def refused(lab: Lab, case: Case) -> Measured:
    """P310: a request that is too large is refused, and nothing has changed."""
    model = Model(lab)
    claims, rng = model.claims, np.random.default_rng(case["seed"])
    for _ in range(case["count"]):
        model.open(1, int(rng.integers(40)))
    before = model.guard.call("available") if model.guard.has("available") else None
    big = claims.capacity * claims.block + 1
    for request in ("large", model.pick(0)):
        if request is None:
            continue
        model.done.append(f"allocate({request}, {big})")
        try:
            model.guard.call("allocate", request, big, expect=(MemoryError,))
        except MemoryError:
            pass
        else:
            model.say(1.0, f"{big} slots of {claims.capacity * claims.block} were granted")
        if before is not None and not model.wrong:
            after = model.guard.call("available")
            model.say(float(abs(before - after)), f"{before} blocks were available before a refusal, {after} after it")
    model.everything()
    model.close()
    return Measured(model.wrong, 0.0, model.text)


def residue(lab: Lab, case: Case) -> Measured:
    """P311: slots that a request has not written show nothing that another one wrote."""
    model = Model(lab)
    claims, rng = model.claims, np.random.default_rng(case["seed"])
    for _ in range(case["count"]):
        model.open(1, 2 * claims.block)
    foreign = {value for slots in model.slots.values() for value in slots if value is not None}
    for request in list(model.slots):
        model.end(request, "free")
    seen = 0
    for request in ("new", "newer"):
        count = int(rng.integers(1, 2 * claims.block + 2))
        model.call("allocate", request, count)
        model.call("write", request, 0, model.vector(model.fresh()))
        try:
            got = np.asarray(model.guard.call("read", request, count), np.float64)
        except Misbehaved as error:
            if error.kind != "raised":
                raise
            continue  # refused: right
        seen += sum(1 for value in got[1:].ravel() if value in foreign)
        model.say(float(seen), f"{seen} numbers of ended requests are read in slots that {request!r} has not written")
    return Measured(model.wrong, 0.0, model.text)


def own_memory(lab: Lab, case: Case) -> Measured:
    """P312: what was read is memory of its own, and what was written is copied."""
    model = Model(lab)
    model.allocate("one", 3)
    value = model.vector(model.fresh())
    for slot in range(3):
        model.guard.call("write", "one", slot, value)
    read = np.asarray(model.guard.call("read", "one", 3))
    before = read.copy()
    value[:] = 99.0
    wrote = np.asarray(model.guard.call("read", "one", 3))
    off = float(np.abs(wrote - before).max())
    if read.flags.writeable:
        read[...] = 77.0
    off = max(off, float(np.abs(np.asarray(model.guard.call("read", "one", 3)) - before).max()))
    model.guard.call("write", "one", 1, model.vector(model.fresh()))
    off = max(off, float(np.abs(read - (77.0 if read.flags.writeable else before)).max()))
    return Measured(off, 0.0, f"an array given or returned and the pool's memory are one: changed by {off:.3g}")


def threads(lab: Lab, case: Case) -> Measured:
    """P313: from several threads, every request reads what it wrote, and all blocks come back."""
    model = Model(lab)
    claims, system = model.claims, model.guard.system
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            for turn in range(40):
                name, value = (number, turn), np.full(claims.width, 100.0 * number + turn)
                try:
                    system.allocate(name, 1 + turn % (2 * claims.block))
                except MemoryError:
                    continue
                for slot in range(1 + turn % (2 * claims.block)):
                    system.write(name, slot, value)
                got = np.asarray(system.read(name, 1 + turn % (2 * claims.block)))
                if not (got == value).all():
                    wrong.append(f"request {name} reads {got.ravel()[0]:g}, where {value[0]:g} belongs")
                system.free(name)
        except Exception as error:  # of the system; a thread's exception would be lost
            wrong.append(f"{type(error).__name__}: {error}")

    team = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for member in team:
        member.start()
    for member in team:
        member.join()
    model.say(float(len(wrong)), wrong[0] if wrong else "")
    model.close()
    return Measured(model.wrong, 0.0, model.text)


def _check(rule: str, measure: Any, made: Any, title: str, reason: str, needs: str = "", applies: Any = lambda claims: "") -> Check:
    return Check(
        rule, "pool", title, reason, made, measure, ("allocate", "write", "read", "free", *needs.split()), applies, {"ops": 1, "count": 1}
    )


CHECKS = [
    _check("P301", sequence(True), sequences("basic"), "reads and writes", "a request must read what it wrote, whatever the others do"),
    _check("P302", sequence(), sequences("share"), "sharing", "a write after sharing must reach one side alone", "share"),
    _check(
        "P303", sequence(), sequences("index"), "index", "what is found under tokens must be what was published under them", "publish match"
    ),
    _check("P304", sequence(True), sequences("abort"), "aborts", "blocks of aborted requests must come back, once", "abort"),
    _check(
        "P305", sequence(True), sequences("late"), "writes in flight", "a late write must reach its own request or nobody", "launch land"
    ),
    _check("P306", sequence(), sequences("all"), "any sequence", "all calls together: contents and counts", "available"),
    _check("P307", stuck, small, "writes that never land", "an aborted request must not keep its blocks for ever", "launch land available"),
    _check("P308", overwritten, small, "landing after the end", "a write must not land in slots of the next owner", "launch land"),
    _check("P309", twice, small, "ending twice", "a second end must give nothing back"),
    _check("P310", refused, small, "refusal", "a refused request must change nothing"),
    _check("P311", residue, small, "residue", "unwritten slots must show nothing of the last owner"),
    _check("P312", own_memory, small, "memory of values", "values read and written must be memory of their own"),
    _check(
        "P313",
        threads,
        small,
        "threads",
        "calls from several threads must keep contents and counts",
        "",
        lambda claims: "" if claims.threads else "does not claim threads",
    ),
]
