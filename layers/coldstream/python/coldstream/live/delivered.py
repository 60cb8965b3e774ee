"""Chunks as brokers deliver them.

    Deliver frame, behind its key and version: subscription id u8 · chunk header 48 · data · trailer where asked for

The header is the one on the broker's disk, byte for byte, but not all that it tells of follows: the bloom filter is
never sent, and the trailer only to who asks for every chunk, though the header still says how long they are. Who does
not ask is given user chunks alone. All are committed. Upstream: `osiris_log.erl` (send_file). RabbitMQ 3.10, 4.0 and
4.3 do so.
"""

from __future__ import annotations

from zlib import crc32

from coldstream.errors import BadCrcError, BadLengthError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader

_NOTHING = memoryview(b"")


def chunk_of(delivered: memoryview | bytes, *, source: str) -> Chunk:
    """Read a delivered chunk, its header first, and check its CRC.

    The header is as delivered, so its `bloom_bytes` may be more than 0, and `bloom` is empty; its `trailer_bytes` as
    well, and `trailer` is whole, or empty where it was not sent. Both are views of `delivered`. Raises CorruptionError
    of the kind that fits.
    """
    view = memoryview(delivered)
    header = ChunkHeader.from_bytes(view[:CHUNK_HEADER_BYTES], source=source, position=0)
    data = view[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + header.data_bytes]
    trailer = view[CHUNK_HEADER_BYTES + header.data_bytes :]
    if len(data) != header.data_bytes or len(trailer) not in {0, header.trailer_bytes}:
        found_bytes = len(view) - CHUNK_HEADER_BYTES
        raise BadLengthError(source, 0, "data of a delivered chunk", expected=header.data_bytes, found=found_bytes)
    found = crc32(data)
    if found != header.crc:
        raise BadCrcError(source, 0, "CRC-32 of a delivered chunk's data", expected=header.crc, found=found)
    return Chunk(header, 0, _NOTHING, data, trailer)


def is_same(one: ChunkHeader, other: ChunkHeader) -> bool:
    """Tell whether two headers are of the same chunk; brokers need not send trailers and bloom filters."""
    return _identity(one) == _identity(other)


def _identity(header: ChunkHeader) -> tuple[int, ...]:
    return (
        header.type,
        header.entries,
        header.records,
        header.timestamp,
        header.epoch,
        header.chunk_id,
        header.crc,
        header.data_bytes,
    )
