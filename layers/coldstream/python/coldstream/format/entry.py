"""Entries: what the data section of a chunk is made of.

    simple entry   u32: bit 31 is 0, then 31 bits of length · one message
    sub-batch      header, 11 bytes · its messages, packed: each a simple entry

    sub-batch header
     0  kind, compression  u8   bit 7 is 1, then 3 bits of compression (compression.py), then 4 reserved bits of 0
     1  records            u16  messages in it
     3  uncompressed       u32  bytes of the messages before packing, as the publisher says
     7  length             u32  bytes that follow

All integers big-endian. The broker writes the counts and lengths, and the CRC covers them; the packed data and what the
sub-batch header says of it are the publisher's, and nobody has checked them. So the archive (`EntryCounter`) takes any
compression, and only who wants the messages finds out that it is unknown. The reserved bits brokers write as 0 and do
not look at; here they are refused when entries are read, since a bit set might one day say how to read them.

Upstream: `osiris_log.erl` (make_chunk, parse_records).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import BadCountError, BadLengthError, BadVersionError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader, ChunkType
from coldstream.format.compression import decompress

SIMPLE_HEADER_BYTES = 4
SUB_BATCH_HEADER_BYTES = 11
MAX_MESSAGE_BYTES = (1 << 31) - 1

# Read as signed, a simple entry's length is positive, and the first four bytes of a sub-batch are negative.
_SIMPLE = struct.Struct(">i")  # length, bytes
assert _SIMPLE.size == SIMPLE_HEADER_BYTES

_SUB_BATCH = struct.Struct(
    ">"
    "B"  # kind, compression, reserved
    "H"  # records
    "I"  # uncompressed, bytes
    "I"  # length, bytes
)
assert _SUB_BATCH.size == SUB_BATCH_HEADER_BYTES

_SUB_BATCH_KIND = 0x80
_RESERVED_BITS = 0x0F


@dataclass(frozen=True, slots=True)
class SubBatch:
    """Messages packed by their publisher. `position` is the byte of its header in the source.

    `compression` is as found, known or not; `uncompressed_bytes` is what the publisher claims.
    """

    compression: int
    records: int
    uncompressed_bytes: int
    data: memoryview
    position: int

    def to_bytes(self) -> bytes:
        """Encode. Raises OverflowError where a number does not fit its field."""
        try:
            header = _SUB_BATCH.pack(
                _SUB_BATCH_KIND + (self.compression << 4), self.records, self.uncompressed_bytes, len(self.data)
            )
        except struct.error as err:
            raise OverflowError(f"no sub-batch header can say {self}") from err
        return header + self.data

    def messages(self, *, source: str) -> Iterator[memoryview]:
        """Unpack, and yield each message; never more than `records`, so that none gets another's offset.

        Raises BadVersionError, BadLengthError and CorruptionError as `decompress` does, BadLengthError where a message
        runs past the end, and BadCountError where there are more or fewer than `records`.
        """
        data = decompress(self.compression, self.data, self.uncompressed_bytes, source=source, position=self.position)
        unpack = _SIMPLE.unpack_from
        at, end, count = 0, len(data), 0
        while at < end:
            start = at + SIMPLE_HEADER_BYTES
            length = unpack(data, at)[0] if start <= end else 0
            if length < 0:
                raise BadVersionError(source, self.position, f"sub-batch inside a sub-batch, at byte {at} of its data")
            at = start + length
            if at > end:
                raise BadLengthError(
                    source, self.position, "message in a sub-batch", expected=f"to end by {end}", found=at
                )
            count += 1
            if count > self.records:
                break
            yield data[start:at]
        if count != self.records:
            found = count if count < self.records else "more"
            raise BadCountError(source, self.position, "messages in a sub-batch", expected=self.records, found=found)


def iter_entries(chunk: Chunk, *, source: str) -> Iterator[memoryview | SubBatch]:
    """Yield the entries of a chunk of any type: the message of a simple entry, or a sub-batch, still packed.

    The first record's offset is the chunk id; a message takes one, a sub-batch as many as its records. Raises
    BadLengthError where an entry runs past the end of the data, BadVersionError for reserved bits, and BadCountError
    where entries or records are not what the header says, after yielding what there is.
    """
    header, data = chunk.header, chunk.data
    base = chunk.position + CHUNK_HEADER_BYTES + header.bloom_bytes
    unpack = _SIMPLE.unpack_from
    at, end, entries, records = 0, len(data), 0, 0
    while at < end:
        entries += 1
        start = at + SIMPLE_HEADER_BYTES
        if start > end:
            raise _overrun(source, base, at, start, end)
        length = unpack(data, at)[0]
        if length >= 0:
            if start + length > end:
                raise _overrun(source, base, at, start + length, end)
            records += 1
            yield data[start : start + length]
            at = start + length
        else:
            batch = _sub_batch(data, at, base, source)
            records += batch.records
            yield batch
            at += SUB_BATCH_HEADER_BYTES + len(batch.data)
    _check_counts(header, entries, records, source=source, position=chunk.position)


def simple_entry(message: bytes | memoryview) -> bytes:
    """Encode a message as a simple entry. Raises OverflowError for one of 2 GiB or more."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise OverflowError(f"a message has at most {MAX_MESSAGE_BYTES} bytes, not {len(message)}")
    return _SIMPLE.pack(len(message)) + message


