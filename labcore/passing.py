"""One read of an archive that feeds all digests: the archive's, each member's, and the git blobs of a SWHID, in threads of their own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from queue import SimpleQueue
from threading import Thread
from typing import Any

from labcore import swhid
from labcore.errors import Refused
from labcore.tape import Member

PIECE, BUFFERS = 1 << 21, 3
HELD, HELD_IN_ALL = 8 << 20, 64 << 20
"""Members up to HELD bytes are held in memory, as long as they are at most HELD_IN_ALL together."""


@dataclass
class Digests:
    """What one pass gives. held: the content of small members, as it was hashed. sha256, blobs: empty where not asked for."""

    sha256: str = ""
    members: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)
    held: dict[str, bytes] = field(default_factory=dict)


class _Split:
    """Runs a digest over each member of the stream that comes by, and gives its result to `done`."""

    def __init__(self, members: Sequence[Member], blobs: bool, out: dict[str, str], held: dict[str, bytes] | None) -> None:
        self.members, self.blobs, self.out, self.held = members, blobs, out, held
        self.room = HELD_IN_ALL
        self.at = 0
        self._begin()

    def _begin(self) -> None:
        if self.at < len(self.members):
            member = self.members[self.at]
            self.digest: Any = swhid.start(member.size) if self.blobs else hashlib.sha256()
            self.keep: bytearray | None = None
            if self.held is not None and member.size <= min(HELD, self.room):
                self.keep = bytearray()
                self.room -= member.size

    def update(self, start: int, piece: memoryview) -> None:
        stop = start + len(piece)
        while self.at < len(self.members):
            member = self.members[self.at]
            end = member.offset + member.size
            part = piece[max(member.offset - start, 0) : max(min(end, stop) - start, 0)]
            self.digest.update(part)
            if self.keep is not None:
                self.keep += part
            if end > stop:
                return
            self.out[member.name] = self.digest.hexdigest()
            if self.keep is not None and self.held is not None:
                self.held[member.name] = bytes(self.keep)
            self.at += 1
            self._begin()


class _Taker(Thread):
    """Gives pieces to one digest, in order, in a thread of its own."""

    def __init__(self, take: Callable[[int, memoryview], None]) -> None:
        super().__init__(daemon=True)
        self.take = take
        self.pieces: SimpleQueue[tuple[int, memoryview] | None] = SimpleQueue()
        self.done: SimpleQueue[BaseException | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while (piece := self.pieces.get()) is not None:
            try:
                self.take(*piece)
                self.done.put(None)
            except BaseException as error:  # raised where it is waited for
                self.done.put(error)

    def wait(self) -> None:
        """Until one piece more is done."""
        error = self.done.get()
        if error is not None:
            raise error


def digests(descriptor: int, members: Sequence[Member], where: str, *, blobs: bool, whole: bool = True) -> Digests:
    """Read the whole archive once; members must be sorted by offset. Raises Refused where it changes meanwhile.

    whole, blobs: whether to compute the archive's own SHA-256 and the members' git blobs.
    """
    before = os.fstat(descriptor)
    result, archive = Digests(), hashlib.sha256()
    takers = [_Taker(_Split(members, False, result.members, result.held).update)]
    if whole:
        takers.append(_Taker(lambda start, piece: archive.update(piece)))
    if blobs:
        takers.append(_Taker(_Split(members, True, result.blobs, None).update))
    # Whole pages: the kernel's copy to another place in a page than in the file's can take four times as long.
    buffers = [mmap(-1, PIECE) for _ in range(BUFFERS)]
    try:
        at = given = 0
        while at < before.st_size:
            if given >= BUFFERS:
                for taker in takers:
                    taker.wait()
            count = os.preadv(descriptor, [buffers[given % BUFFERS]], at)
            if not count:
                break
            for taker in takers:
                taker.pieces.put((at, memoryview(buffers[given % BUFFERS])[:count]))
            at, given = at + count, given + 1
        for taker in takers:
            for _ in range(min(given, BUFFERS)):
                taker.wait()
    finally:
        for taker in takers:
            taker.pieces.put(None)
            taker.join()
    unchanged(before, descriptor, where)
    result.sha256 = archive.hexdigest() if whole else ""
    return result


def unchanged(before: os.stat_result, descriptor: int, where: str) -> None:
    """Refuse a file that was written to while it was judged."""
    now = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (now.st_size, now.st_mtime_ns, now.st_ctime_ns):
        raise Refused(f"{where}: changed while it was being read")
