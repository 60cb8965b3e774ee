"""How connections begin, and what becomes of those that do not begin as they should: by frames."""

from __future__ import annotations

import asyncio
import struct

import pytest

from coldstream.gateway.alone.open_frames import MAX_QUESTIONS
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.permissions import StreamPermissions
from coldstream.gateway.frames.answers import (
    ExchangeCommandVersionsAnswer,
    OpenAnswer,
    PeerPropertiesAnswer,
    SaslHandshakeAnswer,
)
from coldstream.gateway.frames.keys import VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    CloseAnswer,
    ExchangeCommandVersions,
    Heartbeat,
    Metadata,
    Open,
    PeerProperties,
    SaslAuthenticate,
    SaslHandshake,
    Tune,
)
from coldstream.streams import DirectArchive
from tests.support.alone import DictPasswords, RawClient, running_alone

PASSWORDS = DictPasswords(guest="guest", ana="s3cret")


@pytest.fixture
def archive() -> DirectArchive:
    return DirectArchive.in_memory()


async def test_a_client_learns_what_it_asks_before_it_reads(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, RawClient.connected(alone.port) as client:
        peer = await client.ask(lambda number: PeerProperties(number, {}), PeerPropertiesAnswer)
        assert isinstance(peer, PeerPropertiesAnswer)
        assert tuple(map(int, peer.properties["version"].split("."))) >= (3, 13, 0)
        assert "RabbitMQ" in peer.properties["product"]
        sasl = await client.ask(SaslHandshake, SaslHandshakeAnswer)
        assert isinstance(sasl, SaslHandshakeAnswer)
        assert sasl.mechanisms == ("PLAIN",)
        assert await client.authenticate("guest", "guest") == Code.OK
        tune = Tune.from_body(await client.next_of(Key.TUNE))
        assert tune == Tune(1 << 20, 60)
        client.send(tune.to_bytes())
        opened = await client.ask(lambda number: Open(number, "/"), OpenAnswer)
        assert isinstance(opened, OpenAnswer)
        assert opened.properties == {"advertised_host": "127.0.0.1", "advertised_port": str(alone.port)}
        commands = await client.ask(lambda number: ExchangeCommandVersions(number, ()), ExchangeCommandVersionsAnswer)
        assert isinstance(commands, ExchangeCommandVersionsAnswer)
        # rstream looks a key up by its place.
        assert [key for key, _, _ in commands.commands] == list(range(1, len(VERSIONS) + 1))
        client.send(Close(9, 1, "bye").to_bytes())
        assert CloseAnswer.from_body(await client.next_of(Key.CLOSE | 0x8000)) == CloseAnswer(9, Code.OK)
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("mechanism", "data", "code"),
    [
        ("EXTERNAL", b"", Code.MECHANISM_NOT_SUPPORTED),
        ("PLAIN", None, Code.SASL_ERROR),
        ("PLAIN", b"guest", Code.SASL_ERROR),
        ("PLAIN", b"\0\0guest", Code.SASL_ERROR),
        ("PLAIN", b"other\0guest\0guest", Code.SASL_ERROR),
        ("PLAIN", b"\0gu\xffest\0guest", Code.SASL_ERROR),
        ("PLAIN", b"\0guest\0wrong", Code.AUTHENTICATION_FAILURE),
        ("PLAIN", b"\0nobody\0guest", Code.AUTHENTICATION_FAILURE),
    ],
)
async def test_a_login_that_is_not_right_is_refused_and_the_connection_ends(
    archive: DirectArchive, mechanism: str, data: bytes | None, code: Code
) -> None:
    async with running_alone(archive, passwords=PASSWORDS) as alone, RawClient.connected(alone.port) as client:
        await client.greet()
        assert await client.code(lambda number: SaslAuthenticate(number, mechanism, data)) == code
        assert await client.is_closed()


async def test_a_vhost_without_any_right_is_not_opened(archive: DirectArchive) -> None:
    rules = StreamPermissions.parse(["guest shop* * r"])
    async with running_alone(archive, permissions=rules) as alone:
        async with alone.client(vhost="shop-1"):
            pass
        async with RawClient.connected(alone.port) as client:
            await client.greet()
            assert await client.authenticate("guest", "guest") == Code.OK
            client.send(Tune(0, 0).to_bytes())
            assert await client.code(lambda number: Open(number, "/")) == Code.VHOST_ACCESS_FAILURE
            assert await client.is_closed()


async def test_an_open_connection_renews_its_password_and_no_other_user(archive: DirectArchive) -> None:
    async with running_alone(archive, passwords=PASSWORDS) as alone, alone.client() as client:
        assert await client.authenticate("guest", "guest") == Code.OK
        assert await client.authenticate("ana", "s3cret") == Code.AUTHENTICATION_FAILURE
        assert await client.is_closed()


