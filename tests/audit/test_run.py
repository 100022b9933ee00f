"""A whole synthetic run: VERIFIED as it is, and each level reports on its own damage."""

import json
from pathlib import Path

import pytest

from audit import rederive
from audit.run import audit
from tests.audit import tiny
from tests.audit.reseal import canonical


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setattr(rederive, "load", lambda experiment: tiny.MODULE)


def rules(run: Path) -> set[str]:
    return {item["rule"] for item in audit(run).document["findings"] if item["severity"] == "error"}


def test_undamaged_run_is_verified(tmp_path):
    document = audit(tiny.evidence().seal(tmp_path)).document
    assert document["findings"] == []
    assert document["verdict"] == "VERIFIED"
    assert {name: claim["verdict"] for name, claim in document["claims"].items()} == {
        "X01": "reproduced",
        "X02": "open",
        "X03": "out-of-reach",
        "X04": "qualified",
    }
    assert document["rederived"]["rows"] == 16 and document["rederived"]["of"] == 20
    assert document["controls"]["gap_is_seen"]["holds"] is True
    assert json.loads(canonical(document)) == document
