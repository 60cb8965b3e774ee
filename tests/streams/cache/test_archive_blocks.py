"""Blocks of the archive: each read once for all, ahead of sequential readers, and always the archive's own chunks."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from coldstream.errors import BadCrcError, GapError, ObjectNotFoundError, StreamNotFoundError, UnavailableError
from coldstream.lifecycle.sweep import sweep
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.object_values import RangeRead
from coldstream.streams.cache import block_cache
from coldstream.streams.cache.block_cache import ArchiveBlocks
from coldstream.streams.cache.budget import MemoryBudget
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.units import ByteRange, Offset
from tests.linearizability.virtual_loop import VirtualLoop
from tests.linearizability.virtual_threads import VirtualExecutor, current_thread
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.cached_chunks import stream_of
from tests.support.compacting import LONG_AFTER, options_of, run, stores_at

Result = TypeVar("Result")
FAR = Offset(1 << 40)
GET_S = 1.0


class SlowObjects(MemoryObjects):
    """GETs take a second, and say which bytes they were for. `failures` of them fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[tuple[str, ByteRange]] = []
        self.failures = 0
        self.at_once = self.most_at_once = 0

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        self.gets.append((key, byte_range))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if current_thread() is not None:
            time.sleep(GET_S)
        self.at_once -= 1
        if self.failures:
            self.failures -= 1
            raise UnavailableError("S3 does not answer")
        return super().get_range(key, byte_range, if_match=if_match)


@dataclass
class World:
    """An archive, and the blocks of it that are in memory."""

    loop: VirtualLoop
    archive: ChunkArchive
    objects: SlowObjects
    budget: MemoryBudget
    blocks: ArchiveBlocks

    def run(self, work: Awaitable[Result]) -> Result:
        async def main() -> Result:
            return await work

        with self.loop.threads.patched():
            return self.loop.run_until_complete(main())

    async def read(self, start: int, *, end: int = FAR, max_bytes: int = 1) -> list[CachedChunk]:
        return await self.blocks.read(STREAM, Offset(start), Offset(end), max_bytes)

    async def read_on(
        self, start: int, *, end: int = FAR, max_bytes: int = 1, pause_s: float = 0.0
    ) -> list[CachedChunk]:
        """Read from a place to the end, in so many steps as it takes."""
        found: list[CachedChunk] = []
        at = start
        while at < end and (some := await self.read(at, end=end, max_bytes=max_bytes)):
            found += some
            at = some[-1].next_offset
            await asyncio.sleep(pause_s)
        return found


Make = Callable[..., World]


