"""What a real broker delivers, and how connections to it end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from rstream import CompressionType

from coldstream.errors import AccessDeniedError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES, first_offset_of
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.subscription import Subscription
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.broker import Broker
from tests.support.streams import StreamConnection, SubBatch

SEGMENT_BYTES = 100_000
SOON_S = 0.3


@pytest.fixture
def streams(broker: Broker) -> Iterator[StreamConnection]:
    with broker.connect() as connection:
        yield connection


def address_of(broker: Broker) -> BrokerAddress:
    return BrokerAddress.from_uri(f"rabbitmq-stream://guest:guest@{broker.host}:{broker.stream_port}")


def on_disk(directory: Path) -> list[Chunk]:
    return [
        chunk
        for path in sorted(directory.glob("*.segment"))
        for chunk in iter_chunks(path.read_bytes()[SEGMENT_HEADER_BYTES:], source=path.name)
    ]


async def delivered(subscription: Subscription, messages: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    async with asyncio.timeout(10):
        while sum(chunk.header.records for chunk in chunks) < messages:
            chunks.append(await anext(subscription))
    return chunks


def first_offset(chunk: Chunk | None) -> int | None:
    return None if chunk is None else chunk.header.chunk_id


def test_headers_are_those_on_disk_while_trailers_and_tracking_chunks_are_not_sent(
    broker: Broker, streams: StreamConnection
) -> None:
    streams.create_stream("live-headers", max_segment_bytes=SEGMENT_BYTES)
    sent = 0
    for at in range(5):
        sent += streams.publish("live-headers", [b"x" * 400] * 50, publisher="deduplicating")
        sent += streams.publish("live-headers", [SubBatch([b"y" * 50] * 20, CompressionType.Gzip), b"plain"])
        streams.store_offset("live-headers", "me", at)

    async def read() -> list[Chunk]:
        async with LiveConnection(address_of(broker), "/") as live, live.subscribe("live-headers", FIRST) as chunks:
            return await delivered(chunks, sent)

    chunks = on_disk(broker.stream_directory("live-headers"))
    users = [chunk for chunk in chunks if chunk.header.type is ChunkType.USER]
    assert len(users) < len(chunks)
    assert any(chunk.header.trailer_bytes for chunk in users)
    got = asyncio.run(read())
    assert [chunk.header for chunk in got] == [chunk.header for chunk in users]
    assert [chunk.data for chunk in got] == [chunk.data for chunk in users]
    assert all(len(chunk.trailer) == 0 for chunk in got)


@pytest.mark.parametrize(
    "spec", [FIRST, LAST, NEXT, AtOffset(Offset(0)), AtOffset(Offset(9)), AtTimestamp(TimestampMs(0))], ids=str
)
def test_an_empty_stream_delivers_its_first_chunk_for_every_spec(
    broker: Broker, streams: StreamConnection, spec: OffsetSpec
) -> None:
    name = f"live-empty-{spec}"
    streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)

    async def read() -> Chunk:
        async with LiveConnection(address_of(broker), "/") as live:
            assert await live.probe(name, spec, timeout_s=SOON_S) is None
            async with live.subscribe(name, spec) as chunks:
                await asyncio.to_thread(streams.publish, name, [b"first"])
                async with asyncio.timeout(10):
                    return await anext(chunks)

    assert asyncio.run(read()).header.chunk_id == 0


def test_specs_find_the_chunks_that_they_name(broker: Broker, streams: StreamConnection) -> None:
    streams.create_stream("live-specs", max_segment_bytes=SEGMENT_BYTES)
    streams.publish("live-specs", [SubBatch([b"a"] * 10)])
    streams.store_offset("live-specs", "me", 5)  # a tracking chunk of offset 10
    streams.publish("live-specs", [SubBatch([b"b"] * 10)])

    async def find(*specs: OffsetSpec) -> list[int | None]:
        async with LiveConnection(address_of(broker), "/") as live:
            return [first_offset(await live.probe("live-specs", spec, timeout_s=SOON_S)) for spec in specs]

    offsets = [AtOffset(Offset(at)) for at in (0, 9, 10, 11, 20, 21, 5000)]
    assert asyncio.run(find(*offsets)) == [0, 0, 11, 11, 11, None, None]
    late = AtTimestamp(TimestampMs(MAX_TIMESTAMP_MS))
    assert asyncio.run(find(FIRST, LAST, NEXT, AtTimestamp(TimestampMs(0)), late)) == [0, 11, None, 0, None]


def test_an_offset_past_the_end_is_given_the_next_chunk_whatever_its_offset(
    broker: Broker, streams: StreamConnection
) -> None:
    streams.create_stream("live-past", max_segment_bytes=SEGMENT_BYTES)
    streams.publish("live-past", [b"there"])

    async def read() -> Chunk:
        async with (
            LiveConnection(address_of(broker), "/") as live,
            live.subscribe("live-past", AtOffset(Offset(5000))) as chunks,
        ):
            await asyncio.to_thread(streams.publish, "live-past", [b"late"])
            async with asyncio.timeout(10):
                return await anext(chunks)

    assert asyncio.run(read()).header.chunk_id == 1


def test_retention_that_overtakes_a_subscription_makes_it_jump_without_a_word(
    broker: Broker, streams: StreamConnection
) -> None:
    name = "live-overtaken"
    streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=2 * SEGMENT_BYTES)

    def publish_until_retained() -> None:
        directory = broker.stream_directory(name)
        while min(first_offset_of(path.name) or 0 for path in directory.glob("*.segment")) == 0:
            for _ in range(100):
                streams.publish(name, [b"z" * 1000] * 10)

    async def read() -> list[Chunk]:
        async with LiveConnection(address_of(broker), "/") as live:
            await asyncio.to_thread(streams.publish, name, [b"z" * 1000] * 10)
            async with live.subscribe(name, FIRST, credits=1) as chunks:
                got = [await anext(chunks)]
                await asyncio.to_thread(publish_until_retained)
                async with asyncio.timeout(10):
                    while got[-1].header.chunk_id == 0 or got[-1].header.chunk_id == got[-2].header.next_offset:
                        got.append(await anext(chunks))
                assert await live.probe(name, FIRST, timeout_s=SOON_S) is not None
                return got

    got = asyncio.run(read())
    jump = got[-1].header.chunk_id - got[-2].header.next_offset
    assert jump > 10
    assert got[-1].header.type is ChunkType.USER


def test_offsets_are_stored_and_found(broker: Broker, streams: StreamConnection) -> None:
    streams.create_stream("live-stored", max_segment_bytes=SEGMENT_BYTES)

    async def store() -> list[int | None]:
        async with LiveConnection(address_of(broker), "/") as live:
            found = [await live.query_offset("live-stored", "größe")]
            for offset in (7, 9, 3):
                await live.store_offset("live-stored", "größe", Offset(offset))
                found.append(await live.query_offset("live-stored", "größe"))
            return found

    assert asyncio.run(store()) == [None, 7, 9, 3]


def test_an_offset_that_may_not_be_stored_is_told(broker: Broker, streams: StreamConnection) -> None:
    streams.create_stream("live-read-only", max_segment_bytes=SEGMENT_BYTES)
    broker.ctl("add_user", "live-reader", "p@ss/word")
    broker.ctl("set_permissions", "live-reader", "", "", ".*")
    address = BrokerAddress.from_uri(f"rabbitmq-stream://live-reader:p%40ss%2Fword@{broker.host}:{broker.stream_port}")

    async def store() -> None:
        async with LiveConnection(address, "/") as live:
            assert await live.query_offset("live-read-only", "me") is None
            with pytest.raises(UnavailableError, match="not stored"):
                await live.store_offset("live-read-only", "me", Offset(1))

    asyncio.run(store())


def test_missing_streams_and_missing_permissions_are_told_apart(broker: Broker, streams: StreamConnection) -> None:
    streams.create_stream("live-hidden", max_segment_bytes=SEGMENT_BYTES)
    broker.ctl("add_user", "live-nobody", "nothing")
    broker.ctl("set_permissions", "live-nobody", "", "", "")
    place = f"{broker.host}:{broker.stream_port}"

    async def ask() -> None:
        async with LiveConnection(address_of(broker), "/") as live:
            for question in (
                live.probe("nowhere", FIRST, timeout_s=1),
                live.query_offset("nowhere", "me"),
                live.store_offset("nowhere", "me", Offset(1)),
                live.partitions("nowhere"),
            ):
                with pytest.raises(StreamNotFoundError, match="nowhere"):
                    await question
        denied = BrokerAddress.from_uri(f"rabbitmq-stream://live-nobody:nothing@{place}")
        async with LiveConnection(denied, "/") as live:
            with pytest.raises(AccessDeniedError, match="live-hidden"):
                await live.probe("live-hidden", FIRST, timeout_s=1)
        for address, vhost in (
            (BrokerAddress.from_uri(f"rabbitmq-stream://guest:wrong@{place}"), "/"),
            (address_of(broker), "no such vhost"),
        ):
            with pytest.raises(AccessDeniedError):
                async with LiveConnection(address, vhost):
                    pass
        with pytest.raises(UnavailableError):
            async with LiveConnection(BrokerAddress(((broker.host, broker.amqp_port),)), "/"):
                pass

    asyncio.run(ask())


def test_a_super_stream_has_its_partitions_in_order(broker: Broker) -> None:
    broker.ctl(
        "eval",
        'rabbit_stream_manager:create_super_stream(<<"/">>, <<"live-super">>, '
        '[<<"live-super-0">>, <<"live-super-1">>, <<"live-super-2">>], #{}, '
        '[<<"0">>, <<"1">>, <<"2">>], <<"guest">>).',
    )

    async def ask() -> tuple[str, ...]:
        async with LiveConnection(address_of(broker), "/") as live:
            return await live.partitions("live-super")

    assert asyncio.run(ask()) == ("live-super-0", "live-super-1", "live-super-2")


def test_a_deleted_stream_ends_its_subscriptions(broker: Broker, streams: StreamConnection) -> None:
    streams.create_stream("live-deleted", max_segment_bytes=SEGMENT_BYTES)

    async def wait() -> None:
        async with LiveConnection(address_of(broker), "/") as live, live.subscribe("live-deleted", NEXT) as chunks:
            await asyncio.to_thread(streams.delete_stream, "live-deleted")
            async with asyncio.timeout(10):
                with pytest.raises(StreamNotFoundError, match="live-deleted"):
                    await anext(chunks)
            assert not live.is_lost

    asyncio.run(wait())


def test_many_subscriptions_share_a_connection(broker: Broker, streams: StreamConnection) -> None:
    names = [f"live-many-{at}" for at in range(5)]
    for at, name in enumerate(names):
        streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)
        streams.publish(name, [b"%d" % at * 300] * 500)

    async def read_all() -> None:
        async with LiveConnection(address_of(broker), "/") as live:

            async def read(at: int) -> None:
                async with live.subscribe(names[at % 5], FIRST, credits=2) as chunks:
                    for chunk in await delivered(chunks, 500):
                        assert set(bytes(chunk.data[4:300])) == {ord(str(at % 5))}

            await asyncio.gather(*(read(at) for at in range(300)))

    asyncio.run(read_all())


def test_a_broker_that_is_killed_ends_every_wait_at_once(broker: Broker) -> None:
    async def wait(victim: Broker) -> None:
        async with LiveConnection(address_of(victim), "/") as live, live.subscribe("s", NEXT) as chunks:
            waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            victim.kill()
            async with asyncio.timeout(5):
                with pytest.raises(UnavailableError):
                    await waiting
            assert live.is_lost
        with pytest.raises(UnavailableError):
            async with LiveConnection(address_of(victim), "/"):
                pass

    with Broker() as victim:
        with victim.connect() as streams:
            streams.create_stream("s", max_segment_bytes=SEGMENT_BYTES)
        asyncio.run(wait(victim))
