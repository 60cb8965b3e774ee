"""Rows: what is a message in a table, column by column.

    column                  type
    value                   binary                  the body
    stream                  string                  name of the stream
    offset                  int64
    chunk_timestamp         timestamp, us, UTC      when the broker wrote the chunk
    properties              struct                  the standard properties: ids as text, times as timestamps
    application_properties  map of string, string   the publisher's own; of AMQP 0.9.1, the headers
    message_annotations     map of string, string
    creation_time           timestamp, us, UTC      of the properties
    routing_key             string                  the annotation x-routing-key, which the broker writes for messages
                                                    published to an exchange; else the property routing_key

The body is its bytes where it is data, UTF-8 where it is text, JSON (amqp_json.py) where it is another AMQP value or a
sequence, null where there is none. What is not AMQP, or is damaged, is a value and nothing else. Times outside the
years 1 to 9999 are null. The data source for Spark has the same columns.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa

from coldstream.errors import CorruptionError
from coldstream.format.amqp_json import to_json
from coldstream.format.amqp_types import Timestamp, Value
from coldstream.format.message import Message
from coldstream.format.sections import Properties

_TIME = pa.timestamp("us", tz="UTC")
_PAIRS = pa.map_(pa.string(), pa.string())
_TIMES = frozenset({"absolute_expiry_time", "creation_time"})
_MOST_INT64 = (1 << 63) - 1
_LEAST_MS = -62_135_596_800_000
_MOST_MS = 253_402_300_799_999
"""The years 1 to 9999, which are what the calendars of most readers have."""

_PROPERTIES: dict[str, pa.DataType] = {
    name: _TIME if name in _TIMES else pa.int64() if name == "group_sequence" else pa.string()
    for name in Properties._fields
} | {"user_id": pa.binary()}

SCHEMA = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("chunk_timestamp", _TIME),
        pa.field("properties", pa.struct(list(_PROPERTIES.items()))),
        pa.field("application_properties", _PAIRS),
        pa.field("message_annotations", _PAIRS),
        pa.field("creation_time", _TIME),
        pa.field("routing_key", pa.string()),
    ]
)

Row = dict[str, Any]
"""A row by its columns' names: maps are dicts, timestamps datetimes."""

Transform = Callable[[Row], Row | None]
"""Returns a row in the place of one, or None to leave it out. The same for the same, each time."""


def to_rows(messages: Iterable[Message], stream: str) -> pa.RecordBatch:
    """Return messages as rows of SCHEMA. Cost: about 2 us for one that is data only, 20 us for one with properties."""
    cells = [_cells(message, stream) for message in messages]
    columns = zip(*cells, strict=True) if cells else ([] for _ in SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def transformed(rows: pa.RecordBatch, transform: Transform) -> pa.RecordBatch:
    """Return rows as a function makes them; which stream, offset and time they are of, it does not change."""
    found: list[Row] = []
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        origin = {name: row[name] for name in ("stream", "offset", "chunk_timestamp")}
        made = transform(row)
        if made is not None:
            found.append(made | origin)
    return pa.RecordBatch.from_pylist(found, schema=rows.schema)


def json_line(row: Row) -> bytes:
    """Write a row as JSON: `value` where the body is UTF-8, else `value_base64`; nulls are left out."""
    return f"{json.dumps(_readable(row), ensure_ascii=False)}\n".encode()


def _cells(message: Message, stream: str) -> tuple[Any, ...]:
    where = stream, message.offset, _microseconds(message.timestamp)
    try:
        properties = None if message.properties is None else _properties(message.properties)
        return (
            _body(message),
            *where,
            properties,
            _texts(message.application_properties),
            _texts(message.message_annotations),
            None if properties is None else properties["creation_time"],
            _routing_key(message),
        )
    except CorruptionError:
        return (message.raw, *where, None, None, None, None, None)


def _body(message: Message) -> bytes | None:
    body = message.body
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(to_json(body), ensure_ascii=False).encode()


def _properties(properties: Properties) -> Row:
    return {name: _property(_PROPERTIES[name], value) for name, value in properties._asdict().items()}


def _property(kind: pa.DataType, value: Value) -> Value:
    """Take a property as its column's type."""
    if value is None:
        return None
    if kind == _TIME:
        return _microseconds(value) if isinstance(value, Timestamp) else None
    if kind == pa.int64():
        return value if type(value) is int and abs(value) <= _MOST_INT64 else None
    if kind == pa.binary():
        return bytes(value) if isinstance(value, bytes) else _text(value).encode()
    return _text(value)


def _routing_key(message: Message) -> str | None:
    for pairs, key in ((message.message_annotations, "x-routing-key"), (message.application_properties, "routing_key")):
        if pairs is not None and pairs.get(key) is not None:
            return _text(pairs[key])
    return None


def _microseconds(timestamp: int) -> int | None:
    return timestamp * 1000 if _LEAST_MS <= timestamp <= _MOST_MS else None


def _texts(values: dict[Value, Value] | None) -> list[tuple[str, str | None]] | None:
    if values is None:
        return None
    # Keys that differ in type alone are one here.
    return list({_text(key): None if value is None else _text(value) for key, value in values.items()}.items())


def _text(value: Value) -> str:
    """Write a value as text: as it is where JSON has it as text, else as JSON."""
    found = to_json(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _readable(row: Row) -> Row:
    readable: Row = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, dict):
            readable[name] = _readable(value)
        elif isinstance(value, datetime):
            readable[name] = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        elif isinstance(value, bytes):
            try:
                readable[name] = value.decode()
            except UnicodeDecodeError:
                readable[f"{name}_base64"] = b64encode(value).decode()
        else:
            readable[name] = value
    return readable
