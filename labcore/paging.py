"""A paged pool of cache rows: page tables over counted blocks, copy-on-write, sealed handles, a fence for work in flight.

A request sees its own rows only: reads stop at the written length, a block that others hold is copied before it is written,
freed memory is poisoned before anyone else can have it, and a step in flight holds the blocks that it may still touch.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labcore.blocks import Blocks, PoolBroken, PoolError

TAG_BYTES = 16


class Handle(NamedTuple):
    """A page table entry that may leave the pool: it names a page, and only its tag makes it good."""

    request: int
    page: int
    block: int
    generation: int
    tag: bytes


class _Table:
    __slots__ = ("blocks", "length")

    def __init__(self, blocks: list[int], length: int) -> None:
        self.blocks, self.length = blocks, length


class _Ticket:
    __slots__ = ("blocks", "born", "request", "start", "stop")

    def __init__(self, request: int, blocks: list[int], start: int, stop: int, born: int) -> None:
        self.request, self.blocks, self.start, self.stop, self.born = request, blocks, start, stop, born


class PagedPool:
    """Rows [block, slot, *row_shape] shared by requests (integers) through page tables. Safe under threads: one lock.

    poison: what freed and unwritten rows hold (NaN spoils every sum that reads one); None leaves old rows as they are.
    key: secret of the sealed handles; drawn anew unless given (an experiment gives it, to be repeatable).

    >>> pool = PagedPool(blocks=5, block_size=3, row_shape=(), dtype=np.int64, poison=-1)
    >>> pool.open(7, [10, 11, 12, 13])
    >>> pool.share(7, 8, tokens=4)
    >>> pool.append(8, [99])        # the half-filled block that both hold is copied first
    >>> pool.read(7).tolist(), pool.read(8).tolist(), pool.copies
    ([10, 11, 12, 13], [10, 11, 12, 13, 99], 1)
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        row_shape: tuple[int, ...] = (),
        dtype: Any = np.float64,
        poison: float | None = np.nan,
        key: bytes | None = None,
    ) -> None:
        if block_size < 1:
            raise PoolError("negative", f"a block size of {block_size}; wanted at least 1", count=block_size)
        self.blocks = Blocks(blocks)
        self.block_size = block_size
        self.poison = poison
        self.rows: NDArray[Any] = np.zeros((blocks, block_size, *row_shape), dtype)
        if poison is not None:
            self.rows[...] = poison
        self.copies = 0  # blocks copied because they were shared
        self.copied_rows = 0  # rows in them that were written
        self._tables: dict[int, _Table] = {}
        self._tickets: dict[int, _Ticket] = {}
        self._next_ticket = 0
        self._flying: dict[int, int] = {}  # open request -> its ticket
        self._index: dict[Any, int] = {}
        self._key_of: dict[int, Any] = {}
        self._lock = threading.RLock()
        self._key = secrets.token_bytes(32) if key is None else key

    # -- requests ---------------------------------------------------------------------------------------------------------

    def open(self, request: int, rows: ArrayLike = ()) -> None:
        """A new request holding these rows [n, *row_shape]. PoolError: taken, exhausted, shape."""
        with self._lock:
            if request in self._tables:
                raise PoolError("taken", "opens a request that is open", request, count=self._tables[request].length)
            values = self._values(rows, request)
            ids = self.blocks.take(-(-len(values) // self.block_size), request)
            self._tables[request] = _Table(ids.tolist(), len(values))
            self._put(request, 0, values)

    def share(self, source: int, target: int, tokens: int) -> None:
        """A new request `target` that begins with the first `tokens` rows of `source`; nothing is copied.

        PoolError: unknown_request, taken, negative, unwritten (more tokens than are written)."""
        with self._lock:
            table = self._table(source)
            if target in self._tables:
                raise PoolError("taken", "shares into a request that is open", target, count=tokens)
            if tokens < 0:
                raise PoolError("negative", f"shares {tokens} tokens; wanted 0 or more", source, count=tokens)
            if tokens > table.length:
                raise PoolError("unwritten", f"shares {tokens} tokens; {table.length} are written", source, count=tokens)
            pages = table.blocks[: -(-tokens // self.block_size)]
            self.blocks.share(pages, target)
            self._tables[target] = _Table(list(pages), tokens)

    def fork(self, source: int, target: int) -> None:
        """A new request with all rows of `source`."""
        with self._lock:
            self.share(source, target, self._table(source).length)

    def append(self, request: int, rows: ArrayLike) -> None:
        """Write rows [n, *row_shape] behind the written ones. PoolError: unknown_request, exhausted, shape."""
        with self._lock:
            table = self._table(request)
            values = self._values(rows, request)
            if not len(values):
                return
            start = table.length
            self._room(request, table, len(values))
            table.length += len(values)
            self._put(request, start, values)

    def write(self, request: int, position: int, rows: ArrayLike) -> None:
        """Overwrite rows from `position` on, within the written length. PoolError: unknown_request, unwritten, exhausted."""
        with self._lock:
            table = self._table(request)
            values = self._values(rows, request)
            stop = position + len(values)
            self._idle(request)
            if not len(values):
                return
            if position < 0 or stop > table.length:
                raise PoolError("unwritten", f"writes rows {position} to {stop}; {table.length} are written", request, count=stop)
            pages = range(position // self.block_size, -(-stop // self.block_size))
            shared = [p for p in pages if self.blocks.counts[table.blocks[p]] > 1]
            self._copy(table, shared, self.blocks.take(len(shared), request).tolist())
            self._unpublish([table.blocks[p] for p in pages])  # what was published under a key is no longer there
            self._put(request, position, values)

    def read(self, request: int) -> NDArray[Any]:
        """A copy of the request's rows [length, *row_shape], never more."""
        with self._lock:
            table = self._table(request)
            got = self.rows[table.blocks].reshape(-1, *self.rows.shape[2:])
            return got[: table.length]

    def release(self, request: int) -> None:
        """End a request: its references go, and blocks that nobody holds are poisoned and free. PoolError: unknown_request."""
        with self._lock:
            table = self._table(request)
            del self._tables[request]
            self._flying.pop(request, None)
            self._give_back(table.blocks, request)

    @contextmanager
    def acquire(self, request: int, rows: ArrayLike = ()) -> Iterator[int]:
        """`open` for the length of a with block; released on any exit, also where the body released it itself."""
        self.open(request, rows)
        try:
            yield request
        finally:
            with self._lock:
                if request in self._tables:
                    self.release(request)

    def length(self, request: int) -> int:
        """Rows written by a request."""
        with self._lock:
            return self._table(request).length

    def pages(self, request: int) -> list[int]:
        """A copy of the request's page table."""
        with self._lock:
            return list(self._table(request).blocks)

    # -- work in flight ---------------------------------------------------------------------------------------------------

    def launch(self, request: int, tokens: int, now: int = 0) -> int:
        """Begin a step that will write `tokens` rows behind the written ones; returns its ticket.

        The blocks stay held until the ticket ends, whatever becomes of the request; until then the request is not written
        otherwise. The rows are readable once `complete` says that they are there. PoolError: negative, exhausted, in_flight."""
        with self._lock:
            table = self._table(request)
            if tokens < 0:
                raise PoolError("negative", f"launches a step of {tokens} tokens; wanted 0 or more", request, count=tokens)
            self._room(request, table, tokens)
            self.blocks.share(table.blocks, request)
            self._next_ticket += 1
            ticket = _Ticket(request, list(table.blocks), table.length, table.length + tokens, now)
            self._tickets[self._next_ticket] = ticket
            self._flying[request] = self._next_ticket
            return self._next_ticket

    def land(self, ticket: int, place: int, row: ArrayLike) -> None:
        """A late write of a launched step: row number `place` of those it announced. PoolError: revoked, unwritten."""
        with self._lock:
            step = self._ticket(ticket)
            position = step.start + place
            if place < 0 or position >= step.stop:
                raise PoolError("unwritten", f"lands row {place} of {step.stop - step.start}", step.request, count=place)
            self.rows[step.blocks[position // self.block_size], position % self.block_size] = row

    def complete(self, ticket: int) -> None:
        """The step is done: its rows count as written, and its hold on the blocks ends."""
        with self._lock:
            step = self._ticket(ticket)
            if self._flying.get(step.request) == ticket:
                self._tables[step.request].length = step.stop
            self._end(ticket, step)

    def expire(self, before: int) -> int:
        """End every ticket launched before this time, without its completion; a late write of it is refused. Returns how many.

        The bounded wait: blocks of a peer that died come back, and its late write cannot reach their next owner."""
        with self._lock:
            late = [number for number, ticket in self._tickets.items() if ticket.born < before]
            for number in late:
                self._end(number, self._tickets[number])
            return len(late)

    # -- index of published blocks ----------------------------------------------------------------------------------------

    def publish(self, request: int, page: int, key: Any) -> None:
        """Make a full page findable under `key` (hash of all tokens up to its end), as long as its block lives unchanged."""
        with self._lock:
            table = self._table(request)
            if page < 0 or (page + 1) * self.block_size > table.length:
                raise PoolError("unwritten", f"publishes page {page}; {table.length} rows are written", request, count=page)
            self._unpublish([table.blocks[page]])
            if key in self._index:
                del self._key_of[self._index[key]]
            self._index[key] = table.blocks[page]
            self._key_of[table.blocks[page]] = key

    def adopt(self, target: int, keys: Sequence[Any]) -> int:
        """A new request from the longest run of published pages; returns its rows (0: nothing found, request is open)."""
        with self._lock:
            if target in self._tables:
                raise PoolError("taken", "adopts into a request that is open", target)
            pages: list[int] = []
            for key in keys:
                if key not in self._index:
                    break
                pages.append(self._index[key])
            self.blocks.share(pages, target)
            self._tables[target] = _Table(pages, len(pages) * self.block_size)
            return len(pages) * self.block_size

    # -- sealed handles ---------------------------------------------------------------------------------------------------

    def handle(self, request: int, page: int) -> Handle:
        """A sealed entry for one page of a request. PoolError: unknown_request, unknown_block."""
        with self._lock:
            table = self._table(request)
            if not 0 <= page < len(table.blocks):
                raise PoolError("unknown_block", f"a handle for page {page} of {len(table.blocks)}", request, count=page)
            block = table.blocks[page]
            generation = int(self.blocks.generation[block])
            return Handle(request, page, block, generation, seal(self._key, request, page, block, generation))

    def through(self, request: int, handle: Handle) -> NDArray[Any]:
        """The written rows of the page that a handle names, for the request it was made for, as a copy.

        PoolError: foreign_handle (tag or request do not fit), stale_handle (the page moved or the block was freed since)."""
        with self._lock:
            table = self._table(request)
            good = hmac.compare_digest(handle.tag, seal(self._key, *handle[:4]))
            if not good or handle.request != request:
                raise PoolError("foreign_handle", "a handle that was not made for this request", request, handle.block, handle.page)
            page = handle.page
            live = page < len(table.blocks) and table.blocks[page] == handle.block
            if not live or int(self.blocks.generation[handle.block]) != handle.generation:
                raise PoolError("stale_handle", "a handle of an earlier life of the page", request, handle.block, page)
            written = min(self.block_size, table.length - page * self.block_size)
            return np.asarray(self.rows[handle.block, :written].copy())

    # -- inside -----------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise PoolBroken unless counts equal references, every table fits its length, and the index names live blocks."""
        with self._lock:
            held = [table.blocks for table in self._tables.values()] + [ticket.blocks for ticket in self._tickets.values()]
            flat = np.array([block for blocks in held for block in blocks], np.int64)
            self.blocks.check(np.bincount(flat, minlength=self.blocks.total))
            for request, table in self._tables.items():
                if request not in self._flying and len(table.blocks) != -(-table.length // self.block_size):
                    raise PoolBroken(f"request {request}: {len(table.blocks)} pages for {table.length} rows")
                if len(set(table.blocks)) != len(table.blocks):
                    raise PoolBroken(f"request {request}: a block stands twice in its page table")
            for key, block in self._index.items():
                if self._key_of.get(block, None) != key or self.blocks.counts[block] < 1:
                    raise PoolBroken(f"index entry for block {block}, count {int(self.blocks.counts[block])}: not what is published")

    def _table(self, request: int) -> _Table:
        try:
            return self._tables[request]
        except KeyError:
            raise PoolError("unknown_request", "no such open request: never opened, or released before", request) from None

    def _idle(self, request: int) -> None:
        if request in self._flying:
            raise PoolError("in_flight", "writes while a step is in flight", request, count=self._flying[request])

    def _room(self, request: int, table: _Table, tokens: int) -> None:
        """Blocks for `tokens` more rows, none of them shared: all or nothing, before any change."""
        self._idle(request)
        size = self.block_size
        shared = [p for p in range(table.length // size, len(table.blocks)) if tokens and self.blocks.counts[table.blocks[p]] > 1]
        fresh = max(0, -(-(table.length + tokens) // size) - len(table.blocks))
        ids = self.blocks.take(fresh + len(shared), request).tolist()
        self._copy(table, shared, ids[fresh:])
        if tokens:  # a holder of the first rows of a published page, now alone, writes its own rest of it
            self._unpublish(table.blocks[table.length // size :])
        table.blocks += ids[:fresh]

    def _end(self, ticket: int, step: _Ticket) -> None:
        """Take a ticket out; blocks that an open request got for rows that never came go back as well."""
        del self._tickets[ticket]
        if self._flying.get(step.request) == ticket:
            del self._flying[step.request]
            table = self._tables[step.request]
            keep = -(-table.length // self.block_size)
            extra, table.blocks = table.blocks[keep:], table.blocks[:keep]
            self._give_back(extra, step.request)
            if self.poison is not None and step.stop > step.start and table.length % self.block_size:  # then the block is private
                self.rows[table.blocks[-1], table.length % self.block_size :] = self.poison
        self._give_back(step.blocks, step.request)

    def _ticket(self, ticket: int) -> _Ticket:
        try:
            return self._tickets[ticket]
        except KeyError:
            raise PoolError("revoked", f"ticket {ticket} has ended", count=ticket) from None

    def _values(self, rows: ArrayLike, request: int) -> NDArray[Any]:
        values = np.asarray(rows, self.rows.dtype)
        if values.size == 0:
            return np.zeros((0, *self.rows.shape[2:]), self.rows.dtype)
        if values.shape[1:] != self.rows.shape[2:]:
            raise PoolError("shape", f"rows of shape {values.shape[1:]}; wanted {self.rows.shape[2:]}", request, count=len(values))
        return values

    def _put(self, request: int, start: int, values: NDArray[Any]) -> None:
        table, size, done = self._tables[request], self.block_size, 0
        while done < len(values):
            page, slot = divmod(start + done, size)
            n = min(size - slot, len(values) - done)
            self.rows[table.blocks[page], slot : slot + n] = values[done : done + n]
            done += n

    def _copy(self, table: _Table, pages: list[int], ids: list[int]) -> None:
        """Put private copies in place of shared pages; only the request's own written rows move."""
        for page, new in zip(pages, ids, strict=True):
            old = table.blocks[page]
            written = min(self.block_size, table.length - page * self.block_size)
            self.rows[new, :written] = self.rows[old, :written]
            table.blocks[page] = new
            self.copies += 1
            self.copied_rows += written
            self._give_back([old], -1)

    def _give_back(self, ids: list[int], request: int) -> None:
        gone = self.blocks.release(ids, request)
        self._unpublish(gone.tolist())
        if self.poison is not None and gone.size:
            self.rows[gone] = self.poison

    def _unpublish(self, ids: list[int]) -> None:
        for block in ids:
            key = self._key_of.pop(block, None)
            if key is not None:
                del self._index[key]


def seal(key: bytes, request: int, page: int, block: int, generation: int) -> bytes:
    """HMAC-SHA-256 over the four numbers as decimal text, the first 16 bytes.

    >>> len(seal(b"k", 1, 0, 3, 0))
    16
    """
    return hmac.digest(key, f"{request},{page},{block},{generation}".encode(), "sha256")[:TAG_BYTES]
