"""The tests of the auditor against mutants of the auditor: `python tools/auditor_mutants.py [--sample N] [--seed S] [MODULE...]`.

A mutant is one file of audit/ with one small change: a comparison turned, a condition negated, a constant moved, and/or exchanged, an
addition made a subtraction, a call (such as that which records a finding), a raise or a loop's step dropped. It is killed if the audit
tests that matter for the file fail, or run out of processor time. Prints the score and every survivor. Exit code 1 below --goal (85 %).
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REJECTS = "test_rejects.py"
TESTS: dict[str, list[str]] = {
    "__main__": ["test_command.py"],
    "bits": ["test_metrics.py"],
    "bundle": ["test_bundle.py"],
    "committed": ["test_command.py", "test_ledger.py"],
    "files": ["test_files.py"],
    "findings": ["test_findings.py", "test_run.py", "test_command.py"],
    "h5form": ["test_h5bytes.py", "test_h5form.py", REJECTS],
    "ledger": ["test_ledger.py"],
    "manifest": ["test_manifest.py"],
    "metrics": ["test_metrics.py"],
    "places": ["test_ledger.py", "test_command.py"],
    "provenance": ["test_command.py", REJECTS],
    "rederive": ["test_rederive.py"],
    "report": ["test_findings.py", "test_command.py"],
    "rows": ["test_rederive.py"],
    "run": ["test_run.py", REJECTS, "test_command.py"],
    "schema": ["test_schema.py"],
    "seal": [REJECTS, "test_run.py"],
    "sql": ["test_sql.py"],
    "strictjson": ["test_strictjson.py"],
    "study": ["test_rederive.py"],
    "table": ["test_table.py", REJECTS],
    "teaching": ["test_teaching.py"],
    "values": ["test_files.py"],
    "verdicts": [REJECTS],
}
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Mod: ast.FloorDiv}


@dataclass(frozen=True)
class Mutant:
    """A changed file of audit/."""

    module: str
    line: int
    what: str
    source: str


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    text = path.read_text("utf-8")
    for number in range(sum(1 for _ in _places(ast.parse(text)))):
        tree = ast.parse(text)
        line, what, change = list(_places(tree))[number]
        change()
        yield Mutant(path.stem, line, what, ast.unparse(ast.fix_missing_locations(tree)))


def _places(tree: ast.Module) -> Iterator[tuple[int, str, object]]:
    """(line, description, a function that makes the change in place) for each change of this tree.

    Left out as changes that no behaviour shows: options of data classes, of `zip` and of
    threads, assertions for the type checker, and limits written as a power of two.
    """
    idle = {id(part) for node in ast.walk(tree) for part in _idle(node)}
    for node in ast.walk(tree):
        if id(node) in idle:
            continue
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                if type(operator) in TURNED:
                    new = TURNED[type(operator)]
                    yield (
                        node.lineno,
                        f"{type(operator).__name__} -> {new.__name__}",
                        lambda n=node, p=place, o=new: n.ops.__setitem__(p, o()),
                    )
        elif isinstance(node, ast.BoolOp):
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node.lineno, f"{type(node.op).__name__} -> {other.__name__}", lambda n=node, o=other: setattr(n, "op", o())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.lineno, "not dropped", lambda n=node: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _texts(node):
            yield node.lineno, f"{type(node.op).__name__} exchanged", lambda n=node: setattr(n, "op", OPERATORS[type(n.op)]())
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node.lineno, f"{node.value} negated", lambda n=node: setattr(n, "value", not n.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            yield node.lineno, f"{node.value} + 1", lambda n=node: setattr(n, "value", n.value + 1)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.lineno, "condition negated", lambda n=node: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            for place, item in enumerate(block if isinstance(block, list) else []):
                call = isinstance(item, ast.Expr) and isinstance(item.value, ast.Call)
                if call or isinstance(item, ast.Raise | ast.Continue | ast.Break | ast.AugAssign):
                    what = f"dropped: {ast.unparse(item)[:60]}"
                    yield item.lineno, what, lambda b=block, p=place: b.__setitem__(p, ast.Pass())


def _idle(node: ast.AST) -> Iterator[ast.AST]:
    """Constants whose change nobody could see."""
    if isinstance(node, ast.keyword) and node.arg in ("frozen", "slots", "strict", "daemon", "missing_ok"):
        yield node.value
    if isinstance(node, ast.Assert):
        yield from ast.walk(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift) and isinstance(node.left, ast.Constant):
        yield from (node, node.left, node.right)


def _texts(node: ast.BinOp) -> bool:
    """Whether an addition joins texts, so that a subtraction would only be an error of types."""
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)) for side in sides
    )


class Room:
    """A tree like this one, its files linked, but for its own copy of audit/."""

    def __init__(self, parent: Path, number: int) -> None:
        self.root = parent / f"room{number}"
        self.root.mkdir()
        for item in ROOT.iterdir():
            if item.name not in ("audit", ".git", ".hypothesis") and not item.name.startswith(".venv"):
                (self.root / item.name).symlink_to(item)
        shutil.copytree(ROOT / "audit", self.root / "audit", ignore=shutil.ignore_patterns("__pycache__"))

    def killed(self, mutant: Mutant, seconds: int) -> bool:
        """Whether the tests see the mutant."""
        target = self.root / "audit" / f"{mutant.module}.py"
        original = target.read_text("utf-8")
        target.write_text(mutant.source, "utf-8")
        try:
            return not self.passes(TESTS[mutant.module], seconds)
        finally:
            target.write_text(original, "utf-8")

    def passes(self, names: list[str], seconds: int) -> bool:
        """Run the tests within so much processor time, on synthetic evidence alone."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", "not 05 and not 06"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        tests = [str(self.root / "tests" / "audit" / name) for name in names]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            done = subprocess.run([*words, *tests], cwd=self.root, env=environment, preexec_fn=limit, timeout=40 * seconds, **silent)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="*", choices=[[], *TESTS], help="only these modules")
    parser.add_argument("--sample", type=int, default=150, help="so many mutants, drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goal", type=float, default=0.85)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, help="write the report here as well")
    options = parser.parse_args()
    everything = [mutant for name in options.module or TESTS for mutant in mutants(ROOT / "audit" / f"{name}.py")]
    count = options.sample or len(everything)
    drawn = random.Random(options.seed).sample(everything, min(count, len(everything)))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        rooms = [Room(Path(folder), number) for number in range(options.jobs)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        if not rooms[0].passes(sorted({name for names in TESTS.values() for name in names}), 600):
            print("auditor_mutants: the tests fail without a mutant", file=sys.stderr)
            return 2
        seconds = 5 + int(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        free = list(rooms)

        def judge(mutant: Mutant) -> bool:
            room = free.pop()
            try:
                return room.killed(mutant, seconds)
            finally:
                free.append(room)

        killed = list(pool.map(judge, drawn))
    out = [f"{len(drawn)} of {len(everything)} mutants, seed {options.seed}: {sum(killed)} killed, {sum(killed) / len(drawn):.1%}", ""]
    for name in sorted({mutant.module for mutant in drawn}):
        mine = [hit for mutant, hit in zip(drawn, killed, strict=True) if mutant.module == name]
        out.append(f"  {name:12} {sum(mine):4} of {len(mine)}")
    alive = [mutant for mutant, hit in zip(drawn, killed, strict=True) if not hit]
    out += [
        f"survives: audit/{mutant.module}.py:{mutant.line}: {mutant.what}" for mutant in sorted(alive, key=lambda m: (m.module, m.line))
    ]
    print("\n".join(out))
    if options.write:
        options.write.write_text("\n".join(out) + "\n", "utf-8")
    return int(sum(killed) < options.goal * len(drawn))


if __name__ == "__main__":
    sys.exit(main())
