"""14: a small run passes the audit; a layout, a page walk or a count that differs does not."""

from __future__ import annotations

import numpy as np
import pytest

from labcore import fused, layouts
from labcore.paged_attention import attend, attend_fast, gather, walk
from tests.experiments import small

NAME = "14_paged_memory"
FEW = {
    "seeds": [19],
    "requests": [1, 16],
    "layout": ["max_length", "exact_fit", "paged_1", "paged_16"],
    "rows": [67],
    "block_size": [16, 128],
    "length": [64],
    "repeat": [0],
}


@pytest.fixture
def made():
    return small.protocol(NAME, **FEW)


def test_small_run_is_derived_again(tmp_path, made):
    outcome = small.judged(tmp_path, made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]


def test_holes_that_are_not_joined_are_found(tmp_path, made, monkeypatch):
    def leave(self, request):
        start, length = self.placed.pop(request)
        self.reserved -= length
        self.holes = sorted([*self.holes, (start, length)])

    monkeypatch.setattr(layouts.Contiguous, "leave", leave)
    assert "memory/largest" in small.where(small.judged(tmp_path, made))


def test_a_block_too_many_is_found(tmp_path, made, monkeypatch):
    right = layouts.Paged.grow
    monkeypatch.setattr(layouts.Paged, "grow", lambda self, request, tokens: right(self, request, tokens + 1))
    assert "memory/reserved" in small.where(small.judged(tmp_path, made))


@pytest.mark.parametrize("size", [1, 3, 16, 128])
@pytest.mark.parametrize("length", [1, 67, 131])
def test_all_ways_give_one_output(size, length):
    rng = np.random.default_rng([size, length])
    query, rows = rng.normal(size=(6, 5)), rng.normal(size=(length, 2, 2, 5))
    pages = -(-length // size)
    memory = np.full((pages + 5, size, 2, 2, 5), np.nan)
    table = rng.permutation(pages + 5)[:pages]
    for page, block in enumerate(table):
        part = rows[page * size : (page + 1) * size]
        memory[block, : len(part)] = part
    want = attend(query, rows)
    for got in (attend(query, gather(memory, table, length)), walk(query, memory, table, length), attend_fast(query, rows)):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
    kernel = fused.kernel()
    if kernel is not None:
        single = kernel(query.astype(np.float32), memory.astype(np.float32), table, length)
        np.testing.assert_allclose(single, want, rtol=0, atol=2e-5)


def test_hidden_rows_may_hold_anything_and_no_row_is_an_error():
    rng = np.random.default_rng(7)
    query, rows = rng.normal(size=(4, 3)), rng.normal(size=(5, 2, 2, 3))
    seen = np.array([True, True, False, True, False])
    dirty = rows.copy()
    dirty[~seen] = np.nan
    np.testing.assert_array_equal(attend(query, dirty, seen), attend(query, rows[seen]))
    with pytest.raises(ValueError, match="no rows"):
        attend(query, rows, np.zeros(5, bool))


def test_the_fused_walk_checks_what_it_is_given():
    kernel = fused.kernel()
    if kernel is None:  # no C compiler here: nothing to check
        return
    query, memory = np.ones((2, 3), np.float32), np.ones((4, 2, 2, 1, 3), np.float32)
    for table, n in ((np.array([0, 4]), 3), (np.array([0]), 3), (None, 9), (np.array([0, -1]), 3), (None, 0)):
        with pytest.raises(ValueError):
            kernel(query, memory, table, n)
    with pytest.raises(ValueError, match="wanted contiguous float32"):
        kernel(query.astype(np.float64), memory, None, 2)
