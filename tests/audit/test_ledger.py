"""The ledgers: every way to change, cut or reorder lines, and kept folders that do not agree with them."""

import hashlib
import subprocess

import pytest

from audit.committed import around
from audit.findings import Findings
from audit.ledger import LOCAL, TRACKED, Folder, folders, lines, tail
from audit.places import ledgers
from tests.audit.reseal import chain

ONE, TWO = {"experiment": "06_a", "run": "1" * 12, "manifest": "1" * 64}, {"experiment": "06_a", "run": "2" * 12, "manifest": "2" * 64}
OTHER = {"experiment": "07_b", "run": "7" * 12, "manifest": "7" * 64}
ENTRIES = [ONE, OTHER, {**ONE, "event": "superseded"}, TWO]
GOOD = chain(ENTRIES)
PARTS = GOOD.splitlines(True)


def rules(data, found=(), head=None, events=TRACKED):
    findings = Findings()
    entries = lines(data, "LEDGER.jsonl", events, findings)
    tail(data, head, "LEDGER.jsonl", findings)
    folders(entries, [Folder(item["experiment"], item["run"], item["manifest"]) for item in found], findings)
    return {item.rule for item in findings.kept}


def test_good():
    assert rules(GOOD, [TWO, OTHER], GOOD) == set()
    assert rules(GOOD, [TWO, OTHER], b"".join(PARTS[:2])) == set()
    assert rules(b"") == set()
    assert rules(chain([{**ONE, "event": "ran"}]), events=LOCAL) == set()


DAMAGED = {
    "a line changed": GOOD.replace(b'"text":""', b'"text":"x"', 1),
    "the first line removed": b"".join(PARTS[1:]),
    "a line removed": b"".join(PARTS[:1] + PARTS[2:]),
    "lines reordered": b"".join([PARTS[0], PARTS[2], PARTS[1], PARTS[3]]),
    "a line twice": b"".join([*PARTS, PARTS[3]]),
    "no line break at the end": GOOD[:-1],
    "half a line": GOOD[:-20],
    "an empty line": GOOD + b"\n",
    "not canonical": GOOD.replace(b'"text":""', b'"text": ""', 1),
    "not JSON": GOOD + b"kept\n",
    "not UTF-8": GOOD + b"\xff\n",
    "a list": GOOD + b"[]\n",
    "line breaks of DOS": GOOD.replace(b"\n", b"\r\n"),
    "an event of the local ledger": chain([{**ONE, "event": "ran"}]),
    "a time that is none": chain([{**ONE, "time": "2030-01-02 03:04:05"}]),
    "a run that is none": chain([{**ONE, "run": "x"}]),
    "a manifest that is none": chain([{**ONE, "manifest": "x"}]),
    "an experiment that is none": chain([{**ONE, "experiment": "../x"}]),
    "kept without a run": chain([{**ONE, "run": ""}]),
    "a key more": chain([{**ONE, "remark": ""}]),
    "a number as text": chain([{**ONE, "text": 1}]),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_lines(data):
    assert "L501" in rules(data)


def test_a_number_that_is_wrong_though_the_chain_is_not():
    line = PARTS[0].replace(b'"n":0', b'"n":1')
    assert rules(line) == {"L501"}
    second = PARTS[1].replace(hashlib.sha256(PARTS[0]).hexdigest().encode(), hashlib.sha256(line).hexdigest().encode())
    assert "L501" in rules(PARTS[0] + second)


def test_a_cut_tail_is_seen_against_head():
    assert rules(b"".join(PARTS[:2]), [ONE, OTHER], GOOD) == {"L502"}
    assert rules(b"", [], GOOD) == {"L502"}
    assert rules(chain([OTHER, *ENTRIES]), [TWO, OTHER], GOOD) == {"L502"}


def test_kept_folders():
    assert rules(GOOD, [TWO, OTHER, {**OTHER, "experiment": "08_c"}]) == {"L503"}
    assert rules(GOOD, [TWO, {**OTHER, "manifest": "0" * 64}]) == {"L503"}
    assert rules(GOOD, [TWO]) == {"L504"}
    assert rules(GOOD, [ONE, OTHER]) == {"L504", "L505"}
    assert rules(GOOD, [ONE, TWO, OTHER]) == {"L505", "L506"}
    assert rules(b"".join(PARTS[:2]), [TWO, OTHER]) == {"L503", "L504"}


def test_what_was_superseded_can_be_kept_again_and_a_later_line_supersedes_by_itself():
    again = chain([*ENTRIES, ONE])
    assert rules(again, [ONE, OTHER]) == set()
    assert rules(again, [TWO, OTHER]) == {"L504", "L505"}
    assert rules(chain([ONE, TWO]), [TWO]) == set()
    assert rules(chain([ONE, {**ONE, "event": "superseded"}])) == set()


def test_a_repository_with_its_ledger(tmp_path):
    run = tmp_path / "evidence" / ONE["experiment"] / ONE["run"] / "sealed"
    run.mkdir(parents=True)
    (run / "manifest.json").write_bytes(b"{}\n")
    kept = {**ONE, "manifest": hashlib.sha256(b"{}\n").hexdigest()}
    path = tmp_path / "evidence" / "LEDGER.jsonl"
    path.write_bytes(chain([kept, {"event": "frozen"}]))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)

    def found():
        repository = around(run)
        assert repository is not None and repository.root == tmp_path
        documents = ledgers(tmp_path, repository)
        repository.close()
        assert [document["ledger"] for document in documents] == ["evidence/LEDGER.jsonl"]
        return [item["rule"] for item in documents[0]["findings"]]

    assert found() == []
    path.write_bytes(path.read_bytes().splitlines(True)[0])
    assert found() == ["L502"]
    path.unlink()
    assert found() == ["L502", "L503"]
    path.symlink_to("elsewhere")
    assert "L501" in found()
