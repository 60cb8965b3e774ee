"""Pages of a stream's messages: any place in a stream of any size, by one Query and one ranged GET.

The Query gives the entry of the fragment that holds the place, whose sparse index tells the bytes. A time takes the
Query of the index by time before it, as everywhere (`resolve.attach`), and a gap a GetItem for its reason. Every chunk
is verified; a message that cannot be read is shown as one, and is no reason not to show the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from coldstream.browse.fragments import fragment_row
from coldstream.browse.limits import ON_ITS_OWN, ViewLimits
from coldstream.browse.message_listing import BeforeOffset, MessageListing, MessageQuery
from coldstream.browse.message_view import MessageView
from coldstream.browse.meter import ReadMeter
from coldstream.browse.pieces import piece_at_place, piece_before, piece_from, read_piece
from coldstream.browse.placed import PlacedMessage, placed_messages
from coldstream.browse.view_of import view_of
from coldstream.errors import GapError, NotFoundError
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.spec import LAST, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice
from coldstream.resolve.attach import attach
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset


def list_messages(table: ManifestReads, objects: ObjectReads, stream: StreamId, query: MessageQuery) -> MessageListing:
    """Return a page of messages. A gap at its place is the page, and so is the end of the archive.

    Cost: one Query and one GET of about a MiB, four at most; a Query more for a time, and for what comes before several
    fragments, a GetItem for a gap, and a GET more for each that `max_gets` allows and the page needs. Raises
    StreamNotFoundError if nothing of the stream is archived, CorruptionError for a damaged chunk, NotRestoredError,
    UnavailableError.
    """
    page = _MessagePages(ReadMeter(table, objects), stream, query)
    match query.at:
        case BeforeOffset(offset):
            return page.before(offset)
        case AtEnd("last"):
            return page.last()
        case spec:
            return page.onward(spec)


def read_message(
    table: ManifestReads, objects: ObjectReads, stream: StreamId, offset: Offset, limits: ViewLimits = ON_ITS_OWN
) -> MessageView:
    """Return the message at exactly an offset. Cost: one Query and one GET.

    Raises GapError, NotFoundError if no message has that offset, and the errors of `list_messages`.
    """
    found, header, entry = find_message(table, objects, stream, offset)
    return view_of(found, header, entry, limits)


def find_message(
    table: ManifestReads, objects: ObjectReads, stream: StreamId, offset: Offset
) -> tuple[PlacedMessage, ChunkHeader, FragmentEntry]:
    """Return the message at exactly an offset, the header of its chunk, and its fragment. Cost and errors as above."""
    found = attach(table, stream, AtOffset(offset), 1)
    match found:
        case Gap():
            raise GapError(str(stream), found.first_offset, found.next_offset, found.reason)
        case Tail(next_offset):
            raise NotFoundError(f"offset {offset} of {stream} is not archived: the archive ends before {next_offset}")
    entry = found.entries[0]
    if entry.first_offset <= offset:
        piece = piece_from(entry, offset, 1)
        for chunk in read_piece(objects, piece):
            for message in placed_messages(chunk, source=piece.key, from_offset=offset):
                if message.offset == offset:
                    return message, chunk.header, entry
                break
    raise NotFoundError(f"no message of {stream} has the offset {offset}")


class _MessagePages:
    """Reads one page of a stream."""

    def __init__(self, meter: ReadMeter, stream: StreamId, query: MessageQuery) -> None:
        self._meter = meter
        self._stream = stream
        self._query = query

    def onward(self, spec: OffsetSpec) -> MessageListing:
        """Return the page from a place on."""
        found = attach(self._meter.table, self._stream, spec, self._query.max_gets)
        match found:
            case Gap():
                return self._at_gap(found)
            case Tail():
                return self._at_tail(found)
        first = found.entries[0]
        if isinstance(spec, AtTimestamp):
            piece = piece_at_place(first, found.start)
            chunks = self._read(piece)
            late = next((chunk for chunk in chunks if chunk.header.timestamp >= spec.timestamp), None)
            at = piece.next_offset if late is None else Offset(late.header.chunk_id)
        else:
            at = max(spec.offset, first.first_offset) if isinstance(spec, AtOffset) else first.first_offset
            piece = piece_from(first, at, self._query.limit)
            chunks = self._read(piece)
        views, reached = self._collect(found.entries, at, piece, chunks)
        tail = None
        if found.head is not None and found.head.next_offset is not None and reached >= found.head.next_offset:
            tail = found.head.next_offset
        start = views[0].offset if views else at
        return self._listing(
            views,
            first,
            next_=None if tail is not None and not _may_be_lost(found.head) else reached,
            previous=_before_is(first, start),
            tail=tail,
            floor=found.floor,
        )

    def last(self) -> MessageListing:
        """Return the last messages."""
        found = attach(self._meter.table, self._stream, LAST, 1)
        match found:
            case Gap():
                return self._at_gap(found)
            case Tail():
                return self._at_tail(found)
        entry = found.entries[0]
        # The last user chunk may hold fewer messages than the page, and tracking chunks may follow it.
        piece = piece_before(entry, Offset(found.start.chunk_id + 1), self._query.limit)
        views = self._last_of(entry, replace(piece, end=piece.next_offset))
        tail = found.entries[-1].next_offset
        start = views[0].offset if views else piece.start
        next_ = tail if _may_be_lost(found.head) else None
        return self._listing(views, entry, next_=next_, previous=_before_is(entry, start), tail=tail)

    def before(self, end: Offset) -> MessageListing:
        """Return the messages right before an offset."""
        if end <= 0:
            return self._listing([], None, next_=Offset(0))
        found = attach(self._meter.table, self._stream, AtOffset(Offset(end - 1)), 1)
        match found:
            case Gap():
                return self._at_gap(found)
            case Tail():
                return self.last()  # past the tail: what is before is the end of the archive
        entry = found.entries[0]
        if entry.first_offset >= end:
            return self._listing([], None, next_=entry.first_offset, floor=found.floor)
        views: list[MessageView] = []
        reached = end
        first = entry
        for one in self._backwards(entry):
            if one.next_offset < reached and one is not entry:
                break  # a hole: the page before this one shows it
            first = one
            piece = piece_before(one, min(reached, one.next_offset), self._query.limit - len(views))
            views = [*self._last_of(one, piece, self._query.limit - len(views)), *views]
            reached = piece.start
            if len(views) >= self._query.limit or reached > one.first_offset:
                break
        start = views[0].offset if views else reached
        return self._listing(views, first, next_=end, previous=_before_is(first, start))

    def _backwards(self, entry: FragmentEntry) -> Iterator[FragmentEntry]:
        """Yield a fragment and those before it, as many as the page may read; the Query for them only if needed."""
        yield entry
        more = self._query.max_gets - 1
        if more and entry.prior_offset is not None:
            yield from self._meter.table.log_before(self._stream.incarnation, entry.first_offset, more)

    def _collect(
        self, entries: Sequence[FragmentEntry], at: Offset, piece: ScanSlice, chunks: Sequence[Chunk]
    ) -> tuple[list[MessageView], Offset]:
        """Return the views from an offset on, and up to which offset they go, reading on as often as allowed."""
        views: list[MessageView] = []
        left = self._query.max_gets
        number = 0
        while True:
            entry = entries[number]
            rest = self._query.limit - len(views)
            views += islice(self._views(entry, chunks, at), rest)
            if len(views) == self._query.limit:
                return views, Offset(views[-1].offset + 1)
            at = max(at, piece.next_offset)
            left -= 1
            # While a compaction is under way, an entry may lie within the one before.
            while number < len(entries) and entries[number].next_offset <= at:
                number += 1
            if not left or number == len(entries) or entries[number].first_offset > at:
                return views, at
            piece = piece_from(entries[number], at, self._query.limit - len(views))
            chunks = self._read(piece)

    def _last_of(self, entry: FragmentEntry, piece: ScanSlice, limit: int | None = None) -> list[MessageView]:
        """Return the last messages of a piece."""
        chunks = self._read(piece)
        start = _start_of_last(chunks, piece.end, limit or self._query.limit)
        views = self._views(entry, chunks, start)
        return [view for view in views if view.offset < piece.end]

    def _views(self, entry: FragmentEntry, chunks: Sequence[Chunk], start: Offset) -> Iterator[MessageView]:
        for chunk in chunks:
            for message in placed_messages(chunk, source=entry.key, from_offset=start):
                yield view_of(message, chunk.header, entry, self._query.limits)

    def _read(self, piece: ScanSlice) -> list[Chunk]:
        return read_piece(self._meter.objects, piece)

    def _at_gap(self, gap: Gap) -> MessageListing:
        previous = gap.first_offset or None
        return self._listing([], None, next_=gap.next_offset, previous=previous, gap=gap)

    def _at_tail(self, tail: Tail) -> MessageListing:
        previous = tail.next_offset if tail.next_offset and tail.floor is None else None
        return self._listing([], None, previous=previous, tail=tail.next_offset, floor=tail.floor)

    def _listing(
        self,
        views: Sequence[MessageView],
        entry: FragmentEntry | None,
        *,
        next_: Offset | None = None,
        previous: Offset | None = None,
        gap: Gap | None = None,
        tail: Offset | None = None,
        floor: Offset | None = None,
    ) -> MessageListing:
        fragment = None if entry is None else fragment_row(entry)
        return MessageListing(self._stream, tuple(views), fragment, next_, previous, gap, tail, floor, self._meter.cost)


def _start_of_last(chunks: Sequence[Chunk], end: Offset, limit: int) -> Offset:
    """Return the offset of the message from which on there are `limit` messages before `end`, by the headers alone."""
    left = limit
    for chunk in reversed(chunks):
        header = chunk.header
        if header.type is ChunkType.USER:
            records = min(header.next_offset, end) - header.chunk_id
            if records >= left:
                return Offset(header.chunk_id + records - left)
            left -= records
    return Offset(0)


def _before_is(entry: FragmentEntry, start: Offset) -> Offset | None:
    """Return the end of the page before, None if the log begins here."""
    return None if entry.prior_offset is None and start <= entry.first_offset else start


def _may_be_lost(head: Head | None) -> bool:
    """Tell whether offsets past the tail may be known to be lost: then the next page says so."""
    return head is not None and bool(head.losses or head.quarantined)
