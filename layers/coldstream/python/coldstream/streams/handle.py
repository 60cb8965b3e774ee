"""`DirectStream`: one stream that a client has open: appended to, read, trimmed, sealed, destroyed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from coldstream.errors import (
    ColdstreamError,
    ExpiredEpochError,
    GapError,
    HeldError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.format.amqp.message import Message
from coldstream.manifest.appender import Appender
from coldstream.manifest.stream import StreamId
from coldstream.streams.append_queue import AppendQueue
from coldstream.streams.batch import Batch, is_tracking
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.engine import StreamEngine
from coldstream.streams.fetched import FetchedBatch
from coldstream.streams.open_stream import OpenStream
from coldstream.streams.opening import end_opening
from coldstream.streams.publishers import publisher_bytes, sequence_of
from coldstream.streams.recovery import sealed_publishers
from coldstream.streams.trimming import destroy_stream, trim_stream
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import MIB, Epoch, Offset

FETCH_BYTES = MIB
"""Bytes that a fetch returns at most, unless one batch is larger."""


class DirectStream:
    """A stream that is open. `StreamClient.open_stream` makes one; use it in that client's event loop.

    Batches get their offsets in the order of the calls to `append`, and are acknowledged in that order. After an append
    that failed for another reason than its arguments, the handle is *fenced*: each further call raises
    StreamClosedError, which says why, until the stream is opened again. So no batch ever follows one that is missing.
    """

    __slots__ = ("__weakref__", "_closing", "_engine", "_failure", "_is_sealed", "_news", "_opened", "_queue", "_start")

    def __init__(self, engine: StreamEngine, opened: OpenStream, wal: WalWriter | None) -> None:
        self._engine = engine
        self._opened = opened
        self._start = opened.start
        self._is_sealed = opened.is_sealed
        # None if nothing can be appended; also after the stream was sealed, or closed.
        self._queue = None if wal is None else AppendQueue(engine, opened, wal, self._on_change)
        self._failure: ColdstreamError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._news: asyncio.Event | None = None

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._opened.stream.name

    @property
    def vhost(self) -> str:
        """The vhost of the name."""
        return self._opened.stream.vhost

    @property
    def stream(self) -> StreamId:
        """The names and the incarnation, as readers of the archive take them."""
        return self._opened.stream

    @property
    def epoch(self) -> Epoch:
        """The epoch of this opening. It rises by itself if the WAL was sealed while nobody else opened the stream."""
        return self._opened.epoch if self._queue is None else self._queue.epoch

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that the stream was created with."""
        return self._opened.properties

    @property
    def start(self) -> Offset:
        """The first offset that can be read: below it, the stream was trimmed, by this handle or before.

        What retention removes meanwhile raises it when a fetch first misses what is gone.
        """
        return self._start

    @property
    def confirmed(self) -> Offset:
        """The offset after the last acknowledged batch: up to here, the stream can be read, for good."""
        return self._opened.tail if self._queue is None else self._queue.confirmed

    @property
    def tail(self) -> Offset:
        """The offset that the next append gets; batches that are not acknowledged yet lie before it.

        Now and then it rises by one without an append, if the stream has publishers: what they appended last is kept in
        the stream itself.
        """
        return self._opened.tail if self._queue is None else self._queue.tail

    @property
    def is_sealed(self) -> bool:
        """Whether the stream takes nothing any more, for good."""
        return self._is_sealed

    @property
    def is_brokers(self) -> bool:
        """Whether it is the archived stream of a broker, which only a snapshot reads."""
        return self._opened.is_brokers

    @property
    def queue(self) -> AppendQueue | None:
        """What is being appended, for the client; None if nothing can be."""
        return self._queue

    async def append(
        self,
        batch: Batch | Sequence[bytes | Message],
        *,
        expect: Offset | None = None,
        publisher: str | None = None,
        publishing_id: int | None = None,
    ) -> Offset | None:
        """Append a batch, whole; return the offset of its first message once it is durable.

        Batches get their offsets in the order of the calls, and are acknowledged in that order; many may be under way.
        If memory is full, the call waits. With `expect`, it appends only if that is the `tail`. With a `publisher` and
        the `publishing_id` of the batch's last message, it returns None if the publisher has appended that id, or a
        later one, before; it returns once that is durable.

        If the caller is cancelled, the batch may be appended all the same.

        Cost: a part of a PUT, which all streams of the client share.

        Raises InvalidInputError and UnexpectedTailError, after which nothing was appended and the handle goes on;
        ExpiredEpochError if another opened the stream, StreamDeletedError or StreamNotFoundError if it is gone,
        UnavailableError if no next WAL could be begun, and StreamClosedError: nothing was appended. Raises
        OutcomeUnknownError if the WAL was lost, and the batch may have been appended. After these the handle is fenced.
        """
        queue = self._check_writable()
        made = batch if isinstance(batch, Batch) else Batch.of(batch)
        try:
            return await queue.append(made, sequence_of(publisher, publishing_id), expect)
        finally:
            self._leave_if_failed(queue)

    async def publisher_id(self, publisher: str) -> int | None:
        """Return the id of the last message that a publisher has appended durably, None if it has none.

        Cost: none; it waits for what the publisher is just appending. Of a sealed stream: a GetItem, a Query and a GET.
        Raises StreamClosedError, also for a snapshot.
        """
        name = publisher_bytes(publisher)
        if not self._is_sealed:
            return await self._check_writable().publisher_id(name)
        self._check_readable()
        archived = await self._engine.call(sealed_publishers, self._engine.archive, self.stream)
        return archived.last_of(name)

    async def fetch(
        self, start: Offset, end: Offset | None = None, max_bytes: int = FETCH_BYTES
    ) -> tuple[FetchedBatch, ...]:
        """Return acknowledged batches from the one that holds `start` on, those that begin before `end`.

        Batches are whole: the first may begin before `start`. They have `max_bytes` at most together, or are one. There
        may be fewer, so go on at `next_offset` of the last one; there are none only at `end`, or at the tail.

        Cost: nothing if they are in memory, as the newest are; else as a reader of the archive, one GET for each block
        of about a MiB, and a Query now and then. Raises OffsetOutOfRangeError below `start` and past `confirmed`;
        StreamClosedError, also if the stream was deleted; GapError, UnavailableError, CorruptionError.
        """
        self._check_readable()
        self._check_range(start)
        stop = self.confirmed if end is None else min(end, self.confirmed)
        at = start
        while at < stop:
            chunks = await self._read_if_there(at, stop, max_bytes)
            if not chunks:
                break
            batches = tuple(FetchedBatch.of(one) for one in chunks if not is_tracking(one.data))
            if batches:
                return batches
            at = chunks[-1].next_offset
        return ()

    async def follow(self, start: Offset | None = None) -> AsyncGenerator[FetchedBatch, None]:
        """Yield batches from `start` on, by default those that come from now on, and wait for more.

        It ends when the stream is sealed, or this handle is closed. Cost and errors are those of `fetch`.
        """
        at = self.confirmed if start is None else start
        while True:
            confirmed = self.confirmed
            try:
                batches = () if self._is_closed else await self.fetch(at, confirmed)
            except StreamClosedError:
                if self._is_closed:
                    return  # meanwhile
                raise
            for batch in batches:
                yield batch
                at = batch.next_offset
            if batches:
                continue
            at = max(at, confirmed)
            if self._is_closed or (self._is_fixed and at >= self.confirmed):
                return
            self._check_readable()
            if at >= self.confirmed:
                self._news = self._news or asyncio.Event()
                await self._news.wait()

    async def trim(self, to: Offset) -> None:
        """Have the stream start at `to`: nothing below it is read from now on, and whole fragments below it go.

        `to` may be inside of a batch, which then stays, and up to `confirmed`. The last fragment of a stream with
        publishers stays, as it holds what they appended last.

        What is below `to` is flushed first: so that the tail is never before the start, whatever becomes of the WAL. If
        the caller is cancelled, it is trimmed all the same.

        Cost: that of `flush` if `to` is past what was flushed; a GetItem, a transaction, a PUT, and those of a
        truncation: some requests every 100 fragments. Raises OffsetOutOfRangeError past `confirmed`, ExpiredEpochError,
        and HeldError if a legal hold is on some of what would go: then the stream starts at `to` all the same, and its
        objects stay until the hold is released.
        """
        queue = self._check_writable()
        if not 0 <= to <= self.confirmed:
            raise OffsetOutOfRangeError(str(self.stream), to, self._start, self.confirmed)
        await asyncio.shield(self._engine.spawn(self._trim(queue, to)))

    async def flush(self) -> None:
        """Have all that was appended before this call acknowledged, and in the archive, where every reader finds it.

        Cost: a PUT and two requests to the table for every 64 MiB, none if nothing was appended. Raises what those
        appends raise.
        """
        queue = self._check_writable()
        await queue.settled()  # not until nothing is pending, which others who append may put off for ever
        queue.check()
        await queue.flush()

    async def seal(self) -> None:
        """End the stream for good: flush it, and have it take nothing any more. It can be read, here and elsewhere.

        Cost: that of `flush`, a GetItem, a transaction and a PUT. Raises ExpiredEpochError, StreamClosedError.
        """
        self._check_readable()
        if self._is_sealed:
            return
        self._closing = self._engine.spawn(self._end(self._check_writable(), is_sealed=True))
        await asyncio.shield(self._closing)

    async def close(self) -> None:
        """Close the handle: have all that was appended acknowledged and flushed, and give the stream back.

        May be called again, and of a fenced handle, which has nothing to give back. Cost: that of `flush`, a GetItem, a
        transaction and a PUT. Raises UnavailableError if that failed: then whoever opens the stream next recovers it
        from the WAL.
        """
        if self._closing is None and self._queue is not None:
            self._closing = self._engine.spawn(self._end(self._queue, is_sealed=False))
        if self._closing is not None:
            await asyncio.shield(self._closing)
        self._leave(StreamClosedError(str(self.stream), "is closed"))

    async def destroy(self) -> None:
        """Delete the stream: its name is free at once, and its batches go once the grace of deletions is over.

        What is under way fails, and what was not flushed goes at once: `coldstream undelete` brings back what was.
        If the caller is cancelled, it is destroyed all the same.

        Cost: a few requests to the table and a PUT. Raises HeldError if a legal hold is on it, and StreamClosedError.
        """
        self._check_destructible()
        await asyncio.shield(self._engine.spawn(self._destroy()))

    def _leave(self, failure: ColdstreamError, *, is_gone: bool = False) -> None:
        """Be no handle of the stream any more, which `is_gone` if nobody has it. Whatever is still under way fails."""
        if self._failure is None:
            self._failure = failure
            if self._queue is not None:
                self._queue.fence(failure)
                # Not either if others opened it: until they have recovered it, the head names this opening.
                self._engine.forget(self._queue, is_ended=is_gone)
            self._on_change()

    def _leave_if_failed(self, queue: AppendQueue) -> None:
        if queue.failure is not None:
            self._leave(queue.failure)

    async def _trim(self, queue: AppendQueue, to: Offset) -> None:
        engine = self._engine
        stores = await engine.lifecycle()
        if to > queue.flushed:
            await queue.flush()
        while True:
            epoch = queue.epoch
            try:
                await engine.call(trim_stream, engine.archive, stores, self.stream, epoch, to)
            except ExpiredEpochError:
                # It may be this opening's own next epoch, which its queue has taken, or is just taking.
                await queue.settle_epoch()
                if queue.epoch == epoch or queue.failure is not None:
                    raise
            except HeldError:
                self._start = max(self._start, to)
                raise
            else:
                self._start = max(self._start, to)
                return

    async def _destroy(self) -> None:
        engine = self._engine
        stores = await engine.lifecycle()
        await engine.call(destroy_stream, engine.archive, stores, self.stream)
        if self._queue is not None:
            self._queue.flushed_to(self._queue.confirmed)  # nobody needs it any more
        self._leave(StreamClosedError(str(self.stream), "was destroyed"), is_gone=True)

    async def _end(self, queue: AppendQueue, *, is_sealed: bool) -> None:
        """Drain, flush, and end the opening."""
        engine = self._engine
        try:
            await queue.drain()
            if queue.failure is not None:
                raise queue.failure
            await queue.flush()
            await engine.call(end_opening, engine.archive, self.stream, queue.epoch, is_sealed=is_sealed)
        except (ExpiredEpochError, StreamNotFoundError, StreamDeletedError, StreamClosedError) as err:
            self._leave(err)
            if is_sealed:
                raise
        except ColdstreamError as err:
            self._leave(err)
            raise
        else:
            self._opened = replace(self._opened, epoch=queue.epoch, tail=queue.confirmed)
            self._queue = None
            engine.forget(queue, is_ended=True)
            if is_sealed:
                self._is_sealed = True
                self._closing = None
                self._on_change()

    def _on_change(self) -> None:
        """Wake up those who follow the stream, when there is something new, or nothing can be any more."""
        if self._queue is not None and self._queue.failure is not None and self._failure is None:
            self._leave(self._queue.failure)
        if self._news is not None:
            self._news.set()
            self._news = None

    # Reading.

    async def _read_if_there(self, at: Offset, stop: Offset, max_bytes: int) -> Sequence[CachedChunk]:
        """Read; if nothing is found, see whether others have removed it since this handle was opened."""
        try:
            chunks = await self._read(at, stop, max_bytes)
        except (GapError, ObjectNotFoundError, StreamNotFoundError):
            self._check_readable()
            await self._look_at_head()
            self._check_range(at)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                self._check_readable()  # not this call was cancelled, but what it waited for: the client is closed
            raise
        if chunks and chunks[0].first_offset > at:
            await self._look_at_head()
            self._check_range(at)
        return chunks

    async def check_owner(self) -> None:
        """Learn whether others have opened the stream since, who then know more of its publishers than this handle.

        Cost: one GetItem. Raises StreamClosedError, which says why, if it is not this handle's any more.
        """
        queue = self._check_writable()
        appender = await self._look_at_head()
        if appender is not None and appender.epoch > queue.epoch:
            # It may be this opening's own next epoch, which its queue has taken, or is just taking.
            await queue.settle_epoch()
            if appender.epoch > queue.epoch:
                self._leave(ExpiredEpochError(str(self.stream), queue.epoch, appender.epoch))
        self._check_readable()

    async def _look_at_head(self) -> Appender | None:
        """Learn where the stream starts, and whether it is still there; return who appends. Cost: one GetItem."""
        head = await self._engine.call(self._engine.archive.table.head, self.stream.incarnation)
        if head is None:
            self._leave(StreamNotFoundError(f"{self.stream} is not in the archive"))
        elif head.deleted_at is not None:
            self._leave(StreamDeletedError(str(self.stream), head.deleted_at))
        else:
            start = head.floor if head.appender is None else max(head.floor, head.appender.start)
            self._start = max(self._start, start)
        self._check_readable()
        return None if head is None else head.appender

    def _check_range(self, offset: Offset) -> None:
        if not self._start <= offset <= self.confirmed:
            raise OffsetOutOfRangeError(str(self.stream), offset, self._start, self.confirmed)

    async def _read(self, at: Offset, stop: Offset, max_bytes: int) -> Sequence[CachedChunk]:
        return await self._engine.caches.read(self.stream, at, stop, max_bytes)

    @property
    def _is_fixed(self) -> bool:
        """Whether nothing can follow what is confirmed."""
        return self._is_sealed

    @property
    def _is_closed(self) -> bool:
        return isinstance(self._failure, StreamClosedError)

    def _check_readable(self) -> None:
        failure = self._failure
        if isinstance(failure, StreamClosedError):
            raise StreamClosedError(str(self.stream), failure.why)
        if failure is not None:
            raise StreamClosedError(str(self.stream), f"is not open here any more: {failure}") from failure

    def _check_destructible(self) -> None:
        self._check_readable()

    def _check_writable(self) -> AppendQueue:
        self._check_readable()
        if self._is_sealed:
            raise StreamClosedError(str(self.stream), "is sealed")
        if self._queue is None or self._closing is not None:
            raise StreamClosedError(str(self.stream), "is being closed")
        return self._queue
