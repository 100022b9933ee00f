"""What a run says of its origin, against what the repository has committed (rules S107, S109, S117)."""

from __future__ import annotations

import hashlib
from typing import Any

from audit.committed import Repository
from audit.findings import Findings
from audit.strictjson import write

CHECKED = "checked"


def committed(value: dict[str, Any], repository: Repository | None, kept: bool, parent: str, findings: Findings) -> dict[str, str]:
    """The levels `committed_protocol` and `committed_sources`; `parent` is the name of the folder that holds the run's."""
    confirmatory = value["kind"] == "confirmatory"
    commit = value["recorded"]["git"]["commit"]
    if confirmatory and (value["overrides"] or value["differing"]):
        findings.add("S117", "kind", "confirmatory with overrides or differing sources", [*value["overrides"], *value["differing"]])
    if confirmatory and not commit:
        findings.add("S117", "kind", "confirmatory outside a repository")
    if kept and parent != value["experiment"]:
        findings.add("S101", "run", "the run lies in the folder of another experiment", parent, value["experiment"])
    if kept and not confirmatory:
        findings.add("S117", "kind", "an exploratory run among the kept ones", value["kind"])
    if repository is None:
        return dict.fromkeys(("committed_protocol", "committed_sources"), "not checked: outside a repository")
    here = bool(commit) and repository.has(commit)
    why = repository.failure or ("the run names no commit" if not commit else "the run's commit is not in this repository")
    return {
        "committed_protocol": _protocol(value, repository, "HEAD" if kept else commit if here else "", why, findings),
        "committed_sources": _sources(value, repository, commit if here else "HEAD" if kept else "", here, why, findings),
    }


def _protocol(value: dict[str, Any], repository: Repository, commit: str, why: str, findings: Findings) -> str:
    blob = repository.blob(f"{commit}:experiments/{value['experiment']}/protocol.json") if commit else None
    if repository.failure or not commit:
        return f"not checked: {repository.failure or why}"
    same = blob == write(value["protocol"]["resolved"])
    if value["kind"] == "confirmatory" and not same:
        text = "is not the committed one" if blob is not None else "is not committed"
        stored, actual = value["protocol"]["sha256"], hashlib.sha256(blob or b"").hexdigest() if blob is not None else ""
        findings.add("S107", "protocol", text, stored, actual)
    if value["kind"] == "exploratory" and same and not value["overrides"] and not value["differing"]:
        findings.add("S117", "kind", "exploratory, though nothing differs from what is committed")
    return CHECKED


def _sources(value: dict[str, Any], repository: Repository, commit: str, here: bool, why: str, findings: Findings) -> str:
    if repository.failure or not commit:
        return f"not checked: {repository.failure or why}"
    wrong = []
    for path, stored in sorted(value["sources"].items()):
        blob = repository.blob(f"{commit}:{path}")
        same = blob is not None and hashlib.sha256(blob).hexdigest() == stored
        if same == (path in value["differing"]):
            wrong.append((path, same, stored, hashlib.sha256(blob).hexdigest() if blob is not None else "not committed"))
    if repository.failure or (wrong and not here):  # against another commit than the run's own, a difference proves nothing
        return f"not checked: {repository.failure or why}"
    for path, same, stored, actual in wrong:
        text = "is said to differ from the committed one, but does not" if same else "is not the committed one"
        findings.add("S109", path, text, stored, actual)
    return CHECKED
