"""The process in which a system is tested: `python -m labcore.battery.child TARGET FD OPTIONS`. Results go to a descriptor, a line each."""

from __future__ import annotations

import dataclasses
import faulthandler
import importlib
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labcore.battery import runner
from labcore.battery.guard import Guard
from labcore.errors import Refused

BEAT = 0.25  # seconds between signs of life


def find(target: str) -> Callable[[], Any]:
    """The factory of "package.module:factory" or "file.py:factory". Refused says what is missing."""
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise Refused(f"target: got {target!r}; wanted module:factory or file.py:factory")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not Path(place).is_file():
            raise Refused(f"target: no file {place}")
        module: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        sys.path.insert(0, str(Path(place).resolve().parent))
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name and (place == error.name or place.startswith(error.name + ".")):
                raise Refused(f"target: no module {error.name!r} here; wanted one that can be imported from {Path.cwd()}") from None
            raise
    for part in name.split("."):
        if not hasattr(module, part):
            raise Refused(f"target: {place} has no {name!r}")
        module = getattr(module, part)
    if not callable(module):
        raise Refused(f"target: {target} is a {type(module).__name__}; wanted something to call, without arguments, for a fresh system")
    factory: Callable[[], Any] = module
    return factory


def plain(value: Any) -> Any:
    """Anything as JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return value.item() if hasattr(value, "item") else str(value)


def main(arguments: list[str]) -> int:
    """Run the checks named in OPTIONS (JSON: the options of `runner.results`), each announced before it starts."""
    faulthandler.enable()  # where it stood, if it dies
    target, descriptor, options = arguments[0], int(arguments[1]), json.loads(arguments[2])
    with os.fdopen(descriptor, "w", buffering=1, encoding="utf-8") as out:
        lock = threading.Lock()

        def say(**message: Any) -> None:
            with lock:
                out.write(json.dumps(message) + "\n")
                out.flush()

        def beat() -> None:
            # Native code that hangs may stop this thread too: silence means the same as a count that stands still.
            while True:
                time.sleep(BEAT)
                guard = Guard.newest
                try:
                    say(ticks=Guard.ticks, call=guard.where() if guard else "")
                except (OSError, ValueError):
                    return  # the parent, or the pipe, is gone

        threading.Thread(target=beat, daemon=True).start()

        try:
            factory = find(target)
        except Refused as error:
            say(refused=str(error))
            return 2
        except Exception as error:  # the module's own code, which nobody vouches for
            say(refused=f"{target}: importing it raised {type(error).__name__}: {error}"[:500])
            return 2
        rules = list(options.pop("only"))
        options["total"] = float(options["total"])
        say(begin=rules[0])
        for index, result in enumerate(runner.results(factory, only=rules, **options)):
            say(result=plain(result))
            if index + 1 < len(rules):
                say(begin=rules[index + 1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
