"""Commands as a user calls them: what bad input gets, what a run leaves, and that equal runs are equal."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOY = "90_toy"


def sealed(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "sealed").iterdir())}


def events(project: Any) -> list[str]:
    lines = (project.local / "LEDGER.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def test_equal_runs_give_equal_bytes_but_for_what_is_recorded(project: Any) -> None:
    first = sealed(project.make())
    shutil.rmtree(project.runs()[0])
    second = sealed(project.make())
    left, right = (json.loads(files.pop("manifest.json")) for files in (first, second))
    assert first == second
    assert left.pop("recorded") and right.pop("recorded")
    assert left == right
    assert left["kind"] == "confirmatory"


def test_a_rerun_keeps_the_old_record_and_says_so(project: Any) -> None:
    run = project.make()
    before = sealed(run)
    done = project.call("run", "90", "--no-audit")
    assert done.returncode == 0 and "bit for bit" in done.stdout
    assert sealed(run) == before
    assert events(project) == ["ran", "reproduced"]


def test_a_whole_run_is_audited_drawn_kept_and_compared(project: Any) -> None:
    done = project.call("run", "90")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERIFIED" in done.stdout and "reproduced" in done.stdout
    run = project.runs()[0]
    assert sorted(path.name for path in (run / "figures").iterdir()) == ["error.png", "error.svg"]
    kept = project.call("keep", "90", "--why", "first")
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert (project.root / "evidence" / TOY / run.name / "audit.json").is_file()
    assert "already the kept run" in project.call("keep", "90").stdout
    again = project.call("run", "90")
    assert "compared with the kept run" in again.stdout and "identical" in again.stdout
    other = project.call("run", "90", "seeds=[1,2,3]")
    assert "not compared with the kept run" in other.stdout and "changed" not in other.stdout
    assert project.call("list").stdout.count("VERIFIED") == 1


def test_figures_are_the_same_bytes_twice(project: Any) -> None:
    project.call("run", "90")
    run = project.runs()[0]
    before = {path.name: path.read_bytes() for path in (run / "figures").iterdir()}
    shutil.rmtree(run / "figures")
    assert project.call("figure", "90", "--run", run.name).returncode == 0
    assert before == {path.name: path.read_bytes() for path in (run / "figures").iterdir()}


def test_a_drawing_that_is_told_no_run_ends_quietly(project: Any) -> None:
    done = project.call("figure", "90", "--run", "-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_drawing_that_fails_is_told_and_the_audit_still_stands(project: Any) -> None:
    figure = project.root / "experiments" / TOY / "figure.py"
    figure.write_text(figure.read_text() + "\n\ndef draw(run):\n    raise ValueError('no figure today')\n")
    project.commit()
    done = project.call("run", "90")
    assert done.returncode == 2 and "no figure today" in done.stderr and "VERIFIED" in done.stdout
    assert events(project) == ["ran", "audited"]


def test_ctrl_c_ends_the_drawing_too(project: Any) -> None:
    process = slow(project)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors.strip() == "labcore: interrupted"
    assert not Path(f"/proc/{children[0]}").exists()


SLOW_DRAWING = """
import time
from functools import partial


def slowly(save, path, **options):
    save(path, **options)
    time.sleep(30)


