"""A prefix store in a process of its own: K and V never enter the caller's memory. Lines of JSON over two pipes.

No request returns or sets K or V; who may speak for a scope is the matter of `scopes`. The seed of the weights stands for a model that
both sides have. The operating system may still let one user's processes read each other's memory; that is outside this boundary.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from labcore import network
from labcore.network import Floats
from labcore.prefix import PrefixStore

ROOT = Path(__file__).resolve().parents[1]


class RemoteStore:
    """A store behind a pipe; use it in a `with`. Holds no cache, no key and no entry of its own."""

    def __init__(self) -> None:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self._child = subprocess.Popen(
            [sys.executable, "-m", "labcore.store_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._child.communicate()

    def remember(self, scope: str, seed: int, prefix: list[int]) -> None:
        """Store a prefix for a scope."""
        self._ask({"do": "remember", "scope": scope, "seed": seed, "prefix": prefix})

    def resume(self, scope: str, seed: int, prefix: list[int], suffix: list[int]) -> tuple[Floats, bool]:
        """States of the suffix [n, d], and whether a stored cache was continued."""
        answer = self._ask({"do": "resume", "scope": scope, "seed": seed, "prefix": prefix, "suffix": suffix})
        return np.array([[float.fromhex(number) for number in row] for row in answer["states"]]), bool(answer["reused"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise ConnectionError(f"store process: ended with exit status {self._child.wait()}; wanted an answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer


def serve() -> None:
    """Answer requests from stdin until it ends."""
    store = PrefixStore()
    for line in sys.stdin:
        try:
            answer = _answer(store, json.loads(line))
        except (TypeError, ValueError, KeyError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def _answer(store: PrefixStore, request: dict[str, Any]) -> dict[str, Any]:
    scope, weights = request["scope"], network.draw([request["seed"]])
    if request["do"] == "remember":
        store.remember(scope, weights, request["prefix"])
        return {}
    if request["do"] == "resume":
        got = store.resume(scope, weights, request["prefix"], request["suffix"])
        return {"states": [[float(number).hex() for number in row] for row in got.states], "reused": got.reused}
    raise ValueError(f"do: got {request['do']!r}; wanted remember or resume")


if __name__ == "__main__":
    serve()
