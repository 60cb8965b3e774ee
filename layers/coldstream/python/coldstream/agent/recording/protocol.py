"""The protocol source: consumes a stream, and rebuilds its segments where the broker's disk cannot be seen.

What is delivered is committed, so every segment that is closed here may be archived as it is. A segment ends

- behind the chunk that takes it to `segment_bytes`,
- at a time border (archive/borders.py), once the stream is read to about its end, or two spans after the
  segment was begun,
- a span of time after the span of its last chunk, or two spans after it was begun, when nothing more comes,
- before offsets that are lost, when there is no room for more, when the connection is lost, and when the agent starts.

Chunks of every type are asked for. Tracking chunks are held back until the next user chunk shows on which side of a
time border they lie, or until the segment ends for another reason; alone, they are a segment of their own only after
many spans, for they have no messages.

Where offsets are left out between two chunks, retention has deleted chunks before they were read, for brokers then go
on with their oldest chunk, without a word. Or tracking chunks took them, and the broker does not know that they are
asked for. So the oldest chunk is asked for, after that. Where it is not behind the first offset left out, nothing was
deleted. Where it is, the offsets are taken for lost: rightly, or, by such a broker, because a tracking chunk is the
oldest of all by then, which cannot be told apart there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

from coldstream.agent.proof.incarnations import CLOCKS_APART_MS, Anchor
from coldstream.agent.recording.rebuild import rebuilt, tracking_before
from coldstream.agent.recording.spool import ClosedSegment, SegmentSpool
from coldstream.archive.borders import HELD_BYTES
from coldstream.errors import BrokerRefusedError, ColdstreamError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.live.connection import LiveConnection
from coldstream.live.delivered import is_same
from coldstream.live.subscription import Subscription
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.units import MIB, Offset, TimestampMs, now_ms

SEGMENT_BYTES = 64 * MIB
CREDITS = 10
BATCH_BYTES = MIB
PROBE_TIMEOUT_S = 5.0
FIRST_RETRY_S = 0.5
MAX_RETRY_S = 30.0
ROOM_POLL_S = 1.0
LIVE_SPANS = 3
"""A chunk this many spans old or less is of the stream's end: borders are worth a segment there."""

LONG_SPANS = 2
"""A segment open for so many spans ends by our own count of time: the clocks of leaders may be anywhere."""

TRACKING_SPANS = 30
"""Tracking chunks alone are worth a segment so many spans after they came."""

LOST = "deleted by retention before it was read"

P = ParamSpec("P")
T = TypeVar("T")


