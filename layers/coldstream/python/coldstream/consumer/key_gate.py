"""The order of keys: what lineage says comes later waits until all before it is in the queue."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from coldstream.consumer.batch import BatchItem, ChunkBatch, Give, ReachedOffset, SkippedGap
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_map import ShardMap
from coldstream.units import Offset

log = logging.getLogger(__name__)


class KeyGate:
    """Holds a partition's chunks back from `KeyOrder.limit` on. Implements `Gate`.

    A partition that is held back keeps one batch here, and its follower waits. The others run on. Seals and starts of
    children are ends of chunks, so chunks are held back whole.
    """

    def __init__(self, found: ShardMap, put: Give) -> None:
        self._order = KeyOrder(found, {})
        self._put = put
        self._waiting: dict[int, tuple[Offset, asyncio.Event]] = {}

    async def give(self, item: BatchItem) -> None:
        """Put an item into the queue, its chunks as soon as each may be given out."""
        number = _numbered(item)
        match item:
            case ChunkBatch():
                await self._give_chunks(number, item)
            case SkippedGap(gap=gap):
                await self._put(item)
                self._read_to(number, gap.next_offset)
            case ReachedOffset(offset=offset):
                # What was given before it may end at a limit, so that it says nothing which waits.
                await self._put(item)
                self._read_to(number, offset)

    async def ready(self, number: int, offset: Offset) -> None:
        """Wait until a partition may be read at an offset."""
        while not self._order.may_read(number, offset):
            released = asyncio.Event()
            self._waiting[number] = (offset, released)
            await released.wait()

    def add(self, number: int, offset: Offset) -> None:
        """Count what lies before an offset as read."""
        self._read_to(number, offset)

    def finish(self, number: int) -> None:
        """Let those go on that wait for a partition."""
        self._order.finish(number)
        self._wake()

    def drop(self, number: int) -> None:
        """Let its follower wait no more."""
        self._waiting.pop(number, None)

    def use(self, found: ShardMap) -> None:
        """Go on with a later revision of the map: seals may have come, and edges."""
        for edge in self._order.use(found):
            log.warning(
                "%s: partition %d, %r, was read up to offset %d before the change was known by which it comes after"
                " partition %d, %r, from offset %d on: keys of the two may have come out of their order",
                found,
                edge.child,
                found.partitions[edge.child].name,
                self._order.position(edge.child),
                edge.parent,
                found.partitions[edge.parent].name,
                edge.child_from,
            )
        self._wake()

    def away(self, number: int) -> None:
        """Do nothing: whoever comes after it waits all the same."""

    async def run(self) -> None:
        """Return at once: the followers do all the work."""

    async def _give_chunks(self, number: int, batch: ChunkBatch) -> None:
        chunks = batch.chunks
        # Reading skips only what holds no message, or what was not asked for: all before the first chunk is read. An
        # idle parent may say so by its first chunk alone.
        self._read_to(number, Offset(chunks[0].header.chunk_id))
        while chunks:
            limit = self._order.limit(number)
            free = sum(1 for chunk in chunks if limit is None or chunk.header.next_offset <= limit)
            if free:
                await self._put(replace(batch, chunks=chunks[:free]))
                # Without an await after `put`: nothing that this releases can come into the queue before the batch.
                self._read_to(number, chunks[free - 1].header.next_offset)
                chunks = chunks[free:]
            else:
                await self.ready(number, Offset(chunks[0].header.next_offset - 1))

    def _read_to(self, number: int, offset: Offset) -> None:
        self._order.read_to(number, offset)
        self._wake()

    def _wake(self) -> None:
        for number, (offset, released) in list(self._waiting.items()):
            if self._order.may_read(number, offset):
                released.set()
                del self._waiting[number]


def _numbered(item: BatchItem) -> int:
    assert item.partition is not None
    return item.partition
