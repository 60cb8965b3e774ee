"""Chunks on their way into a write-ahead log, as `DirectStream.append` makes them."""

from __future__ import annotations

from coldstream.format.writer import make_chunk
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.store.wal_object import WalChunk
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

LIFE = incarnation("__orders_1763700000000000000")


def chunk(offset: int, *messages: bytes, life: Incarnation = LIFE, epoch: int = 1) -> WalChunk:
    """A batch at an offset, whose timestamp is the same number."""
    header, data = make_chunk(
        messages or (b"message",), chunk_id=ChunkId(offset), timestamp=TimestampMs(offset), epoch=Epoch(epoch)
    )
    return WalChunk(life, Epoch(epoch), Offset(offset), header.next_offset, data)


def plain_chunk(offset: int) -> WalChunk:
    """Bytes that nobody will read, at an offset."""
    return WalChunk(LIFE, Epoch(1), Offset(offset), Offset(offset + 1), b"x" * 100)
