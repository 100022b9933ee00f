"""Every interleaving of a few small step functions: a race is found by enumeration, not by luck.

An actor is a generator: what it does between two yields is one step and cannot be interrupted. It may yield a condition, a
function without arguments: then its next step waits until the condition is true (a lock is a condition and an assignment).
The order of a run is the sequence of actors that stepped. Orders are enumerated depth first, the actor with the smallest
number first, by running again from the start with a longer prefix of forced choices: generators cannot be copied.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from math import factorial, prod
from typing import Any

Condition = Callable[[], bool] | None
Actor = Generator[Condition, None, None]
Build = Callable[[], tuple[Any, Sequence[Actor]]]
BOUND = 1_000_000


class Deadlock(Exception):
    """Actors are left and none may step."""


@dataclass
class Exploration:
    """What an exploration saw.

    orders: how many interleavings ran; exhaustive: whether these are all of them.
    outcomes: verdict -> number of interleavings, as `judge` names them; "deadlock" where no actor could go on.
    first: verdict -> the first order that gave it.
    """

    orders: int = 0
    exhaustive: bool = True
    outcomes: Counter[Any] = field(default_factory=Counter)
    first: dict[Any, tuple[int, ...]] = field(default_factory=dict)


def steps(*functions: Callable[[], Any]) -> Actor:
    """An actor made of plain step functions.

    >>> log = []
    >>> [None for _ in steps(lambda: log.append(1), lambda: log.append(2))], log
    ([None], [1, 2])
    """
    for place, function in enumerate(functions):
        if place:
            yield None
        function()


def count(*lengths: int) -> int:
    """Number of interleavings of actors with so many steps, none of which ever waits.

    >>> count(2, 2), count(5, 5, 3)
    (6, 72072)
    """
    return factorial(sum(lengths)) // prod(factorial(n) for n in lengths)


def orders(build: Build) -> Iterator[tuple[tuple[int, ...], Any, bool]]:
    """(order, state, finished) of every interleaving; finished is False at a deadlock.

    build: makes a fresh state and fresh actors; it must do the same each time.
    """
    forced: list[int] = []
    while True:
        state, actors = build()
        order, choices, finished = _run(actors, forced, None)
        yield tuple(order), state, finished
        while choices and choices[-1][-1] == order[-1]:
            choices.pop()
            order.pop()
        if not choices:
            return
        enabled = choices[-1]
        forced = [*order[:-1], enabled[enabled.index(order[-1]) + 1]]


def explore(build: Build, judge: Callable[[Any], Any], bound: int = BOUND, seed: int = 0, samples: int = 10_000) -> Exploration:
    """Run all interleavings, up to `bound` of them; if there are more, `samples` random ones drawn from `seed` instead.

    judge: final state -> verdict (anything hashable).

    >>> def build():
    ...     box = {"n": 0}
    ...     def add():
    ...         seen = box["n"]
    ...         yield
    ...         box["n"] = seen + 1
    ...     return box, [add(), add()]
    >>> found = explore(build, lambda box: box["n"])
    >>> found.orders, dict(found.outcomes)
    (6, {2: 2, 1: 4})
    """
    found = Exploration()
    for order, state, finished in orders(build):
        _note(found, order, judge(state) if finished else "deadlock")
        if found.orders > bound:
            break
    else:
        return found
    found = Exploration(exhaustive=False)
    rng = random.Random(seed)
    for _ in range(samples):
        state, actors = build()
        drawn, _, finished = _run(actors, [], rng)
        _note(found, tuple(drawn), judge(state) if finished else "deadlock")
    return found


def replay(build: Build, order: Sequence[int]) -> Any:
    """The final state of one order. Deadlock where it stops short."""
    state, actors = build()
    _, _, finished = _run(actors, list(order), None)
    if not finished:
        raise Deadlock(f"order {tuple(order)}: no actor may step and not all are done")
    return state


def _note(found: Exploration, order: tuple[int, ...], verdict: Any) -> None:
    found.orders += 1
    found.outcomes[verdict] += 1
    found.first.setdefault(verdict, order)


def _run(actors: Sequence[Actor], forced: list[int], rng: random.Random | None) -> tuple[list[int], list[list[int]], bool]:
    """One run: the order, the actors that could have stepped at each place, and whether all finished."""
    waits: dict[int, Condition] = dict.fromkeys(range(len(actors)))
    order: list[int] = []
    choices: list[list[int]] = []
    while waits:
        enabled = [a for a, condition in waits.items() if condition is None or condition()]
        if not enabled:
            return order, choices, False
        place = len(order)
        actor = forced[place] if place < len(forced) else (rng.choice(enabled) if rng else enabled[0])
        if actor not in enabled:
            raise ValueError(f"place {place}: actor {actor} cannot step; enabled: {enabled}")
        order.append(actor)
        choices.append(enabled)
        try:
            waits[actor] = next(actors[actor])
        except StopIteration:
            del waits[actor]
    return order, choices, True
