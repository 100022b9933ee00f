"""Test a target in a child process, so that a system that hangs in native code or kills its process costs one check and no more."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

from labcore.battery.check import ERROR, Result
from labcore.battery.runner import CHECKS
from labcore.errors import Refused

GRACE = 5.0  # seconds that a child gets beyond its own limits
START = 300.0  # seconds of silence in which the target must be imported


def results(target: str, rules: Iterable[str] | None = None, **options: Any) -> Iterator[Result]:
    """The results of `runner.results` on a target, in the order of rules. Refused if the target cannot be imported."""
    left = list(CHECKS) if rules is None else list(rules)
    while left:
        for result in _child(target, left, options):
            left.remove(result.rule)
            yield result


def _child(target: str, rules: list[str], options: dict[str, Any]) -> Iterator[Result]:
    """Results of one child until it ends; if it is killed or dies, the check that it was at is the last."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        command = [sys.executable, "-m", "labcore.battery.child", target, str(writer), json.dumps({**options, "only": rules})]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path[:1], os.environ.get("PYTHONPATH", "")]))}
        process = subprocess.Popen(
            command, pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=environment, start_new_session=True
        )
        os.close(writer)
        current, call = "", ""
        ticks, moved = -1, time.monotonic()
        try:
            for message in _messages(reader, max(options["seconds"] + GRACE, START if not current else 0.0)):
                if message is not None and message.get("ticks", ticks) != ticks:
                    ticks, moved = message["ticks"], time.monotonic()
                if message is None or (current and time.monotonic() - moved > options["seconds"] + GRACE):
                    _stop(process)
                    text = f"no answer within {options['seconds']:g} s; its process was ended. {_place(errors)}"
                    yield _broken(current or rules[0], "hung", call or "factory()", text.strip())
                    return
                if "refused" in message:
                    raise Refused(message["refused"])
                if "begin" in message:
                    current, moved = message["begin"], time.monotonic()
                elif "result" in message:
                    current = ""
                    yield Result(**message["result"])
                else:
                    call = message["call"]
            code = process.wait()
            if code and current:
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                yield _broken(current, "died", call or "see text", f"the process ended with {how}. {_place(errors)}".strip())
            elif code:
                raise Refused(f"{target}: the process ended with exit code {code} before any check. {_place(errors)}")
        finally:
            os.close(reader)
            _stop(process)


def _messages(reader: int, wait: float) -> Iterator[dict[str, Any] | None]:
    """Messages of the child; None, the last, if it says nothing for too long."""
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while True:
            while b"\n" not in buffer:
                if not selector.select(wait):
                    yield None
                    return
                chunk = os.read(reader, 65536)
                if not chunk:
                    return
                buffer += chunk
            line, _, buffer = buffer.partition(b"\n")
            yield json.loads(line)


def _stop(process: subprocess.Popen[Any]) -> None:
    """End a child and what it started (its own session)."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _place(errors: Any) -> str:
    """The innermost line of a traceback that the child left behind, in words."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read()[-20000:].splitlines() if line.strip()]
    frames = [line for line in lines if line.startswith("File ") and "labcore/battery" not in line]
    return (frames[0] if frames else lines[-1] if lines else "")[:300]


def _broken(rule: str, kind: str, call: str, text: str) -> Result:
    check = CHECKS[rule]
    return Result(rule, check.interface, check.title, check.reason, ERROR, text=text, kind=kind, call=call)
