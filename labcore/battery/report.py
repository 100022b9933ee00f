"""What a run of the battery says: a table for the terminal, report.json for programs, one page of HTML for people."""

from __future__ import annotations

import html
import json
import math
from typing import Any

from labcore.battery.check import ERROR, FAILED, NOT_APPLICABLE, PASSED, Result
from labcore.battery.child import plain
from labcore.battery.runner import Report
from labcore.tables import table

SCHEMA = "1"
ORDER = {FAILED: 0, ERROR: 1, PASSED: 2, NOT_APPLICABLE: 3}


def number(value: float) -> str:
    """A number in few characters."""
    return "" if math.isnan(value) else "inf" if math.isinf(value) else f"{value:.3g}"


def smallest(result: Result) -> str:
    """The smallest case, or the call that broke, in one line."""
    if result.status == ERROR:
        return result.call
    parts = [f"{name} {value}" for name, value in result.case.items() if name not in ("seed", "ops", "moves")]
    calls = result.case.get("ops") or result.case.get("moves")
    parts += [f"{len(calls)} calls"] if calls else []
    return ", ".join(parts) or ("" if result.status in (PASSED, NOT_APPLICABLE) else result.call)


def lines(report: Report, width: int = 110) -> str:
    """The table, failures first; then what each failure saw; then the verdict."""
    ordered = sorted(report.results, key=lambda r: (ORDER[r.status], r.rule))
    shown = [r for r in ordered if r.status != NOT_APPLICABLE]
    rows = [[r.rule, r.title, r.status, number(r.value), number(r.threshold), str(r.cases), smallest(r)[:50]] for r in shown]
    text = [table(["rule", "check", "verdict", "worst", "limit", "cases", "smallest case"], rows)] if rows else []
    skipped: dict[str, list[str]] = {}
    for result in ordered:
        if result.status == NOT_APPLICABLE:
            skipped.setdefault(result.text, []).append(result.rule)
    text += [f"not applicable: {' '.join(rules)} ({why})" for why, rules in skipped.items()]
    for result in shown:
        if result.status in (FAILED, ERROR):
            call = f"{result.call}: " if result.call else ""
            text.append(
                f"\n{result.rule} {result.title}: {result.reason}\n  {(result.kind + ': ') if result.kind else ''}{call}{result.text}"
            )
    return "\n".join([*text, "", f"verdict: {report.verdict}"])


def document(report: Report, target: str, options: dict[str, Any]) -> str:
    """report.json. Numbers that JSON does not have: null (nothing measured) and "infinite"."""

    def fit(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fit(item) for key, item in value.items()}
        if isinstance(value, list):
            return [fit(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else "infinite"
        return value

    content = {
        "schema": SCHEMA,
        "target": target,
        "options": options,
        "verdict": report.verdict,
        "exit_code": report.code,
        "results": [fit(plain(result)) for result in report.results],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
border-bottom: 1px solid #ddd; } td.n { text-align: right; font-variant-numeric: tabular-nums; } code { font-size: 90%; }
.failed b { color: #b3261e; } .error b { color: #8a5a00; } .passed b { color: #1b6e3c; } .not.applicable { color: #6b6b6b; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #161616; } th, td { border-color: #3a3a3a; }
.failed b { color: #ff8a80; } .error b { color: #ffcc66; } .passed b { color: #7fd99a; } .not.applicable { color: #9a9a9a; } }
"""


def page(report: Report, target: str) -> str:
    """One page of HTML that needs nothing else. All text is escaped."""
    say = html.escape
    rows = []
    for r in sorted(report.results, key=lambda r: (ORDER[r.status], r.rule)):
        seen = "" if r.status == PASSED else f"{r.kind + ': ' if r.kind else ''}{r.call + ': ' if r.call else ''}{r.text}"
        case = json.dumps(plain(r.case)) if r.case else ""
        rows.append(
            f'<tr class="{say(r.status)}"><td>{say(r.rule)}</td><td>{say(r.title)}<br><small>{say(r.reason)}</small></td>'
            f"<td><b>{say(r.status)}</b></td><td class=n>{number(r.value)}</td><td class=n>{number(r.threshold)}</td>"
            f"<td class=n>{r.cases}</td>"
            f"<td>{say(seen)}{'<br><code>' + say(case) + '</code>' if case else ''}</td></tr>"
        )
    head = "".join(f"<th>{title}</th>" for title in ("rule", "check", "verdict", "worst", "limit", "cases", "what was seen; smallest case"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Isolation battery: {say(target)}</title><style>{STYLE}</style></head>\n<body><h1>Isolation battery</h1>"
        f"<p><code>{say(target)}</code>: <strong>{say(report.verdict)}</strong></p>\n<table><thead><tr>{head}</tr></thead><tbody>\n"
        + "\n".join(rows)
        + "\n</tbody></table></body></html>\n"
    )
