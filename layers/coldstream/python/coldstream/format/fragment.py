"""Fragments: a slice of a segment as one S3 object, encoding `identity`.

    fragment       "OSIL" u32(1) · chunks · "OSII" u32(1) · index records · trailer; all integers big-endian

    index record, 20 bytes, one a chunk
     0  chunk id         u64
     8  timestamp        i64  ms since the Unix epoch
    16  position         u32  byte of the chunk in the object; the first is 8

    trailer, 46 bytes
     0  first offset     u64  id of the first chunk
     8  first timestamp  u64  of the first chunk, ms; a negative one in two's complement
    16  next offset      u64  the offset after the last record
    24  sequence number  u16  of the fragment in its segment, from 0
    26  data size        u32  bytes of the chunks alone
    30  chunks before    u32  in the segment before this fragment
    34  data position    u32  byte in the segment at which the data begins
    38  index position   u32  byte in the object of the first index record, after "OSII" u32(1)
    42  index size       u32  bytes of the index records

This is the first version of the data objects of the rabbitmq-stream-s3 plugin. Upstream: `rabbitmq_stream_s3.hrl`
(FRAGMENT_TRAILER, INDEX_RECORD) and execute_task(#upload_fragment{}). The latter shows what "chunks before" and "data
position" really hold: the macro names them the other way round.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import BadLengthError, BadSequenceError, TruncatedError
from coldstream.format.chunk import CHUNK_HEADER_BYTES
from coldstream.format.index import INDEX_HEADER, INDEX_HEADER_BYTES
from coldstream.format.segment import SEGMENT_HEADER_BYTES, check_file_header
from coldstream.units import ByteRange, ChunkId, Offset, TimestampMs

FRAGMENT_HEADER_BYTES = SEGMENT_HEADER_BYTES
FRAGMENT_INDEX_RECORD_BYTES = 20
FRAGMENT_TRAILER_BYTES = 46
MAX_FRAGMENT_BYTES = (1 << 32) - 1
"""Bytes of the whole object at most: positions in it have 32 bits."""

_RECORD = struct.Struct(
    ">"
    "Q"  # chunk id
    "q"  # timestamp, ms
    "I"  # position, bytes
)
assert _RECORD.size == FRAGMENT_INDEX_RECORD_BYTES

_TRAILER = struct.Struct(
    ">"
    "Q"  # first offset
    "q"  # first timestamp, ms: signed, which reads the two's complement back
    "Q"  # next offset
    "H"  # sequence number
    "I"  # data, bytes
    "I"  # chunks before
    "I"  # data position, bytes
    "I"  # index position, bytes
    "I"  # index, bytes
)
assert _TRAILER.size == FRAGMENT_TRAILER_BYTES


@dataclass(frozen=True, slots=True)
class FragmentIndexRecord:
    """Where a chunk begins in its object. `position` counts from the object's first byte."""

    chunk_id: ChunkId
    timestamp: TimestampMs
    position: int

    @classmethod
    def from_bytes(cls, view: memoryview | bytes, *, source: str, position: int) -> FragmentIndexRecord:
        """Parse the 20 bytes at byte `position` of the fragment `source`. Raises TruncatedError for fewer."""
        if len(view) < FRAGMENT_INDEX_RECORD_BYTES:
            raise TruncatedError(
                source, position, "index record is cut short", expected=FRAGMENT_INDEX_RECORD_BYTES, found=len(view)
            )
        chunk_id, timestamp, chunk_position = _RECORD.unpack_from(view)
        return cls(ChunkId(chunk_id), TimestampMs(timestamp), chunk_position)

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`. Raises OverflowError if a number does not fit its field."""
        return index_record_bytes(self.chunk_id, self.timestamp, self.position)


def index_record_bytes(chunk_id: ChunkId, timestamp: TimestampMs, position: int) -> bytes:
    """Encode an index record without making one first, which would take most of the time.

    Raises OverflowError if a number does not fit its field.
    """
    try:
        return _RECORD.pack(chunk_id, timestamp, position)
    except struct.error as err:
        raise OverflowError(
            f"no index record of a fragment can say {FragmentIndexRecord(chunk_id, timestamp, position)}"
        ) from err


@dataclass(frozen=True, slots=True)
class FragmentTrailer:
    """The end of a fragment, which tells where everything else in it is."""

    first_offset: Offset
    first_timestamp: TimestampMs
    next_offset: Offset
    sequence_number: int
    data_bytes: int
    chunks_before: int
    data_position: int
    index_position: int
    index_bytes: int

    @property
    def chunks(self) -> int:
        """Chunks in the fragment."""
        return self.index_bytes // FRAGMENT_INDEX_RECORD_BYTES

    @property
    def data_range(self) -> ByteRange:
        """The chunks in the object."""
        return ByteRange(FRAGMENT_HEADER_BYTES, FRAGMENT_HEADER_BYTES + self.data_bytes)

    @property
    def index_range(self) -> ByteRange:
        """The index in the object, its "OSII" header included."""
        return ByteRange(self.index_position - INDEX_HEADER_BYTES, self.index_position + self.index_bytes)

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        return self.index_position + self.index_bytes + FRAGMENT_TRAILER_BYTES

    @classmethod
    def from_bytes(cls, view: memoryview | bytes, *, source: str, object_bytes: int) -> FragmentTrailer:
        """Parse the last 46 bytes of `view`, which ends where the object of `object_bytes` ends.

        Raises TruncatedError if there are fewer, BadLengthError if sizes and positions contradict each other or the
        object's size, BadSequenceError if the fragment holds no offset.
        """
        if len(view) < FRAGMENT_TRAILER_BYTES:
            raise TruncatedError(
                source, 0, "fragment trailer is cut short", expected=FRAGMENT_TRAILER_BYTES, found=len(view)
            )
        trailer = cls(*_TRAILER.unpack(view[-FRAGMENT_TRAILER_BYTES:]))
        position = object_bytes - FRAGMENT_TRAILER_BYTES
        index_position = FRAGMENT_HEADER_BYTES + trailer.data_bytes + INDEX_HEADER_BYTES
        checks = (
            ("size of the object that a fragment trailer describes", object_bytes, trailer.object_bytes),
            ("index position in a fragment trailer", index_position, trailer.index_position),
            ("index size in a fragment trailer", trailer.chunks * FRAGMENT_INDEX_RECORD_BYTES, trailer.index_bytes),
        )
        for what, expected, found in checks:
            if expected != found:
                raise BadLengthError(source, position, what, expected=expected, found=found)
        if not trailer.chunks or trailer.data_bytes < trailer.chunks * CHUNK_HEADER_BYTES:
            raise BadLengthError(
                source,
                position,
                "data size in a fragment trailer",
                expected=f"that of {trailer.chunks} chunks, one at least",
                found=trailer.data_bytes,
            )
        if trailer.first_offset >= trailer.next_offset:
            raise BadSequenceError(
                source,
                position,
                "next offset in a fragment trailer",
                expected=f"above {trailer.first_offset}",
                found=trailer.next_offset,
            )
        return trailer

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`. Raises OverflowError if a number does not fit its field."""
        try:
            return _TRAILER.pack(
                self.first_offset,
                self.first_timestamp,
                self.next_offset,
                self.sequence_number,
                self.data_bytes,
                self.chunks_before,
                self.data_position,
                self.index_position,
                self.index_bytes,
            )
        except struct.error as err:
            raise OverflowError(f"no fragment trailer can say {self}") from err


def build_footer(
    records: bytes | bytearray,
    *,
    source: str,
    next_offset: Offset,
    sequence_number: int,
    data_bytes: int,
    chunks_before: int,
    data_position: int,
) -> bytes:
    """Build the part of a fragment after its chunks: index header, the encoded index `records`, and trailer.

    There must be at least one record. `source` is the segment of the chunks, and `data_position` where they begin in
    it. Raises BadLengthError for a fragment that the format cannot describe: an object of 4 GiB or more, or one past
    the 65,536th of its segment.
    """
    index_position = FRAGMENT_HEADER_BYTES + data_bytes + INDEX_HEADER_BYTES
    first = FragmentIndexRecord.from_bytes(
        bytes(records[:FRAGMENT_INDEX_RECORD_BYTES]), source=source, position=index_position
    )
    trailer = FragmentTrailer(
        first_offset=Offset(first.chunk_id),
        first_timestamp=first.timestamp,
        next_offset=next_offset,
        sequence_number=sequence_number,
        data_bytes=data_bytes,
        chunks_before=chunks_before,
        data_position=data_position,
        index_position=index_position,
        index_bytes=len(records),
    )
    if trailer.object_bytes > MAX_FRAGMENT_BYTES:
        raise BadLengthError(
            source,
            data_position,
            "size of a fragment",
            expected=f"at most {MAX_FRAGMENT_BYTES}",
            found=trailer.object_bytes,
        )
    try:
        return b"".join((INDEX_HEADER, records, trailer.to_bytes()))
    except OverflowError as err:
        raise BadLengthError(source, data_position, str(err)) from err


def iter_fragment_index(
    view: memoryview | bytes, trailer: FragmentTrailer, *, source: str
) -> Iterator[FragmentIndexRecord]:
    """Yield the records of a fragment's index. `view` holds the bytes of `trailer.index_range`.

    Raises TruncatedError, BadMagicError and BadVersionError for the index header, BadLengthError if `view` has another
    size than the trailer says, BadSequenceError if the records contradict the trailer or do not rise.
    """
    view = memoryview(view)
    start = trailer.index_range.start
    check_file_header(view, INDEX_HEADER, source=source, position=start)
    if len(view) != len(trailer.index_range):
        raise BadLengthError(
            source, start, "size of a fragment's index", expected=len(trailer.index_range), found=len(view)
        )
    position = trailer.index_position
    next_offset, data_end = trailer.next_offset, trailer.data_range.end  # once: an index has thousands of records
    # The lower bounds of the next record. The first record must equal the trailer's values.
    chunk_id, chunk_position = int(trailer.first_offset), FRAGMENT_HEADER_BYTES
    for number, (found_id, timestamp, found_position) in enumerate(_RECORD.iter_unpack(view[INDEX_HEADER_BYTES:])):
        in_order = found_id >= chunk_id and found_position >= chunk_position
        if number == 0:
            in_order = (found_id, timestamp, found_position) == (chunk_id, trailer.first_timestamp, chunk_position)
        if not in_order or found_id >= next_offset or found_position >= data_end:
            raise BadSequenceError(
                source,
                position,
                "chunk id and position in a fragment's index",
                expected=(
                    f"{chunk_id} to {next_offset - 1} and {chunk_position} to {data_end - 1},"
                    " and the first those of the trailer"
                ),
                found=(found_id, found_position),
            )
        yield FragmentIndexRecord(ChunkId(found_id), TimestampMs(timestamp), found_position)
        chunk_id, chunk_position = found_id + 1, found_position + CHUNK_HEADER_BYTES
        position += FRAGMENT_INDEX_RECORD_BYTES
