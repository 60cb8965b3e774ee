"""Bring slices of one stream into the archive: stage, announce, and wait until the manifest covers them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics, Service
from coldstream.agent.upload_slots import UploadSlots
from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import UnavailableError
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs

log = logging.getLogger(__name__)

FIRST_POLL_S = 0.1
MAX_POLL_S = 5.0

ANNOUNCE_AGAIN_S = 600.0
"""An event that has come to nothing for so long is put again: it may have ended in the dead-letter queue."""

MAX_QUARANTINES = 2
"""Copies of a slice that fail verification before it is left there: the first may have been another replica's."""


class Delivery:
    """Delivers to one archive, as the slots allow."""

    def __init__(self, archive: ArchiveClient, slots: UploadSlots, metrics: AgentMetrics, every_ms: int | None) -> None:
        self._archive = archive
        self._slots = slots
        self._metrics = metrics
        self._every_ms = every_ms

    async def covered_to(self, incarnation: Incarnation, first_offset: Offset, limit: int | None = None) -> Offset:
        """Return how far the manifest covers a stream, from `first_offset` on, without a hole, and up to `limit`."""
        found = await self._archive.covered_to(incarnation, first_offset, limit)
        self._metrics.contacted(Service.AWS)
        return found

    async def deliver(
        self,
        chunk: SegmentSlice,
        stream: StreamId,
        *,
        is_backfill: bool,
        is_contested: bool = False,
        tell: Callable[[str], None],
    ) -> None:
        """Deliver a slice, all of it committed; return when the manifest covers it, or it is in quarantine.

        One that `is_contested` is delivered also where the manifest covers its offsets: it may be of another history.
        `tell` is called with what it is busy with: waiting, staging, announced. Raises OtherClusterError when another
        cluster announced the stream first, FileNotFoundError when its file was let go, UnavailableError when nothing
        came of an announcement.
        """
        since = TimestampMs(chunk.path.stat().st_mtime_ns // 1_000_000)
        quarantined = 0
        while is_contested or not await self._is_covered(stream.incarnation, chunk):
            await self._archive.check_cluster(stream)
            tell("waiting")
            async with self._slots.take(backfill=is_backfill, since=since):
                tell("staging")
                rolled = await self._archive.stage(chunk, stream, self._every_ms)
            self._metrics.staged(stream, rolled.size_bytes)
            is_known_bad = await self._archive.is_copy_in_quarantine(rolled)
            before = await self._archive.quarantine_of(rolled)
            await self._archive.announce(rolled)
            self._metrics.announced(stream, rolled.size_bytes)
            tell("announced")
            if is_known_bad or not await self._is_archived(rolled, before, is_contested=is_contested):
                quarantined += 1
                if is_contested or quarantined == MAX_QUARANTINES:
                    log.error("%s failed verification and is in quarantine", rolled)
                    self._metrics.quarantined(stream)
                    return
            else:
                self._metrics.archived(stream, rolled.size_bytes)
                if is_contested:
                    return

    async def _is_covered(self, life: Incarnation, chunk: SegmentSlice | SegmentRolled) -> bool:
        return await self.covered_to(life, chunk.first_offset, chunk.next_offset) >= chunk.next_offset

    async def _is_archived(self, rolled: SegmentRolled, before: object, *, is_contested: bool) -> bool:
        """Wait until an announced slice is archived, or in quarantine. Raises UnavailableError when neither comes."""
        deadline = asyncio.get_running_loop().time() + ANNOUNCE_AGAIN_S
        delay_s = FIRST_POLL_S
        while True:
            # Of what is contested it says nothing that its offsets are covered: it is judged when it is staged no more.
            is_judged = is_contested and not await self._archive.is_staged(rolled)
            if not is_contested and await self._is_covered(rolled.stream.incarnation, rolled):
                return True
            if await self._archive.quarantine_of(rolled) != before:
                return False
            if is_judged:
                return True
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(
                    f"{rolled} was announced {ANNOUNCE_AGAIN_S:.0f} s ago and is not archived; it is announced again."
                    " See the upload function's log and its dead-letter queue"
                )
            await asyncio.sleep(random.uniform(0.5, 1) * delay_s)  # noqa: S311  jitter, not a secret
            delay_s = min(1.5 * delay_s, MAX_POLL_S)
