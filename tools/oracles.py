"""Other people's programs judge our archives: `make oracles` (their environment is .venv-oracles; the suite itself needs none of them).

usage: .venv-oracles/bin/python tools/oracles.py [--tampered FOLDER] [ARCHIVE ...]     default: all in evidence/archives/

bagit-python, swh.model, securesystemslib, the JSON schema of CITATION.cff, and roc-validator, offline. Exit code 1 where one disagrees.
With --tampered, a folder that `python -m tests.archives.tampering` wrote, it counts the kinds that bagit-python and a git tree find.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import subprocess
import sys
import tarfile
import tempfile
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
sys.path.insert(0, str(ROOT))


def main() -> int:
    """A line for each archive and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", nargs="*", type=Path)
    parser.add_argument("--tampered", type=Path)
    options = parser.parse_args()
    archives = options.archives or sorted((ROOT / "evidence" / "archives").glob("*.tar"))
    if not archives:
        print("oracles: no archive in evidence/archives/; make freeze EXP=06 writes one", file=sys.stderr)
        return 2
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    judges = {"bagit": bag, "swh.model": swhid, "CFF schema": citation, "roc-validator": crate}
    good = True
    for archive in archives:
        with tempfile.TemporaryDirectory() as place:
            tree = extract(archive, Path(place))
            for name, judge in judges.items():
                good &= say(archive.name, name, judge, archive, tree)
    good &= say("attestation", "securesystemslib", attestation)
    if options.tampered:
        tampered(options.tampered)
    return 0 if good else 1


def say(what: str, name: str, judge: Any, *arguments: Any) -> bool:
    """Run a judge and print what it says; False where it raises."""
    try:
        text, good = judge(*arguments), True
    except Exception as error:
        text, good = f"DISAGREES: {type(error).__name__}: {str(error)[:300]}", False
    print(f"{what:<44} {name:<18} {text}", flush=True)
    return good


def extract(archive: Path, place: Path) -> Path:
    """The one folder in an archive, by Python's own reader."""
    with tarfile.open(archive) as source:
        source.extractall(place, filter="data")
    return next(place.iterdir())


def bag(archive: Path, tree: Path) -> str:
    """The Library of Congress's program."""
    import bagit

    found = bagit.Bag(str(tree))
    found.validate()
    return f"valid, {len(found.entries)} entries, {', '.join(found.algorithms)}"


def swhid(archive: Path, tree: Path) -> str:
    """Software Heritage's own model of a folder, against what the suite computes and the ledger says."""
    from swh.model.from_disk import Directory

    from labcore import passing, swhid, tape

    theirs = f"swh:1:dir:{Directory.from_disk(path=str(tree).encode(), max_content_length=None).hash.hex()}"
    with archive.open("rb") as handle:
        members, _ = tape.read(handle.fileno(), archive.name)
        blobs = passing.digests(handle.fileno(), members, archive.name, blobs=True).blobs
    ours = swhid.directory({name.partition("/")[2]: blob for name, blob in blobs.items()})
    if ours != theirs:
        raise ValueError(f"got {ours}; swh.model says {theirs}")
    ledger = (ROOT / "evidence" / "LEDGER.jsonl").read_text("utf-8")
    return f"{theirs}{', as the ledger says' if theirs in ledger else ''}"


def citation(archive: Path, tree: Path) -> str:
    """CITATION.cff against the schema of the format, and the JSON records as JSON."""
    import jsonschema
    import yaml

    schema = json.loads(resources.files("cffconvert").joinpath("schemas/1.2.0/schema.json").read_text("utf-8"))
    value = yaml.safe_load((tree / "data" / "CITATION.cff").read_text("utf-8"))
    jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker())
    for name in (".zenodo.json", "datacite.json"):
        json.loads((tree / "data" / name).read_bytes())
    return f"valid, {len(value)} keys"


