"""The store without numbers of 06, and its checks."""

import numpy as np
import pytest

from audit.prefix_acts import KINDS, accesses, refusals
from audit.prefix_store import Model, Refused, Store, ids_of, searched
from audit.store_checks import CHECKS, fails

FAULTS = [
    "extends-in-place",
    "prefix-left-out",
    "weights-left-out",
    "window-left-out",
    "scope-left-out",
    "converts-first",
    "never-evicts",
    "scope-unchecked",
    "refreshes-on-hit",
    "searches-oldest-first",
    "first-layer-hashed",
    "window-as-flag",
    "ids-sorted",
    "ids-in-four-bits",
    "accepts-bool",
    "scope-folded",
    "stores-misses",
]


def test_no_check_fails_on_the_store_without_fault_and_each_fault_fails_some():
    assert [check for check in CHECKS if fails("none", check)] == []
    assert [fault for fault in FAULTS if not any(fails(fault, check) for check in CHECKS)] == []


def test_each_check_fails_on_some_fault():
    assert [check for check in CHECKS if not any(fails(fault, check) for fault in FAULTS)] == []


def test_entries_are_appended_searched_from_the_newest_and_dropped_from_the_oldest():
    store = Store()
    for prefix in ([1], [2], [2], [3]):
        store.remember("a", Model(), prefix)
    assert [entry.source[2] for entry in store.entries] == [(2,), (3,)]
    assert store.resume("a", Model(), [2], [9]) == (True, (Model(), None, (2,), (9,), Model(), None), 2)
    assert store.resume("a", Model(), [1], [9])[0::2] == (False, 2)
    assert [searched([5, 6, 5], 5, newest) for newest in (True, False)] == [1, 1] and searched([5, 6], 7, True) == 2


@pytest.mark.parametrize("value", [[1, 31], (0,), range(3), np.array([1], np.uint8), [np.int64(3)]])
def test_ids_that_pass(value):
    assert ids_of(value) == tuple(int(item) for item in value)


@pytest.mark.parametrize("value", [[], [32], [-1], [1.0], [True], "1", None, np.zeros((1, 1), int), np.array([True]), np.array([1.0])])
def test_ids_that_do_not(value):
    with pytest.raises(Refused):
        ids_of(value)


def test_kinds_and_claimants():
    passing = [kind for kind in KINDS if not refusals(kind, "")["refused"]]
    assert passing == ["int", "numpy-int8", "numpy-uint64"]
    assert (
        refusals("float", "")["naive_same_key"]
        and refusals("text", "")["naive_same_key"]
        and not refusals("negative", "")["naive_same_key"]
    )
    assert [accesses("plain", name)["reads"] for name in ("owner", "other-own-name", "other-claims-owner")] == [True, False, True]
    assert accesses("bound", "other-claims-owner") == {"reads": False, "refused": True}
