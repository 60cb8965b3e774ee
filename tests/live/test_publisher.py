"""Publishing, to a broker whose every answer is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from rstream import schema
from rstream.encoding import encode_frame

from coldstream.errors import AccessDeniedError, InvalidInputError, StreamNotFoundError, UnavailableError
from coldstream.format.entry import simple_entry
from coldstream.live import publisher as publishing
from coldstream.live.connection import LiveConnection
from coldstream.live.publisher import Publisher
from tests.support.stream_broker import OK, FakeBroker, answer


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        broker.says[schema.DeclarePublisher] = lambda asked: [
            answer(schema.DeclarePublisherResponse(asked.correlation_id, OK))
        ]
        broker.says[schema.QueryPublisherSequence] = lambda asked: [
            answer(schema.QueryPublisherSequenceResponse(asked.correlation_id, OK, 41))
        ]
        yield broker


@pytest.fixture
async def publisher(fake: FakeBroker) -> AsyncIterator[Publisher]:
    async with LiveConnection(fake.address, "/") as connection, connection.publish("größe", "référence") as opened:
        yield opened


async def send(publisher: Publisher, *publishing_ids: int) -> None:
    encoded = entries(*publishing_ids)
    await publisher.send((encoded[:5], encoded[5:]), len(encoded), len(publishing_ids), publishing_ids[-1])


def entries(*publishing_ids: int) -> bytes:
    return b"".join(each.to_bytes(8) + simple_entry(b"message %d" % each) for each in publishing_ids)


def confirm(*publishing_ids: int, publisher_id: int = 0) -> bytes:
    return encode_frame(schema.PublishConfirm(publisher_id=publisher_id, publishing_ids=list(publishing_ids)))


def refuse(code: int, *publishing_ids: int) -> bytes:
    errors = [schema.PublishingError(publishing_id=each, response_code=code) for each in publishing_ids]
    return encode_frame(schema.PublishError(publisher_id=0, errors=errors))


async def test_it_is_declared_under_its_reference_and_goes_on_from_its_sequence(
    fake: FakeBroker, publisher: Publisher
) -> None:
    (declared,) = (frame for frame in fake.taken if isinstance(frame, schema.DeclarePublisher))
    assert (declared.stream, declared.reference, declared.publisher_id) == ("größe", "référence", 0)
    (asked,) = (frame for frame in fake.taken if isinstance(frame, schema.QueryPublisherSequence))
    assert (asked.stream, asked.publisher_ref) == ("größe", "référence")
    assert publisher.sequence == 41


async def test_entries_arrive_after_their_ids(fake: FakeBroker, publisher: Publisher) -> None:
    await send(publisher, 42, 50)
    await fake.until(schema.Publish)
    (frame,) = (frame for frame in fake.taken if isinstance(frame, schema.Publish))
    assert frame.publisher_id == 0
    assert [(each.publishing_id, each.data) for each in frame.messages] == [(42, b"message 42"), (50, b"message 50")]


async def test_confirms_are_counted_to_the_frame(fake: FakeBroker) -> None:
    async with LiveConnection(fake.address, "/") as connection, connection.publish("orders", "reference") as publisher:
        await send(publisher, 42, 50)
        await send(publisher, 60)
        told = []
        for confirmed in (42, 50, 60):
            fake.say(confirm(confirmed))
            await connection.query_offset("orders", "any")  # what was said before its answer is heard
            told.append(publisher.safe_to(70))
    assert told == [0, 50, 70]


async def test_confirms_of_somebody_else_are_not_counted(fake: FakeBroker, publisher: Publisher) -> None:
    await send(publisher, 42)
    fake.say(confirm(42, publisher_id=7), confirm(42))
    await publisher.flush()
    await send(publisher, 43)
    assert publisher.safe_to(43) == 42


async def test_too_much_that_is_not_confirmed_is_waited_for(
    fake: FakeBroker, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "WINDOW_BYTES", 10)
    await send(publisher, 42)
    second = asyncio.create_task(send(publisher, 43))
    await asyncio.sleep(0.02)
    assert not second.done()
    assert fake.count(schema.Publish) == 1
    fake.say(confirm(42))
    await second
    await fake.until(schema.Publish, 2)


@pytest.mark.parametrize("code", [2, 6, 13, 16, 99])
async def test_a_refused_entry_ends_the_publisher(fake: FakeBroker, publisher: Publisher, code: int) -> None:
    await send(publisher, 42, 43)
    fake.say(refuse(code, 42, 43))
    with pytest.raises(UnavailableError, match=f"answers {code}"):
        await publisher.flush()
    with pytest.raises(UnavailableError):
        await send(publisher, 44)


async def test_a_lost_connection_ends_it(fake: FakeBroker, publisher: Publisher) -> None:
    await send(publisher, 42)
    fake.cut()
    with pytest.raises(UnavailableError):
        await publisher.flush()


async def test_a_stream_whose_leader_moves_ends_it_and_another_one_does_not(
    fake: FakeBroker, publisher: Publisher
) -> None:
    def moved(stream: bytes) -> bytes:
        body = b"\x00\x10\x00\x01\x00\x06" + len(stream).to_bytes(2) + stream
        return len(body).to_bytes(4) + body

    await send(publisher, 42)
    fake.say(moved(b"another"), confirm(42))
    await publisher.flush()
    await send(publisher, 43)
    fake.say(moved("größe".encode()))
    with pytest.raises(UnavailableError, match="members"):
        await publisher.flush()


async def test_confirms_that_stay_away_end_it(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "CONFIRM_TIMEOUT_S", 0.02)
    await send(publisher, 42)
    with pytest.raises(UnavailableError, match="confirmed within"):
        await publisher.flush()


@pytest.mark.parametrize(("code", "error"), [(2, StreamNotFoundError), (6, UnavailableError), (16, AccessDeniedError)])
async def test_a_publisher_that_is_refused_is_not_opened(fake: FakeBroker, code: int, error: type[Exception]) -> None:
    fake.says[schema.DeclarePublisher] = lambda asked: [
        answer(schema.DeclarePublisherResponse(asked.correlation_id, code))
    ]
    async with LiveConnection(fake.address, "/") as connection:
        with pytest.raises(error):
            async with connection.publish("orders", "reference"):
                pass
        fake.says[schema.DeclarePublisher] = lambda asked: [
            answer(schema.DeclarePublisherResponse(asked.correlation_id, OK))
        ]
        async with connection.publish("orders", "reference"):
            pass


@pytest.mark.parametrize("reference", ["", "é" * 128])
async def test_a_reference_that_brokers_do_not_take_is_refused(fake: FakeBroker, reference: str) -> None:
    async with LiveConnection(fake.address, "/") as connection:
        with pytest.raises(InvalidInputError):
            connection.publish("orders", reference)


async def test_a_connection_has_publishers_of_several_streams(fake: FakeBroker) -> None:
    async with (
        LiveConnection(fake.address, "/") as connection,
        connection.publish("one", "reference") as one,
        connection.publish("two", "reference") as two,
    ):
        await send(one, 42)
        await send(two, 43)
        fake.say(confirm(43, publisher_id=1))
        await two.flush()
        assert (one.safe_to(42), two.safe_to(43)) == (0, 43)


async def test_a_frame_is_as_large_as_was_agreed_on(fake: FakeBroker) -> None:
    fake.says[schema.SaslAuthenticate] = lambda asked: [
        answer(schema.SaslAuthenticateResponse(asked.correlation_id, OK)),
        encode_frame(schema.Tune(frame_max=4096, heartbeat=60)),
    ]
    async with LiveConnection(fake.address, "/") as connection, connection.publish("orders", "reference") as publisher:
        await publisher.send(
            (bytes(8), simple_entry(bytes(publisher.max_frame_bytes - 12))), publisher.max_frame_bytes, 1, 1
        )
        await fake.until(schema.Publish)
        assert publisher.max_frame_bytes == 4096 - 13
