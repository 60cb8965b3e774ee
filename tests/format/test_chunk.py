"""Chunk headers and contiguous chunks, against bytes laid out by hand from the field table."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import (
    BadCountError,
    BadCrcError,
    BadLengthError,
    BadMagicError,
    BadSequenceError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader, ChunkType, iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, TimestampMs

SOURCE = "überstrom/00000000000000000007.segment"

GOLDEN = bytes.fromhex(
    "50"  # magic 5, version 0
    "00"  # user
    "0002"  # entries
    "00000003"  # records
    "ffffffffffffff9c"  # timestamp -100
    "0000000000000004"  # epoch
    "0000000000000007"  # chunk id
    "deadbeef"  # CRC-32
    "00000010"  # data
    "00000011"  # trailer
    "12"  # bloom
    "000000"  # reserved
)
HEADER = ChunkHeader(
    type=ChunkType.USER,
    entries=2,
    records=3,
    timestamp=TimestampMs(-100),
    epoch=Epoch(4),
    chunk_id=ChunkId(7),
    crc=0xDEADBEEF,
    data_bytes=16,
    trailer_bytes=17,
    bloom_bytes=18,
)

headers = st.builds(
    ChunkHeader,
    type=st.just(ChunkType.USER),
    entries=st.integers(1, 0xFFFF),
    records=st.integers(1, 0xFFFFFFFF),
    timestamp=st.integers(-(1 << 63), (1 << 63) - 1).map(TimestampMs),
    epoch=st.integers(0, MAX_OFFSET).map(Epoch),
    chunk_id=st.integers(0, MAX_OFFSET - 0xFFFFFFFF).map(ChunkId),
    crc=st.integers(0, 0xFFFFFFFF),
    data_bytes=st.integers(4 * 0xFFFF, 0xFFFFFFFF),
    trailer_bytes=st.integers(0, 0xFFFFFFFF),
    bloom_bytes=st.integers(0, 0xFF),
)


def parse(data: bytes) -> ChunkHeader:
    return ChunkHeader.from_bytes(data, source=SOURCE, position=1234)


def chunk(chunk_id: int, *messages: bytes, bloom: bytes = b"", trailer: bytes = b"") -> bytes:
    _, data = make_chunk(
        messages,
        chunk_id=ChunkId(chunk_id),
        timestamp=TimestampMs(1_700_000_000_000),
        epoch=Epoch(1),
        bloom=bloom,
        trailer=trailer,
    )
    return data


def test_header_is_laid_out_as_the_field_table_says():
    assert len(GOLDEN) == CHUNK_HEADER_BYTES
    assert parse(GOLDEN) == HEADER
    assert HEADER.to_bytes() == GOLDEN


def test_next_offset_and_size_follow_from_the_header():
    assert HEADER.next_offset == 10
    assert HEADER.total_bytes == 48 + 18 + 16 + 17


@given(headers)
def test_parsing_undoes_encoding(header):
    assert parse(header.to_bytes()) == header


def test_a_parsed_header_is_one_like_any_other():
    found = parse(GOLDEN)
    assert type(found) is ChunkHeader
    assert (hash(found), repr(found)) == (hash(HEADER), repr(HEADER))
    assert pickle.loads(pickle.dumps(found)) == HEADER
    assert replace(found, crc=1) == replace(HEADER, crc=1)


def test_a_parsed_header_and_its_chunk_cannot_be_changed():
    (found,) = iter_chunks(chunk(5, b"a"), source=SOURCE)
    for value in (found, found.header):
        for field in fields(value):
            with pytest.raises(FrozenInstanceError):
                setattr(value, field.name, getattr(value, field.name))
    assert type(found) is Chunk
    assert found == Chunk(found.header, 0, memoryview(b""), found.data, memoryview(b""))


def test_a_header_may_lie_anywhere_in_what_is_parsed():
    assert ChunkHeader.from_bytes(b"before" + GOLDEN + b"after", source=SOURCE, position=6, at=6) == HEADER
    with pytest.raises(TruncatedError) as caught:
        ChunkHeader.from_bytes(b"before" + GOLDEN[:-1], source=SOURCE, position=6, at=6)
    assert (caught.value.position, caught.value.found) == (6, 47)


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (0, 0x40, BadMagicError),
        (0, 0x51, BadVersionError),
        (1, 3, BadVersionError),
        (45, 1, BadVersionError),
        (47, 0x80, BadVersionError),
    ],
)
def test_bytes_that_say_another_format_are_refused_with_their_position(at, value, error):
    data = bytearray(GOLDEN)
    data[at] = value
    with pytest.raises(error) as caught:
        parse(data)
    assert type(caught.value) is error
    assert (caught.value.source, caught.value.position) == (SOURCE, 1234)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"entries": 0}, BadCountError),
        ({"records": 0}, BadCountError),
        ({"data_bytes": 7}, BadLengthError),
        ({"chunk_id": ChunkId(MAX_OFFSET - 2)}, BadLengthError),
        ({"type": ChunkType.TRACKING_DELTA}, BadCountError),
        ({"type": ChunkType.TRACKING_SNAPSHOT, "records": 1}, BadCountError),
        ({"type": ChunkType.TRACKING_SNAPSHOT, "entries": 1, "records": 1}, BadLengthError),
    ],
)
def test_numbers_that_no_chunk_can_have_are_refused(changes, error):
    with pytest.raises(error) as caught:
        parse(replace(HEADER, **changes).to_bytes())
    assert caught.value.position == 1234


def test_the_last_offset_there_is_fits():
    assert parse(replace(HEADER, chunk_id=ChunkId(MAX_OFFSET - 3)).to_bytes()).next_offset == MAX_OFFSET


def test_more_entries_than_records_is_a_publishers_empty_sub_batch_and_fine():
    assert parse(replace(HEADER, entries=4).to_bytes()).entries == 4


def test_a_parsed_header_is_as_frozen_as_a_constructed_one():
    _, data = make_chunk([b"one"], chunk_id=ChunkId(3), timestamp=TimestampMs(0), epoch=Epoch(1))
    header = ChunkHeader.from_bytes(data, source="x", position=0)
    assert type(header) is ChunkHeader
    assert hash(header) == hash(replace(header))
    with pytest.raises(FrozenInstanceError):
        header.records = 2  # type: ignore[misc]


@pytest.mark.parametrize("size", range(CHUNK_HEADER_BYTES))
def test_every_truncated_header_is_refused(size):
    with pytest.raises(TruncatedError):
        parse(GOLDEN[:size])


def test_a_number_that_does_not_fit_its_field_is_not_encoded():
    with pytest.raises(OverflowError):
        replace(HEADER, bloom_bytes=256).to_bytes()


def test_chunks_come_out_with_their_parts_and_positions():
    first = chunk(5, b"one", "zwölf".encode(), bloom=b"B" * 16, trailer=b"T")
    second = chunk(7, b"")
    found = list(iter_chunks(first + second, source=SOURCE, position=100, expected=ChunkId(5)))
    assert [each.position for each in found] == [100, 100 + len(first)]
    assert bytes(found[0].bloom) == b"B" * 16
    assert bytes(found[0].data) == b"\0\0\0\x03one\0\0\0\x06zw\xc3\xb6lf"
    assert bytes(found[0].trailer) == b"T"
    assert (found[1].header.chunk_id, bytes(found[1].data)) == (7, bytes(4))


def test_no_bytes_are_no_chunks():
    assert list(iter_chunks(b"", source=SOURCE)) == []


def test_bad_crc_names_the_chunk_and_position():
    first, second = chunk(0, b"one"), bytearray(chunk(1, b"two"))
    second[-1] ^= 1
    chunks = iter_chunks(first + second, source=SOURCE, position=8)
    assert next(chunks).header.chunk_id == 0
    with pytest.raises(BadCrcError) as caught:
        next(chunks)
    assert caught.value.position == 8 + len(first)
    assert caught.value.found == crc32(second[48:])


def test_a_chunk_that_is_not_the_successor_is_refused():
    with pytest.raises(BadSequenceError) as caught:
        list(iter_chunks(chunk(0, b"one") + chunk(2, b"two"), source=SOURCE))
    assert (caught.value.expected, caught.value.found) == (1, 2)


def test_another_first_chunk_than_the_expected_one_is_refused():
    with pytest.raises(BadSequenceError):
        list(iter_chunks(chunk(0, b"one"), source=SOURCE, expected=ChunkId(1)))


def test_every_truncation_is_noticed():
    first, second = chunk(0, b"one", trailer=b"TT"), chunk(1, b"two", bloom=b"B" * 16)
    whole = first + second
    for size in range(len(whole)):
        if size in (0, len(first)):
            continue
        with pytest.raises(TruncatedError) as caught:
            list(iter_chunks(whole[:size], source=SOURCE, position=50))
        assert caught.value.position == 50 + (len(first) if size > len(first) else 0)


def test_every_error_is_a_corruption():
    with pytest.raises(CorruptionError, match="überstrom"):
        parse(bytes(48))
