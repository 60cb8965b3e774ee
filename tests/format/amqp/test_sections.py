"""Sections of AMQP 1.0 messages: found, decoded, and refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import (
    BadCountError,
    BadLengthError,
    BadMagicError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.format.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    body_section,
    locate,
    read_body,
    read_section,
)
from coldstream.format.amqp.types import Described
from tests.support.amqp_samples import MESSAGES

SOURCE = "ström"
NAMES = {
    HEADER: b"amqp:header:list",
    DELIVERY_ANNOTATIONS: b"amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: b"amqp:message-annotations:map",
    PROPERTIES: b"amqp:properties:list",
    APPLICATION_PROPERTIES: b"amqp:application-properties:map",
    DATA: b"amqp:data:binary",
    SEQUENCE: b"amqp:amqp-sequence:list",
    VALUE: b"amqp:amqp-value:*",
    FOOTER: b"amqp:footer:map",
}
NOT_BODY = [HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, FOOTER]


def section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def contents(message: bytes) -> list[Any]:
    """Return every section and the body."""
    sections = locate(message, source=SOURCE)
    found = [read_section(message, sections, code, source=SOURCE) for code in NOT_BODY]
    return [*found, body_section(sections, source=SOURCE), read_body(message, sections, source=SOURCE)]


def borders(message: bytes) -> set[int]:
    """Return the bytes at which a section ends."""
    return {end for spans in locate(message, source=SOURCE).values() for end in spans[1::2]}


EVERY_SECTION = (
    section(HEADER, b"\xc0\x03\x02\x41\x40")
    + section(DELIVERY_ANNOTATIONS, b"\xc1\x05\x02\xa3\x01d\x41")
    + section(MESSAGE_ANNOTATIONS, b"\xc1\x05\x02\xa3\x01m\x42")
    + section(PROPERTIES, b"\xc0\x05\x01\xa1\x02id")
    + section(APPLICATION_PROPERTIES, b"\xc1\x06\x02\xa1\x01a\x54\x07")
    + section(DATA, b"\xa0\x04body")
    + section(FOOTER, b"\xc1\x05\x02\xa3\x01f\x43")
)
EVERY_CONTENT = [
    Header(durable=True),
    {"d": True},
    {"m": False},
    Properties(message_id="id"),
    {"a": 7},
    {"f": 0},
    DATA,
    b"body",
]


def test_every_section_is_found_and_decoded():
    assert contents(EVERY_SECTION) == EVERY_CONTENT


def test_sections_in_another_order_are_the_same_message():
    order = [(start - 3, end) for start, end in locate(EVERY_SECTION, source=SOURCE).values()]
    assert contents(b"".join(EVERY_SECTION[start:end] for start, end in reversed(order))) == EVERY_CONTENT


@pytest.mark.parametrize("descriptor", ["small ulong", "ulong", "symbol"])
def test_descriptors_may_be_encoded_in_any_way(descriptor):
    def described(code: int) -> bytes:
        name = NAMES[code]
        return {
            "small ulong": b"\x00\x53" + bytes((code,)),
            "ulong": b"\x00\x80" + code.to_bytes(8),
            "symbol": b"\x00\xa3" + bytes((len(name),)) + name,
        }[descriptor]

    spans = locate(EVERY_SECTION, source=SOURCE)
    message = b"".join(described(code) + EVERY_SECTION[start:end] for code, (start, end) in spans.items())
    assert contents(message) == EVERY_CONTENT


def test_sizes_of_four_bytes_are_as_good_as_sizes_of_one():
    message = (
        section(PROPERTIES, b"\xd0\x00\x00\x00\x08\x00\x00\x00\x01\xa1\x02id")
        + section(APPLICATION_PROPERTIES, b"\xd1\x00\x00\x00\x09\x00\x00\x00\x02\xa1\x01a\x54\x07")
        + section(DATA, b"\xb0\x00\x00\x00\x04body")
    )
    nothing = [None] * 3
    assert contents(message) == [*nothing, Properties(message_id="id"), {"a": 7}, None, DATA, b"body"]


def test_a_message_without_bytes_has_no_sections():
    assert contents(b"") == [None] * 8


def test_a_section_may_have_no_fields():
    assert contents(section(PROPERTIES, b"\x45"))[3] == Properties()


def test_all_fields_of_properties_and_header():
    everything = b"".join(b"\x54" + bytes((number,)) for number in range(13))
    message = section(HEADER, b"\xc0\x0b\x05" + everything[:10]) + section(PROPERTIES, b"\xc0\x1b\x0d" + everything)
    header, *_, properties, _, _, _, _ = contents(message)
    assert header == Header(durable=0, priority=1, ttl=2, first_acquirer=3, delivery_count=4)
    assert properties == Properties(
        message_id=0,
        user_id=1,
        to=2,
        subject=3,
        reply_to=4,
        correlation_id=5,
        content_type=6,
        content_encoding=7,
        absolute_expiry_time=8,
        creation_time=9,
        group_id=10,
        group_sequence=11,
        reply_to_group_id=12,
    )


@pytest.mark.parametrize(
    ("parts", "kind", "body"),
    [
        ([], None, None),
        ([section(DATA, b"\xa0\x00")], DATA, b""),
        (
            [section(DATA, b"\xa0\x03one"), section(DATA, b"\xb0\x00\x00\x00\x03two"), section(DATA, b"\xa0\x00")],
            DATA,
            b"onetwo",
        ),
        ([section(SEQUENCE, b"\x45")], SEQUENCE, []),
        (
            [section(SEQUENCE, b"\xc0\x02\x01\x41"), section(SEQUENCE, b"\xc0\x03\x02\x42\x40")],
            SEQUENCE,
            [True, False, None],
        ),
        ([section(VALUE, b"\x40")], VALUE, None),
        ([section(VALUE, b"\xa1\x03\xe2\x82\xac")], VALUE, "€"),
        ([section(VALUE, b"\x00\x44\xa1\x00"), section(FOOTER, b"\xc1\x01\x00")], VALUE, Described(0, "")),
    ],
)
def test_a_body_of_each_kind(parts, kind, body):
    *_, found_kind, found = contents(b"".join(parts))
    assert (found_kind, found) == (kind, body)


REFUSED = {
    "text": (b"hello", BadMagicError, 0),
    "one byte of text": (b"h", BadMagicError, 0),
    "only a zero": (b"\x00", TruncatedError, 0),
    "text behind a section": (section(DATA, b"\xa0\x00") + b"hello", BadVersionError, 5),
    "unknown section": (section(0x79, b"\x45"), BadVersionError, 0),
    "unknown symbol": (b"\x00\xa3\x01x\x45", BadVersionError, 0),
    "descriptor that is a string": (b"\x00\xa1\x10amqp:data:binary\xa0\x00", BadVersionError, 0),
    "descriptor that is a list": (b"\x00\x45\xa0\x00", BadVersionError, 0),
    "descriptor that is a timestamp": (b"\x00\x83" + DATA.to_bytes(8) + b"\xa0\x00", BadVersionError, 0),
    "data that is a string": (section(DATA, b"\xa1\x00"), BadVersionError, 3),
    "properties that are a map": (section(PROPERTIES, b"\xc1\x01\x00"), BadVersionError, 3),
    "application properties that are null": (section(APPLICATION_PROPERTIES, b"\x40"), BadVersionError, 3),
    "two properties": (section(PROPERTIES, b"\x45") * 2, BadCountError, 4),
    "two values": (section(VALUE, b"\x40") * 2, BadCountError, 4),
    "data and a value": (section(DATA, b"\xa0\x00") + section(VALUE, b"\x40"), BadCountError, 0),
    "sequence and data": (section(SEQUENCE, b"\x45") + section(DATA, b"\xa0\x00"), BadCountError, 0),
    "six fields in a header": (section(HEADER, b"\xc0\x07\x06" + b"\x40" * 6), BadCountError, 3),
    "properties whose list is shorter": (section(PROPERTIES, b"\xc0\x03\x01\x40\x40"), BadLengthError, 4),
    "properties whose list is longer": (section(PROPERTIES, b"\xc0\x03\x01\xa1\x03abc"), CorruptionError, None),
    "annotations whose key is a list": (section(FOOTER, b"\xc1\x03\x02\x45\x41"), CorruptionError, 3),
    "section longer than four gigabytes": (section(DATA, b"\xb0\xff\xff\xff\xff"), TruncatedError, 0),
}


@pytest.mark.parametrize(("message", "error", "position"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_message_is_told_with_its_position(message, error, position):
    with pytest.raises(error) as caught:
        contents(message)
    assert caught.value.source == SOURCE
    assert position is None or caught.value.position == position


@pytest.mark.parametrize("code", sorted({*range(256)} - {*range(HEADER, FOOTER + 1)}))
def test_a_section_of_no_known_code_is_refused_in_any_form(code):
    for value in (
        b"\x45",
        b"\xa0\x00",
        b"\xb0" + bytes(4),
        b"\xc0\x01\x00",
        b"\xc1\x01\x00",
        b"\xd0\0\0\0\4" + bytes(4),
    ):
        with pytest.raises(BadVersionError):
            locate(section(code, value), source=SOURCE)


@pytest.mark.parametrize("message", [EVERY_SECTION, *MESSAGES.values()], ids=["golden", *MESSAGES])
def test_a_message_cut_short_is_refused_unless_a_section_ends_there(message):
    whole_sections = borders(message) | {0}
    for size in range(len(message)):
        if size in whole_sections:
            contents(message[:size])
        else:
            with pytest.raises(CorruptionError):
                contents(message[:size])


@given(st.sampled_from([EVERY_SECTION, *MESSAGES.values()]), st.data())
def test_a_changed_byte_gives_a_message_or_a_corruption_error(message, data):
    changed = bytearray(message)
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptionError):
        contents(bytes(changed))


PIECES = [b"\x00", b"\x53", b"\x80", b"\xa3", b"\x45", b"\x40", b"\xa0", b"\xb0", b"\xc0", b"\xc1", b"\xd0", b"\xd1"]


@given(
    st.lists(st.sampled_from(PIECES) | st.integers(0x70, 0x78).map(lambda code: bytes((code,))) | st.binary(max_size=3))
)
def test_garbage_gives_a_message_or_a_corruption_error(pieces):
    with suppress(CorruptionError):
        contents(b"\x00\x53" + b"".join(pieces))
