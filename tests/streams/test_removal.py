"""What is removed from a stream that is open: by its handle, by retention, by who deletes it."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import (
    ExpiredEpochError,
    HeldError,
    OffsetOutOfRangeError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.store.wal_window import KEPT
from coldstream.streams import FlushOptions, OpenMode, StreamClient, StreamOptions
from coldstream.streams.handle import DirectStream
from coldstream.units import Offset
from tests.support.interposed_archive import InterposedArchive, bodies

BATCHES = 10
SMALL = StreamOptions(memory_bytes=8192, flush=FlushOptions(fragment_bytes=1))
"""Each batch of 3,000 bytes is a fragment, and is out of memory before long."""


@pytest.fixture
def world() -> InterposedArchive:
    return InterposedArchive()


async def archived_stream(client: StreamClient) -> DirectStream:
    """Return a stream of BATCHES batches of one message, each in a fragment of its own."""
    await client.create("orders")
    stream = await client.open_stream("orders")
    for number in range(BATCHES):
        await stream.append([b"%d" % number * 3000])
        await stream.flush()
    return stream


async def retain_from(world: InterposedArchive, stream: DirectStream, start: int) -> None:
    """Remove what is below an offset, as a retention policy does, elsewhere."""

    def remove() -> None:
        truncate(world.stores(), stream.stream.incarnation, up_to_offset(Offset(start)), why="policy", by="retention")

    await asyncio.to_thread(remove)


def test_a_fetch_below_what_retention_removed_says_where_the_stream_starts_by_now(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client:
            stream = await archived_stream(client)
            assert stream.start == 0
            await retain_from(world, stream, 6)
            with pytest.raises(OffsetOutOfRangeError) as refused:
                await stream.fetch(Offset(2))
            assert (refused.value.offset, refused.value.start, refused.value.end) == (2, 6, BATCHES)
            assert stream.start == 6
            assert len(await bodies(stream)) == BATCHES - 6
            assert await stream.append([b"x"]) == BATCHES

    asyncio.run(run())


def test_who_follows_a_stream_from_below_what_retention_removed_is_told(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client:
            stream = await archived_stream(client)
            await retain_from(world, stream, 6)
            with pytest.raises(OffsetOutOfRangeError):
                await anext(stream.follow(Offset(2)))
            following = stream.follow(stream.start)
            assert [(await anext(following)).base_offset for _ in range(6, BATCHES)] == list(range(6, BATCHES))

    asyncio.run(run())


def test_a_snapshot_learns_what_retention_removed_too(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client, await world.open(SMALL) as reader:
            stream = await archived_stream(client)
            snapshot = await reader.open_stream("orders", mode=OpenMode.SNAPSHOT)
            await retain_from(world, stream, 6)
            with pytest.raises(OffsetOutOfRangeError):
                await snapshot.fetch(Offset(0))
            assert snapshot.start == 6
            assert len(await bodies(snapshot)) == BATCHES - 6

    asyncio.run(run())


def test_a_trim_of_what_is_not_flushed_holds_after_a_crash_and_a_lost_wal(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        stream = await client.open_stream("orders")
        for number in range(4):
            await stream.append([b"%d" % number])
        await stream.trim(Offset(3))
        assert (stream.start, stream.confirmed) == (3, 4)
        async with await StreamClient.open(world.archive) as elsewhere:
            forced = await elsewhere.open_stream("orders", force=True)
            assert (forced.start, forced.tail) == (3, 4)
            assert await forced.append([b"4"]) == 4
            assert (await bodies(forced))[-1] == b"4"
        await client.close()

    asyncio.run(run())


def test_a_trim_that_is_cancelled_is_done_all_the_same(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await archived_stream(client)
            with world.table.held("apply") as transaction:
                trimming = asyncio.create_task(stream.trim(Offset(4)))
                await transaction.entered()
                trimming.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await trimming
        async with await world.open() as other:
            assert (await other.open_stream("orders")).start == 4

    asyncio.run(run())


def test_a_trim_that_is_refused_leaves_the_start(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client, await world.open() as other:
            stream = await archived_stream(client)
            for wrong in (-1, BATCHES + 1):
                with pytest.raises(OffsetOutOfRangeError):
                    await stream.trim(Offset(wrong))
            await stream.trim(Offset(4))
            await stream.trim(Offset(3))
            taken = await other.open_stream("orders")
            with pytest.raises(ExpiredEpochError):
                await stream.trim(Offset(8))
            assert (stream.start, taken.start) == (4, 4)

    asyncio.run(run())


def test_a_trim_while_the_stream_goes_on_in_another_wal_is_done_at_the_next_epoch(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await archived_stream(client)
            await world.seal_wal_of(stream)
            with world.table.held("apply") as transaction:
                appending = asyncio.create_task(stream.append([b"x"]))
                await transaction.entered()
                trimming = asyncio.create_task(stream.trim(Offset(4)))
            await asyncio.gather(appending, trimming)
            assert stream.epoch == 2
            assert stream.start == 4

    asyncio.run(run())


def test_a_hold_keeps_the_objects_of_what_is_trimmed(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await archived_stream(client)
            await asyncio.to_thread(hold, world, stream)
            with pytest.raises(HeldError):
                await stream.trim(Offset(5))
            assert stream.start == 5
            with pytest.raises(OffsetOutOfRangeError):
                await stream.fetch(Offset(4))
            assert world.head(stream).first_offset == 0
            with pytest.raises(HeldError):
                await stream.destroy()
            assert await stream.append([b"x"]) == BATCHES

    asyncio.run(run())


def hold(world: InterposedArchive, stream: DirectStream) -> None:
    put_hold(
        world.stores(),
        stream.stream.incarnation,
        first_offset=Offset(0),
        next_offset=None,
        reason="a case",
        by="counsel",
    )


@pytest.mark.parametrize("call", ["fetch", "flush"])
def test_a_handle_of_a_stream_that_others_deleted_is_fenced(world: InterposedArchive, call: str) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client:
            stream = await archived_stream(client)
            with world.held_flush():
                await stream.append([b"x"])
                await asyncio.to_thread(
                    delete_stream, world.stores(), stream.stream.incarnation, grace_ms=3_600_000, by="somebody"
                )
            with pytest.raises((StreamDeletedError, StreamClosedError)):
                await (stream.fetch(Offset(0)) if call == "fetch" else stream.flush())
            with pytest.raises(StreamClosedError, match="deleted"):
                await stream.fetch(Offset(0))
            with pytest.raises(StreamNotFoundError):
                await client.open_stream("orders")
            await client.create("orders")
            assert await (await client.open_stream("orders")).append([b"new"]) == 0

    asyncio.run(run())


def test_what_was_flushed_before_a_stream_was_destroyed_comes_back_with_it(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"a"])
            await stream.flush()
            await stream.destroy()
            await asyncio.to_thread(undelete_stream, world.stores(), stream.stream.incarnation, by="somebody")
            again = await client.open_stream("orders")
            assert await bodies(again) == [b"a"]
            assert await again.append([b"b"]) == 1

    asyncio.run(run())


def test_a_stream_that_is_destroyed_during_its_flush_leaves_no_object_and_no_log(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"a"])
            with world.held_flush() as flush:
                flushing = asyncio.create_task(stream.flush())
                await flush.entered()
                closing = asyncio.create_task(stream.close())
                await asyncio.sleep(0)
                destroying = asyncio.create_task(_destroyed(stream))
                await destroying
            outcomes = await asyncio.gather(flushing, closing, return_exceptions=True)
            assert not [one for one in outcomes if isinstance(one, asyncio.CancelledError)]
            head = world.head(stream)
            assert head.deleted_at is not None
            assert not head.fragments
        assert world.wal.target.wals == {}

    async def _destroyed(stream: DirectStream) -> None:
        await stream.destroy()

    asyncio.run(run())


@pytest.mark.parametrize("is_destroyed", [True, False])
def test_an_undeleted_stream_opens_though_the_wal_forgot_some_of_its_batches(
    world: InterposedArchive,
    is_destroyed: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    async def run() -> None:
        async with await StreamClient.open(world.archive) as client, await StreamClient.open(world.archive) as later:
            await client.create("orders")
            stream = await client.open_stream("orders")
            await stream.append([b"flushed"])
            await stream.flush()
            for _ in range(KEPT + 20):
                await stream.append([b"in the WAL alone"])
            incarnation = stream.stream.incarnation
            if is_destroyed:
                await stream.destroy()
            else:
                await asyncio.to_thread(delete_stream, world.stores(), incarnation, grace_ms=10**9, by="somebody")
                with pytest.raises(StreamDeletedError):
                    await stream.flush()
                await client._engine._look_once()
            while not client._engine.wal_counters.trimmed:  # noqa: ASYNC110  no event of the client tells
                await asyncio.sleep(0.01)
            await asyncio.to_thread(undelete_stream, world.stores(), incarnation, by="somebody")
            again = await later.open_stream("orders")
            assert await bodies(again) == [b"flushed"]
            assert await again.append([b"next"]) == 1

    asyncio.run(run())
