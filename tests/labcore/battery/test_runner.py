"""The runner: what bad systems get, limits, shrinking, reports, exit codes, and the whole matrix on a few seeds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labcore.battery import AttentionClaims, CacheClaims, Started, assert_isolated, power, run
from labcore.battery.check import reductions
from labcore.battery.child import find
from labcore.battery.reference_attention import ReferenceAttention
from labcore.battery.reference_cache import ReferenceCache
from labcore.battery.reference_pool import ReferencePool
from labcore.battery.report import document, lines, page
from labcore.errors import Refused

ROOT = Path(__file__).resolve().parents[3]


class Raises(ReferencePool):
    def abort(self, request: Any) -> None:
        raise RuntimeError("<b>no aborts & no fun</b>")


class RaisesLate(ReferencePool):
    """Wrong first, then broken: found out by its answer."""

    def own_block(self, request: Any, slot: int) -> int:
        block = super().own_block(request, slot)
        if len(self.tables) > 2:
            self.memory[:] = 7.0
        return block

    def free(self, request: Any) -> None:
        if (self.memory == 7.0).any():
            raise RuntimeError("broken")
        super().free(request)


class Hangs(ReferencePool):
    def free(self, request: Any) -> None:
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue

    abort = free


class Shape(ReferenceAttention):
    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        return super().attend(q, k, v, view)[:, :, :-1]


class Text(ReferenceAttention):
    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        return "nothing"


class NaN(ReferenceAttention):
    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        return super().attend(q, k, v, view) * np.where(np.arange(q.shape[1]) == 1, np.nan, 1.0)[:, None]


class Mutates(ReferenceAttention):
    def attend(self, q: Any, k: Any, v: Any, view: Any) -> Any:
        q /= np.sqrt(q.shape[2])
        return super().attend(q, k, v, view)


class TooFew(ReferenceCache):
    def start(self, requests: Any) -> Any:
        return super().start(requests)[:-1]


class SameHandle(ReferenceCache):
    def enter(self, state: Any) -> Any:
        self.running["one"] = state
        return "one"


class Unsupported(ReferenceCache):
    def fork(self, handle: Any) -> Any:
        raise NotImplementedError("forks come in the next version")


CALLS = {
    "raised": (Raises, "P304", "abort"),
    "shape": (Shape, "A101", "attend"),
    "nan": (NaN, "A119", "attend"),
    "mutated": (Mutates, "A101", "attend"),
}


@pytest.mark.parametrize("kind", CALLS)
def test_misbehaviour_is_reported_as_that_with_its_call(kind: str) -> None:
    make, rule, call = CALLS[kind]
    result = run(make, effort=1).result(rule)
    assert result.kind == kind and result.call.startswith(call + "(")
    assert result.status == ("failed" if kind in ("nan", "mutated") else "error")


@pytest.mark.parametrize("make", [Text, TooFew, SameHandle, Raises])
def test_what_cannot_be_tested_is_not_isolated_and_not_a_leak(make: Any) -> None:
    report = run(make, effort=1)
    assert report.verdict == "could not test" and report.code == 2


def test_a_system_that_breaks_after_a_wrong_answer_is_found_out() -> None:
    assert "P301" in run(RaisesLate, effort=2).fired


def test_a_hang_costs_one_check() -> None:
    report = run(Hangs, effort=1, seconds=0.2, shrink=0, only=["P312", "P309", "P302", "P310"])
    assert [r.status for r in report.results] == ["passed", "error", "error", "error"]
    assert {r.kind for r in report.results[1:]} == {"hung"} and report.results[1].call.startswith(("free(", "abort("))


def test_a_factory_that_fails_is_an_error_of_every_check() -> None:
    report = run(lambda: 1 / 0, effort=1)
    assert report.code == 2 and {r.call for r in report.results} == {"factory()"}


def test_what_is_missing_is_never_passed() -> None:
    report = run(Unsupported, effort=1, only=["C211", "C220", "A101"])
    assert [r.status for r in report.results] == ["not applicable", "passed", "not applicable"]
    assert "next version" in report.results[0].text
    assert run(Unsupported, only=["C211"]).verdict == "could not test"
    assert run(object).code == 2


def test_a_failing_case_is_made_small() -> None:
    class Leaks(ReferenceAttention):
        def allowed(self, view: Any) -> Any:
            return view.allowed | (view.key_owner[None] == view.query_owner[:, None] - 1)

    case = run(Leaks, effort=3, shrink=600, only=["A101"]).result("A101").case
    assert case["m"] <= 3
    pool = run(lambda: Ageing(), effort=4, shrink=600, only=["P301"]).result("P301")
    assert pool.status == "failed" and len(pool.case["ops"]) <= 4


class Ageing(ReferencePool):
    """Loses the first slot when a third request comes."""

    def allocate(self, request: Any, slots: int) -> None:
        super().allocate(request, slots)
        if len(self.tables) > 1 and request not in list(self.tables)[:1]:
            first = next(iter(self.tables.values()))
            self.memory[first.blocks[0], 0] = -5.0


def test_reductions_end_and_keep_what_is_not_named() -> None:
    case = {"n": 9, "ops": (1, 2, 3, 4), "seed": 5}
    for _ in range(100):
        smaller = list(reductions(case, {"n": 1, "ops": 1}))
        if not smaller:
            break
        case = smaller[0]
    assert case == {"n": 1, "ops": case["ops"], "seed": 5} and len(case["ops"]) == 1


def test_the_one_liner() -> None:
    assert_isolated(ReferencePool, effort=1)
    with pytest.raises(AssertionError, match="A101 foreign values"):
        assert_isolated(Mutates, effort=1)


def test_claims_bound_what_is_asked() -> None:
    report = run(lambda: ReferenceAttention(AttentionClaims(kinds=("causal",), no_key="unspecified")), effort=1)
    assert report.result("A106").status == "not applicable" and report.verdict == "isolated"
    outside = ReferenceCache(CacheClaims(scopes=False))
    assert run(lambda: outside.__class__(outside.claims), effort=1).result("C220").text == "does not claim scopes"


def test_reports_escape_and_hold_no_nan() -> None:
    report = run(Raises, effort=1)
    html = page(report, "<script>alert(1)</script>")
    assert "<script>" not in html and "<b>no aborts" not in html and "&lt;b&gt;no aborts &amp; no fun" in html
    assert "http" not in html.replace("http-equiv", "")
    data = json.loads(document(report, "x", {}), parse_constant=pytest.fail)
    assert data["verdict"] == "could not test" and data["exit_code"] == 2 and len(data["results"]) == len(report.results)
    assert "P304" in lines(report) and "verdict: could not test" in lines(report)


def test_targets_that_are_none() -> None:
    for target, word in (
        ("x", "module:factory"),
        ("no.such:thing", "no module"),
        ("nofile.py:x", "no file"),
        ("json:nothing", "has no"),
        ("json:__name__", "call"),
    ):
        with pytest.raises(Refused, match=word):
            find(target)


SYSTEMS = """
import os
from labcore.battery.reference_pool import ReferencePool
class Dies(ReferencePool):
    def share(self, *arguments):
        print("noise on standard output")
        os._exit(3)
