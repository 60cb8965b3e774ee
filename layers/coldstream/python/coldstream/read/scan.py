"""Scan: read offsets of one incarnation straight from the manifest and the bucket, for jobs that have access to both.

    for step in plan_scan(table, stream, start, end):
        match step:
            case Gap():
                ...                                 # stop, or report it and go on
            case ScanSlice():
                for chunk in read_slice(objects, step):
                    for message in messages(chunk, source=step.key, from_offset=step.start):
                        ...                         # while message.offset < step.end

Slices are values that travel: one process plans, others read. Every offset that was asked for is in exactly one slice,
between its `start` and its `end`. A slice's bytes are whole chunks, so they may hold a little more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from coldstream.errors import StreamNotFoundError, TruncatedError
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Encoding, FragmentEntry, Gap
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.chunkrange import iter_chunks_in
from coldstream.resolve.attach import attach
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import Place, rough_place, split
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import MIB, MIN_TIMESTAMP_MS, ByteRange, Offset, TimestampMs

SLICE_BYTES = 8 * MIB
PAGE_ENTRIES = 200
"""Entries that one Query reads: about 0.2 MB."""


@dataclass(frozen=True, slots=True)
class ScanSlice:
    """The offsets `start` up to, not including, `end`, and the bytes of one object that hold them.

    `byte_range` holds whole chunks in `encoding`. `first_offset` is the id of the first chunk and `first_timestamp` its
    time; `next_offset` is the offset after the last chunk; no chunk is later than `latest_timestamp`. `data_bytes` is
    the size of the chunks, and so the memory that reading them takes. With another encoding than `identity`, the bytes
    of the object come on top. `erased` says that some messages of the object may be erased.
    """

    start: Offset
    end: Offset
    key: str
    byte_range: ByteRange
    encoding: Encoding
    data_bytes: int
    first_offset: Offset
    next_offset: Offset
    first_timestamp: TimestampMs
    latest_timestamp: TimestampMs
    erased: bool = False


def plan_scan(
    table: ManifestReads,
    stream: StreamId,
    start: Offset,
    end: Offset | None = None,
    *,
    exactly: bool = False,
    slice_bytes: int = SLICE_BYTES,
    not_before: TimestampMs = TimestampMs(MIN_TIMESTAMP_MS),  # noqa: B008  a NewType is its value
    page_entries: int = PAGE_ENTRIES,
) -> Iterator[ScanSlice | Gap]:
    """Yield slices with everything archived from `start` up to, not including, `end`, and the gaps, in order.

    Without `end`, or with one past the tail, reading ends at the tail. A slice starts where the slice or gap before it
    ends. Gaps are those of the manifest, so they may begin before `start` or end after `end`. Offsets before the first
    archived one, and so those that were removed on purpose, are a gap only with `exactly`. A slice is larger than
    `slice_bytes` only if one chunk is, or if the sparse index has no point in between. Chunks older than `not_before`
    are left out as far as the sparse index shows.

    A page of `page_entries` fragments is in memory at a time: one of 64 MiB takes 15 KB.

    Cost: a GetItem, one Query a page, and one more and a GetItem for each gap, made as the iteration proceeds. Raises
    StreamNotFoundError if nothing of the stream is archived, or the stream is deleted.
    """
    for found in plan_entries(table, stream, start, end, exactly=exactly, page_entries=page_entries):
        if isinstance(found, Gap):
            yield found
        else:
            yield from slices_of(found.entry, found.start, end, slice_bytes, not_before)


@dataclass(frozen=True, slots=True)
class EntryFrom:
    """An entry that is read from the offset `start` on: what is before it is in the entry before."""

    entry: FragmentEntry
    start: Offset


def plan_entries(
    table: ManifestReads,
    stream: StreamId,
    start: Offset,
    end: Offset | None = None,
    *,
    exactly: bool = False,
    page_entries: int = PAGE_ENTRIES,
) -> Iterator[EntryFrom | Gap]:
    """Yield the entries and the gaps of what `plan_scan` reads, at the same cost. Raises StreamNotFoundError."""
    head = table.head(stream.incarnation)
    if head is None or head.stream != stream or head.is_deleted:
        raise StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
    at = start
    spec: AtOffset | Cursor = Cursor(stream.incarnation, start) if exactly else AtOffset(start)
    while end is None or at < end:
        found = attach(table, stream, spec, page_entries)
        match found:
            case Tail():
                return
            case Gap():
                yield found
                at = found.next_offset
            case _:
                # A start before the first archived offset means that one.
                at = max(at, found.entries[0].first_offset)
                for entry in found.entries:
                    # A hole: the next query begins at `at`, and answers with the gap.
                    if entry.first_offset > at or (end is not None and at >= end):
                        break
                    if entry.next_offset > at:
                        # From `at`: while a compaction is under way, a merged entry overlaps those it replaces.
                        yield EntryFrom(entry, at)
                        at = entry.next_offset
        # A cursor is exact. `AtOffset` before the first archived offset means that one, which would hide a hole.
        spec = Cursor(stream.incarnation, at)


def read_slice(objects: ObjectReads, part: ScanSlice) -> list[Chunk]:
    """Read a slice, verify all of it, and return the chunks that hold offsets from its `start` up to its `end`.

    Checks CRCs, and that each chunk follows the one before. The chunks share the slice's memory of `data_bytes`. Cost:
    one GET. Raises CorruptionError, ObjectNotFoundError (the plan is older than the grace period of what was removed:
    plan again), NotRestoredError, UnavailableError.
    """
    return list(iter_slice(objects, part))


def iter_slice(objects: ObjectReads, part: ScanSlice) -> Iterator[Chunk]:
    """Read a slice as `read_slice` does, at once, and yield its chunks, each verified when its turn comes."""
    chunks = iter_chunks_in(part, read_bytes(objects, part))
    return (chunk for chunk in chunks if chunk.header.next_offset > part.start and chunk.header.chunk_id < part.end)


def read_bytes(objects: ObjectReads, part: ScanSlice) -> bytes:
    """Read the bytes of a slice, as they are in the object. Cost and errors are those of `read_slice`."""
    data = objects.get_range(part.key, part.byte_range).data
    if len(data) != len(part.byte_range):
        raise TruncatedError(
            part.key, part.byte_range.start, "the object ends early", expected=len(part.byte_range), found=len(data)
        )
    return data


def offset_of(table: ManifestReads, objects: ObjectReads, stream: StreamId, spec: OffsetSpec) -> Offset:
    """Return the offset that a spec stands for: that of a chunk, or the tail if the spec is past everything archived.

    A timestamp stands for the first chunk, in offset order, at or after it. If a gap may hide an earlier one, it stands
    for the gap's first offset. Cost: that of `attach`, and for a timestamp one GET of about a MiB. Raises
    StreamNotFoundError if nothing is archived.
    """
    if isinstance(spec, AtOffset):
        return spec.offset
    found = attach(table, stream, spec, 1)
    match found:
        case Tail(next_offset):
            return next_offset
        case Gap():
            return found.first_offset
    if isinstance(spec, AtEnd):
        return Offset(found.entries[0].first_offset if spec == FIRST else found.start.chunk_id)
    for part in _steps(found.entries[0], found.start):
        for chunk in read_slice(objects, part):
            if chunk.header.timestamp >= spec.timestamp:
                return Offset(chunk.header.chunk_id)
    raise StreamNotFoundError(f"{stream} has no chunk at or after {spec}, although its manifest says so")


def slices_of(
    entry: FragmentEntry,
    start: Offset,
    end: Offset | None,
    slice_bytes: int = SLICE_BYTES,
    not_before: TimestampMs = TimestampMs(MIN_TIMESTAMP_MS),  # noqa: B008  a NewType is its value
) -> Iterator[ScanSlice]:
    """Yield slices of one fragment, each made of as many steps of its sparse index as fit."""
    last = entry.next_offset if end is None else min(end, entry.next_offset)
    joined: ScanSlice | None = None
    for step in _steps(entry, rough_place(entry, AtOffset(start))):
        if step.first_offset >= last:
            break
        if step.latest_timestamp < not_before:
            continue
        part = replace(step, start=max(start, step.start), end=min(last, step.end))
        if joined is None:
            joined = part
        elif joined.next_offset == part.first_offset and joined.data_bytes + part.data_bytes <= slice_bytes:
            # Only steps with none left out in between: a slice is one range of bytes.
            joined = replace(
                joined,
                end=part.end,
                byte_range=ByteRange(joined.byte_range.start, part.byte_range.end),
                data_bytes=joined.data_bytes + part.data_bytes,
                next_offset=part.next_offset,
                latest_timestamp=max(joined.latest_timestamp, part.latest_timestamp),
            )
        else:
            yield joined
            joined = part
    if joined is not None:
        yield joined


def _steps(entry: FragmentEntry, start: Place) -> Iterator[ScanSlice]:
    """Cut a fragment, from `start` on, at every point of its sparse index."""
    for part in split(entry, start, 1):
        # A point of the sparse index has the greatest timestamp up to it; the fragment's end has the last chunk's,
        # which is not the greatest if a clock ran backwards.
        is_last = part.next_offset == entry.next_offset
        yield ScanSlice(
            start=Offset(part.start.chunk_id),
            end=part.next_offset,
            key=entry.key,
            byte_range=part.byte_range,
            encoding=entry.encoding,
            data_bytes=part.data_bytes,
            first_offset=Offset(part.start.chunk_id),
            next_offset=part.next_offset,
            first_timestamp=part.start.timestamp,
            latest_timestamp=entry.greatest_timestamp if is_last else part.last_timestamp,
            erased=entry.erased,
        )
