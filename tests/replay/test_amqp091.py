"""AMQP 1.0 messages as AMQP 0.9.1 has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pika import BasicProperties
from rstream._pyamqp.message import Header, Properties

from coldstream.errors import CorruptionError
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.replay.amqp091 import properties_bytes, to_amqp091
from coldstream.units import ChunkId, Epoch, TimestampMs
from tests.support.amqp_samples import EVERY_SIMPLE_VALUE, MESSAGES, SOME_UUID, encode, typed


def message(raw: bytes) -> Message:
    _, chunk = make_chunk([raw], chunk_id=ChunkId(7), timestamp=TimestampMs(1), epoch=Epoch(1))
    (found,) = [each for chunk in iter_chunks(chunk, source="test") for each in messages(chunk, source="test")]
    return found


def converted(raw: bytes) -> tuple[BasicProperties, bytes]:
    return to_amqp091(message(raw), "orders")


def headers(**sections: Any) -> dict[str, Any]:
    found, _ = converted(encode(**sections))
    return {key: value for key, value in found.headers.items() if not key.startswith("x-coldstream-")}


@pytest.mark.parametrize("name", MESSAGES)
def test_every_kind_of_message_can_be_sent(name: str) -> None:
    properties, _ = converted(MESSAGES[name])
    back = BasicProperties()
    back.decode(b"".join(properties.encode()))
    assert back.headers["x-coldstream-stream"] == "orders"
    assert back.headers["x-coldstream-offset"] == 7
    assert properties_bytes(properties) == len(b"".join(properties.encode()))


def test_data_is_the_body() -> None:
    assert converted(MESSAGES["data"])[1] == b"hello"
    assert converted(MESSAGES["two data sections"])[1] == b"onetwo"
    assert converted(MESSAGES["empty data"])[1] == b""
    assert converted(b"")[1] == b""


@pytest.mark.parametrize("name", ["value string", "value described", "value null", "sequence", "two sequences"])
def test_what_is_not_data_stays_amqp(name: str) -> None:
    properties, body = converted(MESSAGES[name])
    assert properties.type == "amqp-1.0"
    assert body == MESSAGES[name]


def test_only_the_body_of_what_is_not_data_stays() -> None:
    value = encode(value="grün")
    properties, body = converted(encode(application_properties={"a": 1}) + value)
    assert (body, properties.headers["a"]) == (value, 1)


def test_what_is_no_amqp_is_the_body_as_it_is() -> None:
    properties, body = converted(b"just text")
    assert (body, properties.delivery_mode, properties.type) == (b"just text", 2, None)


def test_damaged_amqp_is_refused() -> None:
    with pytest.raises(CorruptionError):
        converted(MESSAGES["data"][:-1])


def test_properties_are_those_of_the_same_name() -> None:
    found, _ = converted(MESSAGES["properties"])
    assert (found.message_id, found.reply_to, found.content_type) == ("id-1", "back", "text/plain")
    assert (found.content_encoding, found.app_id, found.timestamp) == ("gzip", "group", 1_763_700_000)
    assert found.correlation_id == f"urn:uuid:{SOME_UUID}"
    assert (found.user_id, found.headers["x-user-id"]) == (None, b"guest")


@pytest.mark.parametrize(
    ("given", "text", "header"),
    [
        ("é" * 127, "é" * 127, None),
        ("é" * 128, None, "é" * 128),
        (2**64 - 1, str(2**64 - 1), None),
        (b"\xff", None, b"\xff"),
    ],
)
def test_an_id_that_does_not_fit_is_a_header(given: Any, text: str | None, header: object) -> None:
    found, _ = converted(encode(properties=Properties(message_id=given, correlation_id=given)))
    assert (found.message_id, found.correlation_id) == (text, text)
    assert (found.headers.get("x-message-id"), found.headers.get("x-correlation-id")) == (header, header)


@pytest.mark.parametrize(("durable", "mode"), [(True, 2), (False, 1), (None, 2)])
def test_a_message_is_persistent_unless_it_says_otherwise(durable: object, mode: int) -> None:
    found, _ = converted(encode(header=Header(durable=durable, priority=9, ttl=60_000), body=b""))
    assert (found.delivery_mode, found.priority, found.expiration) == (mode, 9, "60000")


def test_annotations_of_the_broker_are_the_properties_that_they_were() -> None:
    annotations = {
        name.encode(): value
        for name, value in {
            "x-basic-delivery-mode": typed("UBYTE", 1),
            "x-basic-priority": typed("UBYTE", 3),
            "x-basic-expiration": "500",
            "x-basic-type": "kind",
            "x-exchange": "from",
            "x-routing-key": "by",
            "x-own": "kept",
            "other": "left",
        }.items()
    }
    found, _ = converted(encode(message_annotations=annotations))
    assert (found.delivery_mode, found.priority, found.expiration, found.type) == (1, 3, "500", "kind")
    assert found.headers.keys() - {"x-coldstream-stream", "x-coldstream-offset"} == {"x-own"}


def test_older_brokers_keep_type_and_application_among_the_headers() -> None:
    found, _ = converted(encode(application_properties={"x-basic-type": "kind", "x-basic-app-id": "app", "a": "b"}))
    assert (found.type, found.app_id, found.headers["a"]) == ("kind", "app", "b")
    assert "x-basic-type" not in found.headers


def test_headers_keep_their_values() -> None:
    found = headers(application_properties=EVERY_SIMPLE_VALUE)
    assert found.keys() == EVERY_SIMPLE_VALUE.keys()
    assert (found["true"], found["byte"], found["ulong"]) == (True, -128, str(2**64 - 1))
    assert (found["double"], found["uuid"], found["binary"]) == ("0.1", str(SOME_UUID), b"\x00\xff")
    assert found["timestamp"] == datetime(2025, 11, 21, 4, 40, 0, 123_000, tzinfo=UTC)
    assert (found["symbol"], found["string"], found["null"]) == ("symbol", "grün", None)


@pytest.mark.parametrize("time_ms", [-1, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_a_number(time_ms: int) -> None:
    assert headers(application_properties={"t": typed("TIMESTAMP", time_ms)}) == {"t": time_ms}


def test_a_header_of_too_long_a_name_is_left_out() -> None:
    assert headers(application_properties={"n" * 256: 1, "n" * 255: 2}) == {"n" * 255: 2}


def test_nobody_can_say_that_a_message_came_from_elsewhere() -> None:
    found, _ = converted(encode(application_properties={"x-coldstream-offset": 1, "x-coldstream-stream": "other"}))
    assert (found.headers["x-coldstream-offset"], found.headers["x-coldstream-stream"]) == (7, "orders")
