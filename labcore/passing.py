"""One read of an archive that feeds all digests: the archive's, each member's, and the git blobs of a SWHID, in threads of their own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from mmap import mmap
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


def digests(descriptor: int, members: Sequence[Member], where: str, *, blobs: bool, whole: bool = True) -> Digests:
    """Read the whole archive once; members must be sorted by offset. Raises Refused where it changes meanwhile.

    whole, blobs: whether to compute the archive's own SHA-256 and the members' git blobs.
    """
    before = os.fstat(descriptor)
    result, archive = Digests(), hashlib.sha256()
    takers: list[Any] = [_Split(members, False, result.members, result.held).update]
    if whole:
        takers.append(lambda start, piece: archive.update(piece))
    if blobs:
        takers.append(_Split(members, True, result.blobs, None).update)
    # Whole pages: the kernel's copy to another place in a page than in the file's can take four times as long.
    buffers = [mmap(-1, min(PIECE, max(before.st_size, 1))) for _ in range(BUFFERS)]
    busy: list[list[Future[None]]] = [[] for _ in buffers]
    # One worker a taker: a taker's pieces must come to it in order.
    workers = [ThreadPoolExecutor(1) for _ in takers]
    try:
        at = turn = 0
        while at < before.st_size:
            for future in busy[turn]:
                future.result()
            count = os.preadv(descriptor, [buffers[turn]], at)
            if not count:
                break
            piece = memoryview(buffers[turn])[:count]
            busy[turn] = [worker.submit(taker, at, piece) for worker, taker in zip(workers, takers, strict=True)]
            at, turn = at + count, (turn + 1) % BUFFERS
        for future in [future for group in busy for future in group]:
            future.result()
    finally:
        for worker in workers:
            worker.shutdown()
    unchanged(before, descriptor, where)
    result.sha256 = archive.hexdigest() if whole else ""
    return result


def unchanged(before: os.stat_result, descriptor: int, where: str) -> None:
    """Refuse a file that was written to while it was judged."""
    now = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (now.st_size, now.st_mtime_ns, now.st_ctime_ns):
        raise Refused(f"{where}: changed while it was being read")
