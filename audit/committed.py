"""What the repository around a run has committed, read through one `git cat-file` process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Repository:
    """Blobs of a repository by `commit:path`; git is started at the first question."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process: subprocess.Popen[bytes] | None = None
        self._known: dict[str, bytes | None] = {}
        self.failure = ""

    def start(self) -> None:
        """Start git now, so that it gets ready while other work goes on."""
        if self._process is not None or self.failure:
            return
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}
        command = ["git", "-C", str(self.root), "cat-file", "--batch"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
            )
        except OSError:
            self.failure = "git cannot be started"

    def blob(self, name: str) -> bytes | None:
        """The bytes of `commit:path`, or None where there is no such blob; `failure` says why git cannot answer at all."""
        if name not in self._known:
            self._known[name] = self._ask(name)
        return self._known[name]

    def has(self, commit: str) -> bool:
        """Whether the commit is here."""
        return self.blob(commit + "^{commit}") is not None

    def _ask(self, name: str) -> bytes | None:
        self.start()
        if self._process is None or "\n" in name or "\0" in name:
            return None
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            head = self._process.stdout.readline()
        except OSError:
            head = b""
        if not head:
            self.failure = "git cannot read the repository"
            self.close()
            return None
        words = head.split()
        if len(words) != 3 or words[1] not in (b"blob", b"commit", b"tree", b"tag") or not words[2].isdigit():
            return None
        content = self._process.stdout.read(int(words[2]) + 1)[:-1]
        return content if words[1] in (b"blob", b"commit") else None

    def close(self) -> None:
        """End git."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
            self._process = None


def around(folder: Path) -> Repository | None:
    """The repository that a folder lies in, or None."""
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists():
            return Repository(parent)
    return None
