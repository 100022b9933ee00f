"""What the command prints: a line per run, its findings, and the table of claims."""

from __future__ import annotations

from typing import Any

from audit.findings import RULES

NOTE = 90
"""Characters of a claim's note that the short table shows."""


def run_line(document: dict[str, Any]) -> str:
    """One line for one run."""
    found = document["findings"]
    rederived = document["rederived"]
    number = f"{len(found)} finding{'s' * (len(found) != 1)}" if found else "no finding"
    rows = f"{rederived['rows']}/{rederived['of']} rows"
    kind = document["kind"] or "-"
    return (
        f"{document['experiment'] or '-':<22} {document['run']:<12} {kind:<12} {document['verdict']:<12}"
        f" {number}, {rows} and {rederived['arrays']} arrays re-derived, {rederived['given']} given,"
        f" differences within {rederived['largest_difference']:.0e}"
    )


def finding_line(finding: dict[str, Any]) -> str:
    """One line for one finding."""
    values = ""
    if finding["stored"] != "" or finding["recomputed"] != "":
        values = f"; stored {_value(finding['stored'])}, recomputed {_value(finding['recomputed'])}"
    severity = "" if finding["severity"] == "error" else f" [{finding['severity']}]"
    title = RULES[finding["rule"]]
    return f"  {finding['rule']}{severity} {finding['where']}: {finding['text']}{values}" + (
        f"  ({title})" if title != finding["text"] else ""
    )


def levels_line(document: dict[str, Any]) -> list[str]:
    """What was not checked, a line each."""
    return [f"  level {name}: {state}" for name, state in document["levels"].items() if state != "checked"]


def claims_table(judged: list[tuple[dict[str, Any], bool]], detail: bool) -> list[str]:
    """The claims of confirmatory runs, aligned; with `detail` also values and rule, and the note in full.

    `judged`: (document, whether the run is kept). Where a run of an experiment is kept, the table is about that one alone.
    """
    kept = {document["experiment"] for document, is_kept in judged if is_kept}
    rows = []
    for document in (document for document, is_kept in judged if is_kept or document["experiment"] not in kept):
        for name, claim in document["claims"].items():
            values = ", ".join(f"{key} = {_value(value)}" for key, value in claim["values"].items())
            rows.append((name, document["experiment"], claim["verdict"], claim["note"], values, claim["rule"]))
    # A claim decided alike by a kept run and by a run of this machine stands once.
    rows = sorted(set(rows))
    if not rows:
        return []
    wide = [max(len(row[place]) for row in rows) for place in range(3)]
    lines = ["", "claims"]
    for row in rows:
        head = "  ".join(row[place].ljust(wide[place]) for place in range(3))
        note = row[3] if detail or len(row[3]) <= NOTE else row[3][: NOTE - 3] + "..."
        lines.append(f"  {head}  {note}".rstrip())
        if detail:
            lines += [f"      {part}" for part in (row[4], row[5]) if part]
    count = {verdict: sum(row[2] == verdict for row in rows) for verdict in sorted({row[2] for row in rows})}
    lines.append(f"  {len(rows)} claims: " + ", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    return lines


def controls_lines(document: dict[str, Any]) -> list[str]:
    """The controls of a run, a line each."""
    lines = []
    for name, control in document["controls"].items():
        values = ", ".join(f"{key} = {_value(value)}" for key, value in control["values"].items())
        lines.append(f"  control {name}: {'holds' if control['holds'] else 'DOES NOT HOLD'} ({values})")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "NULL" if value is None else str(value)
