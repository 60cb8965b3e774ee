"""Bring slices of one stream into the archive: stage, announce, and wait for the outcome."""

from __future__ import annotations

import asyncio
import logging

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics, Service
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.agent.stream_state import StreamState
from coldstream.agent.upload_slots import UploadSlots
from coldstream.archive.borders import QuietSpans
from coldstream.errors import UnavailableError
from coldstream.ingest.announcer import FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR, Announcement, SliceOutcome
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.retry import Backoff
from coldstream.units import Offset, TimestampMs

log = logging.getLogger(__name__)

ANNOUNCE_AGAIN_S = 600.0
"""An event that has come to nothing for so long is put again: it may have ended in the dead-letter queue."""

MAX_QUARANTINES = 2
"""Copies of a slice that fail verification before it is left in quarantine: the first may be another replica's."""

MAX_DROPPED = 5
"""Copies of a slice that are dropped, maybe without a look at them, before its stream pauses as after any failure."""


class SliceDelivery:
    """Delivers slices to one archive, as the slots allow, by the rules of `ingest.announcer`."""

    def __init__(
        self,
        archive: ArchiveClient,
        slots: UploadSlots,
        metrics: AgentMetrics,
        every_ms: int | None,
        quiet: QuietSpans | None = None,
    ) -> None:
        self._archive = archive
        self._slots = slots
        self._metrics = metrics
        self._every_ms = every_ms
        self._quiet = quiet

    async def covered_to(self, incarnation: Incarnation, first_offset: Offset, limit: Offset) -> Offset:
        """Return how far the manifest covers a stream, from `first_offset` on, without a hole, and up to `limit`."""
        reached = await self._archive.covered_to(incarnation, first_offset, limit)
        self._metrics.contacted(Service.AWS)
        return reached

    async def deliver(
        self,
        slice_: SegmentSlice,
        stream: StreamId,
        progress: ArchivingProgress,
        *,
        is_backfill: bool,
        is_contested: bool,
    ) -> None:
        """Deliver a slice, all of it committed; return when the manifest covers it, or it is in quarantine.

        A slice that `is_contested` is delivered even if the manifest covers its offsets. `progress` is told the state.
        Raises OtherClusterError when another cluster announced the stream first, StreamDeletedError while it is deleted
        from the archive and may be undeleted, FileNotFoundError when the pin was
        released, UnavailableError when nothing came of an announcement.
        """
        since = TimestampMs(slice_.path.stat().st_mtime_ns // 1_000_000)
        quarantined = dropped = 0
        # Asked again after each copy in quarantine: a good copy of another replica may have been archived since.
        while is_contested or not await self._is_covered(slice_, stream.incarnation):
            # Before anything is sent: what is announced of another cluster's stream ends in the dead-letter queue, and
            # the staged copy of a deleted stream is deleted, again and again.
            await self._archive.check_accepted(stream)
            announcement = await self._announce(
                slice_, stream, progress, since, is_backfill=is_backfill, is_contested=is_contested
            )
            rolled = announcement.rolled
            outcome = await self._outcome(announcement)
            if outcome is SliceOutcome.UNKNOWN:
                dropped += 1
                if dropped == MAX_DROPPED:
                    raise UnavailableError(f"{rolled} was dropped {dropped} times, maybe without a look at it")
                log.info("%s was dropped, maybe without a look at it, and is announced again", rolled)
                continue
            if outcome is SliceOutcome.ARCHIVED:
                self._metrics.archived(stream, rolled.size_bytes)
                return
            quarantined += 1
            # Of a contested slice one copy is enough: a second one would contradict the archive just the same.
            if is_contested or quarantined == MAX_QUARANTINES:
                log.error("%s failed verification and is in quarantine", rolled)
                self._metrics.quarantined(stream)
                return

    async def _announce(
        self,
        slice_: SegmentSlice,
        stream: StreamId,
        progress: ArchivingProgress,
        since: TimestampMs,
        *,
        is_backfill: bool,
        is_contested: bool,
    ) -> Announcement:
        progress.state = StreamState.WAITING
        # The slot is held for the upload alone: a stream that waits for the function must not keep others from sending.
        async with self._slots.take(backfill=is_backfill, since=since):
            progress.state = StreamState.STAGING
            rolled = await self._archive.stage(slice_, stream, self._every_ms, self._quiet)
        self._metrics.staged(stream, rolled.size_bytes)
        announcement = await self._archive.announce(rolled, is_contested=is_contested)
        self._metrics.announced(stream, rolled.size_bytes)
        progress.state = StreamState.ANNOUNCED
        return announcement

    async def _outcome(self, announcement: Announcement) -> SliceOutcome:
        """Wait until an announced slice is archived or in quarantine. Raises UnavailableError when neither happens."""
        deadline = asyncio.get_running_loop().time() + ANNOUNCE_AGAIN_S
        backoff = Backoff(FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR)
        while (outcome := await self._archive.outcome(announcement)) is SliceOutcome.PENDING:
            self._metrics.contacted(Service.AWS)
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(
                    f"{announcement.rolled} was announced {ANNOUNCE_AGAIN_S:.0f} s ago and is not archived; it is"
                    " announced again. See the upload function's log and its dead-letter queue"
                )
            await asyncio.sleep(backoff.next_delay_s())
        self._metrics.contacted(Service.AWS)
        return outcome

    async def _is_covered(self, slice_: SegmentSlice, incarnation: Incarnation) -> bool:
        return await self.covered_to(incarnation, slice_.first_offset, slice_.next_offset) >= slice_.next_offset
