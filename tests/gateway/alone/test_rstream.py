"""rstream, the Python client of the stream protocol, as it is, against a server that answers alone."""

from __future__ import annotations

import asyncio

import pytest
from rstream import (
    AMQPMessage,
    CompressionType,
    Consumer,
    ConsumerOffsetSpecification,
    OffsetType,
    Producer,
    RawMessage,
    amqp_decoder,
)
from rstream.exceptions import OffsetNotFound, StreamDoesNotExist

from coldstream.streams import DirectArchive, OpenMode, StreamClient
from tests.support.alone import HOST, running_alone

COUNT = 5000


@pytest.fixture
def archive() -> DirectArchive:
    return DirectArchive.in_memory()


async def bodies_of(archive: DirectArchive, stream: str) -> list[bytes]:
    found: list[bytes] = []
    async with await StreamClient.open(archive) as client:
        handle = await client.open_stream(stream, mode=OpenMode.SNAPSHOT)
        at = handle.start
        while batches := await handle.fetch(at):
            for batch in batches:
                found += [message.body for message in batch.messages()]  # type: ignore[misc]
                at = batch.next_offset
    return found


async def consume(port: int, stream: str, count: int, offset: ConsumerOffsetSpecification) -> list[tuple[int, bytes]]:
    """Return offset and body of so many messages."""
    found: list[tuple[int, bytes]] = []
    consumer = Consumer(HOST, port=port, username="guest", password="guest")
    await consumer.start()

    async def take(message: AMQPMessage, context: object) -> None:
        found.append((context.offset, bytes(message.body)))  # type: ignore[attr-defined]

    await consumer.subscribe(stream, take, decoder=amqp_decoder, offset_specification=offset)
    async with asyncio.timeout(30):
        while len(found) < count:  # noqa: ASYNC110  rstream has no event for it
            await asyncio.sleep(0.01)
    await consumer.close()
    return found


@pytest.mark.parametrize("publisher", [None, "till"])
async def test_what_rstream_publishes_is_read_by_rstream_and_by_the_library_alike(
    archive: DirectArchive, publisher: str | None
) -> None:
    sent = [b"message %06d" % number for number in range(COUNT)]
    async with running_alone(archive) as alone:
        producer = Producer(HOST, port=alone.port, username="guest", password="guest")
        await producer.start()
        await producer.create_stream("orders")
        confirmed = asyncio.Event()
        answers = 0

        def on_confirm(answer: object) -> None:
            nonlocal answers
            assert answer.is_confirmed  # type: ignore[attr-defined]
            answers += 1
            if answers == COUNT:
                confirmed.set()

        for body in sent:
            await producer.send(
                "orders", AMQPMessage(body=body), publisher_name=publisher, on_publish_confirm=on_confirm
            )
        async with asyncio.timeout(30):
            await confirmed.wait()
        await producer.close()
        assert await bodies_of(archive, "orders") == sent
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        read = await consume(alone.port, "orders", COUNT, first)
        assert [body for _, body in read] == sent
        middle = ConsumerOffsetSpecification(OffsetType.OFFSET, 2500)
        assert (await consume(alone.port, "orders", COUNT - 2500, middle))[:1] == [(2500, sent[2500])]


async def test_sub_batches_of_rstream_are_read_in_order(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone:
        async with Producer(HOST, port=alone.port, username="guest", password="guest") as producer:
            await producer.create_stream("orders")
            for number in range(10):
                messages = [AMQPMessage(body=b"%d" % one) for one in range(number * 10, number * 10 + 10)]
                await producer.send_sub_entry("orders", messages, compression_type=CompressionType.Gzip)
            await asyncio.sleep(0.5)
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        read = await consume(alone.port, "orders", 100, first)
        assert [body for _, body in read] == [b"%d" % one for one in range(100)]


async def test_offsets_are_stored_and_found_again(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone:
        async with Producer(HOST, port=alone.port, username="guest", password="guest") as producer:
            await producer.create_stream("orders")
            await producer.send_wait("orders", RawMessage(b"\x00Su\xa0\x01x"))
        consumer = Consumer(HOST, port=alone.port, username="guest", password="guest")
        await consumer.start()
        await consumer.store_offset("orders", "reader", 41)
        await consumer.store_offset("orders", "reader", 42)
        async with asyncio.timeout(10):
            while await _stored(consumer) != 42:  # noqa: ASYNC110  nobody is told
                await asyncio.sleep(0.05)
        await consumer.close()
    async with running_alone(archive) as alone:
        consumer = Consumer(HOST, port=alone.port, username="guest", password="guest")
        await consumer.start()
        assert await _stored(consumer) == 42
        await consumer.close()


async def test_an_unknown_stream_is_one_that_does_not_exist(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone:
        consumer = Consumer(HOST, port=alone.port, username="guest", password="guest")
        await consumer.start()
        with pytest.raises(StreamDoesNotExist):
            await consumer.subscribe("nothing", lambda message, context: None)
        await consumer.close()


async def _stored(consumer: Consumer) -> int | None:
    try:
        return await consumer.query_offset("orders", "reader")
    except OffsetNotFound:
        return None
