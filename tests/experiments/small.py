"""A run of an experiment with fewer factors than its protocol, sealed and audited in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from audit.run import Outcome, audit
from labcore import loading, runner
from labcore.batch import Batch
from labcore.protocol import Protocol, load
from labcore.runner import Origin, execute

ROOT = Path(__file__).resolve().parents[2]


def protocol(experiment: str, **changes: Any) -> Protocol:
    """The committed protocol, with `seeds=...`, `rederive=...` or a factor's values replaced."""
    made = load(ROOT / "experiments" / experiment / "protocol.json")
    top = {key: value for key, value in changes.items() if key in ("seeds", "rederive")}
    factors = made.factors | {key: value for key, value in changes.items() if key not in top}
    assert set(factors) == set(made.factors), sorted(set(factors) - set(made.factors))
    return msgspec.structs.replace(made, factors=factors, **top)


def run(folder: Path, made: Protocol) -> Path:
    """Seal a run into `folder`/<run>; returns that path."""
    sealed = folder / "new" / "sealed"
    sealed.mkdir(parents=True)
    manifest = execute(ROOT, made, [], sealed, Origin({}, "", [], "exploratory"))
    target = folder / str(manifest["run"])
    sealed.parent.rename(target)
    return target


def judged(folder: Path, made: Protocol) -> Outcome:
    """Seal a run and audit it."""
    return audit(run(folder, made))


def rules(outcome: Outcome) -> set[str]:
    """The rules of its findings, without those about sources (a test's run has none) and without controls."""
    return {str(item["rule"]) for item in outcome.document["findings"]} - {"S103", "S108", "V401", "V402"}


def where(outcome: Outcome) -> set[str]:
    """block/column or block/array of what was not derived again as it is stored."""
    return {str(item["where"]).split("[")[0] for item in outcome.document["findings"] if item["rule"].startswith("R")}


def tamper(monkeypatch: pytest.MonkeyPatch, change: Callable[[Batch], Batch]) -> None:
    """Let every experiment that runs from now on yield its batches changed: what an audit must then find."""

    def load_tampered(path: Path) -> Any:
        module = loading.load(path)
        if path.name == "experiment.py":
            batches = module.batches
            module.batches = lambda made: map(change, batches(made))
        return module

    monkeypatch.setattr(runner, "load", load_tampered)
