"""Connections, with a broker that is broken, slow, or none: nothing hangs, nothing grows without bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from rstream import schema
from rstream.encoding import encode_frame

from coldstream.errors import AccessDeniedError, ColdstreamError, StreamNotFoundError, UnavailableError
from coldstream.live import wire as wire_module
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.wire import Wire
from coldstream.manifest.spec import FIRST
from coldstream.units import Offset
from tests.support.stream_broker import HOST, OK, FakeBroker, answer, chunk, delivery


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as running:
        yield running


async def test_a_frame_that_would_fill_the_memory_is_not_waited_for(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "MAX_FRAME_BYTES", 1000, raising=False)
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        fake.say((1001).to_bytes(4) + bytes(500))
        async with asyncio.timeout(1):
            with pytest.raises(UnavailableError, match="a frame of 1001 bytes"):
                await anext(chunks)


async def test_a_frame_that_is_long_on_its_way_is_a_sign_of_life(fake: FakeBroker) -> None:
    wire = await Wire.open(HOST, fake.port, None)
    wire.start_heartbeats(0.04)
    frame = delivery(0, chunk(0, b"x" * 100))
    for at in range(0, len(frame), 10):
        fake.say(frame[at : at + 10])
        await asyncio.sleep(0.02)
    assert not wire.is_lost
    await wire.close()


async def test_a_broker_that_does_not_say_why_a_subscription_ended_is_unavailable(fake: FakeBroker) -> None:
    fake.says[schema.Metadata] = lambda asked: [answer(schema.MetadataResponse(asked.correlation_id, [], []))]
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        fake.say(encode_frame(schema.MetadataUpdate(schema.MetadataInfo(6, "s"))))
        with pytest.raises(UnavailableError, match="'s'"):
            await anext(chunks)


async def test_more_chunks_than_there_were_credits_for_end_the_subscription(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST, credits=2) as chunks:
        fake.say(*(delivery(0, chunk(at)) for at in range(100)))
        await live.query_offset("s", "me")
        assert chunks.waiting <= 3
        assert [(await anext(chunks)).header.chunk_id for _ in range(2)] == [0, 1]
        with pytest.raises(UnavailableError, match="more chunks"):
            await anext(chunks)


async def test_a_stream_that_two_keys_lead_to_is_one_partition(fake: FakeBroker) -> None:
    fake.says[schema.SuperStreamPartitions] = lambda asked: [
        answer(schema.SuperStreamPartitionsResponse(asked.correlation_id, OK, ["p-0", "p-1", "p-0"]))
    ]
    async with LiveConnection(fake.address, "/") as live:
        assert await live.partitions("p") == ("p-0", "p-1")


async def test_a_broker_that_takes_nothing_any_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "REQUEST_TIMEOUT_S", 0.05)
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.transport.abort()

    async with await asyncio.start_server(serve, HOST, 0, limit=1) as server:
        wire = await Wire.open(HOST, server.sockets[0].getsockname()[1], None)
        names = [wire_module.WireText("x" * 30_000)] * 30
        with pytest.raises(UnavailableError, match="does not take what is sent to it") as raised:
            await asyncio.gather(*(wire.send(schema.Metadata(number, streams=names)) for number in range(100)))
        assert isinstance(raised.value.__cause__, TimeoutError)
        assert wire.is_lost
        done.set()
        await wire.close()


async def test_what_is_said_of_a_lost_connection_is_what_happened_first(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live:
        fake.say(encode_frame(schema.Close(1, 1, "shutting down")))
        with pytest.raises(UnavailableError):
            await live.query_offset("s", "me")
    with pytest.raises(UnavailableError, match="shutting down"):
        await live.query_offset("s", "me")


async def test_an_answer_that_comes_twice_hurts_nobody(fake: FakeBroker) -> None:
    fake.says[schema.QueryOffset] = lambda asked: [answer(schema.QueryOffsetResponse(asked.correlation_id, OK, 7))] * 2
    async with LiveConnection(fake.address, "/") as live:
        assert [await live.query_offset("s", "me") for _ in range(3)] == [7, 7, 7]
        assert not live._opened().wire._waiting


async def test_partitions_are_taken_from_a_frame_that_is_not_marked_as_an_answer(fake: FakeBroker) -> None:
    fake.says[schema.SuperStreamPartitions] = lambda asked: [
        encode_frame(schema.SuperStreamPartitionsResponse(asked.correlation_id, OK, ["p-0"]))
    ]
    async with LiveConnection(fake.address, "/") as live:
        assert await live.partitions("p") == ("p-0",)


async def test_a_super_stream_of_no_partitions_is_not_found(fake: FakeBroker) -> None:
    fake.says[schema.SuperStreamPartitions] = lambda asked: [
        answer(schema.SuperStreamPartitionsResponse(asked.correlation_id, OK, []))
    ]
    async with LiveConnection(fake.address, "/") as live:
        with pytest.raises(StreamNotFoundError, match="'p'"):
            await live.partitions("p")


async def refused(address: BrokerAddress) -> ColdstreamError:
    with pytest.raises(ColdstreamError) as raised:
        async with LiveConnection(address, "/"):
            pass
    return raised.value


async def test_a_broker_that_refuses_is_left_without_a_trace(fake: FakeBroker) -> None:
    fake.says[schema.Open] = lambda asked: [answer(schema.OpenResponse(asked.correlation_id, 12, []))]
    before = asyncio.all_tasks()
    assert isinstance(await refused(fake.address), AccessDeniedError)
    async with asyncio.timeout(1):
        while asyncio.all_tasks() - before:  # noqa: ASYNC110  the broker's end of the connection
            await asyncio.sleep(0.01)


async def test_a_broker_that_takes_no_passwords_denies_access(fake: FakeBroker) -> None:
    fake.says[schema.SaslHandshake] = lambda asked: [
        answer(schema.SaslHandshakeResponse(asked.correlation_id, OK, ["EXTERNAL"]))
    ]
    assert isinstance(await refused(fake.address), AccessDeniedError)


async def test_a_broker_that_does_not_want_to_be_greeted_is_unavailable(fake: FakeBroker) -> None:
    fake.says[schema.PeerProperties] = lambda asked: [
        answer(schema.PeerPropertiesResponse(asked.correlation_id, 15, []))
    ]
    assert isinstance(await refused(fake.address), UnavailableError)
    assert fake.count(schema.SaslHandshake) == 0


async def test_a_broker_that_does_not_tell_its_mechanisms_is_not_given_the_password(fake: FakeBroker) -> None:
    fake.says[schema.SaslHandshake] = lambda asked: [
        answer(schema.SaslHandshakeResponse(asked.correlation_id, 15, ["PLAIN"]))
    ]
    assert isinstance(await refused(fake.address), UnavailableError)
    assert fake.count(schema.SaslAuthenticate) == 0


@pytest.mark.parametrize(
    ("offered", "taken"),
    [((0, 0), (1 << 20, 10)), ((1 << 30, 60), (1 << 30, 10)), ((4096, 5), (4096, 5))],
)
async def test_no_more_than_was_offered_is_agreed_on_and_no_offer_is_none(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, offered: tuple[int, int], taken: tuple[int, int]
) -> None:
    started: list[float] = []
    monkeypatch.setattr(Wire, "start_heartbeats", lambda _, every_s: started.append(every_s))
    fake.says[schema.SaslAuthenticate] = lambda asked: [
        answer(schema.SaslAuthenticateResponse(asked.correlation_id, OK)),
        encode_frame(schema.Tune(frame_max=offered[0], heartbeat=offered[1])),
    ]
    async with LiveConnection(fake.address, "/"):
        (tuned,) = (frame for frame in fake.taken if isinstance(frame, schema.Tune))
    assert (tuned.frame_max, tuned.heartbeat) == taken
    assert started == [taken[1]]


async def test_offsets_stored_at_once_are_not_taken_for_one_another(fake: FakeBroker) -> None:
    stored = {"offset": 0}

    def store(asked: schema.StoreOffset) -> list[bytes]:
        stored["offset"] = asked.offset
        return []

    fake.says[schema.StoreOffset] = store
    fake.says[schema.QueryOffset] = lambda asked: [
        answer(schema.QueryOffsetResponse(asked.correlation_id, OK, stored["offset"]))
    ]
    async with LiveConnection(fake.address, "/") as live:
        await asyncio.gather(*(live.store_offset("s", "me", Offset(at)) for at in range(1, 5)))


async def test_a_subscription_is_ended_at_the_broker_though_its_end_is_given_up(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live:
        chunks = live.subscribe("s", FIRST)
        await chunks.__aenter__()
        fake.says[schema.Unsubscribe] = lambda _: []
        leaving = asyncio.create_task(chunks.__aexit__(None, None, None))
        await fake.until(schema.Unsubscribe)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        (asked,) = (frame for frame in fake.taken if isinstance(frame, schema.Unsubscribe))
        fake.say(answer(schema.UnsubscribeResponse(asked.correlation_id, OK)))
        async with asyncio.timeout(1), AsyncExitStack() as all_of_them:
            for _ in range(256):
                await all_of_them.enter_async_context(live.subscribe("s", FIRST))
            del fake.says[schema.Unsubscribe]
            fake.cut()


async def test_who_gives_up_while_the_broker_is_asked_why_a_subscription_ended_asks_again(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        fake.say(encode_frame(schema.MetadataUpdate(schema.MetadataInfo(6, "s"))))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(chunks)
        fake.says[schema.Metadata] = lambda asked: [answer(schema.MetadataResponse(asked.correlation_id, [], []))]
        async with asyncio.timeout(1):
            with pytest.raises(UnavailableError, match="'s'"):
                await anext(chunks)
