"""All interleavings of small programs, by copying states: what follows from a state is found once, however it was reached.

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
    known: dict[Any, list[int]] = {}

    def follow(state: State, places: tuple[int, ...]) -> list[int]:
        key = places, frozenset((name, tuple(value) if isinstance(value, list) else value) for name, value in state.items())
        if key not in known:
            left = [who for who, program in enumerate(programs) if places[who] < len(program)]
            able = [who for who in left if may(programs[who][places[who]][0], state)]
            found = [] if able else [STUCK if left else judge(state)]
            for who in able:
                after = {name: list(value) if isinstance(value, list) else value for name, value in state.items()}
                ended = programs[who][places[who]][1](after) == END
                moved = len(programs[who]) if ended else places[who] + 1
                found += follow(after, (*places[:who], moved, *places[who + 1 :]))
            known[key] = found
        return known[key]

    return follow(start, (0,) * len(programs))


def may(guard: Guard, state: State) -> bool:
    """Whether a step with this guard may run."""
    return guard is None or guard(state)
