"""`AppendQueue`: the batches of one opening, from the call that appends them until they are in the manifest.

A batch first waits *in line*, if memory is full or those called before it wait. Then it is given its offsets, and is
*pending*: on its way into the WAL. Once the WAL has it, it is *durable*, and its caller is told. When the manifest has
it, the WAL may forget it. Everything happens in the order of the calls, and nothing here runs by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from coldstream.errors import (
    ColdstreamError,
    ExpiredEpochError,
    InvalidInputError,
    OutcomeUnknownError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
    UnexpectedTailError,
    WalEndedError,
)
from coldstream.format.chunk import CHUNK_HEADER_BYTES
from coldstream.format.tracking import TrackingRecord
from coldstream.manifest.stream import StreamId
from coldstream.store.wal_object import WalChunk
from coldstream.streams.batch import Batch, tracking_chunk, with_epoch
from coldstream.streams.cache.cached_chunk import CachedChunk, memory_bytes
from coldstream.streams.engine import StreamEngine
from coldstream.streams.open_stream import OpenStream
from coldstream.streams.opening import forget_earlier
from coldstream.streams.publishers import Publishers
from coldstream.streams.reopening import reopen
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import MAX_OFFSET, Epoch, Offset, TimestampMs

_TELLING = (StreamClosedError, StreamDeletedError, StreamNotFoundError, OutcomeUnknownError)
"""Failures that say all there is to say of a batch under way: it is gone with its stream, or its outcome is unknown."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A batch on its way into the WAL. `written` is the WAL's answer, `done` the caller's, `record` its publisher's."""

    chunk: CachedChunk
    written: asyncio.Future[int]
    done: asyncio.Future[Offset]
    record: TrackingRecord | None


@dataclass(frozen=True, slots=True)
class _Call:
    """One call to append: its batch, and what it takes of the memory budget."""

    batch: Batch
    trailer: bytes
    record: TrackingRecord | None
    expect: Offset | None
    done: asyncio.Future[Offset]

    @property
    def memory_bytes(self) -> int:
        return memory_bytes(CHUNK_HEADER_BYTES + len(self.batch.data) + len(self.trailer))


