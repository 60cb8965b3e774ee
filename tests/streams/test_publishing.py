"""Publishers: each batch once, by a name and an id, whatever happens between two attempts."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import InvalidInputError, OutcomeUnknownError, UnexpectedTailError
from coldstream.streams import OpenMode, StreamOptions
from coldstream.units import Offset
from tests.support.interposed_archive import IMPATIENT, InterposedArchive, bodies, settle


@pytest.fixture
def world() -> InterposedArchive:
    return InterposedArchive()


def test_a_duplicate_of_a_batch_under_way_is_answered_once_that_is_durable(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            with world.wal.held("create") as put:
                first = asyncio.create_task(stream.append([b"a"], publisher="p", publishing_id=1))
                await put.entered()
                again = asyncio.create_task(stream.append([b"a"], publisher="p", publishing_id=1))
                asked = asyncio.create_task(stream.publisher_id("p"))
                await settle()
                assert not again.done()
                assert not asked.done()
                assert stream.tail == 1
            assert [await first, await again, await asked] == [0, None, 1]
            assert await bodies(stream) == [b"a"]

    asyncio.run(run())


def test_a_duplicate_of_a_batch_that_failed_fails_with_it(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(IMPATIENT) as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            with world.lost_wal():
                twins = (stream.append([b"a"], publisher="p", publishing_id=1) for _ in range(2))
                outcomes = await asyncio.gather(*twins, return_exceptions=True)
            assert [type(one) for one in outcomes] == [OutcomeUnknownError] * 2
            again = await client.open_stream("orders")
            assert await again.publisher_id("p") is None
            assert await again.append([b"a"], publisher="p", publishing_id=1) == 0

    asyncio.run(run())


def test_a_duplicate_of_a_batch_that_its_caller_gave_up_in_line_is_appended(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(StreamOptions(memory_bytes=4096)) as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            with world.held_flush() as flush:
                await stream.append([b"x" * 3000])
                first = asyncio.create_task(stream.append([b"y" * 3000], publisher="p", publishing_id=1))
                await flush.entered()
                twin = asyncio.create_task(stream.append([b"y" * 3000], publisher="p", publishing_id=1))
                await settle()
                first.cancel()
            assert await twin == 1

    asyncio.run(run())


def test_ids_may_have_gaps_and_a_lower_one_is_a_duplicate_whatever_it_brings(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            assert await stream.append([b"a"], publisher="p", publishing_id=7) == 0
            assert await stream.append([b"another"], publisher="p", publishing_id=3) is None
            assert await stream.append([b"b"], publisher="p", publishing_id=1000) == 1
            assert await stream.append([b"c"], publisher="q", publishing_id=3) == 2
            assert await stream.append([b"d"]) == 3
            assert [await stream.publisher_id(name) for name in "pqr"] == [1000, 3, None]
            assert await bodies(stream) == [b"a", b"b", b"c", b"d"]

    asyncio.run(run())


def test_a_batch_that_overlaps_an_earlier_one_is_appended_whole_as_a_sub_batch_is(world: InterposedArchive) -> None:
    """An id is a batch's: who sends again after a failure sends the same batches."""

    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            assert await stream.append([b"1", b"2"], publisher="p", publishing_id=2) == 0
            assert await stream.append([b"2", b"3"], publisher="p", publishing_id=3) == 2
            assert await stream.append([b"1", b"2", b"3"], publisher="p", publishing_id=3) is None

    asyncio.run(run())


@pytest.mark.parametrize("how", ["closed", "flushed", "in the WAL", "both"])
def test_publishers_are_known_to_whoever_opens_the_stream_next(world: InterposedArchive, how: str) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        stream = await client.open_stream("orders")
        for number in range(300):
            await stream.append([b"a"], publisher=f"p{number % 20}", publishing_id=number)
            if number == 150 and how == "both":
                await stream.flush()
        if how == "flushed":
            await stream.flush()
        if how == "closed":
            await stream.close()
        async with await world.open() as other:
            taken = await other.open_stream("orders")
            known = [await taken.publisher_id(f"p{n}") for n in range(21)]
            assert known == [*range(280, 300), None]
            assert await taken.append([b"a"], publisher="p3", publishing_id=283) is None
            assert await taken.append([b"a"], publisher="p3", publishing_id=284) is not None
        await client.close()

    asyncio.run(run())


def test_publishers_are_known_after_the_wal_was_sealed_under_the_stream(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"a"], publisher="p", publishing_id=1)
            await world.seal_wal_of(stream)
            twins = (stream.append([b"b"], publisher="p", publishing_id=2) for _ in range(3))
            assert await asyncio.gather(*twins) == [1, None, None]
            assert stream.epoch == 2
            await stream.flush()
            assert await bodies(stream) == [b"a", b"b"]

    asyncio.run(run())


def test_publishers_are_known_after_everything_was_trimmed(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        stream = await client.open_stream("orders")
        await stream.append([b"a"], publisher="p", publishing_id=5)
        await stream.trim(stream.confirmed)
        await stream.close()
        stream = await client.open_stream("orders")
        assert await stream.append([b"a"], publisher="p", publishing_id=5) is None
        await client.close()

    asyncio.run(run())


def test_a_flush_of_a_stream_with_publishers_takes_an_offset_which_an_expectation_is_told_of(
    world: InterposedArchive,
) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"a"], publisher="p", publishing_id=1)
            await stream.flush()
            with pytest.raises(UnexpectedTailError) as refused:
                await stream.append([b"b"], expect=Offset(1))
            assert refused.value.tail == stream.tail == 2
            assert await stream.append([b"b"], expect=Offset(2)) == 2
            await stream.flush()
            assert stream.tail == 4
            await stream.flush()
            assert stream.tail == 4  # nothing was appended since
            assert [one.base_offset for one in await stream.fetch(Offset(0))] == [0, 2]
            assert await stream.fetch(Offset(3)) == ()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("publisher", "publishing_id"), [("p", None), (None, 1), ("", 1), ("p", -1), ("p", 1 << 64), ("é" * 128, 1)]
)
def test_a_publisher_that_no_trailer_can_name_is_refused_and_the_handle_goes_on(
    world: InterposedArchive, publisher: str | None, publishing_id: int | None
) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            with pytest.raises(InvalidInputError):
                await stream.append([b"a"], publisher=publisher, publishing_id=publishing_id)
            assert await stream.append([b"a"]) == 0

    asyncio.run(run())


def test_a_batch_that_waits_for_its_duplicate_is_not_lost_in_a_close(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(StreamOptions(memory_bytes=20_000)) as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            with world.held_flush():
                await stream.append([b"x" * 15_000])
                in_line = asyncio.create_task(stream.append([b"y" * 15_000], publisher="p", publishing_id=1))
                await settle()
                again = asyncio.create_task(stream.append([b"z"], publisher="p", publishing_id=1))
                await settle()
                closing = asyncio.create_task(stream.close())
                await settle()
                in_line.cancel()
                await settle()
            assert await again == 1
            await closing
            closed = await client.open_stream("orders", mode=OpenMode.SNAPSHOT)
            assert await bodies(closed, 1) == [b"z"]

    asyncio.run(run())
