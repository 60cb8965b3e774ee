"""The order of time: the chunks of all partitions, merged by their timestamps."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace

from coldstream.consumer.batch import BatchItem, ChunkBatch, Give, ReachedOffset
from coldstream.format.chunk import Chunk
from coldstream.manifest.shard_map import ShardMap
from coldstream.units import Offset


@dataclass(slots=True)
class _Lane:
    """A partition: what waits of its last batch, since when nothing does, and whether it is waited for no longer."""

    idle_since: float
    batch: ChunkBatch | None = None
    chunks: deque[Chunk] = field(default_factory=deque)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    is_live: bool = False


class TimeMerge:
    """Gives the oldest chunk of those that wait, once every partition has one. Implements `Gate`.

    A partition that is at its tail, or whose broker is away, and that gives nothing holds the others up for `wait_s` at
    most; what it gives then comes late. One that is still reading the archive is waited for.
    """

    def __init__(self, put: Give, wait_s: float) -> None:
        self._put = put
        self._wait_s = wait_s
        self._lanes: dict[int, _Lane] = {}
        self._changed = asyncio.Event()

    async def give(self, item: BatchItem) -> None:
        """Put an item into the queue: a batch chunk by chunk, between those of other partitions."""
        assert item.partition is not None
        lane = self._lanes[item.partition]
        if not isinstance(item, ChunkBatch):
            lane.is_live |= isinstance(item, ReachedOffset) and item.at_tail
            await self._put(item)
            self._changed.set()
            return
        lane.batch, lane.chunks = item, deque(item.chunks)
        lane.taken.clear()
        self._changed.set()
        await lane.taken.wait()

    async def ready(self, number: int, offset: Offset) -> None:
        """Return at once: without its first chunk nothing can be merged."""

    def add(self, number: int, offset: Offset) -> None:  # noqa: ARG002  the port's
        """Wait for a partition from now on."""
        self._lanes[number] = _Lane(asyncio.get_running_loop().time())

    def finish(self, number: int) -> None:
        """Wait for a partition no more."""
        self._lanes.pop(number, None)
        self._changed.set()

    def drop(self, number: int) -> None:
        """Forget what waits of a partition."""
        self.finish(number)

    def use(self, found: ShardMap) -> None:
        """Do nothing: time knows no lineage."""

    def away(self, number: int) -> None:
        """Hold nobody up any longer for a partition whose broker is away: it may have read no archive yet."""
        if (lane := self._lanes.get(number)) is not None:
            lane.is_live = True
            self._changed.set()

    async def run(self) -> None:
        """Merge until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            self._changed.clear()
            pause_s = self._pause_s(clock())
            if pause_s is not None and pause_s <= 0:
                await self._put_oldest()
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _pause_s(self, now: float) -> float | None:
        """Return how long to wait for those that have nothing; 0 to go on, None to wait for news alone."""
        if not any(lane.chunks for lane in self._lanes.values()):
            return None
        idle = [lane for lane in self._lanes.values() if not lane.chunks]
        if any(not lane.is_live for lane in idle):
            return None
        return max((lane.idle_since + self._wait_s - now for lane in idle), default=0.0)

    async def _put_oldest(self) -> None:
        """Put the chunks of one partition, as many in a row as are older than everybody else's first."""
        waiting = [lane for lane in self._lanes.values() if lane.chunks]
        oldest = min(waiting, key=lambda lane: lane.chunks[0].header.timestamp)
        others = [lane.chunks[0].header.timestamp for lane in waiting if lane is not oldest]
        until = min(others, default=None)
        run = [oldest.chunks.popleft()]
        while oldest.chunks and (until is None or oldest.chunks[0].header.timestamp <= until):
            run.append(oldest.chunks.popleft())
        assert oldest.batch is not None
        await self._put(replace(oldest.batch, chunks=tuple(run)))
        if not oldest.chunks:
            oldest.idle_since = asyncio.get_running_loop().time()
            oldest.taken.set()
