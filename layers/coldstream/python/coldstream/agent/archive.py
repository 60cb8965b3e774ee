"""The archive as the agent uses it: stage, announce, and see what became of it. What blocks runs in threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from coldstream.agent.stream_file import PendingLoss
from coldstream.archive.commit import read_missing
from coldstream.archive.coverage import covered_to
from coldstream.archive.events import DETAIL_TYPE, LOST_DETAIL_TYPE, detail_of, source_of
from coldstream.archive.lost import SegmentLost
from coldstream.archive.quarantine import is_quarantined
from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import ConflictError, InvalidSettingError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.bus import EventBridgeBus, EventBus
from coldstream.ingest.multipart import PARTS_IN_FLIGHT
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.manifest.cluster import check_cluster
from coldstream.manifest.entry import FragmentEntry, Gap, Quarantine
from coldstream.manifest.holes import holes
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.settings import Settings
from coldstream.store.table import DynamoTable
from coldstream.units import MAX_OFFSET, Offset

log = logging.getLogger(__name__)

Found = TypeVar("Found")

LAST_ENTRIES = 10
"""Fragments read at a time where the last message is looked for; those of tracking chunks alone are rare."""

RENEW_S = 60.0

MAX_UPLOADS = 64
"""Slices staged at a time."""

MAX_REQUESTS = 32
"""Other requests to AWS at a time, of all streams."""


@dataclass(frozen=True, slots=True)
class Holes:
    """What of some offsets no entry covers, in order, each with its reason or None; and where the archive begins."""

    gaps: tuple[Gap, ...]
    archived_from: Offset | None


@dataclass(frozen=True, slots=True)
class Staging:
    """Whether segments of some offsets are staged, and how many parts there are of those that are being staged."""

    is_staged: bool
    parts: int


class StoppedError(Exception):
    """The agent is to end; what was staged so far is gone on with next time."""


class ArchiveClient:
    """One archive, of one table, bucket and bus."""

    def __init__(
        self, table: ManifestTable, objects: ObjectStore, bus: EventBus, keys: Keys, limit: BandwidthLimit
    ) -> None:
        self._table = table
        self._objects = objects
        self._bus = bus
        self._keys = keys
        self._limit = limit
        self._connect: Callable[[], tuple[ManifestTable, ObjectStore, EventBus]] | None = None
        self._renewed_at = time.monotonic()
        self._stopped = threading.Event()
        # Threads of their own, as many as may ever be asked for: these wait for bandwidth, and nothing else has to.
        self._stagers = ThreadPoolExecutor(MAX_UPLOADS, thread_name_prefix="stage")
        # And for requests: when AWS does not answer, each takes a thread for half a minute, and pinning must not wait.
        self._requests = ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="aws")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], limit: BandwidthLimit, uploads: int) -> ArchiveClient:
        """Make one for the archive that COLDSTREAM_* name, for so many uploads at a time.

        Raises InvalidSettingError, naming the variable.
        """
        settings = Settings.from_environment(environment)
        bus = environment.get("COLDSTREAM_EVENT_BUS")
        if not bus:
            raise InvalidSettingError("COLDSTREAM_EVENT_BUS", "is not set")

        def connect() -> tuple[ManifestTable, ObjectStore, EventBus]:
            objects = S3Objects(settings.bucket, connections=max(10, PARTS_IN_FLIGHT * uploads))
            return DynamoTable(settings.table), objects, EventBridgeBus(bus)

        archive = cls(*connect(), Keys(settings.prefix, settings.cluster), limit)
        archive._connect = connect
        return archive

    def renew(self) -> None:
        """Make the clients of AWS anew, once a minute at most: they find credentials that were renewed in a file.

        That takes a third of a second, and longer where credentials are asked for: a thread does it, later.
        """
        if self._connect is not None and time.monotonic() - self._renewed_at > RENEW_S and not self._stopped.is_set():
            self._renewed_at = time.monotonic()
            self._requests.submit(self._reconnect, self._connect)

    def stop(self) -> None:
        """End what is being staged, at the next piece, by a StoppedError."""
        self._stopped.set()
        self._limit.stop()
        self._stagers.shutdown(wait=False, cancel_futures=True)
        self._requests.shutdown(wait=False, cancel_futures=True)

    async def covered_to(self, incarnation: Incarnation, first_offset: Offset, limit: int | None) -> Offset:
        """Return how far the manifest covers a stream, from `first_offset` on, without a hole, and up to `limit`."""
        end = Offset(MAX_OFFSET if limit is None else limit)
        return await self._request(covered_to, self._table, incarnation, first_offset, end)

    async def holes(self, life: Incarnation, first_offset: Offset, next_offset: Offset, limit: int) -> Holes:
        """Return what of these offsets the manifest does not cover; of the gaps in it, the last `limit`."""
        return await self._request(self._holes, life, first_offset, next_offset, limit)

    async def staging(self, life: Incarnation, first_offset: Offset, next_offset: Offset) -> Staging:
        """Return what of these offsets is on its way in, whoever sends it. Cost: two listings."""
        return await self._request(self._staging, life, first_offset, next_offset)

    async def check_cluster(self, stream: StreamId) -> None:
        """Raise OtherClusterError when the stream is bound to another cluster: its events would be refused."""
        bound = await self._request(self._table.bound_cluster, stream.vhost, stream.name)
        check_cluster(stream, bound, self._keys.cluster)

    async def stage(self, chunk: SegmentSlice, stream: StreamId, every_ms: int | None) -> SegmentRolled:
        """Stage a slice, within the bandwidth."""
        work = partial(
            stage, chunk, stream, self._objects, self._keys, cut_every_ms=every_ms, on_bytes=self._before_bytes
        )
        return await asyncio.get_running_loop().run_in_executor(self._stagers, work)

    async def announce(self, rolled: SegmentRolled) -> None:
        """Put the event of a staged slice."""
        source = source_of(rolled.cluster)
        await self._request(self._bus.put, source=source, detail_type=DETAIL_TYPE, detail=detail_of(rolled))

    async def announce_loss(self, stream: StreamId, loss: PendingLoss) -> None:
        """Put the event of offsets that will never come."""
        lost = SegmentLost(
            stream, loss.first_offset, loss.next_offset, loss.reason, unseen=loss.unseen, cluster=self._keys.cluster
        )
        source = source_of(lost.cluster)
        await self._request(self._bus.put, source=source, detail_type=LOST_DETAIL_TYPE, detail=detail_of(lost))

    async def quarantine_of(self, rolled: SegmentRolled) -> Quarantine | None:
        """Return what is said of the last copy of a slice that went to quarantine, None when none did."""
        return await self._request(is_quarantined, self._table, rolled)

    async def is_copy_in_quarantine(self, rolled: SegmentRolled) -> bool:
        """Tell whether the very bytes that are staged went to quarantine before."""
        found = await self.quarantine_of(rolled)
        return found is not None and found.etag == rolled.etag

    async def is_staged(self, rolled: SegmentRolled) -> bool:
        """Tell whether an announced slice is still to be dealt with. Cost: a HEAD."""
        return await self._request(self._objects.info, rolled.staged_key) is not None

    async def newest_life(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream that is archived."""
        return await self._request(self._table.incarnation_of, vhost, name)

    async def last_entry(self, life: Incarnation, end: Offset = Offset(MAX_OFFSET)) -> FragmentEntry | None:  # noqa: B008
        """Return the last fragment of an incarnation that has messages, of those that end at or before `end`."""
        return await self._request(self._last_entry, life, end)

    async def _request(self, call: Callable[..., Found], *arguments: object, **named: object) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._requests, partial(call, *arguments, **named))

    def _reconnect(self, connect: Callable[[], tuple[ManifestTable, ObjectStore, EventBus]]) -> None:
        try:
            self._table, self._objects, self._bus = connect()
        except Exception as err:  # noqa: BLE001  the SDK's own, for one as a file is half written
            log.warning("no new clients of AWS: %s", err)

    def _holes(self, life: Incarnation, first_offset: Offset, next_offset: Offset, limit: int) -> Holes:
        head = self._table.head(life)
        gaps = self._table.gaps_before(life, next_offset, limit) if head is not None and head.gaps else ()
        missing = () if head is None else read_missing(self._table, head)
        found = tuple(holes(head, gaps, missing, first_offset, next_offset))
        return Holes(found, None if head is None else head.first_offset)

    def _staging(self, life: Incarnation, first_offset: Offset, next_offset: Offset) -> Staging:
        def is_about(key: str) -> bool:
            found = self._keys.staged_offsets(key)
            return found is not None and found[0] < next_offset and first_offset < found[1]

        prefix, parts = self._keys.staging(life), 0
        for key, upload_id in self._objects.uploads_under(prefix):
            with suppress(ConflictError):  # completed or aborted since
                parts += len(self._objects.parts(key, upload_id)) if is_about(key) else 0
        # After that, so that what is completed meanwhile is seen.
        return Staging(any(is_about(key) for key in self._objects.keys(prefix)), parts)

    def _last_entry(self, life: Incarnation, offset: Offset) -> FragmentEntry | None:
        while entries := self._table.log_before(life, offset, LAST_ENTRIES):
            found = next((entry for entry in entries if entry.last_user_chunk is not None), None)
            if found is not None:
                return found
            offset = min(entry.first_offset for entry in entries)
        return None

    def _before_bytes(self, size_bytes: int) -> None:
        self._limit.take(size_bytes)
        if self._stopped.is_set():
            raise StoppedError
