"""The properties of an AMQP 0.9.1 message, with the types of all header fields.

    properties    flags u16 · the fields whose flag is set, in the order of the flags from the highest bit on

    bit  field             type            bit  field           type
    15   content_type      short string    8    expiration      short string
    14   content_encoding  short string    7    message_id      short string
    13   headers           table           6    timestamp       u64, seconds since the Unix epoch
    12   delivery_mode     u8              5    type            short string
    11   priority          u8              4    user_id         short string
    10   correlation_id    short string    3    app_id          short string
    9    reply_to          short string    2    cluster_id      short string

    short string  size u8 · bytes
    table         size u32 · names (short strings) and values in turn
    value         kind, one letter · content

    t bool · b i8 · B u8 · s i16 · u u16 · I i32 · i u32 · l i64 · f float · d double · D scale u8 and i32 · T u64 s
    S and x: size u32 · bytes · A: size u32 · values · F: table · V: nothing

All integers are big-endian. The letters are RabbitMQ's, which differ from the specification's. It is our own because
pika's decoder makes integers of floats, and forgets how wide integers were; a broker keeps both.

Upstream: `rabbit_binary_parser.erl` (parse_table), `rabbit_framing_amqp_0_9_1.erl` (decode_properties).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from coldstream.errors import BadLengthError, BadVersionError

FieldValue: TypeAlias = Any
"""None, bool, int, float, bytes; for a table or an array a tuple of fields, those of an array without names."""

MAX_DEPTH = 64
"""Levels of tables and arrays within each other at most."""


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A header, or a value within one: its name, the letter of its kind, and its value."""

    name: bytes
    kind: str
    value: FieldValue


@dataclass(frozen=True, slots=True)
class BasicFields:
    """The properties that a message has; None is one that it has not. Strings are bytes: publishers send any."""

    content_type: bytes | None = None
    content_encoding: bytes | None = None
    headers: tuple[HeaderField, ...] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: bytes | None = None
    reply_to: bytes | None = None
    expiration: bytes | None = None
    message_id: bytes | None = None
    timestamp: int | None = None
    type: bytes | None = None
    user_id: bytes | None = None
    app_id: bytes | None = None
    cluster_id: bytes | None = None

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> BasicFields:
        """Read the properties of a content header. Raises BadLengthError, BadVersionError for an unknown kind."""
        try:
            return cls._read(data, source)
        except (IndexError, struct.error) as err:
            raise BadLengthError(source, 0, "the properties of a message run past their end") from err

    @classmethod
    def _read(cls, data: bytes, source: str) -> BasicFields:
        (flags,) = _U16.unpack_from(data)
        at = 2
        found: dict[str, Any] = {}
        for bit, (name, kind) in zip(range(15, 1, -1), _PROPERTIES, strict=True):
            if not flags >> bit & 1:
                continue
            if kind == "F":
                found[name], at = _fields(data, at, source, MAX_DEPTH, named=True)
            elif kind in _NUMBERS:
                found[name], at = _NUMBERS[kind].unpack_from(data, at)[0], at + _NUMBERS[kind].size
            else:
                found[name], at = _short(data, at)
        if at != len(data):
            raise BadLengthError(source, at, "end of the properties", expected=len(data), found=at)
        return cls(**found)


def _fields(data: bytes, at: int, source: str, depth: int, *, named: bool) -> tuple[tuple[HeaderField, ...], int]:
    """Read a table, or an array, from the size on."""
    if not depth:
        raise BadLengthError(source, at, "depth of header tables", expected=f"at most {MAX_DEPTH}", found="more")
    end = at + 4 + _U32.unpack_from(data, at)[0]
    at += 4
    found: list[HeaderField] = []
    while at < end:
        name, at = _short(data, at) if named else (b"", at)
        kind = chr(data[at])
        value, at = _value(data, at + 1, kind, source, depth)
        found.append(HeaderField(name, kind, value))
    if at != end:
        raise BadLengthError(source, at, "end of a header table", expected=end, found=at)
    return tuple(found), end


def _value(data: bytes, at: int, kind: str, source: str, depth: int) -> tuple[FieldValue, int]:
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return number.unpack_from(data, at)[0], at + number.size
    if kind in "Sx":
        return _sized(data, at + 4, _U32.unpack_from(data, at)[0])
    if kind in "FA":
        return _fields(data, at, source, depth - 1, named=kind == "F")
    if kind == "D":
        scale, unscaled = _DECIMAL.unpack_from(data, at)
        return (scale, unscaled), at + _DECIMAL.size
    if kind == "V":
        return None, at
    raise BadVersionError(source, at - 1, "kind of a header", found=repr(kind))


def _short(data: bytes, at: int) -> tuple[bytes, int]:
    return _sized(data, at + 1, data[at])


def _sized(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    # A slice past the end is no error in Python, only shorter.
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_DECIMAL = struct.Struct(
    ">"
    "B"  # digits after the point
    "i"  # the number without the point
)
_NUMBERS = {
    kind: struct.Struct(f">{layout}")
    for kind, layout in {
        "t": "?",
        "b": "b",
        "B": "B",
        "s": "h",
        "u": "H",
        "I": "i",
        "i": "I",
        "l": "q",
        "f": "f",
        "d": "d",
        "T": "Q",
    }.items()
}
_PROPERTIES = (
    ("content_type", "short"),
    ("content_encoding", "short"),
    ("headers", "F"),
    ("delivery_mode", "B"),
    ("priority", "B"),
    ("correlation_id", "short"),
    ("reply_to", "short"),
    ("expiration", "short"),
    ("message_id", "short"),
    ("timestamp", "T"),
    ("type", "short"),
    ("user_id", "short"),
    ("app_id", "short"),
    ("cluster_id", "short"),
)
