"""A small whole project in a temporary folder: the suite's packages with one toy experiment, committed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labcore import scaffold

ROOT = Path(__file__).resolve().parents[1]
TOY = "90_toy"
DERIVE = '''"""The toy: outputs are the draws themselves, or zeros where the variant is faulty."""

import numpy as np

from audit.study import Derived, Study

BOUNDS: dict[str, tuple[float, str]] = {}
GIVEN: dict[str, str] = {}


def derive(study: Study) -> list[Derived]:
    """Block main."""
    rows = study.chosen("main")
    factors = study.rows("main")
    alone = np.array([np.random.default_rng(factors[row]["seed"]).normal(size=5) for row in rows])
    correct = np.array([factors[row]["condition"] == "correct" for row in rows])
    return [Derived("main", rows, {"output": alone * correct[:, None], "alone": alone})]
'''


class Project:
    """A project folder; `call` runs one of its commands as a user would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.local = root / "evidence" / "local"

    def call(self, *arguments: str, module: str = "labcore", **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", module, *arguments]
        streams: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, cwd=self.root, env=environment, check=False, timeout=120, **streams, **options)

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "state")

    def runs(self) -> list[Path]:
        return sorted(path for path in (self.local / TOY).glob("*") if not path.name.startswith("."))

    def make(self) -> Path:
        """Run the toy without audit and figure; returns the run's folder."""
        done = self.call("run", "90", "--no-audit")
        assert done.returncode == 0, done.stderr
        return self.runs()[0]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh, committed project that holds the toy experiment."""
    return project_at(tmp_path)


def project_at(place: Path) -> Project:
    """The project in a folder of its own under `place`."""
    root = place / "project"
    for package in ("labcore", "audit"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__", "e[0-9]*.py"))
    shutil.copytree(ROOT / "requirements", root / "requirements", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "conf" / "experiment").mkdir(parents=True)
    shutil.copy(ROOT / "conf" / "config.yaml", root / "conf")
    shutil.copy(ROOT / ".gitignore", root)
    (root / "evidence").mkdir()
    shutil.copy(ROOT / "evidence" / "FORMAT.md", root / "evidence")
    shutil.copy(ROOT / "LICENSE", root)
    for path, text in scaffold.files(TOY).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(DERIVE if path.startswith("audit") else toy(text))
    made = Project(root)
    made.git("init", "-q", "-b", "main")
    done = made.call("protocol", "90")
    assert done.returncode == 0, done.stderr
    made.commit()
    return made


def toy(text: str) -> str:
    """The skeleton, filled: the correct variant gives the draws, the faulty one zeros."""
    text = text.replace("FILL", "toy")
    return text.replace('"output": np.zeros_like(alone)', '"output": alone * (np.arange(len(alone)) % conditions == 0)[:, None]')
