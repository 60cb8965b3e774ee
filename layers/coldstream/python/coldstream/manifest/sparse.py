"""The sparse index of a fragment: one point about every MiB of its chunks, small enough to live in the manifest.

Because of it one Query answers a lookup: the entry that holds an offset also tells its byte, to about a MiB.

    sparse index   version u8 (1) · points
    point          five varints: the differences to the point before, in chunk id, ordinal, position and timestamp,
                   then timestamp - greatest timestamp before; the first point's differences are to zero

Varints are LEB128; the last two are signed and zigzag-coded, as in Protocol Buffers. The first chunk has no greatest
timestamp before it; its own timestamp stands there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

from coldstream.errors import BadVersionError, CorruptionError, TruncatedError
from coldstream.manifest.varints import put_varint, read_varints, unzigzag, zigzag
from coldstream.units import MIB, ChunkId, Offset, TimestampMs

VERSION = 1

STEP_BYTES = MIB
"""A chunk that begins at least this far past the last point gets a point."""


class SparsePoint(NamedTuple):
    """The beginning of one chunk of a fragment. A named tuple, for a lookup makes hundreds of them.

    `ordinal` counts the chunks before it in the fragment, `position` is its byte in the object, and
    `greatest_before` is the greatest timestamp of those chunks, its own timestamp where there are none.
    """

    chunk_id: ChunkId
    ordinal: int
    position: int
    timestamp: TimestampMs
    greatest_before: TimestampMs


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """Points in the order of the chunks; the first is the fragment's first chunk."""

    points: tuple[SparsePoint, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a sparse index has at least the first chunk")

    def at_offset(self, offset: Offset) -> int:
        """Return the number of the last point at or before the chunk of `offset`; 0 for an offset below the first."""
        return max(0, bisect_right(self.points, int(offset), key=lambda point: int(point.chunk_id)) - 1)

    def at_timestamp(self, timestamp: TimestampMs) -> int:
        """Return the number of the last point before which every chunk is older than `timestamp`.

        The first chunk at or after `timestamp`, in offset order, is at that point or after it, and before the next
        point unless there is none in the fragment.
        """
        found = 0
        for number, point in enumerate(self.points[1:], start=1):
            if point.greatest_before >= timestamp:
                break
            found = number
        return found

    def to_bytes(self) -> bytes:
        """Encode; about 11 bytes a point."""
        out = bytearray((VERSION,))
        before = SparsePoint(ChunkId(0), 0, 0, TimestampMs(0), TimestampMs(0))
        for point in self.points:
            put_varint(out, point.chunk_id - before.chunk_id)
            put_varint(out, point.ordinal - before.ordinal)
            put_varint(out, point.position - before.position)
            put_varint(out, zigzag(point.timestamp - before.timestamp))
            put_varint(out, zigzag(point.timestamp - point.greatest_before))
            before = point
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> SparseIndex:
        """Decode. Raises CorruptionError, naming `source`, unless `data` is a sparse index."""
        if data[:1] != bytes((VERSION,)):
            raise BadVersionError(
                source, 0, "sparse index version", expected=VERSION, found=data[:1].hex() or "nothing"
            )
        # Whole columns at a time: a lookup decodes the points of several entries, some 60 each.
        numbers: list[Any] = read_varints(data[1:], source=source, position=1, what="sparse index")
        if len(numbers) % 5:
            raise TruncatedError(source, len(data), "sparse index ends inside a point")
        if not numbers:
            raise CorruptionError(source, 0, "sparse index without a point")
        chunk_ids, ordinals, positions = (accumulate(numbers[column::5]) for column in range(3))
        timestamps: list[Any] = list(accumulate(map(unzigzag, numbers[3::5])))
        greatest_before = map(sub, timestamps, map(unzigzag, numbers[4::5]))
        columns = zip(chunk_ids, ordinals, positions, timestamps, greatest_before, strict=True)
        return cls(tuple(map(SparsePoint._make, columns)))


def greatest(timestamps: Iterable[TimestampMs | None]) -> TimestampMs | None:
    """Return the greatest timestamp that is not None, or None if all are."""
    return max((timestamp for timestamp in timestamps if timestamp is not None), default=None)
