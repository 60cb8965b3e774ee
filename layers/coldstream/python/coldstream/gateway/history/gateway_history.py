"""`GatewayHistory`: the port on the manifest's table and the bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from coldstream.errors import ColdstreamError, CorruptionError, StreamNotFoundError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.bounds import KeptAnswers, KnownStream, find_stream
from coldstream.gateway.history.budget import ReadingBudget
from coldstream.gateway.history.calls import CallThreads
from coldstream.gateway.history.failures import count_failure
from coldstream.gateway.history.heap import HeapTrimmer
from coldstream.gateway.history.offset_notes import OffsetNotes
from coldstream.gateway.history.port import ArchivedHeader, StreamBounds
from coldstream.gateway.history.reading import PlannedReading, ReadingParts
from coldstream.gateway.history.stored_offsets import find_offset
from coldstream.manifest.shard_map import MAP_EVERY_S, ShardMap
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.presigned import PresignedReads
from coldstream.read.scan import ScanSlice, offset_of, plan_scan, read_slice
from coldstream.store.ports import ManifestReads, ManifestTable, ObjectReads
from coldstream.store.shard_maps import find_map
from coldstream.store.streams import iter_streams
from coldstream.units import MIB, Offset

T = TypeVar("T")

BOUNDS_KEPT_S = 2.0
LISTS_KEPT_S = 10.0

QUESTION_S = 20.0
"""How long anybody waits for an answer of table or bucket."""

FETCH_S = 90.0
"""How long one GET may take with all of its attempts, even if bytes trickle in."""

READ_TIMEOUT_S = 10.0
ATTEMPTS = 4
CONNECTIONS = 8
"""Of one reading; HTTP connections are opened as they are needed."""

LOOKUP_THREADS = 64
OBJECT_THREADS = 32
WRITE_THREADS = 8
FETCH_THREADS = 512
"""Threads are started as calls come. So many exist only if as many calls hang."""

BATCH_HEADS = 100
DEFAULT_BUDGET_BYTES = 256 * MIB


class GatewayHistory:
    """Implement `History` on one event loop: make it there, and close it there.

    `budget_bytes` bounds the chunks that all readings hold in memory. Beside it, questions that read the bucket hold
    about a MiB each, 32 of them at most, and each reading up to 0.5 MB of its plan.
    """

    def __init__(
        self,
        table: ManifestTable,
        objects: ObjectReads,
        *,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        figures: GatewayFigures | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._table = table
        self._figures = figures or GatewayFigures()

        def reads(connections: int = CONNECTIONS) -> PresignedReads:
            return PresignedReads(objects, connections=connections, read_timeout_s=read_timeout_s, attempts=attempts)

        # Threads of their own for each kind of call, so that none waits for another's that hang.
        self._lookups = CallThreads("lookups", LOOKUP_THREADS, within_s=QUESTION_S)
        self._questions = CallThreads("questions", OBJECT_THREADS, within_s=QUESTION_S)
        self._writes = CallThreads("offsets", WRITE_THREADS, within_s=QUESTION_S)
        self._fetches = CallThreads("fetches", FETCH_THREADS, within_s=FETCH_S)
        self._objects = reads(OBJECT_THREADS)
        self._budget = ReadingBudget(budget_bytes, self._figures)
        self._access = ReadingParts(table, reads, self._lookups, self._fetches, self._budget, self._figures)
        self._known = KeptAnswers(self._find_stream, kept_s=BOUNDS_KEPT_S)
        self._names = KeptAnswers(self._list_names, kept_s=LISTS_KEPT_S, most=100)
        self._maps = KeptAnswers(self._find_map, kept_s=MAP_EVERY_S)
        self._notes = OffsetNotes(table, self._writes, self._incarnation, self._figures)
        self._readings: set[PlannedReading] = set()
        self._trimmer = HeapTrimmer(lambda: bool(self._readings))

    async def bounds(self, vhost: str, stream: str, *, fresh: bool = False) -> StreamBounds | None:
        """Return the bounds. Cost: one GetItem every two seconds; a Query and two for a new name."""
        found = await self._counted(self._known.get((vhost, stream), fresh=fresh))
        return None if found is None else found.bounds

    async def attach(self, vhost: str, stream: str, spec: OffsetSpec) -> Offset | None:
        """Find where a spec attaches.

        Cost: that of `bounds`; for `last` and timestamps that of `scan.offset_of`, and past the tail a GetItem more.
        """
        if spec == NEXT:
            return None
        found = await self._counted(self._known.get((vhost, stream)))
        bounds = None if found is None else found.bounds
        if found is None or bounds is None or bounds.first_offset >= bounds.tail:
            return None
        if spec == FIRST:
            return bounds.first_offset
        if isinstance(spec, AtOffset):
            return max(spec.offset, bounds.first_offset) if spec.offset < bounds.tail else None
        try:
            offset = await self._counted(self._questions(offset_of, self._table, self._objects, found.stream, spec))
        except StreamNotFoundError:
            return None
        if offset >= bounds.tail:
            # Past what was known: either the tail, or a chunk that was archived since.
            now = await self._counted(self._known.get((vhost, stream), fresh=True))
            bounds = None if now is None or now.stream != found.stream else now.bounds
        return offset if bounds is not None and offset < bounds.tail else None

    async def header_at(self, vhost: str, stream: str, offset: Offset) -> ArchivedHeader | None:
        """Return the header of the chunk that holds an offset. Cost: one Query, and one GET of about a MiB."""
        found = await self._counted(self._known.get((vhost, stream)))
        if found is None:
            return None
        try:
            return await self._counted(self._read_header(found.stream, offset))
        except StreamNotFoundError:
            return None

    def read(
        self, vhost: str, stream: str, incarnation: Incarnation, start: Offset, end: Offset | None = None
    ) -> PlannedReading:
        """Read a stream."""
        reading = PlannedReading(self._access, StreamId(vhost, stream, incarnation), start, end, self._readings.discard)
        self._readings.add(reading)
        self._trimmer.start()
        return reading

    async def stored_offset(self, vhost: str, stream: str, reference: str) -> Offset | None:
        """Return what is noted here, or else in the table. Cost: that of `find_offset`, and of `bounds`."""
        noted = self._notes.noted((vhost, stream, reference), self._last_known(vhost, stream))
        known = await self._counted(self._known.get((vhost, stream))) if noted is None else None
        if known is None:
            return noted
        found = await self._counted(self._lookups(find_offset, self._table, known.stream, reference))
        return None if found is None else found.offset

    def note_offset(self, vhost: str, stream: str, reference: str, offset: Offset) -> None:
        """Note an offset. Cost: one PUT every five seconds for a reference that goes on."""
        self._notes.note((vhost, stream, reference), offset, self._last_known(vhost, stream))

    async def streams(self, vhost: str) -> tuple[str, ...]:
        """Return the names. Cost, every ten seconds: a Query every 500 streams, a BatchGetItem every 100."""
        return await self._counted(self._names.get(vhost))

    async def shard_map(self, vhost: str, name: str) -> ShardMap | None:
        """Return a map. Cost: one GetItem every ten seconds."""
        return await self._counted(self._maps.get((vhost, name)))

    async def flush(self) -> None:
        """Write the offsets that are noted."""
        await self._notes.flush()

    async def close(self) -> None:
        """Flush, and end everything. What hangs is not waited for, but the flush, for up to ten seconds."""
        for reading in list(self._readings):
            reading.close()
        await self._notes.flush()
        self._notes.close()
        self._trimmer.close()
        for answers in (self._known, self._names, self._maps):
            answers.close()
        self._objects.close()
        for calls in (self._lookups, self._questions, self._writes, self._fetches):
            calls.close()

    async def _read_header(self, stream: StreamId, offset: Offset) -> ArchivedHeader | None:
        try:
            return await self._questions(_header_at, self._table, self._objects, stream, offset)
        except CorruptionError:
            # Once more, as for what is delivered: it may have happened on the way here.
            return await self._questions(_header_at, self._table, self._objects, stream, offset)

    async def _find_stream(self, key: tuple[str, str]) -> KnownStream | None:
        now = asyncio.get_running_loop().time()
        return await self._lookups(find_stream, self._table, *key, self._known.peek(key), now)

    async def _list_names(self, vhost: str) -> tuple[str, ...]:
        return await self._lookups(_names_of, self._table, vhost)

    async def _find_map(self, key: tuple[str, str]) -> ShardMap | None:
        return await self._lookups(find_map, self._table, *key)

    def _last_known(self, vhost: str, stream: str) -> Incarnation | None:
        found = self._known.peek((vhost, stream))
        return None if found is None else found.stream.incarnation

    async def _incarnation(self, vhost: str, stream: str) -> Incarnation | None:
        found = await self._counted(self._known.get((vhost, stream)))
        return None if found is None else found.stream.incarnation

    async def _counted(self, question: Awaitable[T]) -> T:
        """Count a question that fails."""
        try:
            return await question
        except ColdstreamError as err:
            count_failure(self._figures, err)
            raise


def _header_at(table: ManifestReads, objects: ObjectReads, stream: StreamId, offset: Offset) -> ArchivedHeader | None:
    plan = plan_scan(table, stream, offset, Offset(offset + 1), exactly=True, slice_bytes=1)
    found = next(plan, None)
    if not isinstance(found, ScanSlice):
        return None
    for chunk in read_slice(objects, found):
        if chunk.header.chunk_id <= offset < chunk.header.next_offset:
            return ArchivedHeader(chunk.header, found.erased)
    return None


def _names_of(table: ManifestReads, vhost: str) -> tuple[str, ...]:
    """Return the names of a vhost that have an incarnation which is not deleted."""
    streams = [stream for stream in iter_streams(table) if stream.vhost == vhost]
    names: set[str] = set()
    for first in range(0, len(streams), BATCH_HEADS):
        some = streams[first : first + BATCH_HEADS]
        heads = table.heads([stream.incarnation for stream in some])
        names |= {
            stream.name
            for stream in some
            if (head := heads.get(stream.incarnation)) is not None and not head.is_deleted
        }
    return tuple(sorted(names))
