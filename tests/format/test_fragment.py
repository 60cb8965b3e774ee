"""Fragments: index and trailer, both directions, against bytes laid out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import (
    BadLengthError,
    BadMagicError,
    BadSequenceError,
    BadVersionError,
    CorruptionError,
    TruncatedError,
)
from coldstream.format.fragment import (
    FRAGMENT_HEADER_BYTES,
    FRAGMENT_TRAILER_BYTES,
    MAX_FRAGMENT_BYTES,
    FragmentIndexRecord,
    FragmentTrailer,
    build_footer,
    iter_fragment_index,
)
from coldstream.units import ByteRange, ChunkId, Offset, TimestampMs

SOURCE = "präfix/1234abcd_ström/data/00000000000000000100.fragment"

RECORDS = [
    FragmentIndexRecord(ChunkId(100), TimestampMs(-1), 8),
    FragmentIndexRecord(ChunkId(103), TimestampMs(5), 208),
]
FOOTER = bytes.fromhex(
    "4f534949 00000001"  # OSII, version
    "0000000000000064 ffffffffffffffff 00000008"  # chunk id, timestamp, position
    "0000000000000067 0000000000000005 000000d0"
    "0000000000000064"  # first offset
    "ffffffffffffffff"  # first timestamp
    "000000000000006e"  # next offset
    "0002"  # sequence number
    "0000012c"  # data size
    "00000007"  # chunks before
    "00003039"  # data position
    "0000013c"  # index position: 8 + 300 + 8
    "00000028"  # index size
)
TRAILER = FragmentTrailer(
    first_offset=Offset(100),
    first_timestamp=TimestampMs(-1),
    next_offset=Offset(110),
    sequence_number=2,
    data_bytes=300,
    chunks_before=7,
    data_position=12345,
    index_position=316,
    index_bytes=40,
)
OBJECT_BYTES = 8 + 300 + 8 + 40 + 46


def footer(records: list[FragmentIndexRecord] = RECORDS, **changes: object) -> bytes:
    facts = {
        "next_offset": Offset(110),
        "sequence_number": 2,
        "data_bytes": 300,
        "chunks_before": 7,
        "data_position": 12345,
    } | changes
    return build_footer(bytearray().join(each.to_bytes() for each in records), source=SOURCE, **facts)


def trailer_of(data: bytes, object_bytes: int = OBJECT_BYTES) -> FragmentTrailer:
    return FragmentTrailer.from_bytes(data, source=SOURCE, object_bytes=object_bytes)


def index_of(data: bytes, trailer: FragmentTrailer = TRAILER) -> list[FragmentIndexRecord]:
    return list(iter_fragment_index(data, trailer, source=SOURCE))


def test_footer_is_laid_out_as_the_field_tables_say():
    assert footer() == FOOTER
    assert trailer_of(FOOTER) == TRAILER
    assert TRAILER.to_bytes() == FOOTER[-FRAGMENT_TRAILER_BYTES:]
    assert index_of(FOOTER[:-FRAGMENT_TRAILER_BYTES]) == RECORDS


def test_trailer_says_where_everything_is():
    assert TRAILER.chunks == 2
    assert TRAILER.data_range == ByteRange(8, 308)
    assert TRAILER.index_range == ByteRange(308, 356)
    assert TRAILER.object_bytes == OBJECT_BYTES


@given(
    st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(48, 1 << 20)), min_size=1, max_size=20),
    st.integers(0, 1 << 62),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 65535),
)
def test_parsing_undoes_building(chunks, first_offset, timestamp, sequence_number):
    records, offset, position = [], first_offset, FRAGMENT_HEADER_BYTES
    for count, size in chunks:
        records.append(FragmentIndexRecord(ChunkId(offset), TimestampMs(timestamp), position))
        offset += count
        position += size
    data = footer(
        records,
        next_offset=Offset(offset),
        data_bytes=position - FRAGMENT_HEADER_BYTES,
        sequence_number=sequence_number,
    )
    trailer = trailer_of(data, object_bytes=position + len(data))
    assert trailer.sequence_number == sequence_number
    assert (trailer.first_offset, trailer.next_offset, trailer.first_timestamp) == (first_offset, offset, timestamp)
    assert index_of(data[:-FRAGMENT_TRAILER_BYTES], trailer) == records


@pytest.mark.parametrize("size", range(FRAGMENT_TRAILER_BYTES))
def test_every_truncated_trailer_is_refused(size):
    with pytest.raises(TruncatedError):
        trailer_of(FOOTER[-FRAGMENT_TRAILER_BYTES:][:size])


@pytest.mark.parametrize(
    ("changes", "object_bytes", "error"),
    [
        ({}, OBJECT_BYTES + 1, BadLengthError),
        ({"data_bytes": 301}, OBJECT_BYTES, BadLengthError),
        ({"index_position": 317}, OBJECT_BYTES + 1, BadLengthError),
        ({"index_bytes": 41}, OBJECT_BYTES + 1, BadLengthError),
        ({"index_bytes": 0}, OBJECT_BYTES - 40, BadLengthError),
        ({"index_bytes": 140}, OBJECT_BYTES + 100, BadLengthError),
        ({"next_offset": Offset(100)}, OBJECT_BYTES, BadSequenceError),
    ],
)
def test_a_trailer_that_contradicts_itself_or_its_object_is_refused(changes, object_bytes, error):
    with pytest.raises(error) as caught:
        trailer_of(replace(TRAILER, **changes).to_bytes(), object_bytes)
    assert caught.value.position == object_bytes - FRAGMENT_TRAILER_BYTES


def test_every_flipped_bit_of_the_index_is_noticed_but_timestamps_and_steps_that_stay_in_order():
    index = FOOTER[:-FRAGMENT_TRAILER_BYTES]
    unnoticed = []
    for bit in range(len(index) * 8):
        flipped = bytearray(index)
        flipped[bit // 8] ^= 1 << 7 - bit % 8
        try:
            found = index_of(bytes(flipped))
        except CorruptionError:
            continue
        unnoticed.append(bit)
        assert found[0] == RECORDS[0]
        assert 100 < found[1].chunk_id < 110
        assert 8 + 48 <= found[1].position < 308
    assert set(range((28 + 8) * 8, (28 + 16) * 8)) < set(unnoticed)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (b"OSIL" + FOOTER[4:48], BadMagicError),
        (b"OSII\0\0\0\2" + FOOTER[8:48], BadVersionError),
        (FOOTER[:5], TruncatedError),
        (FOOTER[:47], BadLengthError),
        (FOOTER[:49], BadLengthError),
    ],
)
def test_another_index_than_the_trailer_says_is_refused_with_its_position(index, error):
    with pytest.raises(error) as caught:
        index_of(index)
    assert caught.value.position == 308


@pytest.mark.parametrize(
    ("second", "position"),
    [
        (FragmentIndexRecord(ChunkId(100), TimestampMs(5), 208), 336),
        (FragmentIndexRecord(ChunkId(110), TimestampMs(5), 208), 336),
        (FragmentIndexRecord(ChunkId(103), TimestampMs(5), 55), 336),
        (FragmentIndexRecord(ChunkId(103), TimestampMs(5), 308), 336),
    ],
)
def test_records_out_of_order_or_bounds_are_refused(second, position):
    with pytest.raises(BadSequenceError) as caught:
        index_of(footer([RECORDS[0], second])[:-FRAGMENT_TRAILER_BYTES])
    assert caught.value.position == position


@pytest.mark.parametrize("changes", [{"chunk_id": ChunkId(101)}, {"timestamp": TimestampMs(0)}, {"position": 9}])
def test_a_first_record_that_is_not_the_trailers_is_refused(changes):
    index = footer([replace(RECORDS[0], **changes), RECORDS[1]])[:-FRAGMENT_TRAILER_BYTES]
    with pytest.raises(BadSequenceError):
        index_of(index)


def test_the_greatest_fragment_there_can_be():
    data_bytes = MAX_FRAGMENT_BYTES - (OBJECT_BYTES - 300)
    data = footer(data_bytes=data_bytes, sequence_number=65535)
    assert trailer_of(data, MAX_FRAGMENT_BYTES).object_bytes == (1 << 32) - 1


@pytest.mark.parametrize(
    "changes",
    [
        {"data_bytes": MAX_FRAGMENT_BYTES - (OBJECT_BYTES - 300) + 1},
        {"sequence_number": 65536},
        {"chunks_before": 1 << 32},
        {"data_position": 1 << 32},
    ],
)
def test_a_fragment_that_the_format_cannot_describe_is_refused_by_name(changes):
    with pytest.raises(BadLengthError) as caught:
        footer(**changes)
    assert caught.value.source == SOURCE


def test_a_footer_without_records_is_refused():
    with pytest.raises(TruncatedError):
        footer([])


def test_a_number_that_does_not_fit_its_field_is_not_encoded():
    with pytest.raises(OverflowError):
        FragmentIndexRecord(ChunkId(0), TimestampMs(0), 1 << 32).to_bytes()
