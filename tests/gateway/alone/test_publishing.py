"""Direct streams that clients write and read, by frames: confirms, deduplication, refusals."""

from __future__ import annotations

import asyncio
import struct

import pytest

from coldstream.format.chunk import iter_chunks
from coldstream.format.entry import iter_entries
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.permissions import StreamPermissions
from coldstream.gateway.frames.answers import SequenceAnswer
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import (
    Create,
    DeclarePublisher,
    Delete,
    DeletePublisher,
    QueryPublisherSequence,
    Subscribe,
)
from coldstream.gateway.proxy.scanner import SCRATCH_BYTES
from coldstream.manifest.spec import FIRST
from coldstream.streams import DirectArchive, OpenMode, StreamClient
from coldstream.units import Offset
from tests.support.alone import Delivered, RawClient, confirmed, publish, refused, running_alone


@pytest.fixture
def archive() -> DirectArchive:
    return DirectArchive.in_memory()


async def declare(
    client: RawClient, stream: str = "orders", reference: str | None = None, publisher_id: int = 1
) -> int:
    return await client.code(lambda number: DeclarePublisher(number, publisher_id, reference, stream))


async def create(client: RawClient, stream: str = "orders") -> int:
    return await client.code(lambda number: Create(number, stream, {}))


async def confirms(client: RawClient, count: int) -> list[int]:
    """Return so many confirmed ids."""
    found: list[int] = []
    while len(found) < count:
        found += confirmed(await client.next_of(Key.PUBLISH_CONFIRM))[1]
    return found


async def stored(archive: DirectArchive, stream: str = "orders") -> list[bytes]:
    """Return the messages of a stream, as `coldstream.streams` reads them."""
    found: list[bytes] = []
    async with await StreamClient.open(archive) as client:
        handle = await client.open_stream(stream, mode=OpenMode.SNAPSHOT)
        at = handle.start
        while batches := await handle.fetch(at):
            for batch in batches:
                for chunk in iter_chunks(batch.chunk, source="batch"):
                    found += [bytes(one) for one in iter_entries(chunk, source="batch")]  # type: ignore[arg-type]
                at = batch.next_offset
    return found


async def test_what_is_confirmed_is_in_the_archive_in_order_and_byte_for_byte(archive: DirectArchive) -> None:
    messages = [(number, b"message %d" % number) for number in range(1000)]
    async with running_alone(archive) as alone, alone.client() as client:
        assert await create(client) == Code.OK
        assert await declare(client) == Code.OK
        for at in range(0, 1000, 100):
            client.send(publish(1, *messages[at : at + 100]))
        assert await confirms(client, 1000) == list(range(1000))
        assert await stored(archive) == [data for _, data in messages]


