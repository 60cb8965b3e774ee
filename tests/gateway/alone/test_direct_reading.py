"""Direct streams that another process writes: every spec, the tail, trims, and figures, from snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coldstream.format.chunk import ChunkHeader
from coldstream.gateway.frames.answers import StreamStatsAnswer
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import StreamStats, Subscribe
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.streams import DirectArchive, DirectStream, StreamClient
from coldstream.units import Offset, TimestampMs
from tests.support.alone import Delivered, RawClient, RunningAlone, running_alone

BATCHES = 6


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000

    def __call__(self) -> TimestampMs:
        return TimestampMs(self.at)


@pytest.fixture
async def archive() -> DirectArchive:
    memory = DirectArchive.in_memory()
    return DirectArchive(memory.table, memory.objects, memory.keys, Clock())


@pytest.fixture
async def stream(archive: DirectArchive) -> AsyncIterator[DirectStream]:
    """Six batches of three messages by a publisher, a second apart; a flush in the middle leaves a snapshot chunk."""
    async with await StreamClient.open(archive) as client:
        await client.create("orders")
        stream = await client.open_stream("orders")
        for number in range(BATCHES):
            clock = archive.now
            assert isinstance(clock, Clock)
            clock.at = 1_000_000 + 1000 * number
            await stream.append([b"%d" % number] * 3, publisher="p", publishing_id=number)
            if number == 2:
                await stream.flush()  # the snapshot of publishers takes offset 9
        yield stream


@pytest.fixture
async def alone(archive: DirectArchive, stream: DirectStream) -> AsyncIterator[RunningAlone]:
    async with running_alone(archive) as running:
        yield running


async def subscribe(client: RawClient, spec: OffsetSpec) -> None:
    assert await client.code(lambda number: Subscribe(number, 1, "orders", spec, 100, {})) == Code.OK


async def ids(client: RawClient, count: int) -> list[int]:
    """Return the ids of so many chunks that are delivered, and check that no more comes."""
    found = []
    for _ in range(count):
        chunk = Delivered.of(await client.next_of(Key.DELIVER)).chunk
        header = ChunkHeader.from_bytes(chunk, source="delivered", position=0)
        assert len(chunk) == 48 + header.data_bytes
        found.append(int(header.chunk_id))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.next_of(Key.DELIVER)
    return found


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (FIRST, [0, 3, 6, 10, 13, 16]),
        (LAST, [16]),
        (NEXT, []),
        (AtOffset(Offset(4)), [3, 6, 10, 13, 16]),
        (AtOffset(Offset(9)), [10, 13, 16]),
        (AtOffset(Offset(1000)), []),
        (AtTimestamp(TimestampMs(0)), [0, 3, 6, 10, 13, 16]),
        (AtTimestamp(TimestampMs(1_001_000)), [3, 6, 10, 13, 16]),
        (AtTimestamp(TimestampMs(1_001_001)), [6, 10, 13, 16]),
        (AtTimestamp(TimestampMs(1_002_500)), [10, 13, 16]),
        (AtTimestamp(TimestampMs(1_005_001)), []),
    ],
)
async def test_each_spec_attaches_where_a_broker_would(
    alone: RunningAlone, spec: OffsetSpec, wanted: list[int]
) -> None:
    async with alone.client() as client:
        await subscribe(client, spec)
        assert await ids(client, len(wanted)) == wanted


async def test_what_another_process_appends_is_followed(alone: RunningAlone, stream: DirectStream) -> None:
    async with alone.client() as client:
        await subscribe(client, NEXT)
        assert await ids(client, 0) == []
        await stream.append([b"new"])
        assert await ids(client, 1) == [19]


async def test_figures_are_those_of_the_stream(alone: RunningAlone) -> None:
    async with alone.client() as client:
        found = await client.ask(lambda number: StreamStats(number, "orders"), StreamStatsAnswer)
        assert isinstance(found, StreamStatsAnswer)
        assert dict(found.figures) == {
            "first_chunk_id": 0,
            "last_chunk_id": 16,
            "committed_chunk_id": 16,
            "committed_offset": 18,
        }


async def test_what_was_trimmed_is_no_longer_there_for_first(archive: DirectArchive, stream: DirectStream) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await subscribe(client, FIRST)
        assert await ids(client, 6) == [0, 3, 6, 10, 13, 16]
        await stream.trim(Offset(13))
        async with alone.client() as other:
            await asyncio.sleep(1.1)  # what is known of the stream's bounds is a second old at most
            await subscribe(other, FIRST)
            assert await ids(other, 2) == [13, 16]


async def test_an_empty_stream_has_no_figures_and_every_spec_is_its_tail(archive: DirectArchive) -> None:
    async with await StreamClient.open(archive) as streams:
        await streams.create("orders", first=Offset(100))
        async with running_alone(archive) as alone, alone.client() as client:
            found = await client.ask(lambda number: StreamStats(number, "orders"), StreamStatsAnswer)
            assert isinstance(found, StreamStatsAnswer)
            assert set(dict(found.figures).values()) == {-1}
            await subscribe(client, LAST)
            stream = await streams.open_stream("orders")
            await stream.append([b"one"])
            assert await ids(client, 1) == [100]
