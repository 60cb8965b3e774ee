"""Chunks: the unit in which osiris writes, replicates and serves messages.

    chunk          header · bloom filter · data · trailer; all integers big-endian

    header, 48 bytes
     0  magic, version    u8   5 in the upper half, 0 in the lower (osiris's comment says 1; brokers write 0)
     1  type              u8   0 user, 1 tracking delta, 2 tracking snapshot
     2  entries           u16  in the data section; a sub-batch is one
     4  records           u32  messages, those in sub-batches included; each takes one offset
     8  timestamp         i64  ms since the Unix epoch, by the leader's clock
    16  epoch             u64  the leader's term
    24  chunk id          u64  offset of the first record
    32  CRC-32            u32  zlib's, of the data section only
    36  data length       u32  bytes
    40  trailer length    u32  bytes
    44  bloom length      u8   bytes; brokers before 3.13 write 0
    45  reserved          3    zero

The next chunk's id is this id plus its records, for every type: a tracking chunk takes one offset. A user chunk may
have more entries than records, because brokers accept empty sub-batches from publishers. A chunk without any record is
refused: the next chunk would have the same id.

Upstream: `osiris_log.erl` (make_chunk, read_header). Entries: entry.py. Trailers and tracking chunks: tracking.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn
from zlib import crc32

from coldstream.errors import (
    BadCountError,
    BadCrcError,
    BadLengthError,
    BadMagicError,
    BadSequenceError,
    BadVersionError,
    TruncatedError,
)
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, Offset, TimestampMs

CHUNK_HEADER_BYTES = 48

_LEAST_ENTRY_BYTES = 4  # a simple entry of an empty message
_MAGIC = 5
_VERSION = 0
_MAGIC_AND_VERSION = _MAGIC << 4 | _VERSION
_RESERVED = bytes(3)
_NOTHING = memoryview(b"")

_HEADER = struct.Struct(
    ">"
    "B"  # magic and version
    "B"  # type
    "H"  # entries
    "I"  # records
    "q"  # timestamp, ms
    "Q"  # epoch
    "Q"  # chunk id
    "I"  # CRC-32 of the data
    "I"  # data, bytes
    "I"  # trailer, bytes
    "B"  # bloom filter, bytes
    "3s"  # reserved
)
assert _HEADER.size == CHUNK_HEADER_BYTES


class ChunkType(IntEnum):
    """What a chunk holds. Only user chunks hold messages."""

    USER = 0
    TRACKING_DELTA = 1
    TRACKING_SNAPSHOT = 2


_TYPES = {int(kind): kind for kind in ChunkType}


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The fixed part of a chunk. `crc` covers the data section alone."""

    type: ChunkType
    entries: int
    records: int
    timestamp: TimestampMs
    epoch: Epoch
    chunk_id: ChunkId
    crc: int
    data_bytes: int
    trailer_bytes: int
    bloom_bytes: int

    @property
    def next_offset(self) -> Offset:
        """The offset after the chunk's last record, and the id of the chunk after it."""
        return Offset(self.chunk_id + self.records)

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole chunk, header included."""
        return CHUNK_HEADER_BYTES + self.bloom_bytes + self.data_bytes + self.trailer_bytes

    @classmethod
    def from_bytes(cls, view: memoryview | bytes, *, source: str, position: int, at: int = 0) -> ChunkHeader:
        """Parse the 48 bytes at byte `at` of `view`, which lie at byte `position` of `source`.

        Raises TruncatedError, BadMagicError, BadVersionError, and BadCountError or BadLengthError for numbers that no
        data section could match.
        """
        if len(view) - at < CHUNK_HEADER_BYTES:
            raise TruncatedError(
                source, position, "chunk header is cut short", expected=CHUNK_HEADER_BYTES, found=len(view) - at
            )
        header: Any = _OpenHeader()
        (
            magic_and_version,
            type_number,
            entries,
            records,
            header.timestamp,
            header.epoch,
            header.chunk_id,
            header.crc,
            header.data_bytes,
            header.trailer_bytes,
            header.bloom_bytes,
            reserved,
        ) = _HEADER.unpack_from(view, at)
        if magic_and_version != _MAGIC_AND_VERSION:
            _refuse(magic_and_version, source, position)
        kind = _TYPES.get(type_number)
        if kind is None:
            raise BadVersionError(source, position, "chunk type", expected="0, 1 or 2", found=type_number)
        if reserved != _RESERVED:
            raise BadVersionError(
                source, position, "reserved bytes of a chunk header", expected=_RESERVED.hex(), found=reserved.hex()
            )
        header.type, header.entries, header.records = kind, entries, records
        header.__class__ = ChunkHeader
        is_possible = entries and records and header.data_bytes >= entries * _LEAST_ENTRY_BYTES
        if not is_possible or header.chunk_id + records > MAX_OFFSET:
            _refuse_numbers(header, source, position)
        if type_number and not entries == records == 1:
            raise BadCountError(
                source, position, "entries and records of a tracking chunk", expected=(1, 1), found=(entries, records)
            )
        if type_number and header.trailer_bytes:
            raise BadLengthError(
                source, position, "trailer of a tracking chunk", expected=0, found=header.trailer_bytes
            )
        return header  # type: ignore[no-any-return]  # it is a ChunkHeader by now

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`. Raises OverflowError if a number does not fit its field."""
        try:
            return _HEADER.pack(
                _MAGIC_AND_VERSION,
                self.type,
                self.entries,
                self.records,
                self.timestamp,
                self.epoch,
                self.chunk_id,
                self.crc,
                self.data_bytes,
                self.trailer_bytes,
                self.bloom_bytes,
                _RESERVED,
            )
        except struct.error as err:
            raise OverflowError(f"no chunk header can say {self}") from err


