"""Index files: records, and everything a broker may leave behind the last one."""

from __future__ import annotations

import io

import pytest

from coldstream.errors import BadLengthError, BadMagicError, BadSequenceError, BadVersionError, TruncatedError
from coldstream.format.chunk import ChunkType
from coldstream.format.index import INDEX_HEADER, INDEX_RECORD_BYTES, IndexRecord, iter_index
from coldstream.units import ChunkId, Epoch, TimestampMs

SOURCE = "ström/00000000000000000005.index"

GOLDEN = bytes.fromhex(
    "0000000000000005"  # chunk id
    "fffffffffffffffe"  # timestamp -2
    "0000000000000003"  # epoch
    "00000008"  # position
    "02"  # tracking snapshot
)
RECORD = IndexRecord(ChunkId(5), TimestampMs(-2), Epoch(3), 8, ChunkType.TRACKING_SNAPSHOT)


def record(chunk_id: int, position: int) -> bytes:
    return IndexRecord(ChunkId(chunk_id), TimestampMs(7), Epoch(1), position, ChunkType.USER).to_bytes()


def read(data: bytes) -> list[IndexRecord]:
    return list(iter_index(io.BytesIO(data), source=SOURCE))


def test_record_is_laid_out_as_the_field_table_says():
    assert len(GOLDEN) == INDEX_RECORD_BYTES
    assert IndexRecord.from_bytes(GOLDEN, source=SOURCE, position=8) == RECORD
    assert RECORD.to_bytes() == GOLDEN


def test_records_come_out_in_order():
    assert read(INDEX_HEADER + GOLDEN + record(9, 100)) == [
        RECORD,
        IndexRecord(ChunkId(9), TimestampMs(7), Epoch(1), 100, ChunkType.USER),
    ]


def test_an_index_of_a_header_only_has_no_records():
    assert read(INDEX_HEADER) == []


@pytest.mark.parametrize("size", range(INDEX_RECORD_BYTES))
def test_a_record_cut_short_at_the_end_is_left_out(size):
    assert read(INDEX_HEADER + GOLDEN + record(9, 100)[:size]) == [RECORD]


@pytest.mark.parametrize("zeros", [29, 29 * 3000, 29 * 3 + 7])
def test_a_preallocated_tail_ends_the_index(zeros):
    assert read(INDEX_HEADER + GOLDEN + bytes(zeros)) == [RECORD]


def test_a_first_record_of_zeros_but_for_its_position_is_a_record():
    first = IndexRecord(ChunkId(0), TimestampMs(0), Epoch(0), 8, ChunkType.USER)
    assert read(INDEX_HEADER + first.to_bytes()) == [first]


def test_more_records_than_a_read_takes_come_out():
    raw = b"".join(record(n, 8 + 52 * n) for n in range(5000))
    assert [each.chunk_id for each in read(INDEX_HEADER + raw)] == list(range(5000))


def test_short_reads_do_not_matter():
    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(size if size == 8 else 10)

    raw = INDEX_HEADER + b"".join(record(n, 8 + 52 * n) for n in range(20))
    assert len(list(iter_index(Dribble(raw), source=SOURCE))) == 20


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", TruncatedError),
        (b"OSII\0\0\0", TruncatedError),
        (b"OSIL\0\0\0\1", BadMagicError),
        (b"OSII\0\0\0\2", BadVersionError),
    ],
)
def test_another_header_is_refused(data, error):
    with pytest.raises(error):
        read(data)


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (record(9, 100)[:-1] + b"\3", BadVersionError),
        (record(9, 7), BadLengthError),
        (record(5, 100), BadSequenceError),
        (record(9, 8), BadSequenceError),
    ],
)
def test_a_record_that_cannot_be_is_refused_with_its_position(second, error):
    with pytest.raises(error) as caught:
        read(INDEX_HEADER + GOLDEN + second)
    assert (caught.value.source, caught.value.position) == (SOURCE, 8 + 29)


def test_a_truncated_record_alone_is_refused():
    with pytest.raises(TruncatedError):
        IndexRecord.from_bytes(GOLDEN[:-1], source=SOURCE, position=8)


def test_a_position_past_32_bits_is_not_encoded():
    with pytest.raises(OverflowError):
        record(0, 1 << 32)
