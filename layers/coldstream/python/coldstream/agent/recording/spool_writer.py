"""Cuts the chunks of one stream into segments, and writes those to the spool.

A chunk goes through three places, and each has its offset:

    held or pending   in memory, up to `next_offset`
    open segment      written, but lost in part by a crash of the machine
    closed segment    safe on the disk, and the archiver's

Tracking chunks are held back until the next user chunk shows on which side of a time border they lie, or until the
segment ends for another reason. User chunks are pending until a batch is worth a write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from coldstream.agent.proof.incarnations import Anchor
from coldstream.agent.recording.spool import ClosedSegment, SegmentSpool
from coldstream.agent.recording.time_spans import TimeSpans
from coldstream.archive.borders import HELD_BYTES
from coldstream.format.chunk import ChunkHeader
from coldstream.units import MIB, Offset, TimestampMs

BATCH_BYTES = MIB
ROOM_POLL_S = 1.0

P = ParamSpec("P")
T = TypeVar("T")


class SpoolWriter:
    """Writes chunks, given in order, to segments in `directory`; for one task at a time.

    `anchor` says where the stream is read on, and what it is known by until a segment is. `spans` are those of time
    borders, None without any. `next_offset` is the offset after the last chunk that was given, and `last` the last user
    chunk among them, or among those that an earlier run closed. `on_closed` gets each closed segment, oldest first.

    `recover` comes first, and again after an OSError, which everything here that waits may raise.
    """

    def __init__(
        self,
        directory: Path,
        anchor: Anchor,
        *,
        on_closed: Callable[[ClosedSegment], None],
        segment_bytes: int,
        max_spool_bytes: int,
        spans: TimeSpans | None,
        now: Callable[[], TimestampMs],
    ) -> None:
        self.next_offset = self._written_to = self._closed_to = anchor.next_offset
        self.last: ChunkHeader | None = None
        self.spans = spans
        self._anchor = anchor
        self._spool = SegmentSpool(directory)
        self._on_closed = on_closed
        self._segment_bytes = segment_bytes
        self._max_spool_bytes = max_spool_bytes
        self._now = now
        self._last_closed: ChunkHeader | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_from = anchor.next_offset
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._held_since = 0.0
        self._opened_at = 0.0
        self._user_chunk_at = 0.0  # when the last one came
        self._spool_bytes = 0

    async def recover(self) -> None:
        """Go back to what is safe on the disk: forget what is in memory, and close what an earlier run left open."""
        recovered = await _on_disk(self._spool.recover)
        for waiting in (self._pending, self._held):
            waiting.clear()
        self._pending_bytes = self._held_bytes = 0
        known = self._last_closed or self._anchor
        if recovered.last is not None and recovered.last.chunk_id >= known.chunk_id:
            self._last_closed = recovered.last
        self._closed_to = max(self._closed_to, recovered.next_offset)
        # Kept also when its segment is archived and gone from the disk: it is what the stream is known by.
        self.last = self._last_closed
        self.next_offset = self._written_to = self._closed_to
        self._spool_bytes = await _on_disk(self._spool.size_bytes)
        for segment in recovered.closed:
            self._on_closed(segment)

    def abandon(self) -> None:
        """Leave the open segment as it is: the next `recover` closes it."""
        self._spool.abandon()

    def begin_at(self, offset: Offset) -> None:
        """Begin the stream at an offset before the anchor's, while nothing is written yet."""
        self.next_offset = self._written_to = self._closed_to = offset

    async def skip_to(self, offset: Offset, on_lost: Callable[[], None]) -> None:
        """Close what is open, report the loss, and go on at an offset: a segment has no hole.

        After a crash `recover` goes back to before the hole unless a segment after it was closed, and it is lost again.
        """
        await self.close()
        # Only after the close: if that fails, recording goes back to before the hole, and finds it again.
        on_lost()
        self.next_offset = self._written_to = offset

    async def hold(self, tracking: bytes) -> None:
        """Take the tracking chunk at `next_offset`, and hold it back if not too many are."""
        if not self._held:
            self._held_since = _now_s()
        self._held.append(tracking)
        self._held_bytes += len(tracking)
        self.next_offset = Offset(self.next_offset + 1)
        if self._held_bytes > HELD_BYTES:
            await self._append_held()

    async def append(self, chunk: bytes, header: ChunkHeader) -> None:
        """Take the user chunk at `next_offset`, and the held tracking chunks before it."""
        if self._is_border_before(header):
            # What is held came after the last user chunk, and so lies on the far side of the border.
            await self.close(but_held=True)
        await self._append_held()
        await self._append(chunk, header.records)
        self.next_offset = header.next_offset
        self.last, self._user_chunk_at = header, _now_s()
        if self._spool.open_bytes + self._pending_bytes >= self._segment_bytes:
            await self.close()

    async def write(self) -> None:
        """Write what is pending to the open segment."""
        if self._pending:
            chunks = b"".join(self._pending)
            # Cleared before the write, which may be cancelled: it runs to its end all the same, and must not be
            # repeated.
            self._pending.clear()
            self._pending_bytes = 0
            self._spool_bytes += len(chunks)
            await _on_disk(self._spool.append, chunks, self._pending_from, self._written_to)

    async def close(self, *, but_held: bool = False) -> None:
        """Close the open segment, if there is one. Held tracking chunks are its end, or, with `but_held`, stay held."""
        if not but_held:
            await self._append_held()
        await self.write()
        closed = await _on_disk(self._spool.close_segment)
        if closed is not None:
            self._closed_to = closed.next_offset
            self._last_closed = self.last
            self._on_closed(closed)

    async def close_if_over(self) -> None:
        """Close the open segment if no message has come for long enough that its time is over."""
        now_s = _now_s()
        if self.spans is None or now_s - self._user_chunk_at < self.spans.idle_s:
            return
        if not self._spool.open_bytes:
            is_over = bool(self._held) and self.spans.is_tracking_over(now_s - self._held_since)
        else:
            last = TimestampMs(0) if self.last is None else self.last.timestamp
            is_over = self.spans.is_over(last, now=self._now(), open_s=now_s - self._opened_at)
        if is_over:
            await self.close()

    async def wait_for_room(self) -> None:
        """Wait while the spool is full. What is open is closed then: archiving it is what makes room."""
        while self._spool_bytes > self._max_spool_bytes:
            # Measured again: writes only count up, and nobody tells this writer when the archiver makes room.
            self._spool_bytes = await _on_disk(self._spool.size_bytes)
            if self._spool_bytes > self._max_spool_bytes:
                await self.close()
                await asyncio.sleep(ROOM_POLL_S)

    def _is_border_before(self, header: ChunkHeader) -> bool:
        if self.spans is None or self.last is None:
            return False
        open_s = _now_s() - self._opened_at
        return self.spans.is_border(self.last.timestamp, header.timestamp, now=self._now(), open_s=open_s)

    async def _append_held(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        for tracking in held:
            await self._append(tracking, 1)

    async def _append(self, chunk: bytes, records: int) -> None:
        if not self._pending:
            self._pending_from = self._written_to
            if not self._spool.open_bytes:
                self._opened_at = _now_s()
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        self._written_to = Offset(self._written_to + records)
        if self._pending_bytes >= BATCH_BYTES:
            await self.write()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _on_disk(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call in a thread, and wait for its end even when cancelled.

    A thread cannot be stopped. If the task ended before it, the next recorder of the stream would recover the spool
    while the thread still writes to it.
    """
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):  # cancelled once more
                await asyncio.wait([work])
        raise
