"""What an audit finds: a permanent rule, where, what was stored and what was recomputed, and one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

ERROR = "error"
NOTE = "note"
MANY = 20
"""Findings of one rule kept of one place; what comes after is counted in one more finding."""

RULES: dict[str, str] = {
    "S101": "the folder's name is not the run's name",
    "S102": "the run's name does not follow from the digests",
    "S103": "manifest: keys, types, canonical form",
    "S104": "sealed/ holds a file that is not declared, or lacks one",
    "S105": "a file's digest",
    "S106": "the protocol's digest, or a protocol that breaks section 3",
    "S107": "the protocol is not the committed one",
    "S108": "sources.zip: entries, form or digests",
    "S109": "a source is not the committed one",
    "S110": "an array that is not declared, or a missing one",
    "S111": "an array's digest",
    "S112": "an array's dtype or shape",
    "S113": "the form of an HDF5 file",
    "S114": "rows: a case missing, repeated, moved or with another factor",
    "S115": "results.csv: columns or form of a cell",
    "S116": "the digest of results.csv",
    "S117": "kind: confirmatory with overrides, differing sources or another protocol",
    "S118": "NaN or infinity where not allowed; a boolean that is neither 0 nor 1",
    "S119": "a file that cannot be read at all",
    "M201": "a metric is not what the arrays give",
    "M202": "a metric that is NaN or undefined",
    "R301": "an exact array is not what seeds or inputs give",
    "R302": "a float array differs from its re-derivation by more than its bound",
    "R303": "a decision",
    "R304": "a count",
    "R305": "an own metric",
    "R306": "neither derived nor named as given",
    "R307": "the auditor has no module for the experiment, or it failed on this evidence",
    "V401": "a control does not hold",
    "V402": "a claim or control whose rules give none, two or NULL",
    "V403": "SQL that is not allowed, or fails",
    "L501": "a ledger line changed, reordered, or malformed",
    "L502": "the ledger's tail is cut",
    "L503": "a kept run without its ledger line, or with another manifest",
    "L504": "the ledger's kept run is missing",
    "L505": "a kept run that the ledger says was superseded",
    "L506": "two kept runs of one experiment",
}


class Damaged(Exception):
    """Evidence that cannot be judged further: the rule it breaks, where, and why."""

    def __init__(self, rule: str, where: str, text: str, stored: Any = "", recomputed: Any = "") -> None:
        super().__init__(text)
        self.rule, self.where, self.text, self.stored, self.recomputed = rule, where, text, stored, recomputed


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, as section 9 writes it."""

    rule: str
    where: str
    text: str
    stored: Any = ""
    recomputed: Any = ""
    severity: str = ERROR

    def document(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "where": self.where,
            "stored": self.stored,
            "recomputed": self.recomputed,
            "text": self.text,
        }


@dataclass(slots=True)
class Findings:
    """All findings of one audit; of one rule at one place only the first `MANY` are kept, the others are counted."""

    kept: list[Finding] = field(default_factory=list)
    seen: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, rule: str, where: str, text: str, stored: Any = "", recomputed: Any = "", severity: str = ERROR) -> None:
        """Record a finding; `where` up to its first `[` is the place that is counted."""
        if rule not in RULES:
            raise KeyError(rule)
        place = (rule, where.split("[")[0])
        count = self.seen[place] = self.seen.get(place, 0) + 1
        if count <= MANY:
            self.kept.append(Finding(rule, where, text, _plain(stored), _plain(recomputed), severity))

    def damaged(self, error: Damaged) -> None:
        """Record what stopped a part of the audit."""
        self.add(error.rule, error.where, error.text, error.stored, error.recomputed)

    @property
    def errors(self) -> int:
        """How many findings are errors, those that are only counted included."""
        hidden = sum(count - MANY for count in self.seen.values() if count > MANY)
        return hidden + sum(item.severity == ERROR for item in self.kept)

    def sorted(self) -> list[Finding]:
        """The findings in the order of audit.json: by rule, place, and text."""
        more = [
            Finding(rule, where, f"{count - MANY} more findings of this rule here")
            for (rule, where), count in self.seen.items()
            if count > MANY
        ]
        return sorted(self.kept + more, key=lambda item: (item.rule, item.where, item.text, repr(item.stored)))


def _plain(value: Any) -> Any:
    """A value that canonical JSON can hold: numbers stay, what is not finite or not plain becomes text."""
    if isinstance(value, bool | int | str):
        return value[:200] if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return str(value)[:200]