class ProtocolSource:
    """Writes the segments of one stream into `directory`, its pins', from `anchor` on or from where they end there.

    `anchor` is what the stream is known by until something is read. `every_ms` is the span of time borders, None
    without them. While segments of more than `max_spool_bytes` lie in the directory, the
    broker is asked for nothing.

    The callbacks are called in the event loop, and must not block or raise. `on_closed` gets each segment that is
    closed from now on, oldest first; `on_lost` the first offset lost, the one after the last, and the reason: again
    after a crash, until a segment behind them is closed; `on_failure` what went wrong before it is tried again.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[LiveConnection, None]],
        stream: StreamId,
        directory: Path,
        anchor: Anchor,
        *,
        on_closed: Callable[[ClosedSegment], None],
        on_lost: Callable[[Offset, Offset, str], None],
        on_failure: Callable[[ColdstreamError], None],
        segment_bytes: int = SEGMENT_BYTES,
        every_ms: int | None = None,
        max_spool_bytes: int,
        now: Callable[[], TimestampMs] = now_ms,
    ) -> None:
        # All before it was taken, written to a segment, or closed in one, in this order; or told as lost.
        self.next_offset = self._written_to = self._done_to = anchor.next_offset
        self._anchor = anchor
        self._connect = connect
        self._stream = stream
        self._spool = SegmentSpool(directory)
        self._on_closed = on_closed
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._segment_bytes = segment_bytes
        self._every_ms = every_ms
        self._max_spool_bytes = max_spool_bytes
        self._now = now
        self._must_recover = True
        self._is_shown = False  # in this subscription: that the stream is still the same
        self._last: ChunkHeader | None = None
        self._last_closed: ChunkHeader | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_from = anchor.next_offset
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._held_since = 0.0
        self._opened_at = 0.0
        self._heard_at = 0.0  # a user chunk
        self._spool_bytes = 0
        self._idle_s = None if every_ms is None else min(1.0, every_ms / 2000)

    async def run(self) -> None:
        """Run until cancelled, until this incarnation has ended, deleted or declared again, or until it is refused.

        Connects by itself. Each end of a connection goes to `on_failure`, the end of the incarnation as
        StreamNotFoundError, that it may not be read as BrokerRefusedError.
        """
        delay_s = FIRST_RETRY_S
        try:
            while True:
                before = self.next_offset
                failure = await self._attempt()
                self._on_failure(failure)
                if isinstance(failure, StreamNotFoundError | BrokerRefusedError):
                    return
                delay_s = FIRST_RETRY_S if self.next_offset > before else min(2 * delay_s, MAX_RETRY_S)
                await asyncio.sleep(random.uniform(0.5, 1) * delay_s)  # noqa: S311  jitter, not a secret
        finally:
            self._spool.abandon()

    async def _attempt(self) -> ColdstreamError:
        """Follow the stream until something fails, close what is open, and return the failure."""
        try:
            if self._must_recover:
                await self._recover()
            try:
                async with self._connect() as connection:
                    await self._follow(connection)
            except ColdstreamError as err:
                # What was held back before it was shown whose it is may be another stream's.
                await self._close(but_held=not self._is_shown)
                return err
        except OSError as err:
            self._must_recover = True
            failure = UnavailableError(f"{self._stream} cannot be written to the spool: {err}")
            failure.__cause__ = err
            return failure

    async def _recover(self) -> None:
        found = await _on_disk(self._spool.recover)
        for waiting in (self._pending, self._held):
            waiting.clear()
        self._pending_bytes = self._held_bytes = 0
        known = self._last_closed or self._anchor
        if found.last is not None and found.last.chunk_id >= known.chunk_id:
            self._last_closed = found.last
        self._done_to = max(self._done_to, found.next_offset)
        self._last = self._last_closed  # also when it is archived since, and gone: the stream is known by it
        self.next_offset = self._written_to = self._done_to
        self._spool_bytes = await _on_disk(self._spool.size_bytes)
        self._must_recover = False
        for segment in found.closed:
            self._on_closed(segment)

    async def _follow(self, connection: LiveConnection) -> NoReturn:
        self._is_shown = False
        known = self._last or self._anchor
        # From the last user chunk there is, so as to see that it is still the same stream. A stream that is new here is
        # known by its first user chunk, and there may be tracking chunks before that.
        start = FIRST if self.next_offset <= known.chunk_id else AtOffset(Offset(known.chunk_id))
        subscription = connection.subscribe(self._stream.name, start, credits=CREDITS, every_chunk=True)
        async with subscription as chunks:
            while True:
                await self._wait_for_room()
                await self._take_waiting(connection, chunks)
                await self._write()
                await self._close_if_over()

    async def _take_waiting(self, connection: LiveConnection, chunks: Subscription) -> None:
        """Take the next chunk, and some that are here already; none when none comes soon."""
        taken_bytes = 0
        while not taken_bytes or (chunks.waiting and taken_bytes < BATCH_BYTES):
            try:
                async with asyncio.timeout(None if taken_bytes else self._idle_s):
                    chunk = await anext(chunks)
            except TimeoutError:
                break
            await self._take(connection, chunk)
            taken_bytes += chunk.header.data_bytes

    async def _take(self, connection: LiveConnection, chunk: Chunk) -> None:
        header = chunk.header
        is_tracking = header.type is not ChunkType.USER
        is_new = self._last is None and int(self.next_offset) == self._anchor.chunk_id
        if is_new and is_tracking and header.chunk_id < self.next_offset:
            # It comes before the first user chunk, and nothing is here yet: here the stream begins.
            self.next_offset = self._written_to = self._done_to = Offset(header.chunk_id)
        if self._is_known(header):
            return
        if not await self._is_tracking_before(connection, header):
            await self._close()
            self._on_lost(self.next_offset, Offset(header.chunk_id), LOST)
            self.next_offset = self._written_to = Offset(header.chunk_id)
        for tracking in tracking_before(header, self.next_offset):
            await self._hold(tracking)
        if is_tracking:
            await self._hold(rebuilt(chunk))
            return
        if self._is_border(header):
            await self._close(but_held=True)
        await self._append_held()
        await self._append(rebuilt(chunk), header.records)
        self.next_offset = header.next_offset
        self._last, self._heard_at = header, asyncio.get_running_loop().time()
        if self._spool.open_bytes + self._pending_bytes >= self._segment_bytes:
            await self._close()

    def _is_known(self, header: ChunkHeader) -> bool:
        """Tell whether a chunk is here already: at first, the last one is, and more where a replica is behind ours.

        So are tracking chunks behind the last user chunk. Raises StreamNotFoundError for one that cannot be of this
        incarnation.
        """
        last, known = self._last, self._last or self._anchor
        is_older = last is not None and header.epoch < last.epoch
        if header.next_offset <= known.chunk_id:
            is_newer = header.timestamp > known.timestamp + CLOCKS_APART_MS
            is_another = (
                is_newer
                or (last is not None and header.epoch > last.epoch)
                or (header.chunk_id >= self.next_offset and header.type is ChunkType.USER)
            )
        elif header.chunk_id == known.chunk_id:
            is_same_chunk = self._anchor.is_chunk(header) if last is None else is_same(header, last)
            is_another = header.type is not ChunkType.USER or not is_same_chunk
            self._is_shown = not is_another
        elif header.chunk_id < max(self.next_offset, known.chunk_id):
            is_another = header.type is ChunkType.USER or is_older or not self._is_shown
        else:
            # Where retention has deleted the chunk that it is known by, nothing shows that it is the same.
            is_another = is_older or not self._is_shown
        if is_another:
            raise StreamNotFoundError(f"{self._stream} has been declared again, and is at offset {header.chunk_id}")
        return header.chunk_id < self.next_offset

    async def _is_tracking_before(self, connection: LiveConnection, header: ChunkHeader) -> bool:
        """Tell whether the offsets left out before a chunk were never of messages; so they are where none is."""
        if int(header.chunk_id) == self.next_offset:
            return True
        oldest = await connection.probe(self._stream.name, FIRST, timeout_s=PROBE_TIMEOUT_S)
        if oldest is None:
            raise UnavailableError(f"{self._stream} does not deliver its oldest chunk")
        return oldest.header.chunk_id <= self.next_offset

    async def _hold(self, tracking: bytes) -> None:
        """Hold a tracking chunk back, up to a limit."""
        if not self._held:
            self._held_since = asyncio.get_running_loop().time()
        self._held.append(tracking)
        self._held_bytes += len(tracking)
        self.next_offset = Offset(self.next_offset + 1)
        if self._held_bytes > HELD_BYTES:
            await self._append_held()

    async def _append_held(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        for tracking in held:
            await self._append(tracking, 1)

    async def _append(self, chunk: bytes, records: int) -> None:
        if not self._pending:
            self._pending_from = self._written_to
            if not self._spool.open_bytes:
                self._opened_at = asyncio.get_running_loop().time()
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        self._written_to = Offset(self._written_to + records)
        if self._pending_bytes >= BATCH_BYTES:
            await self._write()

    async def _write(self) -> None:
        if self._pending:
            chunks = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._spool_bytes += len(chunks)
            await _on_disk(self._spool.append, chunks, self._pending_from, self._written_to)

    async def _close(self, *, but_held: bool = False) -> None:
        """Close the open segment; what is held back is the end of it, or belongs to what follows."""
        if not but_held:
            await self._append_held()
        await self._write()
        closed = await _on_disk(self._spool.close_segment)
        if closed is not None:
            self._done_to = closed.next_offset
            self._last_closed = self._last
            self._on_closed(closed)

    async def _close_if_over(self) -> None:
        """When no message comes, close the open segment once its last span of time and another one are over."""
        now_s = asyncio.get_running_loop().time()
        if self._every_ms is None or self._idle_s is None or now_s - self._heard_at < self._idle_s:
            return
        if not self._spool.open_bytes:
            is_over = bool(self._held) and now_s - self._held_since >= TRACKING_SPANS * self._every_ms / 1000
        else:
            span = 0 if self._last is None else self._last.timestamp // self._every_ms
            is_over = (span + 2) * self._every_ms <= self._now() or self._is_open_long(self._every_ms)
        if is_over:
            await self._close()

    def _is_border(self, header: ChunkHeader) -> bool:
        """Tell whether a time border lies before a chunk, and is worth a segment: not where old chunks are read."""
        if self._every_ms is None or self._last is None:
            return False
        is_live = header.timestamp + LIVE_SPANS * self._every_ms > self._now()
        is_another_span = header.timestamp // self._every_ms != self._last.timestamp // self._every_ms
        return is_another_span and (is_live or self._is_open_long(self._every_ms))

    def _is_open_long(self, every_ms: int) -> bool:
        return asyncio.get_running_loop().time() - self._opened_at >= LONG_SPANS * every_ms / 1000

    async def _wait_for_room(self) -> None:
        while self._spool_bytes > self._max_spool_bytes:
            self._spool_bytes = await _on_disk(self._spool.size_bytes)
            if self._spool_bytes > self._max_spool_bytes:
                await self._close()
                await asyncio.sleep(ROOM_POLL_S)


async def _on_disk(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call in a thread, to its end even when cancelled: nothing is to be written behind the back of who comes next."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):  # cancelled once more
                await asyncio.wait([work])
        raise
