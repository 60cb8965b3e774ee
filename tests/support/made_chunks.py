"""Chunks made in memory, for doubles of the archive."""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Epoch, TimestampMs


def made_chunk(
    chunk_id: int, records: int = 10, *, timestamp: int | None = None, kind: ChunkType = ChunkType.USER, epoch: int = 1
) -> Chunk:
    """Make a chunk whose messages hold their own offsets, a second later for each offset unless a time is given."""
    _, data = make_chunk(
        [(chunk_id + number).to_bytes(8) for number in range(records)],
        chunk_id=ChunkId(chunk_id),
        timestamp=TimestampMs(1000 * chunk_id if timestamp is None else timestamp),
        epoch=Epoch(epoch),
        kind=kind,
    )
    (chunk,) = iter_chunks(data, source="made")
    return chunk


def made_chunks(number: int, *, first: int = 0, records: int = 10) -> list[Chunk]:
    """Make chunks that follow each other."""
    return [made_chunk(first + at * records, records) for at in range(number)]


def ids(chunks: Iterable[Chunk]) -> list[int]:
    """Return the ids of chunks."""
    return [chunk.header.chunk_id for chunk in chunks]
