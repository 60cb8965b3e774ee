"""Walking a segment that grows, and shrinks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from coldstream.agent.disk.walk import Border, SegmentPosition, SegmentWalk
from coldstream.archive.borders import HELD_BYTES
from coldstream.format.chunk import ChunkType
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

EVERY_MS = 1000
FAR = TimestampMs(1 << 50)


class Segment:
    """A segment file, made chunk by chunk: user chunks of 3 records, tracking chunks of one."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{0:020}.segment"
        self.path.write_bytes(SEGMENT_HEADER)
        self.next_offset = 0
        self.walk = SegmentWalk(self.path, Offset(0), EVERY_MS)

    def add(self, timestamp: int, *, tracking: int = 0, epoch: int = 1) -> None:
        if tracking:
            records = TrackingRecord(TrackingType.OFFSET, b"c", 1).to_bytes()
            entries, kind = [(records * tracking)[:tracking]], ChunkType.TRACKING_DELTA
        else:
            entries, kind = [b"a", b"b", b"c"], ChunkType.USER
        header, chunk = make_chunk(
            entries,
            chunk_id=ChunkId(self.next_offset),
            timestamp=TimestampMs(timestamp),
            epoch=Epoch(epoch),
            kind=kind,
        )
        with self.path.open("ab") as file:
            file.write(chunk)
        self.next_offset = header.next_offset

    def borders(self) -> list[int]:
        self.walk.advance()
        return [border.at.offset for border in self.walk.borders]


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path)


def test_a_walk_ends_after_the_last_whole_chunk(segment):
    segment.add(5)
    segment.add(6)
    whole = segment.path.read_bytes()
    for missing in (1, 20, 60):
        segment.path.write_bytes(whole[:-missing])
        segment.walk.advance()
        assert segment.walk.end.offset == 3
        assert not segment.walk.is_at_end
    segment.path.write_bytes(whole)
    segment.walk.advance()
    assert (segment.walk.end.offset, segment.walk.end.position) == (6, len(whole))
    assert segment.walk.is_at_end


def test_what_was_truncated_and_written_anew_is_walked_anew(segment):
    segment.add(5)
    kept = segment.path.read_bytes()
    segment.add(6)
    segment.walk.advance()
    segment.path.write_bytes(kept)
    segment.next_offset = 3
    segment.add(7, epoch=2)
    segment.add(8, epoch=2)
    segment.walk.advance()
    assert segment.walk.end.offset == 9
    assert segment.walk.last_user.header.epoch == 2


def test_what_is_no_chunk_ends_the_walk(segment):
    segment.add(5)
    with segment.path.open("ab") as file:
        file.write(bytes(200))
    segment.walk.advance()
    assert segment.walk.end.offset == 3
    assert not segment.walk.is_at_end


def test_a_border_lies_where_the_span_of_time_changes(segment):
    for timestamp in (100, 900, 1000, 1999, 5000, 4999):
        segment.add(timestamp)
    assert segment.borders() == [0, 6, 12, 15]


def test_tracking_chunks_lie_after_the_border(segment):
    segment.add(100)
    segment.add(200, tracking=10)
    segment.add(1500, tracking=10)
    segment.add(1600)
    assert segment.borders() == [0, 3]


def test_tracking_chunks_within_a_span_make_no_border(segment):
    segment.add(100)
    segment.add(5000, tracking=10)
    segment.add(200)
    assert segment.borders() == [0]


def test_more_tracking_than_may_be_held_makes_a_border(segment):
    segment.add(100)
    segment.add(110, tracking=HELD_BYTES // 2)
    assert segment.borders() == [0]
    segment.add(120, tracking=HELD_BYTES // 2)
    assert segment.borders() == [0, 3]
    segment.add(900)
    segment.add(950)
    assert segment.borders() == [0, 3]


def test_the_clock_closes_a_span_only_a_while_after_its_end(segment):
    segment.add(100)
    segment.add(150, tracking=10)
    segment.walk.advance()
    assert segment.walk.last_border(TimestampMs(1999)).at.offset == 0
    closed = segment.walk.last_border(TimestampMs(2000))
    assert closed.at.offset == 3
    assert closed.user_chunk == segment.walk.last_user


def test_without_a_span_nothing_closes(segment):
    segment.add(100)
    segment.add(9000)
    walk = SegmentWalk(segment.path, Offset(0))
    walk.advance()
    assert [border.at.offset for border in walk.borders] == [0]
    assert walk.last_border(FAR).at.offset == 0


def test_the_border_before_an_offset_is_where_an_upload_begins(segment):
    for timestamp in (100, 1100, 2100, 2200):
        segment.add(timestamp)
    segment.walk.advance()
    found = [segment.walk.border_at_or_before(Offset(offset)).at.offset for offset in (0, 2, 3, 5, 6, 11)]
    assert found == [0, 0, 3, 3, 6, 6]


def test_a_chunk_is_found_by_its_id_alone(segment):
    for timestamp in (100, 1100, 2100):
        segment.add(timestamp)
    segment.walk.advance()
    assert segment.walk.find(ChunkId(3)).header.timestamp == 1100
    assert segment.walk.find(ChunkId(4)) is None
    assert segment.walk.find(ChunkId(9)) is None


def test_the_last_message_before_an_offset_is_found(segment):
    segment.add(100)
    segment.add(110, tracking=10)
    segment.add(120)
    segment.walk.advance()
    found = [segment.walk.last_user_before(Offset(offset)) for offset in (2, 3, 4, 6, 7, 99)]
    assert [None if chunk is None else chunk.header.chunk_id for chunk in found] == [None, 0, 0, 0, 4, 4]


def test_a_hundred_thousand_borders_are_passed_at_once(segment):
    walk = segment.walk
    walk.borders = [Border(SegmentPosition(Offset(at), at)) for at in range(100_000)]
    started = time.process_time()
    assert walk.border_at_or_before(Offset(99_999)).at.offset == 99_999
    assert time.process_time() - started < 0.1
    assert len(walk.borders) == 1
