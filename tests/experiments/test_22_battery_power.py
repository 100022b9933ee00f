"""22: a small run passes the audit; another decision, an alarm on a twin or a changed specimen does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labcore.battery import power
from labcore.loading import load
from tests.experiments import small

NAME = "22_battery_power"
FEW = ["BR-02", "BR-26"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two seeds; of the faults that are not asked for, the numbers of one that is like them."""
    real = power.measure

    def measure(fault: str, variant: str, seeds: Any) -> power.Seen:
        names = power.rules(power.INTERFACE[fault])
        if fault in FEW:
            return real(fault, variant, seeds)
        value = np.zeros((len(seeds), len(names)))
        if variant == "faulty":
            value[:, [names.index(rule) for rule in power.FAULTS[fault].rules]] = 0.5
        return power.Seen(value, np.full(value.shape, 1e-14))

    whole = power.matrix
    monkeypatch.setattr(power, "measure", measure)
    monkeypatch.setattr(power, "matrix", lambda seeds, faults: whole(seeds, faults, workers=0))
    return small.protocol(NAME, seeds=[3, 4])


def test_small_run_is_derived_again(tmp_path: Path, made: Any) -> None:
    outcome = small.judged(tmp_path, made)
    assert small.rules(outcome) == set(), outcome.document["findings"][:3]


def test_an_alarm_on_a_twin_is_a_fact_of_the_run(tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = power.FAULTS["BR-02"]
    monkeypatch.setitem(power.FAULTS, "BR-02", type(right)(right.id, right.title, right.faulty, right.faulty, right.control, right.rules))
    outcome = small.judged(tmp_path, made)
    table = {(r["fault"], r["variant"]): r for r in small_rows(outcome)}
    assert table["BR-02", "correct"]["seeds_fired"] == "2"


def small_rows(outcome: Any) -> list[dict[str, str]]:
    import csv

    with (outcome.folder / "sealed" / "results.csv").open(newline="") as handle:
        return [line for line in csv.DictReader(handle) if line["block"] == "matrix"]


def test_codes_keep_order_and_what_is_none() -> None:
    module = load(small.ROOT / "experiments" / NAME / "experiment.py")
    codes = module.code_of(np.array([0.0, 1e-30, 5e-14, 1.0, 2.0, 1e9, np.inf, power.BROKEN, np.nan]))
    assert codes.tolist() == [0, 1, 48, 181, 184, 252, 254, 253, 255]
    seen = power.Seen(np.array([[1.01]]), np.array([[1.0]]))
    with pytest.raises(ValueError, match="change sides"):
        module.decide("correct", seen, module.code_of(seen.value), module.code_of(seen.limit))


def test_a_protocol_of_other_rules_is_refused(made: Any) -> None:
    module = load(small.ROOT / "experiments" / NAME / "experiment.py")
    made.settings["right"]["BR-02"].append("A101")
    with pytest.raises(ValueError, match="BR-02"):
        next(module.batches(made))
