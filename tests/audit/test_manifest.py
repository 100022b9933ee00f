"""manifest.json: every key and form has its breach, and the name follows from the digests alone."""

import copy
import hashlib
import json

import pytest

from audit.findings import Damaged, Findings
from audit.manifest import name, read
from tests.audit import tiny
from tests.audit.reseal import canonical
from tests.audit.test_schema import put


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    run = tiny.evidence().seal(tmp_path_factory.mktemp("run"))
    return json.loads((run / "sealed" / "manifest.json").read_bytes())


BROKEN = {
    "a key missing": put("timings", ...),
    "a key more": put("remark", ""),
    "schema": put("schema", 1),
    "experiment": put("experiment", 1),
    "run": put("run", "0123456789AB"),
    "run too long": put("run", "0" * 13),
    "run no text": put("run", 0),
    "kind": put("kind", "Confirmatory"),
    "overrides": put("overrides", ""),
    "an override": put("overrides", [1]),
    "differing": put("differing", None),
    "differing unsorted": put("differing", ["labcore/batch.py", "labcore/__init__.py"]),
    "differing twice": put("differing", ["labcore/batch.py", "labcore/batch.py"]),
    "differing elsewhere": put("differing", ["labcore/none.py"]),
    "protocol": put("protocol", []),
    "protocol without digest": put("protocol.sha256", ...),
    "protocol's digest": put("protocol.sha256", "0" * 63),
    "protocol with more": put("protocol.note", ""),
    "data": put("data", {}),
    "data with more": put("data.note", ""),
    "results' digest": put("data.results_sha256", "x" * 64),
    "arrays": put("data.arrays", []),
    "an array": put("data.arrays.a", 1),
    "an array's key": put("data.arrays.a", {"dtype": "<f8", "shape": []}),
    "an array's digest": put("data.arrays.a", {"dtype": "<f8", "shape": [], "sha256": "0"}),
    "an array's dtype": put("data.arrays.a", {"dtype": 8, "shape": [], "sha256": "0" * 64}),
    "an array's shape": put("data.arrays.a", {"dtype": "<f8", "shape": 3, "sha256": "0" * 64}),
    "an array's negative shape": put("data.arrays.a", {"dtype": "<f8", "shape": [-1], "sha256": "0" * 64}),
    "an array's boolean shape": put("data.arrays.a", {"dtype": "<f8", "shape": [True], "sha256": "0" * 64}),
    "timings": put("timings.a", {}),
    "files": put("files", []),
    "a file's digest": put("files.x", "0"),
    "sources": put("sources", []),
    "a source's digest": put("sources.x", 1),
    "recorded": put("recorded", {}),
    "recorded with more": put("recorded.host", "x"),
    "environment": put("recorded.environment", []),
    "git": put("recorded.git", {}),
    "commit": put("recorded.git.commit", "0" * 39),
    "commit no text": put("recorded.git.commit", None),
    "start": put("recorded.start", "2030-01-01 00:00:00"),
    "start no text": put("recorded.start", 0),
    "end": put("recorded.end", ""),
    "end before start": put("recorded.end", "2029-01-01T00:00:00Z"),
}


def test_good_is_good(good):
    findings = Findings()
    assert read(canonical(good), findings) == good and findings.kept == []
    assert read(canonical({**good, "differing": sorted(good["sources"])}), findings) and findings.kept == []
    assert read(canonical({**good, "recorded": {**good["recorded"], "end": good["recorded"]["start"]}}), findings) and findings.kept == []


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_broken(good, change):
    value = copy.deepcopy(good)
    change(value)
    with pytest.raises(Damaged) as caught:
        read(canonical(value), Findings())
    assert caught.value.rule == "S103"


def test_other_bytes_of_the_same_value(good):
    for data in (json.dumps(good).encode(), canonical(good) + b" ", canonical(good).replace(b"\n", b"\r\n")):
        findings = Findings()
        read(data, findings)
        assert [item.rule for item in findings.kept] == ["S103"]


def test_the_name_is_twelve_digits_of_the_digest_of_its_lines():
    value = {
        "protocol": {"sha256": "ignored", "resolved": {"a": 1}},
        "data": {
            "arrays": {
                "b/y": {"dtype": "<f8", "shape": [2, 3], "sha256": "1" * 64},
                "b/x": {"dtype": "|u1", "shape": [], "sha256": "2" * 64},
            },
            "results_sha256": "3" * 64,
        },
    }
    lines = [
        "protocol " + hashlib.sha256(b'{\n "a": 1\n}\n').hexdigest(),
        "array b/x |u1 scalar " + "2" * 64,
        "array b/y <f8 2x3 " + "1" * 64,
        "results " + "3" * 64,
    ]
    assert name(value) == hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()[:12]
