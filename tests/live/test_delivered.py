"""Chunks as they are delivered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import BadCrcError, BadLengthError, BadMagicError, CorruptionError, TruncatedError
from coldstream.format.amqp.message import messages
from coldstream.live.delivered import chunk_of, is_same
from coldstream.units import Offset
from tests.support.stream_broker import chunk, header_of

ENCODED = chunk(500, b"one", b"two", b"three")


def test_a_delivered_chunk_has_its_messages() -> None:
    found = chunk_of(ENCODED, source="test")
    assert found.header == header_of(ENCODED)
    assert found.position == 0
    offsets = [message.offset for message in messages(found, source="test", from_offset=Offset(501))]
    assert offsets == [501, 502]


def test_trailer_and_bloom_filter_are_announced_but_not_sent() -> None:
    header = replace(header_of(ENCODED), trailer_bytes=12, bloom_bytes=16)
    found = chunk_of(header.to_bytes() + ENCODED[48:], source="test")
    assert found.header == header
    assert bytes(found.bloom) == bytes(found.trailer) == b""


def test_a_trailer_is_sent_to_who_asks_for_it() -> None:
    header = replace(header_of(ENCODED), trailer_bytes=12, bloom_bytes=16)
    found = chunk_of(header.to_bytes() + ENCODED[48:] + b"trailer here", source="test")
    assert bytes(found.data) == ENCODED[48:]
    assert bytes(found.trailer) == b"trailer here"


def test_a_part_of_a_trailer_is_refused() -> None:
    header = replace(header_of(ENCODED), trailer_bytes=12)
    with pytest.raises(BadLengthError, match="orders"):
        chunk_of(header.to_bytes() + ENCODED[48:] + b"trailer", source="orders")


def test_the_data_is_not_copied() -> None:
    buffer = bytearray(ENCODED)
    assert chunk_of(memoryview(buffer), source="test").data.obj is buffer


@pytest.mark.parametrize("length", range(len(ENCODED)))
def test_a_chunk_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises((TruncatedError, BadLengthError)):
        chunk_of(ENCODED[:length], source="test")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda encoded: encoded + b"!", BadLengthError),
        (lambda encoded: encoded[:-1] + b"!", BadCrcError),
        (lambda encoded: b"!" + encoded[1:], BadMagicError),
    ],
)
def test_a_chunk_that_is_not_as_it_was_written_is_refused(change, error: type[CorruptionError]) -> None:
    with pytest.raises(error, match="orders"):
        chunk_of(change(ENCODED), source="orders")


def test_trailers_and_bloom_filters_make_no_other_chunk() -> None:
    header = header_of(ENCODED)
    assert is_same(header, replace(header, trailer_bytes=5, bloom_bytes=16))


@pytest.mark.parametrize("field", ["type", "entries", "records", "timestamp", "epoch", "chunk_id", "crc", "data_bytes"])
def test_whatever_else_differs_makes_another_chunk(field: str) -> None:
    header = header_of(ENCODED)
    assert not is_same(header, replace(header, **{field: getattr(header, field) + 1}))


@pytest.mark.parametrize("field", ["type", "entries", "records", "timestamp", "epoch", "chunk_id"])
def test_of_an_erased_chunk_only_the_size_and_the_crc_of_its_data_may_differ(field: str) -> None:
    header = header_of(ENCODED)
    assert is_same(header, replace(header, crc=header.crc + 1, data_bytes=header.data_bytes - 1), is_erased=True)
    assert not is_same(header, replace(header, **{field: getattr(header, field) + 1}), is_erased=True)
