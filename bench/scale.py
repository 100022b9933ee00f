"""06 with very many seeds: time per case against the plain loop, and the memory of the whole command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._child import cost
from bench.commands import BARE, ROOT


def measure(quick: bool) -> list[tuple[str, str]]:
    """Milliseconds a case, sealing included; peak memory of run and of audit. Start-up is subtracted on both sides, and shown too.

    The loop is measured before and after: a machine's speed drifts.
    """
    seeds = 1000 if quick else 10_000
    with tempfile.TemporaryDirectory() as place:
        before = plain_loop(place, 500) - plain_loop(place, 100)
        few = cost(ROOT, "labcore", "run", "06", "seeds=range(0,100)", "--no-audit").seconds
        run = cost(ROOT, "labcore", "run", "06", f"seeds=range(0,{seeds})", "--no-audit")
        after = plain_loop(place, 500) - plain_loop(place, 100)
    loop = (before + after) / 2 / (6 * 400)
    name = next(word for word in run.text.split() if len(word) == 13 and word.endswith(":")).rstrip(":")
    folder = ROOT / "evidence" / "local" / "06_stale_prefix" / name
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    audit = cost(ROOT, "audit", "--no-write", "--quiet", str(folder))
    batched, whole = (run.seconds - few) / (6 * (seeds - 100)), run.seconds / (6 * seeds)
    faster = f"{batched * 1e3:.4f} ms a case, {loop / batched:.0f} x faster (goal 20)"
    return [
        ("the plain loop", f"{loop * 1e3:.3f} ms a case"),
        (f"batched, {6 * seeds} cases sealed, {size / 1e6:.0f} MB", faster),
        ("the same with start-up and 06's other blocks", f"{whole * 1e3:.4f} ms a case, {loop / whole:.0f} x faster"),
        ("peak memory of that run", f"{run.memory / 1e6:.0f} MB (goal under 1000)"),
        ("its audit", f"{audit.seconds:.1f} s, peak {audit.memory / 1e6:.0f} MB"),
    ]


def plain_loop(place: str, seeds: int) -> float:
    """Seconds of the bare script with many seeds."""
    script = Path(place) / "bare.py"
    script.write_text(BARE.replace("(7, 19, 41)", f"range({seeds})"))
    start = time.perf_counter()
    subprocess.run([sys.executable, str(script), str(Path(place) / "out.npz")], check=True)
    return time.perf_counter() - start
