"""python -m audit: exit codes, what it prints and writes, and that it judges wherever the folder lies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audit import __main__ as command
from audit import rederive
from tests.audit import tiny
from tests.audit.reseal import Evidence, canonical, chain, sha

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setattr(rederive, "load", lambda experiment: tiny.MODULE)


@pytest.fixture
def run(tmp_path):
    return tiny.evidence().seal(tmp_path)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository that has committed the tiny experiment, with a kept run, a local run and a ledger."""
    root = tmp_path / "repository"
    evidence = tiny.evidence()
    files = {**evidence.sources, "experiments/99_tiny/protocol.json": canonical(evidence.protocol), ".gitignore": b"/evidence/local/\n"}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "sources")
    evidence.manifest["recorded"]["git"]["commit"] = git(root, "rev-parse", "HEAD").strip()
    for place in ("evidence/99_tiny", "evidence/local/99_tiny"):
        (root / place).mkdir(parents=True)
        kept = evidence.seal(root / place)
    line = {"experiment": "99_tiny", "run": kept.name, "manifest": sha((kept / "sealed" / "manifest.json").read_bytes())}
    (root / "evidence" / "LEDGER.jsonl").write_bytes(chain([line]))
    git(root, "add", ".")
    git(root, "commit", "-qm", "kept")
    monkeypatch.chdir(root / "experiments")
    return root


def test_the_document_is_the_same_on_another_processor():
    """01 and 04 hold metrics whose derivation ends in other digits with another BLAS kernel; audit.json must not."""
    runs = [str(path) for number in ("01", "04") for path in (ROOT / "evidence").glob(f"{number}_*/*/")]
    other = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "audit", "--json", "--no-write", *runs]
    here, there = (subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, check=True) for more in ({}, other))
    assert len(runs) == 2 and b"VERIFIED" in here.stdout and here.stdout == there.stdout


