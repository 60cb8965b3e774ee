"""`LogCache`: the newest batches of each stream, from the moment when they are durable.

A batch is *pinned* until it is in the manifest: memory is where the flusher takes it from. After that it stays as long
as the budget has room, for whoever reads at the tail. Of the streams, the one that was used longest ago gives way
first, the oldest of its flushed batches before the newer ones: what is left of a stream never has a hole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from coldstream.manifest.stream import Incarnation
from coldstream.streams.cache.budget import MemoryBudget
from coldstream.streams.cache.cache_counts import CacheCounts
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.units import MIB, Offset, TimestampMs

EVICTION_BYTES = MIB
"""What is evicted at a time, if there is as much: what is left of a stream's list moves up each time."""


@dataclass(slots=True)
class _Newest:
    """Chunks of one stream, without a hole; the first `flushed` of them are in the manifest."""

    chunks: list[CachedChunk] = field(default_factory=list)
    flushed: int = 0
    pinned_bytes: int = 0


class LogCache:
    """The newest chunks of many streams. What it holds was reserved by who appended it; the cache gives it back.

    For one event loop. A stream of which it holds nothing costs nothing.
    """

    def __init__(self, budget: MemoryBudget, *, eviction_bytes: int = EVICTION_BYTES) -> None:
        self.counts = CacheCounts()
        self.pinned_bytes = 0
        """Bytes that are not in the manifest yet, as the budget counts them."""
        self.flushed_bytes = 0
        """Bytes that may be evicted, as the budget counts them."""
        self._budget = budget
        # Never all of a small budget at once.
        self._eviction_bytes = min(eviction_bytes, budget.limit_bytes // 64)
        self._streams: dict[Incarnation, _Newest] = {}
        self._evictable: OrderedDict[Incarnation, None] = OrderedDict()

    def add(self, incarnation: Incarnation, chunk: CachedChunk) -> None:
        """Keep a durable chunk, pinned; its `memory_bytes` are reserved, and the cache's from now on.

        If it does not follow the last one, because another process wrote the stream meanwhile, the earlier ones go.
        Raises ValueError if one of those is pinned.
        """
        newest = self._streams.get(incarnation)
        if newest is not None and newest.chunks[-1].next_offset != chunk.first_offset:
            if newest.pinned_bytes:
                raise ValueError(
                    f"{incarnation}: the chunk at {chunk.first_offset} does not follow {newest.chunks[-1].next_offset}"
                )
            self.drop(incarnation)
            newest = None
        if newest is None:
            newest = self._streams[incarnation] = _Newest()
        newest.chunks.append(chunk)
        newest.pinned_bytes += chunk.memory_bytes
        self.pinned_bytes += chunk.memory_bytes
        self._budget.press()

    def read(self, incarnation: Incarnation, offset: Offset, end: Offset, max_bytes: int) -> list[CachedChunk] | None:
        """Return chunks from the one that holds `offset` on, None if the cache does not have that one.

        They begin before `end`, and have `max_bytes` at most, or are one. At the end of what the cache holds, and from
        `end` on, there are none. What was returned stays readable, whatever is evicted.
        """
        newest = self._streams.get(incarnation)
        if newest is None or not newest.chunks[0].first_offset <= offset <= newest.chunks[-1].next_offset:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        if incarnation in self._evictable:
            self._evictable.move_to_end(incarnation)
        found: list[CachedChunk] = []
        size_bytes = 0
        for number in range(bisect_right(newest.chunks, offset, key=_next_offset), len(newest.chunks)):
            chunk = newest.chunks[number]
            size_bytes += len(chunk.data)
            if chunk.first_offset >= end or (found and size_bytes > max_bytes):
                break
            found.append(chunk)
        return found

    def first(self, incarnation: Incarnation) -> Offset | None:
        """Return the first offset that the cache has of a stream, None if it has none."""
        newest = self._streams.get(incarnation)
        return None if newest is None else newest.chunks[0].first_offset

    def pinned(self, incarnation: Incarnation) -> tuple[CachedChunk, ...]:
        """Return the chunks of a stream that are not in the manifest yet, in order."""
        newest = self._streams.get(incarnation)
        return () if newest is None else tuple(newest.chunks[newest.flushed :])

    def pinned_bytes_of(self, incarnation: Incarnation) -> int:
        """Return what the pinned chunks of a stream take of the budget."""
        newest = self._streams.get(incarnation)
        return 0 if newest is None else newest.pinned_bytes

    def oldest_pinned(self) -> TimestampMs | None:
        """Return the least timestamp of the first pinned chunk of each stream, None if none is pinned.

        Takes time with the number of streams: for metrics.
        """
        return min((newest.chunks[newest.flushed].timestamp for newest in self._pinned_streams()), default=None)

    def release(self, incarnation: Incarnation, next_offset: Offset) -> None:
        """Note that a stream's chunks below `next_offset` are in the manifest: they may be evicted from now on."""
        newest = self._streams.get(incarnation)
        if newest is None:
            return
        flushed = bisect_right(newest.chunks, next_offset, lo=newest.flushed, key=_next_offset)
        if flushed == newest.flushed:
            return
        size_bytes = sum(chunk.memory_bytes for chunk in newest.chunks[newest.flushed : flushed])
        newest.flushed = flushed
        newest.pinned_bytes -= size_bytes
        self.pinned_bytes -= size_bytes
        self.flushed_bytes += size_bytes
        self._evictable[incarnation] = None
        self._evictable.move_to_end(incarnation)
        self._budget.admit()

    def drop(self, incarnation: Incarnation) -> None:
        """Give up all of a stream, pinned or not."""
        newest = self._streams.pop(incarnation, None)
        if newest is None:
            return
        self._evictable.pop(incarnation, None)
        flushed_bytes = sum(chunk.memory_bytes for chunk in newest.chunks[: newest.flushed])
        self.pinned_bytes -= newest.pinned_bytes
        self.flushed_bytes -= flushed_bytes
        self._budget.free(newest.pinned_bytes + flushed_bytes)

    def evict(self, size_bytes: int) -> int:
        """Drop flushed chunks, of the stream that was used longest ago first; an evictor of the budget."""
        wanted = max(size_bytes, self._eviction_bytes)
        dropped = 0
        while dropped < wanted and self._evictable:
            incarnation = next(iter(self._evictable))
            newest = self._streams[incarnation]
            number = 0
            while number < newest.flushed and dropped < wanted:
                dropped += newest.chunks[number].memory_bytes
                number += 1
            del newest.chunks[:number]
            newest.flushed -= number
            if not newest.flushed:
                del self._evictable[incarnation]
            if not newest.chunks:
                del self._streams[incarnation]
        self.flushed_bytes -= dropped
        return dropped

    def _pinned_streams(self) -> Iterator[_Newest]:
        return (newest for newest in self._streams.values() if newest.pinned_bytes)


def _next_offset(chunk: CachedChunk) -> Offset:
    return chunk.next_offset
