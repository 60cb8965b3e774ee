"""The port's double: what tests of takeover rely on."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import GapError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.history.port import ChunkReading, History
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.read.http import ClosedError
from coldstream.units import Offset, TimestampMs
from tests.support.made_chunks import ids, made_chunks


async def all_of(reading: ChunkReading) -> list[Chunk]:
    async with reading:
        return [chunk async for chunk in reading]


def test_chunks_come_from_the_one_that_holds_the_start_up_to_the_end() -> None:
    async def scenario() -> None:
        history: History = MemoryHistory()
        archive = history.put("/", "s", made_chunks(5))  # type: ignore[attr-defined]
        reading = history.read("/", "s", archive.incarnation, Offset(15), Offset(40))
        assert ids(await all_of(reading)) == [10, 20, 30]

    asyncio.run(scenario())


def test_specs_attach_as_in_an_archive() -> None:
    async def scenario() -> None:
        history = MemoryHistory()
        history.put("/", "s", made_chunks(5, first=100))
        assert await history.attach("/", "s", FIRST) == 100
        assert await history.attach("/", "s", LAST) == 140
        assert await history.attach("/", "s", NEXT) is None
        assert await history.attach("/", "s", AtOffset(Offset(3))) == 100
        assert await history.attach("/", "s", AtOffset(Offset(149))) == 149
        assert await history.attach("/", "s", AtOffset(Offset(150))) is None
        assert await history.attach("/", "s", AtTimestamp(TimestampMs(110_001))) == 120
        assert await history.attach("/", "unknown", FIRST) is None
        found = await history.header_at("/", "s", Offset(125))
        assert found is not None
        assert found.header.chunk_id == 120

    asyncio.run(scenario())


def test_a_hole_and_a_lost_end_are_gaps() -> None:
    async def scenario() -> None:
        history = MemoryHistory()
        archive = history.put("/", "s", [*made_chunks(1), *made_chunks(1, first=30)])
        archive.lost_to = Offset(60)
        for start, gap in ((0, (10, 30)), (30, (40, 60))):
            reading = history.read("/", "s", archive.incarnation, Offset(start))
            await anext(reading)
            with pytest.raises(GapError) as raised:
                await anext(reading)
            assert (raised.value.first_offset, raised.value.next_offset) == gap

    asyncio.run(scenario())


def test_a_stalled_reading_waits_until_it_is_closed() -> None:
    async def scenario() -> None:
        history = MemoryHistory()
        archive = history.put("/", "s", made_chunks(2))
        archive.flows.clear()
        reading = history.read("/", "s", archive.incarnation, Offset(0))
        assert reading.take() is None
        waiting = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        assert history.open_readings == {reading}
        reading.close()
        with pytest.raises(ClosedError):
            await waiting
        assert history.open_readings == set()

    asyncio.run(scenario())


def test_errors_come_where_a_test_wants_them() -> None:
    async def scenario() -> None:
        history = MemoryHistory()
        archive = history.put("/", "s", made_chunks(3))
        archive.error, archive.error_at = UnavailableError("S3 is away"), Offset(10)
        reading = history.read("/", "s", archive.incarnation, Offset(0))
        assert (await anext(reading)).header.chunk_id == 0
        with pytest.raises(UnavailableError):
            await anext(reading)
        archive.question_error = UnavailableError("DynamoDB is away")
        with pytest.raises(UnavailableError):
            await history.bounds("/", "s")

    asyncio.run(scenario())
