"""Reading the files of a folder once: sizes checked, no link followed, digests of the file and of parts of it in the same pass."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from audit.findings import Damaged

SMALL = 48 << 20
"""Files up to this size are held in memory; larger ones are read in pieces."""
PIECE = 4 << 20
LIMITS = {"manifest.json": 32 << 20, "results.csv": 256 << 20, "sources.zip": 64 << 20}
LIMIT = 64 << 30


class Blob:
    """A file opened for reading: a regular file, not a link, of at most the size allowed for its name."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._data: bytes | None = None
        self._handle = -1
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Damaged("S119", self.name, f"cannot be opened: {error.strerror}") from None
        info = os.fstat(self._handle)
        self.size = info.st_size
        if not stat.S_ISREG(info.st_mode):
            self.close()
            raise Damaged("S119", self.name, "not a regular file")
        limit = LIMITS.get(self.name, LIMIT)
        if self.size > limit:
            self.close()
            raise Damaged("S119", self.name, f"{self.size} bytes, the limit is {limit}")
        if self.size <= SMALL:
            self._data = self._pread(0, self.size)

    def close(self) -> None:
        """Close the file; the bytes of a small one stay."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        self.close()

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes at `offset`."""
        if self._data is not None:
            data = self._data[offset : offset + count]
            if len(data) != count:
                raise Damaged("S119", self.name, f"{count} bytes at {offset} are not there")
            return data
        return self._pread(offset, count)

    def whole(self) -> bytes:
        """All bytes."""
        return self.read(0, self.size)

    def _pread(self, offset: int, count: int) -> bytes:
        parts = []
        while count > 0:
            try:
                part = os.pread(self._handle, min(count, PIECE), offset)
            except OSError as error:
                raise Damaged("S119", self.name, f"cannot be read at {offset}: {error.strerror}") from None
            if not part:
                raise Damaged("S119", self.name, f"ends at {offset}")
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def digest(self) -> str:
        """SHA-256 of the file."""
        return self.digests(())[0]

    def digests(self, spans: Iterable[tuple[int, int]]) -> tuple[str, list[str]]:
        """SHA-256 of the file, and of each span (offset, count) of it; a large file is read once, front to back."""
        wanted = list(spans)
        if self._data is not None:
            view = memoryview(self._data)
            return hashlib.sha256(view).hexdigest(), [hashlib.sha256(view[at : at + count]).hexdigest() for at, count in wanted]
        from concurrent.futures import ThreadPoolExecutor

        whole, parts = hashlib.sha256(), [hashlib.sha256() for _ in wanted]
        queue = sorted(range(len(wanted)), key=lambda place: wanted[place], reverse=True)
        live: list[int] = []
        with ThreadPoolExecutor(1) as other:
            for start in range(0, self.size, PIECE):
                piece = memoryview(self._pread(start, min(PIECE, self.size - start)))
                pending = other.submit(whole.update, piece)
                while queue and wanted[queue[-1]][0] < start + len(piece):
                    live.append(queue.pop())
                for place in live:
                    at, count = wanted[place]
                    parts[place].update(piece[max(at - start, 0) : max(at + count - start, 0)])
                live = [place for place in live if sum(wanted[place]) > start + len(piece)]
                pending.result()
        return whole.hexdigest(), [part.hexdigest() for part in parts]