def draw(run, quick=draw):
    figures = quick(run)
    for figure in figures.values():
        figure.savefig = partial(slowly, figure.savefig)
    return figures
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_drawing_that_is_stopped_ends_and_leaves_no_half_of_it_in_the_run(project: Any, how: signal.Signals) -> None:
    path = project.root / "experiments" / TOY / "figure.py"
    path.write_text(path.read_text() + SLOW_DRAWING)
    process = start(project)
    deadline = time.monotonic() + 30
    while not list(project.local.rglob("*.svg*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(how)
    _, errors = process.communicate(timeout=20)
    assert errors.strip() == ("labcore: interrupted" if how == signal.SIGINT else "")
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run = project.runs()[0]
    assert children and not (run / "figures").exists()
    assert (how == signal.SIGKILL) == (len(list((project.local / TOY).iterdir())) == 2)
    project.git("checkout", "-q", "experiments")
    assert project.call("run", "90").returncode == 0
    assert len(list((project.local / TOY).iterdir())) == len(project.runs())
    assert all({figure.suffix for figure in (made / "figures").iterdir()} == {".svg", ".png"} for made in project.runs() if made != run)


def test_a_run_without_a_standard_output_is_drawn_and_audited_all_the_same(project: Any) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m labcore run 90 >&-"], cwd=project.root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (project.runs()[0] / "audit.json").is_file() and (project.runs()[0] / "figures").is_dir()


def test_keeping_another_run_supersedes_the_first(project: Any) -> None:
    project.call("run", "90")
    assert project.call("keep", "90").returncode == 0
    conf = project.root / "conf" / "experiment" / f"{TOY}.yaml"
    conf.write_text(conf.read_text().replace("[7, 19, 41]", "[7, 19]"))
    assert project.call("protocol", "90").returncode == 0
    project.commit()
    assert project.call("run", "90").returncode == 0
    done = project.call("keep", "90", "--why", "fewer seeds")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (project.root / "evidence" / "LEDGER.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["kept", "superseded", "kept"]
    assert len(list((project.root / "evidence" / TOY).iterdir())) == 1


def test_an_override_makes_an_exploratory_run_that_cannot_be_kept(project: Any) -> None:
    done = project.call("run", "90", "seeds=[1,2,3]")
    assert "EXPLORATORY" in done.stdout and "seeds=[1,2,3]" in done.stdout
    manifest = json.loads((project.runs()[0] / "sealed" / "manifest.json").read_text())
    assert manifest["kind"] == "exploratory" and manifest["overrides"] == ["seeds=[1,2,3]"]
    kept = project.call("keep", "90", "--run", project.runs()[0].name)
    assert kept.returncode == 2 and "exploratory" in kept.stderr
    assert not (project.root / "outputs").exists() and not list(project.root.glob("**/*.log"))


def test_a_changed_source_makes_an_exploratory_run_that_names_it(project: Any) -> None:
    path = project.root / "experiments" / TOY / "experiment.py"
    path.write_text(path.read_text() + "\n# changed\n")
    done = project.call("run", "90", "--no-audit")
    assert "EXPLORATORY" in done.stdout and f"experiments/{TOY}/experiment.py" in done.stdout


def test_a_range_of_seeds_is_data(project: Any) -> None:
    done = project.call("run", "90", "seeds=range(0,1000)", "--no-audit")
    assert done.returncode == 0, done.stderr
    assert "2000 rows" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "98"], 2, ["'98'", "90_toy"]),
        (["run", "90", "sedes=[1]"], 2, ["'sedes'", "'seeds'"]),
        (["run", "90", "blocks.main.metric.error.op=max"], 2, ["metric", "metrics"]),
        (["run", "90", "+new=1"], 2, ["'+new=1'"]),
        (["run", "90", "++seeds=[1]"], 2, ["'++seeds=[1]'"]),
        (["run", "90", "~seeds"], 2, ["'~seeds'"]),
        (["run", "90", "hydra.run.dir=x"], 2, ["hydra"]),
        (["run", "90", "experiment=05"], 2, ["experiment"]),
        (["run", "90", "seeds=1,2"], 2, ["sweep"]),
        (["run", "90", "seeds=range(0,0)"], 2, ["range"]),
        (["run", "90", "seeds=[1"], 2, ["seeds=[1"]),
        (["run", "90", "seeds=[a]"], 2, ["int", "str"]),
        (["run", "90", "seeds=[1,1]"], 2, ["distinct"]),
        (["run", "90", "tolerance=lots"], 2, ["float", "str"]),
        (["run", "90", "blocks.main.arrays.output.dtype=object"], 2, ["dtype"]),
        (["frobnicate"], 2, ["frobnicate", "run"]),
        (["keep", "90"], 2, ["confirmatory"]),
        (["keep", "90", "--run", "abc"], 2, ["abc"]),
        (["figure", "90"], 2, ["kept"]),
        (["diff", "x", "y"], 2, ["'x'"]),
        (["replicate", "90"], 2, ["kept"]),
        (["new", "23-Name"], 2, ["23-Name"]),
        (["new", "90_other"], 2, ["taken"]),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(project: Any, arguments: list[str], code: int, words: list[str]) -> None:
    done = project.call(*arguments)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert project.runs() == []
    assert project.git("status", "--porcelain") == ""


def test_an_experiment_that_fails_leaves_a_ledger_line_and_no_folder(project: Any) -> None:
    path = project.root / "experiments" / TOY / "experiment.py"
    path.write_text(path.read_text().replace("    alone = np.stack", "    raise ValueError('no such width')\n    alone = np.stack"))
    done = project.call("run", "90")
    assert done.returncode == 2 and "no such width" in done.stderr and len(done.stderr.splitlines()) == 1
    assert project.runs() == [] and events(project) == ["failed"]
    assert list((project.local / TOY).iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('{"output": ', '{"outputs": ', "wanted ['alone', 'output']"),
        ('"alone": alone}', '"alone": alone[:, :4]}', "got shape (6, 4)"),
        ('"alone": alone}', '"alone": alone[1:]}', "rows differ"),
        ('"alone": alone}', '"alone": alone > 0}', "got dtype bool"),
        ('"alone": alone}', '"alone": alone * np.nan}', "allows no such value"),
        ('"main"', '"mean"', "'mean'"),
    ],
)
def test_wrong_batches_are_refused_by_name(project: Any, old: str, new: str, words: str) -> None:
    path = project.root / "experiments" / TOY / "experiment.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    done = project.call("run", "90")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert project.runs() == []


