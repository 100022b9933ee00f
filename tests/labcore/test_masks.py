"""Masks: what each rule shows and hides, and what bad input gets."""

import numpy as np
import pytest

from labcore import masks


def test_rules_against_loops():
    owner = masks.placed([[4, 1, 6], [0, 5]], 7)
    q = np.array([[0, 2], [1, 1]])
    key = np.arange(7)
    flags = np.array([True, True, False, True, True, True, False])
    seen = masks.both(masks.causal(q, key), masks.window(q, key, 2), masks.block_diagonal(owner, 2), masks.written(flags))
    for r in range(2):
        for i in range(2):
            for j in range(7):
                want = j <= q[r, i] and j > q[r, i] - 2 and owner[j] == r and flags[j]
                assert seen[r, i, j] == want, (r, i, j)
    assert seen.any() and not seen.all()


def test_free_slots_are_seen_by_nobody():
    assert not masks.block_diagonal(masks.placed([[0]], 3), 1)[:, :, 1:].any()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: masks.owners([3, 0]), "axis request: got length 0 of request 1; wanted at least 1"),
        (lambda: masks.block_diagonal(np.zeros(0, int), 1), "axis key: got length 0; wanted at least 1"),
        (lambda: masks.placed([[0, 1], [1]], 3), "axis key: got slot 1 owned twice"),
        (lambda: masks.placed([[0, 0]], 3), "axis key: got slot 0 owned twice"),
        (lambda: masks.placed([[3]], 3), "axis key: got slots 3 to 3 of request 0; wanted 0 to 2"),
        (lambda: masks.placed([[-1]], 3), "axis key: got slots -1"),
        (lambda: masks.placed([np.zeros(0, int)], 3), "axis request: got no slot for request 0"),
        (lambda: masks.window([[0]], [0], 0), "window: got 0; wanted an integer of at least 1"),
        (lambda: masks.window([[0]], [0], True), "window: got True"),
        (lambda: masks.window([[0]], [0], 1.5), "window: got 1.5"),
        (lambda: masks.causal([0], [0]), "query_positions: got 1 axes"),
        (lambda: masks.causal([[0], [0]], [[0], [0], [0]]), "axis request: got 3 rows of key_positions; wanted 1 or 2"),
        (lambda: masks.causal([[0.0]], [0]), "query_positions: got dtype float64; wanted integers"),
        (lambda: masks.written(np.array([1, 0])), "written: got dtype int64; wanted bool"),
        (lambda: masks.written(np.array(True)), "written: got 0 axes"),
        (lambda: masks.block_diagonal([0, 2], 2), "axis request: got owners 0 to 2; wanted -1 to 1"),
        (lambda: masks.both(np.ones((2, 3, 5), bool), np.ones((2, 3, 7), bool)), r"axis key: got lengths \[5, 7\]"),
        (lambda: masks.check(np.ones((2, 3, 5))), "mask: got dtype float64; wanted bool"),
        (lambda: masks.check(np.ones((3, 5), bool)), "mask: got 2 axes .3, 5.; wanted 3: request, query, key"),
        (lambda: masks.check(np.ones((2, 5, 3), bool), 2, 3, 5), "axis query: got length 5; wanted 3 .query and key are swapped."),
        (lambda: masks.check(np.ones((2, 3, 5), bool), 3, 3, 5), "axis request: got length 2; wanted 3$"),
    ],
)
def test_bad_input_names_axis_got_and_wanted(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
