"""Stock clients through the gateway: real brokers, an archive of their segments, and `first` is the first ever."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from rstream import AMQPMessage, Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType

from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader
from coldstream.gateway.frames.answers import CodeAnswer, OffsetAnswer, ResolveOffsetSpecAnswer, StreamStatsAnswer
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import (
    ConsumerUpdateAnswer,
    Credit,
    QueryOffset,
    ResolveOffsetSpec,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.gateway import HOST, GatewayThread
from tests.support.gateway_scene import IN_SEGMENT, ChunkClient, GatewayScene
from tests.support.releases import HOST_RELEASE
from tests.support.streams import StreamConnection

WAIT_S = 60


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture
def streams(any_broker: Broker) -> Iterator[StreamConnection]:
    with any_broker.connect() as connection:
        yield connection


@pytest.fixture
def scene(stack: EmulatedStack, any_broker: Broker, streams: StreamConnection) -> GatewayScene:
    return GatewayScene(stack, any_broker, streams)


async def read_by_rstream(gateway: GatewayThread, stream: str, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    consumer = Consumer(HOST, port=gateway.port, username="guest", password="guest")
    await consumer.start()

    async def take(message: AMQPMessage | bytes, context: MessageContext) -> None:
        found.append((context.offset, bytes(message)))  # type: ignore[arg-type]

    first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    await consumer.subscribe(stream, take, decoder=None, offset_specification=first)
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:  # noqa: ASYNC110  rstream has no event for it
            await asyncio.sleep(0.01)
    await consumer.close()
    return found


async def opened(client: ChunkClient, *, grants: bool = True) -> None:
    client.prepare(grants=grants)
    await client.open()


async def subscribe(
    client: ChunkClient, number: int, stream: str, spec: OffsetSpec, credit: int = 5, **properties: str
) -> int:
    named = {key.replace("_", "-"): value for key, value in properties.items()}
    answer = await client.asked(Subscribe(100 + number, number, stream, spec, credit, named))
    return CodeAnswer.from_body(answer[4:]).code


def check_continuous(client: ChunkClient, number: int, *, start: int, messages: int) -> None:
    """Check that each message from the chunk that holds an offset on came once and in order.

    Messages hold their numbers, which tracking chunks before them make differ from their offsets.
    """
    assert client.headers(number)[0].chunk_id <= start
    numbers = client.numbers(number)
    assert numbers[0] <= start
    assert numbers == list(range(numbers[0], messages))


def test_rstream_reads_the_whole_history_once_and_in_order_and_goes_on_live(scene: GatewayScene) -> None:
    scene.declare(segments=2)
    scene.publish_past_retention(7)
    scene.publish(50)
    assert scene.first_offset > IN_SEGMENT
    with scene.gateway() as gateway:

        async def scenario() -> None:
            reading = asyncio.create_task(read_by_rstream(gateway, scene.name, scene.published + 100))
            await asyncio.sleep(1)
            await asyncio.to_thread(scene.publish, 100)
            found = await reading
            assert [offset for offset, _ in found] == list(range(scene.published))
            assert [body.split(b":")[0] for _, body in found] == [b"%d" % number for number in range(scene.published)]

        asyncio.run(scenario())
    assert scene.figures.takeovers_total == scene.figures.handovers_total == 1


def test_chunks_are_byte_for_byte_what_the_broker_delivered(scene: GatewayScene) -> None:
    scene.declare(segments=3)
    scene.publish(2 * IN_SEGMENT)
    before = scene.delivered_by_broker()
    scene.archive()
    scene.publish_past_retention(5)
    with scene.gateway() as gateway:

        async def scenario() -> None:
            async with ChunkClient((HOST, gateway.port)) as client:
                await opened(client)
                assert await subscribe(client, 9, scene.name, FIRST) == Code.OK
                await client.until_message(9, scene.published - 1)
                check_continuous(client, 9, start=0, messages=scene.published)
                assert client.chunks[9][: len(before)] == before
                after = scene.delivered_by_broker()
                assert client.chunks[9][-len(after) :] == after

        asyncio.run(scenario())


def test_a_paused_client_that_retention_overtakes_misses_nothing(scene: GatewayScene) -> None:
    scene.declare(segments=2)
    scene.publish(20)
    with scene.gateway() as gateway:

        async def scenario() -> None:
            async with ChunkClient((HOST, gateway.port)) as client:
                await opened(client, grants=False)
                assert await subscribe(client, 1, scene.name, FIRST, credit=1) == Code.OK
                await client.until_offset(1, 1)
                await asyncio.to_thread(scene.publish_past_retention, 8)
                assert scene.first_offset > 2 * IN_SEGMENT
                client.grants = True
                client.send(Credit(1, 5))
                await client.until_message(1, scene.published - 1)
                check_continuous(client, 1, start=0, messages=scene.published)
                await asyncio.to_thread(scene.publish, 20)
                await client.until_message(1, scene.published - 1)

        asyncio.run(scenario())
    assert scene.figures.returns_total == 1


def test_what_nobody_has_ends_the_subscription_with_an_error(scene: GatewayScene) -> None:
    scene.declare(segments=2)
    scene.publish(IN_SEGMENT + 40)
    scene.archive()
    with scene.gateway(TakeoverOptions(archive_poll_s=0.1, archive_wait_s=1)) as gateway:

        async def scenario() -> None:
            async with ChunkClient((HOST, gateway.port)) as client:
                await opened(client, grants=False)
                assert await subscribe(client, 1, scene.name, FIRST, credit=1) == Code.OK
                await client.until_offset(1, 1)
                await asyncio.to_thread(scene.publish_past_retention, 6, archived=False)
                client.grants = True
                client.send(Credit(1, 5))
                while not client.gone:
                    await client.step()
                assert client.gone[0].code == Code.STREAM_NOT_AVAILABLE
                assert client.gone[0].stream == scene.name
                headers = client.headers(1)
                assert all(one.next_offset == other.chunk_id for one, other in itertools.pairwise(headers))
                # The id is free at once, for the client that begins again.
                assert await subscribe(client, 1, scene.name, FIRST) == Code.OK

        asyncio.run(scenario())
    assert scene.figures.gaps_total["error"] >= 1


def test_an_offset_that_the_broker_has_forgotten_is_answered(scene: GatewayScene) -> None:
    scene.declare(segments=2)
    scene.publish_past_retention(2)  # offsets are kept beside what is archived
    with scene.gateway() as gateway:

        async def scenario() -> None:
            async with ChunkClient((HOST, gateway.port)) as client:
                await opened(client)
                client.send(StoreOffset("app", scene.name, 17))
                known = await client.asked(QueryOffset(50, "app", scene.name))
                assert OffsetAnswer.from_body(known[4:]).offset == 17
                await asyncio.to_thread(scene.publish_past_retention, 7)
                await asyncio.to_thread(scene.publish, 1)  # a chunk of its own, as any last message may have
                answer = OffsetAnswer.from_body((await client.asked(QueryOffset(51, "app", scene.name)))[4:])
                assert (answer.code, answer.offset) == (Code.OK, 17)
                none = CodeAnswer.from_body((await client.asked(QueryOffset(52, "nobody", scene.name)))[4:])
                assert none.code == Code.NO_OFFSET
                assert await subscribe(client, 1, scene.name, AtOffset(Offset(answer.offset + 1))) == Code.OK
                await client.until_message(1, scene.published - 1)
                check_continuous(client, 1, start=18, messages=scene.published)

        asyncio.run(scenario())
    with scene.broker.connect() as streams, pytest.raises(Exception):  # noqa: B017, PT011  rstream's own
        streams._runner.run(streams._client.query_offset(scene.name, "app"))


def test_single_active_consumers_hand_over_within_the_archive(scene: GatewayScene) -> None:
    if scene.broker.release == HOST_RELEASE:
        pytest.skip("RabbitMQ 3.10 has no single active consumers")
    scene.declare(segments=2)
    scene.publish_past_retention(7)
    with scene.gateway() as gateway:

        async def scenario() -> None:
            place = HOST, gateway.port
            async with ChunkClient(place) as one, ChunkClient(place) as other:
                await opened(one, grants=False)
                await opened(other)
                group = {"single_active_consumer": "true", "name": "group"}
                assert await subscribe(one, 1, scene.name, FIRST, credit=3, **group) == Code.OK
                assert await subscribe(other, 2, scene.name, FIRST, credit=3, **group) == Code.OK
                while not one.updates:
                    await one.step()
                assert one.updates[0].is_active
                one.send(ConsumerUpdateAnswer(one.updates[0].correlation_id, Code.OK, FIRST))
                while len(one.chunks.get(1, [])) < 3:
                    await one.step()
                assert one.headers(1)[0].chunk_id == 0
                read = one.next_offset(1)
                assert read < scene.first_offset
                assert CodeAnswer.from_body((await one.asked(Unsubscribe(7, 1)))[4:]).code == Code.OK
                while not any(update.is_active for update in other.updates):
                    await other.step()
                assert not other.chunks
                update = other.updates[-1]
                other.send(ConsumerUpdateAnswer(update.correlation_id, Code.OK, AtOffset(Offset(read))))
                await other.until_message(2, scene.published - 1)
                check_continuous(other, 2, start=read, messages=scene.published)
                assert len(one.chunks[1]) == 3
                await asyncio.to_thread(scene.publish, 20)
                await other.until_message(2, scene.published - 1)

        asyncio.run(scenario())


def test_a_stream_declared_again_is_not_read_out_of_the_old_ones_archive(scene: GatewayScene) -> None:
    scene.declare(segments=2)
    scene.publish_past_retention(6)
    scene.streams.delete_stream(scene.name)
    scene.declare(segments=2)
    scene.publish_past_retention(5, archived=False)
    assert scene.first_offset > 0
    with scene.gateway() as gateway:

        async def scenario() -> None:
            async with ChunkClient((HOST, gateway.port)) as client:
                await opened(client)
                assert await subscribe(client, 1, scene.name, FIRST) == Code.OK
                await client.until_message(1, scene.published - 1)
                assert client.chunks[1] == scene.delivered_by_broker()

        asyncio.run(scenario())
    assert scene.figures.takeovers_total == 0


def test_figures_and_specs_are_those_of_archive_and_broker_together(scene: GatewayScene) -> None:
    if scene.broker.release == HOST_RELEASE:
        pytest.skip("RabbitMQ 3.10 tells no figures")
    scene.declare(segments=2)
    scene.publish_past_retention(6)
    assert scene.first_offset > 20
    with scene.gateway() as gateway:

        async def scenario() -> None:
            async with ChunkClient((HOST, gateway.port)) as client:
                await opened(client)
                answer = StreamStatsAnswer.from_body((await client.asked(StreamStats(5, scene.name)))[4:])
                figures = dict(answer.figures)
                assert figures["first_chunk_id"] == 0
                assert figures["committed_chunk_id"] >= scene.first_offset
                if scene.broker.release.version != "4.3":
                    return
                assert await subscribe(client, 1, scene.name, FIRST) == Code.OK
                await client.until_message(1, scene.published - 1)
                # The broker decides how many messages a chunk has.
                heads = [chunk[:CHUNK_HEADER_BYTES] for chunk in client.chunks[1]]
                ids = [ChunkHeader.from_bytes(head, source="test", position=0).chunk_id for head in heads]
                holds_25 = max(chunk_id for chunk_id in ids if chunk_id <= 25)
                for spec, resolved in ((FIRST, 0), (AtOffset(Offset(25)), holds_25), (NEXT, scene.published)):
                    frame = await client.asked(ResolveOffsetSpec(6, scene.name, spec, {}))
                    found = ResolveOffsetSpecAnswer.from_body(frame[4:])
                    assert (found.code, found.spec) == (Code.OK, AtOffset(Offset(resolved)))

        asyncio.run(scenario())
