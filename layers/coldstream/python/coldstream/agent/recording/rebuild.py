"""Chunks as they go into segments that the agent writes itself: the broker's own bytes, but for bloom filters.

Bloom filters are never delivered. A chunk that has one is written with a filter of the same size whose bits are all
set, which may match any filter value: it says that what the chunk holds is not known, and a reader that filters has to
read the chunk, as one that has no matching filter it may pass over. So every length and every position is as on the
broker's disk.

Brokers that do not know of `every_chunk` (live/subscription.py) deliver neither trailers nor tracking chunks. There the
header says that there is no trailer, and the offsets that tracking chunks took are filled with tracking deltas without
a record, one for each offset, since each tracking chunk takes one. Their timestamp and epoch are those of the chunk
behind them, which is always at hand, so that the bytes depend on the stream alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

from coldstream.agent.proof.names import written
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.format.writer import make_chunk
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.units import ChunkId, Offset

UNKNOWN_FILTER = b"\xff" * 255
"""A bloom filter that matches every filter value, and messages without one, as long as the longest."""

_NS_IN_MS = 1_000_000


def rebuilt(chunk: Chunk) -> bytes:
    """Return a delivered chunk's bytes, with a bloom filter that may match anything in the place of its own."""
    header = replace(chunk.header, trailer_bytes=len(chunk.trailer))
    return b"".join((header.to_bytes(), UNKNOWN_FILTER[: header.bloom_bytes], chunk.data, chunk.trailer))


def tracking_before(header: ChunkHeader, first_offset: Offset) -> Iterator[bytes]:
    """Yield a tracking chunk for each offset from `first_offset` up to the chunk."""
    for offset in range(first_offset, header.chunk_id):
        yield make_chunk(
            [b""],
            chunk_id=ChunkId(offset),
            timestamp=header.timestamp,
            epoch=header.epoch,
            kind=ChunkType.TRACKING_DELTA,
        )[1]


def incarnation_of_first_chunk(vhost: str, name: str, chunk: Chunk) -> Incarnation:
    """Name an incarnation whose directory cannot be seen, by the broker's first chunk when the stream is first seen.

    It is written as the broker's own, with that chunk's time in the place of the declaration's; below the milliseconds
    stands a checksum of the names, since streams that are written alike may begin in the same one. Raises
    InvalidNameError where the names are too long for that.
    """
    names = crc32(f"{vhost}\0{name}".encode()) % _NS_IN_MS
    return incarnation(f"{written(vhost, name)}_{chunk.header.timestamp * _NS_IN_MS + names:019}")
