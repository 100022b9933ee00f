"""Where the runs are: the kept and local runs of a repository, and its ledgers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit import ledger
from audit.committed import Repository
from audit.findings import Damaged, Findings
from audit.schema import EXPERIMENT


def runs(root: Path, only: Callable[[str], bool] = lambda name: True) -> list[tuple[Path, bool]]:
    """(folder, kept) of every run below `root/evidence`, kept ones first, in sorted order."""
    found = []
    for base, kept in ((root / "evidence", True), (root / "evidence" / "local", False)):
        for experiment in _folders(base):
            if EXPERIMENT.fullmatch(experiment.name) and only(experiment.name):
                found += [(folder, kept) for folder in _folders(experiment) if not folder.name.startswith(".")]
    return found


def _folders(base: Path) -> list[Path]:
    return sorted(item for item in base.iterdir() if item.is_dir()) if base.is_dir() else []


def is_kept(folder: Path, root: Path) -> bool:
    """Whether a folder lies where the repository keeps runs."""
    return folder.parent.parent == root / "evidence" and EXPERIMENT.fullmatch(folder.parent.name) is not None


def ledgers(root: Path, repository: Repository | None) -> list[dict[str, Any]]:
    """A document per ledger: {schema, ledger, verdict, lines, findings}; none where there is neither a ledger nor a kept run."""
    documents = []
    kept = [folder for folder, where in runs(root) if where]
    for name, events in (("evidence/LEDGER.jsonl", ledger.TRACKED), ("evidence/local/LEDGER.jsonl", ledger.LOCAL)):
        tracked = events is ledger.TRACKED
        findings = Findings()
        entries: list[dict[str, Any]] = []
        head = repository.blob(f"HEAD:{name}") if repository is not None and tracked else None
        data: bytes | None = None
        try:
            data = ledger.read(root / name)
            if data is not None:
                entries = ledger.lines(data, name, events, findings)
        except Damaged as error:
            findings.damaged(error)
        if data is None and head is None and not findings.kept and not (tracked and kept):
            continue
        ledger.tail(data or b"", head, name, findings)
        if tracked:
            ledger.folders(entries, [_folder(folder) for folder in kept], findings)
        documents.append(
            {
                "schema": "1",
                "ledger": name,
                "lines": len(entries),
                "head": "not tracked" if not tracked else "checked" if head is not None else "not checked: HEAD has no such ledger",
                "verdict": "NOT VERIFIED" if findings.errors else "VERIFIED",
                "findings": [item.document() for item in findings.sorted()],
            }
        )
    return documents


def _folder(folder: Path) -> ledger.Folder:
    try:
        digest = hashlib.sha256((folder / "sealed" / "manifest.json").read_bytes()).hexdigest()
    except OSError:
        digest = ""
    return ledger.Folder(folder.parent.name, folder.name, digest)
