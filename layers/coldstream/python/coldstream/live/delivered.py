"""Chunks as brokers deliver them.

    Deliver frame, after its key and version; all integers big-endian
     0  subscription id    1
     1  chunk header      48    as in a segment (format/chunk.py)
    49  data                    as many bytes as the header says
        trailer                 for subscriptions to every chunk, else absent

The header is the one on the broker's disk, byte for byte. It gives the lengths of a bloom filter, which is never sent,
and of a trailer, which only subscriptions to every chunk get; the others get user chunks alone. All chunks delivered
are committed. Upstream: `osiris_log.erl` (send_file). RabbitMQ 3.10, 4.0 and 4.3 do so.
"""

from __future__ import annotations

from zlib import crc32

from coldstream.errors import BadCrcError, BadLengthError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader

_NOTHING = memoryview(b"")


def chunk_of(delivered: memoryview | bytes, *, source: str) -> Chunk:
    """Parse a delivered chunk, which begins with its header, and check its CRC.

    The header is as delivered: its `bloom_bytes` and `trailer_bytes` may be more than 0 although `bloom` is empty, and
    although `trailer` is if it was not sent. Data and trailer are views of `delivered`. Raises the CorruptionError that
    fits.
    """
    view = memoryview(delivered)
    header = ChunkHeader.from_bytes(view[:CHUNK_HEADER_BYTES], source=source, position=0)
    data = view[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + header.data_bytes]
    trailer = view[CHUNK_HEADER_BYTES + header.data_bytes :]
    if len(data) != header.data_bytes or len(trailer) not in {0, header.trailer_bytes}:
        found_bytes = len(view) - CHUNK_HEADER_BYTES
        raise BadLengthError(source, 0, "data of a delivered chunk", expected=header.data_bytes, found=found_bytes)
    # The CRC covers the data alone, neither the header nor the trailer.
    found = crc32(data)
    if found != header.crc:
        raise BadCrcError(source, 0, "CRC-32 of a delivered chunk's data", expected=header.crc, found=found)
    return Chunk(header, 0, _NOTHING, data, trailer)


def is_same(one: ChunkHeader, other: ChunkHeader, *, is_erased: bool = False) -> bool:
    """Tell whether two headers are of the same chunk, whatever they say about trailers and bloom filters.

    With `is_erased`, messages of either may have been erased: then its data's size and CRC say nothing.
    """
    if _place(one) != _place(other):
        return False
    return is_erased or (one.crc, one.data_bytes) == (other.crc, other.data_bytes)


def _place(header: ChunkHeader) -> tuple[int, ...]:
    return (header.type, header.entries, header.records, header.timestamp, header.epoch, header.chunk_id)
