"""AMQP 1.0 values as JSON, for people and programs that read archives on the command line.

    null, booleans, numbers    unchanged; numbers that are not finite as text, "nan" or "inf"
    strings, symbols, chars    text
    binary                     text if it is UTF-8, else {"base64": "..."}
    uuid                       text
    timestamp                  text, RFC 3339
    decimal                    {"decimal": "hex digits"}
    described value            {"descriptor": ..., "value": ...}
    list, array                array
    map                        object; an array of [key, value] if any key is not text
    header, properties         object of the fields that are set

The conversion cannot be undone: strings, symbols and bytes all become text.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from uuid import UUID

from coldstream.format.amqp.sections import Header, Properties
from coldstream.format.amqp.types import Char, Decimal, Described, Symbol, Timestamp, Value
from coldstream.units import TimestampMs, format_timestamp


def to_json(value: Value) -> Any:
    """Return the value in types that the `json` module can write and other languages can read."""
    return _CONVERTERS[type(value)](value)


def _same(value: Value) -> Any:
    return value


def _float(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _bytes(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _timestamp(value: Timestamp) -> str:
    return format_timestamp(TimestampMs(value))


def _decimal(value: Decimal) -> dict[str, str]:
    return {"decimal": value.hex()}


def _described(value: Described) -> dict[str, Any]:
    return {"descriptor": to_json(value.descriptor), "value": to_json(value.value)}


def _array(values: list[Value] | tuple[Value, ...]) -> list[Any]:
    return [to_json(value) for value in values]


def _map(value: dict[Value, Value]) -> Any:
    if all(isinstance(key, str) for key in value):
        return {str(key): to_json(item) for key, item in value.items()}
    return [[to_json(key), to_json(item)] for key, item in value.items()]


def _fields(value: Header | Properties) -> dict[str, Any]:
    return {name: to_json(item) for name, item in value._asdict().items() if item is not None}


_CONVERTERS: dict[type, Callable[[Any], Any]] = {
    type(None): _same,
    bool: _same,
    int: _same,
    float: _float,
    str: _same,
    Symbol: str,
    Char: str,
    bytes: _bytes,
    UUID: str,
    Timestamp: _timestamp,
    Decimal: _decimal,
    Described: _described,
    list: _array,
    tuple: _array,
    dict: _map,
    Header: _fields,
    Properties: _fields,
}
