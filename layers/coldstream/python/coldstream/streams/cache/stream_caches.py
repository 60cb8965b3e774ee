"""`StreamCaches`: the two caches of a client and their budget; and the one way to read a stream through them."""

from __future__ import annotations

from concurrent.futures import Executor

from coldstream.errors import GapError
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.streams.cache.block_cache import READ_AHEAD_GETS, ArchiveBlocks
from coldstream.streams.cache.budget import MemoryBudget
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.cache.log_cache import LogCache
from coldstream.streams.cache.read_ahead import LEAST_BYTES, MOST_BYTES
from coldstream.units import Offset

BLOCK_SHARE = 4
"""One part in so many of the budget is left to blocks of the archive before flushed batches have to go for them."""

MAX_HANDOVERS = 8
"""How often in a row a read may find its place in neither cache nor archive, because it moves in between."""


class StreamCaches:
    """The log cache and the archive's blocks, within one budget of `limit_bytes`; `executor` has so many `threads`.

    When room is needed, blocks beyond their share go first, then flushed batches, then all other blocks. Blocks have a
    share because flushed batches alone would fill the budget, and nothing that is read ahead would live until it is
    read.
    """

    def __init__(
        self, table: ManifestReads, objects: ObjectReads, executor: Executor, limit_bytes: int, *, threads: int
    ) -> None:
        self.budget = MemoryBudget(limit_bytes)
        self.log = LogCache(self.budget)
        share = limit_bytes // BLOCK_SHARE
        # While they are read, blocks take twice their bytes: so what one reader reads ahead stays within the share.
        most_bytes = min(MOST_BYTES, share // 2)
        self.blocks = ArchiveBlocks(
            table,
            objects,
            self.budget,
            executor,
            least_bytes=min(LEAST_BYTES, most_bytes),
            most_bytes=most_bytes,
            read_ahead_gets=min(READ_AHEAD_GETS, threads // 2),
        )
        self.budget.add_evictor(lambda size: self.blocks.evict(min(size, self.blocks.held_bytes - share)))
        self.budget.add_evictor(self.log.evict)
        self.budget.add_evictor(self.blocks.evict)

    async def read(self, stream: StreamId, start: Offset, end: Offset, max_bytes: int) -> list[CachedChunk]:
        """Return chunks from the one that holds `start` on; everything up to `end` must be durable.

        They begin before `end`, and have `max_bytes` at most, or are one: so there is none only from `end` on. There
        may be fewer, as where the archive's blocks end and the log cache begins. The first may hold offsets before
        `start`. Tracking chunks are among them.

        Cost: none if the log cache has `start`, else that of `ArchiveBlocks.read`, which says what it raises.
        """
        for _ in range(MAX_HANDOVERS):
            if start >= end:
                return []
            cached = self.log.read(stream.incarnation, start, end, max_bytes)
            if cached:
                return cached
            # What the log cache has is not read from the archive. It may lose that at each await, and then the next
            # turn, or the next read, finds it in the archive: only what was flushed is evicted.
            first = self.log.first(stream.incarnation)
            limit = end if first is None or first <= start else min(end, first)
            found = await self.blocks.read(stream, start, limit, max_bytes)
            if found:
                return found
        raise GapError(str(stream), start, end, "neither in memory nor archived")

    async def close(self) -> None:
        """Wait for the requests under way, and give up what was read from the archive."""
        await self.blocks.close()
