"""Every constructor of AMQP 1.0 by the name of its type, and sizes that contradict what they are of."""

from __future__ import annotations

import struct

import pytest

from coldstream.errors import BadLengthError, CorruptionError
from coldstream.format.amqp.message import messages
from coldstream.format.amqp.sections import Header, Properties, locate
from coldstream.format.amqp.typed import typed_elements, typed_value
from coldstream.format.amqp.values import MAX_DEPTH, decode
from coldstream.format.chunk import iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Epoch, TimestampMs

ONE = b"\x50\x07"
"""A ubyte."""

CONTENTS: dict[int, tuple[str, bytes]] = {
    0x00: ("described", b"\x53\x01" + ONE),
    0x40: ("null", b""),
    0x41: ("boolean", b""),
    0x42: ("boolean", b""),
    0x43: ("uint", b""),
    0x44: ("ulong", b""),
    0x45: ("list", b""),
    0x50: ("ubyte", b"\1"),
    0x51: ("byte", b"\1"),
    0x52: ("uint", b"\1"),
    0x53: ("ulong", b"\1"),
    0x54: ("int", b"\1"),
    0x55: ("long", b"\1"),
    0x56: ("boolean", b"\1"),
    0x60: ("ushort", bytes(2)),
    0x61: ("short", bytes(2)),
    0x70: ("uint", bytes(4)),
    0x71: ("int", bytes(4)),
    0x72: ("float", bytes(4)),
    0x73: ("char", b"\0\1\xf4\x07"),
    0x74: ("decimal32", bytes(4)),
    0x80: ("ulong", bytes(8)),
    0x81: ("long", bytes(8)),
    0x82: ("double", bytes(8)),
    0x83: ("timestamp", bytes(8)),
    0x84: ("decimal64", bytes(8)),
    0x94: ("decimal128", bytes(16)),
    0x98: ("uuid", bytes(16)),
    0xA0: ("binary", b"\1x"),
    0xA1: ("string", b"\1x"),
    0xA3: ("symbol", b"\1x"),
    0xB0: ("binary", b"\0\0\0\1x"),
    0xB1: ("string", b"\0\0\0\1x"),
    0xB3: ("symbol", b"\0\0\0\1x"),
    0xC0: ("list", b"\3\1" + ONE),
    0xC1: ("map", b"\5\2" + ONE + ONE),
    0xD0: ("list", b"\0\0\0\6\0\0\0\1" + ONE),
    0xD1: ("map", b"\0\0\0\x08\0\0\0\2" + ONE + ONE),
    0xE0: ("array", b"\3\1\x50\7"),
    0xF0: ("array", b"\0\0\0\6\0\0\0\1\x50\7"),
}


@pytest.mark.parametrize("code", CONTENTS, ids=hex)
def test_a_value_has_the_name_of_its_type_alone_and_as_an_element(code: int) -> None:
    name, content = CONTENTS[code]
    raw = bytes((code,)) + content
    assert typed_value(raw, 0, len(raw), source="value").type == name
    within = b"\xd0" + struct.pack(">II", 4 + 2 * len(raw), 2) + raw + raw
    assert [one.type for one in typed_elements(within, 0, len(within), source="value")] == [name, name]


@pytest.mark.parametrize("wrong", [-1, 1])
@pytest.mark.parametrize(("layout", "code", "uncounted"), [(">BB", 0xC0, 1), (">II", 0xD0, 4), (">II", 0xD1, 4)])
def test_a_list_whose_size_is_not_that_of_its_elements_has_none(
    layout: str, code: int, uncounted: int, wrong: int
) -> None:
    raw = bytes((code,)) + struct.pack(layout, uncounted + 4 + wrong, 2) + ONE + ONE
    with pytest.raises(BadLengthError):
        next(typed_elements(raw, 0, len(raw), source="value"))


def test_text_that_is_no_utf_8_is_its_bytes_and_no_more() -> None:
    for raw in (b"\xa1\1\xff", b"\xb1\0\0\0\1\xff"):
        body = raw + ONE
        within = b"\xc0" + bytes((1 + len(body), 2)) + body
        assert decode(within, 0, len(within), source="value") == [b"\xff", 7]


def array(element: bytes) -> bytes:
    """Return an array of one element, as an element of another array has it: its constructor goes before."""
    return struct.pack(">II", 4 + len(element), 1) + element


def test_arrays_within_arrays_are_as_deep_as_other_values_may_be() -> None:
    def nested(depth: int) -> bytes:
        raw = b"\x50\7"
        for _ in range(depth):
            raw = b"\xf0" + array(raw)
        return raw

    raw = nested(MAX_DEPTH - 1)
    assert decode(raw, 0, len(raw), source="value")
    raw = nested(MAX_DEPTH + 1)
    with pytest.raises(BadLengthError, match=f"at most {MAX_DEPTH}"):
        decode(raw, 0, len(raw), source="value")


def test_a_value_as_long_as_a_data_section_would_be_is_none() -> None:
    text = b"x" * 300
    raw = b"\x00\x53\x77\xb1" + struct.pack(">I", len(text)) + text
    _, data = make_chunk([raw], chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(1))
    (found,) = messages(next(iter_chunks(data, source="x")), source="x")
    assert found.body == text.decode()


def test_fields_that_a_publisher_left_out_are_none() -> None:
    assert Header() == (None,) * 5
    assert Properties() == (None,) * 13


@pytest.mark.parametrize("start", [b"\0\0\0", b"\0\x53\0", b"\0\0\x75"])
def test_bytes_that_are_nearly_the_begin_of_a_section_are_none(start: bytes) -> None:
    for kind in range(256):
        for rest in (1, 4, 40):  # of which the first two would be a section that is empty
            with pytest.raises(CorruptionError):
                locate(start + bytes((kind,)) + bytes(rest), source="message")