@pytest.fixture
def world() -> Iterator[Make]:
    loop = VirtualLoop()
    made: list[World] = []

    def make(chunks: int = 40, *, limit_bytes: int = 1 << 20, **options: Any) -> World:
        """An archive of two fragments, of chunks of 134 bytes, two of them a block."""
        objects = SlowObjects()
        archive = ChunkArchive(objects=objects, message_bytes=82, sparse_bytes=200)
        if chunks:
            archive.add(0, steady(1, *range(chunks // 2)))
            archive.add(chunks // 2, steady(1, *range(chunks // 2, chunks)))
        budget = MemoryBudget(limit_bytes)
        blocks = ArchiveBlocks(archive.table, objects, budget, VirtualExecutor(loop.threads), **options)
        budget.add_evictor(blocks.evict)
        made.append(World(loop, archive, objects, budget, blocks))
        return made[-1]

    yield make
    for one in made:
        one.run(one.blocks.close())
        assert one.budget.used == 0
    loop.bury()
    loop.close()
    assert loop.errors == []


def ids(found: list[CachedChunk]) -> list[int]:
    return [one.first_offset for one in found]


def assert_is_of(found: list[CachedChunk], archive: ChunkArchive) -> None:
    """Whatever is read is the archive's, byte for byte, without a hole."""
    for one in found:
        stored = archive.stored[one.first_offset]
        assert (one.data, one.next_offset) == (stored.data, stored.header.next_offset)
        assert (one.timestamp, one.epoch) == (stored.header.timestamp, stored.header.epoch)
    assert all(a.next_offset == b.first_offset for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("max_bytes", [1, 134, 300, 1000, 1 << 20])
def test_a_reader_gets_each_chunk_once_in_order_from_any_place(world: Make, max_bytes: int) -> None:
    it = world()
    for start in (0, 1, 19, 20, 33, 39):
        found = it.run(it.read_on(start, max_bytes=max_bytes))
        assert ids(found) == list(range(start, 40))
        assert_is_of(found, it.archive)
    assert it.run(it.read(40)) == []


def test_a_read_begins_with_the_chunk_that_holds_its_offset_and_ends_before_its_end(world: Make) -> None:
    it = world(0)
    it.archive.add(0, steady(10, *range(6)))
    assert ids(it.run(it.read(17, max_bytes=1 << 20))) == [10, 20, 30, 40, 50]
    assert ids(it.run(it.read(10, end=30, max_bytes=1 << 20))) == [10, 20]
    assert ids(it.run(it.read(10, end=31, max_bytes=1 << 20))) == [10, 20, 30]
    assert it.run(it.read(30, end=30)) == []


def test_a_read_has_its_bytes_at_most_or_one_chunk(world: Make) -> None:
    it = world()
    size = len(it.archive.chunks[0].data)
    it.run(it.read_on(0))
    assert ids(it.run(it.read(4, max_bytes=3 * size))) == [4, 5, 6]
    assert ids(it.run(it.read(4, max_bytes=3 * size - 1))) == [4, 5]
    assert ids(it.run(it.read(4, max_bytes=1))) == [4]


def test_what_is_in_memory_costs_no_request(world: Make) -> None:
    it = world()
    it.run(it.read_on(0))
    gets, queries = len(it.objects.gets), it.blocks.plans
    it.run(it.read(10))
    it.run(it.read(30))
    assert len(it.objects.gets) == gets
    assert it.blocks.plans <= queries + 2  # a place that is read at random may be planned anew


def test_readers_who_come_at_the_same_time_share_one_get(world: Make) -> None:
    it = world()

    async def many() -> list[list[CachedChunk]]:
        return await asyncio.gather(*(it.read(7) for _ in range(20)))

    assert all(ids(found) == [7] for found in it.run(many()))
    assert len(it.objects.gets) == 1
    assert (it.blocks.counts.misses, it.blocks.counts.gets) == (20, 1)


def test_a_random_read_reads_no_more_than_its_block(world: Make) -> None:
    it = world()
    for start in (30, 5, 22, 13):
        it.run(it.read(start))
    assert len(it.objects.gets) == 4
    assert {len(byte_range) for _, byte_range in it.objects.gets} == {2 * len(it.archive.chunks[0].data)}
    assert it.blocks.counts.read_ahead_bytes == 0


def test_a_sequential_reader_waits_ever_less_often(world: Make) -> None:
    it = world(400, least_bytes=300, most_bytes=1 << 14)
    it.run(it.read_on(0, pause_s=0.1))
    counts = it.blocks.counts
    assert counts.misses < 20
    assert counts.hits > 370
    assert counts.wasted_bytes == 0
    assert counts.get_bytes == sum(len(one.data) for one in it.archive.chunks)


def test_neighbouring_blocks_are_read_by_one_get_and_no_block_by_two(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_cache, "GET_BYTES", 2000)
    it = world(400, least_bytes=300, most_bytes=8000)
    it.run(it.read_on(0, pause_s=0.01))
    read = sorted(it.objects.gets, key=lambda one: (one[0], one[1].start))
    for (key, one), (next_key, following) in itertools.pairwise(read):
        assert key != next_key or one.end == following.start
    # 400 chunks of 134 bytes are 27 GETs of 2,000 bytes; the first few are smaller.
    assert len(read) <= 40


def test_no_more_gets_are_under_way_than_leave_threads_for_those_who_wait(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_cache, "GET_BYTES", 300)
    it = world(400, least_bytes=300, most_bytes=8000, read_ahead_gets=3)
    it.run(it.read_on(0))
    assert it.objects.most_at_once == 3


def test_what_is_read_ahead_and_evicted_unread_makes_its_reader_read_less_far(world: Make) -> None:
    it = world(400, least_bytes=300, most_bytes=8000)

    async def begin() -> None:
        at = 0
        for _ in range(12):
            at = (await it.read(at))[-1].next_offset
        await asyncio.sleep(10)

    it.run(begin())
    (reader,) = it.blocks._readers._by_place.values()
    before, held = reader.window_bytes, it.blocks.held_bytes
    assert before > 300
    assert it.blocks.evict(held) == held
    it.budget.free(held)
    assert it.blocks.counts.wasted_bytes > 0
    assert reader.window_bytes < before


def test_blocks_that_were_read_longest_ago_go_first_and_a_random_read_keeps_its_own(world: Make) -> None:
    it = world()
    for start in (0, 10, 20, 30):
        it.run(it.read(start))
    it.run(it.read(0))
    held = it.blocks.held_bytes
    it.budget.free(it.blocks.evict(held // 2))
    gets = len(it.objects.gets)
    for start in (0, 30):
        it.run(it.read(start))
    assert len(it.objects.gets) == gets
    it.run(it.read(10))
    assert len(it.objects.gets) == gets + 1


def test_what_is_held_and_under_way_is_what_the_budget_says(world: Make) -> None:
    it = world(400, least_bytes=300, most_bytes=8000)

    async def watch() -> None:
        reading = asyncio.create_task(it.read_on(0, pause_s=0.05))
        while not reading.done():
            assert it.budget.used >= it.blocks.held_bytes
            await asyncio.sleep(0.3)

    it.run(watch())
    it.run(asyncio.sleep(5))
    assert it.budget.used == it.blocks.held_bytes > 0


@pytest.mark.parametrize("limit_bytes", [1, 500, 1500, 5000, 20_000])
def test_any_number_of_readers_get_on_in_any_budget(world: Make, limit_bytes: int) -> None:
    it = world(60, limit_bytes=limit_bytes, least_bytes=300, most_bytes=4000)

    async def many() -> list[list[CachedChunk]]:
        return await asyncio.gather(*(it.read_on(start, max_bytes=300) for start in range(0, 60, 7)))

    for start, found in zip(range(0, 60, 7), it.run(many()), strict=True):
        assert ids(found) == list(range(start, 60))


def test_a_failed_get_is_told_to_all_who_wait_and_is_tried_again_by_the_next(world: Make) -> None:
    it = world()
    it.objects.failures = 1

    async def two() -> list[object]:
        return await asyncio.gather(it.read(7), it.read(6), return_exceptions=True)

    assert [type(one) for one in it.run(two())] == [UnavailableError, UnavailableError]
    assert it.budget.used == 0
    assert ids(it.run(it.read(7))) == [7]


def test_damage_is_told_with_its_place_and_nothing_of_it_is_kept(world: Make) -> None:
    it = world()
    chunk = it.archive.stored[7]
    body = bytearray(it.objects.objects[chunk.key])
    body[chunk.position + len(chunk.data) - 1] ^= 1
    it.objects.put(chunk.key, bytes(body))
    for _ in range(2):
        with pytest.raises(BadCrcError, match=f"{chunk.key}.*{chunk.position}"):
            it.run(it.read(6))
    assert it.blocks.held_bytes == 0
    assert ids(it.run(it.read(8))) == [8]


def test_a_gap_is_told_where_it_begins_and_what_follows_is_read(world: Make) -> None:
    it = world(0)
    it.archive.add(0, steady(1, *range(6)))
    it.archive.add(10, steady(1, *range(6)))

    assert ids(it.run(it.read_on(0, end=6, max_bytes=300))) == list(range(6))
    with pytest.raises(GapError) as caught:
        it.run(it.read(6))
    assert (caught.value.first_offset, caught.value.next_offset) == (6, 10)
    with pytest.raises(GapError):
        it.run(it.read(8))
    assert ids(it.run(it.read_on(10))) == list(range(10, 16))


def test_what_is_archived_later_is_found(world: Make) -> None:
    it = world()
    assert ids(it.run(it.read_on(38))) == [38, 39]
    assert it.run(it.read(40)) == []
    it.archive.add(40, steady(1, 40, 41, 42))
    assert ids(it.run(it.read_on(40))) == [40, 41, 42]


def test_a_stream_that_is_not_there_is_an_error(world: Make) -> None:
    it = world()
    with pytest.raises(StreamNotFoundError):
        it.run(it.blocks.read(stream_of(9), Offset(0), FAR, 1))


def test_objects_that_were_replaced_since_the_plan_are_planned_anew(world: Make) -> None:
    it = world()
    it.run(it.read(0))
    run(it.archive, options_of())
    sweep(stores_at(it.archive.table, it.objects, LONG_AFTER), STREAM.incarnation)
    assert it.archive.chunks[0].key not in it.objects.objects
    found = it.run(it.read_on(1))
    assert ids(found) == list(range(1, 40))


def test_objects_that_vanish_again_and_again_are_an_error(world: Make) -> None:
    it = world()
    it.objects.objects.clear()
    with pytest.raises(ObjectNotFoundError):
        it.run(it.read(0))
    assert it.budget.used == 0


def test_whoever_is_cancelled_while_he_waits_for_memory_takes_nothing_with_him(world: Make) -> None:
    it = world()

    async def play() -> list[CachedChunk]:
        assert it.budget.try_reserve(it.budget.limit_bytes)
        first, second = (asyncio.create_task(it.read(7)) for _ in range(2))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        assert not second.done()
        it.budget.free(it.budget.limit_bytes)
        return await second

    assert ids(it.run(play())) == [7]


def test_whoever_is_cancelled_while_a_get_is_under_way_leaves_it_to_the_next(world: Make) -> None:
    it = world()

    async def play() -> None:
        first = asyncio.create_task(it.read(7))
        await asyncio.sleep(GET_S / 2)
        first.cancel()
        await asyncio.sleep(GET_S)
        assert ids(await it.read(7)) == [7]

    it.run(play())
    assert len(it.objects.gets) == 1
