"""The archive as the agent uses it: the announcer and the reads of the manifest, in threads, within the bandwidth."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from zlib import crc32

from coldstream.agent.archive_reads import (
    ArchiveHoles,
    StagingActivity,
    read_holes,
    read_last_entry,
    read_staging,
)
from coldstream.agent.stream_file import PendingLoss
from coldstream.archive.borders import QuietSpans
from coldstream.archive.coverage import covered_to
from coldstream.archive.envelope import LOST_DETAIL_TYPE, source_of
from coldstream.archive.events import detail_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import StoppedError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.announcer import SDK_CONNECTIONS, Announcement, Announcer, SliceOutcome
from coldstream.ingest.bus import EventBus
from coldstream.ingest.multipart import PARTS_IN_FLIGHT
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.cluster import NO_CLUSTER
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.object_values import DeleteReport
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.recovery_log import read_span_header
from coldstream.store.span_object import SpanHeader
from coldstream.units import MAX_OFFSET, Offset

log = logging.getLogger(__name__)

Result = TypeVar("Result")

RENEW_S = 60.0

MAX_UPLOADS = 64
"""Slices staged at a time."""

MAX_REQUESTS = 32
"""Other requests to AWS at a time, of all streams."""


class ArchiveClient:
    """One archive, of one table, bucket and bus. What blocks runs in threads of its own."""

    def __init__(
        self, table: ManifestTable, objects: ObjectStore, bus: EventBus, keys: Keys, limit: BandwidthLimit
    ) -> None:
        # One value, replaced as a whole by `renew`: no call mixes old clients and new ones.
        self._announcer = Announcer(table, objects, bus, keys)
        self._limit = limit
        self._connect: Callable[[], Announcer] | None = None
        self._renewed_at = time.monotonic()
        self._stopped = threading.Event()
        # Uploads have threads of their own, as many as there may ever be: they wait for bandwidth, and no request shall
        # wait behind them.
        self._stagers = ThreadPoolExecutor(MAX_UPLOADS, thread_name_prefix="stage")
        # Requests too: if AWS does not answer, each holds a thread for half a minute, and pinning, which uses the
        # loop's default threads, must not wait for one.
        self._requests = ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="aws")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], limit: BandwidthLimit, uploads: int) -> ArchiveClient:
        """Make one for the archive that COLDSTREAM_* name, and for so many uploads at a time.

        Raises InvalidSettingError, naming the variable.
        """
        connections = max(SDK_CONNECTIONS, PARTS_IN_FLIGHT * uploads)

        def connect() -> Announcer:
            return Announcer.from_environment(environment, connections=connections)

        first = connect()
        archive = cls(first.table, first.objects, first.bus, first.keys, limit)
        archive._connect = connect
        return archive

    @property
    def keys(self) -> Keys:
        """The keys of the archive, of the agent's cluster."""
        return self._announcer.keys

    def renew(self) -> None:
        """Make new clients of AWS, at most once a minute: they find credentials that were renewed in a file.

        That takes a third of a second, and longer if credentials have to be fetched, so a thread does it later.
        """
        if self._connect is not None and time.monotonic() - self._renewed_at > RENEW_S and not self._stopped.is_set():
            # Set before the thread is done: every stream that is refused meanwhile would start another attempt.
            self._renewed_at = time.monotonic()
            self._requests.submit(self._reconnect, self._connect)

    def stop(self) -> None:
        """End the uploads at their next part, by a StoppedError. The next run continues them."""
        # Set before the limit is stopped: an upload that it wakes must find that it is to end.
        self._stopped.set()
        self._limit.stop()
        # Not waited for: if AWS does not answer, a thread may be inside a request for half a minute.
        self._stagers.shutdown(wait=False, cancel_futures=True)
        self._requests.shutdown(wait=False, cancel_futures=True)

    async def covered_to(self, incarnation: Incarnation, first_offset: Offset, limit: Offset) -> Offset:
        """Return how far the manifest covers a stream, from `first_offset` on, without a hole, and up to `limit`."""
        return await self._request(covered_to, self._announcer.table, incarnation, first_offset, limit)

    async def holes(
        self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset, limit: int
    ) -> ArchiveHoles:
        """Return which of these offsets the manifest does not cover, as `read_holes` does."""
        return await self._request(read_holes, self._announcer.table, incarnation, first_offset, next_offset, limit)

    async def staging(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> StagingActivity:
        """Return what of these offsets is on its way in, as `read_staging` does."""
        # Read once, as `renew` may replace it between the two uses.
        announcer = self._announcer
        return await self._request(
            read_staging, announcer.objects, announcer.keys, incarnation, first_offset, next_offset
        )

    async def newest_incarnation(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream that is archived."""
        return await self._request(self._announcer.table.incarnation_of, vhost, name)

    async def last_entry(
        self,
        incarnation: Incarnation,
        end: Offset = Offset(MAX_OFFSET),  # noqa: B008  a NewType is its value
    ) -> FragmentEntry | None:
        """Return the last fragment with messages among those that end at or before `end`."""
        return await self._request(read_last_entry, self._announcer.table, incarnation, end)

    async def check_accepted(self, stream: StreamId) -> None:
        """Raise OtherClusterError or StreamDeletedError if the archive takes nothing of the stream now."""
        await self._request(self._announcer.check_accepted, stream)

    async def is_taken(self, stream: StreamId) -> bool:
        """Tell whether the stream is neither deleted from the archive nor of another cluster. Cost: two GetItems."""
        table = self._announcer.table
        if await self._request(table.bound_cluster, stream.vhost, stream.name) not in {NO_CLUSTER, self.keys.cluster}:
            return False
        head = await self._request(table.head, stream.incarnation)
        return head is None or not head.is_deleted

    async def put_span(self, key: str, body: bytes) -> None:
        """Put an object of the recovery log, within the bandwidth. Raises ObjectExistsError."""

        def put() -> None:
            self._before_bytes(len(body))
            self._announcer.objects.put_new(key, io.BytesIO(body), size_bytes=len(body), crc32=crc32(body))

        await asyncio.get_running_loop().run_in_executor(self._stagers, put)

    async def spans(self, node: str) -> tuple[str, ...]:
        """Return the keys of a node's recovery log, in order. Cost: one listing a thousand."""
        announcer = self._announcer
        return await self._request(lambda: tuple(announcer.objects.keys(announcer.keys.spans(node))))

    async def span_header(self, key: str) -> SpanHeader:
        """Read what an object of the recovery log holds, as `read_span_header`."""
        return await self._request(read_span_header, self._announcer.objects, key)

    async def delete_spans(self, keys: Sequence[str]) -> DeleteReport:
        """Delete objects of the recovery log."""
        return await self._request(self._announcer.objects.delete_many, keys)

    async def stage(
        self, slice_: SegmentSlice, stream: StreamId, every_ms: int | None, quiet: QuietSpans | None = None
    ) -> SegmentRolled:
        """Stage a slice, within the bandwidth."""
        work = partial(
            self._announcer.stage, slice_, stream, cut_every_ms=every_ms, quiet=quiet, on_bytes=self._before_bytes
        )
        return await asyncio.get_running_loop().run_in_executor(self._stagers, work)

    async def announce(self, rolled: SegmentRolled, *, is_contested: bool = False) -> Announcement:
        """Put the event of a staged slice."""
        return await self._request(self._announcer.put, rolled, is_contested=is_contested)

    async def outcome(self, announcement: Announcement) -> SliceOutcome:
        """Look once what became of an announced slice."""
        return await self._request(self._announcer.outcome, announcement)

    async def announce_loss(self, stream: StreamId, loss: PendingLoss) -> None:
        """Put the event of offsets that will never be archived."""
        announcer = self._announcer
        lost = SegmentLost(
            stream, loss.first_offset, loss.next_offset, loss.reason, unseen=loss.unseen, cluster=announcer.keys.cluster
        )
        await self._request(
            announcer.bus.put, source=source_of(lost.cluster), detail_type=LOST_DETAIL_TYPE, detail=detail_of(lost)
        )

    async def _request(self, call: Callable[..., Result], *arguments: object, **named: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._requests, partial(call, *arguments, **named))

    def _reconnect(self, connect: Callable[[], Announcer]) -> None:
        try:
            self._announcer = connect()
        except Exception as err:  # noqa: BLE001  the SDK's own errors, for one when a file is half written
            log.warning("new clients of AWS cannot be made, the old ones stay in use: %s", err)

    def _before_bytes(self, size_bytes: int) -> None:
        self._limit.take(size_bytes)
        # After the wait, because `stop` cuts it short: the part that waited must not be sent then.
        if self._stopped.is_set():
            raise StoppedError