class Native(ReferencePool):
    def abort(self, request):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
class Leaks(ReferencePool):
    def release(self, block):
        pass
"""


@pytest.mark.parametrize(
    "name, code, status",
    [("ReferencePool", 0, "passed"), ("Dies", 2, "error"), ("Leaks", 1, "failed")],
)
def test_the_command(tmp_path: Path, name: str, code: int, status: str) -> None:
    (tmp_path / "systems.py").write_text(SYSTEMS)
    command = [sys.executable, "-m", "labcore", "battery", "systems.py:" + name, "--quick", "--only", "P302,P312", "--html", "page.html"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    found = {r["rule"]: r["status"] for r in json.loads((tmp_path / "report.json").read_text())["results"]}
    assert found["P302"] == status and found["P312"] == "passed"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>") and "noise" not in done.stdout


def test_a_process_that_cannot_be_interrupted_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from labcore.battery import supervise

    (tmp_path / "systems.py").write_text(
        SYSTEMS.replace(
            "while True:\n            try",
            "import signal\n        signal.signal(signal.SIGALRM, signal.SIG_IGN)\n        while True:\n            try",
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervise, "GRACE", 0.6)
    options = {"effort": 1, "seed": 0, "seconds": 0.3, "shrink": 0.0, "total": 0.0}
    results = list(supervise.results(f"{tmp_path}/systems.py:Native", ["P301", "P304", "P302"], **options))
    assert [(r.rule, r.status, r.kind) for r in results] == [("P301", "passed", ""), ("P304", "error", "hung"), ("P302", "passed", "")]
    assert results[1].call.startswith("abort(")


def test_every_rule_is_permanent_and_seen_failing() -> None:
    from labcore.battery.runner import CHECKS

    assert [len(rule) for rule in CHECKS] == [4] * 59 and len(set(CHECKS)) == 59
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    public = {rule for fault in power.FAULTS.values() for rule in fault.rules}
    unseen = {rule for rule in CHECKS if f'"{rule}"' not in texts} - public
    assert unseen == set(), unseen


def test_the_matrix_on_a_seed() -> None:
    for fault, variant, seen in power.matrix([5], workers=0):
        names = power.rules(power.INTERFACE[fault])
        with np.errstate(invalid="ignore"):
            fired = seen.value > seen.limit
        if variant == "faulty":
            assert fired[:, [names.index(rule) for rule in power.FAULTS[fault].rules]].any(axis=1).all(), fault
        else:
            assert not fired.any() and not (seen.value == power.BROKEN).any(), (fault, variant)


def test_started_is_what_it_says() -> None:
    assert Started("a", np.zeros(1)).reused is None
