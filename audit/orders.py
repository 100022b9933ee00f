"""All interleavings of small programs, by copying states: nothing is run twice, and no program is a generator.

A program is a list of steps; a step is (guard, action). A program's next step may run when its guard is true of the state, or is
None. An action changes the state and may return END. A state is a dict of integers, strings and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

State = dict[Any, Any]
Guard = Callable[[State], bool] | None
Action = Callable[[State], int | None]
Program = list[tuple[Guard, Action]]
END = 1_000
STUCK = 255


def nothing(state: State) -> None:
    """A step without effect."""


def outcomes(start: State, programs: Sequence[Program], judge: Callable[[State], int]) -> list[int]:
    """judge of the final state of every order, orders in lexicographic sequence; STUCK where no program may step.

    >>> def add(state):
    ...     state["n"] += 1
    >>> outcomes({"n": 0}, [[(None, add)], [(None, add)]], lambda state: state["n"])
    [2, 2]
    """
    found: list[int] = []
    path: list[tuple[State, list[int], int]] = [(start, [0] * len(programs), 0)]
    while path:  # a stack of (state, place in each program, first program still to be tried here)
        state, places, first = path.pop()
        left = [who for who, program in enumerate(programs) if places[who] < len(program)]
        if not left:
            found.append(judge(state))
            continue
        able = [who for who in left if may(programs[who][places[who]][0], state)]
        if not able:
            found.append(STUCK)
            continue
        who = next((one for one in able if one >= first), None)
        if who is None:
            continue
        path.append((state, places, who + 1))
        after = {key: list(value) if isinstance(value, list) else value for key, value in state.items()}
        moved = list(places)
        moved[who] += 1
        if programs[who][places[who]][1](after) == END:
            moved[who] = len(programs[who])
        path.append((after, moved, 0))
    return found


def may(guard: Guard, state: State) -> bool:
    """Whether a step with this guard may run."""
    return guard is None or guard(state)
