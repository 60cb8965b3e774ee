"""Which bytes of a fragment to read for a place in it: those between two points of its sparse index, by one GET.

Points are about a MiB apart, and tell the ids of their chunks. So they also tell how many offsets lie between them, and
a piece is as short as its reader's page allows.
"""

from __future__ import annotations

from itertools import islice

from coldstream.format.chunk import Chunk
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry
from coldstream.read.scan import ScanSlice, read_slice
from coldstream.resolve.places import Place, split
from coldstream.store.ports import ObjectReads
from coldstream.units import MIB, Offset

MAX_PIECE_BYTES = 4 * MIB
"""Chunks of one piece at most, unless a single step of the index is larger."""


def piece_from(entry: FragmentEntry, start: Offset, offsets: int) -> ScanSlice:
    """Return the piece that begins at or before `start` and, if the fragment and the bound allow, has so many after."""
    points = entry.sparse.points
    first = entry.sparse.at_offset(start)
    following = first + 1
    while (
        following < len(points)
        and points[following].chunk_id - start < offsets
        and _position(entry, following + 1) - points[first].position <= MAX_PIECE_BYTES
    ):
        following += 1
    return _piece(entry, first, following, start=start)


def piece_before(entry: FragmentEntry, end: Offset, offsets: int) -> ScanSlice:
    """Return the piece that holds the offset before `end`, and so many before it, if fragment and bound allow."""
    points = entry.sparse.points
    first = entry.sparse.at_offset(Offset(end - 1))
    following = first + 1
    while (
        first > 0
        and end - points[first].chunk_id < offsets
        and _position(entry, following) - points[first - 1].position <= MAX_PIECE_BYTES
    ):
        first -= 1
    return _piece(entry, first, following, end=end)


def piece_at_place(entry: FragmentEntry, place: Place) -> ScanSlice:
    """Return the piece from a place of a point on, and the one after it if the bound allows.

    The chunk that a timestamp attaches at may be the last one before the next point, and then a page goes on there.
    """
    points = entry.sparse.points
    first = entry.sparse.at_offset(Offset(place.chunk_id))
    following = min(first + 2, len(points))
    if _position(entry, following) - points[first].position > MAX_PIECE_BYTES:
        following = first + 1
    return _piece(entry, first, following)


def read_piece(objects: ObjectReads, piece: ScanSlice) -> list[Chunk]:
    """Read a piece, and verify every chunk in it; return those with offsets from its start up to its end.

    Cost: one GET. Raises as `read_slice`.
    """
    return read_slice(objects, piece)


def _piece(
    entry: FragmentEntry, first: int, following: int, *, start: Offset | None = None, end: Offset | None = None
) -> ScanSlice:
    point = entry.sparse.points[first]
    place = Place(point.chunk_id, point.timestamp, point.position)
    size_bytes = None if following == len(entry.sparse.points) else _position(entry, following) - point.position
    (part,) = islice(split(entry, place, size_bytes), 1)
    return ScanSlice(
        start=Offset(max(point.chunk_id, start or 0)),
        end=part.next_offset if end is None else min(end, part.next_offset),
        key=entry.key,
        byte_range=part.byte_range,
        encoding=entry.encoding,
        data_bytes=part.data_bytes,
        first_offset=Offset(point.chunk_id),
        next_offset=part.next_offset,
        first_timestamp=point.timestamp,
        latest_timestamp=entry.greatest_timestamp,
    )


def _position(entry: FragmentEntry, point: int) -> int:
    """Return where a point's chunk begins, in the identity encoding; of the one after the last, where the data ends."""
    points = entry.sparse.points
    return points[point].position if point < len(points) else FRAGMENT_HEADER_BYTES + entry.data_bytes
