"""The segment writer: the files that osiris would have written."""

from __future__ import annotations

import itertools
from pathlib import Path
from zlib import crc32

import pytest

from coldstream.format.chunk import ChunkHeader, ChunkType, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.index import INDEX_HEADER, IndexRecord, iter_index
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER, first_offset_of
from coldstream.format.tracking import TrackingRecord, TrackingType, iter_tracking
from coldstream.format.writer import SegmentWriter, make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

NOW = TimestampMs(1_700_000_000_000)


def stored(offset: int, reference: bytes = b"c") -> TrackingRecord:
    return TrackingRecord(TrackingType.OFFSET, reference, offset)


def published(sequence: int, publisher: bytes = b"p") -> TrackingRecord:
    return TrackingRecord(TrackingType.SEQUENCE, publisher, sequence)


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


def chunks(path: Path) -> list[ChunkHeader]:
    """Scan a segment, compare with its index, and return its headers."""
    scanner = SegmentScanner(path.name, first_offset=first_offset_of(path.name))
    ends = [event for event in scanner.feed(path.read_bytes()) if isinstance(event, ChunkEnd)]
    scanner.close()
    with path.with_suffix(".index").open("rb") as file:
        assert list(iter_index(file, source=path.name)) == [IndexRecord.of(end.header, end.position) for end in ends]
    return [end.header for end in ends]


def types(directory: Path) -> list[list[ChunkType]]:
    return [[header.type for header in chunks(path)] for path in segments(directory)]


def test_messages_are_packed_as_a_publisher_packs_them_at_the_beginning_of_a_source_of_their_own():
    packed = memoryview(b"\0\0\0\x01a\0\0\0\x02bc")
    assert make_sub_batch([b"a", b"bc"]) == SubBatch(Compression.NONE, 2, len(packed), packed, 0)


def test_files_are_laid_out_by_hand(tmp_path):
    with SegmentWriter(tmp_path, first_offset=Offset(5)) as writer:
        writer.write([b"abc"], timestamp=TimestampMs(-1), epoch=Epoch(2), tracking=[published(9)], bloom=b"B" * 16)
    data = b"\0\0\0\x03abc"
    chunk = (
        bytes.fromhex("50 00 0001 00000001 ffffffffffffffff 0000000000000002 0000000000000005")
        + crc32(data).to_bytes(4)
        + bytes.fromhex("00000007 0000000b 10 000000")
        + b"B" * 16
        + data
        + b"\0\x01p"
        + bytes.fromhex("0000000000000009")
    )
    assert (tmp_path / "00000000000000000005.segment").read_bytes() == SEGMENT_HEADER + chunk
    assert (tmp_path / "00000000000000000005.index").read_bytes() == INDEX_HEADER + bytes.fromhex(
        "0000000000000005 ffffffffffffffff 0000000000000002 00000008 00"
    )


def test_a_new_stream_has_one_segment_without_chunks(tmp_path):
    SegmentWriter(tmp_path).close()
    assert types(tmp_path) == [[]]


def test_offsets_count_the_messages_of_sub_batches_and_tracking_chunks(tmp_path):
    with SegmentWriter(tmp_path) as writer:
        writer.write([b"a", make_sub_batch([b"b", b"c"], Compression.SNAPPY)], timestamp=NOW)
        writer.write(timestamp=NOW, tracking=[stored(1)])
        writer.write([b"d"], timestamp=NOW)
        assert writer.next_offset == 5
    (path,) = segments(tmp_path)
    assert [(header.chunk_id, header.entries, header.records) for header in chunks(path)] == [
        (0, 2, 3),
        (3, 1, 1),
        (4, 1, 1),
    ]


def test_nothing_to_write_writes_nothing(tmp_path):
    with SegmentWriter(tmp_path) as writer:
        writer.write(timestamp=NOW)
        assert writer.next_offset == 0
    assert types(tmp_path) == [[]]


def test_a_segment_is_rolled_by_the_chunk_after_its_size_is_reached(tmp_path):
    size = len(make_chunk([b"x"], chunk_id=ChunkId(0), timestamp=NOW, epoch=Epoch(1))[1])
    for maximum, first_segment_chunks in [(8 + 2 * size, 2), (8 + 2 * size + 1, 3)]:
        directory = tmp_path / str(maximum)
        directory.mkdir()
        with SegmentWriter(directory, max_segment_bytes=maximum) as writer:
            for _ in range(first_segment_chunks):
                writer.write([b"x"], timestamp=NOW)
            assert len(segments(directory)) == 1
            writer.write([b"x"], timestamp=NOW)
        assert [len(chunks(path)) for path in segments(directory)] == [first_segment_chunks, 1]


