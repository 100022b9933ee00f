"""The audit of one run: the four levels in order, and the document that they give (FORMAT 9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from audit import __version__, metrics, rederive, rows, seal
from audit.bits import decode
from audit.committed import Repository
from audit.findings import Damaged, Findings
from audit.provenance import committed
from audit.study import Study

GOOD, BAD = "VERIFIED", "NOT VERIFIED"
CHECKED = "checked"
UNSIGNED = {"max_abs_error", "rmse", "relative_l2", "max_abs"}
"""Operations that cannot give -0.0."""
Own = dict[tuple[str, str], list[Any]]


@dataclass(slots=True)
class Outcome:
    """The document for audit.json, and the folder that it is about."""

    folder: Path
    document: dict[str, Any]

    @property
    def verified(self) -> bool:
        """Whether there is no error."""
        return bool(self.document["verdict"] == GOOD)


def audit(folder: Path, repository: Repository | None = None, kept: bool = False) -> Outcome:
    """Audit the run in `folder`. `kept`: it lies where the repository keeps runs, so HEAD itself must hold its protocol."""
    findings = Findings()
    levels = dict.fromkeys(("1", "2", "3", "4", "committed_protocol", "committed_sources"), "not checked: the manifest is damaged")
    document: dict[str, Any] = {
        "schema": "1",
        "experiment": folder.parent.name if kept else "",
        "run": folder.name,
        "kind": "",
        "manifest": "",
        "auditor": {"version": __version__},
        "rederived": rederive.Rederived().document(0),
        "controls": {},
        "claims": {},
    }
    try:
        sealed = seal.read(folder, findings)
    except Damaged as error:
        findings.damaged(error)
    else:
        value = sealed.manifest
        document |= {key: value[key] for key in ("experiment", "run", "kind")} | {"manifest": sealed.digest}
        levels["1"] = CHECKED
        levels |= committed(value, repository, kept, folder.parent.name, findings)
        _judge(sealed, document, levels, findings)
        sealed.close()
    document["findings"] = [item.document() for item in findings.sorted()]
    document["verdict"] = BAD if findings.errors else GOOD
    document["levels"] = levels
    return Outcome(folder, document)


def _judge(sealed: seal.Sealed, document: dict[str, Any], levels: dict[str, str], findings: Findings) -> None:
    """Levels 2 to 4, as far as what was read allows."""
    plan = sealed.plan
    if plan is None:
        levels |= dict.fromkeys("234", "not checked: the protocol is damaged")
        return
    lacking = [f"{name}/{key}" for name, block in plan.blocks.items() for key in block.arrays if (name, key) not in sealed.arrays]
    if lacking:
        levels |= dict.fromkeys("234", f"not checked: {lacking[0]} cannot be read")
        return
    if sealed.columns is None:
        levels |= dict.fromkeys("234", "not checked: results.csv cannot be read")
        return
    values = recompute(sealed, findings)
    levels["2"] = CHECKED
    columns: dict[tuple[str, str], Any] = {key: column for key, column in sealed.columns.items() if None not in column}
    total = sum(plan.count(name) for name in plan.blocks)
    outcome = rederive.Rederived()
    try:
        module = rederive.load(plan.document["experiment"])
    except rederive.Unfit as error:
        findings.add("R307", "derive", str(error))
        levels["3"] = "not checked: no module for the experiment"
    else:
        study = Study(plan, sealed.read, rows.chosen(plan, sealed.digest), columns)
        outcome = rederive.run(study, module, findings)
        levels["3"] = CHECKED
    document["rederived"] = outcome.document(total)
    own = own_values(sealed, outcome, values, findings)
    _verdicts(sealed, own, document, findings)
    levels["4"] = CHECKED


def recompute(sealed: seal.Sealed, findings: Findings) -> Own:
    """Level 2: every metric of the vocabulary from the arrays, compared with results.csv; the auditor's own values come back."""
    plan, stored = sealed.plan, sealed.columns
    assert plan is not None and stored is not None
    result: Own = {}
    for name in plan.of_kind("csv", "timing"):
        block = plan.blocks[name]
        wanted = {key: metric for key, metric in block.metrics.items() if metric.op != "own"}
        used = sorted({array for metric in wanted.values() for array in metric.of})
        for key in wanted:
            result[name, key] = []
        for piece in sealed.pieces(name) if wanted else []:
            parts = {array: sealed.read(name, array, piece) for array in used}
            numbers = {array: decode(part, block.arrays[array].bits) for array, part in parts.items()}
            for key, metric in wanted.items():
                of = metric.of
                result[name, key] += metrics.values(metric.op, [parts[item] for item in of], [numbers[item] for item in of])
                for item in of if metric.wide else ():
                    if (np.abs(numbers[item]) > 2.0**53).any():
                        findings.add("M202", f"{name}/{key}", f"{item} holds integers beyond 2**53")
        for key in wanted:
            _compare(name, key, wanted[key].op in UNSIGNED, stored.get((name, key)), result[name, key], findings)
    return result


def _compare(block: str, key: str, unsigned: bool, stored: list[Any] | None, values: list[float], findings: Findings) -> None:
    """M201 and M202 of one column; `unsigned`: the value is never -0.0."""
    for row, value in enumerate(values):
        where = f"{block}/{key}[{row}]"
        cell = None if stored is None else stored[row]
        if math.isnan(value):
            findings.add("M202", where, "NaN or undefined", "" if stored is None else str(cell))
        elif cell is not None and (cell != value or (unsigned and value == 0 and math.copysign(1, cell) < 0)):
            findings.add("M201", where, "not what the arrays give", cell, value)


def own_values(sealed: seal.Sealed, outcome: rederive.Rederived, values: Own, findings: Findings) -> Own:
    """All metrics for SQL: those recomputed, `own` ones as re-derivation settled them, stored ones of rows not sampled or given."""
    plan, stored = sealed.plan, sealed.columns
    assert plan is not None and stored is not None
    for name in plan.of_kind("csv", "timing"):
        for key, metric in plan.blocks[name].metrics.items():
            if metric.op == "own":
                derived = outcome.own.get((name, key), {})
                column = stored.get((name, key))
                values[name, key] = [derived.get(row, column[row] if column else None) for row in range(plan.count(name))]
                for row, value in enumerate(values[name, key]):
                    if value is not None and math.isnan(value):
                        findings.add("M202", f"{name}/{key}[{row}]", "NaN or undefined")
    return values


def _verdicts(sealed: seal.Sealed, values: Own, document: dict[str, Any], findings: Findings) -> None:
    """Level 4, on one table per block that has rows."""
    from audit import verdicts
    from audit.sql import Tables

    plan, stored = sealed.plan, sealed.columns
    assert plan is not None and stored is not None
    tables = Tables()
    for name in plan.of_kind("csv", "timing"):
        block = plan.blocks[name]
        count = plan.count(name)
        parts: list[Any] = [range(count), *zip(*plan.rows(name), strict=True)] if block.factors else [range(count)]
        parts += [stored.get((name, key), [None] * count) for key in (*block.decisions, *block.counts)]
        parts += [values.get((name, key), [None] * count) for key in block.metrics]
        names = ["row", *block.factors, *block.decisions, *block.counts, *block.metrics]
        tables.add(name, names, zip(*parts, strict=True))
    document["controls"] = verdicts.controls(plan.document["controls"], tables, findings)
    if sealed.manifest["kind"] == "confirmatory":
        document["claims"] = verdicts.claims(plan.document["claims"], tables, findings)
