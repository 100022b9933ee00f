"""Killed, crowded, read-only, without permission: nothing half written, nothing lost, one line."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOY = "90_toy"
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


def without_privilege() -> None:
    """Let permissions bind even root: the capability to ignore them is dropped before exec."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")


def load_kills() -> Any:
    spec = importlib.util.spec_from_file_location("kills", ROOT / "tools" / "kills.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kill_9_at_random_moments_leaves_nothing_that_looks_complete(project: Any) -> None:
    missed, problems = load_kills().campaign(project.root, "90", 8, 3)
    assert problems == []
    assert missed < 24


@pytest.mark.parametrize("place", ["local", "local/90_toy"])
def test_a_place_without_permission_is_one_line_and_exit_3(project: Any, place: str) -> None:
    folder = project.root / "evidence" / place
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    try:
        done = project.call("run", "90", preexec_fn=without_privilege)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 3, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "ermission denied" in done.stderr
    assert project.runs() == []


def test_figures_without_permission_are_one_line_that_does_not_deny_the_run(project: Any) -> None:
    run = project.make()
    (run / "figures").mkdir()
    (run / "figures").chmod(0o555)
    done = project.call("run", "90", preexec_fn=without_privilege)
    assert done.returncode == 3 and "VERIFIED" in done.stdout
    assert len(done.stderr.strip().splitlines()) == 1 and "ermission denied" in done.stderr and "nothing was kept" not in done.stderr
    assert list((run / "figures").iterdir()) == [] and project.runs() == list((project.local / TOY).iterdir()) == [run]


def test_keep_without_permission_leaves_the_kept_run_and_the_ledger(project: Any) -> None:
    project.call("run", "90")
    assert project.call("keep", "90").returncode == 0
    before = (project.root / "evidence" / "LEDGER.jsonl").read_bytes()
    conf = project.root / "conf" / "experiment" / f"{TOY}.yaml"
    conf.write_text(conf.read_text().replace("[7, 19, 41]", "[7, 19]"))
    project.call("protocol", "90")
    project.commit()
    project.call("run", "90")
    folder = project.root / "evidence" / TOY
    folder.chmod(0o555)
    try:
        done = project.call("keep", "90", preexec_fn=without_privilege)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 3 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert (project.root / "evidence" / "LEDGER.jsonl").read_bytes() == before
    assert len(list(folder.iterdir())) == 1


def test_a_run_and_a_keep_and_two_audits_at_once_all_land(project: Any) -> None:
    project.call("run", "90")
    commands = [
        ["labcore", "run", "90", "seeds=[3]", "--no-figure"],
        ["labcore", "keep", "90", "--run", project.runs()[0].name],
        ["labcore", "keep", "90", "--run", project.runs()[0].name],
        ["audit"],
        ["audit"],
    ]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen([sys.executable, "-m", *command], cwd=project.root, **streams) for command in commands]
    said = [process.communicate(timeout=120)[0] for process in started]
    # An audit that comes between the copy and its ledger line may say so; the keeps and the run must land.
    assert [process.returncode for process in started[:3]] == [0, 0, 0], said
    lines = (project.root / "evidence" / "LEDGER.jsonl").read_text().splitlines()
    assert len(lines) == 1 and '"kept"' in lines[0]
    assert project.call(module="audit").returncode == 0


def test_a_ledger_that_is_torn_stops_a_keep_before_anything_changes(project: Any) -> None:
    project.call("run", "90")
    ledger = project.root / "evidence" / "LEDGER.jsonl"
    ledger.write_text('{"n":0')
    done = project.call("keep", "90")
    assert done.returncode == 2 and "LEDGER.jsonl line 1" in done.stderr, done.stderr
    assert ledger.read_text() == '{"n":0'
    assert not (project.root / "evidence" / TOY).exists() or not any((project.root / "evidence" / TOY).iterdir())
