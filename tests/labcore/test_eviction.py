"""The byte budget: order of departure by policy, held entries, refusals, and Belady's optimum against brute force."""

import itertools
import random

import pytest

from labcore.eviction import ADMIT, EVICT, POLICIES, SKIP, Budget


def departures(policy, next_use=None):
    """Who leaves when d (40) needs room among a (30), b (40), c (30): a used thrice, b once more, c held and newest."""
    budget = Budget(100, policy, next_use)
    for key, size in (("a", 30), ("b", 40), ("c", 30)):
        budget.admit(key, size)
    for key in "aab":
        budget.touch(key)
    budget.hold("a")
    return [event.key for event in budget.admit("d", 40) if event.kind == EVICT]


@pytest.mark.parametrize(
    ("policy", "left"),
    [("fifo", ["a", "b"]), ("lru", ["c", "a"]), ("lfu", ["c", "b"]), ("count_lru", ["c", "b"]), ("size_aware", ["c", "b"]),
     (("large_first",), ["b"])],
)  # fmt: skip
def test_order(policy, left):
    assert departures(policy) == left


def test_belady_takes_the_farthest():
    assert departures("belady", {"a": 9, "b": 5, "c": 7, "d": 8}.__getitem__) == ["a", "c"]


def test_skip_and_held():
    budget = Budget(100, "count_lru")
    assert [e.kind for e in budget.admit("a", 101)] == [SKIP]
    assert [e.kind for e in budget.admit("a", 60)] == [ADMIT]
    budget.hold("a")
    assert [e.kind for e in budget.admit("b", 60)] == [SKIP]
    assert "a" in budget
    budget.release("a")
    assert [e.kind for e in budget.admit("b", 60)] == [EVICT, ADMIT]
    assert budget.resident == 60
    with pytest.raises(ValueError, match="nobody holds"):
        budget.release("b")


@pytest.mark.parametrize("capacity", [0, -1, True, 1.0, "9"])
def test_refuses_capacity(capacity):
    with pytest.raises((TypeError, ValueError), match="budget"):
        Budget(capacity, "lru")


def test_refuses_policy():
    with pytest.raises(ValueError, match="'mru'"):
        Budget(9, "mru")
    with pytest.raises(ValueError, match="next_use"):
        Budget(9, "belady")
    budget = Budget(9, "lru")
    with pytest.raises(ValueError, match="nbytes"):
        budget.admit("a", 0)
    assert budget.resident == 0 and budget.clock == 0


def misses(trace, capacity, policy):
    now = 0

    def next_use(key):
        return next((at for at in range(now, len(trace)) if trace[at] == key), 10**9)

    budget, count = Budget(capacity, policy, next_use if policy == "belady" else None), 0
    for key in trace:
        now += 1
        count += key not in budget
        budget.admit(key, 1)
    return count


def test_belady_is_the_least_over_all_choices():
    def least(trace, held, capacity):
        if not trace:
            return 0
        key, rest = trace[0], trace[1:]
        if key in held:
            return least(rest, held, capacity)
        if len(held) < capacity:
            return 1 + least(rest, held | {key}, capacity)
        return 1 + min(least(rest, held - {out} | {key}, capacity) for out in held)

    for trace in itertools.islice(itertools.product("abcd", repeat=7), 0, None, 61):
        best = least(trace, frozenset(), 2)
        assert misses(trace, 2, "belady") == best
        assert all(misses(trace, 2, policy) >= best for policy in POLICIES if policy != "belady")


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "belady"])
def test_queue_is_the_minimum_of_all_entries(policy):
    """The order kept in a queue against looking at every entry; the budget holds throughout; nobody leaves unasked."""
    rng, budget, sizes, held = random.Random(7), Budget(97, policy), {}, []
    for _ in range(1511):
        key = rng.randrange(23)
        if key in budget and rng.random() < 0.5:
            budget.touch(key)
        elif key in budget and rng.random() < 0.3:
            budget.hold(key)
            held.append(key)
        elif held and rng.random() < 0.4:
            key = held.pop(rng.randrange(len(held)))
            if key in budget:
                budget.release(key)
        else:
            before = dict(budget.entries)
            nbytes = sizes.setdefault(key, rng.randint(1, 31))
            events = budget.admit(key, nbytes)
            order = sorted(before.values(), key=lambda e: (budget.order(e), e.version))
            out = [event.key for event in events if event.kind == EVICT]
            if key not in before:
                assert out == [entry.key for entry in order[: len(out)]]
            held = [other for other in held if other not in out]
            assert "count" not in budget.policy or not any(event.held for event in events)
        assert budget.resident == sum(entry.nbytes for entry in budget.entries.values()) <= 97
