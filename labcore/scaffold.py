"""The files of a new experiment, as small as they can be and still run: every place to fill says so by failing."""

from __future__ import annotations

CONF = """# @package _global_
# What is asked, with which draws, and by which rule it is decided. Written and committed before the run.
experiment: {name}
question: "FILL: one sentence"
seeds: [7, 19, 41]
tolerance: 1.0e-12
rederive: all
settings: {{}}
factors:
  condition: [correct, faulty]
blocks:
  main:
    factors: [seed, condition]
    arrays:
      output: {{dtype: <f8, shape: [case, 5], axes: [case, width], unit: "1"}}
      alone: {{dtype: <f8, shape: [case, 5], axes: [case, width], unit: "1"}}
    metrics:
      error: {{op: max_abs_error, of: [output, alone]}}
controls:
  fault_is_seen:
    measure: SELECT min(error) AS least FROM main WHERE condition = 'faulty'
    holds: least > 1e-3
    note: the faulty variant must fail on every seed
claims:
  Z01:
    measure: SELECT max(error) AS worst FROM main WHERE condition = 'correct'
    reproduced: worst = 0.0
    contradicted: worst > 0.0
    note: ""
"""

EXPERIMENT = '''"""FILL: what is computed, for which cases."""

from collections.abc import Iterator

import numpy as np

from labcore.batch import Batch
from labcore.protocol import Protocol


def batches(protocol: Protocol) -> Iterator[Batch]:
    """Block main: FILL. Rows are seed x condition, in that order."""
    alone = np.stack([np.random.default_rng(seed).normal(size=5) for seed in protocol.seeds])
    conditions = len(protocol.values("condition"))
    alone = np.repeat(alone, conditions, axis=0)
    yield Batch("main", {"output": np.zeros_like(alone), "alone": alone})
'''

FIGURE = '''"""FILL: what the figure shows."""

from matplotlib.figure import Figure

from labcore.figures import COLOUR, headline, panels
from labcore.sealed import Sealed


def draw(run: Sealed) -> dict[str, Figure]:
    """Error of every case."""
    table = run.table("main")
    figure, (axis,) = panels(2.4)
    axis.plot(table["row"], table["error"], "o", color=COLOUR["correct"])
    axis.set(xlabel="case", ylabel="largest error (1)")
    headline(figure, "FILL: the finding")
    return {"error": figure}
'''

README = """# {name}

FILL: the question.

## Method

## Control

## What was left open, and how it was fixed

## Changed after a first look

## How to read the figures

## What it is not

## Claims

<!-- claims -->
No kept run yet.
<!-- end -->
"""

FINDINGS = """# Claim: the one sentence a reader needs where it is not simply reproduced; numbers as {worst}, filled in from the audit.
{}
"""

DERIVE = '''"""{name}: inputs drawn again, outputs computed again, in another way than the experiment's."""

from audit.study import Derived, Study

BOUNDS: dict[str, tuple[float, str]] = {{}}
GIVEN: dict[str, str] = {{}}


def derive(study: Study) -> list[Derived]:
    """FILL: yield a Derived for every block."""
    return []
'''

TEST = '''"""{name}: it runs, and its controls and claims come out."""

from pathlib import Path

from labcore.canonical import loads
from labcore.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]


def test_the_kept_run_is_verified() -> None:
    kept = Workspace(ROOT).kept("{name}")
    assert kept is not None, "no kept run of {name} yet: fill the skeleton, commit, make run EXP={number}, make keep EXP={number}"
    assert loads((kept / "audit.json").read_bytes(), "audit.json")["verdict"] == "VERIFIED"


def test_nothing_is_left_to_fill() -> None:
    for folder in (ROOT / "experiments" / "{name}", ROOT / "conf" / "experiment", ROOT / "audit" / "derive"):
        for path in folder.glob("*{number}*" if folder.name in ("experiment", "derive") else "*"):
            if path.is_file():
                assert "FILL" not in path.read_text(encoding="utf-8"), path
'''


def files(name: str) -> dict[str, str]:
    """Path -> text of every file of a new experiment."""
    number = name[:2]
    return {
        f"conf/experiment/{name}.yaml": CONF.format(name=name),
        f"experiments/{name}/experiment.py": EXPERIMENT,
        f"experiments/{name}/figure.py": FIGURE,
        f"experiments/{name}/README.md": README.format(name=name),
        f"experiments/{name}/findings.yaml": FINDINGS,
        f"audit/derive/e{number}.py": DERIVE.format(name=name),
        f"tests/experiments/test_{number}.py": TEST.format(name=name, number=number),
    }
