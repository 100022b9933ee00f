"""The archives that are committed here: VERIFIED by this suite's auditor, and named by the ledger."""

from pathlib import Path

import pytest

from labcore.ledger import read
from labcore.verification import opened
from labcore.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = sorted((ROOT / "evidence" / "archives").glob("*.tar"))


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_it_is_verified(path: Path) -> None:
    with opened(Workspace(ROOT), path) as checked:
        assert checked.findings == []
        assert checked.facts is not None and checked.facts.draft == []
        assert any(step == "ledger" and text.startswith("frozen here") for step, text in checked.steps)


def test_05_and_06_are_here_and_the_kept_runs_are_what_is_frozen() -> None:
    workspace = Workspace(ROOT)
    for number in ("05", "06"):
        experiment = workspace.find(number)
        kept = workspace.kept(experiment)
        assert kept is not None and ROOT / "evidence" / "archives" / f"{experiment}-{kept.name}.tar" in ARCHIVES
    assert sum(path.stat().st_size for path in ARCHIVES) < 8 << 20
    assert {line["run"] for line in read(workspace.ledger) if line["event"] == "frozen"} >= {path.stem.split("-")[1] for path in ARCHIVES}
