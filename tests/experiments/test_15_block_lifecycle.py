"""15: a small run passes the audit; a pool, a log, a scene or a class that differs does not."""

from __future__ import annotations

import pytest

from labcore.faults import races
from labcore.faults.lifetimes import Lifetimes
from labcore.faults.printed_cache import PrintedCache
from labcore.paging import PagedPool
from tests.experiments import small

NAME = "15_block_lifecycle"
SCENES = ["release_split", "take_locked", "copy_locked", "copy_block_locks", "two_counters", "abort_wait_dead"]
FEW = {
    "seeds": [19],
    "scenario": SCENES,
    "edits_permille": [0, 100],
    "block_size": [3, 16],
    "runner": ["threads"],
    "lock": ["process_lock"],
    "style": ["inline"],
    "team": ["threads"],
    "library": ["numpy"],
    "width": [16],
    "protected": [True],
    "hold": ["short"],
    "scheme": ["no_lock"],
    "repeat": [0],
    "turn": [0],
}


@pytest.fixture
def made():
    return small.protocol(NAME, **FEW)


def test_small_run_is_derived_again(tmp_path, made):
    outcome = small.judged(tmp_path, made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]


def test_a_pool_that_copies_too_little_is_found(tmp_path, made, monkeypatch):
    right = PagedPool._copy

    def wrong(self, table, pages, ids):
        right(self, table, pages, ids)
        for new in ids:
            self.rows[new, 0] = self.rows[0, 0]

    monkeypatch.setattr(PagedPool, "_copy", wrong)
    assert any(place.startswith("forks/") for place in small.where(small.judged(tmp_path, made)))


def test_a_log_that_hides_a_free_is_found(tmp_path, made, monkeypatch):
    right = Lifetimes.note

    def wrong(self, kind, request, block):
        if (kind, block) != (4, 3):
            right(self, kind, request, block)

    monkeypatch.setattr(Lifetimes, "note", wrong)
    assert "traces/events" in small.where(small.judged(tmp_path, made))


def test_a_scene_with_another_step_is_found(tmp_path, made, monkeypatch):
    scenario = races.SCENARIOS["release_split"]
    other = races.Scenario(races.SCENARIOS["release_locked"].build, True, scenario.about)
    monkeypatch.setitem(races.SCENARIOS, "release_split", other)
    assert {"interleavings/flags", "races/never"} <= small.where(small.judged(tmp_path, made))


def test_a_kinder_printed_class_is_found(tmp_path, made, monkeypatch):
    right = PrintedCache.build_mask

    def kinder(self, request, queries):
        mask = right(self, request, queries)
        mask[0, -1] = False
        return mask

    monkeypatch.setattr(PrintedCache, "build_mask", kinder)
    assert "printed/hidden_cells" in small.where(small.judged(tmp_path, made))
