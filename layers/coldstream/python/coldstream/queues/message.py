"""A message of AMQP 0.9.1 as a broker writes it into a stream: in AMQP 1.0.

    AMQP 0.9.1                       AMQP 1.0
    delivery_mode, priority,         header: durable, priority, ttl
    expiration
    exchange, routing key            message annotations x-exchange, x-routing-key
    CC, an array                     message annotation x-cc
    headers x-...                    message annotations
    type                             message annotation x-basic-type
    other headers                    application properties
    message_id, user_id, reply_to,   properties of the same name; an id that is urn:uuid:... is a uuid
    correlation_id, content_type,
    content_encoding
    timestamp, app_id                properties: creation_time, group_id
    the body                         a data section; with the type amqp-1.0, the sections that it is

A header keeps its type; a string that is no UTF-8 becomes binary. Where releases differ, this follows the newer ones
(4.x), with three exceptions, so that nothing is lost: arrays and tables of headers without x- stay, which those drop; a
decimal becomes its text, which no broker can write into a stream; and `reply_to` stays as it is, which 4.3 makes an
address. `cluster_id` is dropped. `replay.amqp091` is the other direction.

The bytes depend on nothing but the delivery: a message that is delivered again gives the same ones.

Upstream: `mc_amqpl.erl` (convert_to), `mc_amqp.erl` (protocol_state), `amqp10_binary_generator.erl`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from coldstream.errors import CorruptionError, InvalidInputError
from coldstream.format.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    locate,
)
from coldstream.queues.delivery import Delivery
from coldstream.queues.fields import BasicFields, HeaderField

_AMQP_TYPE = b"amqp-1.0"
_PERSISTENT = 2
_MAX_SHORT = 255
_MAX_TTL = (1 << 32) - 1
_NULL = b"\x40"
_EMPTY = b"\x45"  # a list
_URN = b"urn:uuid:"
_STORED = {
    b"x-amqp-1.0-message-annotations": MESSAGE_ANNOTATIONS,
    b"x-amqp-1.0-properties": PROPERTIES,
    b"x-amqp-1.0-app-properties": APPLICATION_PROPERTIES,
    b"x-amqp-1.0-footer": FOOTER,
}
"""Headers in which brokers before 4.0 keep whole sections of a message that was published by AMQP 1.0."""


def to_amqp10(delivery: Delivery, *, source: str) -> bytes:
    """Return a delivery as a stream holds it. Raises InvalidInputError, naming `source`, if its headers are malformed.

    Nothing of a message is checked but that: brokers write any.
    """
    try:
        fields = BasicFields.from_bytes(delivery.properties, source=source)
    except CorruptionError as err:
        raise InvalidInputError("message", str(err)) from err
    headers = fields.headers or ()
    stored = {_STORED[one.name]: one.value for one in headers if one.name in _STORED and isinstance(one.value, bytes)}
    annotations = [
        (_symbol(one.name), _of(one)) for one in headers if one.name.startswith(b"x-") and one.name not in _STORED
    ]
    annotations += [(_symbol(b"x-cc"), _of(one)) for one in headers if one.name == b"CC" and one.kind == "A"]
    if fields.type is not None:
        annotations.append((_symbol(b"x-basic-type"), _utf8(fields.type)))
    routed = (
        (_symbol(b"x-exchange"), _utf8(delivery.exchange)),
        (_symbol(b"x-routing-key"), _utf8(delivery.routing_key)),
    )
    own = [one for one in headers if not one.name.startswith(b"x-") and not (one.name == b"CC" and one.kind == "A")]
    parts = [_section(HEADER, _header(fields))]
    known = {key for key, _ in routed}
    parts.append(
        _section(MESSAGE_ANNOTATIONS, _map([*routed, *(pair for pair in annotations if pair[0] not in known)]))
    )
    properties = _properties(fields)
    if PROPERTIES in stored:
        parts.append(stored[PROPERTIES])
    elif properties != _EMPTY:
        parts.append(_section(PROPERTIES, properties))
    if APPLICATION_PROPERTIES in stored:
        parts.append(stored[APPLICATION_PROPERTIES])
    elif own:
        parts.append(_section(APPLICATION_PROPERTIES, _map([(_utf8(one.name), _of(one)) for one in own])))
    parts.append(_body(fields, delivery.body))
    parts.append(stored.get(FOOTER, b""))
    return b"".join(parts)


def _header(fields: BasicFields) -> bytes:
    ttl = None
    if fields.expiration is not None and fields.expiration.isdigit():
        ttl = int(fields.expiration)
    return _list(
        [
            b"\x41" if fields.delivery_mode == _PERSISTENT else b"\x42",
            _NULL if fields.priority is None else bytes((0x50, fields.priority)),
            _NULL if ttl is None or ttl > _MAX_TTL else _uint(ttl),
            b"\x41",  # first acquirer
            b"\x43",  # delivery count, 0
        ]
    )


def _properties(fields: BasicFields) -> bytes:
    seconds = fields.timestamp
    return _list(
        [
            _id(fields.message_id),
            _optional(_binary, fields.user_id),
            _NULL,  # to
            _NULL,  # subject
            _optional(_utf8, fields.reply_to),
            _id(fields.correlation_id),
            _optional(_symbol, fields.content_type),
            _optional(_symbol, fields.content_encoding),
            _NULL,  # absolute_expiry_time
            _NULL if seconds is None else _timestamp(seconds),
            _optional(_utf8, fields.app_id),
        ]
    )


def _body(fields: BasicFields, body: bytes) -> bytes:
    if fields.type == _AMQP_TYPE:
        # Whoever likes may publish with that type: bytes that are no sections of a body are data like any.
        with suppress(CorruptionError):
            sections = locate(body, source="body")
            if sections and sections.keys() <= {DATA, SEQUENCE, VALUE, FOOTER}:
                return body
    return _section(DATA, _binary(body))


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value


def _id(value: bytes | None) -> bytes:
    if value is not None and value.startswith(_URN):
        with suppress(ValueError):
            found = UUID(value[len(_URN) :].decode(errors="replace"))
            if found.urn.encode() == value:
                return b"\x98" + found.bytes
    return _optional(_utf8, value)


def _optional(encode: Callable[[bytes], bytes], value: bytes | None) -> bytes:
    return _NULL if value is None else encode(value)


def _sized(narrow: int, data: bytes) -> bytes:
    """Encode bytes under a constructor: `narrow` for up to 255, the one 16 after it for more."""
    if len(data) <= _MAX_SHORT:
        return bytes((narrow, len(data))) + data
    return struct.pack(">BI", narrow + 0x10, len(data)) + data


def _binary(data: bytes) -> bytes:
    return _sized(0xA0, data)


def _utf8(data: bytes) -> bytes:
    return _sized(0xA1, data)


def _symbol(data: bytes) -> bytes:
    return _sized(0xA3, data)


def _compound(narrow: int, values: Iterable[bytes]) -> bytes:
    """Encode a list or a map: a size that counts the count, the count, the values."""
    values = list(values)
    data = b"".join(values)
    if len(data) < _MAX_SHORT and len(values) <= _MAX_SHORT:
        return bytes((narrow, len(data) + 1, len(values))) + data
    return struct.pack(">BII", narrow + 0x10, len(data) + 4, len(values)) + data


def _list(values: list[bytes]) -> bytes:
    while values and values[-1] == _NULL:
        values.pop()  # fields at the end that are null may be left out, and are
    return _compound(0xC0, values) if values else _EMPTY


def _map(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    return _compound(0xC1, (part for pair in pairs for part in pair))


def _uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value <= _MAX_SHORT else struct.pack(">BI", 0x70, value)


def _small(narrow: int, wide: int, layout: str) -> Callable[[int], bytes]:
    """Encode a signed number in one byte where it fits."""

    def encode(value: int) -> bytes:
        if -128 <= value <= 127:  # noqa: PLR2004  a signed byte
            return struct.pack(">Bb", narrow, value)
        return struct.pack(f">B{layout}", wide, value)

    return encode


def _fixed(constructor: int, layout: str) -> Callable[[Any], bytes]:
    number = struct.Struct(f">B{layout}")
    return lambda value: number.pack(constructor, value)


def _timestamp(seconds: int) -> bytes:
    # A broker's integers have no bound; what 64 bits cannot hold is as late as can be.
    return struct.pack(">Bq", 0x83, min(seconds * 1000, (1 << 63) - 1))


def _text(value: bytes) -> bytes:
    try:
        value.decode()
    except UnicodeDecodeError:
        return _binary(value)
    return _utf8(value)


def _decimal(value: tuple[int, int]) -> bytes:
    scale, unscaled = value
    return _utf8(str(Decimal(unscaled).scaleb(-scale)).encode())


def _array(values: tuple[HeaderField, ...]) -> bytes:
    return _compound(0xC0, [_of(one) for one in values]) if values else _EMPTY


def _table(values: tuple[HeaderField, ...]) -> bytes:
    return _map((_symbol(one.name), _of(one)) for one in values)


def _of(field: HeaderField) -> bytes:
    return _KINDS[field.kind](field.value)


_KINDS: dict[str, Callable[[Any], bytes]] = {
    "t": _fixed(0x56, "?"),
    "b": _fixed(0x51, "b"),
    "B": _fixed(0x50, "B"),
    "s": _fixed(0x61, "h"),
    "u": _fixed(0x60, "H"),
    "I": _small(0x54, 0x71, "i"),
    "i": _uint,
    "l": _small(0x55, 0x81, "q"),
    "f": _fixed(0x72, "f"),
    "d": _fixed(0x82, "d"),
    "D": _decimal,
    "T": _timestamp,
    "S": _text,
    "x": _binary,
    "A": _array,
    "F": _table,
    "V": lambda _: _NULL,
}
