"""From an offset spec to the ranges that hold the stream from there on: one Query, and no request to S3.

Ranges are collected from entry to entry while each entry begins at or before the next offset of the one before. Entries
overlap while a compaction is in progress. The range of the later one then begins at the last point of its sparse index
at or before the next offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldstream.manifest.entry import FragmentEntry, Gap
from coldstream.manifest.spec import AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.resolve.answer import MAX_RANGES, Answer, Bounds, Range
from coldstream.resolve.attach import Attachment, attach
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import EntrySlice, Place, exact_place, rough_place, split
from coldstream.resolve.tail import Tail, past_tail
from coldstream.units import Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.store.ports import ManifestReads, ObjectReads


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A `RangesQuery` whose incarnation is known. The answer has ranges of `most_entries` at most, 2 or more."""

    stream: StreamId
    start: OffsetSpec | Cursor
    bounds: Bounds
    precise: bool = False
    most_entries: int = MAX_RANGES


def resolve(
    request: ResolveRequest, table: ManifestReads, objects: ObjectReads, *, now: TimestampMs, url_expiry_s: int
) -> Answer:
    """Answer with ranges, a gap or the tail.

    Cost: that of `attach`, one Query as a rule, and with `precise` two GETs. Raises StreamNotFoundError if nothing of
    the stream is archived.
    """
    # One entry more than ranges, to see what follows the last range.
    limit = min(request.bounds.max_ranges, request.most_entries) + 1
    found = attach(table, request.stream, request.start, limit)
    match found:
        case Gap():
            return Answer(request.stream, gap=found)
        case Tail():
            return Answer(request.stream, tail=found.next_offset, floor=found.floor)
    start = _exact_start(found, request, objects) if request.precise else found.start
    slices, gap = _collect(found, start, request.bounds)
    expires_at = TimestampMs(now + url_expiry_s * 1000)
    ranges = tuple(
        Range(
            bucket=objects.bucket,
            key=entry.key,
            byte_range=part.byte_range,
            first_offset=Offset(part.start.chunk_id),
            next_offset=part.next_offset,
            first_timestamp=part.start.timestamp,
            last_timestamp=part.last_timestamp,
            encoding=entry.encoding,
            data_bytes=part.data_bytes,
            crc32=entry.crc32,
            url=objects.presign_get(entry.key, part.byte_range, expires_s=url_expiry_s),
            expires_at=expires_at,
            storage_class=entry.storage_class,
            erased=entry.erased,
        )
        for entry, part in slices
    )
    next_offset = ranges[-1].next_offset
    cursor = Cursor(request.stream.incarnation, next_offset).to_text()
    to_be_continued = Answer(request.stream, ranges, cursor=cursor, floor=found.floor)
    if gap is not None:
        return replace(to_be_continued, cursor=None, gap=gap)
    # A lower tail is that of a head older than the entries: more entries may follow, so the client asks with a cursor.
    if found.head is not None and found.head.next_offset == next_offset:
        match past_tail(table, found.head, next_offset):
            case Gap() as lost:
                return replace(to_be_continued, cursor=None, gap=lost)
            case Tail():
                return replace(to_be_continued, cursor=None, tail=next_offset)
    return to_be_continued


def _exact_start(found: Attachment, request: ResolveRequest, objects: ObjectReads) -> Place:
    match request.start:
        case AtOffset() | AtTimestamp() as spec:
            return exact_place(objects, found.entries[0], spec)
        case Cursor(next_offset=offset):
            return exact_place(objects, found.entries[0], AtOffset(offset))
        case _:
            return found.start


def _collect(
    found: Attachment, start: Place, bounds: Bounds
) -> tuple[list[tuple[FragmentEntry, EntrySlice]], Gap | None]:
    """Take slices, at least one, up to the bounds, the end or a hole; return them, and the gap if one follows."""
    slices: list[tuple[FragmentEntry, EntrySlice]] = []
    total_bytes = 0
    next_offset: Offset | None = None
    for entry in found.entries:
        if next_offset is not None:
            if entry.next_offset <= next_offset:
                continue
            if entry.first_offset > next_offset:
                return slices, Gap(next_offset, entry.first_offset)
            start = rough_place(entry, AtOffset(next_offset))
        for part in split(entry, start, bounds.range_bytes):
            total_bytes += part.data_bytes
            if slices and (len(slices) == bounds.max_ranges or total_bytes > bounds.max_bytes):
                return slices, None
            slices.append((entry, part))
            next_offset = part.next_offset
    return slices, None
