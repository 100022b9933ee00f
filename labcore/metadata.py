"""What an archive says of itself to other programs: citation, DataCite and Zenodo records, RO-Crate. All of it follows from `Facts`.

Dates come from the manifest, never from a clock, so the same run always gives the same bytes. Sources: Citation File Format
1.2.0; DataCite metadata 4.5; RO-Crate 1.1 with Process Run Crate 0.5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from labcore import canonical

SUITE = "KV cache isolation: reference evidence suite"
AUTHORS = "Contributors of the KV cache isolation evidence suite"
LICENCE, LICENCE_URL = "Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0"
KEYWORDS = ["KV cache", "isolation", "transformer inference", "reproducibility"]
CRATE = "https://w3id.org/ro/crate/1.1"
PROCESS = "https://w3id.org/ro/wfrun/process/0.5"
SHA256_TERM = "https://w3id.org/ro/terms/workflow-run#sha256"
FORMS = {
    ".json": "application/json", ".h5": "application/x-hdf5", ".csv": "text/csv", ".zip": "application/zip", ".py": "text/x-python",
    ".md": "text/markdown", ".svg": "image/svg+xml", ".png": "image/png", ".txt": "text/plain", ".cff": "text/yaml", "": "text/plain",
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """A run as its manifest and its audit have it. sealed: SWHID of the sealed folder; draft: why it is only a draft ([] else)."""

    manifest: Mapping[str, Any]
    audit: Mapping[str, Any]
    sealed: str
    draft: list[str]

    @property
    def experiment(self) -> str:
        return str(self.manifest["experiment"])

    @property
    def run(self) -> str:
        return str(self.manifest["run"])

    @property
    def day(self) -> str:
        return str(self.manifest["recorded"]["end"])[:10]

    @property
    def title(self) -> str:
        return f"{'DRAFT: ' if self.draft else ''}{SUITE}, {self.experiment}, run {self.run}"

    @property
    def question(self) -> str:
        return str(self.manifest["protocol"]["resolved"]["question"])

    @property
    def claims(self) -> list[str]:
        return [f"{name} {claim['verdict']}" for name, claim in sorted(self.audit["claims"].items())]

    @property
    def summary(self) -> str:
        decided = f"Claims decided: {', '.join(self.claims)}." if self.claims else "It decides no claim."
        audited = f"Audit: {self.audit['verdict']} (auditor {self.audit['auditor']['version']})."
        return " ".join([self.question, audited, decided, *(f"Draft: {reason}." for reason in self.draft)])


def citation_cff(facts: Facts) -> bytes:
    """CITATION.cff (YAML; every text as a JSON string, which YAML reads alike)."""
    lines = [
        "cff-version: 1.2.0",
        f"message: {_text('A draft: do not cite it.' if facts.draft else 'If you use this evidence, please cite it as below.')}",
        "type: dataset",
        f"title: {_text(facts.title)}",
        f"abstract: {_text(facts.summary)}",
        f"authors:\n  - name: {_text(AUTHORS)}",
        f"date-released: {_text(facts.day)}",
        f"version: {_text(facts.run)}",
        f"license: {LICENCE}",
        f"identifiers:\n  - type: swh\n    value: {_text(facts.sealed)}\n    description: {_text('the sealed folder of the run')}",
        "keywords:",
        *(f"  - {_text(word)}" for word in KEYWORDS),
    ]
    return ("\n".join(lines) + "\n").encode()


def _text(value: str) -> str:
    """A JSON string that YAML reads alike: what YAML takes for a line break or does not print is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def zenodo(facts: Facts) -> bytes:
    """.zenodo.json, from the same facts as CITATION.cff, which Zenodo ignores where this file is."""
    return canonical.dumps(
        {
            "title": facts.title,
            "upload_type": "dataset",
            "description": facts.summary,
            "creators": [{"name": AUTHORS}],
            "license": LICENCE,
            "keywords": KEYWORDS,
            "publication_date": facts.day,
            "version": facts.run,
            "access_right": "open",
        }
    )


def datacite(facts: Facts) -> bytes:
    """A DataCite record without a DOI; the run's sealed folder is an alternate identifier."""
    return canonical.dumps(
        {
            "schemaVersion": "http://datacite.org/schema/kernel-4",
            "titles": [{"title": facts.title}],
            "creators": [{"name": AUTHORS, "nameType": "Organizational"}],
            "publisher": SUITE,
            "publicationYear": facts.day[:4],
            "types": {"resourceTypeGeneral": "Dataset", "resourceType": "audited evidence"},
            "subjects": [{"subject": word} for word in KEYWORDS],
            "dates": [{"date": facts.day, "dateType": "Created"}],
            "alternateIdentifiers": [{"alternateIdentifier": facts.sealed, "alternateIdentifierType": "SWHID"}],
            "version": facts.run,
            "rightsList": [{"rights": LICENCE, "rightsUri": LICENCE_URL, "rightsIdentifier": LICENCE, "rightsIdentifierScheme": "SPDX"}],
            "descriptions": [{"description": facts.summary, "descriptionType": "Abstract"}],
        }
    )


