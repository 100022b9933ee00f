"""Reading the files of a folder once: sizes checked, no link followed, digests of the file and of parts of it in the same pass."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any

from audit.findings import Damaged

SMALL = 48 << 20
"""Files up to this size are held in memory; larger ones are read in pieces."""
PIECE = 1 << 19
ALONE = 2 << 20
"""Files up to this size are hashed without other threads: starting them would cost more."""
LIMITS = {"manifest.json": 32 << 20, "results.csv": 256 << 20, "sources.zip": 64 << 20}
LIMIT = 64 << 30
GIVEN: dict[Path, tuple[int, int, int, str]] = {}
"""Files that stand inside another file, already opened and hashed by the caller: path -> (descriptor, offset, size, SHA-256)."""
Span = tuple[int, int]
Look = Callable[[int, memoryview], None]


class Blob:
    """A file opened for reading: a regular file, not a link, of at most the size allowed for its name."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._data: bytes | None = None
        self._handle, self._start, self._known = -1, 0, ""
        if path in GIVEN:
            descriptor, self._start, self.size, self._known = GIVEN[path]
            self._handle = os.dup(descriptor)
        else:
            self._open(path)
        limit = LIMITS.get(self.name, LIMIT)
        if self.size > limit:
            self.close()
            raise Damaged("S119", self.name, f"{self.size} bytes, the limit is {limit}")
        if self.size <= SMALL:
            self._data = self._pread(0, self.size)

    def _open(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Damaged("S119", self.name, f"cannot be opened: {error.strerror}") from None
        info = os.fstat(self._handle)
        self.size = info.st_size
        if not stat.S_ISREG(info.st_mode):
            self.close()
            raise Damaged("S119", self.name, "not a regular file")

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

    def view(self, offset: int, count: int) -> memoryview:
        """`count` bytes at `offset`, without a copy where the file is in memory."""
        if self._data is not None:
            if offset + count > len(self._data):
                raise Damaged("S119", self.name, f"{count} bytes at {offset} are not there")
            return memoryview(self._data)[offset : offset + count]
        return memoryview(self._pread(offset, count))

    def whole(self) -> bytes:
        """All bytes."""
        return self.read(0, self.size)

    def _pread(self, offset: int, count: int) -> bytes:
        parts = []
        while count > 0:
            try:
                part = os.pread(self._handle, min(count, PIECE), self._start + offset)
            except OSError as error:
                raise Damaged("S119", self.name, f"cannot be read at {offset}: {error.strerror}") from None
            if not part:
                raise Damaged("S119", self.name, f"ends at {offset}")
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def digest(self) -> str:
        """SHA-256 of the file."""
        return self.digests()[0]

    def digests(self, spans: Sequence[Span] = (), look: Look | None = None) -> tuple[str, list[str]]:
        """SHA-256 of the file, and of each span (offset, count) of it.

        `look(place, data)` is called with the bytes of span number `place`, piece after piece. One pass from front to back feeds two
        threads that hash, the file and the spans. A digest that the caller knows is not computed again: two threads then read
        spans of their own, unless one span is most of the file. Memory stays at a few pieces.
        """
        whole, parts = hashlib.sha256(), [hashlib.sha256() for _ in spans]
        look = look or (lambda place, data: None)
        if self.size <= ALONE:
            whole.update(self.whole())
            for place, (at, count) in enumerate(spans):
                parts[place].update(self.view(at, count))
                look(place, self.view(at, count))
        elif self._known and 2 * max((count for _, count in spans), default=0) <= sum(count for _, count in spans):
            self._side_by_side(spans, parts, look)
        else:
            self._front_to_back(spans, whole, parts, look)
        return self._known or whole.hexdigest(), [part.hexdigest() for part in parts]

    def _front_to_back(self, spans: Sequence[Span], whole: Any, parts: list[Any], look: Look) -> None:
        """A piece is done with before the third one after it is read."""
        queue = sorted(range(len(spans)), key=lambda place: spans[place], reverse=True)
        live: list[int] = []
        buffers = [self._buffer() for _ in range(3)]

        def update(item: tuple[Any, memoryview]) -> None:
            item[0].update(item[1])

        with Worker(update) as file_hash, Worker(update) as span_hash:
            for number, start in enumerate(range(0, self.size, PIECE)):
                piece = self._piece(buffers[number % 3], start, min(PIECE, self.size - start))
                if not self._known:
                    file_hash.give((whole, piece))
                while queue and spans[queue[-1]][0] < start + len(piece):
                    live.append(queue.pop())
                for place in live:
                    at, count = spans[place]
                    data = piece[max(at - start, 0) : max(at + count - start, 0)]
                    span_hash.give((parts[place], data))
                    look(place, data)
                file_hash.drain(1)
                span_hash.drain(len(live))
                live = [place for place in live if sum(spans[place]) > start + len(piece)]

    def _side_by_side(self, spans: Sequence[Span], parts: list[Any], look: Look) -> None:
        """Every other span in each of two threads, from the largest to the smallest; what one reads never leaves its processor's cache."""
        order = sorted(range(len(spans)), key=lambda place: spans[place][1], reverse=True)

        def lane(places: list[int]) -> None:
            buffer = self._buffer()
            for place in places:
                at, count = spans[place]
                for start in range(at, at + count, PIECE):
                    data = self._piece(buffer, start, min(PIECE, at + count - start))
                    parts[place].update(data)
                    look(place, data)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lane, (order[0::2], order[1::2])))

    def _buffer(self) -> mmap | None:
        """Memory that is used again, since fresh memory would cost as much as the reading; None where the file is in memory already.

        Whole pages, so that `_piece` can put bytes at the place in a page that they have in the file: from another, the kernel's copy
        can take four times as long.
        """
        return mmap(-1, PIECE + PAGESIZE) if self._data is None else None

    def _piece(self, buffer: mmap | None, offset: int, count: int) -> memoryview:
        """`count` bytes at `offset`, read into the buffer."""
        if buffer is None:
            return self.view(offset, count)
        at = (self._start + offset) % PAGESIZE
        view = memoryview(buffer)[at : at + count]
        done = 0
        while done < count:
            try:
                got = os.preadv(self._handle, [view[done:]], self._start + offset + done)
            except OSError as error:
                raise Damaged("S119", self.name, f"cannot be read at {offset + done}: {error.strerror}") from None
            if not got:
                raise Damaged("S119", self.name, f"ends at {offset + done}")
            done += got
        return view


class Worker:
    """A thread that applies a function to what it is given, in order; `drain(n)` waits until at most n items are left."""

    def __init__(self, apply: Callable[[Any], None]) -> None:
        import threading
        from collections import deque

        self._apply = apply
        self._items: deque[Any] = deque()
        self._open = True
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._open = False
            self._change.notify_all()
        self._thread.join()

    def give(self, item: Any) -> None:
        """Append an item."""
        with self._change:
            self._items.append(item)
            self._change.notify_all()

    def drain(self, left: int) -> None:
        """Wait until at most `left` items are not done."""
        with self._change:
            while len(self._items) > left:
                self._change.wait()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._items and self._open:
                    self._change.wait()
                if not self._items:
                    return
                item = self._items[0]
            self._apply(item)
            with self._change:
                self._items.popleft()
                self._change.notify_all()