def test_a_segment_is_rolled_by_its_number_of_chunks(tmp_path):
    with SegmentWriter(tmp_path, max_segment_chunks=2) as writer:
        for _ in range(5):
            writer.write([b"x", b"y"], timestamp=NOW)
    assert [path.name for path in segments(tmp_path)] == [f"{offset:020}.segment" for offset in (0, 4, 8)]


def test_a_snapshot_comes_first_in_a_new_segment_when_anything_is_tracked(tmp_path):
    with SegmentWriter(tmp_path, max_segment_chunks=2) as writer:
        writer.write([b"1"], timestamp=NOW)
        writer.write([b"2"], timestamp=NOW)
        writer.write([b"3"], timestamp=NOW, tracking=[published(7)])
        writer.write([b"4"], timestamp=NOW)
        writer.write([b"5"], timestamp=NOW)
    user, snapshot = ChunkType.USER, ChunkType.TRACKING_SNAPSHOT
    assert types(tmp_path) == [[user, user], [snapshot, user], [snapshot, user], [snapshot, user]]


def test_what_a_snapshot_says_the_trailer_behind_it_does_not(tmp_path):
    with SegmentWriter(tmp_path, max_segment_chunks=1) as writer:
        writer.write([b"1"], timestamp=NOW, tracking=[published(6)])
        writer.write([b"2"], timestamp=NOW, tracking=[published(7), stored(0)])
    first, second = segments(tmp_path)[:2]
    source = second.name
    (chunk,) = iter_chunks(first.read_bytes()[8:], source=source)
    assert list(iter_tracking(chunk, source=source)) == [published(6)]
    (snapshot,) = iter_chunks(second.read_bytes()[8:], source=source)
    # The publisher's chunk id is that of the next chunk as its message came: the snapshot's own.
    assert list(iter_tracking(snapshot, source=source)) == [
        stored(0),
        TrackingRecord(TrackingType.SEQUENCE, b"p", 7, ChunkId(1)),
    ]
    (user,) = iter_chunks(segments(tmp_path)[2].read_bytes()[8:], source=source)
    assert (user.header.chunk_id, bytes(user.trailer)) == (2, b"")


def test_timestamps_and_epochs_are_the_callers(tmp_path):
    given = [(TimestampMs(9), Epoch(1)), (TimestampMs(-3), Epoch(1)), (TimestampMs(9), Epoch(4))]
    with SegmentWriter(tmp_path) as writer:
        for timestamp, epoch in given:
            writer.write([b"x"], timestamp=timestamp, epoch=epoch)
    (path,) = segments(tmp_path)
    assert [(header.timestamp, header.epoch) for header in chunks(path)] == given


def test_segments_follow_each_other_without_a_hole(tmp_path):
    with SegmentWriter(tmp_path, max_segment_bytes=1000) as writer:
        for number in range(50):
            entries = [b"m" * number, make_sub_batch([b"n"] * number)] if number % 3 else ()
            writer.write(entries, timestamp=NOW, tracking=[stored(number)] if number % 5 == 0 else ())
        next_offset = writer.next_offset
    headers = [header for path in segments(tmp_path) for header in chunks(path)]
    assert all(b.chunk_id == a.next_offset for a, b in itertools.pairwise(headers))
    assert (headers[0].chunk_id, headers[-1].next_offset) == (0, next_offset)


def test_more_entries_than_a_chunk_can_have_are_refused_and_leave_no_trace(tmp_path):
    with SegmentWriter(tmp_path) as writer:
        with pytest.raises(OverflowError):
            writer.write([b""] * 65536, timestamp=NOW)
        writer.write([b""] * 65535, timestamp=NOW)
    (path,) = segments(tmp_path)
    assert [header.records for header in chunks(path)] == [65535]


@pytest.mark.parametrize("limits", [{"max_segment_bytes": 8}, {"max_segment_chunks": 0}])
def test_segments_without_room_for_a_chunk_are_refused(tmp_path, limits):
    with pytest.raises(ValueError, match="room"):
        SegmentWriter(tmp_path, **limits)


def test_files_that_are_there_are_not_written_over(tmp_path):
    SegmentWriter(tmp_path).close()
    with pytest.raises(FileExistsError):
        SegmentWriter(tmp_path)
