"""Appends that are cancelled, fenced, or moved to another WAL, at each place where one may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from coldstream.errors import (
    AccessDeniedError,
    ExpiredEpochError,
    OutcomeUnknownError,
    StreamClosedError,
    StreamDeletedError,
    UnexpectedTailError,
)
from coldstream.lifecycle.deletion import delete_stream
from coldstream.streams import FlushOptions, OpenMode, StreamClient, StreamOptions, WalOptions
from coldstream.streams.handle import DirectStream
from coldstream.units import Offset
from tests.support.interposed import PATIENCE_S
from tests.support.interposed_archive import IMPATIENT, InterposedArchive, bodies, settle

SMALL = StreamOptions(memory_bytes=4096)
"""So little memory that a second batch of 3,000 bytes waits until the first one is flushed."""

LARGE = b"x" * 3000


@pytest.fixture
def world() -> InterposedArchive:
    return InterposedArchive()


async def opened(client: StreamClient, name: str = "orders") -> DirectStream:
    await client.create(name)
    return await client.open_stream(name)


async def begin(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.create_task(work)
    await settle()
    return task


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_batch_whose_caller_is_cancelled_while_it_is_pending_is_appended(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            with world.wal.held("create") as put:
                first = await begin(stream.append([b"a"]))
                await put.entered()
                await cancel(first)
            assert await stream.append([b"b"]) == 1
            assert await bodies(stream) == [b"a", b"b"]

    asyncio.run(run())


def test_a_batch_whose_caller_is_cancelled_in_line_takes_no_offset_and_no_memory(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client:
            stream = await opened(client)
            with world.held_flush() as flush:
                await stream.append([LARGE])
                waiting = [await begin(stream.append([LARGE, b"%d" % n])) for n in range(3)]
                await flush.entered()
                assert (stream.confirmed, stream.tail) == (1, 7)
                await cancel(waiting[0])
                await cancel(waiting[1])
                assert stream.tail == 3
            assert await waiting[2] == 1
            assert (await bodies(stream, 1))[1] == b"2"
            await stream.flush()
            assert await stream.append([LARGE]) == 3

    asyncio.run(run())


def test_a_batch_whose_caller_is_cancelled_just_as_it_gets_memory_gives_that_back(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client:
            stream = await opened(client)
            with world.held_flush():
                await stream.append([LARGE])
                waiting = await begin(stream.append([LARGE]))
                assert stream.queue is not None
                reserving = stream.queue._reserving
                assert reserving is not None
            async with asyncio.timeout(PATIENCE_S):
                while not reserving.done():  # noqa: ASYNC110  the very turn in which it is
                    await asyncio.sleep(0)
            await cancel(waiting)
            assert reserving.result() is None  # it had it
            await stream.close()
            assert client.metrics().memory_bytes == 0

    asyncio.run(run())


def test_a_batch_in_line_that_expects_the_one_before_it_fails_if_that_was_given_up(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(SMALL) as client:
            stream = await opened(client)
            with world.held_flush() as flush:
                await stream.append([LARGE])
                given_up = await begin(stream.append([LARGE]))
                await flush.entered()
                expecting = await begin(stream.append([b"b"], expect=Offset(2)))
                await cancel(given_up)
            with pytest.raises(UnexpectedTailError) as refused:
                await expecting
            assert (refused.value.expected, refused.value.tail) == (2, 1)
            assert await stream.append([b"c"], expect=Offset(1)) == 1

    asyncio.run(run())


def test_of_many_who_expect_the_same_tail_one_appends(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            for at in range(3):
                outcomes = await asyncio.gather(
                    *(stream.append([b"%d" % n], expect=Offset(at)) for n in range(20)), return_exceptions=True
                )
                assert [one for one in outcomes if not isinstance(one, UnexpectedTailError)] == [at]
            assert await bodies(stream) == [b"0"] * 3

    asyncio.run(run())


def test_many_may_expect_each_the_offset_after_the_one_before(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            appends = (stream.append([b"%d" % n], expect=Offset(n)) for n in range(100))
            assert await asyncio.gather(*appends) == list(range(100))

    asyncio.run(run())


def test_a_fenced_handle_wakes_those_who_wait_for_memory(world: InterposedArchive) -> None:
    """There may be none for hours: what holds it is another stream's, and the archive does not answer."""

    async def run() -> None:
        async with await world.open(SMALL) as client:
            other, stream = await opened(client, "other"), await opened(client)
            with world.held_flush() as flush:
                await other.append([LARGE])
                waiting = [await begin(stream.append([LARGE])) for _ in range(3)]
                await flush.entered()
                await stream.destroy()
                for one in waiting:
                    with pytest.raises(StreamClosedError, match="was destroyed"):
                        await one
                third = await opened(client, "third")
                assert await third.append([b"a"]) == 0  # what they waited for was not taken
            await other.flush()
            assert await other.append([LARGE]) == 1

    asyncio.run(run())