async def test_a_subscriber_is_sent_what_is_published_after_it_came_to_the_tail(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as writer, alone.client() as reader:
        await create(writer)
        await declare(writer)
        await reader.exchange()
        assert await reader.code(lambda number: Subscribe(number, 7, "orders", FIRST, 10, {})) == Code.OK
        for number in range(3):
            writer.send(publish(1, (number, b"%d" % number)))
            await confirms(writer, 1)
            found = Delivered.of(await reader.next_of(Key.DELIVER))
            assert found.subscription_id == 7
            (chunk,) = iter_chunks(found.chunk, source="delivered")
            assert chunk.header.chunk_id == number
            assert found.committed is not None
            assert found.committed >= number
            assert [bytes(one) for one in iter_entries(chunk, source="delivered")] == [b"%d" % number]  # type: ignore[arg-type]


async def test_ever_new_references_that_leave_at_once_are_not_kept(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        for number in range(20):
            assert await declare(client, reference=f"reference {number}") == Code.OK
            client.send(publish(1, (1, b"m")), DeletePublisher(9000 + number, 1).to_bytes())
            await client.next_of(Key.PUBLISH_CONFIRM)
        (opened,) = alone.parts.host._open.values()
        assert not opened.turns


async def test_a_named_publisher_that_comes_again_has_each_message_once(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone:
        async with alone.client() as client:
            await create(client)
            await declare(client, reference="till")
            client.send(publish(1, (1, b"one"), (2, b"two"), (3, b"three")))
            await confirms(client, 3)
        async with alone.client() as client:
            found = await client.ask(lambda number: QueryPublisherSequence(number, "till", "orders"), SequenceAnswer)
            assert isinstance(found, SequenceAnswer)
            assert found.sequence == 3
            assert await declare(client, reference="till") == Code.OK
            # Half of it is there already.
            client.send(publish(1, (2, b"two"), (3, b"three"), (4, b"four"), (5, b"five")))
            client.send(publish(1, (4, b"four"), (5, b"five")))
            assert sorted(await confirms(client, 6)) == [2, 3, 4, 4, 5, 5]
        assert await stored(archive) == [b"one", b"two", b"three", b"four", b"five"]
    # Another process knows it, too.
    async with running_alone(archive) as alone, alone.client() as client:
        await declare(client, reference="till")
        client.send(publish(1, (5, b"five"), (6, b"six")))
        await confirms(client, 2)
        assert (await stored(archive))[-2:] == [b"five", b"six"]


async def test_a_sub_batch_stays_packed_and_takes_an_offset_for_each_record(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await declare(client)
        packed = b"".join(struct.pack(">I", 3) + b"abc" for _ in range(4))
        entry = struct.pack(">BHII", 0x80, 4, len(packed), len(packed)) + packed
        body = struct.pack(">HHBiQ", Key.PUBLISH, 1, 1, 1, 9) + entry
        client.send(struct.pack(">I", len(body)) + body)
        assert await confirms(client, 1) == [9]
        async with await StreamClient.open(archive) as other:
            handle = await other.open_stream("orders", mode=OpenMode.SNAPSHOT)
            (batch,) = await handle.fetch(Offset(0))
            assert (batch.base_offset, batch.next_offset) == (0, 4)
            assert batch.chunk[48 : 48 + len(entry)] == entry


async def test_filter_values_are_read_over(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await declare(client)
        entry = struct.pack(">h", 2) + b"eu" + struct.pack(">I", 5) + b"hello"
        body = struct.pack(">HHBiQ", Key.PUBLISH, 2, 1, 1, 1) + entry
        client.send(struct.pack(">I", len(body)) + body, publish(1, (2, b"again"), version=2))
        assert await confirms(client, 2) == [1, 2]
        assert await stored(archive) == [b"hello", b"again"]


async def test_publishers_are_refused_as_by_a_broker(archive: DirectArchive) -> None:
    rules = StreamPermissions.parse(["guest * orders rw", "guest * locked r"])
    async with running_alone(archive, permissions=rules) as alone, alone.client() as client:
        assert await create(client, "other") == Code.ACCESS_REFUSED
        assert await declare(client, "locked") == Code.ACCESS_REFUSED
        assert await declare(client) == Code.STREAM_DOES_NOT_EXIST
        await create(client)
        assert await create(client) == Code.STREAM_EXISTS
        assert await declare(client, reference="r") == Code.OK
        assert await declare(client) == Code.PRECONDITION_FAILED
        assert await declare(client, reference="r", publisher_id=2) == Code.PRECONDITION_FAILED
        assert await declare(client, reference="x" * 256, publisher_id=2) == Code.PRECONDITION_FAILED
        client.send(publish(9, (1, b"nobody"), (2, b"nobody")))
        code = int(Code.PUBLISHER_DOES_NOT_EXIST)
        assert refused(await client.next_of(Key.PUBLISH_ERROR)) == (9, [(1, code), (2, code)])
        assert await client.code(lambda number: DeletePublisher(number, 9)) == Code.PUBLISHER_DOES_NOT_EXIST
        assert await client.code(lambda number: DeletePublisher(number, 1)) == Code.OK
        assert await client.code(lambda number: Delete(number, "none")) == Code.ACCESS_REFUSED
        assert await client.code(lambda number: Delete(number, "orders")) == Code.OK
        assert await client.code(lambda number: Delete(number, "orders")) == Code.STREAM_DOES_NOT_EXIST


async def test_streams_are_created_only_if_that_is_configured(archive: DirectArchive) -> None:
    options = AloneOptions(creates_streams=False)
    async with running_alone(archive, options=options) as alone, alone.client() as client:
        assert await create(client) == Code.ACCESS_REFUSED


async def test_a_publisher_whose_stream_another_process_takes_over_is_told_that_it_moved(
    archive: DirectArchive,
) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        await create(client)
        await declare(client)
        client.send(publish(1, (1, b"one")))
        await confirms(client, 1)
        async with await StreamClient.open(archive) as other:
            taken = await other.open_stream("orders")
            client.send(publish(1, (2, b"two")))
            body = await client.next_of(Key.METADATA_UPDATE)
            assert body.endswith(b"orders")
            # It is left to the other for a pause.
            assert await declare(client) == Code.STREAM_NOT_AVAILABLE
            await taken.append([b"three"])
        assert len(await stored(archive)) == 2


async def test_a_deleted_stream_ends_its_publishers_and_subscriptions(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client, alone.client() as reader:
        await create(client)
        await declare(client)
        await reader.code(lambda number: Subscribe(number, 7, "orders", FIRST, 10, {}))
        await client.code(lambda number: Delete(number, "orders"))
        for one in (client, reader):
            body = await one.next_of(Key.METADATA_UPDATE)
            assert body[4:6] == int(Code.STREAM_NOT_AVAILABLE).to_bytes(2)


async def test_who_publishes_more_than_is_confirmed_is_not_read_from(
    archive: DirectArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = AloneOptions(creates_streams=True, max_pending_bytes=100_000)
    async with running_alone(archive, options=options) as alone, alone.client() as client:
        await create(client)
        await declare(client)
        held = asyncio.Event()
        put_new = archive.objects.put_new
        loop = asyncio.get_running_loop()

        def hang(*args: object, **more: object) -> object:
            asyncio.run_coroutine_threadsafe(held.wait(), loop).result()
            return put_new(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(archive.objects, "put_new", hang)
        (connection,) = alone.server._connections
        frame = publish(1, (1, bytes(10_000)))
        for _ in range(2000):
            client.send(frame)
        for _ in range(100):
            await asyncio.sleep(0.01)
        assert connection._frames.publishers._bounds.pending_bytes < 100_000 + 2 * SCRATCH_BYTES
        assert connection.client.read_bytes < 1_000_000
        held.set()
        monkeypatch.setattr(archive.objects, "put_new", put_new)
        assert len(await confirms(client, 2000)) == 2000
