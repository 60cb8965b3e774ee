"""Conversion of a stream's messages to AMQP 0.9.1, properties and a body, as the broker itself converts them.

    AMQP 1.0                                     AMQP 0.9.1
    one or more data sections                    the body, joined
    sequences, a value                           the body: the sections as they are, and type `amqp-1.0`
    header: durable, priority, ttl               delivery_mode, priority, expiration
    properties                                   those of the same name; group_id is app_id, creation_time timestamp
    ids that are a ulong, a uuid                 text; what is binary, or too long, is the header x-message-id
                                                 or x-correlation-id
    application properties                       headers
    message annotations x-...                    headers; x-basic-... are the properties that they once were
    delivery annotations, footer                 nothing

If brokers differ, this follows the newer ones (3.13 and later); `x-basic-type` and `x-basic-app-id` are also taken from
application properties, where older brokers put them. Two rules are ours: a message that does not state its durability
is persistent, as all messages of a stream are; and a user id becomes the header x-user-id, because a broker accepts
only the id of the user who publishes. Numbers with a fraction become text in headers: pika cannot send them otherwise.
Bytes that are not AMQP become the body as they are.

Upstream: `mc_amqpl.erl` (convert_from), `rabbit_msg_record.erl` (to_amqp091).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pika import BasicProperties

from coldstream.errors import BadMagicError
from coldstream.format.amqp.message import Message
from coldstream.format.amqp.sections import SEQUENCE, VALUE, Header, Properties, locate
from coldstream.format.amqp.types import Char, Decimal, Described, Symbol, Timestamp, Value

OFFSET_HEADER = "x-coldstream-offset"
STREAM_HEADER = "x-coldstream-stream"

_AMQP_TYPE = "amqp-1.0"
_PERSISTENT = 2
_TRANSIENT = 1
_MAX_SHORT_BYTES = 255
_MAX_OCTET = 255
_MAX_LONG = (1 << 63) - 1
_BASIC = "x-basic-"
_ROUTED = frozenset(("x-exchange", "x-routing-key"))
"""Annotations in which the broker notes how a message was published."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_amqp091(message: Message, stream: str) -> tuple[BasicProperties, bytes]:
    """Return the properties and the body of a message. Raises CorruptionError if its AMQP is damaged."""
    own: dict[str, Value] = {STREAM_HEADER: stream, OFFSET_HEADER: message.offset}
    try:
        kind = message.body_kind
    except BadMagicError:
        return BasicProperties(headers=own, delivery_mode=_PERSISTENT), message.raw
    header = message.header or Header()
    properties = message.properties or Properties()
    annotations = message.message_annotations or {}
    applications = message.application_properties or {}
    headers: dict[str, Value] = {
        key: _field(value)
        for key, value in annotations.items()
        if _is_short(key) and key.startswith("x-") and not key.startswith(_BASIC) and key not in _ROUTED
    }
    headers |= {
        str(key): _field(value)
        for key, value in applications.items()
        if _is_short(key) and key not in ("x-basic-type", "x-basic-app-id")
    }
    if properties.user_id is not None:
        headers["x-user-id"] = _field(properties.user_id)

    def basic(name: str) -> Value:
        return annotations.get(f"{_BASIC}{name}")

    is_amqp = kind in ("sequence", "value")
    return BasicProperties(
        content_type=_short(properties.content_type),
        content_encoding=_short(properties.content_encoding),
        delivery_mode=_delivery_mode(header.durable, basic("delivery-mode")),
        priority=_octet(basic("priority") if header.priority is None else header.priority),
        correlation_id=_id(properties.correlation_id, "x-correlation-id", headers),
        reply_to=_short(properties.reply_to),
        expiration=_short(basic("expiration") if header.ttl is None else str(header.ttl)),
        message_id=_id(properties.message_id, "x-message-id", headers),
        timestamp=_seconds(properties.creation_time),
        type=_AMQP_TYPE if is_amqp else _short(basic("type") or applications.get("x-basic-type")),
        app_id=_short(applications.get("x-basic-app-id") or properties.group_id),
        headers=headers | own,
    ), _sections(message) if is_amqp else message.body or b""


def properties_bytes(properties: BasicProperties) -> int:
    """Return how many bytes properties have on the wire."""
    return sum(map(len, properties.encode()))


def _sections(message: Message) -> bytes:
    """Return the sections of a body that is not data, byte for byte as they were published."""
    raw = message.raw
    found = locate(raw, source=message.source)
    return b"".join(
        bytes((0x00, 0x53, code)) + raw[start:end]
        for code in (SEQUENCE, VALUE)
        for start, end in zip(found.get(code, ())[::2], found.get(code, ())[1::2], strict=True)
    )


def _delivery_mode(durable: Value, basic: Value) -> int:
    if durable is not None:
        return _PERSISTENT if durable else _TRANSIENT
    return _TRANSIENT if basic == _TRANSIENT else _PERSISTENT


def _octet(value: Value) -> int | None:
    return value if isinstance(value, int) and 0 <= value <= _MAX_OCTET else None


def _seconds(value: Value) -> int | None:
    return int(value) // 1000 if isinstance(value, int) and value >= 0 else None


def _short(value: Value) -> str | None:
    return str(value) if _is_short(value) else None


def _is_short(value: Value) -> bool:
    return isinstance(value, str) and len(value.encode()) <= _MAX_SHORT_BYTES


def _id(value: Value, name: str, headers: dict[str, Value]) -> str | None:
    """Return an id as text; if it is binary or too long, add it to the headers instead."""
    if isinstance(value, UUID):
        return value.urn
    if isinstance(value, int):
        return str(value)
    if value is not None and not _is_short(value):
        headers[name] = _field(value)
    return _short(value)


def _field(value: Value) -> Any:
    """Return the value of a header in a type of AMQP 0.9.1."""
    return _FIELDS[type(value)](value)


def _same(value: Value) -> Any:
    return value


def _integer(value: int) -> int | str:
    return int(value) if abs(value) <= _MAX_LONG else str(value)


def _time(value: Timestamp) -> datetime | int:
    try:
        return _EPOCH + timedelta(milliseconds=value) if value >= 0 else int(value)
    except OverflowError:
        return int(value)


def _array(values: list[Value] | tuple[Value, ...]) -> list[Any]:
    return [_field(value) for value in values]


def _table(values: dict[Value, Value]) -> dict[str, Any]:
    return {str(key): _field(value) for key, value in values.items() if _is_short(key)}


_FIELDS: dict[type, Callable[[Any], Any]] = {
    type(None): _same,
    bool: _same,
    int: _integer,
    float: str,
    str: _same,
    Symbol: str,
    Char: str,
    bytes: _same,
    UUID: str,
    Timestamp: _time,
    Decimal: Decimal.hex,
    Described: lambda value: _field(value.value),
    list: _array,
    tuple: _array,
    dict: _table,
}
