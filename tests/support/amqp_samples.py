"""AMQP 1.0 messages with every kind of section and of value, as another library encodes them."""

from __future__ import annotations

import uuid
from typing import Any

from rstream import AMQPMessage
from rstream._pyamqp.message import Header, Properties

LONG_TEXT = "straße " * 50
SOME_UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def encode(**sections: Any) -> bytes:
    """Encode a message; `delivery_annotations` go behind the header, where they belong (rstream puts them last)."""
    header = {"header": sections.pop("header", None)}
    delivery = {"delivery_annotations": sections.pop("delivery_annotations", None)}
    return b"".join(bytes(AMQPMessage(**part)) for part in (header, delivery, sections))


def typed(kind: str, value: Any) -> dict[str, Any]:
    """Say of which AMQP type a value is, where Python's own type does not."""
    return {"TYPE": kind, "VALUE": value}


EVERY_SIMPLE_VALUE = {
    "null": None,
    "true": True,
    "false": False,
    "ubyte": typed("UBYTE", 255),
    "ushort": typed("USHORT", 65_535),
    "uint-0": typed("UINT", 0),
    "uint-small": typed("UINT", 255),
    "uint": typed("UINT", 4_294_967_295),
    "ulong-0": typed("ULONG", 0),
    "ulong-small": typed("ULONG", 255),
    "ulong": typed("ULONG", 18_446_744_073_709_551_615),
    "byte": typed("BYTE", -128),
    "short": typed("SHORT", -32_768),
    "int-small": typed("INT", -128),
    "int": typed("INT", -2_147_483_648),
    "long-small": typed("LONG", -128),
    "long": typed("LONG", -9_223_372_036_854_775_808),
    "float": typed("FLOAT", 0.5),
    "double": 0.1,
    "timestamp": typed("TIMESTAMP", 1_763_700_000_123),
    "uuid": SOME_UUID,
    "binary": b"\x00\xff",
    "binary-long": bytes(range(256)) * 2,
    "string": "grün",
    "string-long": LONG_TEXT,
    "symbol": typed("SYMBOL", b"symbol"),
}

MESSAGES: dict[str, bytes] = {
    "data": encode(body=b"hello"),
    "empty data": encode(application_properties={"empty": True}) + bytes.fromhex("005375a000"),
    "long data": encode(body=bytes(range(256)) * 8),
    "two data sections": encode(body=b"one") + encode(body=b"two"),
    "value string": encode(value="grün"),
    "value null": bytes.fromhex("00537740"),
    "value map": encode(value={"a": [1, "two", {"three": 3}], "b": True}),
    "value array": encode(value=[typed("ARRAY", [typed("INT", 1), typed("INT", 2), typed("INT", -300)])]),
    "value described": encode(value=(typed("SYMBOL", b"example:point"), [1, 2])),
    "sequence": encode(sequence=[[1, "two", None]]),
    "two sequences": encode(sequence=[[1, 2], ["three"]]),
    "properties": encode(
        properties=Properties(
            message_id="id-1",
            user_id=b"guest",
            to="queue",
            subject="subject",
            reply_to="back",
            correlation_id=SOME_UUID,
            content_type="text/plain",
            content_encoding="gzip",
            absolute_expiry_time=1_763_700_000_123,
            creation_time=1_763_700_000_000,
            group_id="group",
            group_sequence=7,
            reply_to_group_id="other",
        ),
        body=b"body",
    ),
    "message id ulong": encode(properties=Properties(message_id=18_446_744_073_709_551_615), body=b"body"),
    "message id binary": encode(properties=Properties(message_id=b"\x00\x01"), body=b"body"),
    "application properties": encode(application_properties=EVERY_SIMPLE_VALUE, body=b"body"),
    "every section": encode(
        header=Header(durable=True, priority=5, ttl=60_000, first_acquirer=False, delivery_count=2),
        delivery_annotations={"x-delivery": "d"},
        message_annotations={"x-exchange": "e", "x-list": [1, "two"]},
        properties=Properties(message_id="id-2"),
        application_properties={"key": "value"},
        body=b"body",
        footer={"x-crc": 42},
    ),
}
