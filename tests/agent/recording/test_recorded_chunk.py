"""Chunks as they go into segments that the agent writes itself."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import pytest

from coldstream.agent.proof.incarnations import incarnation_of_first_chunk
from coldstream.agent.recording.recorded_chunk import record_chunk, tracking_fillers
from coldstream.errors import InvalidNameError
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.live.delivered import chunk_of
from coldstream.manifest.stream import stream_from_directory
from coldstream.units import Offset
from tests.support.stream_broker import chunk, header_of

ENCODED = chunk(500, b"one", b"two")


def test_a_chunk_without_trailer_and_bloom_filter_stays_byte_for_byte() -> None:
    assert record_chunk(chunk_of(ENCODED, source="test")) == ENCODED


def test_a_trailer_that_was_sent_stays_byte_for_byte() -> None:
    delivered = replace(header_of(ENCODED), trailer_bytes=12).to_bytes() + ENCODED[48:] + b"\x00\x02pp12345678"
    assert record_chunk(chunk_of(delivered, source="test")) == delivered


def test_a_trailer_that_was_not_sent_is_not_announced() -> None:
    header = replace(header_of(ENCODED), trailer_bytes=12)
    assert record_chunk(chunk_of(header.to_bytes() + ENCODED[48:], source="test")) == ENCODED


@pytest.mark.parametrize("size_bytes", [1, 16, 255])
def test_a_bloom_filter_which_is_never_sent_may_match_anything(size_bytes: int) -> None:
    header = replace(header_of(ENCODED), bloom_bytes=size_bytes)
    found = record_chunk(chunk_of(header.to_bytes() + ENCODED[48:], source="test"))
    assert found == header.to_bytes() + b"\xff" * size_bytes + ENCODED[48:]


def test_each_offset_before_a_chunk_gets_a_tracking_chunk() -> None:
    segment = SEGMENT_HEADER + b"".join(tracking_fillers(header_of(ENCODED), Offset(497))) + ENCODED
    scanner = SegmentScanner("test", first_offset=Offset(497))
    headers = [event.header for event in scanner.feed(segment) if isinstance(event, ChunkEnd)]
    scanner.close()
    assert [(header.chunk_id, header.type) for header in headers] == [
        (497, ChunkType.TRACKING_DELTA),
        (498, ChunkType.TRACKING_DELTA),
        (499, ChunkType.TRACKING_DELTA),
        (500, ChunkType.USER),
    ]
    assert {(header.timestamp, header.epoch) for header in headers} == {(1000, 1)}


def test_no_offset_before_a_chunk_gets_none() -> None:
    assert list(tracking_fillers(header_of(ENCODED), Offset(500))) == []


def test_an_incarnation_is_named_as_the_broker_names_it() -> None:
    (first,) = iter_chunks(ENCODED, source="test")
    found = incarnation_of_first_chunk("/", "grün.orders", first)
    names = crc32(b"/\0" + "grün.orders".encode()) % 10**6
    assert found == f"__gr__n_orders_{1000 * 10**6 + names:019}"
    stream = stream_from_directory(found, vhost="/", name="grün.orders")
    assert stream.incarnation == found


def test_streams_that_are_written_alike_and_begin_in_the_same_millisecond_are_two() -> None:
    (first,) = iter_chunks(ENCODED, source="test")
    assert incarnation_of_first_chunk("/", "orders.eu", first) != incarnation_of_first_chunk("/", "orders_eu", first)


def test_names_that_no_directory_could_have_are_refused() -> None:
    (first,) = iter_chunks(ENCODED, source="test")
    with pytest.raises(InvalidNameError):
        incarnation_of_first_chunk("v" * 200, "n" * 200, first)
