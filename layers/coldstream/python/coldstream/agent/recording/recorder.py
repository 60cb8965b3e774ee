"""The recorder: consumes a stream, and writes its segments where the broker's disk cannot be seen.

What is delivered is committed, so every segment that is closed here may be archived as it is. A segment ends

- after the chunk that takes it to `segment_bytes`,
- at a time border (archive/borders.py), once the stream is read to about its end, or two spans after the segment was
  begun,
- a span of time after the span of its last chunk, or two spans after it was begun, if nothing more comes,
- before offsets that are lost, when there is no room for more, when the connection is lost, and when the agent starts.

Chunks of every type are asked for. If offsets are left out between two chunks, there are two explanations. Retention
may have deleted chunks before they were read: brokers then go on with their oldest chunk, without a word. Or tracking
chunks took the offsets, and the broker is one that does not deliver those. To tell which, the stream's oldest chunk is
asked for, after the jump was seen. If it is not past the first offset left out, nothing was deleted. If it is, the
offsets are taken for lost. That is right, unless such a broker has a tracking chunk for its oldest by then, which
nothing can show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from coldstream.agent.proof.incarnations import CLOCKS_APART_MS, Anchor
from coldstream.agent.recording.incarnation_check import IncarnationCheck
from coldstream.agent.recording.recorded_chunk import record_chunk, tracking_fillers
from coldstream.agent.recording.spool import ClosedSegment
from coldstream.agent.recording.spool_writer import BATCH_BYTES, SpoolWriter
from coldstream.agent.recording.time_spans import TimeSpans
from coldstream.errors import BrokerRefusedError, ColdstreamError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.live.connection import LiveConnection
from coldstream.live.subscription import Subscription
from coldstream.manifest.spec import FIRST, LAST, AtOffset, AtTimestamp
from coldstream.manifest.stream import StreamId
from coldstream.retry import Backoff
from coldstream.units import MIB, Offset, TimestampMs, now_ms

SEGMENT_BYTES = 64 * MIB
CREDITS = 10
PROBE_TIMEOUT_S = 5.0
END_IDLE_S = 3.0
"""Without a chunk, after which to ask whether a stream has anything left before an end whose time is over."""

FIRST_RETRY_S = 0.5
MAX_RETRY_S = 30.0

LOST = "deleted by retention before it was read"


class StreamRecorder:
    """Records one stream into segments in `directory`, its pins', from `anchor` on or from where they end there.

    `every_ms` is the span of time borders, None for none. While segments of more than `max_spool_bytes` lie in the
    directory, the broker is asked for nothing.

    The callbacks are called in the event loop, and must not block or raise. `on_closed` gets each segment that is
    closed from now on, oldest first. `on_lost` gets the first offset lost, the one after the last, and the reason;
    after a crash again, unless a segment after them was closed. `on_failure` gets each failure before the next attempt.
    `on_recorded` gets the header of each user chunk.

    With `end`, the recording ends before the first chunk at or after it, or once it is certain that no chunk before it
    comes any more; `has_ended` tells that then.
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
        end: AtOffset | AtTimestamp | None = None,
        on_recorded: Callable[[ChunkHeader], None] = lambda _: None,
        now: Callable[[], TimestampMs] = now_ms,
    ) -> None:
        self.has_ended = False
        self._end = end
        self._on_recorded = on_recorded
        self._now = now
        self._connect = connect
        self._stream = stream
        self._anchor = anchor
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._check = IncarnationCheck(anchor)
        self._writer = SpoolWriter(
            directory,
            anchor,
            on_closed=on_closed,
            segment_bytes=segment_bytes,
            max_spool_bytes=max_spool_bytes,
            spans=None if every_ms is None else TimeSpans(every_ms),
            now=now,
        )
        self._must_recover = True
        self._is_at_end = False
        self._idle_since = 0.0

    @property
    def next_offset(self) -> Offset:
        """The offset after the last chunk that was read."""
        return self._writer.next_offset

    async def run(self) -> None:
        """Run until cancelled, until the end, until this incarnation is deleted or declared again, or is refused.

        Connects by itself. Each end of a connection goes to `on_failure`: the end of the incarnation as a
        StreamNotFoundError, a refusal as a BrokerRefusedError.
        """
        backoff = Backoff(FIRST_RETRY_S, MAX_RETRY_S)
        try:
            while True:
                before = self.next_offset
                failure = await self._attempt()
                if failure is None:
                    self.has_ended = True
                    return
                self._on_failure(failure)
                if isinstance(failure, StreamNotFoundError | BrokerRefusedError):
                    return
                # By progress alone: a connection that opens and fails at once would otherwise be opened again without a
                # pause.
                if self.next_offset > before:
                    backoff.reset()
                await asyncio.sleep(backoff.next_delay_s())
        finally:
            # Not `close`, which waits for the disk: the task may be cancelled, and the next run's `recover` closes the
            # segment.
            self._writer.abandon()

    async def _attempt(self) -> ColdstreamError | None:
        """Record until something fails, close what is open, and return the failure, or None at the end."""
        try:
            if self._must_recover:
                await self._writer.recover()
                self._must_recover = False
            try:
                async with self._connect() as connection:
                    await self._record(connection)
                    await self._writer.close()
                    return None
            except ColdstreamError as err:
                # Tracking chunks that came before the broker had delivered the known chunk may be another
                # incarnation's. They must not end up in a segment of this one.
                await self._writer.close(but_held=not self._check.is_confirmed)
                return err
        except OSError as err:
            # After an error nobody knows how much has reached the disk: the next attempt has to read it from there.
            self._must_recover = True
            failure = UnavailableError(f"{self._stream} cannot be written to the spool: {err}")
            failure.__cause__ = err
            return failure

    async def _record(self, connection: LiveConnection) -> None:
        """Record until the end that was given, if any."""
        self._check.begin()
        self._idle_since = asyncio.get_running_loop().time()
        known = self._writer.last or self._anchor
        # From the last user chunk that we have, to see that the stream is still the same. One that is new here is known
        # by its first user chunk, and there may be tracking chunks before that.
        is_from_first = self.next_offset <= known.chunk_id and not self._anchor.is_midway
        start = FIRST if is_from_first else AtOffset(Offset(known.chunk_id))
        subscription = connection.subscribe(self._stream.name, start, credits=CREDITS, every_chunk=True)
        async with subscription as chunks:
            while not await self._is_over(connection):
                # Before the next chunk is asked for, as asking for one gives the broker the credit to send another.
                await self._writer.wait_for_room()
                await self._take_waiting(connection, chunks)
                await self._writer.write()
                await self._writer.close_if_over()

    async def _take_waiting(self, connection: LiveConnection, chunks: Subscription) -> None:
        """Take the next chunk, and some that have arrived already; none if none comes soon."""
        idle_s = None if self._writer.spans is None else self._writer.spans.idle_s
        if idle_s is None and isinstance(self._end, AtTimestamp):
            idle_s = 1.0  # to look whether its time is over
        taken_bytes = 0
        while not taken_bytes or (chunks.waiting and taken_bytes < BATCH_BYTES):
            try:
                # After the first chunk, `waiting` says that another is here: only the first may have to be waited for.
                async with asyncio.timeout(None if taken_bytes else idle_s):
                    chunk = await anext(chunks)
            except TimeoutError:
                break
            if not await self._take(connection, chunk):
                self._is_at_end = True
                break
            self._idle_since = asyncio.get_running_loop().time()
            taken_bytes += chunk.header.data_bytes

    async def _is_over(self, connection: LiveConnection) -> bool:
        """Tell whether the end is reached: a chunk at or after it came, or its time is over and nothing is left."""
        if self._is_at_end or (isinstance(self._end, AtOffset) and self.next_offset >= self._end.offset):
            return True
        if not isinstance(self._end, AtTimestamp) or self._now() < self._end.timestamp + CLOCKS_APART_MS:
            return False
        if asyncio.get_running_loop().time() - self._idle_since < END_IDLE_S:
            return False
        # Asked, for a broker that is slow looks like one that has no more.
        last = await connection.probe(self._stream.name, LAST, timeout_s=PROBE_TIMEOUT_S)
        return last is not None and last.header.next_offset <= self.next_offset

    async def _take(self, connection: LiveConnection, chunk: Chunk) -> bool:
        """Take a chunk; return False if it lies at or after the end."""
        header = chunk.header
        is_tracking = header.type is not ChunkType.USER
        is_new = self._writer.last is None and int(self.next_offset) == self._anchor.chunk_id
        if is_new and is_tracking and header.chunk_id < self.next_offset and not self._anchor.is_midway:
            # A tracking chunk before the first user chunk, and nothing is recorded yet: the stream begins with it.
            self._writer.begin_at(Offset(header.chunk_id))
        if self._check.is_another(header, last=self._writer.last, next_offset=self.next_offset):
            raise StreamNotFoundError(f"{self._stream} has been declared again, and is at offset {header.chunk_id}")
        if header.chunk_id < self.next_offset:
            # Recorded already: the known chunk, tracking chunks after it, and more from a member that lags behind.
            return True
        is_past_end = self._is_past_end(header)
        if not await self._is_tracking_before(connection, header):
            first_lost, next_offset = self.next_offset, Offset(header.chunk_id)
            if is_past_end and isinstance(self._end, AtOffset):
                next_offset = self._end.offset  # what lies after it is nobody's loss here
            await self._writer.skip_to(next_offset, lambda: self._on_lost(first_lost, next_offset, LOST))
        if is_past_end:
            return False
        for tracking in tracking_fillers(header, self.next_offset):
            await self._writer.hold(tracking)
        if is_tracking:
            await self._writer.hold(record_chunk(chunk))
        else:
            await self._writer.append(record_chunk(chunk), header)
            self._on_recorded(header)
        return True

    def _is_past_end(self, header: ChunkHeader) -> bool:
        match self._end:
            case AtOffset(offset):
                return header.chunk_id >= offset
            case AtTimestamp(timestamp):
                # Not by a tracking chunk: fillers have made up times.
                return header.type is ChunkType.USER and header.timestamp >= timestamp
        return False

    async def _is_tracking_before(self, connection: LiveConnection, header: ChunkHeader) -> bool:
        """Tell whether only tracking chunks can have been at the offsets left out before a chunk, if there are any."""
        if int(header.chunk_id) == self.next_offset:
            return True
        oldest = await connection.probe(self._stream.name, FIRST, timeout_s=PROBE_TIMEOUT_S)
        if oldest is None:
            raise UnavailableError(f"{self._stream} does not deliver its oldest chunk")
        return oldest.header.chunk_id <= self.next_offset
