"""The generated parts of the READMEs: between `<!-- name -->` and `<!-- end -->`, from kept runs and their audits alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from labcore.errors import Refused
from labcore.sealed import Sealed
from labcore.tables import show
from labcore.workspace import Workspace

ORDER = ["reproduced", "qualified", "contradicted", "out-of-reach", "open"]


def fill(text: str, name: str, content: str) -> str:
    """Replace what stands between the two markers.

    >>> fill("a <!-- t -->old<!-- end --> b", "t", "new")
    'a <!-- t -->\\nnew\\n<!-- end --> b'
    """
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda m: f"{m[1]}\n{content}\n{m[2]}", text)


def findings(folder: Path) -> dict[str, str]:
    """Claim -> its sentence, from findings.yaml ({} where there is none)."""
    path = folder / "findings.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}


def stated(workspace: Workspace) -> dict[str, str]:
    """Claim -> what the article claims, in our words ({} where conf/claims.yaml is missing)."""
    path = workspace.root / "conf" / "claims.yaml"
    claims = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"] if path.is_file() else {}
    return {key: str(claim["text"]).replace("|", "\\|") for key, claim in claims.items()}


def sentence(text: str, values: dict[str, Any], where: str) -> str:
    """A finding with the audit's numbers filled in."""
    try:
        return text.format(**values).strip()
    except (KeyError, IndexError, ValueError) as error:
        raise Refused(f"{where}: {error} in {text!r}; the audit has {', '.join(sorted(values)) or 'no values'}") from None


def experiments_table(workspace: Workspace) -> str:
    """One line an experiment: question, kept run, and how many claims got which verdict."""
    lines = ["| experiment | question | kept run | audit | claims |", "|---|---|---|---|---|"]
    for name in workspace.names():
        kept = workspace.kept(name)
        if kept is None:
            continue
        run = Sealed(kept)
        verdicts = [claim["verdict"] for claim in run.audit.get("claims", {}).values()]
        counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ORDER if v in verdicts)
        verdict = run.audit.get("verdict", "not audited")
        lines.append(f"| [{name}](experiments/{name}/README.md) | {run.protocol.question} | `{kept.name}` | {verdict} | {counted} |")
    return "\n".join(lines)


def claims_table(workspace: Workspace, name: str) -> str:
    """One line a claim of the kept run: what is claimed, the verdict, measured values, and the sentence of findings.yaml."""
    kept = workspace.kept(name)
    if kept is None:
        return "No kept run yet."
    run = Sealed(kept)
    found = findings(workspace.experiments / name)
    claimed = stated(workspace)
    lines = ["| claim | in our words | verdict | measured | what is so |", "|---|---|---|---|---|"]
    for claim, result in sorted(run.audit.get("claims", {}).items()):
        values = "; ".join(f"{key} {show(value)}" for key, value in result["values"].items())
        text = sentence(found[claim], result["values"], f"{name}/findings.yaml {claim}") if claim in found else result["note"]
        about = claimed.get(claim, "(our own statement)")
        lines.append(f"| {claim} | {about} | {result['verdict']} | {values} | {' '.join(text.split())} |")
    table = "\n".join(lines) if len(lines) > 2 else "This experiment decides no claim."
    return f"Run `{kept.name}`, {run.audit.get('verdict', 'not audited')}.\n\n{table}"


def first_figure(workspace: Workspace) -> str:
    """The figure of 06, as the kept run has it."""
    kept = workspace.kept("06_stale_prefix")
    found = sorted((kept / "figures").glob("*.png")) if kept else []
    if kept is None or not found:
        return "No kept run of 06 yet."
    return f"![06: {Sealed(kept).protocol.question}]({found[0].relative_to(workspace.root).as_posix()})"


def texts(workspace: Workspace) -> dict[Path, str]:
    """Every README with its generated parts as they should be."""
    result = {}
    for path in (workspace.root / "README.md", workspace.root / "README.zh.md"):
        if path.is_file():
            text = fill(path.read_text(encoding="utf-8"), "experiments", experiments_table(workspace))
            result[path] = fill(text, "figure", first_figure(workspace))
    for name in workspace.names():
        path = workspace.experiments / name / "README.md"
        if path.is_file():
            result[path] = fill(path.read_text(encoding="utf-8"), "claims", claims_table(workspace, name))
    return result
