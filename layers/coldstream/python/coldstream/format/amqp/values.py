"""AMQP 1.0 values: the type system of messages.

    value          constructor u8 · content
    described      0x00 · value, the descriptor · value

    constructor    content
    0x40           null                       none, as for all 0x4_
    0x41 0x42      true, false
    0x43 0x44      uint 0, ulong 0
    0x45           empty list
    0x50 0x51      ubyte, byte                1 byte, as for all 0x5_
    0x52 0x53      uint, ulong
    0x54 0x55      int, long
    0x56           boolean                    0 or 1
    0x60 0x61      ushort, short              2 bytes
    0x70 0x71      uint, int                  4 bytes, as for all 0x7_
    0x72 0x74      float, decimal32
    0x73           char                       a code point
    0x80 0x81      ulong, long                8 bytes, as for all 0x8_
    0x82 0x84      double, decimal64
    0x83           timestamp                  i64 ms since the Unix epoch
    0x94 0x98      decimal128, uuid           16 bytes
    0xa0 0xb0      binary                     size · bytes, as for all 0xa_ and 0xb_
    0xa1 0xb1      string                     UTF-8
    0xa3 0xb3      symbol                     ASCII
    0xc0 0xd0      list                       size · count · values
    0xc1 0xd1      map                        size · count · keys and values in turn
    0xe0 0xf0      array                      size · count · constructor · contents

All integers are big-endian. Sizes and counts are u8 in 0xa_, 0xc_ and 0xe_, u32 in 0xb_, 0xd_ and 0xf_. A size counts
the bytes that follow it, the count's included. An array's constructor may be described: 0x00 · descriptor ·
constructor.

The decoder is strict about every size, count and constructor, with one exception: a string or symbol that is not UTF-8
comes out as bytes, because brokers (3.10, for one) make strings of any bytes in the headers of an AMQP 0.9.1 message.

It is our own because the decoders of libraries let damage pass. Proton's, 3 MB of native code and slower on messages
this small, takes a truncated message for an empty one. rstream's checks no size and loses symbols, chars and
descriptors.

Upstream: OASIS AMQP 1.0, part 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from coldstream.errors import BadCountError, BadLengthError, BadVersionError, CorruptionError
from coldstream.format.amqp.types import Char, Decimal, Described, Symbol, Timestamp, Value

MAX_DEPTH = 64
"""Levels of values within values at most."""

MAX_EMPTY_ELEMENTS = 4096
"""Array elements without bytes in one value at most: without this bound a dozen bytes could ask for four billion."""


def decode(data: bytes, start: int, end: int, *, source: str) -> Value:
    """Decode the one value in `data[start:end]`.

    Memory is at most 160 times the bytes, for an array of empty symbols. Raises CorruptionError with the byte in
    `data`: BadVersionError for an unknown constructor, BadLengthError, BadCountError.
    """
    value, at = decode_prefix(data, start, source=source)
    if at != end:
        raise BadLengthError(source, start, "end of an AMQP value", expected=end, found=at)
    return value


def decode_prefix(data: bytes, start: int, *, source: str) -> tuple[Value, int]:
    """Decode the value that begins at byte `start`; return it and its end. Raises the errors of `decode`."""
    try:
        return _READERS[data[start]](_Input(data, source), start + 1, MAX_DEPTH)
    except (IndexError, struct.error) as err:
        raise BadLengthError(source, start, "AMQP value runs past the end of its message") from err


def skip(data: bytes, start: int) -> int:
    """Return where the value that begins at byte `start` ends, by its constructor and size, without decoding it.

    Raises IndexError or struct.error if `data` ends before that is known.
    """
    at = start
    values = 1
    while values:
        code = data[at]
        at += 1
        if code == _DESCRIBED:
            # Two values follow instead of one: the descriptor, and what it describes.
            values += 1
            continue
        values -= 1
        width = code >> 4
        if width < _FIRST_SIZED:
            at += _WIDTHS[width]
        elif width & 1:
            at += 4 + U32(data, at)[0]
        else:
            at += 1 + data[at]
    return at


class _Input:
    """The state that the readers of one value share."""

    __slots__ = ("data", "empty_elements", "source")

    def __init__(self, data: bytes, source: str) -> None:
        self.data = data
        self.source = source
        self.empty_elements = 0


_Reader: TypeAlias = Callable[[_Input, int, int], tuple[Value, int]]
"""Reads the content at a byte, with at most so many levels of values below it; returns the value and its end.