def git(root: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    root.mkdir(parents=True, exist_ok=True)
    words = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(words, cwd=root, check=True, capture_output=True, text=True, env=environment).stdout


def test_a_verified_run(run, capsys):
    assert command.main([str(run)]) == 0
    out = capsys.readouterr().out
    assert "99_tiny" in out and " VERIFIED" in out and "no finding, 16/20 rows" in out
    assert "not checked: outside a repository" in out and "4 claims: 1 open, 1 out-of-reach, 1 qualified, 1 reproduced" in out
    stored = json.loads((run / "audit.json").read_bytes())
    assert canonical(stored) == (run / "audit.json").read_bytes() and stored["verdict"] == "VERIFIED"
    assert [item.name for item in run.iterdir() if item.name.startswith(".")] == []
    before = (run / "audit.json").stat().st_mtime_ns
    assert command.main([str(run), "--quiet"]) == 0
    assert capsys.readouterr().out == "" and (run / "audit.json").stat().st_mtime_ns == before


def test_a_damaged_run_is_exit_code_1_and_one_line_per_finding(run, capsys):
    (run / "sealed" / "arrays.h5").write_bytes(b"\0" * 999)
    assert command.main([str(run)]) == 1
    out = capsys.readouterr().out
    assert "NOT VERIFIED" in out and "  S119 arrays.h5: not an HDF5 file" in out and "  S105 arrays.h5" in out and "Traceback" not in out
    assert json.loads((run / "audit.json").read_bytes())["verdict"] == "NOT VERIFIED"


def test_json_prints_the_documents(run, capsys):
    assert command.main([str(run), "--json", "--no-write"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run"], document["verdict"]) == (run.name, "VERIFIED") and not (run / "audit.json").exists()


def test_claims_in_detail(run, capsys):
    assert command.main([str(run), "--claims", "--no-write"]) == 0
    out = capsys.readouterr().out
    assert "control gap_is_seen: holds (least = " in out and "n = 6, worst = 1.92" in out and "n = 6 AND worst < 10" in out


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["pyproject.toml"], ["--experiment", "77"], ["--nonsense"], [".", "--experiment", "06"], ["\0"]]
)
def test_usage_is_exit_code_2(arguments, repository, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    (repository / "pyproject.toml").write_text("")
    try:
        code = command.main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 2 and capsys.readouterr().err.strip()


def test_version_and_names_of_what_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == "1.1\n"
    assert command.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"audit: {tmp_path / 'none'}: No such file or directory\n"
    assert command.main(["\0"]) == 2 and "null byte" in capsys.readouterr().err


def test_no_repository_and_no_path(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main([]) == 2 and "lies in no repository" in capsys.readouterr().err


def test_a_folder_that_holds_no_run_is_not_verified(tmp_path, capsys):
    assert command.main([str(tmp_path), "--no-write"]) == 1 and "S104" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_judged_all_the_same(run, monkeypatch, capsys):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(command.os, "fsync", refuse)
    assert command.main([str(run)]) == 0
    assert capsys.readouterr().err == f"{run.name}: audit.json not written: Permission denied\n"
    assert [item.name for item in run.iterdir()] == ["sealed"]


def test_all_of_a_repository(repository, capsys):
    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert out.count(" VERIFIED") == 3 and "evidence/LEDGER.jsonl" in out and "not checked" not in out
    for name in ("99", "99_tiny"):
        assert command.main(["--experiment", name]) == 0
    assert command.main(["--experiment", "98"]) == 2 and command.main(["--experiment", "9"]) == 2
    assert git(repository, "status", "--porcelain") == "?? evidence/99_tiny/" + kept(repository).name + "/audit.json\n"


def test_the_claims_table_is_about_the_kept_run_where_there_is_one(repository, capsys):
    assert command.main([]) == 0
    assert capsys.readouterr().out.count("  X01  99_tiny  reproduced") == 1
    shutil.rmtree(repository / "evidence" / "99_tiny")
    assert command.main(["--experiment", "99"]) == 1  # the ledger misses it
    assert capsys.readouterr().out.count("  X01  99_tiny  reproduced") == 1


def kept(repository: Path) -> Path:
    return next((repository / "evidence" / "99_tiny").iterdir())


def damaged(repository: Path, capsys) -> set[str]:
    assert command.main([]) == 1
    return {
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  ") and line[2:3] in "SMRVL" and line[3:6].isdigit()
    }


def test_a_protocol_changed_since_the_run_was_kept(repository, capsys):
    path = repository / "experiments/99_tiny/protocol.json"
    path.write_bytes(path.read_bytes().replace(b"1e-12", b"1e-10"))
    assert command.main(["--quiet"]) == 0  # the working tree is not what is committed
    git(repository, "commit", "-qam", "changed")
    assert damaged(repository, capsys) == {"S107"}


def test_sources_changed_later_are_judged_at_the_commit_of_the_run(repository, capsys):
    (repository / "labcore/batch.py").write_text("# another\n")
    git(repository, "commit", "-qam", "refactored")
    assert command.main([]) == 0


def test_a_run_whose_sources_were_never_committed(repository, capsys):
    run = kept(repository)
    evidence = Evidence.load(run)
    evidence.sources["labcore/batch.py"] += b"# changed\n"
    evidence.lines = tiny.evidence().lines
    shutil.rmtree(run)
    evidence.seal(run.parent)
    assert damaged(repository, capsys) == {"S109", "L503"}


def test_a_commit_that_is_not_here_is_said(repository, capsys):
    run = kept(repository)
    evidence = tiny.evidence()
    shutil.rmtree(run)
    evidence.seal(run.parent)
    assert damaged(repository, capsys) == {"L503"}
    evidence.sources["labcore/batch.py"] += b"# changed\n"
    shutil.rmtree(run)
    run = evidence.seal(run.parent)
    assert command.main([str(run)]) == 1
    assert "committed_sources: not checked: the run's commit is not in this repository" in capsys.readouterr().out


def test_a_kept_run_renamed_moved_or_exploratory(repository, capsys):
    run = kept(repository)
    moved = run.rename(run.with_name("0" * 12))
    assert damaged(repository, capsys) == {"S101", "L503", "L504"}
    other = repository / "evidence" / "98_other"
    other.mkdir()
    moved.rename(other / run.name)
    assert damaged(repository, capsys) == {"S101", "L503", "L504"}
    (other / run.name).rename(run)
    manifest = run / "sealed" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"confirmatory"', b'"exploratory"'))
    assert damaged(repository, capsys) == {"S117", "L503"}


def test_a_kept_run_whose_manifest_is_gone_is_named_by_its_folders(repository, capsys):
    (kept(repository) / "sealed" / "manifest.json").unlink()
    assert damaged(repository, capsys) == {"S104", "L503"}
    command.main(["--experiment", "99", "--json", "--no-write"])
    assert '"experiment": "99_tiny"' in capsys.readouterr().out


def test_a_ledger_cut_against_head(repository, capsys):
    (repository / "evidence" / "LEDGER.jsonl").write_bytes(b"")
    assert damaged(repository, capsys) == {"L502", "L503"}


def test_an_environment_variable_does_not_lead_to_another_repository(repository, tmp_path, monkeypatch, capsys):
    git(tmp_path / "empty", "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "empty" / ".git"))
    assert command.main([]) == 0


def test_without_git(repository, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert command.main([]) == 0
    assert "not checked: git cannot be started" in capsys.readouterr().out


def test_as_a_module_outside_of_any_repository(tmp_path):
    run = tiny.evidence().seal(tmp_path)
    words = [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from audit.__main__ import main; sys.exit(main())",
    ]
    done = subprocess.run([*words, str(run)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "R307 derive: no module for 99_tiny" in done.stdout and done.stderr == ""
    done = subprocess.run([*words, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "exit codes: 0 all VERIFIED" in done.stdout
