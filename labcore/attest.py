"""Attestations: an in-toto Statement about an archive, in a DSSE envelope signed with Ed25519.

The envelope lies beside the archive (`<archive>.dsse.json`), since nothing inside can name the archive's own digest. Only keys in
`evidence/keys/` or given on the command line count; a signature by any other key leaves the archive unsigned. Sources: in-toto
attestation framework v1, DSSE v1.0.2, RFC 8032. `cryptography` is imported only where a signature is made or checked.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore import canonical
from labcore.errors import Environment, Refused

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:kv-isolation-evidence:audited-run:1"
LIMIT = 4 << 20
SUFFIX = ".dsse.json"


@dataclass(frozen=True)
class Signature:
    """state: "signed", "unsigned", "not checked" or "wrong"; text says by whom or why. statement: only where signed."""

    state: str
    text: str
    statement: Mapping[str, Any] | None = None


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def statement(name: str, digest: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """The in-toto Statement about one archive."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE,
        "predicate": dict(predicate),
    }


def predicate(manifest: Mapping[str, Any], audit: Mapping[str, Any], draft: list[str], swhid: str, form: str) -> dict[str, Any]:
    """What was run, from which protocol, sources and environment, and what the audit found. Follows from the archive alone."""
    return {
        "format": form,
        "experiment": manifest["experiment"],
        "run": manifest["run"],
        "kind": manifest["kind"],
        "draft": draft,
        "swhid": swhid,
        "protocol": {"sha256": manifest["protocol"]["sha256"]},
        "sources": {"sha256": manifest["files"]["sources.zip"], "commit": manifest["recorded"]["git"]["commit"]},
        "environment": manifest["recorded"]["environment"],
        "time": {"start": manifest["recorded"]["start"], "end": manifest["recorded"]["end"]},
        "audit": {
            "manifest": audit["manifest"],
            "auditor": audit["auditor"]["version"],
            "verdict": audit["verdict"],
            "claims": {name: claim["verdict"] for name, claim in audit["claims"].items()},
        },
    }


def make_key(private: Path, public: Path) -> str:
    """Write a new key pair; returns the key's id. Replaces nothing; the private file is readable by its owner alone."""
    keys, serialization = _cryptography()
    for path in (private, public):
        if path.exists():
            raise Refused(f"{path}: exists; a key is never replaced (KEY=... and NAME=... give other places)")
    key = keys.Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    known = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    made: list[Path] = []
    try:
        for path, data, mode in ((private, secret, 0o600), (public, known, 0o644)):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o777 if path is public else 0o700)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(path)
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(handle)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    return key_id(key.public_key())


