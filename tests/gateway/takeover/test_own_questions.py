"""What the gateway asks a real broker by itself: only what it knows, whether a client has named keys or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import CodeAnswer, ExchangeCommandVersionsAnswer
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import (
    ExchangeCommandVersions,
    QueryOffset,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.ports import BrokerLink, ClientLink
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import Takeover
from coldstream.manifest.spec import FIRST
from tests.gateway.faults.disk_archive import DiskArchive
from tests.support.broker import Broker
from tests.support.gateway import GatewayThread
from tests.support.gateway_scene import ChunkClient
from tests.support.raw_stream_client import RawStreamClient
from tests.support.releases import HOST_RELEASE

pytestmark = pytest.mark.broker

SEGMENT_BYTES = 100_000
OF_3_10 = range(1, 26)
"""The keys of RabbitMQ 3.10, which has none of those that came with 3.11."""

_NAMES = itertools.count()


class NotingLink:
    """A link to the broker that notes the keys of what the gateway sends by itself."""

    def __init__(self, link: BrokerLink, keys: set[int]) -> None:
        self._link = link
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def send(self, frame: bytes) -> None:
        self._keys.add(key_of(frame[4:])[0])
        self._link.send(frame)

    async def request(self, make: Callable[[int], StreamFrame], answer: Any) -> Any:
        self._keys.add(int(make(0).KEY))
        return await self._link.request(make, answer)


async def known_keys(broker: Broker) -> set[int]:
    """Return the keys of requests that a broker knows."""
    if broker.release == HOST_RELEASE:
        return set(OF_3_10)
    async with RawStreamClient((broker.host, broker.stream_port)) as client:
        await client.open()
        client.send(ExchangeCommandVersions(9, ()))
        return {key for key, _, _ in (await client.take(ExchangeCommandVersionsAnswer)).commands}


@pytest.fixture
def scene(any_broker: Broker) -> tuple[str, MemoryHistory]:
    """The name of a stream whose first segments the broker has deleted, and an archive that has them."""
    name, archive, history = f"own questions {next(_NAMES)}", DiskArchive(), MemoryHistory()
    with any_broker.connect() as streams:
        streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=2 * SEGMENT_BYTES)
        directory = any_broker.stream_directory(name)
        for _ in range(8):
            streams.publish(name, [bytes(500)] * 100)
            archive.copy(directory)
    history.put("/", name, archive.chunks[:-1])
    return name, history


@pytest.mark.parametrize("client_is", ["silent", "naming"])
async def test_a_broker_is_asked_only_what_it_knows(
    any_broker: Broker, scene: tuple[str, MemoryHistory], client_is: str
) -> None:
    if client_is == "naming" and any_broker.release == HOST_RELEASE:
        pytest.skip("RabbitMQ 3.10 ends the connection of a client that names keys")
    stream, history = scene
    asked: set[int] = set()
    figures = GatewayFigures()

    def make(client: ClientLink, broker: BrokerLink) -> Takeover:
        return Takeover(client, NotingLink(broker, asked), history, TakeoverOptions(), figures)

    with GatewayThread((any_broker.host, any_broker.stream_port), make=make) as gateway:
        async with ChunkClient((gateway.host, gateway.port)) as client:
            client.prepare()
            await client.open()
            if client_is == "naming":
                await client.asked(ExchangeCommandVersions(9, ((int(Key.DELIVER), 1, 2),)))
            # Before it has subscribed: so the gateway has to ask whether it may read.
            client.send(StoreOffset("reader", stream, 5))
            answer = await client.asked(Subscribe(10, 1, stream, FIRST, 5, {}))
            assert CodeAnswer.from_body(answer[4:]).code == Code.OK
            await client.until_offset(1, 800)
            assert client.headers(1)[0].chunk_id == 0
            await client.asked(QueryOffset(11, "nobody", stream))
            if any_broker.release != HOST_RELEASE:
                await client.asked(StreamStats(12, stream))
            await client.asked(Unsubscribe(13, 1))
    assert figures.takeovers_total == 1
    assert asked <= await known_keys(any_broker)
    assert (Key.STREAM_STATS in asked) == (any_broker.release != HOST_RELEASE)
    assert {Key.SUBSCRIBE, Key.QUERY_OFFSET} <= asked