@dataclass(frozen=True, slots=True)
class Chunk:
    """A whole chunk in memory, its CRC checked. The views keep the memory that they are of alive."""

    header: ChunkHeader
    position: int
    bloom: memoryview
    data: memoryview
    trailer: memoryview


# A frozen dataclass sets each of its fields by a call. Millions of chunks are read, so theirs are set before they are
# frozen: in an object with the same slots, which then gets the class that has no other way to be changed. A header and
# its chunk take a third of the time that way.
class _OpenHeader:
    __slots__ = ChunkHeader.__slots__


class _OpenChunk:
    __slots__ = Chunk.__slots__


def iter_chunks(
    view: memoryview | bytes,
    *,
    source: str,
    position: int = 0,
    expected: ChunkId | None = None,
    is_verified: bool = False,
) -> Iterator[Chunk]:
    """Yield the chunks that make up `view`, from its first byte to its last, each one verified.

    `view` lies at byte `position` of `source`. `expected` is the id that the first chunk must have, or None for any.
    Checks magic, version, type, lengths, CRC and succession; `iter_entries` checks the counts of entries. With
    `is_verified` every CRC was compared before, and is not again. Raises CorruptionError for the first fault, after
    yielding the chunks before it.
    """
    view = memoryview(view)
    start, end = 0, len(view)
    while start < end:
        at = position + start
        header = ChunkHeader.from_bytes(view, source=source, position=at, at=start)
        chunk_id, bloom_bytes, trailer_bytes = header.chunk_id, header.bloom_bytes, header.trailer_bytes
        if expected is not None and chunk_id != expected:
            raise BadSequenceError(source, at, "chunk id", expected=expected, found=chunk_id)
        data_start = start + CHUNK_HEADER_BYTES + bloom_bytes
        data_end = data_start + header.data_bytes
        start = data_end + trailer_bytes
        if start > end:
            raise TruncatedError(
                source, at, "chunk is cut short", expected=header.total_bytes, found=end - (at - position)
            )
        data = view[data_start:data_end]
        if not is_verified and (found := crc32(data)) != header.crc:
            raise BadCrcError(source, at, "CRC-32 of a chunk's data", expected=header.crc, found=found)
        chunk: Any = _OpenChunk()
        chunk.header, chunk.position, chunk.data = header, at, data
        # Most chunks have neither.
        chunk.bloom = view[data_start - bloom_bytes : data_start] if bloom_bytes else _NOTHING
        chunk.trailer = view[data_end:start] if trailer_bytes else _NOTHING
        chunk.__class__ = Chunk
        yield chunk
        expected = ChunkId(chunk_id + header.records)


def _refuse(magic_and_version: int, source: str, position: int) -> NoReturn:
    magic, version = magic_and_version >> 4, magic_and_version & 0x0F
    if magic != _MAGIC:
        raise BadMagicError(source, position, "chunk magic", expected=_MAGIC, found=magic)
    raise BadVersionError(source, position, "chunk version", expected=_VERSION, found=version)


def _refuse_numbers(header: ChunkHeader, source: str, position: int) -> NoReturn:
    if not (header.entries and header.records):
        raise BadCountError(
            source,
            position,
            "entries and records of a chunk",
            expected="at least one of each",
            found=(header.entries, header.records),
        )
    if header.data_bytes < header.entries * _LEAST_ENTRY_BYTES:
        raise BadLengthError(
            source,
            position,
            f"data of a chunk of {header.entries} entries",
            expected=f"at least {header.entries * _LEAST_ENTRY_BYTES} bytes",
            found=header.data_bytes,
        )
    raise BadLengthError(
        source, position, "next offset of a chunk", expected=f"at most {MAX_OFFSET}", found=header.next_offset
    )
