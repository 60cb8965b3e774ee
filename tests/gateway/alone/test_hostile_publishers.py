"""Publishers that a client declares, ends and declares again while batches are under way, and entries that poison."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from coldstream.errors import InvalidInputError
from coldstream.format.chunk import iter_chunks
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.frames.answers import SequenceAnswer
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    Create,
    DeclarePublisher,
    Delete,
    DeletePublisher,
    Metadata,
    QueryPublisherSequence,
    Subscribe,
)
from coldstream.manifest.spec import FIRST
from coldstream.streams import OpenMode
from coldstream.units import Offset
from tests.support.alone import RawClient, RunningAlone, confirmed, publish, refused, running_alone
from tests.support.interposed_archive import InterposedArchive

STREAM = "orders"


@pytest.fixture
def stores() -> InterposedArchive:
    return InterposedArchive()


@pytest.fixture
async def alone(stores: InterposedArchive) -> AsyncIterator[RunningAlone]:
    async with running_alone(stores.archive) as running:
        async with running.client() as client:
            assert await client.code(lambda number: Create(number, STREAM, {})) == Code.OK
        yield running


async def declare(client: RawClient, reference: str | None = None, publisher_id: int = 1) -> int:
    return await client.code(lambda number: DeclarePublisher(number, publisher_id, reference, STREAM))


async def code_of(client: RawClient, key: int) -> int:
    return int.from_bytes((await client.next_of(key | ANSWER))[8:10])


def sub_batch(publisher_id: int, publishing_id: int, kind: int, records: int, packed: bytes) -> bytes:
    entry = struct.pack(">BHII", kind, records, len(packed), len(packed)) + packed
    body = struct.pack(">HHBiQ", Key.PUBLISH, 1, publisher_id, 1, publishing_id) + entry
    return struct.pack(">I", len(body)) + body


async def test_a_publisher_is_not_told_what_one_before_it_with_its_id_has_published(
    alone: RunningAlone, stores: InterposedArchive
) -> None:
    async with alone.client() as client:
        assert await declare(client) == Code.OK
        with stores.objects.held("put_new") as put:
            client.send(publish(1, (0, b"old")))
            await put.entered()
            assert await client.code(lambda number: DeletePublisher(number, 1)) == Code.OK
            assert await declare(client) == Code.OK
            client.send(publish(1, (7, b"new")))
        # The confirm of 0 would be taken for that of the new publisher's first message.
        assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [7])


async def test_of_two_that_declare_one_id_at_a_time_one_is_refused_and_nothing_is_kept(alone: RunningAlone) -> None:
    async with alone.client() as client:
        for number in (1, 2):
            client.send(DeclarePublisher(number, 1, None, STREAM).to_bytes())
        codes = sorted([await code_of(client, Key.DECLARE_PUBLISHER) for _ in range(2)])
        assert codes == [Code.OK, Code.PRECONDITION_FAILED]
        (opened,) = alone.parts.host._open.values()
        assert opened.publishers == 1
        for number in (3, 4):
            client.send(DeclarePublisher(number, number, "till", STREAM).to_bytes())
        codes = sorted([await code_of(client, Key.DECLARE_PUBLISHER) for _ in range(2)])
        assert codes == [Code.OK, Code.PRECONDITION_FAILED]


async def test_what_follows_a_declare_at_once_is_of_that_publisher(alone: RunningAlone) -> None:
    async with alone.client() as client:
        client.send(
            DeclarePublisher(1, 1, "till", STREAM).to_bytes(),
            publish(1, (1, b"one"), (2, b"two")),
            DeletePublisher(2, 1).to_bytes(),
            DeclarePublisher(3, 1, None, STREAM).to_bytes(),
        )
        assert await code_of(client, Key.DECLARE_PUBLISHER) == Code.OK
        assert await code_of(client, Key.DELETE_PUBLISHER) == Code.OK
        assert await code_of(client, Key.DECLARE_PUBLISHER) == Code.OK
        (opened,) = alone.parts.host._open.values()
        await opened.handle.flush()
        assert opened.handle.confirmed >= 2


async def test_what_follows_a_declare_that_is_refused_is_refused(alone: RunningAlone) -> None:
    async with alone.client() as client:
        client.send(DeclarePublisher(1, 1, None, "none").to_bytes(), publish(1, (1, b"one"), (2, b"two")))
        assert await code_of(client, Key.DECLARE_PUBLISHER) == Code.STREAM_DOES_NOT_EXIST
        code = int(Code.PUBLISHER_DOES_NOT_EXIST)
        assert refused(await client.next_of(Key.PUBLISH_ERROR)) == (1, [(1, code), (2, code)])


async def test_a_stream_that_a_client_is_told_is_gone_has_no_publisher_of_it_left(
    alone: RunningAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone.client() as client:
        assert await declare(client) == Code.OK
        assert await client.code(lambda number: Subscribe(number, 1, STREAM, FIRST, 10, {})) == Code.OK
        (connection,) = alone.server._connections
        connection._frames.stream_gone(STREAM)
        assert await client.next_of(Key.METADATA_UPDATE)
        # As after a broker's: it declares again what it had.
        assert await declare(client) == Code.OK
        assert await client.code(lambda number: Subscribe(number, 1, STREAM, FIRST, 10, {})) == Code.OK


async def test_reserved_bits_of_a_sub_batch_are_written_as_zero_as_by_a_broker(
    alone: RunningAlone, stores: InterposedArchive
) -> None:
    packed = struct.pack(">I", 3) + b"abc"
    async with alone.client() as client:
        assert await declare(client) == Code.OK
        client.send(sub_batch(1, 1, 0x8F, 1, packed))
        assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [1])
        async with await stores.open() as other:
            handle = await other.open_stream(STREAM, mode=OpenMode.SNAPSHOT)
            (batch,) = await handle.fetch(Offset(0))
            (chunk,) = iter_chunks(batch.chunk, source="batch")
            (entry,) = iter_entries(chunk, source="batch")
            assert isinstance(entry, SubBatch)
            assert [bytes(one) for one in entry.messages(source="batch")] == [b"abc"]


async def test_messages_of_a_batch_that_is_refused_are_not_taken_for_stored(
    alone: RunningAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone.client() as client:
        assert await declare(client, "till") == Code.OK
        (opened,) = alone.parts.host._open.values()
        append = type(opened.handle).append

        async def refuse(*_: object, **__: object) -> None:
            raise InvalidInputError("batch", "no offsets are left")

        monkeypatch.setattr(type(opened.handle), "append", refuse)
        client.send(publish(1, (1, b"one")))
        assert refused(await client.next_of(Key.PUBLISH_ERROR)) == (1, [(1, int(Code.PRECONDITION_FAILED))])
        client.send(publish(1, (1, b"one")))
        assert refused(await client.next_of(Key.PUBLISH_ERROR))[0] == 1
        monkeypatch.setattr(type(opened.handle), "append", append)


async def test_a_defect_in_an_append_leaves_no_publisher_waiting(
    alone: RunningAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone.client() as client:
        assert await declare(client) == Code.OK
        (opened,) = alone.parts.host._open.values()

        async def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(type(opened.handle), "append", fail)
        client.send(publish(1, (1, b"one")))
        assert (await client.next_of(Key.METADATA_UPDATE)).endswith(STREAM.encode())


async def test_a_client_that_publishes_and_asks_at_once_stays_within_what_may_be_pending(
    stores: InterposedArchive,
) -> None:
    options = AloneOptions(creates_streams=True, max_pending_bytes=100_000)
    async with running_alone(stores.archive, options=options) as alone, alone.client() as client:
        await client.code(lambda number: Create(number, STREAM, {}))
        assert await declare(client) == Code.OK
        (connection,) = alone.server._connections
        with stores.objects.held("put_new") as put:
            client.send(publish(1, (0, b"first")))
            await put.entered()
            # In one read: too much to be pending, and more questions than are answered at a time.
            asked = b"".join(Metadata(number, (STREAM,)).to_bytes() for number in range(100))
            client.send(publish(1, (1, bytes(120_000))) + asked)
            for _ in range(100):
                await client.next_of(Key.METADATA | ANSWER)
            for number in range(200):
                client.send(publish(1, (2 + number, bytes(50_000))))
            for _ in range(100):
                await asyncio.sleep(0.01)
            assert connection._frames.publishers._bounds.pending_bytes < 1_000_000
        found: list[int] = []
        while len(found) < 202:
            found += confirmed(await client.next_of(Key.PUBLISH_CONFIRM))[1]
        assert found == list(range(202))


async def test_who_may_no_longer_write_is_refused_message_by_message(alone: RunningAlone) -> None:
    async with alone.client() as client:
        assert await declare(client) == Code.OK
        (connection,) = alone.server._connections
        monkey = connection._peer
        monkey.permissions = type(monkey.permissions)(())
        client.send(publish(1, (1, b"one")))
        assert refused(await client.next_of(Key.PUBLISH_ERROR)) == (1, [(1, int(Code.ACCESS_REFUSED))])


async def test_deleted_and_created_again_while_it_is_published_to(alone: RunningAlone) -> None:
    async with alone.client() as client, alone.client() as other:
        assert await declare(client, "till") == Code.OK
        client.send(publish(1, (5, b"old")))
        assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [5])
        assert await other.code(lambda number: Delete(number, STREAM)) == Code.OK
        assert await client.next_of(Key.METADATA_UPDATE)
        assert await other.code(lambda number: Create(number, STREAM, {})) == Code.OK
        assert await declare(client, "till") == Code.OK
        client.send(publish(1, (1, b"new")))
        assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [1])
        (opened,) = alone.parts.host._open.values()
        assert opened.handle.confirmed == 1


async def test_a_process_that_had_the_stream_before_another_knows_what_was_published_there(
    stores: InterposedArchive,
) -> None:
    async def sequence(client: RawClient) -> int:
        found = await client.ask(lambda number: QueryPublisherSequence(number, "till", STREAM), SequenceAnswer)
        assert isinstance(found, SequenceAnswer)
        return found.sequence

    async with running_alone(stores.archive) as one, running_alone(stores.archive) as two:
        async with one.client() as client:
            assert await client.code(lambda number: Create(number, STREAM, {})) == Code.OK
            assert await declare(client, "till") == Code.OK
            client.send(publish(1, (4, b"four")))
            assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [4])
        async with two.client() as client:
            assert await declare(client, "till") == Code.OK
            client.send(publish(1, (64, b"sixty-four")))
            assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [64])
        # The first one has the stream open still. A client that goes on after 4 would have its messages left out.
        async with one.client() as client:
            assert await sequence(client) == 64
        async with two.client() as client:
            assert await declare(client, "till") == Code.OK
            client.send(publish(1, (64, b"sixty-four"), (65, b"sixty-five")))
            assert confirmed(await client.next_of(Key.PUBLISH_CONFIRM)) == (1, [64, 65])
        async with one.client() as client:
            assert await declare(client, "till") == Code.OK
            assert await sequence(client) == 65
