"""Stock clients at real brokers through the gateway: what they get is what they get without it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from rstream import (
    AMQPMessage,
    Consumer,
    ConsumerOffsetSpecification,
    MessageContext,
    OffsetType,
    Producer,
    RouteType,
    SuperStreamConsumer,
    SuperStreamProducer,
    amqp_decoder,
)
from rstream.client import Client
from rstream.exceptions import ServerError

from coldstream.gateway.frames.answers import (
    ConsumerUpdate,
    ExchangeCommandVersionsAnswer,
    MetadataAnswer,
    OffsetAnswer,
    OpenAnswer,
    StreamStatsAnswer,
)
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    CloseAnswer,
    ConsumerUpdateAnswer,
    Create,
    Credit,
    DeclarePublisher,
    Delete,
    ExchangeCommandVersions,
    Heartbeat,
    Metadata,
    Open,
    PeerProperties,
    QueryOffset,
    SaslAuthenticate,
    SaslHandshake,
    StreamStats,
    Subscribe,
    Tune,
)
from coldstream.gateway.ports import BrokerLink, ClientLink
from coldstream.gateway.proxy.null_interceptor import NullInterceptor
from coldstream.gateway.proxy.server import GatewayServer
from coldstream.manifest.spec import FIRST, NEXT
from tests.support.broker import Broker
from tests.support.gateway import GatewayThread, gateway_in_front_of
from tests.support.raw_stream_client import RawStreamClient
from tests.support.releases import HOST_RELEASE
from tests.support.streams import StreamConnection, SubBatch

_NUMBERS = itertools.count()
FROM_FIRST = ConsumerOffsetSpecification(OffsetType.FIRST)
LOGIN: dict[str, Any] = {"username": "guest", "password": "guest"}


class Linked(NullInterceptor):
    """Keeps the links."""

    newest: Linked

    def __init__(self, client: ClientLink, broker: BrokerLink) -> None:
        super().__init__()
        self.client = client
        self.broker = broker
        Linked.newest = self


@pytest.fixture
async def gateway(any_broker: Broker) -> AsyncIterator[GatewayServer]:
    async with gateway_in_front_of((any_broker.host, any_broker.stream_port), make=Linked) as running:
        yield running


@pytest.fixture
def stream(any_broker: Broker) -> str:
    return f"through the gäteway {next(_NUMBERS)} {any_broker.release.version}"


@pytest.fixture
def plain_stream() -> str:
    """Name a stream in ASCII: rstream counts characters, not bytes."""
    return f"through-the-gateway-{next(_NUMBERS)}"


@pytest.fixture
def threaded(any_broker: Broker) -> Iterator[GatewayThread]:
    with GatewayThread((any_broker.host, any_broker.stream_port)) as running:
        yield running


def test_what_is_published_through_it_is_read_through_it_and_without_it(
    any_broker: Broker, threaded: GatewayThread, stream: str
) -> None:
    entries: list[bytes | SubBatch] = [b"%d" % number * (number % 300) for number in range(20_000)]
    entries += [SubBatch([b"in", b"a", b"batch"]), b"x" * 900_000, b"last"]
    with StreamConnection(threaded.host, threaded.port) as through, any_broker.connect() as direct:
        through.create_stream(stream, max_segment_bytes=1_000_000)
        assert through.publish(stream, entries, publisher="one") == 20_005
        assert through.publish(stream, [b"again"], publisher="one") == 1  # asks for its publishing id
        assert through.read(stream, 20_006) == direct.read(stream, 20_006)
        through.store_offset(stream, "reader", 4711)
        through.delete_stream(stream)


async def test_deliver_frames_are_the_brokers_byte_for_byte(
    any_broker: Broker, gateway: GatewayServer, stream: str
) -> None:
    def publish() -> None:
        with any_broker.connect() as streams:
            streams.create_stream(stream, max_segment_bytes=500_000)
            for batch in range(30):
                streams.publish(stream, [bytes([batch]) * size for size in range(0, 3000, 7)])

    await asyncio.to_thread(publish)
    found: list[list[bytes]] = []
    for place in ((any_broker.host, any_broker.stream_port), gateway.place):
        async with RawStreamClient(place) as client:
            await client.open()
            if any_broker.release != HOST_RELEASE:
                client.send(ExchangeCommandVersions(9, ((8, 1, 2),)))
                assert (await client.take(ExchangeCommandVersionsAnswer)).code == 1
            client.send(Subscribe(10, 1, stream, FIRST, 2, {}))
            assert await client.code(Key.SUBSCRIBE) == Code.OK
            frames: list[bytes] = []
            while not frames or not frames[-1].endswith(bytes([29]) * 2996):
                frames.append(await client.frame())
                client.send(Credit(1, 1))
            found.append(frames)
    assert found[0] == found[1]
    assert max(map(len, found[1])) > 256 * 1024  # larger than what is read at once


async def test_stored_offsets_are_the_brokers(gateway: GatewayServer, plain_stream: str) -> None:
    host, port = gateway.place
    client = Client(host, port, frame_max=1 << 20, heartbeat=5)
    await client.start()
    await client.authenticate("/", "guest", "guest")
    await client.create_stream(plain_stream, {})
    await client.store_offset(plain_stream, "reader", 12)
    assert await client.query_offset(plain_stream, "reader") == 12
    with pytest.raises(ServerError):
        await client.query_offset(plain_stream, "nobody")
    found = await Linked.newest.broker.request(lambda number: QueryOffset(number, "reader", plain_stream), OffsetAnswer)
    assert isinstance(found, OffsetAnswer)
    assert found.offset == 12
    leader, _ = await client.query_leader_and_replicas(plain_stream)
    assert (leader.host, leader.port) == gateway.place
    await client.delete_stream(plain_stream)
    await client.close()


async def test_a_producer_and_a_consumer_meet_through_it(gateway: GatewayServer, plain_stream: str) -> None:
    host, port = gateway.place
    read: list[bytes] = []
    async with Producer(host, port, **LOGIN) as producer:
        await producer.create_stream(plain_stream)
        for start in range(0, 5000, 500):
            batch = [AMQPMessage(body=b"%d" % number) for number in range(start, start + 500)]
            await producer.send_batch(plain_stream, batch)
        consumer = Consumer(host, port, **LOGIN)
        await consumer.start()

        async def take(message: AMQPMessage, context: MessageContext) -> None:
            read.append(bytes(message.body))
            if len(read) == 5000:
                consumer.stop()

        await consumer.subscribe(
            plain_stream,
            take,
            decoder=amqp_decoder,
            offset_specification=FROM_FIRST,
            initial_credit=2,
        )
        try:
            async with asyncio.timeout(60):
                await consumer.run()
        finally:
            await consumer.close()
        assert read == [b"%d" % number for number in range(5000)]
        await producer.delete_stream(plain_stream)


async def test_a_super_stream_is_written_and_read_through_it(any_broker: Broker, gateway: GatewayServer) -> None:
    if any_broker.release == HOST_RELEASE:
        pytest.skip("rstream does not read what brokers before 3.11 say of partitions")
    name = f"super-{next(_NUMBERS)}"
    names = ", ".join(f'<<"{name}-{number}">>' for number in range(3))
    keys = ", ".join(f'<<"{number}">>' for number in range(3))
    expression = (
        f'rabbit_stream_manager:create_super_stream(<<"/">>, <<"{name}">>, [{names}], #{{}}, [{keys}], <<"guest">>).'
    )
    await asyncio.to_thread(any_broker.ctl, "eval", expression)
    host, port = gateway.place

    async def routing(message: AMQPMessage) -> str:
        return str(message.application_properties["id"])

    async with SuperStreamProducer(
        host, port, super_stream=name, routing=RouteType.Hash, routing_extractor=routing, **LOGIN
    ) as producer:
        for number in range(300):
            await producer.send(AMQPMessage(body=b"%d" % number, application_properties={"id": str(number)}))
    consumer = SuperStreamConsumer(host, port, super_stream=name, **LOGIN)
    await consumer.start()
    read: set[bytes] = set()

    async def take(message: AMQPMessage, context: MessageContext) -> None:
        read.add(bytes(message.body))
        if len(read) == 300:
            consumer.stop()

    await consumer.subscribe(take, decoder=amqp_decoder, offset_specification=FROM_FIRST)
    try:
        async with asyncio.timeout(60):
            await consumer.run()
    finally:
        await consumer.close()
    assert read == {b"%d" % number for number in range(300)}


async def test_refusals_are_the_brokers(any_broker: Broker, gateway: GatewayServer) -> None:
    told: list[list[bytes]] = []
    for place in ((any_broker.host, any_broker.stream_port), gateway.place):
        answers: list[bytes] = []
        async with RawStreamClient(place) as client:
            client.send(PeerProperties(1, {}))
            await client.frame()
            client.send(SaslHandshake(2))
            answers.append(await client.frame())
            client.send(SaslAuthenticate(3, "PLAIN", b"\0guest\0wrong"))
            answers += [await client.frame(), await client.frame()]
        async with RawStreamClient(place) as client:
            client.send(SaslAuthenticate(3, "PLAIN", b"\0guest\0guest"))
            answers.append(await client.frame())
        async with RawStreamClient(place) as client:
            await client.open()
            client.send(Subscribe(5, 1, "no such stream", NEXT, 10, {}))
            answers.append(await client.frame())
            client.send(Credit(7, 1))
            answers.append(await client.frame())
            client.send(DeclarePublisher(6, 1, "", "no such stream"))
            answers.append(await client.frame())
            client.send(Metadata(7, ("no such stream",)))
            answers.append((await client.frame())[-30:])
            client.send(Close(8, 1, "OK"))
            answers.append(await client.frame())
            assert await client.ended()
        told.append(answers)
    assert told[0] == told[1]
    assert all(told[1][4:])


async def test_a_vhost_that_is_not_there_ends_as_without_it(any_broker: Broker, gateway: GatewayServer) -> None:
    told: list[list[bytes]] = []
    for place in ((any_broker.host, any_broker.stream_port), gateway.place):
        async with RawStreamClient(place) as client:
            client.send(PeerProperties(1, {}))
            await client.frame()
            client.send(SaslHandshake(2))
            await client.frame()
            client.send(SaslAuthenticate(3, "PLAIN", b"\0guest\0guest"))
            await client.frame()
            client.send(await client.take(Tune), Open(4, "no such vhost"))
            told.append([await client.frame(), await client.frame()])
    assert told[0] == told[1]
    assert told[0][0][4:6] == (ANSWER | Key.OPEN).to_bytes(2)


async def test_a_frame_larger_than_agreed_is_for_the_broker_to_judge(
    any_broker: Broker, gateway: GatewayServer
) -> None:
    told: list[list[bytes]] = []
    for place in ((any_broker.host, any_broker.stream_port), gateway.place):
        async with RawStreamClient(place) as client:
            await client.open()  # 1 MiB
            frame = bytes([0, Key.PUBLISH, 0, 1, 9]) + bytes(4) + bytes(2 << 20)
            client.send(len(frame).to_bytes(4) + frame, Metadata(7, ()))
            answers = [await client.frame()]
            while answers[-1] and len(answers) < 2:
                answers.append(await client.frame())
            told.append([answer[:30] for answer in answers if answer[5:6] != bytes([Key.METADATA])])
    assert told[0] == told[1]


async def test_a_client_that_gives_up_a_broker_that_stands_still_leaves_nothing(
    gateway: GatewayServer, any_broker: Broker
) -> None:
    async with RawStreamClient(gateway.place) as client:
        await client.open()
        client.send(Heartbeat())
        any_broker.pause()
        try:
            client.writer.close()  # as a client does that hears nothing
            async with asyncio.timeout(20):
                while gateway.open_connections:  # noqa: ASYNC110  nothing tells
                    await asyncio.sleep(0.01)
        finally:
            any_broker.resume()


async def test_addresses_are_the_gateways(gateway: GatewayServer, stream: str) -> None:
    async with RawStreamClient(gateway.place) as client:
        client.send(PeerProperties(1, {}))
        await client.frame()
        client.send(SaslHandshake(2))
        await client.frame()
        client.send(SaslAuthenticate(3, "PLAIN", b"\0guest\0guest"))
        await client.frame()
        client.send(await client.take(Tune), Open(4, "/"))
        host, port = gateway.place
        assert (await client.take(OpenAnswer)).properties == {"advertised_host": host, "advertised_port": str(port)}
        client.send(Create(5, stream, {}))
        assert await client.code(Key.CREATE) == Code.OK
        client.send(Metadata(6, (stream,)))
        found = await client.take(MetadataAnswer)
        assert [each[1:] for each in found.brokers] == [gateway.place]
        assert found.streams[0][:2] == (stream, Code.OK)
        client.send(Delete(7, stream))
        assert await client.code(Key.DELETE) == Code.OK


async def test_the_link_knows_what_the_broker_can(any_broker: Broker, gateway: GatewayServer, stream: str) -> None:
    async with RawStreamClient(gateway.place) as client:
        await client.open()
        link = Linked.newest.broker
        client.send(Create(5, stream, {}))
        assert await client.code(Key.CREATE) == Code.OK
        is_old = any_broker.release == HOST_RELEASE
        known = {key: link.supports(key) for key in Key}
        if not is_old:
            client.send(ExchangeCommandVersions(9, ((8, 1, 1),)))
            told = await client.take(ExchangeCommandVersionsAnswer)
            has = {key for key in Key if known[key] and link.supports(key)}
            # A question of the broker's own, of which it does not tell.
            assert {key for key, _, _ in told.commands} == has - {Key.CONSUMER_UPDATE} != has
            asked = await link.request(lambda number: StreamStats(number, stream), StreamStatsAnswer)
            assert isinstance(asked, StreamStatsAnswer)
            assert dict(asked.figures)["first_chunk_id"] == -1
        assert link.supports(Key.STREAM_STATS) is not is_old


async def test_a_single_active_consumer_is_told_through_it(
    any_broker: Broker, gateway: GatewayServer, stream: str
) -> None:
    if any_broker.release == HOST_RELEASE:
        pytest.skip("since 3.11")
    async with RawStreamClient(gateway.place) as one, RawStreamClient(gateway.place) as other:
        await one.open()
        await other.open()
        one.send(Create(5, stream, {}))
        assert await one.code(Key.CREATE) == Code.OK
        properties = {"single-active-consumer": "true", "name": "app"}
        for client in (one, other):
            client.send(Subscribe(6, 1, stream, FIRST, 1, properties))
            frames = {(await client.frame())[4:6] for _ in range(2 if client is one else 1)}
            assert (ANSWER | Key.SUBSCRIBE).to_bytes(2) in frames
        one.send(ConsumerUpdateAnswer(0, 1, FIRST))
        one.writer.transport.abort()
        update = await other.take(ConsumerUpdate)
        assert update.is_active == 1


async def test_a_broker_that_closes_connections_closes_them_through_it(
    any_broker: Broker, gateway: GatewayServer
) -> None:
    async with RawStreamClient(gateway.place) as client:
        await client.open()
        await asyncio.to_thread(any_broker.ctl, "close_all_connections", "maintenance")
        frame = await client.frame()
        if frame:
            goodbye = Close.from_body(frame[4:])
            client.send(CloseAnswer(goodbye.correlation_id, 1))
        assert await client.ended()
    async with asyncio.timeout(10):
        while gateway.open_connections:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.01)


async def test_a_drain_is_a_goodbye_at_the_broker_too(any_broker: Broker, stream: str) -> None:
    async with gateway_in_front_of((any_broker.host, any_broker.stream_port)) as gateway:
        async with RawStreamClient(gateway.place) as client:
            await client.open()
            draining = asyncio.create_task(gateway.drain(20))
            goodbye = await client.take(Close)
            client.send(CloseAnswer(goodbye.correlation_id, 1))
            assert await client.ended()
        await draining
        assert gateway.open_connections == 0
