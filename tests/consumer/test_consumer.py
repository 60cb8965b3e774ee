"""Consumers without a broker; test_real_broker.py has the rest."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import subprocess
import sys
import threading
import time

import pytest
from rstream import schema

import coldstream
from coldstream.consumer.makers import FollowerMaker
from coldstream.errors import InvalidInputError, InvalidNameError, InvalidSettingError, StreamNotFoundError
from coldstream.live.address import BrokerAddress
from coldstream.read.client import ResolverClient
from coldstream.read.fetch_pool import FetchPool
from coldstream.read.http import ClosedError
from tests.support.sharding import Sharding
from tests.support.stream_broker import OK, FakeBroker, answer
from tests.support.world import FakeBroker as FakeStreamBroker
from tests.support.world import World

NOBODY = "rabbitmq-stream://127.0.0.1:1"


def consumer(**options: object) -> coldstream.Consumer:
    return coldstream.Consumer("orders", **{"resolver": "http://127.0.0.1:1", "broker": NOBODY} | options)


def test_importing_coldstream_imports_neither_the_consumer_nor_rstream() -> None:
    code = "import coldstream, sys; assert not {'rstream', 'urllib3', 'asyncio'} & set(sys.modules), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(coldstream.__path__) + "/.."})


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producer'"):
        coldstream.Producer  # noqa: B018


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"broker": "http://127.0.0.1"}, InvalidSettingError),
        ({"vhost": ""}, InvalidNameError),
        ({"name": "x" * 256}, InvalidNameError),
        ({"connections": 0}, ValueError),
        ({"on_gap": "Skip"}, ValueError),
        ({"order": "keys"}, ValueError),
        ({"start": coldstream.ShardPosition(1), "super_stream": False}, ValueError),
    ],
)
def test_impossible_parameters_are_refused_at_once(options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        consumer(**options)


def test_outside_its_context_a_consumer_is_not_read() -> None:
    async def read() -> None:
        with pytest.raises(RuntimeError):
            await anext(consumer().messages())

    asyncio.run(read())


def test_messages_and_chunks_do_not_take_turns() -> None:
    async def read() -> None:
        async with consumer() as reading:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(reading.messages()), 0.01)
            with pytest.raises(RuntimeError, match="gave out messages"):
                await anext(reading.chunks())

    asyncio.run(read())


@pytest.mark.parametrize("super_stream", [False, True])
def test_a_consumer_can_be_left_at_once_while_nothing_answers(*, super_stream: bool) -> None:
    async def leave() -> float:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            host, port = silent.getsockname()
            async with consumer(
                resolver=f"http://{host}:{port}", broker=BrokerAddress(((host, port),)), super_stream=super_stream
            ) as reading:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(reading.messages()), 0.3)
                began = time.monotonic()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return time.monotonic() - began

    assert asyncio.run(leave()) < 1


def test_the_blocking_consumer_is_read_only_within_its_context() -> None:
    reading = coldstream.BlockingConsumer("orders", resolver="http://127.0.0.1:1", broker=NOBODY, name="billing")
    reading.close()
    with pytest.raises(RuntimeError, match="within its context"):
        next(reading.messages())
    with reading:
        pass
    with pytest.raises(ClosedError):
        next(reading.messages())


def test_the_blocking_consumer_leaves_no_thread() -> None:
    with coldstream.BlockingConsumer("orders", resolver="http://127.0.0.1:1", broker=NOBODY) as reading:
        assert reading.position is None
        assert reading.gaps == []
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("coldstream-consumer") for name in names)


def test_the_blocking_consumer_raises_if_no_event_loop_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def new_event_loop() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.events, "new_event_loop", new_event_loop)
    with pytest.raises(OSError, match="Too many open files"):
        coldstream.BlockingConsumer("orders", resolver="http://127.0.0.1:1", broker=NOBODY).__enter__()


def test_partitions_share_threads_connections_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[FetchPool, int]] = []

    def archive(*_: object, pool: FetchPool, prefetch_bytes: int, range_bytes: int) -> None:
        given.append((pool, prefetch_bytes))

    async def read() -> None:
        async with FakeBroker() as fake:
            fake.says[schema.SuperStreamPartitions] = lambda asked: [
                answer(schema.SuperStreamPartitionsResponse(asked.correlation_id, OK, [f"p-{at}" for at in range(8)]))
            ]
            async with consumer(broker=fake.address, super_stream=True, connections=4, prefetch_bytes=800):
                async with asyncio.timeout(5):
                    while len(given) < 8:  # noqa: ASYNC110  what is waited for has no event
                        await asyncio.sleep(0.01)

    monkeypatch.setattr("coldstream.consumer.makers.StreamArchive", archive)
    asyncio.run(read())
    assert given == [(given[0][0], 100)] * 8


@pytest.mark.parametrize("owns", [True, False])
def test_a_consumer_closes_its_own_client_and_no_other(monkeypatch: pytest.MonkeyPatch, *, owns: bool) -> None:
    closed: list[ResolverClient] = []
    close = ResolverClient.close

    def noting(self: ResolverClient) -> None:
        closed.append(self)
        close(self)

    async def leave() -> None:
        async with consumer(resolver=url if owns else client):
            pass

    url = "http://127.0.0.1:1"
    client = ResolverClient(url)
    monkeypatch.setattr(ResolverClient, "close", noting)
    asyncio.run(leave())
    assert len(closed) == owns
    assert client not in closed
    client.close()


@pytest.mark.parametrize("super_stream", [None, False])
def test_a_stream_is_read_from_the_broker_while_the_resolver_hangs(
    monkeypatch: pytest.MonkeyPatch, *, super_stream: bool | None
) -> None:
    asked, over = threading.Event(), threading.Event()

    def shard_map(*_: object) -> None:
        asked.set()
        over.wait(10)

    async def read() -> bytes:
        world = World(random.Random(1))
        world.publish(1)
        monkeypatch.setattr(FollowerMaker, "broker", lambda *_: FakeStreamBroker(world))
        async with consumer(start=coldstream.NEXT, super_stream=super_stream) as reading:
            waiting = asyncio.create_task(anext(reading.messages()))
            async with asyncio.timeout(5):
                while not world.subscriptions:  # noqa: ASYNC110  what is waited for has no event
                    await asyncio.sleep(0.01)
                while not waiting.done():
                    world.publish(1)
                    await asyncio.sleep(0.01)
            message = await waiting
            assert reading.position == 2
        return bytes(message.raw)

    monkeypatch.setattr(ResolverClient, "shard_map", shard_map)
    try:
        assert asyncio.run(read()) == b"1/1"
    finally:
        over.set()
    assert asked.is_set() == (super_stream is None)


def nowhere(asked: schema.Frame) -> list[bytes]:
    """Answer that there is no such stream."""
    return [answer(schema.SubscribeResponse(asked.correlation_id, 2))]


def test_a_position_is_no_start_of_a_plain_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> None:
        async with consumer(start=coldstream.ShardPosition(1)) as reading:
            with pytest.raises(InvalidInputError, match="'orders' is no sharded stream"):
                await anext(reading.messages())

    monkeypatch.setattr(ResolverClient, "shard_map", lambda *_: None)
    asyncio.run(read())


def test_a_name_that_is_neither_a_stream_nor_a_logical_one_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> None:
        async with FakeBroker() as fake:
            fake.says[schema.Subscribe] = nowhere
            async with consumer(start=coldstream.NEXT, broker=fake.address) as reading:
                with pytest.raises(StreamNotFoundError):
                    await anext(reading.messages())

    monkeypatch.setattr(ResolverClient, "shard_map", lambda *_: None)
    asyncio.run(read())


def test_a_logical_name_that_the_broker_does_not_know_is_sharded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> None:
        async with FakeBroker() as fake:
            fake.says[schema.Subscribe] = nowhere
            async with consumer(start=coldstream.NEXT, broker=fake.address) as reading:
                async with asyncio.timeout(5):
                    while len(reading.streams) < 2:  # noqa: ASYNC110  what is waited for has no event
                        await asyncio.sleep(0.01)
                assert reading.streams.keys() == {"orders-0", "orders-1"}
                assert reading.position is None

    monkeypatch.setattr(ResolverClient, "shard_map", lambda *_: Sharding(2).map)
    asyncio.run(read())
