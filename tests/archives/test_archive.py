"""Archives: the same bytes everywhere, what may be frozen, identity, use of an archive, and what is left after a kill."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labcore import archive, canonical, confined, contents, passing, swhid, tape, verification
from labcore.errors import Refused
from labcore.verification import Wanted, opened
from tests.archives.conftest import place
from tests.archives.forge import Forged, members, pack


def test_an_archive_is_verified_and_signed(frozen: Any) -> None:
    with opened(frozen.workspace, frozen.path, Wanted(signed=True)) as checked:
        assert (checked.findings, checked.verdict, checked.signature) == ([], "VERIFIED", "signed")
        assert checked.sha256 == frozen.done.sha256 == canonical.sha256_file(frozen.path)
        assert [step for step, _ in checked.steps][:3] == ["archive", "bag", "swhid"]
        assert (checked.folder / "sealed" / "arrays.h5").stat().st_size > 0
    assert not checked.folder.exists()
    assert list((frozen.workspace.local / "archives").iterdir()) == []


def test_tarfile_writes_the_same_bytes(frozen: Any) -> None:
    """The standard library's writer as an oracle, and its reader."""
    out = io.BytesIO()
    with tarfile.open(frozen.path) as source, tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as target:
        for member in source.getmembers():
            info = tarfile.TarInfo(member.name)
            info.size, info.mtime, info.mode = member.size, member.mtime, 0o644
            target.addfile(info, source.extractfile(member))
    assert out.getvalue() == frozen.path.read_bytes()


def test_git_gives_the_same_tree(frozen: Any, tmp_path: Path) -> None:
    with tarfile.open(frozen.path) as source:
        source.extractall(tmp_path, filter="data")
    tree = next(tmp_path.iterdir())
    run = {"cwd": tree, "check": True, "capture_output": True, "text": True}
    subprocess.run(["git", "init", "-q", "."], **run)
    subprocess.run(["git", "-c", "core.autocrlf=false", "add", "-A", "-f", "."], **run)
    assert "swh:1:dir:" + subprocess.run(["git", "write-tree"], **run).stdout.strip() == frozen.done.swhid


def test_bytes_do_not_depend_on_the_surroundings(frozen: Any, tmp_path: Path) -> None:
    """Another umask, locale, time zone, path, day (by mtime) and order of listing."""
    root = tmp_path / "elsewhere" / "a b"
    shutil.copytree(frozen.root, root, ignore=shutil.ignore_patterns("archives", "__pycache__", "LEDGER.jsonl"))
    for path in root.rglob("*"):
        os.utime(path, (1, 1))
    environment = {
        **os.environ,
        "TZ": "Pacific/Chatham",
        "LC_ALL": "C",
        "LANG": "tr_TR.UTF-8",
        "PYTHONHASHSEED": "7",
        "OMP_NUM_THREADS": "1",
    }
    command = f"umask 077; exec {sys.executable} -m labcore freeze 90 --run {frozen.run.name}"
    done = subprocess.run(["sh", "-c", command], cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = root / "evidence" / "archives" / frozen.path.name
    assert written.read_bytes() == frozen.path.read_bytes()
    assert written.stat().st_mode & 0o777 == 0o644
    assert f"sha256:{frozen.done.sha256}" in done.stdout and "unsigned" in done.stdout


def test_freezing_again_changes_nothing(frozen: Any) -> None:
    ledger = frozen.workspace.ledger.read_bytes()
    again = archive.freeze(frozen.workspace, frozen.run, draft=False)
    assert (again.before, again.sha256, frozen.workspace.ledger.read_bytes()) == (True, frozen.done.sha256, ledger)
    assert json.loads(ledger.splitlines()[-1])["text"].startswith(f"sha256:{frozen.done.sha256} {frozen.done.swhid} ")


def test_the_readers_program_needs_no_suite(frozen: Any, tmp_path: Path) -> None:
    with tarfile.open(frozen.path) as source:
        source.extractall(tmp_path, filter="data")
    tree = next(tmp_path.iterdir())
    command = [sys.executable, "-I", str(tree / "data" / "verify.py")]

    def verify() -> Any:
        return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)

    done = verify()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "VERIFIED"
    assert "signature  not checked" in done.stdout and "claim      Z01 reproduced" in done.stdout
    assert not list(tree.rglob("__pycache__"))
    stored = tree / "data" / "90_toy" / frozen.run.name / "audit.json"
    stored.write_bytes(stored.read_bytes().replace(b"reproduced", b"qualified!"))
    done = verify()
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "NOT VERIFIED")
    assert f"data/90_toy/{frozen.run.name}/audit.json: does not have its SHA-256" in done.stdout
    (tree / "data" / "link").symlink_to("/etc/passwd")
    assert verify().returncode == 2


