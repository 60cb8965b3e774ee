"""Places in a fragment: where in its object a range may begin and end.

Positions are those of the identity encoding, until `split` makes slices of them: only there do they become bytes of the
object. If the object consists of frames, a slice begins and ends with a frame, and so at points of the sparse index.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream.errors import BadSequenceError, CorruptionError, TruncatedError
from coldstream.format.fragment import (
    FRAGMENT_HEADER_BYTES,
    FRAGMENT_INDEX_RECORD_BYTES,
    FragmentIndexRecord,
)
from coldstream.format.index import INDEX_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.sparse import SparsePoint
from coldstream.manifest.spec import AtOffset, AtTimestamp
from coldstream.units import ByteRange, Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.store.ports import ObjectReads

READINGS = 4
"""Of an index, at most; two are enough unless the store misbehaves."""

Place = FragmentIndexRecord
"""Where a chunk begins: its id, its timestamp, and its position in the identity encoding."""


@dataclass(frozen=True, slots=True)
class EntrySlice:
    """Whole chunks of one fragment, from `start` on: `data_bytes` of them, in `byte_range` of the object."""

    start: Place
    next_offset: Offset
    last_timestamp: TimestampMs
    data_bytes: int
    byte_range: ByteRange


def rough_place(entry: FragmentEntry, spec: AtOffset | AtTimestamp) -> Place:
    """Find the last point of the sparse index at or before the chunk to attach at, up to about a MiB before it.

    The chunk must be in the fragment. Cost: no request.
    """
    return _place(entry.sparse.points[_point(entry, spec)])


def exact_place(objects: ObjectReads, entry: FragmentEntry, spec: AtOffset | AtTimestamp) -> Place:
    """Find the chunk to attach at in the fragment's own index. The chunk must be in the fragment.

    If the object consists of frames, which can only be read whole, return the first chunk of the chunk's frame.

    Cost: two GETs of the index records between two points of the sparse index, none if there is one record, or frames.
    Raises CorruptionError if the records contradict the manifest, or no two readings of them are the same.
    """
    number = _point(entry, spec)
    point = entry.sparse.points[number]
    is_last = number + 1 == len(entry.sparse.points)
    records = (entry.chunks if is_last else entry.sparse.points[number + 1].ordinal) - point.ordinal
    if records == 1 or _is_at(point, spec) or entry.frames is not None:
        return _place(point)
    start = FRAGMENT_HEADER_BYTES + entry.data_bytes + INDEX_HEADER_BYTES + point.ordinal * FRAGMENT_INDEX_RECORD_BYTES
    byte_range = ByteRange(start, start + records * FRAGMENT_INDEX_RECORD_BYTES)
    data = memoryview(_read_twice(objects, entry.key, byte_range))
    places = [
        Place.from_bytes(data[at : at + FRAGMENT_INDEX_RECORD_BYTES], source=entry.key, position=start + at)
        for at in range(0, len(data), FRAGMENT_INDEX_RECORD_BYTES)
    ]
    found = _exact(places, spec)
    # The manifest and the index describe the same chunk at the point: if not, one of them is wrong.
    if places[0] != _place(point) or found is None or not point.position <= found.position < _end(entry):
        raise BadSequenceError(entry.key, start, "index record", expected=_place(point), found=places[0])
    return found


def _read_twice(objects: ObjectReads, key: str, byte_range: ByteRange) -> bytes:
    """Read a range until two readings, one after the other, are the same.

    S3 tells no checksum of a range, and the index has none of its own: a wrong byte of a record could pass over chunks.
    """
    before = None
    for _ in range(READINGS):
        data = objects.get_range(key, byte_range).data
        if len(data) != len(byte_range):
            raise TruncatedError(key, byte_range.start, "index is cut short", expected=len(byte_range), found=len(data))
        if data == before:
            return data
        before = data
    raise CorruptionError(key, byte_range.start, f"of {READINGS} readings of the index no two are the same")


def split(entry: FragmentEntry, start: Place, range_bytes: int | None) -> Iterator[EntrySlice]:
    """Cut what follows `start` in a fragment at points of its sparse index, into slices of up to `range_bytes`.

    A slice is larger if the points allow no smaller one. If the object consists of frames, the first slice begins with
    the frame that holds `start`.
    """
    if entry.frames is not None:
        start = _place(entry.sparse.points[bisect_right(entry.sparse.points, start.position, key=_position) - 1])
    if range_bytes is not None:
        points = [point for point in entry.sparse.points if point.position > start.position]
        ends = [*(point.position for point in points), _end(entry)]
        for point, after in zip(points, ends[1:], strict=True):
            if after - start.position > range_bytes:
                yield _slice(entry, start, point.position, Offset(point.chunk_id), point.greatest_before)
                start = _place(point)
    yield _slice(entry, start, _end(entry), entry.next_offset, entry.last_timestamp)


def _slice(
    entry: FragmentEntry, start: Place, end: int, next_offset: Offset, last_timestamp: TimestampMs
) -> EntrySlice:
    if entry.frames is None:
        byte_range = ByteRange(start.position, end)
    else:
        first, following = (bisect_left(entry.sparse.points, at, key=_position) for at in (start.position, end))
        byte_range = entry.frames.byte_range(first, following)
    return EntrySlice(start, next_offset, last_timestamp, end - start.position, byte_range)


def _position(point: SparsePoint) -> int:
    return point.position


def _point(entry: FragmentEntry, spec: AtOffset | AtTimestamp) -> int:
    match spec:
        case AtOffset(offset):
            return entry.sparse.at_offset(offset)
        case AtTimestamp(timestamp):
            return entry.sparse.at_timestamp(timestamp)


def _exact(places: Sequence[Place], spec: AtOffset | AtTimestamp) -> Place | None:
    match spec:
        case AtOffset(offset):
            return next((place for place in reversed(places) if place.chunk_id <= offset), None)
        case AtTimestamp(timestamp):
            return next((place for place in places if place.timestamp >= timestamp), None)


def _is_at(point: SparsePoint, spec: AtOffset | AtTimestamp) -> bool:
    match spec:
        case AtOffset(offset):
            return point.chunk_id >= offset
        case AtTimestamp(timestamp):
            return point.timestamp >= timestamp


def _place(point: SparsePoint) -> Place:
    return Place(point.chunk_id, point.timestamp, point.position)


def _end(entry: FragmentEntry) -> int:
    """Position after the last chunk, where the fragment's index begins."""
    return FRAGMENT_HEADER_BYTES + entry.data_bytes
