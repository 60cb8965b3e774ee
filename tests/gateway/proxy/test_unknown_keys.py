"""Keys and versions that a real broker does not know: what becomes of them is the same without and through the gateway.

RabbitMQ 3.10 knows no ExchangeCommandVersions, and answers it as every unknown frame: with a Close. Later ones end the
connection without a word if a client names a key there that they do not know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import ExchangeCommandVersionsAnswer
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    Credit,
    ExchangeCommandVersions,
    QueryOffset,
    ResolveOffsetSpec,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.proxy.versions import NEWEST_RELEASE, Commands
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import takeover_maker
from coldstream.live.subscription import Place
from coldstream.manifest.spec import FIRST
from tests.support.broker import Broker
from tests.support.gateway import GatewayThread
from tests.support.raw_stream_client import RawStreamClient
from tests.support.releases import HOST_RELEASE

pytestmark = pytest.mark.broker

_NAMES = itertools.count()
ENDED = b""
UNKNOWN = 99

NAMED: dict[str, Commands] = {
    "nothing": (),
    "all that the gateway knows": tuple((int(key), *pair) for key, pair in VERSIONS.items()),
    "super streams": ((29, 1, 1), (30, 1, 1)),
    "a key since 4.3": ((31, 1, 1), (8, 1, 2)),
    "a key that nobody knows": ((8, 1, 2), (UNKNOWN, 1, 1)),
    "no key": ((0, 1, 1),),
    "the key of an answer": ((ANSWER | 8, 1, 2),),
    "chunks of version 1": ((8, 1, 1),),
    "chunks of version 2": ((8, 2, 2),),
    "chunks of versions up to 3": ((8, 1, 3),),
    "chunks of version 3": ((8, 3, 3),),
    "chunks of no version": ((8, 2, 1),),
    "chunks twice": ((8, 1, 2), (8, 1, 1)),
    "byte credits": ((7, 1, 2), (9, 1, 2)),
}


@pytest.fixture(scope="module")
def stream(any_broker: Broker) -> str:
    name = f"unknown keys {next(_NAMES)} {any_broker.release.version}"
    with any_broker.connect() as streams:
        streams.create_stream(name, max_segment_bytes=100_000)
        streams.publish(name, [b"a message"])
    return name


@pytest.fixture(scope="module")
def places(any_broker: Broker) -> Iterator[tuple[Place, Place]]:
    """The broker, and a gateway in front of it."""
    broker = any_broker.host, any_broker.stream_port
    make = takeover_maker(MemoryHistory(), TakeoverOptions(), GatewayFigures())
    with GatewayThread(broker, make=make) as gateway:
        yield broker, (gateway.host, gateway.port)


async def _told(place: Place, stream: str, commands: Commands) -> list[bytes]:
    """Return what a client is answered that names such keys and subscribes, and the head of what it is delivered."""
    async with RawStreamClient(place) as client:
        await client.open()
        client.send(ExchangeCommandVersions(9, commands))
        frames = [await client.frame()]
        if frames[0][4:6] == ExchangeCommandVersionsAnswer.KEY.to_bytes(2):
            client.send(Subscribe(10, 1, stream, FIRST, 1, {}))
            frames += [await client.frame(), (await client.frame())[:9]]
        return frames


@pytest.mark.parametrize("named", NAMED)
async def test_a_client_that_names_keys_is_answered_as_without_the_gateway(
    any_broker: Broker, stream: str, places: tuple[Place, Place], named: str
) -> None:
    direct, through = [await _told(place, stream, NAMED[named]) for place in places]
    assert through == direct
    if any_broker.release == HOST_RELEASE:
        assert Close.from_body(direct[0][4:]).code == Code.UNKNOWN_FRAME
    elif named == "a key that nobody knows":
        assert direct == [ENDED]
    elif named == "nothing":
        # The releases whose lists pass as they are know nothing that the gateway does not know.
        known = ExchangeCommandVersionsAnswer.from_body(direct[0][4:]).commands
        ours = {(int(key), *pair) for key, pair in VERSIONS.items()}
        assert {(key, 1, greatest) for key, _, greatest in known} <= ours
        assert tuple(map(int, any_broker.release.version.split("."))) <= NEWEST_RELEASE


FRAMES: tuple[StreamFrame, ...] = (
    Subscribe(10, 1, "nobody has it", FIRST, 1, {}),
    Unsubscribe(10, 1),
    Credit(1, 1),
    QueryOffset(10, "reader", "nobody has it"),
    StoreOffset("reader", "nobody has it", 1),
    StreamStats(10, "nobody has it"),
    ResolveOffsetSpec(10, "nobody has it", FIRST, {}),
    ExchangeCommandVersions(10, ((8, 1, 2),)),
)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: Key(frame.KEY).name.lower())
async def test_a_request_of_another_version_is_answered_as_without_the_gateway(
    places: tuple[Place, Place], frame: StreamFrame, version: int
) -> None:
    encoded = bytearray(frame.to_bytes())
    encoded[6:8] = version.to_bytes(2)
    told = [await _first_answer(place, bytes(encoded)) for place in places]
    assert told[0] == told[1]
    assert Close.from_body(told[0][4:]).code == Code.UNKNOWN_FRAME


@pytest.mark.parametrize("frame", [StreamStats(10, "nobody has it"), ResolveOffsetSpec(10, "nobody has it", FIRST, {})])
async def test_a_request_that_only_later_brokers_know_is_answered_as_without_the_gateway(
    any_broker: Broker, places: tuple[Place, Place], frame: StreamFrame
) -> None:
    told = [await _first_answer(place, frame.to_bytes()) for place in places]
    assert told[0] == told[1]
    is_known = any_broker.release.version == "4.3" or (
        frame.KEY == Key.STREAM_STATS and any_broker.release != HOST_RELEASE
    )
    assert key_of(told[0][4:])[0] == (ANSWER | frame.KEY if is_known else Key.CLOSE)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\x09\0\x01", b"\xff\xff\xff\xff"], ids=["none", "half", "minus one"])
async def test_a_list_of_keys_that_cannot_be_read_is_answered_as_without_the_gateway(
    places: tuple[Place, Place], body: bytes
) -> None:
    frame = int(Key.EXCHANGE_COMMAND_VERSIONS).to_bytes(2) + b"\0\x01" + (10).to_bytes(4) + body
    told = [await _first_answer(place, len(frame).to_bytes(4) + frame) for place in places]
    assert told[0] == told[1]


async def _first_answer(place: Place, frame: bytes) -> bytes:
    async with RawStreamClient(place) as client:
        await client.open()
        client.send(frame)
        return await client.frame()
