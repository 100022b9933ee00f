"""Folders are the registry: conf, experiment, auditor, kept run and README stand one to one, and say the same."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
import yaml

from labcore import canonical
from labcore.compose import resolve
from labcore.protocol import load
from labcore.readme import findings, sentence, texts
from labcore.sealed import Sealed
from labcore.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
WORKSPACE = Workspace(ROOT)
NAMES = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


def test_every_experiment_stands_in_every_room() -> None:
    assert WORKSPACE.names() == NAMES
    assert sorted(path.name for path in (ROOT / "experiments").iterdir() if path.is_dir() and path.name != "__pycache__") == NAMES
    numbers = [name[:2] for name in NAMES]
    assert len(set(numbers)) == len(numbers)
    assert sorted(path.stem for path in (ROOT / "audit" / "derive").glob("e[0-9]*.py")) == [f"e{n}" for n in numbers]


@pytest.mark.parametrize("name", NAMES)
def test_the_protocol_is_what_conf_gives(name: str) -> None:
    path = ROOT / "experiments" / name / "protocol.json"
    protocol = load(path)
    assert protocol.experiment == name
    assert canonical.dumps(resolve(ROOT, name, []).resolved) == path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_has_its_files_and_one_kept_verified_run(name: str) -> None:
    folder = ROOT / "experiments" / name
    for file in ("experiment.py", "figure.py", "README.md", "protocol.json", "findings.yaml"):
        assert (folder / file).is_file(), file
    runs = WORKSPACE.runs(name, local=False)
    assert len(runs) == 1
    audit = Sealed(runs[0]).audit
    assert audit["verdict"] == "VERIFIED" and audit["kind"] == "confirmatory"
    assert set(audit["claims"]) == set(load(folder / "protocol.json").claims)
    assert list((runs[0] / "figures").glob("*.svg")) and list((runs[0] / "figures").glob("*.png"))


@pytest.mark.parametrize("name", NAMES)
def test_findings_say_what_is_so_where_a_claim_is_not_simply_reproduced_and_type_no_number(name: str) -> None:
    kept = WORKSPACE.kept(name)
    assert kept is not None
    claims = Sealed(kept).audit["claims"]
    found = findings(ROOT / "experiments" / name)
    stated = yaml.safe_load((ROOT / "conf" / "claims.yaml").read_text(encoding="utf-8"))["claims"]
    assert set(found) <= set(claims)
    needed = {claim for claim, result in claims.items() if result["verdict"] in ("contradicted", "qualified")}
    assert needed <= set(found), f"findings.yaml lacks {sorted(needed - set(found))}"
    for claim, text in found.items():
        fixed = "".join(part for part, *_ in string.Formatter().parse(text))
        # A digit may only stand inside a name (fp16, INT8, GPT-2, A17, 0/1 masks), or be a number that the claim itself names.
        numbers = re.findall(r"(?<![A-Za-z0-9_./-])\d[\d.,]*(?![A-Za-z0-9_/-])", fixed)
        typed = [number for number in numbers if number.rstrip(".,") not in stated[claim]["text"]]
        assert not typed, f"{claim}: typed-in numbers {typed} in {text!r}"
        assert sentence(text, claims[claim]["values"], claim)


def test_the_generated_tables_are_what_the_audits_say() -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in texts(WORKSPACE).items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run make readme: {stale}"


def test_the_readme_names_only_verbs_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/README.md")]:
        named = set(
            re.findall(r"\bmake ([a-z][a-z-]*)\b(?= |`|$|\n)", "\n".join(re.findall(r"`[^`]+`|^    .*$", path.read_text(), re.MULTILINE)))
        )
        assert named <= targets, f"{path.name}: {sorted(named - targets)}"


def test_kept_evidence_is_small() -> None:
    runs = {
        path: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for name in NAMES for path in WORKSPACE.runs(name, local=False)
    }
    assert all(size <= 3 << 20 for size in runs.values()), runs
    archives = sum(path.stat().st_size for path in (ROOT / "evidence" / "archives").glob("*"))
    assert sum(runs.values()) + archives <= 40 << 20


def test_the_ledger_of_claims_is_whole_and_agrees_with_the_protocols() -> None:

    from labcore.protocol import load

    claims = yaml.safe_load((ROOT / "conf" / "claims.yaml").read_text())["claims"]
    assert len(claims) == 163
    assert all({"section", "experiment", "text"} == set(claim) for claim in claims.values())
    for path in sorted((ROOT / "experiments").glob("*/protocol.json")):
        protocol = load(path)
        number = path.parent.name[:2]
        owned = {key for key, claim in claims.items() if claim["experiment"] == number}
        assert owned <= set(protocol.claims), f"{path.parent.name} decides nothing on {sorted(owned - set(protocol.claims))}"
        # Statements of our own have lower-case names; those with an article's letter must be the articles'.
        cited = {claim for claim in protocol.claims if not claim.islower()}
        assert cited <= owned, f"{path.parent.name}: unknown claims {sorted(cited - owned)}"
