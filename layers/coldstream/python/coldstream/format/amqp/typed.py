"""The elements of a list or map, each with the name of its AMQP type.

Decoded, a ubyte, an int and a ulong are all an `int`. Whoever looks for why a consumer refuses a message needs to know
which one it was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import BadLengthError, CorruptionError
from coldstream.format.amqp.types import Value
from coldstream.format.amqp.values import decode_prefix

_PREFIXES = {0xC0: (">BB", 1), 0xC1: (">BB", 1), 0xD0: (">II", 4), 0xD1: (">II", 4)}
"""Of a list or map: the struct of size and count, and how many bytes of it the size does not count."""

_EMPTY_LIST = 0x45
_NAMES = {
    0x00: "described",
    0x40: "null",
    0x41: "boolean",
    0x42: "boolean",
    0x43: "uint",
    0x44: "ulong",
    0x45: "list",
    0x50: "ubyte",
    0x51: "byte",
    0x52: "uint",
    0x53: "ulong",
    0x54: "int",
    0x55: "long",
    0x56: "boolean",
    0x60: "ushort",
    0x61: "short",
    0x70: "uint",
    0x71: "int",
    0x72: "float",
    0x73: "char",
    0x74: "decimal32",
    0x80: "ulong",
    0x81: "long",
    0x82: "double",
    0x83: "timestamp",
    0x84: "decimal64",
    0x94: "decimal128",
    0x98: "uuid",
    0xA0: "binary",
    0xA1: "string",
    0xA3: "symbol",
    0xB0: "binary",
    0xB1: "string",
    0xB3: "symbol",
    0xC0: "list",
    0xC1: "map",
    0xD0: "list",
    0xD1: "map",
    0xE0: "array",
    0xF0: "array",
}


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value, and AMQP's name of its type."""

    type: str
    value: Value


def typed_value(data: bytes, start: int, end: int, *, source: str) -> TypedValue:
    """Decode the one value in `data[start:end]`. Raises the errors of `decode`."""
    value, at = decode_prefix(data, start, source=source)
    if at != end:
        raise BadLengthError(source, start, "end of an AMQP value", expected=end, found=at)
    return TypedValue(_NAMES[data[start]], value)


def typed_elements(data: bytes, start: int, end: int, *, source: str) -> Iterator[TypedValue]:
    """Yield the elements of the list or map in `data[start:end]`; of a map, keys and values in turn.

    Raises CorruptionError for another value, and the errors of `decode`, after the elements before the fault.
    """
    at = start + 1
    count = 0
    if data[start] != _EMPTY_LIST:
        if data[start] not in _PREFIXES:
            raise CorruptionError(source, start, f"neither a list nor a map: constructor 0x{data[start]:02x}")
        layout, uncounted = _PREFIXES[data[start]]
        try:
            size, count = struct.unpack_from(layout, data, at)
        except struct.error as err:
            raise BadLengthError(source, start, "AMQP list or map runs past the end of its message") from err
        if at + uncounted + size != end:
            raise BadLengthError(source, start, "end of an AMQP list or map", expected=end, found=at + uncounted + size)
        at += struct.calcsize(layout)
    for _ in range(count):
        if at >= end:
            raise BadLengthError(source, at, "AMQP list or map with fewer elements than it counts")
        value, following = decode_prefix(data, at, source=source)
        yield TypedValue(_NAMES[data[at]], value)
        at = following
    if at != end:
        raise BadLengthError(source, start, "end of an AMQP list or map", expected=end, found=at)