IndexError and struct.error pass through: they mean that the content runs past the end of the data.
"""


def _empty(value: Value) -> _Reader:
    def read(_whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
        return value, at

    return read


def _empty_list(_whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
    # A new list each time, which `_empty` would not make: callers own what they get.
    return [], at


def _number(layout: str) -> _Reader:
    number = struct.Struct(f">{layout}")
    unpack, width = number.unpack_from, number.size

    def read(whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
        return unpack(whole.data, at)[0], at + width

    return read


def _fixed(width: int, convert: Callable[[bytes], Value]) -> _Reader:
    def read(whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
        end = at + width
        # A slice past the end is no error in Python, only shorter: nothing else would notice.
        if end > len(whole.data):
            raise _overrun(whole, at, end)
        try:
            return convert(whole.data[at:end]), end
        except ValueError as err:
            raise CorruptionError(whole.source, at, f"content of an AMQP value: {err}") from err

    return read


def _sized8(convert: Callable[[bytes], Value]) -> _Reader:
    def read(whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
        data = whole.data
        start = at + 1
        end = start + data[at]
        if end > len(data):
            raise _overrun(whole, at, end)
        try:
            return convert(data[start:end]), end
        except UnicodeDecodeError:
            return data[start:end], end

    return read


def _sized32(convert: Callable[[bytes], Value]) -> _Reader:
    def read(whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
        data = whole.data
        start = at + 4
        end = start + U32(data, at)[0]
        if end > len(data):
            raise _overrun(whole, at, end)
        try:
            return convert(data[start:end]), end
        except UnicodeDecodeError:
            return data[start:end], end

    return read


def _described(whole: _Input, at: int, depth: int) -> tuple[Value, int]:
    _check_depth(whole, at, depth)
    data = whole.data
    descriptor, at = _READERS[data[at]](whole, at + 1, depth - 1)
    value, at = _READERS[data[at]](whole, at + 1, depth - 1)
    return Described(descriptor, value), at


def _list(prefix: struct.Struct) -> _Reader:
    unpack, prefix_bytes = prefix.unpack_from, prefix.size

    def read(whole: _Input, at: int, depth: int) -> tuple[Value, int]:
        _check_depth(whole, at, depth)
        data, begin = whole.data, at
        size, count = unpack(data, at)
        if count > size:  # every value takes at least a byte
            raise BadCountError(whole.source, begin, "values of an AMQP list", expected=f"at most {size}", found=count)
        at += prefix_bytes
        values: list[Value] = []
        depth -= 1
        for _ in range(count):
            code = data[at]
            if code == _NULL:  # most fields of properties are null
                values.append(None)
                at += 1
            else:
                value, at = _READERS[code](whole, at + 1, depth)
                values.append(value)
        # The size is the first half of the prefix, and counts the bytes after itself.
        _check_end(whole, begin, at, begin + prefix_bytes // 2 + size)
        return values, at

    return read


def _map(prefix: struct.Struct) -> _Reader:
    read_list = _list(prefix)

    def read(whole: _Input, at: int, depth: int) -> tuple[Value, int]:
        values, end = read_list(whole, at, depth)
        if len(values) % 2:
            raise BadCountError(
                whole.source, at, "keys and values of an AMQP map", expected="an even number", found=len(values)
            )
        keys, items = values[::2], values[1::2]
        try:
            # AMQP allows lists and maps as keys, which a dict does not: such a map comes out as pairs.
            return dict(zip(keys, items, strict=True)), end
        except TypeError:
            return tuple(zip(keys, items, strict=True)), end

    return read


def _array(prefix: struct.Struct) -> _Reader:
    unpack, prefix_bytes = prefix.unpack_from, prefix.size

    def read(whole: _Input, at: int, depth: int) -> tuple[Value, int]:
        _check_depth(whole, at, depth)
        data, begin = whole.data, at
        size, count = unpack(data, at)
        at += prefix_bytes
        code = data[at]
        descriptor = None
        if code == _DESCRIBED:
            if data[at + 1] not in _ARRAY_DESCRIPTORS:
                raise _unknown(whole, at + 1, data[at + 1])
            descriptor, at = _READERS[data[at + 1]](whole, at + 2, depth - 1)
            code = data[at]
        if code == _DESCRIBED or code not in _KNOWN:
            raise _unknown(whole, at, code)
        at += 1
        if code >> 4 == _NO_CONTENT:
            # Counted for the whole value: with a bound for each array, arrays within an array would multiply it.
            whole.empty_elements += count
            if whole.empty_elements > MAX_EMPTY_ELEMENTS:
                raise BadCountError(
                    whole.source,
                    begin,
                    "AMQP array elements without content",
                    expected=f"at most {MAX_EMPTY_ELEMENTS}",
                    found=whole.empty_elements,
                )
        read_element = _READERS[code]
        values = []
        for _ in range(count):
            value, at = read_element(whole, at, depth - 1)
            values.append(value if descriptor is None else Described(descriptor, value))
        _check_end(whole, begin, at, begin + prefix_bytes // 2 + size)
        return tuple(values), at

    return read


def _unknown_constructor(whole: _Input, at: int, _depth: int) -> tuple[Value, int]:
    raise _unknown(whole, at - 1, whole.data[at - 1])


def _check_depth(whole: _Input, at: int, depth: int) -> None:
    if not depth:
        raise BadLengthError(whole.source, at, "depth of AMQP values", expected=f"at most {MAX_DEPTH}", found="more")


def _check_end(whole: _Input, begin: int, found: int, expected: int) -> None:
    if found != expected:
        raise BadLengthError(whole.source, begin, "end of an AMQP list, map or array", expected=expected, found=found)


def _overrun(whole: _Input, at: int, end: int) -> BadLengthError:
    return BadLengthError(whole.source, at, "end of an AMQP value", expected=f"at most {len(whole.data)}", found=end)


def _unknown(whole: _Input, at: int, code: int) -> BadVersionError:
    return BadVersionError(whole.source, at, "constructor of an AMQP value", found=f"0x{code:02x}")


def _symbol(content: bytes) -> Symbol:
    return Symbol(content.decode())


def _boolean(content: bytes) -> bool:
    if content[0] > 1:
        raise ValueError(f"{content[0]} is no boolean")
    return content[0] == 1


def _char(content: bytes) -> Char:
    return Char(content.decode("utf-32-be"))


def _timestamp(content: bytes) -> Timestamp:
    return Timestamp(int.from_bytes(content, signed=True))


def _uuid(content: bytes) -> UUID:
    return UUID(bytes=content)


U32 = struct.Struct(">I").unpack_from
_PREFIX8 = struct.Struct(
    ">"
    "B"  # size
    "B"  # count
)
_PREFIX32 = struct.Struct(
    ">"
    "I"  # size
    "I"  # count
)

_DESCRIBED = 0x00
_NULL = 0x40
_KNOWN: dict[int, _Reader] = {
    _DESCRIBED: _described,
    _NULL: _empty(None),
    0x41: _empty(True),
    0x42: _empty(False),
    0x43: _empty(0),
    0x44: _empty(0),
    0x45: _empty_list,
    0x50: _number("B"),
    0x51: _number("b"),
    0x52: _number("B"),
    0x53: _number("B"),
    0x54: _number("b"),
    0x55: _number("b"),
    0x56: _fixed(1, _boolean),
    0x60: _number("H"),
    0x61: _number("h"),
    0x70: _number("I"),
    0x71: _number("i"),
    0x72: _number("f"),
    0x73: _fixed(4, _char),
    0x74: _fixed(4, Decimal),
    0x80: _number("Q"),
    0x81: _number("q"),
    0x82: _number("d"),
    0x83: _fixed(8, _timestamp),
    0x84: _fixed(8, Decimal),
    0x94: _fixed(16, Decimal),
    0x98: _fixed(16, _uuid),
    0xA0: _sized8(bytes),
    0xA1: _sized8(bytes.decode),
    0xA3: _sized8(_symbol),
    0xB0: _sized32(bytes),
    0xB1: _sized32(bytes.decode),
    0xB3: _sized32(_symbol),
    0xC0: _list(_PREFIX8),
    0xC1: _map(_PREFIX8),
    0xD0: _list(_PREFIX32),
    0xD1: _map(_PREFIX32),
    0xE0: _array(_PREFIX8),
    0xF0: _array(_PREFIX32),
}
_READERS = [_KNOWN.get(code, _unknown_constructor) for code in range(256)]

# A ulong or a short symbol: every element of an array repeats it, and a long one would multiply into a flood.
_ARRAY_DESCRIPTORS = frozenset((0x44, 0x53, 0x80, 0xA3))

# The upper half of a constructor tells how much follows, also for constructors that do not exist yet.
_NO_CONTENT = 0x4
_WIDTHS = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)
_FIRST_SIZED = 0xA