def key_id(public: Any) -> str:
    """SHA-256 of the public key's DER form."""
    _, serialization = _cryptography()
    return canonical.sha256(public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def sign(value: Mapping[str, Any], private: Path) -> bytes:
    """The envelope of a statement. Ed25519 is deterministic: the same statement and key give the same bytes."""
    keys, serialization = _cryptography()
    data = _pem(private, "no such key; `make key` makes one")
    if private.stat().st_mode & 0o077:
        raise Refused(
            f"{private}: others can read this private key (mode {private.stat().st_mode & 0o777:04o}); chmod 600 it, or make another"
        )
    try:
        key = serialization.load_pem_private_key(data, None)
    except Exception:  # of many kinds
        raise Refused(f"{private}: no private key in PEM form without a passphrase") from None
    if not isinstance(key, keys.Ed25519PrivateKey):
        raise Refused(f"{private}: not an Ed25519 key")
    payload = canonical.dumps(value)
    signature = {"keyid": key_id(key.public_key()), "sig": base64.b64encode(key.sign(pae(PAYLOAD_TYPE, payload))).decode()}
    return canonical.dumps({"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": [signature]})


def check(envelope: Path, keys: list[Path], digest: str) -> Signature:
    """Judge the envelope beside an archive. "wrong": it is malformed, about another archive, or a trusted key's signature fails."""
    if not envelope.exists():
        return Signature("unsigned", f"no {envelope.name} beside it")
    try:
        payload, signatures = _envelope(envelope)
    except Refused as error:
        return Signature("wrong", str(error))
    if not keys:
        return Signature("unsigned", f"{envelope.name} is signed, but no public key is trusted here (evidence/keys/ or --key)")
    try:
        known = {key_id(key): (path.stem, key) for path, key in ((path, _public(path)) for path in keys)}
    except Environment as error:
        return Signature("not checked", str(error))
    # The id is a hint only; what counts is a trusted key under which one of the signatures holds.
    for own, (stem, key) in known.items():
        if any(_holds(key, signature, payload) for _, signature in signatures):
            return _about(payload, envelope, f"by {stem} ({own[:16]})", digest)
    for keyid, _ in signatures:
        if keyid in known:
            return Signature("wrong", f"{envelope.name}: the signature of {known[keyid][0]} does not hold")
    return Signature("unsigned", f"{envelope.name} is signed by a key that is not trusted here")


def _about(payload: bytes, envelope: Path, by: str, digest: str) -> Signature:
    try:
        value = canonical.loads(payload, f"{envelope.name}: payload")
        subject = value["subject"]
        known = value["_type"] == STATEMENT and value["predicateType"] == PREDICATE and isinstance(value["predicate"], dict)
        if not known or len(subject) != 1:
            raise Refused(f"{envelope.name}: no statement of one audited run")
        stated = subject[0]["digest"]["sha256"]
        if stated != digest:
            raise Refused(f"{envelope.name}: signed {by}, but for an archive with SHA-256 {str(stated)[:16]}..., not {digest[:16]}...")
        return Signature("signed", by, value["predicate"])
    except Refused as error:
        return Signature("wrong", str(error))
    except (KeyError, TypeError, IndexError):
        return Signature("wrong", f"{envelope.name}: the statement lacks a part")


def _envelope(path: Path) -> tuple[bytes, list[tuple[str, bytes]]]:
    if not path.is_file() or path.stat().st_size > LIMIT:
        raise Refused(f"{path.name}: no plain file of at most {LIMIT} bytes")
    value = canonical.loads(path.read_bytes(), path.name)
    try:
        if value["payloadType"] != PAYLOAD_TYPE:
            raise Refused(f"{path.name}: payload type {str(value['payloadType'])[:60]!r}; wanted {PAYLOAD_TYPE}")
        payload = base64.b64decode(value["payload"], validate=True)
        signatures = [(str(one.get("keyid", "")), base64.b64decode(one["sig"], validate=True)) for one in value["signatures"]]
    except (KeyError, TypeError, AttributeError, binascii.Error, ValueError):
        raise Refused(f"{path.name}: no DSSE envelope") from None
    if not 1 <= len(signatures) <= 16:
        raise Refused(f"{path.name}: {len(signatures)} signatures; wanted 1 to 16")
    return payload, signatures


def _holds(key: Any, signature: bytes, payload: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, pae(PAYLOAD_TYPE, payload))
    except InvalidSignature:
        return False
    return True


def _public(path: Path) -> Any:
    keys, serialization = _cryptography()
    data = _pem(path, "no such public key")
    try:
        key = serialization.load_pem_public_key(data)
    except Exception:  # of many kinds
        raise Refused(f"{path}: no public key in PEM form") from None
    if not isinstance(key, keys.Ed25519PublicKey):
        raise Refused(f"{path}: not an Ed25519 key")
    return key


def _pem(path: Path, lacking: str) -> bytes:
    if not path.exists():
        raise Refused(f"{path}: {lacking}")
    if not path.is_file() or path.stat().st_size > LIMIT:
        raise Refused(f"{path}: no plain file of at most {LIMIT} bytes; wanted a key")
    return path.read_bytes()


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise Environment("the Python package 'cryptography' is not installed (requirements/sign.lock holds it)") from None
    return ed25519, serialization
