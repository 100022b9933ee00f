"""Places: where experiments, kept runs and local runs lie, and the temporary folder in which a run grows.

A run appears under its name by one rename, or not at all. What a killed process left is found by its lock at the next start.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labcore import ledger
from labcore.errors import Environment, Refused

GROWING = ".growing-"
LOCK = "lock"
# What the machine may do to us, as opposed to mistakes of ours.
MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.EXDEV,
}  # fmt: skip


class Workspace:
    """The project folder `root` and the places in it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.experiments = self.root / "experiments"
        self.evidence = self.root / "evidence"
        self.local = self.evidence / "local"
        self.ledger = self.evidence / "LEDGER.jsonl"
        self.local_ledger = self.local / "LEDGER.jsonl"

    def names(self) -> list[str]:
        """All experiments, by number."""
        return sorted(path.parent.name for path in self.experiments.glob("[0-9][0-9]_*/experiment.py"))

    def find(self, number: str) -> str:
        """The experiment of a number or name. Refuses an unknown one, listing the known."""
        names = self.names()
        found = [name for name in names if number in (name, name[:2])] or [name for name in names if name[:2] == number.zfill(2)]
        if len(found) != 1:
            raise Refused(f"EXP: got {number!r}; wanted one of {', '.join(names)}")
        return found[0]

    def runs(self, experiment: str, *, local: bool = True, kept: bool = True) -> list[Path]:
        """Folders of runs, kept ones first."""
        places = ([self.evidence] if kept else []) + ([self.local] if local else [])
        return [p for place in places for p in sorted((place / experiment).glob("*/")) if (p / "sealed" / "manifest.json").is_file()]

    def kept(self, experiment: str) -> Path | None:
        """The folder of the kept run."""
        found = self.runs(experiment, local=False)
        return found[0] if found else None

    def run(self, experiment: str, name: str) -> Path:
        """The folder of a run by name, or the beginning of one."""
        found = [path for path in self.runs(experiment) if path.name.startswith(name)]
        if not found:
            known = ", ".join(path.name for path in self.runs(experiment)) or "none"
            raise Refused(f"RUN: got {name!r}; runs of {experiment}: {known}")
        return found[-1]


@contextmanager
def growing(place: Path) -> Iterator[Path]:
    """A locked temporary folder beside the runs; removed on any exit of this process but a kill."""
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with _alone(place):
            folder = Path(tempfile.mkdtemp(prefix=GROWING, dir=place))
            try:
                folder.chmod(0o755)
                lock = stack.enter_context((folder / LOCK).open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        # The lock is given back after the folder is gone.
        stack.callback(_remove, folder)
        yield folder


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the lock of the folder that temporary folders are made in and removed from: nobody sees one half made or half removed."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    with _alone(folder.parent):
        shutil.rmtree(folder, ignore_errors=True)


def clear_leftovers(workspace: Workspace) -> list[str]:
    """Remove folders of commands that were killed; a line for each, also in the local ledger. Those still growing are left alone."""
    lines = []
    for folder in sorted(workspace.local.glob(f"*/{GROWING}*")):
        with _alone(folder.parent):
            if not folder.exists() or _held(folder / LOCK):
                continue
            shutil.rmtree(folder)
        # Work on archives is of no experiment, and a ledger's line names an experiment or none.
        experiment = folder.parent.name if folder.parent.name[:2].isdigit() else ""
        ledger.append(workspace.local_ledger, "leftover", experiment, text=f"a command that was killed left {folder.name}; removed")
        lines.append(f"removed {folder.relative_to(workspace.root)}: left by a command that was killed")
    return lines


def _held(lock: Path) -> bool:
    """Whether the process that made the folder of this lock is alive."""
    try:
        with lock.open("r+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def publish(folder: Path, target: Path) -> bool:
    """Give a finished folder its name by one rename, its files synced first; False where the name is taken (nothing is replaced)."""
    sync(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    sync_file(target.parent)
    return True


def sync(folder: Path) -> None:
    """Force every file of a folder, and the folders, to the disk."""
    for path in sorted(folder.rglob("*")):
        sync_file(path)
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Force one file, or a folder's own entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def machine_errors(where: Path, outcome: str = "") -> Iterator[None]:
    """Turn what the machine refuses (space, permission) into one line with the place and, where it is known, what is left."""
    try:
        yield
    except OSError as error:
        if error.errno in MACHINE:
            raise Environment(f"{error.filename or where}: {os.strerror(error.errno or 0)}{outcome}") from error
        raise
