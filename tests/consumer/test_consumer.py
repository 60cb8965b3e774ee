"""Consumers without a broker; test_real_broker.py has the rest."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import threading
import time

import pytest
from rstream import schema

import coldstream
from coldstream.errors import InvalidNameError, InvalidSettingError
from coldstream.live.address import BrokerAddress
from coldstream.read.client import ResolverClient
from coldstream.read.http import ClosedError
from tests.support.stream_broker import OK, FakeBroker, answer

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


def test_more_partitions_than_connections_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []

    def archive(*_: object, connections: int, prefetch_bytes: int, range_bytes: int) -> None:
        given.append((connections, prefetch_bytes))

    async def read() -> None:
        async with FakeBroker() as fake:
            fake.says[schema.SuperStreamPartitions] = lambda asked: [
                answer(schema.SuperStreamPartitionsResponse(asked.correlation_id, OK, [f"p-{at}" for at in range(8)]))
            ]
            async with consumer(broker=fake.address, super_stream=True, connections=4, prefetch_bytes=800):
                async with asyncio.timeout(5):
                    while len(given) < 8:  # noqa: ASYNC110  what is waited for has no event
                        await asyncio.sleep(0.01)

    monkeypatch.setattr("coldstream.consumer.base.StreamArchive", archive)
    asyncio.run(read())
    assert given == [(1, 100)] * 8


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
