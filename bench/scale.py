"""06 with very many seeds: time per case against the plain loop, and the memory of the whole command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.commands import BARE, ROOT


def measure(quick: bool) -> list[tuple[str, str]]:
    """Milliseconds a case, sealing included; peak memory of run and of audit. Start-up is subtracted on both sides, and shown too.

    The loop is measured before and after: a machine's speed drifts.
    """
    seeds = 1000 if quick else 10_000
    with tempfile.TemporaryDirectory() as place:
        before = plain_loop(place, 500) - plain_loop(place, 100)
        _, few, _ = child("labcore", "run", "06", "seeds=range(0,100)", "--no-audit")
        run, seconds, memory = child("labcore", "run", "06", f"seeds=range(0,{seeds})", "--no-audit")
        after = plain_loop(place, 500) - plain_loop(place, 100)
    loop = (before + after) / 2 / (6 * 400)
    name = next(word for word in run.split() if len(word) == 13 and word.endswith(":")).rstrip(":")
    folder = ROOT / "evidence" / "local" / "06_stale_prefix" / name
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    _, audit_seconds, audit_memory = child("audit", "--no-write", "--quiet", str(folder))
    batched, whole = (seconds - few) / (6 * (seeds - 100)), seconds / (6 * seeds)
    faster = f"{batched * 1e3:.4f} ms a case, {loop / batched:.0f} x faster (goal 20)"
    return [
        ("the plain loop", f"{loop * 1e3:.3f} ms a case"),
        (f"batched, {6 * seeds} cases sealed, {size / 1e6:.0f} MB", faster),
        ("the same with start-up and 06's other blocks", f"{whole * 1e3:.4f} ms a case, {loop / whole:.0f} x faster"),
        ("peak memory of that run", f"{memory / 1e6:.0f} MB (goal under 1000)"),
        ("its audit", f"{audit_seconds:.1f} s, peak {audit_memory / 1e6:.0f} MB"),
    ]


def plain_loop(place: str, seeds: int) -> float:
    """Seconds of the bare script with many seeds."""
    script = Path(place) / "bare.py"
    script.write_text(BARE.replace("(7, 19, 41)", f"range({seeds})"))
    start = time.perf_counter()
    subprocess.run([sys.executable, str(script), str(Path(place) / "out.npz")], check=True)
    return time.perf_counter() - start


def child(module: str, *arguments: str) -> tuple[str, float, int]:
    """Run a module; its output, seconds, and peak memory in bytes."""
    code = (
        "import resource, subprocess, sys; r = subprocess.run(sys.argv[1:], capture_output=True, text=True);"
        "print(r.stdout); print(r.stderr, file=sys.stderr);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024); sys.exit(r.returncode)"
    )
    start = time.perf_counter()
    command = [sys.executable, "-c", code, sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    *text, memory = done.stdout.strip().splitlines()
    return "\n".join(text), seconds, int(memory)
