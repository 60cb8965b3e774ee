"""The cells of a row: what each column has of a decoded message."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa

from coldstream.errors import BadLengthError, CorruptionError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.message import Message
from coldstream.format.amqp.types import Timestamp, Value
from coldstream.rows.schema import PROPERTIES, TIME, microseconds

MAX_CELL_BYTES = (1 << 31) - 1
"""The most bytes that a cell may have: Arrow's and Spark's types hold no more in one value, text or map."""

_MOST_INT64 = (1 << 63) - 1
_ROUTING_KEY = "x-routing-key"


def cells(message: Message, columns: Sequence[str]) -> list[Value]:
    """Return cells for some of the columns in DECODED. If a message is not AMQP or damaged, its value is all of it."""
    try:
        return [DECODED[column](message) for column in columns]
    except CorruptionError:
        return [message.raw if column == "value" else None for column in columns]


def content_bytes(row: Sequence[Value], message: Message) -> int:
    """Return how many bytes the cells of a message hold. Raises BadLengthError if one is too large."""
    sizes = [_size(cell) for cell in row]
    if max(sizes, default=0) > MAX_CELL_BYTES:
        raise BadLengthError(
            f"{message.source}, message at offset {message.offset}",
            0,
            "a cell of a table",
            expected=f"at most {MAX_CELL_BYTES} bytes",
            found=max(sizes),
        )
    return sum(sizes)


def _size(cell: Value) -> int:
    if isinstance(cell, bytes):
        return len(cell)
    if isinstance(cell, str):
        return len(cell) if cell.isascii() else len(cell.encode())
    if isinstance(cell, dict):
        return sum(map(_size, cell.values()))
    if isinstance(cell, list | tuple):
        return sum(map(_size, cell))
    return 0


def _value(message: Message) -> bytes | None:
    body = message.body
    if body is None and not message.raw:
        return b""  # how some clients publish an empty body: as no bytes at all
    if body is None or type(body) is bytes:
        return body
    return body.encode() if isinstance(body, str) else _as_json(body).encode()


def _properties(message: Message) -> dict[str, Value] | None:
    properties = message.properties
    if properties is None:
        return None
    return {
        name: None if value is None else _CONVERTERS[kind](value)
        for (name, kind), value in zip(PROPERTIES.items(), properties, strict=True)
    }


def _creation_time(message: Message) -> int | None:
    properties = message.properties
    return None if properties is None else _time(properties.creation_time)


def _routing_key(message: Message) -> str | None:
    for pairs, key in ((message.message_annotations, _ROUTING_KEY), (message.application_properties, "routing_key")):
        if pairs is not None and pairs.get(key) is not None:
            return _text(pairs[key])
    return None


def _pairs(section: dict[Value, Value] | None) -> list[tuple[str, str | None]] | None:
    if section is None:
        return None
    # By way of a dict: keys that differ only in type become the same text, and a map has each key once.
    return list({_text(key): None if value is None else _text(value) for key, value in section.items()}.items())


def _text(value: Value) -> str:
    """Return text as it is, bytes as text if they are UTF-8, and anything else as JSON."""
    if isinstance(value, str):
        return str(value)
    shown = to_json(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _as_json(value: Value) -> str:
    return json.dumps(to_json(value), ensure_ascii=False)


def _time(value: Value) -> int | None:
    return microseconds(value) if isinstance(value, Timestamp) else None


def _binary(value: Value) -> bytes:
    return bytes(value) if isinstance(value, bytes) else _text(value).encode()


def _whole(value: Value) -> int | None:
    return value if type(value) is int and abs(value) <= _MOST_INT64 else None


_CONVERTERS: dict[pa.DataType, Callable[[Value], Value]] = {
    pa.string(): _text,
    pa.binary(): _binary,
    pa.int64(): _whole,
    TIME: _time,
}
DECODED: dict[str, Callable[[Message], Value]] = {
    "value": _value,
    "properties": _properties,
    "application_properties": lambda message: _pairs(message.application_properties),
    "message_annotations": lambda message: _pairs(message.message_annotations),
    "creation_time": _creation_time,
    "routing_key": _routing_key,
}
"""The columns that need the message. All others follow from its chunk."""
