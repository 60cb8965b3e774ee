"""Chunks as they go into segments that the agent writes itself: the broker's, but for what brokers do not deliver.

Trailers and bloom filters are not delivered; they hold nothing of the messages, and the CRC is not over them. The
header says that there are none. Tracking chunks are not delivered either: the offsets that they took are filled with
tracking deltas without a record, one for each offset, since each tracking chunk takes one. Their timestamp and epoch
are those of the chunk behind them, which is always at hand, so that the bytes depend on the stream alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

from coldstream.agent.names import written
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.format.writer import make_chunk
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.units import ChunkId, Offset

_NS_IN_MS = 1_000_000


def rebuilt(chunk: Chunk) -> bytes:
    """Return a delivered chunk's bytes, without trailer and bloom filter."""
    return replace(chunk.header, trailer_bytes=0, bloom_bytes=0).to_bytes() + chunk.data


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
