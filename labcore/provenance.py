"""Where a run came from: its source files, whether they are the committed ones, and the machine it ran on."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labcore.errors import Environment

RUN_MODULE = "labcore.runner"
LOCKS = ("requirements/build.lock", "requirements/run.lock", "requirements/torch.lock", "requirements/tokenizers.lock")
PACKAGES = ("numpy", "h5py", "msgspec", "torch", "tokenizers")
# A user's git settings must not change what is read.
GIT = ("git", "-c", "core.quotepath=off", "-c", "core.fsmonitor=false")


def sources(root: Path, experiment: str) -> dict[str, bytes]:
    """The project files that a run of `experiment` imports, directly or not, by path, and its lock files.

    Found by reading import statements, so that the answer does not depend on what a process happens to have loaded.
    """
    first = root / "experiments" / experiment / "experiment.py"
    waiting = [first, *_files(root, RUN_MODULE)]
    found: dict[str, bytes] = {}
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name in found:
            continue
        found[name] = path.read_bytes()
        for module in imports(found[name], name):
            waiting.extend(_files(root, module))
    for lock in LOCKS:
        if (root / lock).is_file():
            found[lock] = (root / lock).read_bytes()
    return dict(sorted(found.items()))


def imports(source: bytes, name: str) -> Iterable[str]:
    """The modules that a source file names in import statements, at any depth."""
    for node in _statements(ast.parse(source, name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(node: ast.AST) -> Iterable[ast.AST]:
    """All statements below a node; expressions, which hold none, are most of a file and are not entered."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt | ast.excepthandler | ast.match_case):
            for child in value:
                yield child
                yield from _statements(child)


def _files(root: Path, module: str) -> list[Path]:
    """The files that importing a labcore module reads: its own and its packages' __init__."""
    parts = module.split(".")
    if parts[0] != "labcore":
        return []
    packages = [root.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts) + 1)]
    return [path for path in [*packages, root.joinpath(*parts).with_suffix(".py")] if path.is_file()]


def git(root: Path, *arguments: str) -> str | None:
    """Output of a git command in the repository, or None where git says no (no repository, no such object)."""
    try:
        done = subprocess.run([*GIT, "-C", str(root), *arguments], capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise Environment("git: not found; the suite records the commit of every run. Install git and try again") from None
    return done.stdout.decode() if done.returncode == 0 else None


def committed(root: Path, paths: Iterable[str]) -> tuple[str, dict[str, str]]:
    """HEAD's commit ("" outside a repository) and, by path, the blob that HEAD holds."""
    commit = git(root, "rev-parse", "--verify", "-q", "HEAD^{commit}")
    if commit is None or not (root / ".git").exists():
        return "", {}
    listed = git(root, "ls-tree", "-r", "-z", "HEAD", "--", *paths) or ""
    blobs = {}
    for entry in listed.split("\0")[:-1]:
        described, name = entry.split("\t", 1)
        blobs[name] = described.split()[2]
    return commit.strip(), blobs


def blob(content: bytes) -> str:
    """The name that git gives a file's content.

    >>> blob(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def differing(found: Mapping[str, bytes], blobs: Mapping[str, str]) -> list[str]:
    """The files whose content is not the committed one."""
    return sorted(name for name, content in found.items() if blobs.get(name) != blob(content))


def environment() -> dict[str, Any]:
    """Python, packages in use, processor, BLAS kernel and threads."""
    from importlib import metadata

    from threadpoolctl import threadpool_info

    pools = [{k: p.get(k) for k in ("internal_api", "version", "architecture", "num_threads")} for p in threadpool_info()]
    packages = {}
    for name in PACKAGES:
        if name in sys.modules:
            packages[name] = metadata.version(name)
    return {
        "python": platform.python_version(),
        "packages": packages,
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": sorted(pools, key=str),
        "threads": os.cpu_count(),
    }


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as handle:
            for line in handle:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
