"""Chunks for caches that never look into them."""

from __future__ import annotations

from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.units import Epoch, Offset, TimestampMs


def life(number: int = 0) -> Incarnation:
    """Return an incarnation."""
    return Incarnation(f"__direct_{1_763_700_000_000_000_000 + number}")


def stream_of(number: int = 0) -> StreamId:
    """Return a stream of that incarnation."""
    return StreamId("/", f"stream{number}", life(number))


def opaque_chunk(first: int, records: int = 1, size_bytes: int = 100) -> CachedChunk:
    """Return a chunk of no particular bytes, whose timestamp is its first offset."""
    return CachedChunk(Offset(first), Offset(first + records), TimestampMs(first), Epoch(1), bytes(size_bytes))
