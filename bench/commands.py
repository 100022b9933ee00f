"""What sealing, auditing and drawing 06 cost beside a bare NumPy script that does the same 18 cases and writes an npz."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The published cases with the plain loop of one network, and nothing of the suite's evidence.
BARE = """
import sys
import numpy as np

def network(seed):
    rng = np.random.default_rng(seed)
    embedding = rng.normal(0, 0.3, (32, 16))
    return embedding, [[rng.normal(0, 0.25, (16, 16)) for _ in range(3)] for _ in range(2)]

def forward(model, tokens, start, cache, window):
    embedding, layers = model
    at = np.arange(start, start + len(tokens))
    angle = at[:, None] / 10000 ** (2 * np.arange(8) / 16)
    x = embedding[tokens]
    x = x + np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(len(tokens), 16)
    out = []
    for n, (wq, wk, wv) in enumerate(layers):
        q, k, v, where = x @ wq, x @ wk, x @ wv, at
        if cache:
            k, v, where = np.vstack([cache[n][0], k]), np.vstack([cache[n][1], v]), np.concatenate([cache[n][2], at])
        visible = where[None] <= at[:, None]
        if window:
            visible &= where[None] > at[:, None] - window
        score = np.where(visible, q @ k.T / 4, -np.inf)
        weight = np.exp(score - score.max(1, keepdims=True))
        x = np.tanh(x + weight / weight.sum(1, keepdims=True) @ v)
        out.append((k, v, where))
    return x, out

arrays = {}
prefix, suffix = list(range(1, 9)), list(range(9, 13))
for seed in (7, 19, 41):
    base = network(seed)
    _, stored = forward(base, prefix, 0, None, None)
    for name in ("same", "edited", "weights", "window", "scope", "new"):
        model = base
        if name == "weights":
            model = (base[0], [[w.copy() for w in layer] for layer in base[1]])
            model[1][0][1][0, 0] += 0.5
        ids = [1, 2, 20, *range(4, 9)] if name == "edited" else prefix
        tail = [20, 21, 22, 23] if name == "new" else suffix
        window = 4 if name == "window" else None
        arrays[f"{seed}-{name}-fresh"] = forward(model, ids + tail, 0, None, window)[0][-4:]
        arrays[f"{seed}-{name}-unchecked"] = forward(model, tail, 8, stored, window)[0]
        hit = name in ("same", "new")
        guarded = forward(model, tail, 8, stored, window)[0] if hit else forward(model, ids + tail, 0, None, window)[0][-4:]
        arrays[f"{seed}-{name}-guarded"] = guarded
np.savez(sys.argv[1], **arrays)
"""


# The same 18 cases through the runner and the sealing, without the other blocks of 06 (hash times, processes, faulty stores).
PUBLISHED = """
import sys
from pathlib import Path
from types import SimpleNamespace
import msgspec
from labcore import runner
from labcore.loading import load
from labcore.protocol import load as read
root = Path.cwd()
folder = root / "experiments" / "06_stale_prefix"
protocol = read(folder / "protocol.json")
blocks = {name: protocol.blocks[name] for name in ("models", "published")}
protocol = msgspec.structs.replace(protocol, blocks=blocks, claims={})
runner.load = lambda path: SimpleNamespace(batches=load(path).published)
runner.execute(root, protocol, [], Path(sys.argv[1]))
"""


def measure(quick: bool) -> list[tuple[str, str]]:
    """Medians of whole processes, interleaved, each as a ratio to the bare script."""
    repeats = 3 if quick else 9
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "bare.py"
        script.write_text(BARE)
        python = sys.executable
        commands = {
            "bare script": [python, str(script), str(Path(place) / "out.npz")],
            "run and seal the same 18 cases": [python, "-c", PUBLISHED, ""],
            "run and seal all blocks of 06": [python, "-m", "labcore", "run", "06", "--no-audit"],
            "run, seal, audit, figure": [python, "-m", "labcore", "run", "06"],
            "audit of the kept run": [python, "-m", "audit", "--no-write", *kept()],
            "import numpy and h5py": [python, "-c", "import numpy, h5py"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, command in commands.items():
                if "18 cases" in name:
                    command = [*command[:-1], tempfile.mkdtemp(dir=place)]
                start = time.perf_counter()
                subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
                times[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(values) for name, values in times.items()}
    base = middle["bare script"]
    goals = {
        "run and seal the same 18 cases": "at most 4",
        "run, seal, audit, figure": "at most 12",
        "audit of the kept run": "under 0.6 s",
    }
    lines = []
    for name, value in middle.items():
        goal = f" (goal {goals[name]})" if name in goals else ""
        lines.append((name, f"{value:.3f} s, {value / base:.1f} x bare{goal}"))
    return lines


def kept() -> list[str]:
    """The folder of the kept run of 06."""
    return [str(path.parent.parent) for path in sorted((ROOT / "evidence" / "06_stale_prefix").glob("*/sealed/manifest.json"))]