def crate(archive: Path, tree: Path) -> str:
    """RO-Crate 1.1 and Process Run Crate, offline: the one context that is asked for is put into the cache first."""
    from rocrate_validator import models, services

    results = []
    with tempfile.TemporaryDirectory() as place:
        cache = Path(place) / "cache"
        seed(cache)
        for profile in ("ro-crate-1.1", "process-run-crate-0.5"):
            settings = services.ValidationSettings(
                rocrate_uri=str(tree / "data"),
                profile_identifier=profile,
                requirement_severity=models.Severity.REQUIRED,
                cache_path=cache,
                offline=True,
            )
            with contextlib.redirect_stdout(io.StringIO()):
                result = services.validate(settings)
            issues = [f"{issue.check.identifier}: {issue.message}" for issue in result.get_issues()]
            if issues:
                raise ValueError(f"{profile}: {'; '.join(issues)}")
            results.append(profile)
    return f"valid: {', '.join(results)}"


def seed(cache: Path) -> None:
    """Put the RO-Crate 1.1 context, as an older ro-crate-py carries it, where the validator looks."""
    import requests
    from requests.adapters import BaseAdapter
    from requests_cache import CachedSession

    class Local(BaseAdapter):
        def send(self, request: Any, **options: Any) -> Any:
            import urllib3

            body = resources.files("rocrate").joinpath("data/ro-crate.jsonld").read_bytes()
            raw = urllib3.HTTPResponse(io.BytesIO(body), {"Content-Type": "application/ld+json"}, 200, preload_content=False)
            return requests.adapters.HTTPAdapter().build_response(request, raw)

        def close(self) -> None:
            pass

    with CachedSession(str(cache), backend="sqlite", allowable_methods=("GET",), expire_after=-1) as session:
        session.mount("https://", Local())
        for headers in ({}, {"Accept": "application/ld+json, application/json;q=0.9, */*;q=0.1"}):
            session.get(CONTEXT, headers=headers)


def attestation() -> str:
    """securesystemslib takes our envelope, and we take one that it signed."""
    from cryptography.hazmat.primitives import serialization
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

    from labcore import attest, canonical

    with tempfile.TemporaryDirectory() as place:
        private, public = Path(place) / "a.pem", Path(place) / "a.pub"
        attest.make_key(private, public)
        statement = attest.statement("x.tar", "0" * 64, {"run": "x"})
        envelope = json.loads(attest.sign(statement, private))
        key = SSlibKey.from_crypto(serialization.load_pem_public_key(public.read_bytes()), keyid=envelope["signatures"][0]["keyid"])
        Envelope.from_dict(json.loads(json.dumps(envelope))).verify([key], 1)
        signer = CryptoSigner(serialization.load_pem_private_key(private.read_bytes(), None))
        theirs = Envelope(canonical.dumps(statement), attest.PAYLOAD_TYPE, {})
        theirs.sign(signer)
        path = Path(place) / f"x.tar{attest.SUFFIX}"
        path.write_text(json.dumps(theirs.to_dict()))
        state = attest.check(path, [public], "0" * 64)
        if state.state != "signed":
            raise ValueError(f"their envelope: {state}")
    return "both ways"


def tampered(folder: Path) -> None:
    """How many of the kinds a validator of bags finds, and how many change the tree that git would name."""
    kinds = json.loads((folder / "kinds.json").read_text("utf-8"))
    original = git(folder / kinds.pop("the untouched archive"))
    found: dict[str, list[str]] = {"bagit": [], "git tree": []}
    for kind, name in kinds.items():
        with tempfile.TemporaryDirectory() as place:
            try:
                bag(folder / name, extract(folder / name, Path(place)))
            except Exception:
                found["bagit"].append(kind)
        if git(folder / name) != original:
            found["git tree"].append(kind)
    for judge, seen in found.items():
        print(f"{judge} finds {len(seen)} of {len(kinds)} kinds; not: {'; '.join(kind for kind in kinds if kind not in seen)}")


def git(archive: Path) -> str:
    """The tree that git writes of an unpacked archive, "" where it cannot be unpacked."""
    with tempfile.TemporaryDirectory() as place:
        try:
            tree = extract(archive, Path(place))
        except Exception:
            return ""
        command = f"git init -q . && git add -A -f . && git write-tree && echo {tree.name}"
        return subprocess.run(["sh", "-c", command], cwd=tree, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
