"""Print what makes bash complete verbs, experiments and overrides: eval "$(python -m labcore completion)"."""

from __future__ import annotations

import argparse
import shlex
import sys

from labcore.cli import ROOT, verbs
from labcore.errors import GOOD
from labcore.workspace import Workspace

SCRIPT = """\
labcore() {{ PYTHONPATH={root} {python} -m labcore "$@"; }}
_labcore() {{
    local line="${{COMP_LINE:0:COMP_POINT}}"
    local word="${{line##* }}"
    mapfile -t COMPREPLY < <(labcore completion --line "$line" 2>/dev/null)
    # Where bash takes = for the end of a word, only what stands behind it is replaced.
    [[ $COMP_WORDBREAKS == *=* && $word == *=* ]] && COMPREPLY=("${{COMPREPLY[@]#"${{word%%=*}}="}}")
    return 0
}}
complete -o nospace -F _labcore labcore
"""
OVERRIDABLE = ("run", "protocol")


def add(parser: argparse.ArgumentParser) -> None:
    """Options of `labcore completion`."""
    parser.add_argument("--line", help="asked by bash: the command line up to the cursor; prints what its last word may become")


def main(arguments: argparse.Namespace) -> int:
    """Print the shell's part, or the answers to one line, each on a line of its own."""
    if arguments.line is None:
        print(SCRIPT.format(root=shlex.quote(str(ROOT)), python=shlex.quote(sys.executable)), end="")
    else:
        print("\n".join(answers(arguments.line.split(" ")[1:])))
    return GOOD


def answers(words: list[str]) -> list[str]:
    """What the last word may become; a space behind it where it is then whole. words: those behind `labcore`, the last one unfinished."""
    last = words[-1] if words else ""
    if len(words) < 2:
        return [f"{verb} " for verb in verbs() if verb.startswith(last)]
    if len(words) == 2:
        return [f"{name} " for name in Workspace(ROOT).names() if name.startswith(last)]
    if words[0] in OVERRIDABLE:
        from labcore.compose import completions

        return completions(ROOT, Workspace(ROOT).find(words[1]), last)
    return []
