"""Tracking: the sequences of deduplicating publishers, and the offsets and timestamps that consumers store.

    tracking chunk  delta or snapshot: one simple entry whose message is tracking records
    user chunk      its trailer is tracking records, of the delta kind

    record in a delta or a trailer
     0  type       u8   0 sequence, 1 offset, 2 timestamp
     1  length     u8   bytes of the id
     2  id         …    of the publisher or the consumer: any bytes, commonly UTF-8
        value      u64  publishing id or offset; i64 ms for a timestamp

    record in a snapshot: the same, but a sequence has the chunk id (u64) it was written at before its value

All integers are big-endian. No checksum covers a trailer. Upstream: `osiris_tracking.erl`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from coldstream.errors import BadLengthError, BadVersionError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkType
from coldstream.format.entry import SIMPLE_HEADER_BYTES, SubBatch, iter_entries
from coldstream.units import ChunkId, Offset, TimestampMs

MAX_SEQUENCES = 255
"""Publishers in a snapshot. If there are more, those of the newest chunks stay."""


class TrackingType(IntEnum):
    """The kind of a tracked value."""

    SEQUENCE = 0
    OFFSET = 1
    TIMESTAMP = 2


_PREFIX = struct.Struct(
    ">"
    "B"  # type
    "B"  # id, bytes
)
_VALUE = struct.Struct(">Q")
_TIMESTAMP = struct.Struct(">q")  # ms
_SEQUENCE_IN_SNAPSHOT = struct.Struct(
    ">"
    "Q"  # chunk id
    "Q"  # publishing id
)
assert (_PREFIX.size, _VALUE.size, _TIMESTAMP.size, _SEQUENCE_IN_SNAPSHOT.size) == (2, 8, 8, 16)


@dataclass(frozen=True, slots=True)
class TrackingRecord:
    """The value tracked under `id`. Only a sequence in a snapshot has a `chunk_id`."""

    type: TrackingType
    id: bytes
    value: int
    chunk_id: ChunkId | None = None

    def to_bytes(self) -> bytes:
        """Encode. Raises OverflowError for an id of more than 255 bytes, or a number that does not fit its field."""
        try:
            prefix = _PREFIX.pack(self.type, len(self.id)) + self.id
            if self.chunk_id is not None:
                return prefix + _SEQUENCE_IN_SNAPSHOT.pack(self.chunk_id, self.value)
            value = _TIMESTAMP if self.type is TrackingType.TIMESTAMP else _VALUE
            return prefix + value.pack(self.value)
        except struct.error as err:
            raise OverflowError(f"no tracking record can say {self}") from err


def iter_tracking(chunk: Chunk, *, source: str) -> Iterator[TrackingRecord]:
    """Yield the tracking records of a chunk of any type; a user chunk has them in its trailer.

    Raises BadVersionError for an unknown type of record, BadLengthError for a record that runs past the end, and for a
    tracking chunk that is not one simple entry.
    """
    header = chunk.header
    if header.type is ChunkType.USER:
        position = chunk.position + header.total_bytes - header.trailer_bytes
        yield from iter_tracking_records(chunk.trailer, source=source, position=position)
        return
    position = chunk.position + CHUNK_HEADER_BYTES + header.bloom_bytes + SIMPLE_HEADER_BYTES
    is_snapshot = header.type is ChunkType.TRACKING_SNAPSHOT
    for entry in iter_entries(chunk, source=source):
        if isinstance(entry, SubBatch):
            raise BadLengthError(source, entry.position, "sub-batch in a tracking chunk")
        yield from iter_tracking_records(entry, source=source, position=position, is_snapshot=is_snapshot)


def iter_tracking_records(
    view: memoryview, *, source: str, position: int, is_snapshot: bool = False
) -> Iterator[TrackingRecord]:
    """Yield the records that make up `view`, which lies at byte `position` of `source`.

    Raises BadVersionError for an unknown type of record, BadLengthError for one that runs past the end.
    """
    at, end = 0, len(view)
    while at < end:
        begin = at
        if at + _PREFIX.size > end:
            raise _overrun(source, position + begin, position + end)
        type_number, id_bytes = _PREFIX.unpack_from(view, at)
        if type_number > TrackingType.TIMESTAMP:
            raise _unknown_type(source, position + begin, type_number)
        kind = TrackingType(type_number)
        at += _PREFIX.size + id_bytes
        fields = _VALUE
        if kind is TrackingType.TIMESTAMP:
            fields = _TIMESTAMP
        elif is_snapshot and kind is TrackingType.SEQUENCE:
            fields = _SEQUENCE_IN_SNAPSHOT
        if at + fields.size > end:
            raise _overrun(source, position + begin, position + end)
        *chunk_id, value = fields.unpack_from(view, at)
        identity = bytes(view[at - id_bytes : at])
        at += fields.size
        yield TrackingRecord(kind, identity, value, ChunkId(chunk_id[0]) if chunk_id else None)


class TrackingCheck:
    """Checks that a trailer, fed in pieces that are cut anywhere, consists of whole records of known types.

    The check matters because no checksum covers a trailer or its length: a wrong length would make the chunks after the
    trailer part of it. Nothing is raised before `check`.
    """

    __slots__ = ("_has_type", "_rest", "_unknown")

    def __init__(self) -> None:
        self._rest = 0  # bytes that the current record still lacks
        self._has_type = False  # if set, the next byte is the length of an id
        self._unknown: int | None = None

    def feed(self, piece: memoryview) -> None:
        """Take the next piece. Nothing counts after the first record of an unknown type."""
        if self._unknown is not None:
            return
        at, end = self._rest, len(piece)
        while at < end:
            if self._has_type:
                # Trailers are of the delta kind, in which the value of every type has 8 bytes.
                at += 1 + piece[at] + _VALUE.size
            elif piece[at] > TrackingType.TIMESTAMP:
                self._unknown = piece[at]
                return
            else:
                at += 1
            self._has_type = not self._has_type
        self._rest = at - end

    def check(self, *, source: str, position: int) -> None:
        """Check the trailer, which begins at byte `position`. Raises the errors of `iter_tracking_records`."""
        if self._unknown is not None:
            raise _unknown_type(source, position, self._unknown)
        if self._rest or self._has_type:
            raise BadLengthError(source, position, "last tracking record runs past the end of the trailer")


@dataclass(slots=True)
class TrackingState:
    """The tracking that a stream's leader remembers until it writes it: the state of osiris_tracking.

    Records come out in the order of Erlang's maps of up to 32 keys (OTP 25). Larger maps have a hash order, which this
    does not reproduce.
    """

    sequences: dict[bytes, tuple[ChunkId, int]] = field(default_factory=dict)
    offsets: dict[bytes, Offset] = field(default_factory=dict)
    timestamps: dict[bytes, TimestampMs] = field(default_factory=dict)
    _pending: dict[tuple[TrackingType, bytes], TrackingRecord] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is tracked."""
        return not (self.sequences or self.offsets or self.timestamps)

    def add(self, record: TrackingRecord, chunk_id: ChunkId) -> None:
        """Remember a record of the delta kind; `chunk_id` is the id of the next chunk at that moment."""
        match record.type:
            case TrackingType.SEQUENCE:
                self.sequences[record.id] = (chunk_id, record.value)
            case TrackingType.OFFSET:
                self.offsets[record.id] = Offset(record.value)
            case TrackingType.TIMESTAMP:
                self.timestamps[record.id] = TimestampMs(record.value)
        self._pending[record.type, record.id] = record

    def flush(self) -> bytes:
        """Encode the records added since the last flush or snapshot, as a delta."""
        order = (TrackingType.TIMESTAMP, TrackingType.SEQUENCE, TrackingType.OFFSET)
        pending = sorted(self._pending.values(), key=lambda record: record.id, reverse=True)
        self._pending.clear()
        return b"".join(record.to_bytes() for kind in order for record in pending if record.type is kind)

    def snapshot(self, first_offset: Offset, first_timestamp: TimestampMs) -> bytes:
        """Encode everything as a snapshot, and forget values before the stream's first offset and timestamp."""
        self._pending.clear()
        self.offsets = {name: offset for name, offset in self.offsets.items() if offset >= first_offset}
        self.timestamps = {name: time for name, time in self.timestamps.items() if time >= first_timestamp}
        self.sequences = dict(sorted(self.sequences.items(), key=lambda item: item[1][0])[-MAX_SEQUENCES:])
        records = [
            *(TrackingRecord(TrackingType.TIMESTAMP, *item) for item in sorted(self.timestamps.items(), reverse=True)),
            *(TrackingRecord(TrackingType.OFFSET, *item) for item in sorted(self.offsets.items(), reverse=True)),
            *(
                TrackingRecord(TrackingType.SEQUENCE, name, sequence, chunk_id)
                for name, (chunk_id, sequence) in sorted(self.sequences.items(), reverse=True)
            ),
        ]
        return b"".join(record.to_bytes() for record in records)


def _unknown_type(source: str, position: int, found: int) -> BadVersionError:
    return BadVersionError(source, position, "type of a tracking record", expected="0, 1 or 2", found=found)


def _overrun(source: str, position: int, end: int) -> BadLengthError:
    return BadLengthError(source, position, "tracking record runs past the end", expected=f"to end by {end}")