async def test_nobody_may_ask_before_the_login(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone:
        for frame in (Metadata(1, ("orders",)), Open(1, "/"), Tune(0, 0)):
            async with RawClient.connected(alone.port) as client:
                client.send(frame.to_bytes())
                assert await client.is_closed()


async def test_who_does_not_log_in_in_time_is_let_go(archive: DirectArchive) -> None:
    options = AloneOptions(login_within_s=1.0)
    async with running_alone(archive, options=options) as alone, RawClient.connected(alone.port) as client:
        await client.greet()
        assert await client.is_closed()
        assert alone.server.open_connections == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 8193),
        struct.pack(">IHH", 4, 999, 1),
        struct.pack(">I", 0),
        struct.pack(">IB", 1, 1),
        struct.pack(">IHHIi", 12, Key.PEER_PROPERTIES, 1, 1, -5),
        struct.pack(">IHHIi", 12, Key.PEER_PROPERTIES, 1, 1, 2_000_000_000),
    ],
)
async def test_garbage_before_the_login_ends_the_connection(archive: DirectArchive, sent: bytes) -> None:
    async with running_alone(archive) as alone, RawClient.connected(alone.port) as client:
        client.send(sent)
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (struct.pack(">IHH", 4, 999, 1), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHI", 8, Key.SUBSCRIBE, 9, 1), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHI", 8, Key.SUBSCRIBE, 1, 1), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHB", 5, Key.PUBLISH, 1, 1), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHBi", 9, Key.PUBLISH, 1, 1, 1 << 30), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHBi", 9, Key.PUBLISH, 1, 1, -1), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHBiQI", 21, Key.PUBLISH, 1, 1, 1, 1, 100), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHB", 5, Key.CREDIT, 1, 1), Code.UNKNOWN_FRAME),
        (struct.pack(">IHHIHh", 12, 0x8000 | Key.CONSUMER_UPDATE, 1, 1, 1, 77), Code.UNKNOWN_FRAME),
        (struct.pack(">I", (1 << 20) + 1), Code.FRAME_TOO_LARGE),
        (struct.pack(">I", 0), Code.UNKNOWN_FRAME),
    ],
)
async def test_garbage_on_an_open_connection_ends_it_with_a_reason(
    archive: DirectArchive, sent: bytes, code: Code
) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        client.send(sent)
        closed = Close.from_body(await client.next_of(Key.CLOSE))
        assert closed.code == code
        client.send(CloseAnswer(closed.correlation_id, Code.OK).to_bytes())
        assert await client.is_closed()


async def test_every_cut_of_a_stream_of_frames_reads_alike(archive: DirectArchive) -> None:
    frames = b"".join(
        (
            PeerProperties(1, {"product": "test"}).to_bytes(),
            SaslHandshake(2).to_bytes(),
            Heartbeat().to_bytes(),
            SaslAuthenticate(3, "PLAIN", b"\0guest\0guest").to_bytes(),
        )
    )
    async with running_alone(archive) as alone:
        for cut in range(1, len(frames), 7):
            async with RawClient.connected(alone.port) as client:
                client.send(frames[:cut])
                await asyncio.sleep(0)
                client.send(frames[cut:])
                assert await client.next_of(Key.TUNE)


async def test_frames_are_as_large_as_was_agreed(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, RawClient.connected(alone.port) as client:
        await client.greet()
        await client.authenticate("guest", "guest")
        client.send(Tune(10_000, 0).to_bytes())
        await client.ask(lambda number: Open(number, "/"), OpenAnswer)
        client.send(struct.pack(">I", 10_001))
        assert Close.from_body(await client.next_of(Key.CLOSE)).code == Code.FRAME_TOO_LARGE


async def test_heartbeats_go_both_ways_and_a_silent_client_is_let_go(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, RawClient.connected(alone.port) as client:
        await client.log_in(heartbeat_s=1)
        for _ in range(4):
            await client.next_of(Key.HEARTBEAT)
            client.send(Heartbeat().to_bytes())
        assert await client.is_closed()  # no heartbeat from here on


async def test_an_idle_client_without_heartbeats_is_let_go(archive: DirectArchive) -> None:
    options = AloneOptions(idle_s=0.5)
    async with running_alone(archive, options=options) as alone, alone.client() as client:
        assert Close.from_body(await client.next_of(Key.CLOSE)).reason == "idle"


async def test_there_are_no_more_connections_than_are_allowed(archive: DirectArchive) -> None:
    options = AloneOptions(max_connections=2)
    async with running_alone(archive, options=options) as alone, alone.client(), alone.client():
        async with RawClient.connected(alone.port) as third:
            assert await third.is_closed()
        assert alone.parts.figures.refused_connections_total == 1


async def test_a_flood_of_questions_is_not_read_and_every_one_is_answered(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        for number in range(3000):
            client.send(Metadata(number, ("a", "b", "c")).to_bytes())
        numbers = {int.from_bytes((await client.next_of(Key.METADATA | 0x8000))[4:8], "big") for _ in range(3000)}
        assert numbers == set(range(3000))


async def test_who_reads_no_answers_is_not_read_from(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        client.writer.transport.pause_reading()
        names = tuple(f"stream-{number:04}" for number in range(500))
        frame = Metadata(1, names).to_bytes()
        for _ in range(3000):  # some 10 MB each way
            client.send(frame)
        await asyncio.sleep(1.5)
        (connection,) = alone.server._connections
        assert connection.client.transport.get_write_buffer_size() < 3 << 20
        assert len(connection._frames.queue) <= MAX_QUESTIONS
