"""The protocol source: consumes a stream, and rebuilds its segments where the broker's disk cannot be seen.

What is delivered is committed, so every segment that is closed here may be archived as it is. A segment ends

- behind the chunk that takes it to `segment_bytes`,
- at a time border (archive/borders.py), once the stream is read to about its end,
- a span of time after the span of its last chunk, when nothing more comes,
- before offsets that are lost, when there is no room for more, when the connection is lost, and when the agent starts.

Offsets left out between two chunks were taken by tracking chunks; or retention has deleted chunks before they were
read, for brokers then go on with their oldest chunk, without a word. So the oldest chunk is asked for, after that.
Where it is not behind the first offset left out, nothing was deleted. Where it is, the offsets are taken for lost:
rightly, or because a tracking chunk is the oldest of all by then, which cannot be told apart.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

from coldstream.agent.rebuild import rebuilt, tracking_before
from coldstream.agent.spool import ClosedSegment, SegmentSpool
from coldstream.errors import ColdstreamError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkHeader
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

CLOCKS_APART_MS = 60_000
"""What the clocks of leaders may differ by: a chunk before our last one that is newer by more is of another stream."""

LOST = "deleted by retention before it was read"

P = ParamSpec("P")
T = TypeVar("T")


class ProtocolSource:
    """Writes the segments of one stream into `directory`, its pins', from `start` on or from where they end there.

    `start` is where a chunk begins: the end of what is archived, or else the broker's first chunk. `every_ms` is the
    span of time borders, None without them. While segments of more than `max_spool_bytes` lie in the directory, the
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
        start: Offset,
        *,
        on_closed: Callable[[ClosedSegment], None],
        on_lost: Callable[[Offset, Offset, str], None],
        on_failure: Callable[[ColdstreamError], None],
        segment_bytes: int = SEGMENT_BYTES,
        every_ms: int | None = None,
        max_spool_bytes: int,
        now: Callable[[], TimestampMs] = now_ms,
    ) -> None:
        self.next_offset = start
        self._done_to = start  # before it everything is closed, or lost
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
        self._last: ChunkHeader | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_from = start
        self._spool_bytes = 0
        self._idle_s = None if every_ms is None else min(1.0, every_ms / 2000)

    async def run(self) -> None:
        """Run until cancelled, or until this incarnation has ended: deleted, or declared again. Connects by itself.

        Each end of a connection goes to `on_failure`, the end of the incarnation as StreamNotFoundError.
        """
        delay_s = FIRST_RETRY_S
        try:
            while True:
                before = self.next_offset
                failure = await self._attempt()
                self._on_failure(failure)
                if isinstance(failure, StreamNotFoundError):
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
                await self._close()
                return err
        except OSError as err:
            self._must_recover = True
            failure = UnavailableError(f"{self._stream} cannot be written to the spool: {err}")
            failure.__cause__ = err
            return failure

    async def _recover(self) -> None:
        found = await _on_disk(self._spool.recover)
        self._pending.clear()
        self._pending_bytes = 0
        self._last = None
        self.next_offset = self._done_to
        if found.last is not None and found.last.next_offset >= self._done_to:
            self._last = found.last
            self.next_offset = self._done_to = found.last.next_offset
        self._spool_bytes = await _on_disk(self._spool.size_bytes)
        self._must_recover = False
        for segment in found.closed:
            self._on_closed(segment)

    async def _follow(self, connection: LiveConnection) -> NoReturn:
        # From the last chunk there is, so as to see that it is still the same stream.
        start = self.next_offset if self._last is None else Offset(self._last.chunk_id)
        async with connection.subscribe(self._stream.name, AtOffset(start), credits=CREDITS) as chunks:
            while True:
                await self._wait_for_room()
                taken_bytes = await self._take_waiting(connection, chunks)
                await self._write()
                if not taken_bytes:
                    await self._close_if_over()

    async def _take_waiting(self, connection: LiveConnection, chunks: Subscription) -> int:
        """Take the next chunk, and some that are here already; return the bytes of data, 0 when none came soon."""
        taken_bytes = 0
        while not taken_bytes or (chunks.waiting and taken_bytes < BATCH_BYTES):
            try:
                async with asyncio.timeout(None if taken_bytes else self._idle_s):
                    chunk = await anext(chunks)
            except TimeoutError:
                break
            await self._take(connection, chunk)
            taken_bytes += chunk.header.data_bytes
        return taken_bytes

    async def _take(self, connection: LiveConnection, chunk: Chunk) -> None:
        header = chunk.header
        if self._is_known(header):
            return
        if not await self._is_tracking_before(connection, header):
            await self._close()
            self._on_lost(self.next_offset, Offset(header.chunk_id), LOST)
            self.next_offset = self._done_to = Offset(header.chunk_id)
        elif self._is_border(header):
            await self._close()
        for tracking in tracking_before(header, self.next_offset):
            await self._append(tracking, 1)
        await self._append(rebuilt(chunk), header.records)
        self._last = header
        if self._spool.open_bytes + self._pending_bytes >= self._segment_bytes:
            await self._close()

    def _is_known(self, header: ChunkHeader) -> bool:
        """Tell whether a chunk is here already: at first, the last one is, and more where a replica is behind ours.

        Raises StreamNotFoundError for one that cannot be of this incarnation.
        """
        last = self._last
        if header.chunk_id >= self.next_offset:
            is_another = last is not None and header.epoch < last.epoch
        elif last is None or header.next_offset > last.chunk_id:
            is_another = header.next_offset > self.next_offset or (last is not None and not is_same(header, last))
        else:
            is_another = header.epoch > last.epoch or header.timestamp > last.timestamp + CLOCKS_APART_MS
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

    async def _append(self, chunk: bytes, records: int) -> None:
        if not self._pending:
            self._pending_from = self.next_offset
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        self.next_offset = Offset(self.next_offset + records)
        if self._pending_bytes >= BATCH_BYTES:
            await self._write()

    async def _write(self) -> None:
        if self._pending:
            chunks = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._spool_bytes += len(chunks)
            await _on_disk(self._spool.append, chunks, self._pending_from, self.next_offset)

    async def _close(self) -> None:
        await self._write()
        closed = await _on_disk(self._spool.close_segment)
        if closed is not None:
            self._done_to = closed.next_offset
            self._on_closed(closed)

    async def _close_if_over(self) -> None:
        """Close the open segment, if its last span of time and another one are over."""
        if self._every_ms is not None and self._last is not None and self._spool.open_bytes:
            span = self._last.timestamp // self._every_ms
            if (span + 2) * self._every_ms <= self._now():
                await self._close()

    def _is_border(self, header: ChunkHeader) -> bool:
        """Tell whether a time border lies before a chunk, and is worth a segment: not where old chunks are read."""
        if self._every_ms is None or self._last is None:
            return False
        is_live = header.timestamp + LIVE_SPANS * self._every_ms > self._now()
        return is_live and header.timestamp // self._every_ms != self._last.timestamp // self._every_ms

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
        await asyncio.wait([work])
        raise
