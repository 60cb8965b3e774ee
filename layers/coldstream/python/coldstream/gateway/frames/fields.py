"""The fields that frames are made of, each of which reads itself from a cursor and appends itself to bytes.

    field; all integers big-endian
    u8 u16 u32 u64 i64   an integer
    text                 length i16, then UTF-8; length -1 is None
    blob                 length i32, then bytes; length -1 is None
    list                 count i32, then the items
    pairs                a list of text, text
    offset spec          type u16: 0 none, 1 first, 2 last, 3 next, 4 offset (then u64), 5 timestamp (then i64, ms)

Upstream: PROTOCOL.adoc and rabbit_stream_core.erl of rabbitmq_stream.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from coldstream.errors import BadFrameError
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset, TimestampMs

NO_SPEC = 0
_MAX_TEXT_BYTES = 0x7FFF
_ENDS: dict[int, OffsetSpec] = {1: FIRST, 2: LAST, 3: NEXT}
_OFFSET, _TIMESTAMP = 4, 5


class FieldCursor:
    """Reads the fields of one frame in order. Raises BadFrameError where the frame ends too early or makes no sense."""

    __slots__ = ("at", "view")

    def __init__(self, view: memoryview | bytes, at: int = 0) -> None:
        self.view = memoryview(view)
        self.at = at

    @property
    def left(self) -> int:
        """The bytes that are left."""
        return len(self.view) - self.at

    def take(self, size_bytes: int, what: str) -> memoryview:
        """Return the next bytes."""
        if size_bytes > self.left:
            raise BadFrameError(f"the frame ends within {what}, at byte {len(self.view)}")
        found = self.view[self.at : self.at + size_bytes]
        self.at += size_bytes
        return found


class Field(NamedTuple):
    """How a field is read and written."""

    read: Callable[[FieldCursor], Any]
    write: Callable[[Any, bytearray], None]


def _integer(code: str) -> Field:
    packed = struct.Struct(f">{code}")

    def read(cursor: FieldCursor) -> int:
        number: int = packed.unpack(cursor.take(packed.size, "an integer"))[0]
        return number

    def write(value: int, out: bytearray) -> None:
        out += packed.pack(value)

    return Field(read, write)


U8, U16, U32, U64, I64 = map(_integer, "BHIQq")
_I16, _I32 = _integer("h"), _integer("i")


def _read_text(cursor: FieldCursor) -> str | None:
    size_bytes = _I16.read(cursor)
    if size_bytes == -1:
        return None
    if size_bytes < 0:
        raise BadFrameError(f"a text of {size_bytes} bytes, at byte {cursor.at}")
    try:
        return str(cursor.take(size_bytes, "a text"), "utf-8")
    except UnicodeDecodeError as err:
        raise BadFrameError(f"a text that is not UTF-8, before byte {cursor.at}") from err


def _write_text(value: str | None, out: bytearray) -> None:
    encoded = b"" if value is None else value.encode()
    if len(encoded) > _MAX_TEXT_BYTES:
        raise BadFrameError(f"a text of {len(encoded)} bytes is too long for a frame")
    _I16.write(-1 if value is None else len(encoded), out)
    out += encoded


TEXT = Field(_read_text, _write_text)


def _read_blob(cursor: FieldCursor) -> bytes | None:
    size_bytes = _I32.read(cursor)
    if size_bytes == -1:
        return None
    if size_bytes < 0:
        raise BadFrameError(f"{size_bytes} bytes, at byte {cursor.at}")
    return bytes(cursor.take(size_bytes, "bytes"))


def _write_blob(value: bytes | None, out: bytearray) -> None:
    _I32.write(-1 if value is None else len(value), out)
    out += value or b""


BLOB = Field(_read_blob, _write_blob)


def many(item: Field, *, least_bytes: int) -> Field:
    """Return a list of a field of which each takes `least_bytes` or more, which bounds the count."""

    def read(cursor: FieldCursor) -> tuple[Any, ...]:
        count = _I32.read(cursor)
        if not 0 <= count * least_bytes <= cursor.left:
            raise BadFrameError(f"a list of {count} items in {cursor.left} bytes, at byte {cursor.at}")
        return tuple([item.read(cursor) for _ in range(count)])

    def write(value: tuple[Any, ...], out: bytearray) -> None:
        _I32.write(len(value), out)
        for each in value:
            item.write(each, out)

    return Field(read, write)


def together(*fields: Field) -> Field:
    """Return fields that stand one after the other, as a tuple."""

    def read(cursor: FieldCursor) -> tuple[Any, ...]:
        return tuple([field.read(cursor) for field in fields])

    def write(value: tuple[Any, ...], out: bytearray) -> None:
        for field, each in zip(fields, value, strict=True):
            field.write(each, out)

    return Field(read, write)


_PAIR_LIST = many(together(TEXT, TEXT), least_bytes=4)


def _read_pairs(cursor: FieldCursor) -> dict[str, str]:
    # Absent at the end of a frame is none: some clients leave an empty list out, and so do brokers.
    if not cursor.left:
        return {}
    return {key or "": value or "" for key, value in _PAIR_LIST.read(cursor)}


def _write_pairs(value: dict[str, str], out: bytearray) -> None:
    _PAIR_LIST.write(tuple(value.items()), out)


PAIRS = Field(_read_pairs, _write_pairs)
TEXTS = many(TEXT, least_bytes=2)


def _read_spec(cursor: FieldCursor) -> OffsetSpec | None:
    kind = U16.read(cursor)
    if kind == NO_SPEC:
        return None
    if kind == _OFFSET:
        return AtOffset(Offset(U64.read(cursor)))
    if kind == _TIMESTAMP:
        return AtTimestamp(TimestampMs(I64.read(cursor)))
    if kind not in _ENDS:
        raise BadFrameError(f"an offset spec of type {kind}, before byte {cursor.at}")
    return _ENDS[kind]


def _write_spec(value: OffsetSpec | None, out: bytearray) -> None:
    match value:
        case None:
            U16.write(NO_SPEC, out)
        case AtOffset(offset):
            U16.write(_OFFSET, out)
            U64.write(offset, out)
        case AtTimestamp(timestamp):
            U16.write(_TIMESTAMP, out)
            I64.write(timestamp, out)
        case _:
            U16.write(next(kind for kind, spec in _ENDS.items() if spec == value), out)


SPEC = Field(_read_spec, _write_spec)
