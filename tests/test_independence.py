"""The auditor shares nothing with what it audits: it imports NumPy, h5py, the standard library and itself."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {"numpy", "h5py", "audit"} | set(sys.stdlib_module_names)
BANNED = {"pickle", "marshal", "shelve", "ctypes", "urllib", "http", "socket", "runpy"}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


FILES = sorted((ROOT / "audit").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_are_allowed(path):
    tops = {name.split(".")[0] for name in imported(path)}
    assert tops <= ALLOWED, f"{path.name} imports {tops - ALLOWED}"
    assert not tops & BANNED, f"{path.name} imports {tops & BANNED}"


def test_nothing_is_imported_or_run_by_text():
    for path in FILES:
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"eval", "exec", "__import__", "compile"}, path.name


def test_the_check_sees_a_foreign_import(tmp_path):
    (tmp_path / "bad.py").write_text("def f():\n    from labcore.batch import Batch\n")
    assert imported(tmp_path / "bad.py") == {"labcore.batch"}
    assert len(FILES) > 15
