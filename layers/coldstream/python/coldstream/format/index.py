"""Indexes: one record a chunk, beside each segment.

    index          header · records; all integers big-endian

    header, 8 bytes
     0  magic      4    "OSII"
     4  version    u32  1

    record, 29 bytes
     0  chunk id   u64
     8  timestamp  i64  ms since the Unix epoch
    16  epoch      u64
    24  position   u32  byte of the chunk in the segment
    28  type       u8   of the chunk

Brokers may preallocate, so all-zero records may follow the last one; a real one has a position of at least 8. A broker
that is writing, or stopped in the middle of it, leaves a record cut short at the end. Neither is an error. The index
has no checksum and may be ahead of its segment, so nothing is archived on its word.

Upstream: `osiris_log.erl` (write_chunk).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from coldstream.errors import BadLengthError, BadSequenceError, BadVersionError, TruncatedError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.segment import SEGMENT_HEADER_BYTES, check_file_header
from coldstream.units import ChunkId, Epoch, TimestampMs

INDEX_HEADER = b"OSII" + (1).to_bytes(4, "big")
INDEX_HEADER_BYTES = 8
assert len(INDEX_HEADER) == INDEX_HEADER_BYTES

INDEX_RECORD_BYTES = 29

_RECORD = struct.Struct(
    ">"
    "Q"  # chunk id
    "q"  # timestamp, ms
    "Q"  # epoch
    "I"  # position, bytes
    "B"  # type
)
assert _RECORD.size == INDEX_RECORD_BYTES

_PREALLOCATED = bytes(INDEX_RECORD_BYTES)
_RECORDS_A_READ = 2048


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """Where a chunk begins in its segment, and the fields that a search compares."""

    chunk_id: ChunkId
    timestamp: TimestampMs
    epoch: Epoch
    position: int
    type: ChunkType

    @classmethod
    def of(cls, header: ChunkHeader, position: int) -> IndexRecord:
        """Make the record of a chunk."""
        return cls(header.chunk_id, header.timestamp, header.epoch, position, header.type)

    @classmethod
    def from_bytes(cls, view: memoryview | bytes, *, source: str, position: int) -> IndexRecord:
        """Parse the 29 bytes at byte `position` of the index `source`.

        Raises TruncatedError, BadVersionError for an unknown chunk type, BadLengthError for an impossible position.
        """
        if len(view) < INDEX_RECORD_BYTES:
            raise TruncatedError(
                source, position, "index record is cut short", expected=INDEX_RECORD_BYTES, found=len(view)
            )
        chunk_id, timestamp, epoch, chunk_position, type_number = _RECORD.unpack_from(view)
        try:
            kind = ChunkType(type_number)
        except ValueError as err:
            raise BadVersionError(
                source, position, "chunk type in an index record", expected="0, 1 or 2", found=type_number
            ) from err
        if chunk_position < SEGMENT_HEADER_BYTES:
            raise BadLengthError(
                source,
                position,
                "position in an index record",
                expected=f"at least {SEGMENT_HEADER_BYTES}",
                found=chunk_position,
            )
        return cls(ChunkId(chunk_id), TimestampMs(timestamp), Epoch(epoch), chunk_position, kind)

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`. Raises OverflowError if a number does not fit its field."""
        try:
            return _RECORD.pack(self.chunk_id, self.timestamp, self.epoch, self.position, self.type)
        except struct.error as err:
            raise OverflowError(f"no index record can say {self}") from err


def iter_index(file: BinaryIO, *, source: str) -> Iterator[IndexRecord]:
    """Yield the records of an index, read from its first byte on, some 60 kB at a time.

    Stops at the first all-zero record, and before a record that is cut short at the end: the broker is writing it.
    Raises TruncatedError, BadMagicError and BadVersionError for the header, BadVersionError and BadLengthError for an
    impossible record, BadSequenceError unless chunk ids and positions rise.
    """
    check_file_header(file.read(INDEX_HEADER_BYTES), INDEX_HEADER, source=source)
    position = INDEX_HEADER_BYTES
    before: IndexRecord | None = None
    rest = b""
    while block := file.read(INDEX_RECORD_BYTES * _RECORDS_A_READ):
        view = memoryview(rest + block)
        whole = len(view) // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES
        for start in range(0, whole, INDEX_RECORD_BYTES):
            raw = view[start : start + INDEX_RECORD_BYTES]
            if raw == _PREALLOCATED:
                return
            record = IndexRecord.from_bytes(raw, source=source, position=position)
            if before is not None and (record.chunk_id <= before.chunk_id or record.position <= before.position):
                raise BadSequenceError(
                    source,
                    position,
                    "chunk id and position in an index record",
                    expected=f"above {before.chunk_id} and {before.position}",
                    found=(record.chunk_id, record.position),
                )
            yield record
            before = record
            position += INDEX_RECORD_BYTES
        rest = bytes(view[whole:])
