"""`ArchiveBlocks`: what is read from the archive, in blocks that all readers share, within the memory budget."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from coldstream.errors import ObjectNotFoundError
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.streams.cache.block import (
    BlockKey,
    CachedBlock,
    Load,
    are_neighbours,
    key_of,
    load_bytes,
    read_blocks,
    retrieve,
)
from coldstream.streams.cache.block_plan import BlockPlans
from coldstream.streams.cache.budget import MemoryBudget
from coldstream.streams.cache.cache_counts import CacheCounts
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.cache.read_ahead import LEAST_BYTES, MOST_BYTES, ReadAhead, Readers
from coldstream.units import MIB, Offset

MAX_PLANNED_TWICE = 3
"""How often in a row a plan may turn out to be older than a compaction, before that is the answer."""

GET_BYTES = 8 * MIB
"""What one GET reads ahead at most, as the archive's reader: several are faster than one, and each costs the same."""

READ_AHEAD_GETS = 16
"""GETs under way for read-ahead, of all readers, at most: some threads are left for those who wait."""


class ArchiveBlocks:
    """Reads the archive by blocks of about a MiB, each once for all who want it, and ahead of sequential readers.

    For one event loop; the requests are made in threads of `executor`, of which `read_ahead_gets` read ahead at most.
    Blocks give way to whatever else needs the budget's memory, those first that were read longest ago. Whoever
    registers `evict` with the budget decides how valuable they are.
    """

    def __init__(
        self,
        table: ManifestReads,
        objects: ObjectReads,
        budget: MemoryBudget,
        executor: Executor,
        *,
        least_bytes: int = LEAST_BYTES,
        most_bytes: int = MOST_BYTES,
        read_ahead_gets: int = READ_AHEAD_GETS,
    ) -> None:
        self.counts = CacheCounts()
        self.held_bytes = 0
        """Bytes of the blocks that are in memory, as the budget counts them; those under way are not among them."""
        self._objects = objects
        self._budget = budget
        self._executor = executor
        self._plans = BlockPlans(table, executor)
        self._readers = Readers(least_bytes=least_bytes, most_bytes=most_bytes)
        self._blocks: OrderedDict[BlockKey, CachedBlock] = OrderedDict()
        self._loads: set[Load] = set()
        self._read_ahead_gets = read_ahead_gets
        self._read_ahead_loads = 0

    @property
    def plans(self) -> int:
        """How often the manifest was asked which objects hold what: a GetItem and a Query each, rarely more."""
        return self._plans.begun

    async def read(self, stream: StreamId, start: Offset, end: Offset, max_bytes: int) -> list[CachedChunk]:
        """Return archived chunks from the one that holds `start` on.

        They begin before `end`, and have `max_bytes` at most, or are one. There are fewer if the rest is not in memory
        yet, and none where the archive ends. Tracking chunks are among them. What was returned is the caller's and no
        longer counted.

        Cost: none if it is in memory, else one GET, and that of a plan every hundred MiB or so. Raises GapError,
        StreamNotFoundError, NotRestoredError, CorruptionError, UnavailableError; and ObjectNotFoundError if objects
        vanish again and again.
        """
        for attempt in range(MAX_PLANNED_TWICE):
            try:
                return await self._read(stream, start, end, max_bytes)
            except ObjectNotFoundError:
                self._plans.forget(stream.incarnation)
                if attempt == MAX_PLANNED_TWICE - 1:
                    raise
        raise AssertionError

    async def close(self) -> None:
        """Wait for what is under way, and give everything back. Whoever waits for memory is cancelled."""
        for load in tuple(self._loads):
            if not load.is_reading:
                self._give_up(load)
        await asyncio.gather(*(load.task for load in self._loads), return_exceptions=True)
        self._budget.free(self.evict(self.held_bytes))

    def evict(self, size_bytes: int) -> int:
        """Drop blocks, the one that was read longest ago first; an evictor of the budget."""
        dropped = 0
        for block in tuple(self._oldest(size_bytes)):
            del self._blocks[block.key]
            dropped += block.memory_bytes
            if block.reader is not None:
                block.reader.cool()
                self.counts.wasted_bytes += block.memory_bytes
        self.held_bytes -= dropped
        return dropped

    def _oldest(self, size_bytes: int) -> Iterator[CachedBlock]:
        """Yield the blocks that were read longest ago, as many as have `size_bytes`; those under way are no use."""
        found = 0
        for block in self._blocks.values():
            if found >= size_bytes:
                return
            if block.chunks is not None:
                found += block.memory_bytes
                yield block

    async def _read(self, stream: StreamId, start: Offset, end: Offset, max_bytes: int) -> list[CachedChunk]:
        reader = self._readers.at(stream.incarnation, start)
        # One GET more than the window: so its end is not taken for that of the archive.
        planned_bytes = max_bytes if reader is None else max_bytes + reader.wider_bytes + GET_BYTES
        steps = [one for one in await self._plans.steps(stream, start, planned_bytes) if one.start < end]
        if not steps:
            return []
        load = self._load_of(steps, max_bytes)
        if load is None:
            # Before anything is read ahead, for which this very block may be evicted.
            found = self._chunks(steps, {}, start, end, max_bytes)
            self._read_ahead(steps[1:], reader)
        else:
            if reader is not None:
                reader.grow()
            # Begun before the wait, but after the load that is waited for: that one has its memory and its thread.
            self._read_ahead(steps[1:], reader)
            found = self._chunks(steps, await self._wait(load), start, end, max_bytes)
        if reader is None:
            self._touch(steps[0])
        self._readers.put(stream.incarnation, found[-1].next_offset, reader)
        return found

    def _load_of(self, steps: Sequence[ScanSlice], max_bytes: int) -> Load | None:
        """Return the load to wait for, begun now if need be; None if the first block is there."""
        block = self._blocks.get(key_of(steps[0]))
        if block is not None:
            if block.load is None:
                self.counts.hits += 1
            else:
                self.counts.misses += 1
            return block.load
        self.counts.misses += 1
        run = next(self._runs(steps, min(max_bytes, GET_BYTES)))
        return self._begin(run, None, is_reserved=self._budget.try_reserve(load_bytes(run)))

    def _read_ahead(self, steps: Sequence[ScanSlice], reader: ReadAhead | None) -> None:
        """Begin to read what is missing of a reader's window, by GETs that are few and large."""
        if reader is None or not reader.window_bytes:
            return
        window: list[ScanSlice] = []
        window_bytes = 0
        for step in steps:
            window_bytes += step.data_bytes
            if window and window_bytes > reader.window_bytes:
                break
            window.append(step)
        least_bytes = min(GET_BYTES, reader.window_bytes // 2)
        for run in self._runs(window, GET_BYTES):
            # The last one is put off until there is more of it, unless nothing follows in the archive.
            if run[-1] is window[-1] and len(window) < len(steps) and sum(one.data_bytes for one in run) < least_bytes:
                return
            # What finds no thread or no memory at once is left: nobody waits for it, and somebody may wait after it.
            if self._read_ahead_loads >= self._read_ahead_gets or not self._budget.try_reserve(load_bytes(run)):
                return
            self._begin(run, reader, is_reserved=True)

    def _runs(self, steps: Sequence[ScanSlice], max_bytes: int) -> Iterator[list[ScanSlice]]:
        """Yield the missing blocks, in runs that one GET reads, of at most so many bytes or one block."""
        run: list[ScanSlice] = []
        run_bytes = 0
        for step in steps:
            is_missing = key_of(step) not in self._blocks
            is_next = is_missing and run_bytes + step.data_bytes <= max_bytes
            if run and not (is_next and are_neighbours(run[-1], step)):
                yield run
                run, run_bytes = [], 0
            if is_missing:
                run.append(step)
                run_bytes += step.data_bytes
        if run:
            yield run

    def _begin(self, steps: Sequence[ScanSlice], reader: ReadAhead | None, *, is_reserved: bool) -> Load:
        blocks = tuple(CachedBlock(step, reader=reader) for step in steps)
        load = Load(blocks, is_reading=is_reserved)
        load.task = asyncio.create_task(self._load(load, is_ahead=reader is not None))
        load.task.add_done_callback(retrieve)
        for block in blocks:
            block.load = load
            self._blocks[block.key] = block
        self._loads.add(load)
        self._read_ahead_loads += reader is not None
        return load

    async def _load(self, load: Load, *, is_ahead: bool) -> None:
        steps = [block.step for block in load.blocks]
        reserved_bytes = load_bytes(steps)
        try:
            if not load.is_reading:
                await self._budget.reserve(reserved_bytes)
                load.is_reading = True
            # From here on the memory is in use until the thread has ended, whoever is cancelled: only `close` waits.
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._executor, read_blocks, self._objects, steps)
        except BaseException:
            self._forget(load)
            if load.is_reading:
                self._budget.free(reserved_bytes)
            raise
        finally:
            self._loads.discard(load)
            self._read_ahead_loads -= is_ahead
        held_bytes = 0
        for block, chunks in zip(load.blocks, found, strict=True):
            block.chunks, block.load = chunks, None
            block.memory_bytes = sum(one.memory_bytes for one in chunks)
            held_bytes += block.memory_bytes
        self.held_bytes += held_bytes
        self.counts.gets += 1
        self.counts.get_bytes += sum(len(step.byte_range) for step in steps)
        self.counts.read_ahead_bytes += held_bytes if is_ahead else 0
        # Very small chunks take more than what was reserved: how many there are, nobody knew before.
        self._budget.overdraw(max(0, held_bytes - reserved_bytes))
        self._budget.free(max(0, reserved_bytes - held_bytes))

    async def _wait(self, load: Load) -> dict[BlockKey, CachedBlock]:
        """Wait for a load, and return its blocks: one of them may be evicted again before the reader comes to it."""
        load.waiting += 1
        try:
            await asyncio.shield(load.task)
        finally:
            load.waiting -= 1
            if not load.waiting and not load.is_reading:
                self._give_up(load)
        return {block.key: block for block in load.blocks}

    def _give_up(self, load: Load) -> None:
        """Cancel a load that waits for memory."""
        load.task.cancel()
        self._loads.discard(load)
        self._forget(load)

    def _forget(self, load: Load) -> None:
        for block in load.blocks:
            if self._blocks.get(block.key) is block:
                del self._blocks[block.key]

    def _chunks(
        self, steps: Sequence[ScanSlice], fresh: dict[BlockKey, CachedBlock], start: Offset, end: Offset, max_bytes: int
    ) -> list[CachedChunk]:
        found: list[CachedChunk] = []
        size_bytes = 0
        for step in steps:
            block = fresh.get(key_of(step)) or self._blocks.get(key_of(step))
            if block is None or block.chunks is None:
                break
            block.reader = None
            for chunk in block.between(found[-1].next_offset if found else start, end):
                size_bytes += len(chunk.data)
                if found and size_bytes > max_bytes:
                    return found
                found.append(chunk)
        return found

    def _touch(self, step: ScanSlice) -> None:
        """Keep a block that was read at random longer than others.

        A sequential reader leaves the order as the blocks came: what it has passed is to go before what is ahead of it.
        """
        if key_of(step) in self._blocks:
            self._blocks.move_to_end(key_of(step))