class EntryCounter:
    """Counts the entries and records of a chunk's data that comes in pieces, cut anywhere.

    Counts only: nothing is raised before `check`, so that a CRC that differs can be told first.
    """

    __slots__ = ("_cut_header", "_packed_records", "_rest", "_simple", "_sub_batches")

    def __init__(self) -> None:
        self._simple = 0
        self._sub_batches = 0
        self._packed_records = 0
        self._rest = 0  # bytes of the entry begun that are still to come
        self._cut_header = b""  # what came so far of an entry header

    def feed(self, piece: memoryview) -> None:
        """Count what the next piece of the data holds. Cost: about 0.15 us an entry, nothing a byte."""
        if self._cut_header:
            wanted = SIMPLE_HEADER_BYTES if self._cut_header[0] < _SUB_BATCH_KIND else SUB_BATCH_HEADER_BYTES
            missing = wanted - len(self._cut_header)
            joined = self._cut_header + piece[:missing]
            if len(joined) < wanted:
                self._cut_header = joined
                return
            self._cut_header = b""
            self.feed(memoryview(joined))
            piece = piece[missing:]
        unpack = _SIMPLE.unpack_from
        at, end = self._rest, len(piece)
        last = end - SIMPLE_HEADER_BYTES
        simple = 0
        while at <= last:
            length = unpack(piece, at)[0]
            if length >= 0:
                at += SIMPLE_HEADER_BYTES + length
                simple += 1
            elif at + SUB_BATCH_HEADER_BYTES <= end:
                _, records, _, length = _SUB_BATCH.unpack_from(piece, at)
                at += SUB_BATCH_HEADER_BYTES + length
                self._packed_records += records
                self._sub_batches += 1
            else:
                break
        self._simple += simple
        if at < end:
            self._cut_header = bytes(piece[at:])
            self._rest = 0
        else:
            self._rest = at - end

    def check(self, header: ChunkHeader, *, source: str, position: int) -> None:
        """Compare with the header of the chunk at byte `position`, all of whose data has been fed.

        Raises BadLengthError where the last entry runs past the end, BadCountError where entries or records are not
        what the header says, or a tracking chunk holds anything but a simple entry.
        """
        if self._rest or self._cut_header:
            raise BadLengthError(source, position, "last entry of a chunk runs past the end of the data")
        entries, records = self._simple + self._sub_batches, self._simple + self._packed_records
        _check_counts(header, entries, records, source=source, position=position)
        if self._sub_batches and header.type is not ChunkType.USER:
            raise BadCountError(
                source, position, "sub-batches in a tracking chunk", expected=0, found=self._sub_batches
            )


def _sub_batch(data: memoryview, at: int, base: int, source: str) -> SubBatch:
    start = at + SUB_BATCH_HEADER_BYTES
    if start > len(data):
        raise _overrun(source, base, at, start, len(data))
    kind, records, uncompressed_bytes, length = _SUB_BATCH.unpack_from(data, at)
    if start + length > len(data):
        raise _overrun(source, base, at, start + length, len(data))
    if kind & _RESERVED_BITS:
        raise BadVersionError(
            source, base + at, "reserved bits of a sub-batch", expected=0, found=kind & _RESERVED_BITS
        )
    return SubBatch(kind >> 4 & 7, records, uncompressed_bytes, data[start : start + length], base + at)


def _overrun(source: str, base: int, at: int, found: int, end: int) -> BadLengthError:
    return BadLengthError(
        source, base + at, "entry runs past its chunk's data", expected=f"to end by {base + end}", found=base + found
    )


def _check_counts(header: ChunkHeader, entries: int, records: int, *, source: str, position: int) -> None:
    if entries != header.entries:
        raise BadCountError(source, position, "entries in a chunk", expected=header.entries, found=entries)
    if records != header.records:
        raise BadCountError(source, position, "records in a chunk", expected=header.records, found=records)
