"""Completion of verbs, experiments and overrides: the answers, and a real bash whose Tab key is pressed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labcore.commands.completion import answers
from labcore.compose import completions, resolve
from labcore.protocol import load

ROOT = Path(__file__).resolve().parents[2]
INSTALL = f'eval "$({sys.executable} -m labcore completion)"'
BASH = shutil.which("bash")


def test_verbs_and_experiments() -> None:
    assert answers(["comp"]) == ["completion "]
    assert answers(["run", "06"]) == ["06_stale_prefix "]
    assert answers(["show", "06", ""]) == []


def test_keys_are_those_that_a_run_takes() -> None:
    assert completions(ROOT, "06_stale_prefix", "se") == ["seeds=", "settings."]
    assert "settings.stored.prefix=" in completions(ROOT, "06_stale_prefix", "settings.stored.")
    assert completions(ROOT, "06_stale_prefix", "schem") == completions(ROOT, "06_stale_prefix", "hydra") == []
    assert completions(ROOT, "06_stale_prefix", "nothing.se") == completions(ROOT, "06_stale_prefix", "seeds.0") == []
    kept = load(ROOT / "experiments" / "06_stale_prefix" / "protocol.json")
    for key in completions(ROOT, "06_stale_prefix", "settings."):
        for value in completions(ROOT, "06_stale_prefix", key):
            if value.endswith(" "):  # the value that a key has already: the protocol stays as it is
                assert resolve(ROOT, "06_stale_prefix", [value.strip()]).resolved == kept.resolved, value


def test_a_value_is_offered_where_it_needs_no_quotes() -> None:
    assert completions(ROOT, "06_stale_prefix", "seeds=") == ["seeds=[7,19,41] "]
    assert completions(ROOT, "06_stale_prefix", "seeds=[7,1") == ["seeds=[7,19,41] "]
    assert completions(ROOT, "06_stale_prefix", "seeds=8") == completions(ROOT, "06_stale_prefix", "question=") == []


@pytest.mark.skipif(BASH is None, reason="no bash on this machine")
def test_bash_completes_at_the_tab_key(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update(PS1="ready> ", TERM="dumb", INPUTRC=os.devnull, HISTFILE=os.devnull)
        os.execv(str(BASH), ["bash", "--norc", "--noprofile", "-i"])
    try:
        press(terminal, INSTALL + "\n", "ready> ")
        press(terminal, "", "ready> ")
        assert "run 05_cache_equivalence " in press(terminal, "labcore run 05\t", "equivalence ")
        assert "tolerance=" in press(terminal, "tol\t", "rance=")
        assert "1e-12 " in press(terminal, "\t", "1e-12 ")
        # Ctrl-A, and what stands on the line is said, not run; two spaces show that the echo is no echo of the keys.
        press(terminal, "\x01printf '[%s  %s]' \n", "[labcore  run][05_cache_equivalence  tolerance=1e-12]")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def press(terminal: int, keys: str, wanted: str, limit: float = 30) -> str:
    """Type, and give back what the terminal shows until `wanted` stands there."""
    os.write(terminal, keys.encode())
    seen, end = "", time.monotonic() + limit
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    assert wanted in seen, seen
    return seen


@pytest.mark.skipif(BASH is None, reason="no bash on this machine")
def test_the_shells_part_is_silent_about_what_is_wrong() -> None:
    ask = f'{INSTALL}; COMP_LINE="labcore run 99 se"; COMP_POINT=${{#COMP_LINE}}; _labcore; echo "${{#COMPREPLY[@]}}"'
    done = subprocess.run([str(BASH), "-c", ask], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")
