"""The explorer: all interleavings and no other, waiting, deadlock, the bound; a race on one shared block found in full."""

import itertools

import pytest

from labcore.faults.races import HARM, SCENARIOS
from labcore.interleave import Deadlock, count, explore, orders, replay, steps


def counter(split, locked=False):
    """Two actors add 1, in two steps or one."""

    def build():
        box = {"n": 0, "lock": False}

        def add():
            if locked:
                yield lambda: not box["lock"]
                box["lock"] = True
            seen = box["n"]
            if split:
                yield None
            box["n"] = seen + 1
            box["lock"] = False

        return box, [add(), add()]

    return build


def test_orders_are_all_permutations_of_the_multiset_once():
    def build():
        seen = []
        return seen, [steps(*[lambda a=a: seen.append(a) for _ in range(n)]) for a, n in enumerate((3, 2, 2))]

    got = [order for order, _, _ in orders(build)]
    assert len(got) == len(set(got)) == count(3, 2, 2) == 210
    assert set(got) == set(itertools.permutations([0, 0, 0, 1, 1, 2, 2]))
    assert got == sorted(got)
    assert all(tuple(state) == order for order, state, _ in orders(build))


def test_lost_update_is_found_and_a_lock_removes_it():
    assert explore(counter(True), lambda b: b["n"]).outcomes == {1: 4, 2: 2}
    assert explore(counter(False), lambda b: b["n"]).outcomes == {2: 2}
    assert set(explore(counter(True, locked=True), lambda b: b["n"]).outcomes) == {2}
    with pytest.raises(Deadlock):
        replay(lambda: ({}, [iter_wait()]), [0])


def iter_wait():
    yield lambda: False


def test_deadlock_is_an_outcome():
    def build():
        held = [False, False]

        def actor(first, second):
            yield lambda: not held[first]
            held[first] = True
            yield lambda: not held[second]
            held[second] = True
            held[first] = held[second] = False

        return held, [actor(0, 1), actor(1, 0)]

    found = explore(build, lambda _: "done")
    assert found.outcomes["deadlock"] > 0 and found.outcomes["done"] > 0
    order = found.first["deadlock"]
    with pytest.raises(Deadlock):
        replay(build, order)


def test_beyond_the_bound_it_samples_by_seed_and_says_so():
    def run(seed):
        return explore(counter(True), lambda b: b["n"], bound=5, seed=seed, samples=100)

    assert not run(7).exhaustive
    assert run(7).orders == 100
    assert run(7).outcomes == run(7).outcomes
    assert set(run(7).outcomes) == {1, 2}


def test_a_replayed_order_gives_the_same_state():
    found = explore(counter(True), lambda b: b["n"])
    for verdict, order in found.first.items():
        assert replay(counter(True), order)["n"] == verdict
    with pytest.raises(ValueError, match="cannot step"):
        replay(counter(True), [0, 0, 0])


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_fails_somewhere_if_it_is_a_fault_and_nowhere_if_not(name):
    scenario = SCENARIOS[name]
    found = explore(scenario.build, scenario.judge)
    assert found.exhaustive
    assert "deadlock" not in found.outcomes
    bad = sum(n for flags, n in found.outcomes.items() if flags & HARM)
    assert (bad > 0) == scenario.faulty, (found.outcomes, found.first)


def test_two_writers_and_a_reader_on_one_shared_block_in_full():
    scenario = SCENARIOS["copy_unlocked"]
    found = explore(scenario.build, scenario.judge)
    assert found.exhaustive
    assert found.orders == count(5, 5, 3) == 72_072
