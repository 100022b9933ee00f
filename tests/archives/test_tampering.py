"""The tamper matrix of docs/archives.md: every kind is found or, where only a signature can find it, comes out as unsigned."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labcore.attest import SUFFIX
from labcore.errors import Refused
from labcore.verification import Checked, opened
from tests.archives.tampering import ONLY, Tampering, kinds

DOCS = Path(__file__).parents[2] / "docs" / "archives.md"


def verify(frozen: Any, folder: Path, data: bytes, envelope: bytes | None) -> Checked | str:
    """The outcome outside of the tree (whose ledger would know the archive): a refusal's text, or what was checked."""
    for old in folder.iterdir():
        old.unlink()
    path = folder / frozen.path.name
    path.write_bytes(data)
    if envelope is not None:
        path.with_name(path.name + SUFFIX).write_bytes(envelope)
    try:
        with opened(frozen.workspace, path) as checked:
            return checked
    except Refused as error:
        return str(error)


def outcome(frozen: Any, folder: Path, kind: Tampering) -> str:
    """Which step finds it."""
    result = verify(frozen, folder, kind.data, kind.envelope)
    if isinstance(result, str):
        return "refused"
    if kind.found == ONLY:
        alone = verify(frozen, folder, kind.data, None)
        assert isinstance(alone, Checked) and not alone.findings, f"{kind.kind}: {getattr(alone, 'findings', alone)}"
        assert alone.signature == "unsigned"
        assert result.signature == "wrong" and len(result.findings) == 1, f"{kind.kind}: {result.findings}"
        return ONLY
    if not result.findings:
        return result.signature
    first = result.findings[0]
    steps = [step for step, text in result.steps if text == first] or ["audit"]
    return steps[0]


@pytest.fixture(scope="module")
def matrix(frozen: Any, tmp_path_factory: Any) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tampered")
    found = {}
    for kind in kinds(frozen, tmp_path_factory.mktemp("forge")):
        assert kind.data != frozen.path.read_bytes() or kind.envelope != frozen.path.with_name(frozen.path.name + SUFFIX).read_bytes()
        found[kind.kind] = (kind.found, outcome(frozen, folder, kind))
    return found


def test_every_kind_is_found_where_it_should(matrix: dict[str, tuple[str, str]]) -> None:
    assert len(matrix) >= 24
    assert {kind: got for kind, (wanted, got) in matrix.items() if got != wanted} == {}


def test_the_docs_have_this_table(matrix: dict[str, tuple[str, str]]) -> None:
    text = DOCS.read_text("utf-8")
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", text.split("<!-- tampering -->")[1].split("<!-- end -->")[0], re.MULTILINE))
    assert {kind: got for kind, (_, got) in matrix.items()} == {k: v for k, v in rows.items() if k != "kind" and not k.startswith("-")}
    counts = Counter(got for _, got in matrix.values())
    words = " ".join(text.split())
    assert f"{len(matrix)} kinds" in words and f"{counts[ONLY]} of them only a signature" in words
    envelopes = counts["signature"] + counts["unsigned"]
    of = len(matrix) - envelopes
    found = f"from the archive alone | {of - counts[ONLY]} "
    readme = DOCS.parents[1].joinpath("README.md").read_text("utf-8")
    assert found in words and f"{found}of {of} |" in readme and f"{envelopes} kinds of change to a signature" in readme


def test_the_untouched_archive_is_verified(frozen: Any, tmp_path: Path) -> None:
    envelope = frozen.path.with_name(frozen.path.name + SUFFIX).read_bytes()
    good = verify(frozen, tmp_path, frozen.path.read_bytes(), envelope)
    assert isinstance(good, Checked) and (good.findings, good.signature) == ([], "signed")
