"""Messages as brokers of each release write them into a stream, against ours of what they deliver from a queue."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pika
import pytest
from pika.compat import long

from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.queues.batch import batch_bytes
from coldstream.queues.message import to_amqp10
from coldstream.queues.pika_queue import PikaQueue
from coldstream.replay.amqp091 import to_amqp091
from coldstream.units import Epoch, Offset, TimestampMs
from tests.support.broker import Broker
from tests.support.releases import HOST_RELEASE, Release

UUID_ID = UUID("550e8400-e29b-41d4-a716-446655440000")
NAMES = (f"encoded {number}" for number in itertools.count())
FULL: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "identity",
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "correlation",
    "reply_to": "back",
    "expiration": "6000000",
    "message_id": "id-1",
    "timestamp": 1_763_700_000,
    "type": "kind",
    "user_id": "guest",
    "app_id": "app",
}
HEADERS: dict[str, Any] = {
    "text": "größe",
    "number": 42,
    "large": 100_000,
    "negative": -7,
    "long": long(5),
    "big": 1 << 40,
    "flag": True,
    "not": False,
    "nothing": None,
    "bytes": b"\x00\xff",
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "x-own": "annotation",
    "x-table": {"a": 1, "b": ["c", 2]},
}
PUBLISHED: list[tuple[str, dict[str, Any], bytes]] = [
    ("", {}, b""),
    ("key", {}, b"body"),
    ("key", {"delivery_mode": 1}, b"x" * 300),
    ("größe", FULL, b"full"),
    ("key", {"headers": HEADERS}, b"headers"),
    ("key", FULL | {"headers": HEADERS}, bytes(range(256)) * 300),
    ("key", {"headers": {"CC": ["other", "third"]}}, b"cc"),
    ("key", {"headers": {"long text": "a" * 300, "not text": b"\xff" * 10}}, b""),
    ("key", {"message_id": UUID_ID.urn, "expiration": "900000", "priority": 0}, b"."),
]


def sections(message: Message) -> dict[str, Any]:
    found = {name: getattr(message, name) for name in ("header", "message_annotations", "properties", "body")}
    return found | {"application_properties": message.application_properties or {}}


def decoded(raw: list[bytes]) -> list[Message]:
    data = batch_bytes(raw, Offset(0), TimestampMs(0), Epoch(1))
    chunks = iter_chunks(data[SEGMENT_HEADER_BYTES:], source="ours", position=SEGMENT_HEADER_BYTES)
    return [message for chunk in chunks for message in messages(chunk, source="ours")]


@pytest.fixture
def both(any_broker: Broker) -> tuple[list[Message], list[Message]]:
    """The messages in a stream, and ours from a queue, both bound to the exchange that they were published to."""
    name = next(NAMES)
    parameters = pika.ConnectionParameters(any_broker.host, any_broker.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(name, "fanout", durable=True)
        channel.queue_declare(f"{name} queue", durable=True)
        channel.queue_declare(f"{name} stream", durable=True, arguments={"x-queue-type": "stream"})
        for queue in ("queue", "stream"):
            channel.queue_bind(f"{name} {queue}", name)
        for key, properties, body in PUBLISHED:
            channel.basic_publish(name, key, body, pika.BasicProperties(**properties))
    with any_broker.connect() as streams:
        theirs = [raw for _, raw in streams.read(f"{name} stream", len(PUBLISHED))]
    queue = PikaQueue(f"amqp://guest:guest@{any_broker.host}:{any_broker.amqp_port}", "/", f"{name} queue")
    try:
        taken = [queue.take(10) for _ in PUBLISHED]
    finally:
        queue.close()
    ours = [to_amqp10(delivery, source=name) for delivery in taken if delivery is not None]
    return decoded(theirs), decoded(ours)


def test_every_section_is_as_the_broker_writes_it(
    both: tuple[list[Message], list[Message]], broker_release: Release
) -> None:
    for theirs, ours in zip(*both, strict=True):
        expected, found = sections(theirs), sections(ours)
        if broker_release == HOST_RELEASE:
            # It has other places for what AMQP 1.0 has no name for, and drops tables: the values are compared that are.
            assert (ours.body, ours.message_annotations["x-routing-key"]) == (
                theirs.body,
                theirs.message_annotations["x-routing-key"],
            )
            for name in ("message_id", "correlation_id", "user_id", "content_type", "content_encoding", "reply_to"):
                assert getattr(ours.properties, name, None) in (getattr(theirs.properties, name, None), UUID_ID)
            for key, value in (theirs.application_properties or {}).items():
                if not key.startswith("x-"):
                    assert ours.application_properties[key] == value
            continue
        if found["properties"] is not None and found["properties"].reply_to is not None:
            assert expected["properties"].reply_to in ("back", "/queues/back")
            expected["properties"] = expected["properties"]._replace(reply_to="back")
        assert found == expected


def test_what_is_replayed_is_what_was_published(both: tuple[list[Message], list[Message]]) -> None:
    _, ours = both
    for message, (key, published, body) in zip(ours, PUBLISHED, strict=True):
        properties, found = to_amqp091(message, "name")
        assert (message.message_annotations["x-routing-key"], found) == (key, body)
        for name, value in published.items():
            if name not in ("headers", "user_id"):
                assert getattr(properties, name) == value, name
        for name, value in published.get("headers", {}).items():
            assert properties.headers["x-cc" if name == "CC" else name] == value, name
