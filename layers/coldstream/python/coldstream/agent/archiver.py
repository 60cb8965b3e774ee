"""The archiver of one stream: pins, proves, stages, announces, and lets go, oldest first.

The next slice is announced only when the manifest covers the one before, so that the archive of a stream grows without
holes, and a reader that starts at its first offset misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from coldstream.agent.archive import Archive
from coldstream.agent.disk import Hole, StreamDisk, Wanted
from coldstream.agent.identity import StreamIdentity
from coldstream.agent.management import BrokerStream
from coldstream.agent.memory import Loss, MemoryFile
from coldstream.agent.metrics import AgentMetrics, Service
from coldstream.agent.naming import Naming
from coldstream.agent.proof import Broker, Verdict
from coldstream.agent.retention import retention_left_s
from coldstream.agent.rules import Rules
from coldstream.agent.slots import Slots
from coldstream.agent.status import StreamStatus
from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import AccessDeniedError, ColdstreamError, NotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Offset, TimestampMs, now_ms

log = logging.getLogger(__name__)

Found = TypeVar("Found")

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 60.0
LOOK_AGAIN_S = 0.05
FIRST_POLL_S = 0.1
MAX_POLL_S = 5.0

ANNOUNCE_AGAIN_S = 600.0
"""An event that has come to nothing for so long is put again: it may have ended in the dead-letter queue."""

MAX_QUARANTINES = 2
"""Copies of a slice that fail verification before it is left there: the first may have been another replica's."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the archivers of all streams share."""

    archive: Archive
    broker: Broker
    naming: Naming
    slots: Slots
    rules: Rules
    metrics: AgentMetrics
    scan_s: float
    every_ms: int | None
    host: str


