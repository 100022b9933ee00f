"""sources.zip: its form byte by byte, its names, and modules that are imported but missing."""

import io
import zipfile

import pytest

from audit.bundle import check, entries, missing_imports
from audit.findings import Damaged, Findings
from tests.audit.reseal import sha


def made(members, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members:
            info = zipfile.ZipInfo(name, options.get("date", (1980, 1, 1, 0, 0, 0)))
            info.external_attr = options.get("mode", 0o644) << 16
            info.create_system = options.get("system", 3)
            info.extra = options.get("extra", b"")
            info.comment = options.get("comment", b"")
            file.writestr(info, content, options.get("method", zipfile.ZIP_STORED))
    return out.getvalue()


GOOD = [("a/__init__.py", b""), ("a/b.py", b"import os\n"), ("é.txt", "é".encode())]


def test_good():
    assert entries(made(GOOD)) == dict(GOOD)
    assert entries(made(GOOD, mode=0o100644)) == dict(GOOD)
    assert entries(made([])) == {}


BAD = {
    "compressed": made(GOOD, method=zipfile.ZIP_DEFLATED),
    "dated": made(GOOD, date=(2020, 1, 1, 0, 0, 0)),
    "timed": made(GOOD, date=(1980, 1, 1, 1, 0, 0)),
    "executable": made(GOOD, mode=0o755),
    "made by DOS": made(GOOD, system=0),
    "extra field": made(GOOD, extra=b"\x01\x00\x00\x00"),
    "comment of an entry": made(GOOD, comment=b"x"),
    "absolute": made([("/a.py", b"")]),
    "parent": made([("../a.py", b"")]),
    "parent inside": made([("a/../../b.py", b"")]),
    "dot": made([("./a.py", b"")]),
    "empty part": made([("a//b.py", b"")]),
    "folder": made([("a/", b"")]),
    "backslash": made([("a.py", b"")]).replace(b"a.py", b"a\\.p"),
    "line break": made([("a.py", b"")]).replace(b"a.py", b"a\n.p"),
    "not UTF-8": made([("a.py", b"")]).replace(b"a.py", b"a\xff.p"),
    "bytes before": b"x" + made(GOOD),
    "bytes after": made(GOOD) + b"x",
    "cut": made(GOOD)[:-1],
    "content changed": made(GOOD).replace(b"import os", b"import re"),
    "a name only in the directory": made([("a.py", b"")])[:30] + b"b" + made([("a.py", b"")])[31:],
    "nothing": b"",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_bad(data):
    with pytest.raises(Damaged) as caught:
        entries(data)
    assert caught.value.rule == "S108"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice():
    with pytest.raises(Damaged, match="stands twice"):
        entries(made([("a.py", b""), ("a.py", b"")]))


def test_every_cut_is_a_finding_and_no_error():
    data = made([("experiments/99_x/experiment.py", b"import os\n")])
    for length in range(len(data)):
        findings = Findings()
        check(data[:length], {"experiments/99_x/experiment.py": sha(b"import os\n")}, "99_x", findings)
        assert {item.rule for item in findings.kept} == {"S108"}
    findings = Findings()
    check(data, {"experiments/99_x/experiment.py": sha(b"import os\n")}, "99_x", findings)
    assert findings.kept == []


def test_what_a_run_needs_of_its_sources():
    def found(members):
        findings = Findings()
        check(made(members), {name: sha(content) for name, content in members}, "99_x", findings)
        return [item.text for item in findings.kept]

    own = ("experiments/99_x/experiment.py", b"from lib import one\n")
    assert found([own]) == []  # nothing of `lib` is there, so it may be an installed package
    assert found([own, ("lib/__init__.py", b"")]) == ["a source imports lib.one, which is missing"]
    assert found([("lib/__init__.py", b"")]) == ["the experiment's own module is missing"]


def test_versions_that_an_entry_may_need():
    good = made([("a.py", b"")])
    for needed, fine in ((10, True), (20, True), (45, False), (11, False)):
        data = bytearray(good)
        data[4] = data[good.index(b"PK\x01\x02") + 6] = needed
        if fine:
            assert entries(bytes(data)) == {"a.py": b""}
        else:
            with pytest.raises(Damaged):
                entries(bytes(data))


def test_entries_must_be_sorted():
    findings = Findings()
    members = [("b.py", b""), ("a.py", b"")]
    check(made(members), {name: sha(content) for name, content in members}, "99_x", findings)
    assert "other entries than declared: the order" in {item.text for item in findings.kept}


SOURCES = {
    "experiments/99_x/experiment.py": b"from lib import (\n    one,\n    two as zwei,\n)\nimport numpy, lib.sub.three\n",
    "lib/__init__.py": b"VERSION = 1\n",
    "lib/one.py": b"def f():\n    from lib.four import x\n    from lib import VERSION\n",
    "lib/two.py": b"# from lib.none import x\nfrom lib import five  # noqa\n",
    "lib/four.py": b"x = 'lib'\n",
    "lib/five.py": b"",
    "lib/sub/__init__.py": b"",
    "lib/sub/three.py": b"from . import y\n",
}


def test_imports_that_are_all_there():
    assert missing_imports(SOURCES) == []


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith("lib/")])
def test_each_module_left_out_is_missed(name):
    rest = {key: content for key, content in SOURCES.items() if key != name}
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert missing_imports(rest) == [module]
