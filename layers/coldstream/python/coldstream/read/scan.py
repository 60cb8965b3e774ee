"""Scan: read a range of offsets of one incarnation straight from the manifest and the bucket, for jobs that may.

    for step in plan_scan(table, stream, start, end):
        match step:
            case Gap():
                ...                                 # stop, or tell and go on
            case Slice():
                for chunk in read_slice(objects, step):
                    for message in messages(chunk, source=step.key, from_offset=step.start):
                        ...                         # while message.offset < step.end

Slices are values that travel: one process plans, others read. Each has the offsets `start` up to `end` of what is
wanted, and no other has those; its bytes are whole chunks, so a little more may be in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from coldstream.errors import StreamNotFoundError, TruncatedError
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Encoding, FragmentEntry, Gap
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.chunkrange import chunks_in
from coldstream.resolve.attach import attach
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import Place, rough_place, split
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import MIB, MIN_TIMESTAMP_MS, ByteRange, Offset, TimestampMs

SLICE_BYTES = 8 * MIB
PAGE_ENTRIES = 200
"""Read of the manifest at a time: about 0.2 MB."""


@dataclass(frozen=True, slots=True)
class ScanSlice:
    """What is wanted of one object: the offsets `start` up to, not including, `end`.

    `byte_range` of the object holds whole chunks with them, as `encoding` says: `first_offset` is the id of the first
    one, `next_offset` the offset after the last one, `first_timestamp` the first one's time; none is later than
    `latest_timestamp`. `data_bytes` is the size of the chunks, and so of the memory that reading them takes; where the
    encoding is not `identity`, the bytes of the object come on top.
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


def plan_scan(
    table: ManifestReads,
    stream: StreamId,
    start: Offset,
    end: Offset | None = None,
    *,
    exactly: bool = False,
    slice_bytes: int = SLICE_BYTES,
    not_before: TimestampMs = TimestampMs(MIN_TIMESTAMP_MS),  # noqa: B008  a NewType is its value
) -> Iterator[ScanSlice | Gap]:
    """Yield slices that have all that is archived from `start` up to, not including, `end`, and the gaps, in order.

    Without `end`, and with one past it, up to the tail. A slice starts where the one before ends, or a gap does. Gaps
    are as the manifest has them, so they may begin before `start` or end behind `end`. What retention has deleted
    before the first archived offset is a gap only when `exactly` is asked for. A slice is larger than `slice_bytes`
    where a chunk is, or where the sparse index has no point in between. Chunks that are all older than `not_before`
    are left out, as far as the sparse index tells.

    Cost: one Query for every 200 fragments, one more and a GetItem a gap; made as the steps are asked for. Raises
    StreamNotFoundError where nothing is archived of the stream.
    """
    at = start
    spec: AtOffset | Cursor = Cursor(stream.incarnation, start) if exactly else AtOffset(start)
    while end is None or at < end:
        found = attach(table, stream, spec, PAGE_ENTRIES)
        match found:
            case Tail():
                return
            case Gap():
                yield found
                at = found.next_offset
            case _:
                # What begins before the first archived offset begins there.
                at = max(at, found.entries[0].first_offset)
                for entry in found.entries:
                    if entry.first_offset > at or (end is not None and at >= end):
                        break
                    if entry.next_offset > at:
                        yield from _slices(entry, at, end, slice_bytes, not_before)
                        at = entry.next_offset
        spec = Cursor(stream.incarnation, at)


def read_slice(objects: ObjectReads, part: ScanSlice) -> list[Chunk]:
    """Read a slice, verify all of it, and return the chunks that hold something wanted.

    Checks CRCs, and that each chunk follows the one before. The chunks share the memory of the slice, `data_bytes` of
    it. Cost: one GET. Raises CorruptionError, ObjectNotFoundError (the plan is older than a compaction's grace
    period: plan again), UnavailableError.
    """
    data = objects.get_range(part.key, part.byte_range).data
    if len(data) != len(part.byte_range):
        raise TruncatedError(
            part.key, part.byte_range.start, "object is cut short", expected=len(part.byte_range), found=len(data)
        )
    return [
        chunk
        for chunk in chunks_in(part, data)
        if chunk.header.next_offset > part.start and chunk.header.chunk_id < part.end
    ]


def offset_of(table: ManifestReads, objects: ObjectReads, stream: StreamId, spec: OffsetSpec) -> Offset:
    """Return the offset that a spec stands for, to the chunk; the tail for what comes after all that is archived.

    A timestamp is the first chunk, in offset order, at or after it; where a gap may hide an earlier one, the gap's
    first offset. Cost: that of `attach`, and for a timestamp one GET of about a MiB. Raises StreamNotFoundError where
    nothing is archived.
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
    raise StreamNotFoundError(f"{stream} has no chunk at or after {spec}, against its manifest")


def _slices(
    entry: FragmentEntry, start: Offset, end: Offset | None, slice_bytes: int, not_before: TimestampMs
) -> Iterator[ScanSlice]:
    """Yield what is wanted of one fragment, steps of its sparse index put together."""
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
    """Cut a fragment at every point of its sparse index."""
    for part in split(entry, start, 1):
        # Up to a point that is the greatest timestamp so far; at the end, the last chunk's.
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
        )