class AppendQueue:
    """What is appended by one handle. `on_change` is called when a batch is durable, and when the queue fails.

    Once it has a `failure`, the first that leaves a batch out, nothing is appended any more.
    """

    __slots__ = (
        "_beginning",
        "_durable",
        "_engine",
        "_forget_at",
        "_idle",
        "_line",
        "_on_change",
        "_pending",
        "_publishers",
        "_reopening",
        "_reserving",
        "_snapshot_end",
        "_timestamp",
        "_waiting",
        "confirmed",
        "epoch",
        "failure",
        "first_epoch",
        "flushed",
        "next",
        "stream",
        "wal",
    )

    def __init__(self, engine: StreamEngine, opened: OpenStream, wal: WalWriter, on_change: Callable[[], None]) -> None:
        self.stream: StreamId = opened.stream
        self.epoch = self.first_epoch = opened.epoch
        self.wal = wal
        self.next = self.confirmed = self.flushed = opened.tail
        self.failure: ColdstreamError | None = None
        self._engine = engine
        self._on_change = on_change
        self._timestamp = opened.timestamp
        self._publishers = opened.publishers
        self._waiting = 0
        # Calls that have neither their place in line nor their offsets: they wait for what their publisher appends.
        self._beginning = 0
        # Where the last snapshot of the publishers ends: if that is the tail, another would say the same.
        self._snapshot_end = opened.tail
        # All these are None until they are needed: thousands of streams may be open and idle.
        self._line: deque[asyncio.Future[None]] | None = None
        self._pending: deque[PendingAppend] | None = None
        self._durable: deque[tuple[Offset, WalWriter, int]] | None = None
        self._idle: asyncio.Event | None = None
        self._reopening: asyncio.Task[None] | None = None
        # The wait for memory of the first in line.
        self._reserving: asyncio.Task[None] | None = None
        self._forget_at: Offset | None = None

    @property
    def tail(self) -> Offset:
        """The offset that the next batch gets, those in line counted."""
        return Offset(self.next + self._waiting)

    async def append(self, batch: Batch, record: TrackingRecord | None, expect: Offset | None) -> Offset | None:
        """Append a batch, and return its first offset once it is durable; None if its publisher has appended it before.

        Raises UnexpectedTailError and InvalidInputError, which change nothing, and what the queue fails with.
        """
        self._beginning += 1
        try:
            if record is not None and await self._is_appended(record):
                return None
            if expect is not None and expect != self.tail:
                raise UnexpectedTailError(str(self.stream), expect, self.tail)
            if self.tail + batch.records > MAX_OFFSET:
                raise InvalidInputError("batch", f"has {batch.records} messages, and no offsets are left for them")
            done: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
            call = _Call(batch, b"" if record is None else record.to_bytes(), record, expect, done)
            self._begin(call)
            try:
                if self._line or self._has_wal_ended or not self._engine.budget.try_reserve(call.memory_bytes):
                    await self._wait_in_line(call)
                else:
                    self._send(call)
            except BaseException:
                # It never got its offsets. Who waits for it as a duplicate of his own then appends that.
                done.cancel()
                self._end(call.record, done)
                raise
        finally:
            self._beginning -= 1
            self._tell_idle()
        return await asyncio.shield(done)

    async def publisher_id(self, publisher: bytes) -> int | None:
        """Return the last id that a publisher has appended durably, once what it is appending has ended."""
        if self._publishers is None:
            return None
        under_way = [done for _, done in self._publishers.under_way.get(publisher, ())]
        if under_way:
            await asyncio.wait(under_way)
        self.check()
        return self._publishers.last_of(publisher)

    async def append_snapshot(self) -> Offset:
        """Append what is known of the publishers, if there are any and anything is new; return up to where to flush.

        So it is the last chunk of what is flushed. Waits for no memory, as a flush is what makes room. Raises what the
        queue fails with: then nothing may be flushed, as nobody would know the publishers.
        """
        known = self._publishers
        if known is None or known.state.is_empty or self.next in {self._snapshot_end, self.flushed}:
            return self.confirmed
        while self._has_wal_ended:
            await self._reopen()
        self.check()
        first, timestamp = self.next, self._now()
        chunk = tracking_chunk(known.snapshot(), first, timestamp, self.epoch)
        cached = CachedChunk(first, Offset(first + 1), timestamp, self.epoch, chunk)
        self._engine.budget.overdraw(cached.memory_bytes)
        done: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        self._snapshot_end = cached.next_offset
        self._put(cached, done, None)
        await asyncio.shield(done)
        return cached.next_offset

    async def drain(self) -> None:
        """Wait until nothing is in line or pending, and no other WAL is being taken: the epoch stays from then on."""
        while not self._is_idle:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    async def settled(self) -> None:
        """Wait until what was called before is acknowledged, or has failed; what comes after it is not waited for."""
        if self._line:
            line = self._line
            ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            line.append(ticket)
            try:
                while line[0] is not ticket and self.failure is None:
                    await ticket
            finally:
                self._leave_line(line, ticket)
        if self._pending:
            await asyncio.wait([self._pending[-1].done])

    async def settle_epoch(self) -> None:
        """Wait until no next epoch is being taken."""
        if self._reopening is not None:
            await asyncio.wait([self._reopening])

    async def flush(self) -> None:
        """Have all that is durable now in the manifest. Raises what `Flusher.flush` does, and StreamClosedError."""
        up_to = self.confirmed
        while self.flushed < up_to:
            self.check()
            self.flushed_to(await self._engine.flusher.flush(self.stream, up_to))

    def flushed_to(self, next_offset: Offset) -> None:
        """Take note that the manifest has the stream up to an offset: the WALs need not have it any more."""
        self.flushed = max(self.flushed, min(next_offset, self.confirmed))
        while self._durable and self._durable[0][0] <= next_offset:
            _, wal, sequence = self._durable.popleft()
            wal.flushed(sequence)
        if self._forget_at is not None and self.flushed >= self._forget_at and self.failure is None:
            self._forget_at = None
            self._engine.spawn(self._forget_earlier())

    def fence(self, failure: ColdstreamError) -> None:
        """Fail with an error, which all that is under way gets; only the first counts.

        What the WAL may take all the same gets OutcomeUnknownError, unless the stream is no more.
        """
        if self.failure is not None:
            return
        self.failure = failure
        under_way: list[asyncio.Future[int]] = []
        while self._pending:
            pending = self._pending.popleft()
            self._engine.budget.free(pending.chunk.memory_bytes)
            if not pending.written.done() or pending.written.exception() is None:
                under_way.append(pending.written)
            if not pending.done.done():
                pending.done.set_exception(self._failure_of(pending))
                pending.done.exception()  # nobody may be waiting any more, which is no reason for a warning
            self._end(pending.record, pending.done)
        if under_way:
            self._engine.spawn(self._leave_behind(self.wal, under_way))
        if self._reserving is not None:
            self._reserving.cancel()
        for ticket in self._line or ():
            if not ticket.done():
                ticket.set_result(None)
        self._tell()

    def _failure_of(self, pending: PendingAppend) -> ColdstreamError:
        """Return what the caller of a pending append is told when the queue has failed."""
        assert self.failure is not None
        is_void = pending.written.done() and isinstance(pending.written.exception(), WalEndedError)
        if is_void or isinstance(self.failure, _TELLING):
            return self.failure
        unknown = OutcomeUnknownError(f"{self.stream}: whether this batch was appended is unknown: {self.failure}")
        unknown.__cause__ = self.failure
        return unknown

    async def _leave_behind(self, wal: WalWriter, under_way: list[asyncio.Future[int]]) -> None:
        """Tell the engine of chunks that the WAL takes after the queue has failed: else it could never be trimmed."""
        await asyncio.wait(under_way)
        durable = [(wal, one.result()) for one in under_way if one.exception() is None]
        self._engine.leave_behind(self.stream, self.epoch, durable)

    def take_durable(self) -> list[tuple[WalWriter, int]]:
        """Take what WALs still keep for this queue, by the sequences of its chunks. It forgets them."""
        durable, self._durable = self._durable, None
        return [(wal, sequence) for _, wal, sequence in durable or ()]

    def check(self) -> None:
        """Raise StreamClosedError, which says why, if the queue has failed."""
        if isinstance(self.failure, StreamClosedError):
            raise StreamClosedError(str(self.stream), self.failure.why)
        if self.failure is not None:
            raise StreamClosedError(str(self.stream), f"is not open here any more: {self.failure}") from self.failure

    # Publishers.

    def _begin(self, call: _Call) -> None:
        if call.record is not None:
            self._publishers = self._publishers or Publishers()
            self._publishers.begin(call.record, call.done)

    def _end(self, record: TrackingRecord | None, done: asyncio.Future[Offset]) -> None:
        if record is not None and self._publishers is not None:
            self._publishers.end(record, done)

    async def _is_appended(self, record: TrackingRecord) -> bool:
        """Tell whether a publisher has appended a message, once that is durable. Raises what that append raised."""
        while self._publishers is not None:
            twin = self._publishers.twin_of(record)
            if twin is None:
                last = self._publishers.last_of(record.id)
                return last is not None and last >= record.value
            await asyncio.wait([twin])
            if not twin.cancelled():
                twin.result()
            self.check()
        return False

    # In line.

    async def _wait_in_line(self, call: _Call) -> None:
        """Send a batch once there is memory for it, those called before it are sent, and there is a WAL to send it to.

        Raises UnexpectedTailError if one before it was given up by its caller, so that it has not the offset any more
        that it expected.
        """
        line = self._line = deque() if self._line is None else self._line
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(ticket)
        self._waiting += call.batch.records
        is_reserved = is_sent = False
        try:
            # Memory only for the first in line: the others would hold what they cannot use yet.
            while line[0] is not ticket and self.failure is None:
                await ticket
            self.check()
            await self._reserve(call.memory_bytes)
            is_reserved = True
            while self._has_wal_ended:
                await self._reopen()
            self.check()
            if call.expect is not None and call.expect != self.next:
                raise UnexpectedTailError(str(self.stream), call.expect, self.next)
            is_sent = True
            self._waiting -= call.batch.records
            self._send(call)
        finally:
            if not is_sent:
                self._waiting -= call.batch.records
                self._engine.budget.free(call.memory_bytes if is_reserved else 0)
            self._leave_line(line, ticket)

    def _leave_line(self, line: deque[asyncio.Future[None]], ticket: asyncio.Future[None]) -> None:
        line.remove(ticket)
        if line and not line[0].done():
            line[0].set_result(None)
        self._tell_idle()

    async def _reserve(self, size_bytes: int) -> None:
        """Wait for memory, or until the queue fails, which may be long before there is any. Raises what `check` does.

        Whoever is cancelled, or fails, has reserved nothing.
        """
        if self._engine.budget.try_reserve(size_bytes):
            return
        self._reserving = reserving = asyncio.create_task(self._engine.budget.reserve(size_bytes))
        try:
            await asyncio.wait([reserving])
            self.check()
            reserving.result()
        except BaseException:
            if not reserving.cancel() and not reserving.cancelled():
                self._engine.budget.free(size_bytes)
            raise
        finally:
            self._reserving = None

    # Pending.

    def _send(self, call: _Call) -> None:
        """Give a batch its offsets, and send it to the WAL. Nothing is awaited: this is the order of the stream."""
        first, timestamp = self.next, self._now()
        data = call.batch.chunk(first, timestamp, self.epoch, call.trailer)
        if call.record is not None and self._publishers is not None:
            self._publishers.sent(call.record, first)
        next_offset = Offset(first + call.batch.records)
        self._put(CachedChunk(first, next_offset, timestamp, self.epoch, data), call.done, call.record)

    def _put(self, chunk: CachedChunk, done: asyncio.Future[Offset], record: TrackingRecord | None) -> None:
        self._pending = deque() if self._pending is None else self._pending
        self._pending.append(PendingAppend(chunk, self._submit(chunk), done, record))
        self.next, self._timestamp = chunk.next_offset, chunk.timestamp

    def _submit(self, chunk: CachedChunk) -> asyncio.Future[int]:
        written = self.wal.submit(
            WalChunk(self.stream.incarnation, self.epoch, chunk.first_offset, chunk.next_offset, chunk.data)
        )
        written.add_done_callback(self._on_written)
        return written

    def _on_written(self, written: asyncio.Future[int]) -> None:
        written.exception()  # each is looked at in its turn
        self._settle()

    def _settle(self) -> None:
        """Take the WAL's answers in the order of the stream."""
        while self._pending and self._pending[0].written.done():
            pending = self._pending[0]
            error = pending.written.exception()
            if error is None:
                self._pending.popleft()
                self._confirm(pending)
            elif isinstance(error, WalEndedError):
                # Void, and so is all after it: to be sent again.
                self._start_reopening()
                return
            else:
                self.fence(error if isinstance(error, ColdstreamError) else StreamClosedError("it", f"failed: {error}"))
        self._tell_idle()

    def _confirm(self, pending: PendingAppend) -> None:
        chunk = pending.chunk
        self.confirmed = chunk.next_offset
        self._durable = deque() if self._durable is None else self._durable
        self._durable.append((chunk.next_offset, self.wal, pending.written.result()))
        self._engine.log_cache.add(self.stream.incarnation, chunk)
        self._engine.flusher.appended(self.stream, chunk.next_offset, len(chunk.data))
        self._end(pending.record, pending.done)
        if not pending.done.done():
            pending.done.set_result(chunk.first_offset)
        self._on_change()

    def _now(self) -> TimestampMs:
        """Return the time of the next batch: the clock may go back, and a stream never does."""
        return max(self._engine.archive.now(), self._timestamp)

    # Another WAL.

    @property
    def _has_wal_ended(self) -> bool:
        # Of an abandoned one, only what was pending in it is unknown, and that has failed: others go on.
        return self.failure is None and (self.wal.ended is not None or self.wal.abandoned)

    def _start_reopening(self) -> asyncio.Task[None]:
        if self._reopening is None:
            self._reopening = self._engine.spawn(self._go_on())
        return self._reopening

    async def _reopen(self) -> None:
        await asyncio.shield(self._start_reopening())

    async def _go_on(self) -> None:
        """Open the stream again, in the next WAL, or fail."""
        try:
            # The WAL has said of each batch whether it took it: those that are left it never did.
            written = [one.written for one in self._pending or ()]
            if written:
                await asyncio.wait(written)
                self._settle()
            if self.failure is not None:
                return
            try:
                epoch, wal = await reopen(self._engine, self.stream, self.epoch)
            except ColdstreamError as err:
                self.fence(err)
            except Exception as err:  # noqa: BLE001  whatever it is, callers wait for their batches
                self.fence(StreamClosedError(str(self.stream), f"could not be opened again: {err!r}"))
            else:
                self._resume(epoch, wal)
        finally:
            self._reopening = None
            self._tell_idle()

    def _resume(self, epoch: Epoch, wal: WalWriter) -> None:
        self.epoch, self.wal = epoch, wal
        self._forget_at = self.confirmed
        for pending in self._pending or ():
            old = pending.chunk
            data = with_epoch(old.data, epoch)
            pending.chunk = CachedChunk(old.first_offset, old.next_offset, old.timestamp, epoch, data)
            pending.written = self._submit(pending.chunk)
        self.flushed_to(self.flushed)

    async def _forget_earlier(self) -> None:
        """Have the head forget the openings before this one, of which nothing is in a WAL alone any more."""
        epoch = self.epoch
        try:
            await self._engine.call(forget_earlier, self._engine.archive, self.stream, epoch)
        except (ExpiredEpochError, StreamNotFoundError):
            return  # the next append will tell
        except ColdstreamError:
            # They do no harm but for the length of a recovery: the next flush tries again.
            self._forget_at = self.confirmed

    @property
    def _is_idle(self) -> bool:
        return not (self._beginning or self._line or self._pending or self._reopening is not None)

    def _tell_idle(self) -> None:
        if self._idle is not None and self._is_idle:
            self._idle.set()
            self._idle = None

    def _tell(self) -> None:
        self._tell_idle()
        self._on_change()
