"""The first minute on a machine: what is missing gets one clear line, and nothing is half installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the first command reads."""
    for name in ("Makefile", "requirements", "labcore", "experiments"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)
    return tmp_path


def tools(folder: Path, *names: str) -> str:
    """A PATH that holds only the named tools."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(os.path.realpath(found))
    return str(folder)


def make(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("make")
    assert found is not None
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "PIP_", "VIRTUAL"))}
    streams: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    return subprocess.run([found, *arguments], cwd=checkout, env={**kept, **environment}, check=False, **streams)


def own_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that is not make's own closing line."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_bare_make_prints_every_verb_with_one_line(checkout: Path) -> None:
    bare, helped = make(checkout), make(checkout, "help")
    assert bare.returncode == 0 and bare.stdout == helped.stdout
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:")).split()[1:]
    assert sorted(line.split()[1] for line in bare.stdout.splitlines()) == sorted(phony)
    assert all(len(line.split()) > 3 for line in bare.stdout.splitlines())


def test_a_missing_python_gets_one_line(checkout: Path) -> None:
    done = make(checkout, "run", "EXP=06", "PYTHON=python9.9")
    assert done.returncode == 2 and "python9.9 not found" in own_line(done) and not (checkout / ".venv").exists()


def test_a_missing_git_gets_one_line(checkout: Path, tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "sh", "test", "mkdir")
    done = make(checkout, "run", "EXP=06", f"PYTHON={os.path.realpath(sys.executable)}", PATH=path)
    assert done.returncode == 2 and "git: not found" in own_line(done) and not (checkout / ".venv").exists()


def test_an_old_python_gets_one_line(checkout: Path) -> None:
    code = "import sys, runpy; sys.hexversion = 0x030A0000; sys.argv = ['install.py']\n"
    code += "runpy.run_path('requirements/install.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "wanted 3.11 or newer" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_unknown_experiment_gets_one_line_before_anything_is_installed(checkout: Path) -> None:
    done = make(checkout, "run", "EXP=99")
    assert done.returncode == 2 and "'99'" in own_line(done) and "06_stale_prefix" in own_line(done)
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("verb", ["run", "protocol", "figure", "keep", "new"])
def test_a_verb_without_its_experiment_gets_one_line(checkout: Path, verb: str) -> None:
    done = make(checkout, verb)
    assert done.returncode == 2 and f"make {verb} EXP=06" in own_line(done)


def test_no_network_gets_one_line_and_the_next_try_starts_over(checkout: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    done = make(checkout, "run", "EXP=06", **nowhere)
    assert done.returncode == 2, done.stdout + done.stderr
    line = own_line(done)
    assert line.startswith("install: pip could not install run: no network"), line
    assert not list((checkout / ".venv").glob(".run"))


def test_every_package_of_a_lock_has_hashes() -> None:
    for path in (ROOT / "requirements").glob("*.lock"):
        entries = [line for line in path.read_text().splitlines() if line and not line.startswith((" ", "#", "--"))]
        assert entries and all(line.endswith("\\") for line in entries), path
        assert "://" not in path.read_text(), path


def test_torch_is_needed_only_where_an_experiment_imports_it() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements" / "install.py")
    assert spec is not None and spec.loader is not None
    install = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(install)
    assert install.needed("06") == [] and install.needed("6") == []
    assert "torch" not in (ROOT / "requirements" / "run.lock").read_text()
