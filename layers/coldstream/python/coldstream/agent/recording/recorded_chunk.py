"""Chunks as they go into recorded segments: the broker's own bytes, but for bloom filters.

Brokers never deliver bloom filters. A chunk that has one is written with a filter of the same size whose bits are all
set. Such a filter matches every value: a reader that filters has to read the chunk, and never skips it wrongly. Every
length and every position stays as on the broker's disk.

Brokers that do not know `every_chunk` (live/subscription.py) deliver neither trailers nor tracking chunks. Chunks from
them are written with a header that says that there is no trailer. The offsets that tracking chunks took are filled with
tracking deltas without a record, one for each offset, as each tracking chunk takes one. Their timestamp and epoch are
those of the chunk after them, which is always at hand, so that the bytes depend on the stream alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Offset

UNKNOWN_FILTER = b"\xff" * 255
"""A bloom filter of the greatest size that matches every filter value, and messages without one."""


def record_chunk(chunk: Chunk) -> bytes:
    """Return the bytes that a delivered chunk has in a recorded segment."""
    header = replace(chunk.header, trailer_bytes=len(chunk.trailer))
    return b"".join((header.to_bytes(), UNKNOWN_FILTER[: header.bloom_bytes], chunk.data, chunk.trailer))


def tracking_fillers(header: ChunkHeader, first_offset: Offset) -> Iterator[bytes]:
    """Yield an empty tracking chunk for each offset from `first_offset` up to a chunk."""
    for offset in range(first_offset, header.chunk_id):
        yield make_chunk(
            [b""],
            chunk_id=ChunkId(offset),
            timestamp=header.timestamp,
            epoch=header.epoch,
            kind=ChunkType.TRACKING_DELTA,
        )[1]
