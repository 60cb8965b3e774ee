"""Messages of AMQP 0.9.1 that few clients publish, and headers that none may."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from coldstream.errors import InvalidInputError
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.queues.batch import CHUNK_MESSAGES, batch_bytes
from coldstream.queues.delivery import Delivery
from coldstream.queues.message import to_amqp10
from coldstream.units import Epoch, Offset, TimestampMs


def headers(*fields: bytes) -> bytes:
    """Return properties that have just headers."""
    data = b"".join(fields)
    return struct.pack(">HI", 1 << 13, len(data)) + data


def field(name: str, kind: str, layout: str, *values: float) -> bytes:
    return bytes((len(name),)) + name.encode() + kind.encode() + struct.pack(f">{layout}", *values)


def converted(properties: bytes, body: bytes = b"body") -> Message:
    raw = to_amqp10(Delivery(1, False, b"", b"key", properties, body), source="queue 'q', delivery 1")
    return next(iter(read([raw])))


def read(raw: list[bytes]) -> Iterator[Message]:
    data = batch_bytes(raw, Offset(5), TimestampMs(7), Epoch(3))
    for chunk in iter_chunks(data[SEGMENT_HEADER_BYTES:], source="batch", position=SEGMENT_HEADER_BYTES):
        assert (chunk.header.timestamp, chunk.header.epoch) == (7, 3)
        yield from messages(chunk, source="batch")


NUMBERS = [
    ("b", "b", -1),
    ("B", "B", 255),
    ("s", "h", -300),
    ("u", "H", 65_535),
    ("I", "i", -(1 << 31)),
    ("i", "I", (1 << 32) - 1),
    ("l", "q", -(1 << 63)),
    ("f", "f", 1.5),
    ("d", "d", 1e300),
    ("t", "?", True),
]


@pytest.mark.parametrize(("kind", "layout", "value"), NUMBERS)
def test_numbers_of_every_kind_keep_their_value(kind: str, layout: str, value: float) -> None:
    assert converted(headers(field("n", kind, layout, value))).application_properties == {"n": value}


def test_a_decimal_becomes_its_text() -> None:
    assert converted(headers(field("price", "D", "Bi", 2, -1999))).application_properties == {"price": "-19.99"}


def test_a_body_of_amqp_sections_stays_as_it_is() -> None:
    properties = struct.pack(">HB8s", 1 << 5, 8, b"amqp-1.0")
    message = converted(properties, b"\x00Sw\x54\x05")
    assert (message.body_kind, message.body) == ("value", 5)
    assert converted(properties, b"no sections").body == b"no sections"


@pytest.mark.parametrize("cut", range(1, 20))
def test_properties_that_are_cut_are_named(cut: int) -> None:
    whole = headers(field("number", "l", "q", 1), field("n", "d", "d", 0.5))
    with pytest.raises(InvalidInputError, match="queue 'q', delivery 1"):
        converted(whole[:-cut])


def test_an_unknown_kind_of_header_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"kind of a header: .*found '\?'"):
        converted(headers(b"\x01n?"))


def test_a_batch_has_chunks_of_bounded_size_and_every_offset() -> None:
    raw = [to_amqp10(Delivery(n, False, b"", b"", b"\x00\x00", b"%d" % n), source="") for n in range(2500)]
    found = [(message.offset, message.body) for message in read(raw)]
    assert found == [(5 + n, b"%d" % n) for n in range(2500)]
    assert CHUNK_MESSAGES < 2500
