"""The report: static pages made from kept evidence and an audit of it that is run now. Nothing on them is typed in.

A run that is damaged or NOT VERIFIED appears as that, with its findings; it is never hidden or left out. Equal evidence gives equal bytes.
"""

from __future__ import annotations

import ast
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

from labcore import ledger
from labcore.decisive import places
from labcore.errors import Environment, Refused
from labcore.protocol import load
from labcore.readme import ORDER, findings, sentence
from labcore.sealed import Sealed
from labcore.tables import show
from labcore.workers import processors
from labcore.workspace import Workspace

TEMPLATES = Path(__file__).parent / "templates"
LONG = 40  # rows beyond which a block is summed up
HEAVY = 300_000  # bytes from which a figure is shown as PNG; the SVG stays a link
SECTIONS = {
    "method": "Method",
    "reading": "How to read the figures",
    "not_it": "What it is not",
    "left_open": "What was left open, and how it was fixed",
    "looked": "Changed after a first look",
}


def build(workspace: Workspace, out: Path) -> list[Path]:
    """Write all pages into `out`, made anew; returns the paths of the pages."""
    audits, chain = audit(workspace)
    articles, claims = claims_ledger(workspace)
    experiments = [experiment(workspace, name, audits, chain, claims) for name in workspace.names()]
    found = {claim["id"]: claim for one in experiments for claim in one["claims"]}
    broken = {one["number"] for one in experiments if one["run"] and one["verdict"] != "VERIFIED"}
    for claim in claims:
        if claim["experiment"] in broken:
            claim["waiting"] = "its experiment's kept run is NOT VERIFIED and decides nothing"
    undecided: dict[str, Any] = {"verdict": "open", "values": {}, "places": []}
    rows = [{**claim, **found.get(claim["id"], {**undecided, "said": claim["waiting"]})} for claim in claims]
    try:
        lines = [{**line, "short": line["run"][:12]} for line in ledger.read(workspace.ledger)]
    except (Refused, KeyError, TypeError, ValueError, OSError):
        lines = []  # what is wrong with it is among the auditor's findings
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "figures").mkdir(parents=True)
    counted = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ORDER}
    shared = {"experiments": experiments, "articles": articles, "counted": counted, "total": len(rows), "order": ORDER}
    shared["chain"] = chain
    shared["otherwise"] = {verdict: [row for row in rows if row["verdict"] == verdict] for verdict in ("contradicted", "qualified")}
    pages = [
        page(part, "index.html", "index.html", shared, here="index"),
        page(part, "claims.html", "claims.html", shared, here="claims", claims=rows),
        page(part, "ledger.html", "ledger.html", shared, here="ledger", lines=lines),
    ]
    for one in experiments:
        for figure in one["figures"]:
            for kind in figure["files"]:
                target = part / "figures" / one["name"] / kind.name
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(kind, target)
        pages.append(page(part, "experiment.html", f"{one['name']}.html", shared, here=one["name"], one=one))
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    return [out / path.name for path in pages]


def page(folder: Path, template: str, name: str, shared: dict[str, Any], **values: Any) -> Path:
    """Render one page."""
    path = folder / name
    path.write_text(_templates().get_template(template).render(**shared, **values), encoding="utf-8")
    return path


