"""A client and a broker with the gateway between them: goodbyes, garbage, backpressure, own requests, ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from rstream import schema
from rstream.encoding import encode_frame

from coldstream.errors import ClosedLinkError, UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import (
    CodeAnswer,
    ExchangeCommandVersionsAnswer,
    MetadataAnswer,
    OffsetAnswer,
    OpenAnswer,
    plain_answer,
)
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    CloseAnswer,
    Credit,
    ExchangeCommandVersions,
    Heartbeat,
    Metadata,
    Open,
    PeerProperties,
    QueryOffset,
    StoreOffset,
    Subscribe,
)
from coldstream.gateway.ports import BrokerLink, ClientLink, Verdict
from coldstream.gateway.proxy import own_requests
from coldstream.gateway.proxy.null_interceptor import NullInterceptor
from coldstream.gateway.proxy.options import ProxyOptions, Upstream
from coldstream.gateway.proxy.server import GatewayServer
from tests.support.gateway import HOST
from tests.support.raw_stream_client import RawStreamClient
from tests.support.stream_broker import FakeBroker, answer, chunk, delivery

LOG = "coldstream.gateway.connection"


class Watcher(NullInterceptor):
    """Keeps the links and what it is told."""

    made: list[Watcher]

    def __init__(self, client: ClientLink, broker: BrokerLink) -> None:
        super().__init__()
        self.client = client
        self.broker = broker
        self.told: list[tuple[str, int]] = []
        self.is_closed = 0
        self.takes: Callable[[str, int, bytes], bool] = lambda side, key, frame: False

    def from_client(self, key: int, frame: bytes) -> bool:
        self.told.append(("client", key))
        return self.takes("client", key, frame)

    def from_broker(self, key: int, frame: bytes) -> bool:
        self.told.append(("broker", key))
        return self.takes("broker", key, frame)

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        self.told.append(("deliver", subscription_id))
        return super().deliver(subscription_id, version, head)

    def closed(self) -> None:
        self.is_closed += 1


class Rig:
    """A broker that says what a test says, a gateway in front of it, and an open client."""

    def __init__(self, broker: FakeBroker, gateway: GatewayServer, figures: GatewayFigures) -> None:
        self.broker = broker
        self.gateway = gateway
        self.figures = figures
        self.watchers: list[Watcher] = []

    @property
    def watcher(self) -> Watcher:
        return self.watchers[-1]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.005)

    async def empty(self) -> None:
        """Wait until no connection is left, and nothing of one."""
        await self.until(lambda: self.gateway.open_connections == 0)
        assert self.figures.connections == 0
        assert all(watcher.is_closed == 1 for watcher in self.watchers)


@asynccontextmanager
async def rig(**options: float) -> AsyncIterator[Rig]:
    figures = GatewayFigures()
    watchers: list[Watcher] = []

    def make(client: ClientLink, broker: BrokerLink) -> Watcher:
        watchers.append(Watcher(client, broker))
        return watchers[-1]

    async with FakeBroker() as broker:
        proxy_options = ProxyOptions(Upstream(((HOST, broker.port),)), **options)  # type: ignore[arg-type]
        async with GatewayServer(proxy_options, make, figures) as gateway:
            around = Rig(broker, gateway, figures)
            around.watchers = watchers
            yield around
        assert gateway.open_connections == figures.connections == 0


async def test_the_client_logs_in_at_the_broker() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open(name="reader")
        assert around.broker.count(schema.SaslAuthenticate) == 1
        assert around.watcher.broker.vhost == "/"
        assert around.figures.connections == around.figures.connections_total == 1


async def test_frames_that_may_be_taken_over_are_told_of_and_pass() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        client.send(Subscribe(5, 1, "orders", None, 10, {}), Credit(1, 2), StoreOffset("me", "orders", 5))
        assert await client.code(Key.SUBSCRIBE) == Code.OK
        await around.broker.until(schema.StoreOffset)
        around.broker.say(delivery(1, chunk(0)))
        assert await client.frame() == delivery(1, chunk(0))
        assert around.watcher.told == [
            ("client", Key.SUBSCRIBE),
            ("client", Key.CREDIT),
            ("client", Key.STORE_OFFSET),
            ("broker", ANSWER | Key.SUBSCRIBE),
            ("deliver", 1),
        ]


async def test_a_frame_that_is_taken_over_goes_no_further() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        watcher = around.watcher

        def answer(side: str, key: int, frame: bytes) -> bool:
            watcher.client.send(plain_answer(Key.SUBSCRIBE, 5, Code.STREAM_DOES_NOT_EXIST))
            return True

        watcher.takes = answer
        client.send(Subscribe(5, 1, "orders", None, 10, {}))
        assert await client.code(Key.SUBSCRIBE) == Code.STREAM_DOES_NOT_EXIST
        assert around.broker.count(schema.Subscribe) == 0


async def test_an_own_request_gets_its_answer_which_the_client_never_sees() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        link = around.watcher.broker
        found = await link.request(lambda number: QueryOffset(number, "me", "orders"), OffsetAnswer)
        assert isinstance(found, OffsetAnswer)
        assert found.offset == 7
        assert found.correlation_id >= 1 << 31
        assert around.watcher.told == []
        client.send(QueryOffset(9, "me", "orders"))
        assert (await client.take(OffsetAnswer)).correlation_id == 9


async def test_a_refusal_of_an_own_request_comes_as_an_answer() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.says[schema.QueryOffset] = lambda asked: [
            plain_answer(Key.QUERY_OFFSET, asked.correlation_id, Code.NO_OFFSET)
        ]
        found = await around.watcher.broker.request(lambda n: QueryOffset(n, "me", "orders"), OffsetAnswer)
        assert type(found) is CodeAnswer
        assert found.code == Code.NO_OFFSET


async def test_an_own_request_without_an_answer_is_given_up_and_a_late_answer_is_nobodys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_requests, "REQUEST_TIMEOUT_S", 0.05)
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.says[schema.QueryOffset] = lambda asked: []
        numbers: list[int] = []

        def make(number: int) -> QueryOffset:
            numbers.append(number)
            return QueryOffset(number, "me", "orders")

        with pytest.raises(UnavailableError, match="does not answer"):
            await around.watcher.broker.request(make, OffsetAnswer)
        around.broker.say(OffsetAnswer(numbers[0], 1, 7).to_bytes(), delivery(1, chunk(0)))
        assert await client.frame() == delivery(1, chunk(0))


async def test_an_own_request_ends_with_the_connection() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.says[schema.QueryOffset] = lambda asked: []
        link = around.watcher.broker
        asking = asyncio.create_task(link.request(lambda n: QueryOffset(n, "me", "orders"), OffsetAnswer))
        await around.broker.until(schema.QueryOffset)
        around.broker.cut()
        with pytest.raises(ClosedLinkError):
            await asking
        with pytest.raises(ClosedLinkError):
            await link.request(lambda n: QueryOffset(n, "me", "orders"), OffsetAnswer)
        assert await client.ended()
        await around.empty()


async def test_the_clients_goodbye_ends_what_is_taken_over_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open(name="reader")
        around.broker.says[schema.Close] = lambda asked: []
        client.send(Close(9, 1, "enough"))
        await around.broker.until(schema.Close)
        assert around.watcher.is_closed == 1
        around.broker.say(CloseAnswer(9, 1).to_bytes())
        assert (await client.take(CloseAnswer)).correlation_id == 9
        around.broker.cut()
        assert await client.ended()
        await around.empty()
    ended = caplog.records[-1]
    assert ended.getMessage() == "connection ended"
    told = vars(ended)
    assert (told["reason"], told["user"], told["vhost"], told["client_name"]) == (
        "the client closed it: enough",
        "guest",
        "/",
        "reader",
    )
    assert told["bytes_from_client"] > 0 < told["bytes_to_client"]
    assert told["frames_from_client"] == 6
    assert around.figures.broker_failures_total == 0


async def test_the_brokers_goodbye_reaches_the_client_and_its_answer_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.say(Close(1, Code.OK, "maintenance").to_bytes())
        assert (await client.take(Close)).reason == "maintenance"
        client.send(CloseAnswer(1, 1))
        await around.broker.until(schema.CloseResponse)
        around.broker.cut()
        assert await client.ended()
        await around.empty()
    assert vars(caplog.records[-1])["reason"] == "the broker closed it: maintenance"


async def test_a_broker_that_goes_away_ends_the_client() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.cut()
        assert await client.ended()
        await around.empty()
        assert around.figures.broker_failures_total == 1


async def test_what_a_client_sent_before_it_went_away_reaches_the_broker() -> None:
    async with rig() as around:
        async with RawStreamClient(around.gateway.place) as client:
            await client.open()
            client.send(*(StoreOffset("me", "orders", offset) for offset in range(1000)))
            await client.writer.drain()
            client.writer.close()
            await client.writer.wait_closed()
        await around.broker.until(schema.StoreOffset, 1000)
        await around.empty()


async def test_a_drain_says_goodbye_as_a_broker_does_and_waits_for_the_answer() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        place = around.gateway.place
        draining = asyncio.create_task(around.gateway.drain(20))
        goodbye = await client.take(Close)
        assert goodbye.code == Code.OK
        await around.broker.until(schema.Close)
        assert around.gateway.open_connections == 1
        client.send(Heartbeat(), CloseAnswer(goodbye.correlation_id, 1))
        assert await client.ended()
        await draining
        await around.empty()
        with pytest.raises(OSError):  # noqa: PT011  refused
            await asyncio.open_connection(*place)


async def test_a_drain_cuts_off_clients_that_do_not_answer() -> None:
    async with rig(goodbye_timeout_s=0.05) as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        await around.gateway.drain(20)
        assert around.gateway.open_connections == 0
        assert (await client.take(Close)).code == Code.OK
        assert await client.ended()


async def test_so_many_of_the_connections_are_told_to_go_each_once() -> None:
    async with rig() as around:
        clients = [RawStreamClient(around.gateway.place) for _ in range(4)]
        for client in clients:
            await client.__aenter__()
            await client.open()
        around.gateway.close_some(1)
        around.gateway.close_some(1)
        await around.broker.until(schema.Close, 2)
        await asyncio.sleep(0.05)
        assert around.broker.count(schema.Close) == 2
        for client in clients:
            await client.__aexit__(None, None, None)
        await around.empty()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        bytes(64),
        b"\xff" * 64,
        (8193).to_bytes(4) + b"\x00\x11\x00\x01" + bytes(2000),
        (3).to_bytes(4) + bytes(3),
    ],
)
async def test_garbage_before_the_vhost_is_open_ends_the_connection(garbage: bytes) -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        client.send(garbage)
        is_too_large = int.from_bytes(garbage[:4]) > 8192
        assert (await client.take(Close)).code == (Code.FRAME_TOO_LARGE if is_too_large else Code.UNKNOWN_FRAME)
        assert await client.ended()
        await around.empty()


async def test_a_frame_of_8_kib_passes_before_the_vhost_is_open() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        filler = 8192 - (len(PeerProperties(1, {"a": ""}).to_bytes()) - 4)
        client.send(PeerProperties(1, {"a": "x" * filler}))
        assert await client.code(Key.PEER_PROPERTIES) == 1


@pytest.mark.parametrize("garbage", [bytes(64), b"\xff" * 64, (65_537).to_bytes(4) + b"\x00\x07\x00\x01"])
async def test_garbage_after_the_vhost_is_open_ends_the_connection(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        client.send(StoreOffset("me", "orders", 1), garbage)
        is_too_large = int.from_bytes(garbage[:4]) > 65_536
        assert (await client.take(Close)).code == (Code.FRAME_TOO_LARGE if is_too_large else Code.UNKNOWN_FRAME)
        assert await client.ended()
        await around.broker.until(schema.StoreOffset)  # what came before it counts
        await around.broker.until(schema.Close)
        await around.empty()
    assert vars(caplog.records[-1])["reason"].startswith("the client broke the protocol: a frame of ")


async def test_a_version_that_nobody_offered_ends_the_connection() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        frame = bytearray(Credit(1, 5).to_bytes())
        frame[7] = 2
        client.send(bytes(frame))
        assert "CREDIT of version 2" in (await client.take(Close)).reason


async def test_a_broker_that_the_gateway_knows_is_told_all_the_keys_that_a_client_names() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        version = schema.Property("version", "4.3.6")
        around.broker.says[schema.PeerProperties] = lambda asked: [
            answer(schema.PeerPropertiesResponse(asked.correlation_id, 1, [version]))
        ]
        await client.open()
        named = ((8, 1, 3), (99, 1, 1), (7, 1, 2), (0x8008, 1, 2))
        client.send(ExchangeCommandVersions(6, named))
        await around.broker.until(schema.ExchangeCommandVersionRequest)
        asked = around.broker.taken[-1]
        assert isinstance(asked, schema.ExchangeCommandVersionRequest)
        told = tuple((each.key_command, each.min_version, each.max_version) for each in asked.command_versions)
        assert told == named


async def test_half_a_frame_and_then_the_end_leave_nothing() -> None:
    frame = Subscribe(5, 1, "orders", None, 10, {}).to_bytes()
    async with rig() as around:
        for size in range(1, len(frame)):
            async with RawStreamClient(around.gateway.place) as client:
                await client.open()
                client.send(frame[:size])
                await client.writer.drain()
        await around.empty()
        assert around.broker.count(schema.Subscribe) == 0


async def test_garbage_from_the_broker_ends_the_connection() -> None:
    async with rig(goodbye_timeout_s=0.5) as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.say(delivery(1, chunk(0)), bytes(16))
        assert await client.frame() == delivery(1, chunk(0))
        assert (await client.take(Close)).code == Code.UNKNOWN_FRAME
        assert await client.ended()
        await around.empty()
        assert around.figures.broker_failures_total == 1


async def test_a_defect_of_whoever_takes_over_ends_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fail(side: str, key: int, frame: bytes) -> bool:
        raise ValueError(f"{side} {key} {len(frame)}")

    async with rig() as around, RawStreamClient(around.gateway.place) as one:
        await one.open()
        around.watcher.takes = fail
        async with RawStreamClient(around.gateway.place) as other:
            await other.open()
            one.send(Credit(1, 5))
            assert (await one.take(Close)).code == Code.INTERNAL_ERROR
            other.send(Credit(1, 5))
            await around.broker.until(schema.Credit)
    assert "a frame could not be dealt with" in caplog.text


async def test_a_client_that_opens_nothing_is_ended() -> None:
    async with rig(handshake_timeout_s=0.05) as around, RawStreamClient(around.gateway.place) as client:
        client.send(b"\x00")
        assert await client.ended()
        await around.empty()


async def test_a_connection_too_many_is_closed() -> None:
    async with rig(max_connections=1) as around, RawStreamClient(around.gateway.place) as first:
        await first.open()
        async with RawStreamClient(around.gateway.place) as second:
            assert await second.ended()
        assert around.figures.refused_connections_total == 1
        assert around.gateway.open_connections == 1


async def test_a_client_whose_broker_cannot_be_reached_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as around:
        await around.broker.__aexit__(None, None, None)
        async with RawStreamClient(around.gateway.place) as client:
            assert await client.ended()
        await around.empty()
        assert around.figures.broker_failures_total == 1
    assert "no broker" in caplog.text


async def test_addresses_are_the_gateways() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        here = around.gateway.place
        around.broker.says[schema.Open] = lambda asked: [
            OpenAnswer(asked.correlation_id, 1, {"advertised_host": "rabbit", "advertised_port": "5552"}).to_bytes()
        ]
        around.broker.says[schema.Metadata] = lambda asked: [
            MetadataAnswer(asked.correlation_id, ((0, "rabbit", 5552),), (("orders", 1, 0, ()),)).to_bytes()
        ]
        client.send(Open(4, "/"))
        opened = await client.take(OpenAnswer)
        assert opened.properties == {"advertised_host": here[0], "advertised_port": str(here[1])}
        client.send(Metadata(5, ("orders",)))
        assert (await client.take(MetadataAnswer)).brokers == ((0, *here),)


async def test_metadata_larger_than_what_is_read_at_once_is_rewritten() -> None:
    streams = tuple((f"stream-{number:06}", 1, 0, ()) for number in range(30_000))
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker.says[schema.Metadata] = lambda asked: [
            MetadataAnswer(asked.correlation_id, ((0, "rabbit", 5552),), streams).to_bytes()
        ]
        client.send(Metadata(5, ("orders",)))
        found = await client.take(MetadataAnswer)
        assert found.streams == streams
        assert found.brokers == ((0, *around.gateway.place),)


async def test_both_sides_are_told_only_of_what_the_gateway_knows() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        told: list[tuple[int, int, int]] = []

        def versions(asked: schema.Frame) -> list[bytes]:
            assert isinstance(asked, schema.ExchangeCommandVersionRequest)
            told.extend((each.key_command, each.min_version, each.max_version) for each in asked.command_versions)
            theirs = ((7, 1, 2), (8, 1, 2), (9, 1, 2), (77, 1, 1))
            return [ExchangeCommandVersionsAnswer(asked.correlation_id, 1, theirs).to_bytes()]

        around.broker.says[schema.ExchangeCommandVersionRequest] = versions
        client.send(ExchangeCommandVersions(6, ((8, 1, 3), (99, 1, 1), (7, 1, 2))))
        found = await client.take(ExchangeCommandVersionsAnswer)
        assert found.commands == ((7, 1, 1), (8, 1, 2), (9, 1, 1))
        assert told == [(8, 1, 2), (7, 1, 1)]
        assert around.watcher.broker.supports(Key.DELIVER, 2)
        assert not around.watcher.broker.supports(Key.STREAM_STATS)


async def test_a_client_that_takes_nothing_holds_the_broker_up_and_little_memory() -> None:
    big = delivery(1, chunk(0, *(b"x" * 1000 for _ in range(900))))
    async with rig() as around, RawStreamClient(around.gateway.place, limit=1 << 16) as client:
        await client.open()
        writer = around.broker._writers[0]
        watcher = around.watcher

        async def flood() -> None:
            for _ in range(100):
                writer.write(big)
                await writer.drain()

        flooding = asyncio.create_task(flood())
        await around.until(lambda: watcher.client.is_full)
        await asyncio.sleep(0.2)
        assert not flooding.done()
        side = next(iter(around.gateway._connections)).client
        assert side.transport.get_write_buffer_size() < 1 << 20
        waiting = asyncio.create_task(watcher.client.drained())
        for _ in range(100):
            assert await client.frame() == big
        await flooding
        await waiting


async def test_a_broker_that_takes_nothing_holds_the_client_up_and_little_memory() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        around.broker._writers[0].transport.pause_reading()  # type: ignore[attr-defined]
        frame = b"\x00\x02\x00\x01\x05" + bytes(1 << 20)
        client.send((len(frame).to_bytes(4) + frame) * 40)
        connection = next(iter(around.gateway._connections))
        await around.until(lambda: connection._broker is not None and connection._broker.outlet.is_paused)
        await asyncio.sleep(0.2)
        assert connection._broker is not None
        assert connection._broker.transport.get_write_buffer_size() < 1 << 20
        assert client.writer.transport.get_write_buffer_size() > 0


async def test_what_a_connection_had_is_freed_when_it_ends() -> None:
    async with rig() as around:
        gc.collect()
        gc.disable()
        try:
            async with RawStreamClient(around.gateway.place) as client:
                await client.open()
                client.send(Subscribe(5, 1, "orders", None, 10, {}))
                await client.frame()
                watcher = weakref.ref(around.watchers.pop())
                client.send(Close(9, 1, "enough"))
                await client.frame()
            await around.until(lambda: around.gateway.open_connections == 0)
            await around.until(lambda: watcher() is None)
        finally:
            gc.enable()


async def test_heartbeats_pass_both_ways() -> None:
    async with rig() as around, RawStreamClient(around.gateway.place) as client:
        await client.open()
        client.send(Heartbeat())
        await around.broker.until(schema.Heartbeat)
        around.broker.say(encode_frame(schema.Heartbeat()))
        async with asyncio.timeout(10):
            assert await client.reader.readexactly(8) == Heartbeat().to_bytes()
