"""Connections, with a broker that says what the test wants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from rstream import schema
from rstream.encoding import encode_frame

from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    BadSequenceError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.live import connection as connection_module
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


@pytest.fixture(autouse=True)
async def nothing_is_left(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Fail a test that leaves a task behind, or an error that nobody took."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with caplog.at_level(logging.WARNING, "asyncio"):
        yield
    await asyncio.sleep(0)
    assert not complaints
    assert not caplog.records


def tasks() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def delivers(*chunks: bytes):
    return lambda asked: [
        answer(schema.SubscribeResponse(asked.correlation_id, OK)),
        *(delivery(asked.subscription_id, encoded) for encoded in chunks),
    ]


async def test_chunks_come_in_order(fake: FakeBroker) -> None:
    fake.says[schema.Subscribe] = delivers(chunk(0, b"a", b"b"), chunk(2), chunk(7))
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        assert [(await anext(chunks)).header.chunk_id for _ in range(3)] == [0, 2, 7]


async def test_a_credit_goes_back_only_when_the_next_chunk_is_asked_for(fake: FakeBroker) -> None:
    fake.says[schema.Subscribe] = delivers(chunk(0), chunk(1), chunk(2))
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST, credits=3) as chunks:
        (subscribe,) = (frame for frame in fake.taken if isinstance(frame, schema.Subscribe))
        assert subscribe.credit == 3
        await anext(chunks)
        await live.query_offset("s", "me")
        assert fake.count(schema.Credit) == 0
        await anext(chunks)
        await live.query_offset("s", "me")
        assert fake.count(schema.Credit) == 1


async def test_a_wait_that_is_given_up_gives_no_second_credit(fake: FakeBroker) -> None:
    fake.says[schema.Subscribe] = delivers(chunk(0))
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        await anext(chunks)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await anext(chunks)
        fake.say(delivery(0, chunk(1)))
        assert (await anext(chunks)).header.chunk_id == 1
        await live.query_offset("s", "me")
        assert fake.count(schema.Credit) == 1


async def test_chunks_go_to_their_own_subscription(fake: FakeBroker) -> None:
    async with (
        LiveConnection(fake.address, "/") as live,
        live.subscribe("one", FIRST) as one,
        live.subscribe("two", FIRST) as two,
    ):
        fake.say(*(delivery(at % 2, chunk(at)) for at in range(10)))
        assert [(await anext(two)).header.chunk_id for _ in range(5)] == [1, 3, 5, 7, 9]
        assert [(await anext(one)).header.chunk_id for _ in range(5)] == [0, 2, 4, 6, 8]


async def test_a_bad_chunk_ends_its_subscription_after_the_good_ones(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live, live.subscribe("other", FIRST) as other:
        async with live.subscribe("s", FIRST) as chunks:
            fake.say(delivery(1, chunk(0)), delivery(1, chunk(1)[:-1] + b"!"), delivery(1, chunk(2)))
            assert (await anext(chunks)).header.chunk_id == 0
            for _ in range(2):
                with pytest.raises(BadCrcError, match="'s'"):
                    await anext(chunks)
        fake.say(delivery(0, chunk(5)))
        assert (await anext(other)).header.chunk_id == 5


async def test_a_chunk_that_goes_back_is_refused(fake: FakeBroker) -> None:
    fake.says[schema.Subscribe] = delivers(chunk(0, b"a", b"b"), chunk(1))
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        await anext(chunks)
        with pytest.raises(BadSequenceError):
            await anext(chunks)


async def test_a_chunk_that_comes_too_late_is_dropped(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live:
        async with live.subscribe("s", FIRST):
            pass
        fake.say(delivery(0, chunk(0)), delivery(200, b"nonsense"))
        assert await live.query_offset("s", "me") == 7


async def test_an_id_is_used_again_only_when_the_broker_has_ended_its_subscription(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LiveConnection(fake.address, "/") as live:
        for _ in range(300):
            await live.probe("s", FIRST, timeout_s=0)
        ids = [frame.subscription_id for frame in fake.taken if isinstance(frame, schema.Subscribe)]
        assert ids == [at % 256 for at in range(300)]
        everything = [live.subscribe("s", FIRST) for _ in range(256)]
        for one in everything:
            await one.__aenter__()
        monkeypatch.setattr("coldstream.live.subscription.REQUEST_TIMEOUT_S", 0.01)
        with pytest.raises(UnavailableError, match="256"):
            await live.probe("s", FIRST, timeout_s=0)
        monkeypatch.undo()
        waiting = asyncio.create_task(live.probe("s", FIRST, timeout_s=0))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await everything[3].__aexit__(None, None, None)
        await waiting
        assert fake.taken[-2].subscription_id == ids[3 + 300 - 256]
        for one in everything[:3] + everything[4:]:
            await one.__aexit__(None, None, None)


async def test_a_subscription_that_is_given_up_half_way_is_ended_at_the_broker(fake: FakeBroker) -> None:
    fake.says[schema.Subscribe] = lambda _: []
    async with LiveConnection(fake.address, "/") as live:
        waiting = asyncio.create_task(live.probe("s", FIRST, timeout_s=5))
        await fake.until(schema.Subscribe)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert fake.count(schema.Unsubscribe) == 1
        assert await live.query_offset("s", "me") == 7


async def test_a_lost_connection_ends_every_wait_at_once(fake: FakeBroker) -> None:
    del fake.says[schema.QueryOffset]
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        before = tasks()
        waiting = [
            asyncio.create_task(work)
            for work in (chunks.__anext__(), live.query_offset("s", "me"), live.partitions("p"))
        ]
        await fake.until(schema.SuperStreamPartitions)
        assert not live.is_lost
        fake.cut()
        async with asyncio.timeout(1):
            for one in waiting:
                with pytest.raises(UnavailableError, match=f"{HOST}:{fake.port}"):
                    await one
        assert live.is_lost
        with pytest.raises(UnavailableError):
            await live.probe("s", FIRST, timeout_s=1)
        assert tasks() <= before
    assert not {task for task in tasks() if "Wire" in repr(task)}


async def test_what_arrived_before_the_connection_was_lost_is_still_given(fake: FakeBroker) -> None:
    fake.says[schema.Subscribe] = delivers(chunk(0), chunk(1))
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        await anext(chunks)
        fake.cut()
        with pytest.raises(UnavailableError):
            await live.query_offset("s", "me")
        assert (await anext(chunks)).header.chunk_id == 1
        with pytest.raises(UnavailableError):
            await anext(chunks)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (encode_frame(schema.Close(1, 1, "shutting down")), "shutting down"),
        (b"\x00\x00\x00\x04HTTP", "not of the stream protocol"),
        (b"\x00\x00\x00\x00", "not of the stream protocol"),
    ],
)
async def test_a_broker_that_ends_the_connection_is_quoted(fake: FakeBroker, said: bytes, told: str) -> None:
    async with LiveConnection(fake.address, "/") as live, live.subscribe("s", FIRST) as chunks:
        fake.say(said)
        with pytest.raises(UnavailableError, match=told):
            await anext(chunks)


async def test_an_answer_that_does_not_come_is_not_waited_for_without_end(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LiveConnection(fake.address, "/") as live:
        monkeypatch.setattr(wire_module, "REQUEST_TIMEOUT_S", 0.01)
        del fake.says[schema.QueryOffset]
        with pytest.raises(UnavailableError, match="QueryOffsetResponse"):
            await live.query_offset("s", "me")


async def test_a_broker_that_does_not_end_a_subscription_is_given_up(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LiveConnection(fake.address, "/") as live:
        monkeypatch.setattr(wire_module, "REQUEST_TIMEOUT_S", 0.01)
        del fake.says[schema.Unsubscribe]
        await live.probe("s", FIRST, timeout_s=0)
        assert live.is_lost


async def test_heartbeats_are_sent_and_missed(fake: FakeBroker) -> None:
    wire = await Wire.open(HOST, fake.port, None)
    wire.start_heartbeats(0.02)
    for _ in range(10):
        await asyncio.sleep(0.01)
        fake.say(encode_frame(schema.Heartbeat()))
    assert fake.count(schema.Heartbeat) >= 3
    assert not wire.is_lost
    async with asyncio.timeout(1):
        with pytest.raises(UnavailableError, match="no sign of life"):
            await wire.request(lambda number: schema.Metadata(number, []), schema.MetadataResponse)
    await wire.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (2, StreamNotFoundError),
        (6, UnavailableError),
        (16, AccessDeniedError),
        (15, UnavailableError),
        (99, UnavailableError),
    ],
)
async def test_response_codes_come_out_as_errors(fake: FakeBroker, code: int, error: type[Exception]) -> None:
    fake.says[schema.Subscribe] = lambda asked: [answer(schema.SubscribeResponse(asked.correlation_id, code))]
    async with LiveConnection(fake.address, "/") as live:
        with pytest.raises(error, match=f"'orders'.*{code}"):
            await live.probe("orders", FIRST, timeout_s=1)


@pytest.mark.parametrize(("code", "error"), [(2, StreamNotFoundError), (OK, UnavailableError), (6, UnavailableError)])
async def test_a_subscription_that_the_broker_ends_says_why(
    fake: FakeBroker, code: int, error: type[Exception]
) -> None:
    fake.says[schema.Metadata] = lambda asked: [
        answer(schema.MetadataResponse(asked.correlation_id, [], [schema.StreamMetadata("s", code, 0, [])]))
    ]
    async with (
        LiveConnection(fake.address, "/") as live,
        live.subscribe("s", FIRST) as chunks,
        live.subscribe("other", FIRST) as other,
    ):
        fake.say(
            delivery(0, chunk(0)),
            encode_frame(schema.MetadataUpdate(schema.MetadataInfo(6, "s"))),
            delivery(1, chunk(5)),
        )
        assert (await anext(chunks)).header.chunk_id == 0
        with pytest.raises(error):
            await anext(chunks)
        assert (await anext(other)).header.chunk_id == 5


@pytest.mark.parametrize("code", [7, 8, 9, 10, 11])
async def test_refused_credentials_are_said_without_the_password(fake: FakeBroker, code: int) -> None:
    fake.says[schema.SaslAuthenticate] = lambda asked: [
        answer(schema.SaslAuthenticateResponse(asked.correlation_id, code))
    ]
    address = BrokerAddress(((HOST, fake.port), (HOST, 1)), "me", "s3cret")
    with pytest.raises(AccessDeniedError, match="'me'") as refused:
        async with LiveConnection(address, "/"):
            pass
    assert "s3cret" not in str(refused.value)


async def test_a_refused_vhost_is_named(fake: FakeBroker) -> None:
    fake.says[schema.Open] = lambda asked: [answer(schema.OpenResponse(asked.correlation_id, 12, []))]
    with pytest.raises(AccessDeniedError, match="'prod'"):
        async with LiveConnection(fake.address, "prod"):
            pass


async def test_hosts_are_tried_in_their_order_each_for_its_time(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeBroker() as mute:
        mute.says.clear()
        monkeypatch.setattr(connection_module, "CONNECT_TIMEOUT_S", 0.05)
        with pytest.raises(UnavailableError, match=f"{HOST}:{mute.port}: no answer within 0.05 s; .*x{'y' * 64}"):
            async with LiveConnection(BrokerAddress((*mute.address.hosts, (f"x{'y' * 64}.z", 1))), "/"):
                pass
        async with LiveConnection(BrokerAddress((*mute.address.hosts, *fake.address.hosts)), "/") as live:
            assert await live.query_offset("s", "me") == 7


async def test_an_offset_that_the_broker_did_not_take_is_told(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as live:
        await live.store_offset("s", "me", Offset(7))
        with pytest.raises(UnavailableError, match=r"offset 8 .* 7 is"):
            await live.store_offset("s", "me", Offset(8))


async def test_no_offset_is_none(fake: FakeBroker) -> None:
    fake.says[schema.QueryOffset] = lambda asked: [answer(schema.QueryOffsetResponse(asked.correlation_id, 19, 0))]
    async with LiveConnection(fake.address, "/") as live:
        assert await live.query_offset("s", "me") is None


async def test_names_may_be_of_any_script(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "grün", name="läuft") as live:
        await live.query_offset("straße", "日本")
        await live.probe("straße", FIRST, timeout_s=0)
    names = {type(frame): frame for frame in fake.taken}
    assert names[schema.Open].virtual_host == "grün"
    assert (names[schema.QueryOffset].reference, names[schema.QueryOffset].stream) == ("日本", "straße")
    assert names[schema.Subscribe].stream == "straße"


async def test_leaving_says_goodbye_and_leaves_nothing_running(fake: FakeBroker) -> None:
    before = tasks()
    async with LiveConnection(fake.address, "/") as live:
        chunks = live.subscribe("s", FIRST)
        await chunks.__aenter__()
    assert fake.count(schema.Close) == 1
    with pytest.raises(UnavailableError, match="closed"):
        await anext(chunks)
    assert {task for task in tasks() - before if "_serve" not in repr(task)} == set()


async def test_a_connection_that_was_not_entered_says_so(fake: FakeBroker) -> None:
    with pytest.raises(UnavailableError, match="not been opened"):
        await LiveConnection(fake.address, "/").query_offset("s", "me")
