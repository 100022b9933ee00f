"""What freezing and verifying cost: the archive of 06 in seconds, and a large one as a ratio to hashing its bytes."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from bench._child import cost
from labcore import canonical, scaffold
from labcore.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
ARRAYS = 8
WIDE = """
  wide:
    rows: none
    arrays: {arrays}
"""


def measure(quick: bool) -> list[tuple[str, str]]:
    """06: medians of whole processes. Large: the whole `verify` process against reading and hashing the file."""
    results: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / "evidence" / "local" if (ROOT / "evidence/local").is_dir() else None) as place:
        kept = Workspace(ROOT).kept("06_stale_prefix")
        if kept is not None:
            copy = project(Path(place) / "small")
            shutil.copytree(ROOT / "experiments" / "06_stale_prefix", copy / "experiments" / "06_stale_prefix")
            shutil.copytree(kept, copy / "evidence" / "06_stale_prefix" / kept.name)
            freeze = [cost(copy, "labcore", "freeze", "06", "--draft", "--run", kept.name).seconds for _ in range(3)]
            archive = next((copy / "evidence" / "archives").glob("*.tar"))
            verify = [cost(copy, "labcore", "verify", str(archive)).seconds for _ in range(3)]
            results.append(("freeze 06", f"{sorted(freeze)[1]:.2f} s"))
            results.append(("verify 06", f"{sorted(verify)[1]:.2f} s, {archive.stat().st_size / 1e6:.2f} MB"))
        results += large(Path(place) / "large", 128_000_000 if quick else 1_000_000_000)
    return results


def large(place: Path, size: int) -> list[tuple[str, str]]:
    """A run of about `size` bytes of float64 in `ARRAYS` arrays that stand alone: frozen as a draft and verified, interleaved."""
    root = project(place)
    files = scaffold.files("91_wide")
    shape = size // ARRAYS // 8
    arrays = "{" + ", ".join(f'a{n}: {{dtype: <f8, shape: [{shape}], axes: [place], unit: "1"}}' for n in range(ARRAYS)) + "}"
    files["conf/experiment/91_wide.yaml"] = files["conf/experiment/91_wide.yaml"].replace(
        "controls:", WIDE.strip("\n").format(arrays=arrays) + "\ncontrols:"
    )
    experiment = files["experiments/91_wide/experiment.py"]
    experiment = experiment.replace("np.zeros_like(alone)", "alone * (np.arange(len(alone)) % conditions == 0)[:, None]")
    experiment += f"    draws = np.random.default_rng(7).normal(size={shape})\n"
    experiment += f'    yield Batch("wide", {{f"a{{n}}": draws + n for n in range({ARRAYS})}})\n'
    files["experiments/91_wide/experiment.py"] = experiment
    given = "{" + ", ".join(f'"wide/a{n}": "large"' for n in range(ARRAYS)) + ', "main/output": "toy", "main/alone": "toy"}'
    files["audit/derive/e91.py"] = files["audit/derive/e91.py"].replace("GIVEN: dict[str, str] = {}", f"GIVEN: dict[str, str] = {given}")
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("FILL", "toy"))
    for command in (["protocol", "91"], ["run", "91", "--no-audit"]):
        cost(root, "labcore", *command)
    run = next((root / "evidence" / "local" / "91_wide").glob("*/sealed")).parent
    frozen = cost(root, "labcore", "freeze", "91", "--draft", "--run", run.name).seconds
    shutil.rmtree(run)
    archive = next((root / "evidence" / "archives").glob("*.tar"))
    hashing: list[float] = []
    verifying: list[float] = []
    processor: list[float] = []
    memory = 0
    for _ in range(3):
        start = time.perf_counter()
        canonical.sha256_file(archive)
        hashing.append(time.perf_counter() - start)
        used = cost(root, "labcore", "verify", str(archive))
        verifying.append(used.seconds)
        processor.append(used.processor)
        memory = max(memory, used.memory)
    ratio = min(hashing) / min(verifying)
    name = f"{archive.stat().st_size / 1e9:.2f} GB"
    return [
        (f"freeze {name}", f"{frozen:.1f} s"),
        (f"hash {name}", f"{min(hashing):.2f} s"),
        (f"verify {name}", f"{min(verifying):.2f} s, {ratio:.2f} of the speed of hashing it"),
        (f"verify {name}, CPU", f"{min(processor):.2f} s, {min(processor) / min(hashing):.1f} times that of hashing it"),
        (f"verify {name}, peak memory of a process", f"{memory / 1e6:.0f} MB"),
    ]


def project(root: Path) -> Path:
    """The suite without its experiments, outside of any repository."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("labcore", "audit", "requirements", "conf"):
        shutil.copytree(ROOT / package, root / package, ignore=ignore)
    (root / "evidence").mkdir()
    shutil.copy(ROOT / "evidence" / "FORMAT.md", root / "evidence")
    shutil.copy(ROOT / "LICENSE", root)
    return root
