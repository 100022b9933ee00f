"""Freeze a run's folder into one deterministic archive: evidence/archives/<experiment>-<run>.tar."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore import attest, canonical, confined, contents, ledger, passing, provenance, swhid, tape
from labcore.errors import Refused
from labcore.metadata import Facts
from labcore.sealed import Sealed
from labcore.tether import tied
from labcore.workspace import Workspace, growing, sync


@dataclass(frozen=True)
class Frozen:
    """An archive that was written: where, its identity, and whether it was there before with the same bytes.

    envelope: where one lies beside it; signed: whether it was made now.
    """

    path: Path
    sha256: str
    swhid: str
    facts: Facts
    before: bool
    envelope: Path | None
    signed: bool


def freeze(workspace: Workspace, run: Path, *, draft: bool, key: Path | None = None, replace: bool = False) -> Frozen:
    """Judge, assemble, write by one rename, record. Refuses what is not VERIFIED, confirmatory and committed unless `draft`."""
    manifest = Sealed(run).manifest
    with growing(workspace.local / "archives") as place, _Repository(run, workspace.root) as judged, confined.Child(place) as child:
        size = sum(path.stat().st_size for path in (run / "sealed").iterdir())
        document = child.judge(run.resolve(), {}, run.name, size)["document"]
        reasons = _reasons(workspace, manifest, document, judged)
    if reasons and not draft:
        raise Refused(f"{run.name}: {'; '.join(reasons)}. DRAFT=1 (--draft) freezes it all the same, and the archive says so")
    if draft and not reasons:
        raise Refused(f"{run.name}: nothing is missing for a full archive; leave DRAFT=1 (--draft) out")
    broken = [finding for finding in document["findings"] if finding["rule"].startswith("S")]
    if broken:
        raise Refused(f"{run.name}: {broken[0]['where']}: {broken[0]['text']} ({broken[0]['rule']}); not even a draft is made of it")
    facts = Facts(manifest, document, contents.sealed_swhid(run / "sealed"), reasons)
    members = contents.assemble(run, workspace.root, facts, canonical.dumps(document))
    target = workspace.evidence / "archives" / f"{contents.top(facts)}.tar"
    with growing(workspace.local / "archives") as place:
        path = place / target.name
        with path.open("wb") as out:
            tape.write(out, members, contents.seconds(facts))
        path.chmod(0o644)
        digest, tree = identity(path)
        signed = None
        if key is not None:
            predicate = attest.predicate(manifest, document, reasons, tree, contents.FORMAT)
            signed = place / (target.name + attest.SUFFIX)
            signed.write_bytes(attest.sign(attest.statement(target.name, digest, predicate), key))
            signed.chmod(0o644)
        before = target.is_file() and canonical.sha256_file(target) == digest
        if target.exists() and not before and not replace:
            raise Refused(
                f"{target.relative_to(workspace.root)}: another archive of this run is there, by other programs or with other figures; "
                "ARGS=--replace puts this one in its place"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        sync(place)
        beside = target.with_name(target.name + attest.SUFFIX)
        if not before:
            # The signature of other bytes must not stay beside these.
            beside.unlink(missing_ok=True)
            path.replace(target)
        if signed is not None:
            signed.replace(beside)
    if not reasons:
        _record(workspace, facts, digest, tree)
    return Frozen(target, digest, tree, facts, before, beside if beside.exists() else None, signed is not None)


class _Repository:
    """The audit of the run where it lies, in a process of its own that runs while other work goes on."""

    def __init__(self, run: Path, root: Path) -> None:
        command = [sys.executable, "-m", "audit", "--quiet", "--no-write", str(run.resolve())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=tied()
        )

    def __enter__(self) -> _Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process.wait()

    def lines(self) -> list[str]:
        """What it finds, [] where the run is VERIFIED."""
        output = self.process.communicate()[0]
        return (output.strip().splitlines() or ["the auditor failed"]) if self.process.returncode else []


def _reasons(workspace: Workspace, manifest: dict[str, Any], document: dict[str, Any], judged: _Repository) -> list[str]:
    """Why a run can only be frozen as a draft."""
    reasons = []
    if manifest["kind"] != "confirmatory":
        why = ", ".join([*manifest["overrides"], *manifest["differing"]])
        reasons.append("the run is exploratory" + (f" ({why[:200]})" if why else ""))
    if not manifest["recorded"]["git"]["commit"]:
        reasons.append("the run was made outside of a repository")
    lines = judged.lines()
    if document["verdict"] != "VERIFIED":
        reasons.append(f"the run is NOT VERIFIED ({len(document['findings'])} findings)")
    elif lines and manifest["kind"] == "confirmatory":
        why = next((line.strip() for line in lines if line.startswith("  ")), lines[0])
        reasons.append(f"against the repository it is NOT VERIFIED: {why[:200]}")
    own = {name: data for name, data in contents.auditor(workspace.root, manifest["experiment"]).items()}
    own |= {name: (workspace.root / name).read_bytes() for name in ("evidence/FORMAT.md", "LICENSE", "labcore/frozen/verify.py")}
    commit, blobs = provenance.committed(workspace.root, own)
    odd = provenance.differing(own, blobs) if commit else sorted(own)
    if odd:
        reasons.append(f"not committed as they are: {', '.join(odd[:4])}")
    return reasons


def identity(path: Path) -> tuple[str, str]:
    """SHA-256 of an archive and the SWHID of the tree in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        members, _ = tape.read(descriptor, path.name)
        digests = passing.digests(descriptor, members, path.name, blobs=True)
    finally:
        os.close(descriptor)
    return digests.sha256, swhid.directory({name.partition("/")[2]: blob for name, blob in digests.blobs.items()})


def _record(workspace: Workspace, facts: Facts, digest: str, tree: str) -> None:
    """A ledger line for archives that are none of a draft, once for the same bytes."""
    text = f"sha256:{digest} {tree} format {contents.FORMAT} auditor {facts.audit['auditor']['version']}"
    lines = [line for line in ledger.read(workspace.ledger) if line["event"] == "frozen" and line["run"] == facts.run]
    if not lines or lines[-1]["text"] != text:
        ledger.append(workspace.ledger, "frozen", facts.experiment, facts.run, facts.audit["manifest"], text)


def latest(workspace: Workspace, experiment: str, run: str | None) -> Path:
    """The archive of an experiment's kept run, or of a run by name."""
    places = sorted((workspace.evidence / "archives").glob(f"{experiment}-*.tar"))
    if run:
        places = [path for path in places if path.name.removeprefix(f"{experiment}-").startswith(run)]
    else:
        kept = workspace.kept(experiment)
        places = [path for path in places if kept and path.name == f"{experiment}-{kept.name}.tar"] or places[-1:]
    if not places:
        raise Refused(f"{experiment}: no archive of {f'run {run}' if run else 'it'}; `make freeze EXP={experiment[:2]}` writes one")
    return places[0]
