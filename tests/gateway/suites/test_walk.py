"""What rstream's own tests do, which its package leaves out: each with the broker alone, and through the gateway."""

from __future__ import annotations

import asyncio
import gc
import itertools
from asyncio.selector_events import _SelectorTransport
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from rstream import (
    CompressionType,
    Consumer,
    ConsumerOffsetSpecification,
    EventContext,
    FilterConfiguration,
    MessageContext,
    OffsetNotFound,
    OffsetSpecification,
    OffsetType,
    OnClosedErrorInfo,
    Producer,
    RawMessage,
    StreamDoesNotExist,
    SuperStreamConsumer,
    SuperStreamProducer,
    schema,
)
from rstream.client import Client
from rstream.exceptions import AuthenticationFailure, StreamAlreadyExists, VirtualHostAccessFailure

from tests.gateway.clients.border import border
from tests.gateway.clients.gateway_run import GatewayRun
from tests.support.broker import Broker, find_rabbitmq
from tests.support.codecs import register_codecs
from tests.support.epmd import HOST
from tests.support.fixtures import do_without
from tests.support.releases import RABBITMQ_4_0

PATIENCE_S = 60.0
QUIET_S = 0.5
_NAMES = itertools.count()

register_codecs()

# rstream leaves some of its connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """Close them before anybody else is blamed: their loops are over."""
    yield
    for transport in gc.get_objects():
        if isinstance(transport, _SelectorTransport) and transport._sock is not None and transport._loop.is_closed():
            transport._closing = True
            transport._sock.close()
            transport._sock = None


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that knows all that there is: filters, super streams and single active consumers."""
    if find_rabbitmq(RABBITMQ_4_0) is None:
        do_without(f"RabbitMQ {RABBITMQ_4_0.version}", RABBITMQ_4_0.remedy)
    with Broker(release=RABBITMQ_4_0) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRun]:
    directory = tmp_path_factory.mktemp("walk")
    with (
        border(broker, directory, "walk*") as made,
        GatewayRun(made.stack.environment, broker.stream_port, directory / "gateway.log") as running,
    ):
        yield running


@pytest.fixture(params=["direct", "gateway"])
def port(request: pytest.FixtureRequest, broker: Broker) -> int:
    if request.param == "direct":
        return broker.stream_port
    running: GatewayRun = request.getfixturevalue("gateway")
    return running.port


@pytest.fixture
async def client(port: int) -> AsyncIterator[Client]:
    async with connected(port) as opened:
        yield opened


@pytest.fixture
async def stream(client: Client) -> str:
    name = f"walk-{next(_NAMES)}"
    await client.create_stream(name)
    return name


@pytest.fixture
async def producer(port: int) -> AsyncIterator[Producer]:
    opened = Producer(HOST, port, username="guest", password="guest", default_batch_publishing_delay=0.05)
    await opened.start()
    yield opened
    await opened.close()


@asynccontextmanager
async def connected(port: int, *, vhost: str = "/", password: str = "guest") -> AsyncIterator[Client]:
    opened = Client(HOST, port, frame_max=1 << 20, heartbeat=60, connection_closed_handler=lambda _: None)
    await opened.start()
    try:
        await opened.authenticate(vhost, "guest", password)
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def consumer(port: int, on_close: Callable[[OnClosedErrorInfo], object] | None = None) -> AsyncIterator[Consumer]:
    async def closed(info: OnClosedErrorInfo) -> None:
        if on_close is not None:
            on_close(info)

    opened = Consumer(HOST, port, username="guest", password="guest", on_close_handler=closed)
    await opened.start()
    yield opened
    with suppress(KeyError):  # rstream's, of a subscription that it has dropped because its stream is deleted
        await opened.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.02)


async def read(port: int, stream: str, count: int, kind: OffsetType = OffsetType.FIRST, offset: int | None = None):
    """Return at least so many messages from a spec on, with their offsets, and what comes right after."""
    taken: list[tuple[int, bytes]] = []
    async with consumer(port) as opened:
        spec = ConsumerOffsetSpecification(kind, offset)
        await opened.subscribe(stream, lambda m, c: taken.append((c.offset, m)), offset_specification=spec)
        await until(lambda: len(taken) >= count)
        await asyncio.sleep(QUIET_S)
    return taken


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(start, start + count)]


async def test_what_is_there_is_not_made_twice_and_what_is_gone_not_deleted(client: Client, stream: str):
    assert await client.stream_exists(stream)
    with pytest.raises(StreamAlreadyExists):
        await client.create_stream(stream)
    await client.delete_stream(stream)
    assert not await client.stream_exists(stream)
    for refused in (
        client.delete_stream(stream),
        client.subscribe(stream, 7),
        client.declare_publisher(stream, None, 1),
    ):
        with pytest.raises(StreamDoesNotExist):
            await refused


@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"vhost": "no such"}])
async def test_who_has_no_access_is_refused(port: int, wrong: dict[str, str]):
    with pytest.raises((AuthenticationFailure, VirtualHostAccessFailure)):
        async with asyncio.timeout(PATIENCE_S), connected(port, **wrong):
            pytest.fail("it is let in")


async def test_published_messages_are_confirmed_and_read(port: int, producer: Producer, stream: str):
    confirmed: list[int] = []
    messages = numbered(500)
    await producer.send_batch(
        stream, messages[:-1], on_publish_confirm=lambda status: confirmed.append(status.message_id)
    )
    await producer.send_wait(stream, messages[-1])
    await until(lambda: len(confirmed) == len(messages) - 1)
    assert await read(port, stream, 500) == list(enumerate(messages))


async def test_a_publishing_id_is_taken_once(port: int, client: Client, producer: Producer, stream: str):
    for start in (1, 6):
        for number in range(start, start + 10):
            await producer.send_wait(stream, RawMessage(b"%d" % number, publishing_id=number), publisher_name="billing")
    assert await client.query_publisher_sequence(stream, "billing") == 15
    assert await client.query_publisher_sequence(stream, "another") == 0
    assert [message for _, message in await read(port, stream, 15)] == [b"%d" % number for number in range(1, 16)]


@pytest.mark.parametrize("compression", [CompressionType.No, CompressionType.Gzip, CompressionType.Zstd])
async def test_sub_batches_are_read(port: int, producer: Producer, stream: str, compression: CompressionType):
    await producer.send_sub_entry(stream, numbered(100), compression_type=compression)
    await producer.send_sub_entry(stream, numbered(100, 100), compression_type=compression)
    assert await read(port, stream, 200) == list(enumerate(numbered(200)))


async def test_offsets_are_stored(client: Client, producer: Producer, stream: str):
    await producer.send_batch(stream, numbered(20))
    with pytest.raises(OffsetNotFound):
        await client.query_offset(stream, "reader")
    for offset in (7, 12):
        await client.store_offset(stream, "reader", offset)
        assert await client.query_offset(stream, "reader") == offset
    with pytest.raises(StreamDoesNotExist):
        await client.query_offset("no such", "reader")


async def test_specs_begin_where_they_say(port: int, producer: Producer, stream: str):
    for start in range(0, 100, 10):
        await producer.send_batch(stream, numbered(10, start))
    await read(port, stream, 100)
    every = list(enumerate(numbered(100)))
    assert await read(port, stream, 50, OffsetType.OFFSET, 50) == every[50:]
    assert await read(port, stream, 100, OffsetType.TIMESTAMP, 0) == every
    last = await read(port, stream, 1, OffsetType.LAST)
    assert last == every[-len(last) :]
    taken: list[int] = []
    async with consumer(port) as opened:
        spec = ConsumerOffsetSpecification(OffsetType.NEXT)
        await opened.subscribe(stream, lambda _, c: taken.append(c.offset), offset_specification=spec)
        await producer.send_wait(stream, b"next")
        await until(lambda: taken)
    assert taken == [100]


async def test_filters_leave_out_whole_chunks(port: int, stream: str):
    async def value(message: RawMessage) -> str:
        return bytes(message)[:1].decode()

    opened = Producer(
        HOST,
        port,
        username="guest",
        password="guest",
        filter_value_extractor=value,
        default_batch_publishing_delay=0.05,
    )
    await opened.start()
    for letter in (b"a", b"b", b"a", b"b"):
        await opened.send_batch(stream, [b"%b%d" % (letter, number) for number in range(21)])
    await opened.close()
    taken: list[bytes] = []
    async with consumer(port) as reader:
        wanted = FilterConfiguration(
            values_to_filter=["b"], predicate=lambda m: m.startswith(b"b"), match_unfiltered=False
        )
        spec = ConsumerOffsetSpecification(OffsetType.FIRST)
        await reader.subscribe(stream, lambda m, _: taken.append(m), offset_specification=spec, filter_input=wanted)
        await until(lambda: len(taken) >= 42)
        await asyncio.sleep(QUIET_S)
    assert len(taken) == 42


async def test_one_of_a_name_is_active_and_the_next_takes_over(port: int, producer: Producer, stream: str):
    taken: dict[str, list[int]] = {"one": [], "two": []}
    updates: list[tuple[str, bool]] = []

    async def begin(opened: Consumer, who: str) -> None:
        async def update(is_active: bool, _: EventContext) -> OffsetSpecification:  # noqa: FBT001  rstream's order
            updates.append((who, is_active))
            return OffsetSpecification(OffsetType.OFFSET, 5)

        def take(_: bytes, context: MessageContext) -> None:
            taken[who].append(context.offset)

        await opened.subscribe(
            stream,
            take,
            offset_specification=ConsumerOffsetSpecification(OffsetType.FIRST),
            properties={"single-active-consumer": "true", "name": "group"},
            subscriber_name=who,
            consumer_update_listener=update,
        )

    await producer.send_batch(stream, numbered(30))
    async with consumer(port) as two:
        async with consumer(port) as one:
            await begin(one, "one")
            await until(lambda: len(taken["one"]) == 25)
            await begin(two, "two")
            await asyncio.sleep(QUIET_S)
            assert taken["two"] == []
        await until(lambda: len(taken["two"]) == 25)
    assert taken == {"one": list(range(5, 30)), "two": list(range(5, 30))}
    assert ("one", True) in updates
    assert ("two", True) in updates


async def test_super_streams_are_made_routed_read_and_deleted(port: int, client: Client):
    name = f"walk-super-{next(_NAMES)}"
    partitions = [f"{name}-{number}" for number in range(3)]
    await client.create_super_stream(name, partitions, ["0", "1", "2"])
    assert sorted(await client.partitions(name)) == partitions
    assert await client.route("1", name) == [partitions[1]]

    async def key(message: object) -> str:
        return str(message.application_properties["id"] if hasattr(message, "application_properties") else message)

    place = {"username": "guest", "password": "guest"}
    sending = SuperStreamProducer(HOST, port, super_stream=name, routing_extractor=key, **place)
    await sending.start()
    for message in numbered(300):
        await sending.send(message)
    await sending.close()
    taken: list[bytes] = []
    reading = SuperStreamConsumer(HOST, port, super_stream=name, **place)
    await reading.start()
    spec = ConsumerOffsetSpecification(OffsetType.FIRST)
    await reading.subscribe(lambda m, _: taken.append(m), offset_specification=spec)
    await until(lambda: len(taken) >= 300)
    await reading.close()
    assert sorted(taken) == sorted(numbered(300))
    await client.delete_super_stream(name)
    assert not await client.stream_exists(partitions[0])


async def test_a_deleted_stream_is_told_to_its_consumers(port: int, client: Client, producer: Producer, stream: str):
    told: list[OnClosedErrorInfo] = []
    taken: list[int] = []
    await producer.send_batch(stream, numbered(10))
    async with consumer(port, told.append) as opened:
        spec = ConsumerOffsetSpecification(OffsetType.FIRST)
        await opened.subscribe(stream, lambda _, c: taken.append(c.offset), offset_specification=spec)
        await until(lambda: len(taken) == 10)
        await client.delete_stream(stream)
        await until(lambda: told)
    assert [info.streams for info in told] == [[stream]]


async def test_connections_that_the_broker_cuts_are_made_again(broker: Broker, port: int, stream: str):
    with suppress(Exception):
        broker.ctl("close_all_connections", "cut")
    async with connected(port) as again:
        await again.declare_publisher(stream, None, 1)
        again.add_handler(schema.PublishConfirm, lambda frame: confirmed.append(frame.publisher_id), name="1")
        confirmed: list[int] = []
        await again.publish([schema.Message(1, None, b"after")], 1)
        await until(lambda: confirmed)
    assert [message for _, message in await read(port, stream, 1)] == [b"after"]