def test_wanted_digests(frozen: Any) -> None:
    good = Wanted(sha256=f"sha256:{frozen.done.sha256}", swhid=frozen.done.swhid)
    with opened(frozen.workspace, frozen.path, good) as checked:
        assert checked.findings == []
    with opened(frozen.workspace, frozen.path, Wanted(sha256="0" * 64)) as checked:
        assert "not the wanted" in checked.findings[0]
    with opened(frozen.workspace, frozen.path, Wanted(swhid="swh:1:dir:" + "0" * 40)) as checked:
        assert "not the wanted" in checked.findings[0]


def test_commands(frozen: Any, tmp_path: Path) -> None:
    call, path = frozen.project.call, str(frozen.path)
    done = call("verify", path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"VERIFIED 90_toy {frozen.run.name}, signed")
    damaged = bytearray(frozen.path.read_bytes())
    damaged[-1] = 1
    done = call("verify", str(place(frozen, tmp_path, bytes(damaged))))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and done.stderr.startswith("REFUSED ")
    done = call("cite", "90")
    assert done.returncode == 0, done.stderr
    for text in (frozen.done.sha256, frozen.done.swhid, "Z01 reproduced", "@misc{90-toy-", "cff-version: 1.2.0"):
        assert text in done.stdout
    done = call("diff", path, f"90/{frozen.run.name[:4]}")
    assert done.returncode == 0 and ": identical" in done.stdout, done.stderr
    done = call("replicate", "--here", "--file", path)
    assert done.returncode == 0 and "replicated: identical" in done.stdout, done.stderr
    assert call("cite").returncode == call("replicate").returncode == 2
    done = call("verify", str(tmp_path / "none.tar"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_what_may_be_frozen(frozen: Any) -> None:
    """Exploratory runs and a changed auditor need --draft, and the archive says so inside."""
    call = frozen.project.call
    run = next(line for line in call("run", "90", "seeds=[3,5]", "--no-audit").stdout.splitlines() if "exploratory" in line).split()[1][:-1]
    done = call("freeze", "90", "--run", run)
    assert done.returncode == 2 and "the run is exploratory (seeds=[3,5])" in done.stderr
    done = call("freeze", "90", "--run", run, "--draft")
    assert done.returncode == 0, done.stderr
    path = frozen.path.with_name(f"90_toy-{run}.draft.tar")
    done = call("verify", str(path))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"VERIFIED 90_toy {run}, a draft, unsigned")
    inside = members(path)
    assert b"DRAFT" in inside["data/README.txt"] and b"A draft: do not cite it" in inside["data/CITATION.cff"]
    assert json.loads(inside["data/archive.json"])["draft"] == ["the run is exploratory (seeds=[3,5])"]
    assert not any(run in line for line in frozen.workspace.ledger.read_text().splitlines())
    path.unlink()
    with pytest.raises(Refused, match="nothing is missing"):
        archive.freeze(frozen.workspace, frozen.run, draft=True)
    changed = frozen.root / "audit" / "run.py"
    text = changed.read_text()
    changed.write_text(text + "# another\n")
    try:
        with pytest.raises(Refused, match=r"not committed as they are: audit/run\.py"):
            archive.freeze(frozen.workspace, frozen.run, draft=False)
    finally:
        changed.write_text(text)


def test_a_damaged_run_is_not_frozen(frozen: Any, tmp_path: Path) -> None:
    run = tmp_path / frozen.run.name
    shutil.copytree(frozen.run, run)
    with (run / "sealed" / "results.csv").open("a") as out:
        out.write("x\n")
    for draft in (False, True):
        with pytest.raises(Refused, match=r"NOT VERIFIED|not even a draft"):
            archive.freeze(frozen.workspace, run, draft=draft)
    assert not list((frozen.workspace.local / "archives").iterdir())


def test_a_link_is_not_frozen(frozen: Any, tmp_path: Path) -> None:
    """What it leads to could be anything of this machine."""
    run = tmp_path / frozen.run.name
    shutil.copytree(frozen.run, run)
    (run / "figures").mkdir(exist_ok=True)
    (run / "figures" / "errors.svg").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match=r"errors\.svg: a link"):
        archive.freeze(frozen.workspace, run, draft=False)


