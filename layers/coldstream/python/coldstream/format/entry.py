"""Entries: the content of a chunk's data section.

    simple entry   u32: bit 31 is 0, then 31 bits of length · one message
    sub-batch      header, 11 bytes · its messages, packed: each a simple entry

    sub-batch header
     0  kind, compression  u8   bit 7 is 1, then 3 bits of compression (compression.py), then 4 reserved bits of 0
     1  records            u16  messages in it
     3  uncompressed       u32  bytes of the messages before packing, as the publisher says
     7  length             u32  bytes that follow

All integers are big-endian. The broker writes the counts and lengths, and the CRC covers them. The packed data, and
what the sub-batch header says of it, come from the publisher, and nobody has checked them. So the archive
(`EntryCounter`) accepts any compression; an unknown one is an error only when somebody reads the messages. Brokers
write the reserved bits as 0 and ignore them. Here a set bit is refused when entries are read: one day it may change how
to read them.

Upstream: `osiris_log.erl` (make_chunk, parse_records).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import BadCountError, BadLengthError, BadVersionError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader
from coldstream.format.compression import decompress

SIMPLE_HEADER_BYTES = 4
SUB_BATCH_HEADER_BYTES = 11
MAX_MESSAGE_BYTES = (1 << 31) - 1

# Read as signed, the length of a simple entry is never negative, and the first four bytes of a sub-batch always are.
SIMPLE_HEADER = struct.Struct(">i")  # length, bytes
assert SIMPLE_HEADER.size == SIMPLE_HEADER_BYTES

SUB_BATCH_HEADER = struct.Struct(
    ">"
    "B"  # kind, compression, reserved
    "H"  # records
    "I"  # uncompressed, bytes
    "I"  # length, bytes
)
assert SUB_BATCH_HEADER.size == SUB_BATCH_HEADER_BYTES

SUB_BATCH_KIND = 0x80
RESERVED_BITS = 0x0F


@dataclass(frozen=True, slots=True)
class SubBatch:
    """Messages packed by their publisher.

    `position` is the byte of its header in the source. `compression` is the number found, known or unknown, and
    `uncompressed_bytes` the publisher's claim.
    """

    compression: int
    records: int
    uncompressed_bytes: int
    data: memoryview
    position: int

    def to_bytes(self) -> bytes:
        """Encode. Raises OverflowError if a number does not fit its field."""
        try:
            header = SUB_BATCH_HEADER.pack(
                SUB_BATCH_KIND + (self.compression << 4), self.records, self.uncompressed_bytes, len(self.data)
            )
        except struct.error as err:
            raise OverflowError(f"no sub-batch header can say {self}") from err
        return header + self.data

    def messages(self, *, source: str) -> Iterator[memoryview]:
        """Unpack, and yield each message; never more than `records`, so that no message gets the offset of another.

        Raises the errors of `decompress`, BadLengthError if a message runs past the end, and BadCountError if there are
        more or fewer messages than `records`.
        """
        data = decompress(self.compression, self.data, self.uncompressed_bytes, source=source, position=self.position)
        unpack = SIMPLE_HEADER.unpack_from
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

    The first record has the chunk id as its offset. A message takes one offset, a sub-batch one for each of its
    records. Raises BadLengthError if an entry runs past the end of the data, BadVersionError for reserved bits, and,
    after yielding everything, BadCountError unless there are as many entries and records as the header says.
    """
    header, data = chunk.header, chunk.data
    base = chunk.position + CHUNK_HEADER_BYTES + header.bloom_bytes
    unpack = SIMPLE_HEADER.unpack_from
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
    check_counts(header, entries, records, source=source, position=chunk.position)


def simple_entry(message: bytes | memoryview) -> bytes:
    """Encode a message as a simple entry. Raises OverflowError for one of 2 GiB or more."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise OverflowError(f"a message has at most {MAX_MESSAGE_BYTES} bytes, not {len(message)}")
    return SIMPLE_HEADER.pack(len(message)) + message


def _sub_batch(data: memoryview, at: int, base: int, source: str) -> SubBatch:
    start = at + SUB_BATCH_HEADER_BYTES
    if start > len(data):
        raise _overrun(source, base, at, start, len(data))
    kind, records, uncompressed_bytes, length = SUB_BATCH_HEADER.unpack_from(data, at)
    if start + length > len(data):
        raise _overrun(source, base, at, start + length, len(data))
    if kind & RESERVED_BITS:
        raise BadVersionError(source, base + at, "reserved bits of a sub-batch", expected=0, found=kind & RESERVED_BITS)
    return SubBatch(kind >> 4 & 7, records, uncompressed_bytes, data[start : start + length], base + at)


def _overrun(source: str, base: int, at: int, found: int, end: int) -> BadLengthError:
    return BadLengthError(
        source, base + at, "entry runs past its chunk's data", expected=f"to end by {base + end}", found=base + found
    )


def check_counts(header: ChunkHeader, entries: int, records: int, *, source: str, position: int) -> None:
    """Raise BadCountError unless a chunk has as many entries and records as its header says."""
    if entries != header.entries:
        raise BadCountError(source, position, "entries in a chunk", expected=header.entries, found=entries)
    if records != header.records:
        raise BadCountError(source, position, "records in a chunk", expected=header.records, found=records)