SLOW = """
    import time
    time.sleep(30)
"""


def start(project: Any) -> subprocess.Popen[str]:
    """Start a run as a user at a terminal does."""
    # A shell in the background may have set SIGINT to be ignored, and children inherit that: a terminal's user has it.
    return subprocess.Popen(
        [sys.executable, "-m", "labcore", "run", "90"],
        cwd=project.root,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def slow(project: Any) -> subprocess.Popen[str]:
    """Start a run that waits inside its experiment; returns it once its folder is there."""
    path = project.root / "experiments" / TOY / "experiment.py"
    path.write_text(path.read_text().replace("    alone = np.stack", SLOW + "    alone = np.stack"))
    process = start(project)
    deadline = time.monotonic() + 30
    while not list((project.local / TOY).glob(".growing-*/run/sealed")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_ctrl_c_leaves_a_ledger_line_and_no_folder(project: Any) -> None:
    process = slow(project)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors.strip() == "labcore: interrupted"
    assert events(project) == ["interrupted"]
    assert list((project.local / TOY).iterdir()) == []


def test_a_killed_run_is_found_reported_and_cleared_at_the_next_start(project: Any) -> None:
    process = slow(project)
    process.kill()
    process.communicate()
    left = list((project.local / TOY).iterdir())
    assert len(left) == 2  # the run's and the drawing's
    project.git("checkout", "-q", "experiments")
    done = project.call("run", "90", "--no-audit")
    assert done.returncode == 0 and all(f"removed evidence/local/{TOY}/{folder.name}" in done.stdout for folder in left)
    assert events(project) == ["leftover", "leftover", "ran"]
    assert [path.name for path in (project.local / TOY).iterdir()] == [project.runs()[0].name]


def test_two_runs_at_once_both_land_and_the_ledger_is_whole(project: Any) -> None:
    command = [sys.executable, "-m", "labcore", "run", "90", "--no-audit"]
    overrides = [[], [], ["seeds=[1]"], ["seeds=[2]"]]
    processes = [subprocess.Popen([*command, *o], cwd=project.root, stdout=subprocess.DEVNULL) for o in overrides]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0, 0]
    assert len(project.runs()) == 3
    assert sorted(events(project)) == ["ran", "ran", "ran", "reproduced"]
    assert project.call(module="audit").returncode == 0


def test_a_full_disk_is_one_line_exit_3_and_nothing_half_written(project: Any) -> None:
    import resource

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = project.call("run", "90", "seeds=range(0,300)", "--no-audit", preexec_fn=small)
    assert done.returncode == 3, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert project.runs() == [] and list((project.local / TOY).iterdir()) == []


def test_clean_asks_and_then_removes(project: Any) -> None:
    project.make()
    refused = project.call("clean")
    assert refused.returncode == 2 and len(project.runs()) == 1
    assert project.call("clean", "--yes").returncode == 0
    assert project.runs() == [] and events(project) == ["ran", "removed"]


def test_replicate_runs_the_archived_sources(project: Any) -> None:
    project.call("run", "90")
    project.call("keep", "90")
    path = project.root / "experiments" / TOY / "experiment.py"
    path.write_text("raise SystemExit('the working tree must not be used')\n")
    done = project.call("replicate", "90", "--here")
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    assert events(project)[-1] == "replicated"


def test_diff_tells_equal_within_tolerance_and_changed(project: Any) -> None:
    run = project.make()
    assert "identical" in project.call("diff", f"90/{run.name}", str(run)).stdout
    path = project.root / "experiments" / TOY / "experiment.py"
    original = path.read_text()
    for factor, outcome, code in (("1e-14", "within tolerance", 0), ("1e-3", "changed", 1)):
        path.write_text(original.replace('"alone": alone}', f'"alone": alone + {factor}}}'))
        project.call("run", "90", "--no-audit")
        other = next(r for r in project.runs() if r != run)
        done = project.call("diff", f"90/{run.name}", f"90/{other.name}")
        assert (done.returncode, outcome in done.stdout) == (code, True), done.stdout
        shutil.rmtree(other)


def test_a_new_experiment_is_written_and_its_test_fails_until_it_is_filled(project: Any) -> None:
    done = project.call("new", "23_name")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 8
    failing = project.call("-q", "-p", "no:cacheprovider", "tests/experiments/test_23.py", module="pytest")
    assert "2 failed" in failing.stdout, failing.stdout


@pytest.mark.parametrize("verb", sorted(path.stem for path in (ROOT / "labcore" / "commands").glob("[a-z]*.py")))
def test_every_verb_has_help(project: Any, verb: str) -> None:
    done = project.call(verb, "--help")
    assert done.returncode == 0 and len(done.stdout) > 80
