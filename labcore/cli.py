"""The command line: each module of labcore/commands is a verb. Turns refusals into one line and an exit code."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from labcore.errors import ENVIRONMENT, GOOD, INTERRUPTED, REFUSED, Environment, Refused, printable
from labcore.workspace import MACHINE

COMMANDS = Path(__file__).parent / "commands"
ROOT = Path(__file__).resolve().parents[1]


def verbs() -> dict[str, str]:
    """Verb -> its one line, read without importing (a verb's libraries load only when it runs)."""
    found = {}
    for path in sorted(COMMANDS.glob("[a-z]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = text.splitlines()[0]
    return found


def main(arguments: list[str]) -> int:
    """Run one verb; returns the exit code of design: 0 good, 1 finding, 2 refused, 3 environment, 130 interrupted."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("usage: python -m labcore VERB [options]; VERB --help says more\n")
        print("\n".join(f"  {verb:<10} {line}" for verb, line in verbs().items()))
        return GOOD
    verb, rest = arguments[0], arguments[1:]
    known = [path.stem for path in sorted(COMMANDS.glob("[a-z]*.py"))]
    if verb not in known:
        print(f"labcore: got the verb {verb!r}; wanted one of {', '.join(known)}", file=sys.stderr)
        return REFUSED
    debug = bool(os.environ.get("LABCORE_DEBUG"))
    signal.signal(signal.SIGTERM, _terminated)
    try:
        module: Any = importlib.import_module(f"labcore.commands.{verb}")
        parser = argparse.ArgumentParser(prog=f"labcore {verb}", description=module.__doc__)
        module.add(parser)
        return int(module.main(parser.parse_intermixed_args(rest)))
    except Refused as error:
        return _say(error, REFUSED)
    except Environment as error:
        return _say(error, ENVIRONMENT)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output left (`| head`): not a fault, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except ModuleNotFoundError as error:
        if debug or (error.name or "").split(".")[0] in ("labcore", "experiments"):
            raise
        return _say(f"the Python package {error.name!r} is not installed here; the make target of this verb installs it", ENVIRONMENT)
    except OSError as error:
        if debug or error.errno not in MACHINE:
            raise
        return _say(f"{error.filename or 'the disk'}: {os.strerror(error.errno or 0)}", ENVIRONMENT)


def _terminated(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _say(error: object, code: int) -> int:
    print(f"labcore: {printable(str(error))}", file=sys.stderr)
    return code