def crate(facts: Facts, files: Mapping[str, tuple[int, str]]) -> bytes:
    """ro-crate-metadata.json over files (path in data/ -> size, SHA-256), the run and its audit as two actions."""
    place = f"{facts.experiment}/{facts.run}"
    sealed = sorted(name for name in files if name.startswith(f"{place}/sealed/"))
    sources = f"{place}/sealed/sources.zip"
    recorded = facts.manifest["recorded"]
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": facts.title,
        "description": facts.summary,
        "datePublished": facts.day,
        "license": {"@id": LICENCE_URL},
        "author": {"@id": "#authors"},
        "publisher": {"@id": "#authors"},
        "conformsTo": {"@id": PROCESS},
        "identifier": facts.sealed,
        "hasPart": [{"@id": name} for name in sorted(files)],
        "mentions": [{"@id": "#run"}, {"@id": "#audit"}],
    }
    graph: list[dict[str, Any]] = [
        {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "conformsTo": {"@id": CRATE}, "about": {"@id": "./"}},
        root,
        {"@id": PROCESS, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": LICENCE_URL, "@type": "CreativeWork", "name": "Apache License 2.0", "description": "the licence of everything in here"},
        {"@id": "#authors", "@type": "Organization", "name": AUTHORS},
        {
            "@id": "#run",
            "@type": "CreateAction",
            "name": f"run of {facts.experiment}",
            "description": f"the {facts.manifest['kind']} run {facts.run}, from commit {recorded['git']['commit'] or 'none'}",
            "agent": {"@id": "#authors"},
            "instrument": {"@id": sources},
            "object": {"@id": "protocol.json"},
            "result": [{"@id": name} for name in sealed if name != sources],
            "startTime": recorded["start"].replace("Z", "+00:00"),
            "endTime": recorded["end"].replace("Z", "+00:00"),
            "actionStatus": "http://schema.org/CompletedActionStatus",
        },
        {
            "@id": "#audit",
            "@type": "CreateAction",
            "name": f"audit of {facts.run}: {facts.audit['verdict']}",
            "description": "recomputation by the archived auditor, which shares no code with the run",
            "agent": {"@id": "#authors"},
            "instrument": {"@id": "auditor/audit/__main__.py"},
            "object": [{"@id": name} for name in sealed],
            "result": {"@id": f"{place}/audit.json"},
            "actionStatus": "http://schema.org/CompletedActionStatus",
        },
    ]
    graph += [_file(name, *files[name], facts) for name in sorted(files)]
    return canonical.dumps({"@context": [f"{CRATE}/context", {"sha256": SHA256_TERM}], "@graph": graph})


def _file(name: str, size: int, digest: str, facts: Facts) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "@id": name,
        "@type": "File",
        "name": PurePosixPath(name).name,
        "contentSize": str(size),
        "encodingFormat": FORMS.get(PurePosixPath(name).suffix, "application/octet-stream"),
        "sha256": digest,
    }
    if name.endswith("sealed/sources.zip"):
        entry |= {
            "@type": ["File", "SoftwareSourceCode"],
            "description": "the project files that made the run",
            "url": {"@id": name},
            "version": facts.manifest["recorded"]["git"]["commit"] or "uncommitted",
        }
    if name == "auditor/audit/__main__.py":
        version = facts.audit["auditor"]["version"]
        entry |= {"@type": ["File", "SoftwareSourceCode"], "description": "the auditor", "url": {"@id": name}, "version": version}
    return entry


def text(facts: Facts, digest: str, swhid: str) -> str:
    """The citation as a paragraph."""
    claims = f" Claims: {', '.join(facts.claims)}." if facts.claims else ""
    return f"{AUTHORS}. {facts.title}. {facts.day[:4]}. {facts.question} Archive sha256:{digest}, {swhid}.{claims}"


def bibtex(facts: Facts, digest: str, swhid: str) -> str:
    """The citation for BibTeX; the identifiers stand in `note`."""
    note = f"sha256:{digest}, {swhid}" + (f". Claims: {', '.join(facts.claims)}" if facts.claims else "")
    fields = {
        "author": AUTHORS,
        "title": facts.title,
        "year": facts.day[:4],
        "version": facts.run,
        "abstract": facts.question,
        "note": note,
    }
    # A second pair of braces keeps the one name of an organisation, and the title's capitals.
    whole = {"author", "title"}
    body = ",\n".join(f"  {key} = {{{f'{{{_latex(value)}}}' if key in whole else _latex(value)}}}" for key, value in fields.items())
    return f"@misc{{{facts.experiment.replace('_', '-')}-{facts.run},\n{body}\n}}"


def _latex(value: str) -> str:
    """Text for BibTeX, which counts braces even where they are escaped."""
    names = {"\\": "textbackslash", "{": "textbraceleft", "}": "textbraceright", "^": "textasciicircum", "~": "textasciitilde"}
    parts = [f"\\{names[letter]}{{}}" if letter in names else f"\\{letter}" if letter in "_%&#$" else letter for letter in value]
    return " ".join("".join(parts).split())


def cff_with_identity(facts: Facts, digest: str, swhid: str) -> str:
    """CITATION.cff with the archive's own identity, which no file inside it can hold."""
    own = f"  - type: swh\n    value: {_text(swhid)}\n    description: {_text('the archive, unpacked')}\n"
    own += f"  - type: other\n    value: {_text('sha256:' + digest)}\n    description: {_text('the archive')}\n"
    return citation_cff(facts).decode().replace("identifiers:\n", "identifiers:\n" + own)