@cache
def _templates() -> Templates:
    made = Templates(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["show"] = show
    return made


def audit(workspace: Workspace) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The auditor's documents on all kept runs, by folder name, and its findings on their ledger, as they are now."""
    runs = [run for name in workspace.names() for run in workspace.runs(name, local=False)]
    if not runs:
        return {}, []
    runs.sort(key=lambda run: -sum(path.stat().st_size for path in run.glob("sealed/*") if path.is_file()))
    # Each processor gets two shares, one after the other, with large and small runs in each: few starts, and none waits long at the end.
    shares = [share for place in range(2 * processors()) if (share := runs[place :: 2 * processors()])]
    with ThreadPoolExecutor(processors()) as pool:
        texts = list(pool.map(lambda share: audited(workspace.root, share), shares))
    documents, chain = {}, []
    for text in texts:
        decoder, at = json.JSONDecoder(), 0
        while at < len(text.rstrip()):
            document, at = decoder.raw_decode(text, at)
            at += 1
            if "run" in document:
                documents[document["run"]] = document
            elif document.get("ledger") == workspace.ledger.relative_to(workspace.root).as_posix():
                chain = document["findings"]
    return documents, chain


def audited(root: Path, runs: list[Path]) -> str:
    """What `python -m audit --json` says about some runs."""
    command = [sys.executable, "-m", "audit", "--json", "--no-write", *map(str, runs)]
    done = subprocess.run(command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise Environment(f"the auditor ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def claims_ledger(workspace: Workspace) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Article letter -> title, and every claim of conf/claims.yaml."""
    data = yaml.safe_load((workspace.root / "conf" / "claims.yaml").read_text(encoding="utf-8"))
    names = {name[:2]: name for name in workspace.names()}
    claims = []
    for key, claim in data["claims"].items():
        known = names.get(claim["experiment"])
        waiting = "its experiment has no kept run yet" if known else f"experiment {claim['experiment']} is still to come"
        claims.append({"id": key, "article": key[0], "experiment_name": known, "waiting": waiting, **claim})
    return data["articles"], claims


def experiment(
    workspace: Workspace, name: str, audits: dict[str, dict[str, Any]], chain: list[dict[str, Any]], ledger_claims: list[dict[str, Any]]
) -> dict[str, Any]:
    """All that the page of an experiment shows. chain: findings on the ledger; those on a run of the experiment count as its own."""
    kept = workspace.kept(name)
    chained = [finding for finding in chain if f"/{name}/" in f"{finding['where']}/"]
    texts = {claim["id"]: claim for claim in ledger_claims}
    one: dict[str, Any] = {
        "name": name,
        "number": name[:2],
        "claims": [],
        "figures": [],
        "blocks": [],
        "controls": [],
        "findings": [],
        "counted": {},
    }
    one |= {
        "run": kept.name if kept else "",
        "verdict": "NO KEPT RUN",
        "audit": {},
        "manifest": {},
        "question": question(workspace, name),
        **{key: section(workspace, name, heading) for key, heading in SECTIONS.items()},
    }
    if kept is None:
        return one | {"findings": chained}
    document = audits.get(kept.name, {"verdict": "NOT VERIFIED", "findings": [], "claims": {}, "controls": {}, "levels": {}})
    if chained:
        document = {**document, "verdict": "NOT VERIFIED", "findings": [*document["findings"], *chained]}
    one |= {"audit": document, "verdict": document["verdict"], "findings": document["findings"]}
    one["controls"] = [{"name": key, **value} for key, value in sorted(document["controls"].items())]
    try:
        run = Sealed(kept)
        one |= {"manifest": run.manifest, "question": run.protocol.question, "protocol": run.protocol.resolved}
        if document["verdict"] == "VERIFIED":
            one["blocks"] = list(blocks(run))
    except (Refused, KeyError, ValueError, OSError) as error:
        one["findings"] = [
            *one["findings"],
            {
                "rule": "",
                "where": kept.name,
                "text": f"cannot be read: {error}".replace(f"{workspace.root}/", ""),
                "stored": "",
                "recomputed": "",
            },
        ]
        one["verdict"] = "NOT VERIFIED"
        return one
    sentences = findings(workspace.experiments / name)
    # A run that is not verified decides nothing.
    decided = document["claims"] if document["verdict"] == "VERIFIED" else {}
    for key, claim in sorted(decided.items()):
        said = sentence(sentences[key], claim["values"], f"{name} {key}") if key in sentences else claim["note"]
        about = texts.get(key, {"text": "our own statement", "section": "", "article": key[0]})
        one["claims"].append(
            # A statement of our own stands on its experiment's page only, not among the articles' claims.
            {
                "id": key,
                **claim,
                "listed": key in texts,
                "text": about["text"],
                "section": about["section"],
                "said": said,
                "experiment_name": name,
            }
        )
    one["figures"] = list(figures(kept, name))
    drawn = [figure["id"] for figure in one["figures"]]
    looked_at = places(run.protocol, source(workspace, name), drawn)
    for claim in one["claims"]:
        claim["places"] = looked_at.get(claim["id"], [])
    one["counted"] = {v: n for v in ORDER if (n := sum(c["verdict"] == v for c in one["claims"]))}
    return one


def source(workspace: Workspace, name: str) -> str:
    """An experiment's figure.py, "" where it is missing, no Python or nested too deep to be read."""
    path = workspace.experiments / name / "figure.py"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return text


def figures(kept: Path, name: str) -> Iterable[dict[str, Any]]:
    """Each figure once: its headline as the file has it, what to show, what to link."""
    for png in sorted((kept / "figures").glob("*.png")):
        svg = png.with_suffix(".svg")
        text = svg.read_text(encoding="utf-8", errors="replace") if svg.is_file() else ""
        title = re.search("<title>(.*?)</title>", text, re.DOTALL)
        said = html.unescape(title[1]).strip() if title else ""
        light = len(text) < HEAVY and text.rstrip().endswith("</svg>")
        files = [path for path in (png, svg) if path.is_file()]
        yield {
            "id": png.stem,
            "name": png.stem.replace("_", " "),
            "said": said,
            "shown": f"figures/{name}/{(svg if light else png).name}",
            "files": files,
        }


def blocks(run: Sealed) -> Iterable[dict[str, Any]]:
    """Tables of results: short blocks whole, long ones as their range."""
    for name, block in sorted(run.protocol.blocks.items()):
        if block.rows != "csv":
            continue
        columns = run.table(name)
        names = [*block.factors, *block.decisions, *block.counts, *block.metrics]
        rows = list(zip(*(columns[c] for c in names), strict=True)) if names else []
        if len(rows) > LONG:
            numbers = [c for c in names if c in block.metrics or c in block.counts]
            yield {
                "name": name,
                "count": len(rows),
                "names": ["column", "least", "most"],
                "rows": [(c, min(columns[c]), max(columns[c])) for c in numbers],
            }
        else:
            yield {"name": name, "count": len(rows), "names": names, "rows": rows}


def question(workspace: Workspace, name: str) -> str:
    """The committed protocol's question: shown where there is no kept run to ask."""
    path = workspace.experiments / name / "protocol.json"
    return load(path).question if path.is_file() else ""


def section(workspace: Workspace, name: str, heading: str) -> str:
    """One section of the README as HTML, "" where there is none (raw HTML in it is escaped)."""
    path = workspace.experiments / name / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, found, rest = text.partition(f"## {heading}\n")
    return MarkdownIt("commonmark", {"html": False}).enable("table").render(rest.split("\n## ")[0]).strip() if found else ""
