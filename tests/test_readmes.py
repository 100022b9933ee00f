"""README.md and README.zh.md say the same: headings, commands, code, links and tables; their commands are targets and work."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labcore.readme import texts
from labcore.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("README.md", "README.zh.md")
# Installs or opens something, or is this very suite; tests/test_install.py and the commands' own tests hold these.
ELSEWHERE = {"test", "notebooks", "replicate"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_lines(readme: str) -> list[str]:
    """Lines of indented blocks."""
    return [line[4:] for line in readme.splitlines() if line.startswith("    ")]


def spans(readme: str) -> list[str]:
    """Inline code."""
    prose = "\n".join(line for line in readme.splitlines() if not line.startswith("    "))
    return re.findall(r"`([^`\n]+)`", prose)


def commands(readme: str) -> list[str]:
    """Every `make ...`, in blocks and in prose, in order, each once."""
    found = [part for part in [*code_lines(readme), *spans(readme)] if part.startswith("make ")]
    return list(dict.fromkeys(found))


def shape(readme: str) -> dict[str, Any]:
    """What two languages must have in common."""
    lines = readme.splitlines()
    return {
        "headings": [line.split()[0] for line in lines if line.startswith("#")],
        "blocks": [line if re.match(r"make |from |print|checks|$", line) else line.split()[0] for line in code_lines(readme)],
        "code": sorted(set(spans(readme))),
        "links": [link for link in re.findall(r"\]\(([^)]+)\)", readme) if not link.startswith("README")],
        "bullets": sum(line.startswith("- ") for line in lines),
        "numbers": re.findall(r"\b0\.0\b", readme),
        "generated": re.findall(r"<!-- experiments -->.*?<!-- end -->", readme, re.DOTALL),
        "tables": [(line.count("|"), sorted(re.findall(r"\d+", line))) for line in lines if line.startswith("|")],
    }


def test_both_languages_say_the_same() -> None:
    one, two = (shape(text(name)) for name in LANGUAGES)
    for part in one:
        assert one[part] == two[part], part


def test_a_difference_is_noticed() -> None:
    readme = text("README.md")
    for old, new in (
        ("\n## ", "\n"),
        ("make run EXP=06\n", "make run EXP=05\n"),
        ("`make diff", "`make dif"),
        ("](docs/archives.md", "](docs/archive.md"),
        ("56 of 64", "57 of 64"),
        ("| VERIFIED |", "| verified |"),
    ):
        assert old in readme and shape(readme.replace(old, new, 1)) != shape(readme)


def test_generated_parts_are_what_the_audits_say() -> None:
    for path, wanted in texts(Workspace(ROOT)).items():
        assert path.read_text(encoding="utf-8") == wanted, f"{path.relative_to(ROOT)}: make readme writes it"


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_command_is_a_target_and_every_link_leads_somewhere(name: str) -> None:
    readme = text(name)
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    verbs = {command.split()[1] for command in commands(readme)}
    assert len(verbs) > 10 and verbs <= targets, verbs - targets
    numbers = {path.name[:2] for path in (ROOT / "experiments").iterdir()}
    assert set(re.findall(r"EXP=(\d\d)\b(?!_)", readme)) - {"23"} <= numbers
    for link in re.findall(r"\]\(([^)]+)\)", readme):
        assert (ROOT / link).exists(), link
    for path in re.findall(r"`((?:evidence|labcore|conf|docs)/[\w./]+)`", readme):
        assert path.startswith(("evidence/local", "evidence/archives")) or (ROOT / path).exists(), path


def test_the_snippet_runs() -> None:
    lines = code_lines(text("README.md"))
    start = next(number for number, line in enumerate(lines) if line.startswith("from "))
    snippet = "\n".join(line for line in lines[start : start + 5])
    ast.parse(snippet)
    done = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def as_toy(command: str, run: str, archive: str) -> list[str]:
    """A README's command for the toy experiment."""
    for old, new in (
        ("06/1a2b", f"90/{run}"),
        ("06/3c4d", f"90/{run}"),
        ("EXP=06", "EXP=90"),
        ("23", "91"),
        ("evidence/archives/NAME.tar", archive),
    ):
        command = command.replace(old, new)
    return shlex.split(command.replace("range(0,10000)", "range(0,7)"))


def test_every_command_runs(project: Any) -> None:
    for name in ("Makefile", *LANGUAGES):
        shutil.copy(ROOT / name, project.root)
    (project.root / "evidence" / "FORMAT.md").write_text("# Format\n")
    shutil.copytree(ROOT / "conf", project.root / "conf", dirs_exist_ok=True, ignore=shutil.ignore_patterns("[0-9]*"))
    project.commit()

    def make(words: list[str]) -> subprocess.CompletedProcess[str]:
        command = [*words, "SETUP=@:", f"PY={sys.executable}"]  # the recipe itself, in this environment
        return subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False, timeout=120)

    assert make(["make", "run", "EXP=90"]).returncode == 0
    assert make(["make", "keep", "EXP=90"]).returncode == 0
    project.commit()
    assert 'ARGS="seeds=range(0,10000)"' in text("README.md") and 'ARGS="seeds=range(0,10000)"' in text("README.zh.md")
    assert make(["make", "run", "EXP=90", "ARGS=seeds=range(0,7) --no-figure"]).returncode == 0
    run, archive = next((project.root / "evidence" / "90_toy").iterdir()).name, ""
    done, every = [], commands(text("README.md"))
    for command in every:
        verb = command.split()[1]
        named_only = len(command.split()) == 2 and any(other.startswith(command + " ") for other in every)
        if verb in ELSEWHERE or named_only or "..." in command or ("EXP=23" in command and verb != "new"):
            continue
        result = make(as_toy(command, run, archive))
        assert result.returncode == 0, (command, result.stdout, result.stderr)
        archive = archive or next((str(p) for p in (project.root / "evidence").glob("archives/*.tar")), "")
        if verb == "freeze":
            project.commit()
        done.append(verb)
    assert {"run", "audit", "freeze", "cite", "verify", "diff", "report", "show", "list", "new", "readme"} <= set(done), done
