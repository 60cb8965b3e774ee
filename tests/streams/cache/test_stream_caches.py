"""Readers, writers, a flusher, trims and compactions within one small memory: nothing is skipped, nothing comes twice.

Everything runs in simulated time, with the shipped client on a table and a bucket that are far away; a seed decides how
long each request takes, and so who comes between whom at each await.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest

from coldstream.compact import run as compacting
from coldstream.errors import GapError, OffsetOutOfRangeError, StreamClosedError
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.cache.stream_caches import StreamCaches
from coldstream.streams.client import StreamClient
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.handle import DirectStream
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.units import Offset, TimestampMs
from tests.linearizability.faulty_stores import Network, Remote
from tests.linearizability.virtual_loop import VirtualLoop
from tests.support.cached_chunks import opaque_chunk, stream_of
from tests.support.compacting import LONG_AFTER, Inline, compact_stream, options_of

NOW = TimestampMs(1_763_700_000_000)
KEYS = Keys("archive/")


@dataclass
class World:
    """One process and its client, in simulated time. `wrong` is what readers saw that they should not have."""

    loop: VirtualLoop
    seed: int
    table: MemoryTable = field(default_factory=MemoryTable)
    objects: MemoryObjects = field(default_factory=MemoryObjects)

    def __post_init__(self) -> None:
        self.network = Network(self.loop, self.seed)
        self.process = self.loop.process("client")
        self.archive = DirectArchive(
            Remote(self.network, self.process, self.table),  # type: ignore[arg-type]
            Remote(self.network, self.process, self.objects),  # type: ignore[arg-type]
            KEYS,
            lambda: TimestampMs(NOW + int(self.loop.now * 1000)),
        )

    def run(self, options: StreamOptions, play: Callable[[StreamClient], Awaitable[None]]) -> None:
        async def main() -> None:
            client = await StreamClient.open(self.archive, options, wal=MemoryWalStore())
            try:
                await play(client)
            finally:
                await client.close()
            assert client._engine.budget.used == client._engine.log_cache.pinned_bytes == 0

        with self.loop.threads.patched():
            self.loop.run_until_complete(self.process.start(main()))


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    loop = VirtualLoop()
    yield lambda seed=1: World(loop, seed)
    with loop.threads.patched():
        loop.bury()
    loop.close()
    assert loop.errors == []


def small(memory_bytes: int, **flush: float) -> StreamOptions:
    """Return options of a small memory, with fragments of about 2 kB."""
    settings = {"fragment_bytes": 2000, "flush_age_s": 5.0, "at_once": 2, **flush}
    return StreamOptions(
        wal=WalOptions(max_bytes=1000, interval_s=0.02),
        flush=FlushOptions(**settings),  # type: ignore[arg-type]
        memory_bytes=memory_bytes,
        threads=8,
        writer="writer",
    )


def body(stream: int, number: int) -> bytes:
    return b"%d/%d/" % (stream, number) + bytes(60)


async def append_all(handle: DirectStream, stream: int, count: int, rng: random.Random) -> None:
    """Append batches of one message, several at a time."""
    at = 0
    while at < count:
        some = rng.randint(1, 6)
        await asyncio.gather(*(handle.append([body(stream, number)]) for number in range(at, min(at + some, count))))
        at += some
        await asyncio.sleep(rng.expovariate(20))


async def read_all(handle: DirectStream, stream: int, count: int, rng: random.Random) -> None:
    """Read to the last batch from anywhere, in steps of any size; whoever falls behind a trim begins at the start."""
    at = 0
    while at < count:
        try:
            found = await handle.fetch(Offset(at), max_bytes=rng.choice((1, 300, 1000)))
        except OffsetOutOfRangeError:
            assert at < handle.start
            at = handle.start
            continue
        for one in found:
            assert (one.base_offset, one.next_offset) == (at, at + 1)
            assert [message.body for message in one.messages()] == [body(stream, at)]
            at += 1
        await asyncio.sleep(rng.expovariate(30))


def compact(world: World, handle: DirectStream) -> None:
    """Compact a stream, and sweep away what was replaced, as somebody does whose requests take no time."""
    with patch.object(compacting, "ThreadPoolExecutor", Inline):
        for now in (NOW, LONG_AFTER):
            compact_stream(world.table, world.objects, handle.stream, options_of(), keys=KEYS, now=now)


async def disturb(world: World, client: StreamClient, handles: list[DirectStream], rng: random.Random) -> None:
    """Trim, flush, compact and evict, at any moment."""
    caches = client._engine.caches
    while True:
        await asyncio.sleep(rng.expovariate(5))
        handle = rng.choice(handles)
        match rng.randrange(6):
            case 0:
                await handle.flush()
            case 1 if handle.confirmed > handle.start + 30:
                await handle.trim(Offset(rng.randint(handle.start, handle.confirmed - 30)))
            case 2:
                await asyncio.get_running_loop().run_in_executor(None, compact, world, handle)
            case 3:
                caches.budget.free(caches.log.evict(rng.randrange(2000)))
            case 4:
                caches.budget.free(caches.blocks.evict(rng.randrange(2000)))
            case _:
                pass


@pytest.mark.parametrize("seed", range(25))
def test_readers_get_everything_once_whatever_comes_in_between(world: Callable[..., World], seed: int) -> None:
    it, rng = world(seed), random.Random(seed)
    counts = [rng.randint(40, 120) for _ in range(rng.randint(1, 3))]

    async def play(client: StreamClient) -> None:
        handles = []
        for number in range(len(counts)):
            await client.create(f"s{number}")
            handles.append(await client.open_stream(f"s{number}"))
        disturbing = asyncio.create_task(disturb(it, client, handles, rng))
        work = [append_all(one, number, counts[number], rng) for number, one in enumerate(handles)]
        work += [
            read_all(one, number, counts[number], rng)
            for number, one in enumerate(handles)
            for _ in range(rng.randint(1, 4))
        ]
        await asyncio.gather(*work)
        disturbing.cancel()
        with suppress(asyncio.CancelledError):
            await disturbing

    it.run(small(rng.choice((3000, 12_000, 60_000))), play)


@pytest.mark.parametrize("memory_bytes", [1, 700, 3000, 20_000])
def test_appends_to_many_streams_wait_for_memory_and_all_get_on(world: Callable[..., World], memory_bytes: int) -> None:
    it = world(memory_bytes)
    streams, batches = 30, 6

    async def play(client: StreamClient) -> None:
        budget = client._engine.budget
        for number in range(streams):
            await client.create(f"s{number}")
        handles = [await client.open_stream(f"s{number}") for number in range(streams)]
        order: list[tuple[int, int]] = []

        async def append(number: int, at: int) -> None:
            assert await handles[number].append([body(number, at)]) == at
            order.append((number, at))

        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, budget.used)
                await asyncio.sleep(0.005)

        watching = asyncio.create_task(watch())
        # Fragments never fill and nothing comes of age: only pressure flushes anything.
        await asyncio.gather(*(append(number, at) for at in range(batches) for number in range(streams)))
        watching.cancel()
        one = 48 + 4 + len(body(99, 9)) + 400
        assert most <= max(memory_bytes, one)
        for number in range(streams):
            assert [at for found, at in order if found == number] == list(range(batches))
            at = 0
            while at < batches:
                for found in await handles[number].fetch(Offset(at)):
                    assert [message.body for message in found.messages()] == [body(number, at)]
                    at += 1

    it.run(small(memory_bytes, fragment_bytes=1 << 20, flush_age_s=1e6), play)


def test_a_batch_larger_than_the_whole_memory_is_appended_alone(world: Callable[..., World]) -> None:
    it = world()

    async def play(client: StreamClient) -> None:
        await client.create("s")
        handle = await client.open_stream("s")
        offsets = await asyncio.gather(*(handle.append([bytes(size)]) for size in (100, 50_000, 100, 90_000, 1)))
        assert offsets == [0, 1, 2, 3, 4]
        assert client._engine.flusher.counts.flushes >= 2
        at = 0
        while at < 5:
            at = (await handle.fetch(Offset(at)))[-1].next_offset

    it.run(small(10_000, fragment_bytes=1 << 20, flush_age_s=1e6), play)


def test_appends_wait_as_long_as_the_archive_does_not_answer_and_go_on_after_it(world: Callable[..., World]) -> None:
    it = world()

    async def play(client: StreamClient) -> None:
        await client.create("s")
        handle = await client.open_stream("s")
        it.network.weather.is_out = True
        appends = [asyncio.create_task(handle.append([body(0, number)])) for number in range(60)]
        await asyncio.sleep(300)
        done = sum(one.done() for one in appends)
        assert 0 < done < 60
        it.network.weather.clear()
        assert await asyncio.gather(*appends) == list(range(60))

    it.run(small(8000, fragment_bytes=1 << 20, flush_age_s=1e6), play)


def test_sixty_four_followers_at_the_tail_cost_no_get(world: Callable[..., World]) -> None:
    it = world()
    count, followers = 300, 64

    async def play(client: StreamClient) -> None:
        await client.create("s")
        handle = await client.open_stream("s")
        seen = Counter[int]()

        async def follow() -> None:
            at = 0
            with suppress(StreamClosedError):
                async for one in handle.follow(Offset(0)):
                    assert one.base_offset == at
                    seen[at] += 1
                    at = one.next_offset
                    if at == count:
                        return

        following = [asyncio.create_task(follow()) for _ in range(followers)]
        before = Counter(it.objects.requests)
        await append_all(handle, 0, count, random.Random(1))
        await asyncio.gather(*following)
        after = Counter(it.objects.requests)
        assert seen == dict.fromkeys(range(count), followers)
        # Fragments were flushed, and evicted from under nobody.
        assert after["PutObject"] > before["PutObject"] + 5
        assert after["GetObject"] == before["GetObject"]
        metrics = client.metrics()
        assert (metrics.archive_gets, metrics.archive_plans, metrics.cache_misses) == (0, 0, 0)
        assert metrics.cache_hits > count

    it.run(small(40_000), play)


async def test_a_read_looks_again_if_its_place_moved_into_the_cache_while_it_looked_in_the_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caches = StreamCaches(MemoryTable(), MemoryObjects(), Inline(), 1 << 20, threads=1)
    stream, looks = stream_of(), 0

    async def read(*_: object) -> list[CachedChunk]:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        if looks == 3:
            one = opaque_chunk(5)
            assert caches.budget.try_reserve(one.memory_bytes)
            caches.log.add(stream.incarnation, one)
        return []

    monkeypatch.setattr(caches.blocks, "read", read)
    assert [one.first_offset for one in await caches.read(stream, Offset(5), Offset(6), 100)] == [5]
    assert looks == 3
    caches.log.drop(stream.incarnation)
    # What is durable and nowhere is no end of the stream, but a fault.
    with pytest.raises(GapError, match="neither in memory nor archived"):
        await caches.read(stream, Offset(5), Offset(6), 100)
