"""A stream that is appended to and read by one process."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import (
    ExpiredEpochError,
    OffsetOutOfRangeError,
    StreamClosedError,
    StreamExistsError,
    StreamNotFoundError,
    UnexpectedTailError,
)
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import BlockingStreamClient, DirectArchive, OpenMode, StreamClient
from coldstream.streams.handle import DirectStream
from coldstream.units import Offset


@pytest.fixture
def archive() -> DirectArchive:
    return DirectArchive(MemoryTable(), MemoryObjects(), Keys(""))


async def bodies(stream: DirectStream, start: int = 0) -> list[bytes]:
    found, at = [], Offset(max(start, stream.start))
    while batches := await stream.fetch(at, max_bytes=100):
        found += [message.body for batch in batches for message in batch.messages()]
        at = batches[-1].next_offset
    return found


def test_batches_get_their_offsets_in_the_order_of_the_calls(archive: DirectArchive) -> None:
    async def run() -> None:
        async with await StreamClient.open(archive) as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            offsets = await asyncio.gather(*(stream.append([b"%d" % n, b"and"]) for n in range(50)))
            assert offsets == list(range(0, 100, 2))
            assert (stream.confirmed, stream.tail) == (100, 100)
            assert (await bodies(stream))[::2] == [b"%d" % n for n in range(50)]

    asyncio.run(run())


def test_what_was_appended_is_there_for_the_next_opener_after_a_close_and_after_a_death(
    archive: DirectArchive,
) -> None:
    async def run() -> None:
        client = await StreamClient.open(archive)
        await client.create("orders")
        stream = await client.open_stream("orders")
        await stream.append([b"a"])
        await stream.close()
        stream = await client.open_stream("orders")
        await stream.append([b"b"])
        async with await StreamClient.open(archive) as other:
            taken = await other.open_stream("orders")
            assert taken.epoch == 3
            assert await bodies(taken) == [b"a", b"b"]
            with pytest.raises(ExpiredEpochError):
                await stream.append([b"void"])
            with pytest.raises(StreamClosedError):
                await stream.append([b"void"])
            assert await taken.append([b"c"]) == 2
        await client.close()
        async with await StreamClient.open(archive) as last:
            assert await bodies(await last.open_stream("orders")) == [b"a", b"b", b"c"]

    asyncio.run(run())


def test_an_append_that_expects_another_tail_changes_nothing(archive: DirectArchive) -> None:
    async def run() -> None:
        async with await StreamClient.open(archive) as client:
            await client.create("orders", first=Offset(7))
            stream = await client.open_stream("orders")
            with pytest.raises(UnexpectedTailError):
                await stream.append([b"a"], expect=Offset(0))
            assert await stream.append([b"a"], expect=Offset(7)) == 7

    asyncio.run(run())


def test_a_publisher_appends_each_message_once_also_after_the_stream_was_opened_again(archive: DirectArchive) -> None:
    async def run() -> None:
        client = await StreamClient.open(archive)
        await client.create("orders")
        stream = await client.open_stream("orders")
        both = (stream.append([b"a"], publisher="p", publishing_id=1) for _ in range(2))
        assert await asyncio.gather(*both) == [0, None]
        await stream.close()
        stream = await client.open_stream("orders")
        assert await stream.publisher_id("p") == 1
        assert await stream.append([b"a"], publisher="p", publishing_id=1) is None
        assert await stream.append([b"b"], publisher="p", publishing_id=2) == 2
        async with await StreamClient.open(archive) as other:
            taken = await other.open_stream("orders")
            assert await taken.publisher_id("p") == 2
            assert await bodies(taken) == [b"a", b"b"]
        await client.close()

    asyncio.run(run())


def test_a_sealed_stream_still_tells_what_its_publishers_appended(archive: DirectArchive) -> None:
    async def run() -> None:
        async with await StreamClient.open(archive) as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"a"], publisher="p", publishing_id=7)
            await stream.seal()
            for sealed in (stream, await client.open_stream("orders")):
                assert await sealed.publisher_id("p") == 7
                assert await sealed.publisher_id("q") is None

    asyncio.run(run())


def test_a_snapshot_shows_what_was_durable_and_disturbs_nobody(archive: DirectArchive) -> None:
    async def run() -> None:
        async with await StreamClient.open(archive) as client, await StreamClient.open(archive) as reader:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"a"])
            await stream.flush()
            await stream.append([b"b"])
            snapshot = await reader.open_stream("orders", mode=OpenMode.SNAPSHOT)
            await stream.append([b"c"])
            assert await bodies(snapshot) == [b"a", b"b"]
            assert [batch.base_offset async for batch in snapshot.follow(Offset(1))] == [1]
            with pytest.raises(StreamClosedError):
                await snapshot.append([b"d"])

    asyncio.run(run())


def test_a_trimmed_stream_starts_later_a_sealed_one_ends_and_a_destroyed_one_is_gone(archive: DirectArchive) -> None:
    async def run() -> None:
        async with await StreamClient.open(archive) as client:
            await client.create("orders")
            with pytest.raises(StreamExistsError):
                await client.create("orders")
            stream = await client.open_stream("orders")
            for _ in range(4):
                await stream.append([b"a"])
            await stream.trim(Offset(2))
            with pytest.raises(OffsetOutOfRangeError):
                await stream.fetch(Offset(1))
            await stream.seal()
            with pytest.raises(StreamClosedError):
                await stream.append([b"b"])
            assert [batch.base_offset async for batch in stream.follow(Offset(2))] == [2, 3]
            await stream.destroy()
            with pytest.raises(StreamNotFoundError):
                await client.open_stream("orders")
            await client.create("orders")
            assert [info.name async for info in client.list()] == ["orders"]

    asyncio.run(run())


def test_the_blocking_face_does_the_same(archive: DirectArchive) -> None:
    with BlockingStreamClient(archive) as client:
        client.create("orders")
        stream = client.open_stream("orders")
        assert stream.append([b"a"]) == 0
        assert [batch.base_offset for batch in stream.fetch(Offset(0))] == [0]
        stream.seal()
        assert [batch.base_offset for batch in stream.follow(Offset(0))] == [0]
        assert client.key_values.put_if_absent("k", b"1") == b"1"
        assert client.key_values.put_if_absent("k", b"2") == b"1"
        client.key_values.put("k", b"3")
        assert client.key_values.get("k") == b"3"
        assert (client.key_values.delete("k"), client.key_values.delete("k")) == (True, False)
    with pytest.raises(StreamClosedError):
        stream.append([b"b"])
