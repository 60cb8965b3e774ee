"""Search a stream's messages in slices, each bounded by bytes, time and matches: nothing goes on by itself.

    forecast = search_forecast(table, query)                # what it will read and cost, before it begins
    found = search_slice(table, objects, query)
    while found.cursor is not None:                         # whoever cancels does not ask again
        found = search_slice(table, objects, query, found.cursor)

A server keeps nothing between two slices: all that goes on is in the cursor. A gap ends a slice, so that nobody takes
what the archive lacks for searched; the next slice goes on after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from coldstream.browse.message_view import MessageView
from coldstream.browse.meter import ReadMeter
from coldstream.browse.names import StreamNames
from coldstream.browse.placed import PlacedMessage, placed_messages
from coldstream.browse.predicate_match import PredicateMatcher
from coldstream.browse.search_cursor import SearchCursor
from coldstream.browse.search_slice import SearchEnd, SearchProgress, SearchQuery, SearchSlice, SliceBounds
from coldstream.browse.view_of import view_of
from coldstream.errors import CorruptionError, StreamNotFoundError
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.manifest.stream import incarnation as check_incarnation
from coldstream.read.scan import ScanSlice, offset_of, plan_scan, read_slice
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import MIB, Offset

READ_BYTES = 4 * MIB
"""Chunks of one GET: what a slice holds in memory, and by what it may go past its bound."""

CLOCK_MESSAGES = 256
"""Messages after which a slice looks at the clock."""

_DEFAULT_BOUNDS = SliceBounds()


def search_slice(
    table: ManifestReads,
    objects: ObjectReads,
    query: SearchQuery,
    cursor: str | None = None,
    bounds: SliceBounds = _DEFAULT_BOUNDS,
    *,
    names: StreamNames | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchSlice:
    """Search on from a cursor, or begin.

    Cost: a GetItem, a Query for 200 fragments, and a GET for every 4 MiB of chunks, or for each smaller fragment; the
    first slice also finds the stream and its range: some Queries, and for each time a GET. Raises InvalidQueryError for
    a cursor of another search, StreamNotFoundError, CorruptionError for a damaged chunk, NotRestoredError,
    UnavailableError.
    """
    query.limits.check_many(bounds.max_matches)
    meter = ReadMeter(table, objects)
    deadline = clock() + bounds.max_seconds
    if cursor is None:
        begun = _begin(meter, query, names or StreamNames(meter.table))
    else:
        begun = SearchCursor.from_text(cursor, query)
    stream = StreamId(query.vhost, query.name, check_incarnation(begun.incarnation))
    search = _Search(query, bounds, meter, begun.progress, deadline, clock)
    ended_by, gap = search.run(stream)
    progress = replace(search.progress, cost=begun.progress.cost + meter.cost)
    goes_on = ended_by in {SearchEnd.SLICE, SearchEnd.GAP}
    return SearchSlice(
        matches=tuple(search.matches),
        progress=progress,
        ended_by=ended_by,
        cursor=SearchCursor(begun.incarnation, progress).to_text(query) if goes_on else None,
        gap=gap,
        incarnation=begun.incarnation,
    )


@dataclass(slots=True)
class _Search:
    """One slice of a search, under way."""

    query: SearchQuery
    bounds: SliceBounds
    meter: ReadMeter
    progress: SearchProgress
    deadline: float
    clock: Callable[[], float]
    matches: list[MessageView] = field(default_factory=list)
    slice_bytes: int = 0
    matcher: PredicateMatcher = field(init=False)

    def __post_init__(self) -> None:
        self.matcher = PredicateMatcher(self.query.predicate)

    def run(self, stream: StreamId) -> tuple[SearchEnd, Gap | None]:
        """Search up to the first bound, gap, or the end."""
        start, end = self.progress.next_offset, self.progress.end
        if start >= end:
            return SearchEnd.END, None
        # Exactly: what was removed between two slices is a gap, too.
        for step in plan_scan(self.meter.table, stream, start, end, exactly=True, slice_bytes=READ_BYTES):
            if isinstance(step, Gap):
                return SearchEnd.GAP, self._pass_gap(step)
            if (ended_by := self._read(step)) is not None:
                return ended_by, None
        self._reach(end)
        return SearchEnd.END, None

    def _pass_gap(self, gap: Gap) -> Gap:
        following = min(gap.next_offset, self.progress.end)
        missing = following - max(gap.first_offset, self.progress.next_offset)
        self.progress = replace(self.progress, gap_offsets=self.progress.gap_offsets + max(0, missing))
        self._reach(following)
        return gap

    def _read(self, step: ScanSlice) -> SearchEnd | None:
        if self.progress.chunk_bytes >= self.query.max_bytes:
            return SearchEnd.BOUND
        # One range is always read: a slice without any would never end.
        if self.slice_bytes and (self.slice_bytes >= self.bounds.max_bytes or self.clock() >= self.deadline):
            return SearchEnd.SLICE
        for chunk in read_slice(self.meter.objects, step):
            size_bytes = chunk.header.total_bytes
            self.slice_bytes += size_bytes
            self.progress = replace(self.progress, chunk_bytes=self.progress.chunk_bytes + size_bytes)
            if (ended_by := self._search_chunk(chunk, step)) is not None:
                return ended_by
            self._reach(min(chunk.header.next_offset, step.end))
            if self.clock() >= self.deadline:
                return SearchEnd.SLICE
        self._reach(step.end)
        return None

    def _search_chunk(self, chunk: Chunk, step: ScanSlice) -> SearchEnd | None:
        looked_at = unreadable = 0
        ended_by = None
        start = max(step.start, self.progress.next_offset)
        for message in placed_messages(chunk, source=step.key, from_offset=start):
            if message.offset >= step.end:
                break
            looked_at += 1
            try:
                if message.problem is not None:
                    unreadable += 1
                elif self.matcher.matches(message, chunk.header.timestamp):
                    ended_by = self._take(message, chunk, step)
            except CorruptionError:
                unreadable += 1
            # A sub-batch is unpacked whole, when its first message is asked for: that may take long.
            if ended_by is None and (looked_at % CLOCK_MESSAGES == 0 or message.place.is_sub_batch):
                ended_by = self._end_if_late(message)
            if ended_by is not None:
                break
        self.progress = replace(
            self.progress,
            messages=self.progress.messages + looked_at,
            unreadable=self.progress.unreadable + unreadable,
        )
        return ended_by

    def _end_if_late(self, message: PlacedMessage) -> SearchEnd | None:
        if self.clock() < self.deadline:
            return None
        self._reach(Offset(message.offset + 1))
        return SearchEnd.SLICE

    def _take(self, message: PlacedMessage, chunk: Chunk, step: ScanSlice) -> SearchEnd | None:
        entry = self.meter.entry(step.key)
        self.matches.append(view_of(message, chunk.header, entry, self.query.limits))
        self.progress = replace(self.progress, matches=self.progress.matches + 1)
        self._reach(Offset(message.offset + 1))
        if self.progress.matches >= self.query.max_matches:
            return SearchEnd.MATCHES
        return SearchEnd.SLICE if len(self.matches) >= self.bounds.max_matches else None

    def _reach(self, offset: Offset) -> None:
        self.progress = replace(self.progress, next_offset=max(offset, self.progress.next_offset))


def _begin(meter: ReadMeter, query: SearchQuery, names: StreamNames) -> SearchCursor:
    """Find the stream, and fix the range: what is archived from now on is not searched, so that a search ends."""
    stream = names.find(query.vhost, query.name, query.incarnation)
    head = meter.table.head(stream.incarnation)
    if head is None or head.is_deleted:
        raise StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
    tail = head.next_offset if head.next_offset is not None else Offset(0)
    least = head.first_offset if head.first_offset is not None else tail
    if head.first_offset is None:
        start = end = tail
    else:
        start = max(least, offset_of(meter.table, meter.objects, stream, query.start))
        end = tail if query.end is None else offset_of(meter.table, meter.objects, stream, query.end)
    end = max(start, min(end, tail))
    return SearchCursor(stream.incarnation, SearchProgress(start, start, end))
