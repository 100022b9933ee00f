"""Level 4: controls and claims, decided over the auditor's own values."""

from __future__ import annotations

from typing import Any

from audit.findings import Findings
from audit.sql import NotAllowed, Tables

RULES = ("reproduced", "contradicted", "qualified")


def controls(declared: dict[str, dict[str, str]], tables: Tables, findings: Findings) -> dict[str, Any]:
    """Name -> {holds, values, note}; a control that does not hold is a finding."""
    result: dict[str, Any] = {}
    for name, control in sorted(declared.items()):
        where = f"controls/{name}"
        values: dict[str, Any] = {}
        holds = False
        try:
            values = tables.measure(control["measure"])
            value = tables.expression(control["holds"], values)
            if value is None:
                findings.add("V402", where, "the expression is NULL")
            holds = bool(value)
            if not holds and value is not None:
                findings.add("V401", where, f"does not hold: {control['holds']}", stored=_line(values))
        except NotAllowed as error:
            findings.add("V403", where, str(error))
        result[name] = {"holds": holds, "values": values, "note": control["note"]}
    return result


def claims(declared: dict[str, dict[str, str]], tables: Tables, findings: Findings) -> dict[str, Any]:
    """Id -> {verdict, values, rule, note}; a claim whose rules do not give one verdict is a finding and has the verdict "open"."""
    result: dict[str, Any] = {}
    for name, claim in sorted(declared.items()):
        verdict, rule, values = "open", "", {}
        if "open" in claim or "out_of_reach" in claim:
            verdict, rule = ("open", claim["open"]) if "open" in claim else ("out-of-reach", claim["out_of_reach"])
        else:
            try:
                values = tables.measure(claim["measure"])
                verdict, rule = _decide(f"claims/{name}", claim, values, tables, findings)
            except NotAllowed as error:
                findings.add("V403", f"claims/{name}", str(error))
        result[name] = {"verdict": verdict, "values": values, "rule": rule, "note": claim["note"]}
    return result


def _decide(where: str, claim: dict[str, str], values: dict[str, Any], tables: Tables, findings: Findings) -> tuple[str, str]:
    held = {key: tables.expression(claim[key], values) for key in RULES if key in claim}
    true = [key for key, value in held.items() if value is not None and value]
    if None in held.values():
        findings.add("V402", where, f"NULL: {', '.join(key for key, value in held.items() if value is None)}", stored=_line(values))
    elif len(true) != 1:
        findings.add("V402", where, f"wanted one rule that holds, got {', '.join(true) or 'none'}", stored=_line(values))
    else:
        return true[0], claim[true[0]]
    return "open", ""


def _line(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