def test_a_changed_byte_anywhere_is_found(frozen: Any, tmp_path: Path) -> None:
    data, size = frozen.path.read_bytes(), frozen.path.stat().st_size
    for at in {0, 1, size - 1, size // 2, *range(257, size, 6007)}:
        path = place(frozen, tmp_path, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            with opened(frozen.workspace, path) as checked:
                assert checked.findings, at
        except Refused:
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
@pytest.mark.parametrize(
    ("verb", "child"),
    [("verify", "labcore.confined"), ("freeze", "audit --quiet"), ("replicate", "labcore.runner"), ("diff", "labcore.confined")],
)
def test_nothing_is_left_after_a_kill(frozen: Any, verb: str, child: str) -> None:
    """SIGKILL of the command alone: its children end with it, and the next start removes what it left, and says so."""
    name = f"90/{frozen.run.name}"
    words = {
        "freeze": ["90", "--run", frozen.run.name],
        "replicate": ["--here", "--file", str(frozen.path)],
        "diff": [str(frozen.path), name],
    }
    command = [sys.executable, "-m", "labcore", verb, *words.get(verb, [str(frozen.path)])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=frozen.root, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (seen := [pid for pid, line in processes(process.pid).items() if child in line]):
        assert process.poll() is None and time.monotonic() < deadline, f"{verb} was never seen with {child}"
        time.sleep(0.002)
    os.kill(seen[0], signal.SIGSTOP)  # so that it cannot end by itself
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while processes(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    left = processes(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}
    assert list(frozen.workspace.local.glob("*/.growing-*")), "killed too late for this test to see anything"
    done = frozen.project.call("verify", str(frozen.path))
    assert done.returncode == 0 and "left by a command that was killed" in done.stdout
    assert not list(frozen.workspace.local.glob("*/.growing-*"))
    audit = [sys.executable, "-m", "audit", "--no-write"]
    done = subprocess.run(audit, cwd=frozen.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "evidence/local/LEDGER.jsonl" in done.stdout, done.stdout


def processes(session: int) -> dict[int, str]:
    """Id and command line of a session's processes that are alive."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (process / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
    return found


def test_the_child_is_held_to_its_limits(frozen: Any, monkeypatch: Any, tmp_path: Path) -> None:
    hungry = "def child(task):\n    x = bytearray(6 << 30)\n    return {}\n"
    greedy = tmp_path / "labcore"
    greedy.mkdir()
    text = Path(confined.__file__).read_text()
    start, end = text.index("def child("), text.index("def limit(")
    (tmp_path / "audit").mkdir()
    for name in ("labcore/__init__.py", "labcore/skeleton.py", "audit/__init__.py", "audit/run.py"):
        (tmp_path / name).write_text("")
    shutil.copy(Path(confined.__file__).with_name("tether.py"), greedy)
    (greedy / "errors.py").write_text("class Refused(Exception):\n    pass\n")
    endless = "def child(task):\n    while True:\n        pass\n"
    wordy = "def child(task):\n    with open('x', 'wb') as out:\n        out.write(bytes(20 << 20))\n"
    for body, wanted in ((hungry, "4 GiB of memory"), (endless, "signal 9|signal 24"), (wordy, "File too large")):
        (greedy / "confined.py").write_text(text[:start] + body + "\n\n" + text[end:])
        monkeypatch.setattr(confined, "ROOT", tmp_path)
        monkeypatch.setattr(confined, "SECONDS", 1)
        with pytest.raises(Refused, match=wanted), confined.Child(tmp_path) as child:
            child.judge(frozen.run, {}, "hungry", 0)


def test_large_members_are_judged_in_place(frozen: Any, monkeypatch: Any) -> None:
    """With the limit at nothing every file of the run stays in the archive, and the audit is the same."""
    monkeypatch.setattr(passing, "HELD", 4096)
    seen = {}
    judge = confined.Child.judge

    def watch(self: Any, folder: Path, given: Any, *rest: Any) -> Any:
        seen.update(given)
        return judge(self, folder, given, *rest)

    monkeypatch.setattr(confined.Child, "judge", watch)
    monkeypatch.setattr(verification, "EARLY", 0)
    held = {"ro-crate-metadata.json", "manifest.json", "manifest-sha256.txt", "LICENSE", "FORMAT.md", "verify.py"}
    read = passing._Split._begin

    def begin(self: Any) -> None:
        name = self.members[self.at].name if self.at < len(self.members) else ""
        small = name.rsplit("/", 1)[-1] in held or "/auditor/" in name or name.endswith("audit.json")
        monkeypatch.setattr(passing, "HELD", 1 << 20 if small else 2000)
        read(self)

    monkeypatch.setattr(passing._Split, "_begin", begin)
    with opened(frozen.workspace, frozen.path, whole=True) as checked:
        assert checked.findings == [] and {"sealed/arrays.h5", "sealed/sources.zip"} <= seen.keys()
        for name in seen:
            assert (checked.folder / name).read_bytes() == (frozen.run / name).read_bytes()


def test_a_file_that_changes_meanwhile_is_refused(frozen: Any, tmp_path: Path) -> None:
    path = place(frozen, tmp_path, frozen.path.read_bytes())
    with path.open("r+b") as handle:
        before = os.fstat(handle.fileno())
        handle.write(b"x")
        handle.flush()
        with pytest.raises(Refused, match="changed while"):
            passing.unchanged(before, handle.fileno(), path.name)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 4 << 20, (4 << 20) + 1, (9 << 20) - 3])
def test_one_pass_gives_all_digests(tmp_path: Path, size: int) -> None:
    import hashlib

    data = bytes(range(251)) * (size // 251 + 1)
    content = {"t/a": data[:size], "t/b": b"", "t/c": data[: size // 3]}
    path = tmp_path / "x.tar"
    with path.open("wb") as out:
        tape.write(out, content, 77)
    with path.open("rb") as handle:
        found, date = tape.read(handle.fileno(), "x")
        digests = passing.digests(handle.fileno(), found, "x", blobs=True)
    assert date == 77 and digests.sha256 == canonical.sha256_file(path)
    assert digests.members == {name: hashlib.sha256(value).hexdigest() for name, value in content.items()}
    assert digests.blobs == {name: swhid.content(value) for name, value in content.items()}
    assert all(digests.held[name] == value for name, value in content.items() if len(value) <= passing.HELD)


def test_what_fails_in_a_digests_thread_is_raised(frozen: Any, monkeypatch: Any) -> None:
    def fail(self: Any, start: int, piece: memoryview) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(passing._Split, "update", fail)
    with pytest.raises(MemoryError, match="no room"), opened(frozen.workspace, frozen.path):
        pass


def test_long_names_go_into_the_prefix() -> None:
    name = "/".join(["a" * 60, "b" * 60, "c" * 70])
    info = tarfile.TarInfo(name)
    info.size, info.mtime = 5, 9
    assert tape.header(name, 5, 9) == info.tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(Refused, match="155"):
        tape.header("a" * 101, 5, 9)


def test_a_key_stays_outside_and_is_never_replaced(frozen: Any, tmp_path: Path) -> None:
    call = frozen.project.call
    done = call("key", "other", "--key", str(frozen.root / "inside.pem"))
    assert done.returncode == 2 and "inside the repository" in done.stderr
    secret = tmp_path / "deep" / "secret.pem"
    assert call("key", "other", "--key", str(secret)).returncode == 0
    assert secret.stat().st_mode & 0o777 == 0o600
    public = frozen.workspace.evidence / "keys" / "other.pub"
    assert b"PRIVATE" not in public.read_bytes()
    done = call("key", "third", "--key", str(secret))
    assert done.returncode == 2 and "never replaced" in done.stderr
    public.unlink()


def test_facts_are_quoted(frozen: Any) -> None:
    """A question with quotes, colons, braces and line breaks stays one text in YAML, JSON and BibTeX."""
    import yaml

    from labcore import metadata

    nasty = 'a: "b" \\ {{c} % & # ^~ \n- d\ttail ü \x85 \u2028 \x7f 🙂'
    manifest = json.loads((frozen.run / "sealed" / "manifest.json").read_bytes())
    manifest["protocol"]["resolved"]["question"] = nasty
    facts = metadata.Facts(manifest, frozen.done.facts.audit, frozen.done.facts.sealed, [])
    assert yaml.safe_load(metadata.citation_cff(facts))["abstract"].startswith(nasty)
    assert json.loads(metadata.zenodo(facts))["description"].startswith(nasty)
    assert yaml.safe_load(metadata.cff_with_identity(facts, "0" * 64, "swh:1:dir:" + "0" * 40))["identifiers"][0]["type"] == "swh"
    text = metadata.bibtex(facts, "0" * 64, "x")
    assert text.count("{") == text.count("}")
    assert SimpleNamespace(**json.loads(metadata.datacite(facts))).publicationYear.isdigit()


def test_an_archive_under_another_name_is_found_among_the_frozen_ones_only(frozen: Any, tmp_path: Path) -> None:
    data, name = frozen.path.read_bytes(), f"{frozen.path.stem[:-12]}{'a' * 12}.tar"
    with opened(frozen.workspace, place(frozen, tmp_path, data, "mine.tar")) as checked:
        assert checked.findings == []
    path = place(frozen, frozen.path.parent, data, name)
    try:
        with opened(frozen.workspace, path) as checked:
            assert any("bears its own name" in finding for finding in checked.findings)
    finally:
        path.unlink()


def test_a_large_archive_is_named_only_where_that_can_be_held_against_something(frozen: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(verification, "BIG", 0)
    path = place(frozen, tmp_path, frozen.path.read_bytes())
    with opened(frozen.workspace, path) as checked:
        assert checked.findings == [] and checked.sha256 == frozen.done.sha256, "the ledger has a line of it"
        assert checked.swhid == ""
    monkeypatch.setattr(verification, "_frozen", lambda *_: [])
    with opened(frozen.workspace, path) as checked:
        assert (checked.findings, checked.sha256, checked.swhid) == ([], "", "")
        assert "not computed" in checked.steps[0][1]
    for wanted in (Wanted(identity=True), Wanted(sha256=frozen.done.sha256, swhid=frozen.done.swhid)):
        with opened(frozen.workspace, path, wanted) as checked:
            assert (checked.findings, checked.sha256, checked.swhid) == ([], frozen.done.sha256, frozen.done.swhid)
    with opened(frozen.workspace, path, Wanted(sha256="0" * 64)) as checked:
        assert checked.findings


def test_the_auditors_swhid_is_computed_of_a_large_archive_too(frozen: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(verification, "BIG", 0)
    facts, files = frozen.done.facts, members(frozen.path)
    others = {n[5:]: d for n, d in files.items() if n.startswith("data/") and n[5:] not in contents.GENERATED}
    sizes = {n: (len(d), canonical.sha256(d)) for n, d in others.items()}
    payload = {f"data/{n}": d for n, d in (others | contents.generated(facts, sizes, "swh:1:dir:" + "0" * 40)).items()}
    tags = contents.tag_files(facts, {n: (len(d), canonical.sha256(d)) for n, d in payload.items()})
    with opened(frozen.workspace, place(frozen, tmp_path, pack(contents.top(facts), payload | tags, contents.seconds(facts)))) as checked:
        assert any("archive.json" in text for text in checked.findings), checked.findings


def test_an_audit_by_another_version_is_compared_in_what_it_decided(frozen: Any, tmp_path: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        document |= {"auditor": {"version": "0.9"}, "rederived": {}}
        values = document["claims"]["Z01"]["values"]
        assert any(isinstance(value, float) for value in values.values())
        document["claims"]["Z01"]["values"] = {name: value + 1e-15 for name, value in values.items()}

    def lying(document: dict[str, Any]) -> None:
        older(document)
        document["claims"]["Z01"]["verdict"] = "qualified"

    def bending(document: dict[str, Any]) -> None:
        older(document)
        values = document["claims"]["Z01"]["values"]
        document["claims"]["Z01"]["values"] = {name: value + 0.001 for name, value in values.items()}

    for number, (change, wanted) in enumerate(((older, []), (lying, ["audit.json: its claims"]), (bending, ["audit.json: its claims"]))):
        (tmp_path / str(number)).mkdir()
        _, data = Forged(frozen.run, tmp_path / str(number), frozen.root).archive(change)
        with opened(frozen.workspace, place(frozen, tmp_path, data)) as checked:
            assert any("0.9" in text for step, text in checked.steps if step == "audit")
            assert len(checked.findings) >= len(wanted) and all(part in checked.findings[0] for part in wanted)
            assert bool(checked.findings) == bool(wanted), checked.findings
