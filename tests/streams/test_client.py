"""A client: streams that are listed, opened twice, opened while others do, and closed together."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from unittest.mock import patch

import pytest

from coldstream.errors import (
    AccessDeniedError,
    ExpiredEpochError,
    InvalidInputError,
    NotClosedError,
    OutcomeUnknownError,
    StreamClosedError,
    StreamExistsError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.streams import OpenMode, StreamClient, StreamOptions, WalOptions
from coldstream.streams.names import PAGE_NAMES
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.units import MAX_OFFSET, Offset
from tests.support.interposed_archive import InterposedArchive, bodies, settle


@pytest.fixture
def world() -> InterposedArchive:
    return InterposedArchive()


def test_a_listing_reads_one_page_at_a_time(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            names = [f"s{n:03}" for n in range(2 * PAGE_NAMES + 1)]
            for name in names:
                await client.create(name, properties={"of": name})
            await client.create("elsewhere", vhost="v")
            before = world.table.target.requests["Query"]
            listing = client.list("/")
            found = [await anext(listing)]
            assert world.table.target.requests["Query"] - before <= 2
            found += [info async for info in listing]
            assert sorted(info.name for info in found) == names
            assert all(info.properties == {"of": info.name} and info.vhost == "/" for info in found)
            assert [info.name async for info in client.list("v")] == ["elsewhere"]
            assert [info.name async for info in client.list("none")] == []

    asyncio.run(run())


def test_a_stream_that_is_opened_again_in_its_client_is_closed_first(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            first = await client.open_stream("orders")
            appends = [asyncio.ensure_future(first.append([b"%d" % n])) for n in range(20)]
            await settle()
            second = await client.open_stream("orders")
            assert await asyncio.gather(*appends) == list(range(20))
            with pytest.raises(StreamClosedError):
                await first.append([b"too late"])
            assert await second.append([b"next"], expect=Offset(20)) == 20
            assert second.epoch == 2

    asyncio.run(run())


def test_of_many_who_open_a_stream_in_one_client_the_last_one_has_it(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            handles = await asyncio.gather(*(client.open_stream("orders") for _ in range(5)))
            outcomes = await asyncio.gather(*(one.append([b"a"]) for one in handles), return_exceptions=True)
            assert [one for one in outcomes if not isinstance(one, StreamClosedError)] == [0]
            assert handles[4].epoch == 5

    asyncio.run(run())


def test_the_client_that_opened_a_stream_last_has_it_and_goes_on_where_the_other_was(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as one, await world.open() as other:
            await one.create("orders")
            for turn in range(6):
                stream = await (one if turn % 2 else other).open_stream("orders")
                assert await stream.append([b"%d" % turn], expect=Offset(turn)) == turn
                assert await bodies(stream) == [b"%d" % n for n in range(turn + 1)]

    asyncio.run(run())


def test_an_opener_that_is_cancelled_leaves_the_stream_closed_and_disturbs_no_later_one(
    world: InterposedArchive,
) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            with world.table.held("apply") as transaction:
                given_up = asyncio.create_task(client.open_stream("orders"))
                await transaction.entered()
                given_up.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await given_up
                later = asyncio.create_task(client.open_stream("orders"))
                await settle()
            stream = await later
            assert await stream.append([b"a"]) == 0
            await stream.close()
            assert not world.head(stream).appender.openings  # type: ignore[union-attr]
            with world.table.held("apply") as transaction:
                given_up = asyncio.create_task(client.open_stream("orders"))
                await transaction.entered()
                given_up.cancel()
        assert not world.head(stream).appender.openings  # type: ignore[union-attr]

    asyncio.run(run())


def test_a_stream_whose_opening_began_before_the_close_is_closed_with_the_client(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        with world.table.held("apply") as transaction:
            opening = asyncio.create_task(client.open_stream("orders"))
            await transaction.entered()
            closing = asyncio.create_task(client.close())
            await settle()
        stream = await opening
        await closing
        with pytest.raises(StreamClosedError):
            await stream.append([b"a"])
        assert not world.head(stream).appender.openings  # type: ignore[union-attr]

    asyncio.run(run())


def test_a_client_closes_all_streams_though_one_of_them_fails(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        streams = []
        for name in ("a", "b", "c"):
            await client.create(name)
            streams.append(await client.open_stream(name))
            await streams[-1].append([b"x"])
        await asyncio.gather(*(one.flush() for one in streams))
        failures = iter([AccessDeniedError("not now")])
        with world.table.failing("apply", lambda: next(failures, None)), pytest.raises(AccessDeniedError):
            await client.close()
        still_open = [one.name for one in streams if world.head(one).appender.openings]  # type: ignore[union-attr]
        assert len(still_open) == 1
        assert world.wal.target.wals, "a log that a head still names has to be there"
        async with await world.open() as other:
            assert await bodies(await other.open_stream(still_open[0])) == [b"x"]

    asyncio.run(run())


def test_who_closes_a_client_at_the_same_time_waits_for_the_same(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        stream = await client.open_stream("orders")
        await stream.append([b"a"])
        with world.held_flush() as flush:
            first, second = asyncio.create_task(client.close()), asyncio.create_task(client.close())
            await flush.entered()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert not second.done()
        await second
        assert not world.head(stream).appender.openings  # type: ignore[union-attr]
        assert world.wal.target.wals == {}

    asyncio.run(run())


def test_everything_of_a_closed_client_says_that_it_is_closed(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        stream = await client.open_stream("orders")
        await stream.append([b"a"])
        snapshot = await client.open_stream("orders", mode=OpenMode.SNAPSHOT)
        following = asyncio.create_task(anext(stream.follow(), None))
        await settle()
        await client.close()
        assert await following is None
        calls = [
            client.create("other"),
            client.open_stream("orders"),
            anext(client.list()),
            client.key_values.get("k"),
            client.key_values.put("k", b"v"),
            stream.append([b"b"]),
            stream.fetch(Offset(0)),
            stream.trim(Offset(0)),
            stream.seal(),
            stream.destroy(),
            stream.flush(),
            stream.publisher_id("p"),
            snapshot.fetch(Offset(0)),
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in outcomes] == [StreamClosedError] * len(calls)
        await client.close()
        await stream.close()

    asyncio.run(run())


def test_a_stream_whose_wal_is_elsewhere_is_opened_by_force_alone_and_then_has_what_is_archived(
    world: InterposedArchive,
) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        stream = await client.open_stream("orders")
        await stream.append([b"archived"])
        await stream.flush()
        await stream.append([b"in the WAL alone"])
        async with await StreamClient.open(world.archive) as elsewhere:
            with pytest.raises(NotClosedError):
                await elsewhere.open_stream("orders")
            assert await stream.append([b"still open"]) == 2
            forced = await elsewhere.open_stream("orders", force=True)
            assert await bodies(forced) == [b"archived"]
            assert await forced.append([b"new"]) == 1
            with pytest.raises(ExpiredEpochError):
                await stream.flush()
        await client.close()

    asyncio.run(run())


def test_names_offsets_and_properties_are_checked_before_any_request(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            for call in (
                client.create(""),
                client.create("a" * 300),
                client.create("a", first=Offset(-1)),
                client.create("a", first=Offset(MAX_OFFSET + 1)),
                client.create("a", properties={"k": "v" * 5000}),
                client.open_stream(""),
                client.key_values.put("", b""),
                client.key_values.put("k", b"x" * 300_001),
                client.key_values.get("\n"),
            ):
                with pytest.raises(InvalidInputError):
                    await call
            assert not world.table.target.requests
            with pytest.raises(StreamNotFoundError):
                await client.open_stream("a")
            with pytest.raises(StreamNotFoundError):
                await client.open_stream("a", mode=OpenMode.SNAPSHOT)

    asyncio.run(run())


def test_of_many_who_create_a_stream_one_does(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as one, await world.open() as other:
            creating = (client.create("orders") for client in (one, other) * 5)
            outcomes = await asyncio.gather(*creating, return_exceptions=True)
            assert sorted(type(one).__name__ for one in outcomes) == ["NoneType"] + [StreamExistsError.__name__] * 9

    asyncio.run(run())


def test_a_handle_that_is_dropped_without_a_close_is_closed_with_its_client(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await world.open()
        await client.create("orders")
        await (await client.open_stream("orders")).append([b"a"])
        snapshot = weakref.ref(await client.open_stream("orders", mode=OpenMode.SNAPSHOT))
        gc.collect()
        assert snapshot() is None  # nothing is to be done for it
        await client.close()
        async with await StreamClient.open(world.archive) as other:
            assert await bodies(await other.open_stream("orders")) == [b"a"]

    asyncio.run(run())


def test_appends_are_acknowledged_while_every_other_thread_is_busy(world: InterposedArchive) -> None:
    async def run() -> None:
        client = await StreamClient.open(world.archive, StreamOptions(threads=1, wal=WalOptions(in_flight=1)))
        await client.create("orders")
        handle = await client.open_stream("orders")
        # As recoveries do, of which there may be thousands.
        may_end = threading.Event()
        busy = asyncio.ensure_future(client._engine.call(may_end.wait, 60))
        try:
            assert await asyncio.wait_for(handle.append([b"one"]), 30) == 0
            assert not busy.done()
        finally:
            may_end.set()
            await busy
            await client.close()

    asyncio.run(run())


def test_a_log_that_a_failed_opening_named_stays_when_its_client_closes(world: InterposedArchive) -> None:
    async def run() -> None:
        wal = MemoryWalStore()
        client = await StreamClient.open(world.archive, wal=wal)
        await client.create("orders")
        with (
            patch("coldstream.streams.client.recover", side_effect=UnavailableError("no answer")),
            pytest.raises(UnavailableError),
        ):
            await client.open_stream("orders")
        await client.close()
        assert wal.wals  # in S3 Express, of a log without objects nobody can tell that it was there

    asyncio.run(run())


def test_what_a_failed_handle_sent_is_settled_before_its_stream_is_opened_again(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.create("orders")
            failed = await client.open_stream("orders")
            with world.wal.held("create") as held:
                sent = asyncio.ensure_future(failed.append([b"one"]))
                await held.entered()
                assert failed.queue is not None
                failed.queue.fence(UnavailableError("the flush failed for good"))
                with pytest.raises(OutcomeUnknownError):
                    await sent
                opening = asyncio.ensure_future(client.open_stream("orders"))
                done, _ = await asyncio.wait([opening], timeout=0.5)
                held.release()
            stream = await opening
            # Else a snapshot would show a batch that the stream never has: its log has the batch from now on.
            assert not done
            assert stream.tail == 1

    asyncio.run(run())