def test_the_same_batches_go_on_in_another_wal_at_the_same_offsets_after_a_seal(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            await stream.append([b"a"])
            await world.seal_wal_of(stream)
            appends = (stream.append([b"%d" % n], expect=Offset(n)) for n in range(1, 10))
            assert await asyncio.gather(*appends) == list(range(1, 10))
            assert stream.epoch == 2
            assert await bodies(stream) == [b"a", *(b"%d" % n for n in range(1, 10))]

    asyncio.run(run())


def test_a_wal_that_has_ended_is_forgotten_once_nothing_in_it_is_needed(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            for number in range(4):
                await stream.append([b"%d" % number])
                await stream.flush()
                await world.seal_wal_of(stream)
            await stream.append([b"4"])
            assert [one.place.epoch for one in client._engine.writers] == [5]
            await stream.append([b"not flushed"])
            await world.seal_wal_of(stream)
            await stream.append([b"6"])
            await world.seal_wal_of(stream)
            await stream.append([b"7"])
            assert {5, 6, 7} <= {one.place.epoch for one in client._engine.writers}

    asyncio.run(run())


def test_a_caller_that_is_cancelled_while_its_stream_is_opened_again_leaves_that_to_the_others(
    world: InterposedArchive,
) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            await stream.append([b"a"])
            await world.seal_wal_of(stream)
            with world.table.held("apply") as transaction:
                pending = await begin(stream.append([b"b"]))
                await transaction.entered()
                in_line = await begin(stream.append([b"never"]))
                last = await begin(stream.append([b"c"]))
                await cancel(in_line)
                await cancel(pending)
            assert await last == 2
            assert await bodies(stream) == [b"a", b"b", b"c"]

    asyncio.run(run())


def test_a_close_while_a_stream_is_opened_again_waits_for_it_and_leaves_the_stream_closed(
    world: InterposedArchive,
) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            await stream.append([b"a"])
            await world.seal_wal_of(stream)
            with pytest.raises(StreamClosedError):
                await asyncio.gather(stream.append([b"b"]), _closed_at(stream, world))
            assert world.head(stream).appender is not None
            assert not world.head(stream).appender.openings  # type: ignore[union-attr]
            snapshot = await client.open_stream("orders", mode=OpenMode.SNAPSHOT)
            assert await bodies(snapshot) == [b"a", b"b"]

    async def _closed_at(stream: DirectStream, world: InterposedArchive) -> None:
        with world.table.held("apply") as transaction:
            await transaction.entered()
            closing = await begin(stream.close())
            assert not closing.done()
        await closing
        await stream.append([b"too late"])

    asyncio.run(run())


def test_a_close_waits_for_another_epoch_that_nobody_needs_any_more(world: InterposedArchive) -> None:
    """Else the head would keep an opening that nobody has."""

    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            await stream.append([b"x"])
            await stream.flush()  # so that a close has nothing else to wait for
            await world.seal_wal_of(stream)
            other = await opened(client, "other")  # learns it
            with world.table.held("apply") as transaction:
                await begin(other.append([b"y"]))
                await transaction.entered()
                in_line = await begin(stream.append([b"never"]))
                await cancel(in_line)
                closing = await begin(stream.close())
            await closing
            assert not world.head(stream).appender.openings  # type: ignore[union-attr]

    asyncio.run(run())


@pytest.mark.parametrize("error", [AccessDeniedError("no"), RuntimeError("a defect")])
def test_a_table_that_fails_while_a_stream_is_opened_again_fences_it_and_nothing_waits_for_ever(
    world: InterposedArchive, error: Exception
) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            await stream.append([b"a"])
            await world.seal_wal_of(stream)
            with world.table.failing("apply", lambda: error):
                outcomes = await asyncio.gather(*(stream.append([b"b"]) for _ in range(3)), return_exceptions=True)
            assert all(isinstance(one, AccessDeniedError | StreamClosedError) for one in outcomes)
            with pytest.raises(StreamClosedError):
                await stream.append([b"c"])
            again = await client.open_stream("orders")
            assert await again.append([b"d"]) == 1
            assert await bodies(again) == [b"a", b"d"]

    asyncio.run(run())


def test_a_wal_that_is_lost_fences_its_streams_and_the_process_goes_on_in_the_next(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(IMPATIENT) as client:
            stream, other = await opened(client), await opened(client, "other")
            await stream.append([b"a"])
            with world.lost_wal(), pytest.raises(OutcomeUnknownError):
                await stream.append([b"b"])
            with pytest.raises(StreamClosedError, match="not open here any more"):
                await stream.append([b"c"])
            assert await other.append([b"d"]) == 0  # nothing of it was under way
            again = await client.open_stream("orders")
            assert await again.append([b"e"]) == 1

    asyncio.run(run())


def test_a_batch_under_way_is_unknown_to_its_caller_if_the_stream_was_taken_away_by_force(
    world: InterposedArchive,
) -> None:
    """A flush is told that another has the stream, before the WAL has said what it took."""

    async def run() -> None:
        at_once = StreamOptions(flush=FlushOptions(fragment_bytes=1))
        async with await world.open(at_once) as client, await StreamClient.open(world.archive) as thief:
            stream = await opened(client)
            with world.held_flush() as flush:
                await stream.append([b"a"])
                await flush.entered()
                taken = await thief.open_stream("orders", force=True)
                with world.wal.held("create") as put:
                    pending = await begin(stream.append([b"b"]))
                    await put.entered()
                    flush.release()
                    with pytest.raises(OutcomeUnknownError, match="was opened again"):
                        await pending
            with pytest.raises(StreamClosedError):
                await stream.append([b"c"])
            assert await bodies(taken) == []

    asyncio.run(run())


def test_a_deleted_stream_fences_its_handle_and_frees_its_memory(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream, other = await opened(client), await opened(client, "other")
            await stream.append([b"a"])
            await asyncio.to_thread(delete_stream, world.stores(), stream.stream.incarnation, grace_ms=1, by="somebody")
            with pytest.raises(StreamDeletedError):
                await stream.flush()
            with pytest.raises(StreamClosedError) as closed:
                await stream.append([b"b"])
            assert isinstance(closed.value.__cause__, StreamDeletedError)
            with pytest.raises(StreamClosedError):
                await stream.fetch(Offset(0))
            await other.append([b"c"])
            await other.flush()
            await stream.close()

    asyncio.run(run())


def test_what_the_wal_takes_after_its_stream_is_gone_does_not_keep_the_wal(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            stream = await opened(client)
            with world.wal.held("create") as put:
                pending = await begin(stream.append([b"a"]))
                await put.entered()
                await stream.destroy()
            with pytest.raises(StreamClosedError):
                await pending
        assert world.wal.target.wals == {}

    asyncio.run(run())


def test_a_flush_waits_for_no_batch_that_is_appended_after_it(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open(StreamOptions(wal=WalOptions(interval_s=0))) as client:
            stream = await opened(client)
            doors = [threading.Event(), threading.Event()]
            order = iter(doors)

            def wait() -> None:
                next(order).wait(60)

            with world.wal.failing("create", wait):
                before = asyncio.create_task(stream.append([b"before"]))
                await settle()
                flush = asyncio.create_task(stream.flush())
                await settle()
                after = asyncio.create_task(stream.append([b"after"]))
                await settle()
                doors[0].set()
                await asyncio.wait_for(flush, 60)
                assert before.done()
                assert not after.done()
                doors[1].set()
                assert await after == 1

    asyncio.run(run())


@pytest.mark.parametrize("is_opened_again", [True, False])
def test_what_a_fenced_handle_left_in_the_wal_keeps_it_until_others_have_it(
    world: InterposedArchive, monkeypatch: pytest.MonkeyPatch, *, is_opened_again: bool
) -> None:
    async def run() -> None:
        if not is_opened_again:
            monkeypatch.setattr("coldstream.streams.engine.LOOK_EVERY_S", 0)
        async with await world.open() as client, await world.open() as another:
            stream = await opened(client)
            await stream.append([b"a"])
            (wal,) = client._engine.writers
            await another.open_stream("orders")
            with pytest.raises(ExpiredEpochError):
                await stream.append([b"b"])
            if is_opened_again:
                assert wal.untrimmed_bytes
                await client.open_stream("orders")
            async with asyncio.timeout(PATIENCE_S):
                while wal.untrimmed_bytes:  # noqa: ASYNC110  who looks sets no event
                    await asyncio.sleep(0.001)

    asyncio.run(run())
