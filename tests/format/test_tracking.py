"""Tracking records, and the state of a leader that writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import BadLengthError, BadVersionError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.tracking import (
    MAX_SEQUENCES,
    TrackingCheck,
    TrackingRecord,
    TrackingState,
    TrackingType,
    iter_tracking,
    iter_tracking_records,
)
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, Offset, TimestampMs

SOURCE = "ström"

SEQUENCE = TrackingRecord(TrackingType.SEQUENCE, "pröducer".encode(), 0x0102)
OFFSET = TrackingRecord(TrackingType.OFFSET, b"c", MAX_OFFSET)
TIMESTAMP = TrackingRecord(TrackingType.TIMESTAMP, b"", -2)
IN_SNAPSHOT = TrackingRecord(TrackingType.SEQUENCE, b"p", 3, ChunkId(4))

records = st.one_of(
    st.builds(
        TrackingRecord,
        st.sampled_from([TrackingType.SEQUENCE, TrackingType.OFFSET]),
        st.binary(max_size=255),
        st.integers(0, MAX_OFFSET),
    ),
    st.builds(
        TrackingRecord,
        st.just(TrackingType.TIMESTAMP),
        st.binary(max_size=255),
        st.integers(-(1 << 63), (1 << 63) - 1),
    ),
)


def parse(data: bytes, *, is_snapshot: bool = False) -> list[TrackingRecord]:
    return list(iter_tracking_records(memoryview(data), source=SOURCE, position=70, is_snapshot=is_snapshot))


def chunk_of(message: bytes, kind: ChunkType, *, trailer: bytes = b"", bloom: bytes = b"") -> Chunk:
    _, data = make_chunk(
        [message],
        chunk_id=ChunkId(0),
        timestamp=TimestampMs(0),
        epoch=Epoch(0),
        kind=kind,
        trailer=trailer,
        bloom=bloom,
    )
    return next(iter_chunks(data, source=SOURCE, position=500))


def test_records_are_laid_out_as_the_field_table_says():
    assert SEQUENCE.to_bytes() == b"\x00\x09pr\xc3\xb6ducer" + bytes.fromhex("0000000000000102")
    assert OFFSET.to_bytes() == b"\x01\x01c" + bytes.fromhex("ffffffffffffffff")
    assert TIMESTAMP.to_bytes() == b"\x02\x00" + bytes.fromhex("fffffffffffffffe")
    assert IN_SNAPSHOT.to_bytes() == b"\x00\x01p" + bytes.fromhex("0000000000000004 0000000000000003")


@given(st.lists(records, max_size=5))
def test_parsing_undoes_encoding(given_records):
    assert parse(b"".join(record.to_bytes() for record in given_records)) == given_records


def test_sequences_in_a_snapshot_have_a_chunk_id():
    data = b"".join(record.to_bytes() for record in (IN_SNAPSHOT, OFFSET, TIMESTAMP))
    assert parse(data, is_snapshot=True) == [IN_SNAPSHOT, OFFSET, TIMESTAMP]


def test_an_id_may_have_255_bytes_and_no_more():
    longest = TrackingRecord(TrackingType.OFFSET, b"x" * 255, 1)
    assert parse(longest.to_bytes()) == [longest]
    with pytest.raises(OverflowError):
        TrackingRecord(TrackingType.OFFSET, b"x" * 256, 1).to_bytes()


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_every_truncation_ends_at_a_record_or_is_noticed(is_snapshot):
    parts = [record.to_bytes() for record in (IN_SNAPSHOT if is_snapshot else SEQUENCE, OFFSET, TIMESTAMP)]
    borders = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    data = b"".join(parts)
    for size in range(len(data)):
        if size in borders:
            assert len(parse(data[:size], is_snapshot=is_snapshot)) == borders.index(size)
            continue
        with pytest.raises(BadLengthError) as caught:
            parse(data[:size], is_snapshot=is_snapshot)
        assert caught.value.position == 70 + max(border for border in borders if border <= size)


def test_an_unknown_type_is_refused_with_its_position():
    with pytest.raises(BadVersionError) as caught:
        parse(OFFSET.to_bytes() + b"\x03\x00" + bytes(8))
    assert (caught.value.position, caught.value.found) == (70 + 11, 3)


def test_a_user_chunk_has_its_tracking_in_the_trailer():
    chunk = chunk_of(b"message", ChunkType.USER, trailer=SEQUENCE.to_bytes() + OFFSET.to_bytes())
    assert list(iter_tracking(chunk, source=SOURCE)) == [SEQUENCE, OFFSET]


def test_tracking_chunks_have_theirs_in_the_one_entry():
    delta = chunk_of(OFFSET.to_bytes() + SEQUENCE.to_bytes(), ChunkType.TRACKING_DELTA)
    assert list(iter_tracking(delta, source=SOURCE)) == [OFFSET, SEQUENCE]
    snapshot = chunk_of(OFFSET.to_bytes() + IN_SNAPSHOT.to_bytes(), ChunkType.TRACKING_SNAPSHOT)
    assert list(iter_tracking(snapshot, source=SOURCE)) == [OFFSET, IN_SNAPSHOT]


@pytest.mark.parametrize(
    ("chunk", "position"),
    [
        (chunk_of(b"12", ChunkType.USER, trailer=b"\0", bloom=b"B" * 16), 500 + 48 + 16 + 6),
        (chunk_of(b"\0", ChunkType.TRACKING_DELTA, bloom=b"B" * 16), 500 + 48 + 16 + 4),
    ],
)
def test_what_is_wrong_is_told_by_its_position_in_the_source(chunk, position):
    with pytest.raises(BadLengthError) as caught:
        list(iter_tracking(chunk, source=SOURCE))
    assert (caught.value.source, caught.value.position) == (SOURCE, position)


def test_a_sub_batch_in_a_tracking_chunk_is_refused():
    _, data = make_chunk(
        [make_sub_batch([OFFSET.to_bytes()])],
        chunk_id=ChunkId(0),
        timestamp=TimestampMs(0),
        epoch=Epoch(0),
        kind=ChunkType.TRACKING_DELTA,
    )
    with pytest.raises(BadLengthError, match="sub-batch"):
        list(iter_tracking(next(iter_chunks(data, source=SOURCE)), source=SOURCE))


@given(st.lists(records, max_size=4), st.data())
def test_checking_a_trailer_does_not_depend_on_where_pieces_are_cut(given_records, data):
    whole = b"".join(record.to_bytes() for record in given_records)
    size = data.draw(st.integers(0, len(whole)))
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=6)))
    check = TrackingCheck()
    for a, b in zip([0, *cuts], [*cuts, size], strict=True):
        check.feed(memoryview(whole[a:b]))
    ends = {sum(len(record.to_bytes()) for record in given_records[:n]) for n in range(len(given_records) + 1)}
    if size in ends:
        check.check(source=SOURCE, position=0)
    else:
        with pytest.raises(BadLengthError):
            check.check(source=SOURCE, position=0)


def test_a_trailer_with_an_unknown_type_does_not_pass_the_check():
    check = TrackingCheck()
    check.feed(memoryview(OFFSET.to_bytes() + b"P"))
    check.feed(memoryview(b"more"))  # not of this type either, but it counts no more
    with pytest.raises(BadVersionError, match=f"found {ord('P')}"):
        check.check(source=SOURCE, position=7)


def test_a_delta_says_what_is_new_in_the_order_of_erlangs_maps():
    state = TrackingState()
    for record in (OFFSET, TIMESTAMP, SEQUENCE, TrackingRecord(TrackingType.OFFSET, b"d", 1)):
        state.add(record, ChunkId(7))
    assert parse(state.flush()) == [TIMESTAMP, SEQUENCE, TrackingRecord(TrackingType.OFFSET, b"d", 1), OFFSET]
    assert state.flush() == b""
    assert not state.is_empty


def test_the_last_value_of_an_id_counts():
    state = TrackingState()
    state.add(TrackingRecord(TrackingType.OFFSET, b"c", 1), ChunkId(0))
    state.add(TrackingRecord(TrackingType.OFFSET, b"c", 2), ChunkId(0))
    assert parse(state.flush()) == [TrackingRecord(TrackingType.OFFSET, b"c", 2)]


def test_a_snapshot_says_everything_and_leaves_nothing_for_a_delta():
    state = TrackingState()
    state.add(SEQUENCE, ChunkId(7))
    state.flush()
    state.add(OFFSET, ChunkId(8))
    state.add(TIMESTAMP, ChunkId(8))
    snapshot = state.snapshot(Offset(0), TimestampMs(-2))
    assert parse(snapshot, is_snapshot=True) == [
        TIMESTAMP,
        OFFSET,
        TrackingRecord(TrackingType.SEQUENCE, SEQUENCE.id, SEQUENCE.value, ChunkId(7)),
    ]
    assert state.flush() == b""


def test_a_snapshot_has_each_kind_from_the_last_name_to_the_first():
    state = TrackingState()
    for kind in TrackingType:
        for name in (b"b", b"c", b"a"):
            state.add(TrackingRecord(kind, name, 1), ChunkId(7))
    found = parse(state.snapshot(Offset(0), TimestampMs(0)), is_snapshot=True)
    kinds = (TrackingType.TIMESTAMP, TrackingType.OFFSET, TrackingType.SEQUENCE)
    assert [(one.type, one.id) for one in found] == [(kind, name) for kind in kinds for name in (b"c", b"b", b"a")]


def test_a_snapshot_forgets_what_lies_before_the_stream():
    state = TrackingState()
    state.add(TrackingRecord(TrackingType.OFFSET, b"old", 9), ChunkId(0))
    state.add(TrackingRecord(TrackingType.OFFSET, b"new", 10), ChunkId(0))
    state.add(TrackingRecord(TrackingType.TIMESTAMP, b"old", 99), ChunkId(0))
    assert parse(state.snapshot(Offset(10), TimestampMs(100)), is_snapshot=True) == [
        TrackingRecord(TrackingType.OFFSET, b"new", 10)
    ]
    assert set(state.offsets) == {b"new"}
    assert not state.timestamps


def test_a_snapshot_keeps_the_publishers_of_the_newest_chunks():
    state = TrackingState()
    for number in range(MAX_SEQUENCES + 10):
        state.add(TrackingRecord(TrackingType.SEQUENCE, b"%d" % number, 1), ChunkId(1000 - number))
    kept = parse(state.snapshot(Offset(0), TimestampMs(0)), is_snapshot=True)
    assert {record.chunk_id for record in kept} == {1000 - number for number in range(MAX_SEQUENCES)}


def test_a_state_is_empty_until_something_is_tracked():
    state = TrackingState()
    assert state.is_empty
    state.add(OFFSET, ChunkId(0))
    assert not state.is_empty