class StreamArchiver:
    """Archives one incarnation, until it is deleted at the broker and nothing of it is left here.

    `is_backfill` says that it had rolled segments when the agent came; that ends once it has caught up.
    """

    def __init__(
        self, incarnation: Incarnation, disk: StreamDisk, memory: MemoryFile, services: Services, *, is_backfill: bool
    ) -> None:
        self.incarnation = incarnation
        self.disk = disk
        self.state = "starting"
        self.identity = StreamIdentity(incarnation, memory, services.broker, services.naming, self._find)
        self._services = services
        self._is_backfill = is_backfill
        self._archived_to: Offset | None = None
        self._last_failure: str | None = None
        self._rolled = asyncio.Event()
        self._news = asyncio.Event()
        self._disk_turn = asyncio.Lock()

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        return self.identity.stream

    def wake(self) -> None:
        """Look at the broker's directory at once."""
        self._rolled.set()

    async def run(self) -> None:
        """Archive until the stream is gone. What fails is told, and tried again later: nothing here gives up."""
        pinning = asyncio.create_task(self._pin(), name=f"pins of {self.incarnation}")
        try:
            await self._archive_on()
        finally:
            pinning.cancel()
            await asyncio.gather(pinning, return_exceptions=True)

    async def _pin(self) -> None:
        """Pin what comes, whatever the rest is busy with."""
        while True:
            self._rolled.clear()
            try:
                await self._on_disk(self.disk.look, self._archived_to or Offset(0))
            except FileNotFoundError:
                pass  # deleted while it was looked at
            except (ColdstreamError, OSError) as err:
                self._failed(err)
            self._news.set()
            await _wait(self._rolled, random.uniform(0.8, 1.0) * self._services.scan_s)  # noqa: S311  jitter

    async def _archive_on(self) -> None:
        delay_s = FIRST_DELAY_S
        while self.state not in {"deleted", "excluded"}:
            self._news.clear()
            try:
                goes_on = await self._step()
            except FileNotFoundError:  # a pin was let go, or the broker truncated: look again
                self.wake()
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            except Exception as err:  # noqa: BLE001  one stream's trouble, even a bug, must not stop the others
                self._failed(err)
                await asyncio.sleep(random.uniform(delay_s / 2, delay_s))  # noqa: S311  jitter, not a secret
                delay_s = min(2 * delay_s, MAX_DELAY_S)
                continue
            delay_s = FIRST_DELAY_S
            self._last_failure = None
            if not goes_on:
                self._is_backfill = False
                await _wait(self._news, self._pause_s())

    async def give_up_oldest(self, why: str) -> None:
        """Let go of the oldest pin although it is not archived; what is lost by that is written down first.

        Raises OSError when it cannot be written down.
        """
        given_up = await self._on_disk(self.disk.oldest)
        if given_up is None:
            return
        first_offset = max(given_up.first_offset, self._archived_to or Offset(0))
        if first_offset < given_up.next_offset:
            self._lose(Loss(first_offset, given_up.next_offset, why))
        await self._on_disk(self.disk.release_oldest)
        await self._go_on(max(first_offset, given_up.next_offset))

    async def status(self, known: BrokerStream | None) -> StreamStatus:
        """Take a snapshot; `known` is what the broker says of the stream's retention."""
        return await self._on_disk(self._status, known)

    async def _step(self) -> bool:
        """Do one thing; return whether there may be more to do at once."""
        if not self.disk.segments:
            self._end_if_deleted()
            return False
        if self._archived_to is None:
            await self._go_on(await self._covered_to(self.disk.segments[0].first_offset))
        if self._archived_to is None or not await self._is_wanted():
            return False
        await self._tell_losses()
        found = await self._on_disk(self.disk.wanted, self._archived_to, now_ms())
        if isinstance(found, Hole):
            await self._pass(found)
            return True
        return await self._archive_one_of(found)

    async def _archive_one_of(self, found: list[Wanted]) -> bool:
        for wanted in found:
            if await self._is_committed(wanted):
                await self._archive(wanted)
                return True
        if not self.disk.pins.is_live and await self.identity.is_gone():
            await self._finish_deleted()
            return True
        self.state = "following"
        return False

    async def _is_wanted(self) -> bool:
        """Find out which stream this is, and whether it is to be archived."""
        if self.stream is None:
            chunk = await self._on_disk(self.disk.first_user_chunk)
            self.state = "empty" if chunk is None else "unnamed"
            if chunk is None or not await self.identity.find_names(chunk.header):
                if not self.disk.pins.is_live:
                    log.error("%s was deleted before it had a name; what it held is not archived", self.incarnation)
                    self._end("deleted")
                return False
        assert self.stream is not None
        if not self._services.rules.take(self.stream):
            self._end("excluded")
            return False
        return True

    async def _is_committed(self, wanted: Wanted) -> bool:
        if wanted.slice.next_offset <= self.identity.committed_to:
            return True
        try:
            verdict = await self.identity.prove(wanted.witness.header)
        except NotFoundError:
            if self.disk.pins.is_live:
                raise
            return False
        if verdict is Verdict.ANOTHER and self.disk.pins.is_live:
            chunk_id = wanted.witness.header.chunk_id
            if await self._on_disk(self.disk.drop_uncommitted, chunk_id):
                log.warning("%s: let go of a segment with chunks that were never committed", self.stream)
                raise FileNotFoundError
            raise UnavailableError(f"{self.stream}: the broker has another chunk at {chunk_id}; this replica is behind")
        return wanted.slice.next_offset <= self.identity.committed_to

    async def _archive(self, wanted: Wanted) -> None:
        """Stage and announce a slice, and wait until the manifest covers it, or it is in quarantine."""
        assert self.stream is not None
        metrics, archive, chunk = self._services.metrics, self._services.archive, wanted.slice
        since = TimestampMs(chunk.path.stat().st_mtime_ns // 1_000_000)
        quarantined = 0
        while await self._covered_to(chunk.first_offset, chunk.next_offset) < chunk.next_offset:
            self.state = "waiting"
            async with self._services.slots.take(backfill=self._is_backfill, since=since):
                self.state = "staging"
                rolled = await archive.stage(chunk, self.stream, self._services.every_ms)
            metrics.staged(self.stream, rolled.size_bytes)
            is_known_bad = await archive.is_copy_in_quarantine(rolled)
            before = await archive.quarantine_of(rolled)
            await archive.announce(rolled)
            metrics.announced(self.stream, rolled.size_bytes)
            self.state = "announced"
            if is_known_bad or not await self._is_archived(rolled, before):
                quarantined += 1
                if quarantined == MAX_QUARANTINES:
                    log.error("%s failed verification and is in quarantine", rolled)
                    metrics.quarantined(self.stream)
                    break
            else:
                metrics.archived(self.stream, rolled.size_bytes)
        await self._go_on(max(self._archived_to or Offset(0), chunk.next_offset))

    async def _is_archived(self, rolled: SegmentRolled, before: object) -> bool:
        """Wait until an announced slice is archived, or in quarantine. Raises UnavailableError when neither comes."""
        deadline = asyncio.get_running_loop().time() + ANNOUNCE_AGAIN_S
        delay_s = FIRST_POLL_S
        while True:
            if await self._covered_to(rolled.first_offset, rolled.next_offset) >= rolled.next_offset:
                return True
            if await self._services.archive.quarantine_of(rolled) != before:
                return False
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(
                    f"{rolled} was announced {ANNOUNCE_AGAIN_S:.0f} s ago and is not archived; it is announced again."
                    " See the upload function's log and its dead-letter queue"
                )
            await asyncio.sleep(random.uniform(0.5, 1) * delay_s)  # noqa: S311  jitter, not a secret
            delay_s = min(1.5 * delay_s, MAX_POLL_S)

    async def _pass(self, hole: Hole) -> None:
        """Go on behind offsets that are not on this disk; they are lost unless the archive has them."""
        covered_to = await self._covered_to(hole.first_offset, hole.next_offset)
        if covered_to < hole.next_offset:
            self._lose(Loss(covered_to, hole.next_offset, f"deleted at {self._services.host} before they were pinned"))
        await self._go_on(hole.next_offset)

    async def _go_on(self, archived_to: Offset) -> None:
        """Take note of how far the archive is, and let go of what it has."""
        self._archived_to = archived_to
        await self._on_disk(self.disk.look, archived_to)
        self._news.set()

    async def _finish_deleted(self) -> None:
        """End a stream that the broker has deleted: what could not be proven is given up, and that is said."""
        left = await self._on_disk(self.disk.unproven, self._archived_to or Offset(0))
        if left is not None:
            self._lose(Loss(left.first_offset, left.next_offset, "deleted before they were known to be committed"))
        await self._tell_losses()
        self._end("deleted")

    def _end_if_deleted(self) -> None:
        if self.disk.pins.is_live:
            self.state = "following"
        else:
            self._end("deleted")

    def _end(self, state: str) -> None:
        self.state = state
        self.disk.pins.release_all()
        self.identity.forget()

    async def _tell_losses(self) -> None:
        assert self.stream is not None
        for loss in self.identity.lost:
            await self._services.archive.announce_loss(self.stream, loss)
            self.identity.told(loss)

    def _lose(self, loss: Loss) -> None:
        self.identity.lose(loss)
        if self.stream is not None:
            self._services.metrics.lost(self.stream, loss.next_offset - loss.first_offset)

    async def _covered_to(self, first_offset: Offset, limit: int | None = None) -> Offset:
        found = await self._services.archive.covered_to(self.incarnation, first_offset, limit)
        self._services.metrics.contacted(Service.AWS)
        return found

    async def _find(self, chunk_id: Offset) -> ChunkHeader | None:
        found = await self._on_disk(self.disk.find, ChunkId(chunk_id))
        return None if found is None else found.header

    async def _on_disk(self, call: Callable[..., Found], *arguments: object) -> Found:
        """Look at the disk in a thread, one at a time."""
        async with self._disk_turn:
            return await asyncio.to_thread(call, *arguments)

    def _status(self, known: BrokerStream | None) -> StreamStatus:
        space = self.disk.pins.space()
        archived_to = self._archived_to or Offset(0)
        try:
            oldest_at, age = self.disk.age(archived_to)
            disk_to = self.disk.next_offset or archived_to
        except FileNotFoundError:  # let go meanwhile
            oldest_at, age, disk_to = None, None, archived_to
        left_s = None
        if age is not None and known is not None:
            left_s = retention_left_s(
                age, max_age_ms=known.max_age_ms, max_length_bytes=known.max_length_bytes, now=now_ms()
            )
        return StreamStatus(
            incarnation=self.incarnation,
            vhost=None if self.stream is None else self.stream.vhost,
            name=None if self.stream is None else self.stream.name,
            state=self.state,
            disk_from=self.disk.segments[0].first_offset if self.disk.segments else disk_to,
            disk_to=disk_to,
            committed_to=min(self.identity.committed_to, disk_to),
            archived_to=self._archived_to,
            pinned_segments=space.segments,
            pinned_bytes=space.size_bytes,
            orphaned_bytes=space.orphaned_bytes,
            oldest_unarchived_at=oldest_at,
            retention_left_s=left_s,
            last_failure=self._last_failure,
        )

    def _pause_s(self) -> float:
        """Return how long to rest: with a max-lag, spans of time close without anybody saying so."""
        every_ms = self._services.every_ms
        return self._services.scan_s if every_ms is None else min(self._services.scan_s, every_ms / 2000)

    def _failed(self, err: Exception) -> None:
        text = f"{type(err).__name__}: {err}"
        if text != self._last_failure:
            expected = isinstance(err, ColdstreamError | OSError)
            log.warning("%s: %s", self.stream or self.incarnation, err, exc_info=None if expected else err)
        self._last_failure = text
        self._services.metrics.failed(err, self.stream)
        if isinstance(err, AccessDeniedError):
            self._services.archive.renew()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
