"""Replay into an exchange of a real broker."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidInputError,
    InvalidSettingError,
    NotFoundError,
    UnavailableError,
    UnroutableError,
)
from coldstream.format.amqp.message import Message
from coldstream.replay import broker_replay, exchange_publisher, retry
from coldstream.replay.exchange import replay_to_exchange
from coldstream.replay.routing import RoutingKey
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.target import ExchangeTarget, SendOptions
from tests.replay.archived import Archived, recorded
from tests.support.broker import Broker

_NAMES = (f"replayed by exchange {number}" for number in itertools.count())


@pytest.fixture
def source() -> Archived:
    return recorded("amqp-0-9-1")


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.amqp_port)) as connection:
        yield connection.channel()


@pytest.fixture
def target(broker: Broker, channel: BlockingChannel) -> ExchangeTarget:
    """An exchange with one queue of the same name, for every key."""
    name = next(_NAMES)
    channel.exchange_declare(name, "fanout")
    channel.queue_declare(name)
    channel.queue_bind(name, name)
    return ExchangeTarget(uri(broker), name)


def uri(broker: Broker, user: str = "guest:guest", vhost: str = "%2F") -> str:
    return f"amqp://{user}@{broker.host}:{broker.amqp_port}/{vhost}"


def run(
    source: Archived, target: ExchangeTarget, start: int = 0, end: int | None = None, **options: object
) -> ReplaySummary:
    return replay_to_exchange(source.table, source.objects, source.source(start, end), target, **options)


def taken(channel: BlockingChannel, queue: str) -> list[tuple[str, pika.BasicProperties, bytes]]:
    """Take all that is in a queue, with the key that each came by."""
    found = []
    while (message := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append((message[0].routing_key, message[1], message[2]))
    return found


def offsets(messages: list[tuple[str, pika.BasicProperties, bytes]]) -> list[int]:
    return [properties.headers["x-coldstream-offset"] for _, properties, _ in messages]


@pytest.mark.parametrize("name", ["plain", "sub-batches", "tracking", "amqp-0-9-1", "amqp-1-0"])
def test_every_message_comes_in_order_and_says_where_from(
    name: str, target: ExchangeTarget, channel: BlockingChannel
) -> None:
    source = recorded(name)
    summary = run(source, target)
    found = taken(channel, target.exchange)
    assert offsets(found) == list(source.messages)
    assert {properties.headers["x-coldstream-stream"] for _, properties, _ in found} == {name}
    assert (summary.messages, summary.confirmed_to, summary.is_complete) == (len(found), source.end, True)


def test_what_was_published_by_amqp_0_9_1_is_so_again(target: ExchangeTarget, channel: BlockingChannel) -> None:
    run(recorded("amqp-0-9-1"), target)
    properties = [properties for _, properties, _ in taken(channel, target.exchange)]
    full = next(each for each in properties if each.message_id == "id-1")
    assert (full.content_type, full.content_encoding, full.delivery_mode) == ("text/plain", "identity", 2)
    assert (full.priority, full.correlation_id, full.reply_to, full.expiration) == (5, "correlation", "back", "60000")
    assert (full.timestamp, full.type, full.app_id, full.user_id) == (1_763_700_000, "type", "app", None)
    assert full.headers["x-user-id"] in ("guest", b"guest")
    wanted = {"text": "größe", "number": 42, "big": 1 << 40, "flag": True, "nothing": None, "bytes": b"\x00\xff"}
    assert {key: full.headers[key] for key in wanted} == wanted


def test_messages_go_by_the_key_that_they_came_by(source: Archived, broker: Broker, channel: BlockingChannel) -> None:
    queue = next(_NAMES)
    channel.queue_declare(queue)
    summary = run(source, ExchangeTarget(uri(broker), "", default_key=queue, allow_unroutable=True))
    # Published to the default exchange, so they came by the stream's name, where no queue is now.
    assert summary.unroutable == summary.messages > 0
    by_id = ExchangeTarget(uri(broker), "", RoutingKey.parse("properties.message_id"), queue, allow_unroutable=True)
    summary = run(source, by_id)
    found = taken(channel, queue)
    assert summary.unroutable == summary.messages - len(found)
    assert not {"id-1"} & {properties.message_id for _, properties, _ in found}


def test_what_no_queue_is_bound_for_ends_it_and_is_sent_again_once_one_is(
    source: Archived, broker: Broker, channel: BlockingChannel, tmp_path: Path
) -> None:
    name = next(_NAMES)
    channel.exchange_declare(name, "fanout")
    target = ExchangeTarget(uri(broker), name, progress=tmp_path / "progress")
    with pytest.raises(UnroutableError, match="bind one and run this again") as raised:
        run(source, target)
    assert raised.value.offset == next(iter(source.messages))
    channel.queue_declare(name)
    channel.queue_bind(name, name)
    summary = run(source, target)
    assert (summary.unroutable, summary.is_complete) == (0, True)
    assert offsets(taken(channel, name)) == list(source.messages)


def test_a_second_run_with_the_progress_file_sends_nothing(
    source: Archived, target: ExchangeTarget, channel: BlockingChannel, tmp_path: Path
) -> None:
    target = replace(target, progress=tmp_path / "progress")
    run(source, target, 0, 3)
    assert run(source, target).resumed_at == 3
    assert run(source, target).messages == 0
    assert offsets(taken(channel, target.exchange)) == list(source.messages)


def test_the_progress_file_of_another_replay_is_refused(
    source: Archived, target: ExchangeTarget, tmp_path: Path
) -> None:
    target = replace(target, progress=tmp_path / "progress")
    run(source, target, 0, 3)
    with pytest.raises(InvalidSettingError, match="another replay"):
        run(source, target, 1, 3)
    (tmp_path / "progress").write_text("[]")
    with pytest.raises(InvalidSettingError, match="cannot be read"):
        run(source, target)


class KilledError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_run_that_is_killed_is_gone_on_with(
    after: int,
    target: ExchangeTarget,
    channel: BlockingChannel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_replay, "_TELL_EVERY_S", 0)
    source = recorded("tracking")
    target = replace(target, progress=tmp_path / "progress")
    told: list[ReplayProgress] = []

    def die(progress: ReplayProgress) -> None:
        told.append(progress)
        if len(told) > after:
            raise KilledError

    with pytest.raises(KilledError):
        run(source, target, on_progress=die)
    summary = run(source, target)
    found = offsets(taken(channel, target.exchange))
    assert list(dict.fromkeys(found)) == list(source.messages)
    assert found[-summary.messages :] == list(source.messages)[-summary.messages :]


def test_a_connection_that_is_cut_is_opened_again(
    target: ExchangeTarget, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(broker_replay, "_TELL_EVERY_S", 0)
    source = recorded("tracking")
    sent: list[exchange_publisher.ExchangePublisher] = []
    begin = exchange_publisher.ExchangePublisher._begin

    async def noted(self: exchange_publisher.ExchangePublisher) -> None:
        sent.append(self)
        await begin(self)

    is_cut = threading.Event()

    def cut(progress: ReplayProgress) -> None:
        if progress.messages > 500 and not is_cut.is_set():
            is_cut.set()
            sent[0]._connection._transport._sock.shutdown(socket.SHUT_RDWR)

    monkeypatch.setattr(exchange_publisher.ExchangePublisher, "_begin", noted)
    summary = run(source, target, on_progress=cut)
    found = offsets(taken(channel, target.exchange))
    assert len(sent) == 2
    assert summary.is_complete
    assert list(dict.fromkeys(sorted(found))) == list(source.messages)


def test_a_stop_is_obeyed(target: ExchangeTarget, channel: BlockingChannel, tmp_path: Path) -> None:
    source = recorded("tracking")
    target = replace(target, progress=tmp_path / "progress")
    asked = itertools.count()
    summary = run(source, target, should_stop=lambda: next(asked) >= 5)
    found = offsets(taken(channel, target.exchange))
    assert not summary.is_complete
    assert 0 < len(found) < len(source.messages)
    assert summary.confirmed_to == found[-1] + 1 == json.loads((tmp_path / "progress").read_text())["done_to"]


def few_and_loud(message: Message) -> Message | bytes | None:
    return None if message.offset % 2 else b"\x00\x53\x75\xa0\x04loud"


def test_a_function_filters_and_maps(source: Archived, target: ExchangeTarget, channel: BlockingChannel) -> None:
    options = SendOptions(transform=f"{__name__}:few_and_loud")
    summary = run(source, target, options=options)
    found = taken(channel, target.exchange)
    assert offsets(found) == [offset for offset in source.messages if not offset % 2]
    assert {body for _, _, body in found} == {b"loud"}
    assert summary.left_out == len(source.messages) - len(found)


def test_a_rate_is_kept(source: Archived, target: ExchangeTarget) -> None:
    summary = run(source, target, 0, 6, options=SendOptions(rate=10))
    assert 0.3 < summary.seconds < 5


def test_the_window_bounds_what_is_not_confirmed(
    target: ExchangeTarget, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_publisher, "WINDOW_MESSAGES", 10)
    most = 0
    send = exchange_publisher.ExchangePublisher.send

    async def watched(self: exchange_publisher.ExchangePublisher, *what: object) -> None:
        nonlocal most
        await send(self, *what)
        most = max(most, len(self._open))

    monkeypatch.setattr(exchange_publisher.ExchangePublisher, "send", watched)
    source = recorded("plain")
    run(source, target)
    assert most == 10
    assert offsets(taken(channel, target.exchange)) == list(source.messages)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"exchange": "nobody declared it"}, NotFoundError),
        ({"user": "guest:wrong"}, AccessDeniedError),
        ({"vhost": "nowhere"}, AccessDeniedError),
    ],
)
def test_where_it_may_not_go_is_told(
    change: dict[str, str], error: type[ColdstreamError], source: Archived, broker: Broker
) -> None:
    target = ExchangeTarget(
        uri(broker, change.get("user", "guest:guest"), change.get("vhost", "%2F")), change.get("exchange", "")
    )
    with pytest.raises(error) as raised:
        run(source, target)
    assert "wrong" not in str(raised.value)


def test_a_broker_that_is_not_there_is_given_up(source: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MAX_STALL_S", 0)
    with pytest.raises(UnavailableError):
        run(source, ExchangeTarget("amqp://127.0.0.1:1/", "any"))


@pytest.mark.parametrize("text", ["nonsense://user:secret@host", "amqp://user:secret@host:port"])
def test_an_address_that_means_nothing_is_refused_without_its_password(text: str, source: Archived) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        run(source, ExchangeTarget(text, "any"))
    assert "secret" not in str(raised.value)


def wide(message: Message) -> bytes:
    """A message of more application properties than a frame holds."""
    name = b"\xa1\x04" + b"%04d" % message.offset
    value = b"\xb1" + (200_000).to_bytes(4) + b"x" * 200_000
    content = (2).to_bytes(4) + name + value
    return b"\x00\x53\x74\xd1" + len(content).to_bytes(4) + content


def test_properties_that_fit_no_frame_are_refused(source: Archived, target: ExchangeTarget) -> None:
    with pytest.raises(InvalidInputError, match="at offset 0 has 2"):
        run(source, target, options=SendOptions(transform=f"{__name__}:wide"))
