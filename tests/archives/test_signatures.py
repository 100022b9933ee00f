"""Signatures and keys: which envelopes count, and which key files are taken."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from labcore import attest, canonical
from labcore.errors import Refused
from labcore.verification import Wanted, opened
from tests.archives.conftest import place


@pytest.fixture
def parts(frozen: Any, tmp_path: Path) -> Any:
    """The envelope, the statement, and a stranger's signature of it."""
    envelope = json.loads(frozen.path.with_name(frozen.path.name + attest.SUFFIX).read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    attest.make_key(tmp_path / "stranger.pem", tmp_path / "stranger.pub")
    stranger = json.loads(attest.sign(statement, tmp_path / "stranger.pem"))["signatures"][0]
    return envelope, statement, stranger


def state(frozen: Any, folder: Path, envelope: Any, **wanted: Any) -> str:
    path = place(frozen, folder, frozen.path.read_bytes())
    path.with_name(path.name + attest.SUFFIX).write_bytes(canonical.dumps(envelope))
    with opened(frozen.workspace, path, Wanted(**wanted)) as checked:
        assert bool(checked.findings) == (checked.signature == "wrong"), checked.findings
        return str(checked.signature)


def test_one_trusted_signature_is_enough(frozen: Any, parts: Any, tmp_path: Path) -> None:
    envelope, _, stranger = parts
    own = envelope["signatures"][0]
    posing = {**stranger, "keyid": own["keyid"]}
    for signatures, wanted in (
        ([own, stranger], "signed"),
        ([stranger, own], "signed"),
        ([posing, own], "signed"),
        ([own, posing], "signed"),
        ([{**own, "keyid": stranger["keyid"]}], "signed"),
        ([{"sig": own["sig"]}], "signed"),
        ([stranger], "unsigned"),
        ([posing], "wrong"),
        ([], "wrong"),
        ([own] * 17, "wrong"),
    ):
        assert state(frozen, tmp_path, {**envelope, "signatures": signatures}) == wanted, signatures
    assert state(frozen, tmp_path, {**envelope, "signatures": [stranger]}, keys=[tmp_path / "stranger.pub"]) == "signed"


def test_envelopes_of_other_forms_are_wrong(frozen: Any, parts: Any, tmp_path: Path) -> None:
    envelope, statement, _ = parts
    for change in (
        {"payloadType": "text/plain"},
        {"payload": envelope["payload"] + "!"},
        {"payload": 5},
        {"signatures": {}},
        {"signatures": [{"sig": "AAAA"}], "payload": "AAAA"},
    ):
        assert state(frozen, tmp_path, {**envelope, **change}) in ("wrong", "unsigned"), change
    for change in (
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "urn:another"},
        {"subject": []},
        {"subject": statement["subject"] * 2},
        {"predicate": {**statement["predicate"], "more": 1}},
        {"predicate": "VERIFIED"},
    ):
        signed = json.loads(attest.sign({**statement, **change}, frozen.key))
        assert state(frozen, tmp_path, signed) == "wrong", change


def test_a_key_that_others_can_read_signs_nothing(parts: Any, tmp_path: Path) -> None:
    key = tmp_path / "stranger.pem"
    for mode in (0o640, 0o604, 0o620):
        key.chmod(mode)
        with pytest.raises(Refused, match=f"mode {mode:04o}"):
            attest.sign(parts[1], key)


def test_what_is_no_key_is_refused_in_one_line(parts: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    for name in ("none", "empty", "pem", "stranger.pub", "."):
        path = tmp_path / name
        if path.is_file():
            path.chmod(0o600)
        with pytest.raises(Refused) as caught:
            attest.sign(parts[1], path)
        assert len(str(caught.value).splitlines()) == 1 and "http" not in str(caught.value)
    for name in ("none", "empty", "pem", "stranger.pem", "."):
        with pytest.raises(Refused):
            attest._public(tmp_path / name)


def test_half_a_pair_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        attest.make_key(tmp_path / "secret" / "key.pem", tmp_path / "file" / "key.pub")
    assert not list((tmp_path / "secret").iterdir())
    attest.make_key(tmp_path / "secret" / "key.pem", tmp_path / "public" / "key.pub")
    assert (tmp_path / "secret" / "key.pem").stat().st_mode & 0o777 == 0o600
