"""Resolution, compared with a brute-force reading of all chunks."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import BadSequenceError, CorruptionError, StreamNotFoundError, TruncatedError
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.format.fragment import FRAGMENT_INDEX_RECORD_BYTES
from coldstream.manifest.entry import Gap, Quarantine
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.answer import Answer, AnswerOutcome, Bounds, Range
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import READINGS
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.object_values import RangeRead
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, Spec, StoredChunk, holes, random_archive, steady

EVERYTHING = Bounds(max_ranges=1000, max_bytes=1 << 40)


def ask(
    archive: ChunkArchive,
    start: OffsetSpec | Cursor,
    bounds: Bounds = EVERYTHING,
    *,
    precise: bool = False,
    stream: StreamId = STREAM,
) -> Answer:
    archive.table.requests.clear()
    archive.objects.requests.clear()
    request = ResolveRequest(stream, start, bounds, precise)
    return resolve(request, archive.table, archive.objects, now=NOW, url_expiry_s=60)


def at_offset(archive: ChunkArchive, offset: int, bounds: Bounds = EVERYTHING, *, precise: bool = False) -> Answer:
    return ask(archive, AtOffset(Offset(offset)), bounds, precise=precise)


def at_timestamp(archive: ChunkArchive, at: int, bounds: Bounds = EVERYTHING, *, precise: bool = False) -> Answer:
    return ask(archive, AtTimestamp(TimestampMs(at)), bounds, precise=precise)


def read(archive: ChunkArchive, part: Range) -> list[int]:
    """Check a range against its chunks; return their ids."""
    data = archive.objects.objects[part.key][part.byte_range.start : part.byte_range.end]
    chunks = list(iter_chunks(data, source=part.key, position=part.byte_range.start))
    assert chunks[0].header.chunk_id == part.first_offset
    assert chunks[0].header.timestamp == part.first_timestamp
    assert chunks[-1].header.next_offset == part.next_offset
    return [chunk.header.chunk_id for chunk in chunks]


@dataclass(frozen=True)
class Expected:
    """The expected answer: ranges from a chunk on, a gap, or the tail."""

    chunk: StoredChunk | None = None
    gap: tuple[int, int] | None = None


def expected_at_offset(chunks: list[StoredChunk], offset: int) -> Expected:
    if offset < chunks[0].header.chunk_id:
        return Expected(chunks[0])
    for chunk in chunks:
        if chunk.header.chunk_id <= offset < chunk.header.next_offset:
            return Expected(chunk)
    return Expected(gap=next((hole for hole in holes(chunks) if hole[0] <= offset < hole[1]), None))


def expected_at_timestamp(chunks: list[StoredChunk], timestamp: int) -> Expected:
    for number, chunk in enumerate(chunks):
        if chunk.header.timestamp >= timestamp:
            before = chunks[number - 1].header.next_offset if number else chunk.header.chunk_id
            hole = (int(before), int(chunk.header.chunk_id))
            return Expected(gap=hole) if hole[0] < hole[1] else Expected(chunk)
    return Expected()


def check(archive: ChunkArchive, answer: Answer, expected: Expected, *, precise: bool = False) -> None:
    chunks = archive.chunks
    if expected.gap is not None:
        assert answer.outcome is AnswerOutcome.GAP
        assert answer.gap is not None
        assert (answer.gap.first_offset, answer.gap.next_offset) == expected.gap
        return
    if expected.chunk is None:
        assert answer.outcome is AnswerOutcome.TAIL
        assert answer.tail == chunks[-1].header.next_offset
        return
    ids = [chunk_id for part in answer.ranges for chunk_id in read(archive, part)]
    hole = next((hole for hole in holes(chunks) if hole[0] > expected.chunk.header.chunk_id), None)
    end = chunks[-1].header.next_offset if hole is None else hole[0]
    first = chunks.index(expected.chunk)
    following = [chunk.header.chunk_id for chunk in chunks[first:] if chunk.header.chunk_id < end]
    assert following == ids[-len(following) :], "all from the chunk to attach at on, up to the hole or the end"
    early = ids[: -len(following)]
    assert early == [chunk.header.chunk_id for chunk in chunks[first - len(early) : first]]
    if precise:
        assert not early
    assert {chunk.key for chunk in chunks if chunk.header.chunk_id in early} <= {expected.chunk.key}
    if hole is None:
        assert answer.tail == end
    else:
        if answer.cursor is not None:
            # A page of the index by time does not say what is a gap.
            answer = ask(archive, Cursor.from_text(answer.cursor))
        assert answer.gap == Gap(Offset(hole[0]), Offset(hole[1]))


@pytest.mark.parametrize("seed", range(150))
def test_every_offset_of_a_random_stream_resolves_as_reading_it_all_says(seed: int) -> None:
    archive = random_archive(random.Random(seed))
    chunks = archive.chunks
    for offset in range(chunks[-1].header.next_offset + 3):
        for precise in (False, True):
            answer = at_offset(archive, offset, precise=precise)
            check(archive, answer, expected_at_offset(chunks, offset), precise=precise)


@pytest.mark.parametrize("seed", range(150))
def test_every_timestamp_of_a_random_stream_resolves_as_reading_it_all_says(seed: int) -> None:
    archive = random_archive(random.Random(seed))
    chunks = archive.chunks
    times = {chunk.header.timestamp for chunk in chunks}
    for timestamp in range(min(times) - 2, max(times) + 3):
        for precise in (False, True):
            answer = at_timestamp(archive, timestamp, precise=precise)
            check(archive, answer, expected_at_timestamp(chunks, timestamp), precise=precise)


@pytest.mark.parametrize("seed", range(60))
def test_the_three_named_places_of_a_random_stream(seed: int) -> None:
    archive = random_archive(random.Random(seed))
    chunks = archive.chunks
    check(archive, ask(archive, FIRST), Expected(chunks[0]))
    check(archive, ask(archive, NEXT), Expected())
    users = [chunk for chunk in chunks if chunk.header.type is ChunkType.USER]
    check(archive, ask(archive, LAST), Expected(users[-1] if users else None), precise=True)


@pytest.mark.parametrize("seed", range(60))
def test_pages_by_cursor_are_the_whole_stream_once(seed: int) -> None:
    rng = random.Random(seed)
    archive = random_archive(rng, gaps=0)
    bounds = Bounds(rng.randrange(1, 4), rng.choice([1, 300, 1000]), rng.choice([None, 1, 300]))
    ids: list[int] = []
    answer = ask(archive, FIRST, bounds)
    while True:
        assert 1 <= len(answer.ranges) <= bounds.max_ranges
        assert len(answer.ranges) == 1 or sum(len(r.byte_range) for r in answer.ranges) <= bounds.max_bytes
        ids += [chunk_id for part in answer.ranges for chunk_id in read(archive, part)]
        if answer.cursor is None:
            break
        answer = ask(archive, Cursor.from_text(answer.cursor), bounds)
        assert sum(archive.table.requests.values()) == 1
    assert ids == [chunk.header.chunk_id for chunk in archive.chunks]
    assert answer.tail == archive.chunks[-1].header.next_offset


@pytest.mark.parametrize("seed", range(40))
def test_an_ordinary_lookup_is_one_query_or_two_by_time_and_no_request_to_s3(seed: int) -> None:
    archive = random_archive(random.Random(seed), gaps=0)
    chunks = archive.chunks
    times = [chunk.header.timestamp for chunk in chunks]
    for start in (FIRST, *(AtOffset(Offset(offset)) for offset in range(chunks[-1].header.next_offset + 2))):
        ask(archive, start)
        assert archive.table.requests == {"Query": 1}
        assert not archive.objects.requests
    for timestamp in range(min(times) - 1, max(times) + 2):
        at_timestamp(archive, timestamp)
        is_there = timestamp <= max(times)
        assert archive.table.requests == ({"Query": 2} if is_there else {"Query": 1, "GetItem": 1})
        assert not archive.objects.requests
    ask(archive, NEXT)
    assert archive.table.requests == {"GetItem": 1}


def test_last_is_one_query() -> None:
    archive = ChunkArchive()
    for first in range(0, 100, 10):
        archive.add(first, steady(5, first, first + 1))
    answer = ask(archive, LAST)
    assert archive.table.requests == {"Query": 1}
    assert [part.first_offset for part in answer.ranges] == [95]
    assert answer.tail == 100


def test_last_looks_past_fragments_that_hold_only_tracking_chunks() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1, 2))
    for first in range(10, 40):
        archive.add(first, [Spec(1, first, ChunkType.TRACKING_DELTA)])
    answer = ask(archive, LAST)
    assert answer.ranges[0].first_offset == 5
    assert answer.tail == 40


def test_last_of_a_stream_of_tracking_chunks_alone_is_the_tail() -> None:
    archive = ChunkArchive()
    archive.add(7, [Spec(1, 1, ChunkType.TRACKING_SNAPSHOT)])
    assert ask(archive, LAST).tail == 8


def test_a_gap_at_the_asked_offset_is_the_answer_with_its_reason_and_costs_a_get_item() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    archive.add(10, steady(5, 2))
    answer = at_offset(archive, 7)
    assert answer.gap == Gap(Offset(5), Offset(10))
    assert not answer.ranges
    assert archive.table.requests == {"Query": 1, "GetItem": 1}


def test_an_offset_below_the_first_archived_attaches_at_the_first() -> None:
    archive = ChunkArchive()
    archive.add(100, steady(5, 1, 2))
    assert at_offset(archive, 3).ranges[0].first_offset == 100


def test_a_cursor_below_the_first_archived_is_a_gap_and_not_the_first() -> None:
    archive = ChunkArchive()
    archive.add(100, steady(5, 1, 2))
    answer = ask(archive, Cursor(STREAM.incarnation, Offset(60)))
    assert answer.gap == Gap(Offset(60), Offset(100))


def test_an_offset_past_the_tail_is_answered_with_the_tail() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    assert at_offset(archive, 5).tail == 5
    assert at_offset(archive, 1000).tail == 5


def test_equal_timestamps_across_a_border_attach_at_the_first_of_them() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 10, 20, 30))
    archive.add(15, steady(5, 30, 30))
    archive.add(25, steady(5, 30, 31))
    assert at_timestamp(archive, 30, precise=True).ranges[0].first_offset == 10


def test_a_timestamp_right_behind_a_hole_is_a_gap_because_the_hole_may_hold_it() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 10))
    archive.add(10, steady(5, 20, 30))
    assert at_timestamp(archive, 15).gap == Gap(Offset(5), Offset(10))
    assert at_timestamp(archive, 20).gap == Gap(Offset(5), Offset(10))
    assert at_timestamp(archive, 21, precise=True).ranges[0].first_offset == 15


@pytest.mark.parametrize("start", [FIRST, LAST, NEXT, AtOffset(Offset(0)), AtTimestamp(TimestampMs(0))], ids=str)
def test_a_stream_that_is_not_there_is_not_found(start: OffsetSpec) -> None:
    with pytest.raises(StreamNotFoundError):
        ask(ChunkArchive(), start)


@pytest.mark.parametrize("start", [FIRST, LAST, NEXT, AtOffset(Offset(0)), AtTimestamp(TimestampMs(0))], ids=str)
def test_a_stream_of_which_only_a_quarantined_segment_is_known_is_not_found(start: OffsetSpec) -> None:
    archive = ChunkArchive()
    record_missing(archive.table, STREAM, Quarantine(Offset(0), Offset(9), "bad CRC", NOW, "k", "etag"))
    with pytest.raises(StreamNotFoundError):
        ask(archive, start)


@pytest.mark.parametrize("start", [FIRST, NEXT, AtOffset(Offset(0)), AtTimestamp(TimestampMs(0))], ids=str)
def test_an_incarnation_of_another_stream_is_not_found(start: OffsetSpec) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    with pytest.raises(StreamNotFoundError):
        ask(archive, start, stream=StreamId("/", "payments", STREAM.incarnation))


def test_incarnations_do_not_mix() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    with pytest.raises(StreamNotFoundError):
        ask(archive, FIRST, stream=StreamId("/", "orders", Incarnation("__orders_1763700000000000001")))


def test_overlapping_entries_resolve_every_offset_and_hold_each_chunk_that_follows() -> None:
    archive = ChunkArchive(sparse_bytes=1)
    entries = [archive.add(first, steady(5, first, first + 5)) for first in (0, 10, 20)]
    merged = archive.put(0, steady(5, 0, 5, 10, 15, 20, 25), generation=1)
    # As compaction leaves it half-way: the merged entry over the last old one, the others not yet removed.
    partition = archive.table._partitions[STREAM.incarnation]
    partition.entries[merged.next_offset] = merged
    for offset in range(30):
        answer = at_offset(archive, offset)
        ids = [chunk_id for part in answer.ranges for chunk_id in read(archive, part)]
        assert ids == list(range(offset - offset % 5, 30, 5)), "clipped at the sparse index, a point a chunk"
        assert answer.tail == 30
    assert entries


def test_range_bytes_splits_at_sparse_points_and_takes_one_step_at_least() -> None:
    archive = ChunkArchive(sparse_bytes=1)
    archive.add(0, steady(5, *range(20)))
    chunk_bytes = len(archive.chunks[0].data)
    answer = ask(archive, FIRST, Bounds(1000, 1 << 40, range_bytes=3 * chunk_bytes))
    assert [len(read(archive, part)) for part in answer.ranges] == [3] * 6 + [2]
    assert [part.last_timestamp for part in answer.ranges] == [2, 5, 8, 11, 14, 17, 19]
    answer = ask(archive, FIRST, Bounds(1000, 1 << 40, range_bytes=1))
    assert [len(read(archive, part)) for part in answer.ranges] == [1] * 20


def test_one_range_is_returned_even_where_it_is_larger_than_max_bytes() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1, 2))
    archive.add(10, steady(5, 1, 2))
    answer = ask(archive, FIRST, Bounds(max_bytes=1))
    assert [part.next_offset for part in answer.ranges] == [10]
    assert answer.cursor is not None


def test_a_range_ends_before_the_index_and_is_signed_for_exactly_its_bytes() -> None:
    archive = ChunkArchive()
    entry = archive.add(0, steady(5, 1, 2))
    part = ask(archive, FIRST).ranges[0]
    assert (part.byte_range.start, part.byte_range.end) == (8, 8 + entry.data_bytes)
    assert part.url == f"memory://memory/{entry.key}?range={part.byte_range.http}&expires=60"
    assert part.expires_at == NOW + 60_000


def test_precise_costs_two_small_gets_and_none_where_the_sparse_point_is_the_chunk() -> None:
    archive = ChunkArchive(sparse_bytes=250)
    archive.add(0, steady(5, *range(20)))
    points = archive.table.log_from_offset(STREAM.incarnation, Offset(0), 1).entries[0].sparse.points
    assert len(points) > 2
    for point in points:
        assert at_offset(archive, point.chunk_id, precise=True).ranges[0].first_offset == point.chunk_id
        assert not archive.objects.requests
    at_offset(archive, points[1].chunk_id + 5, precise=True)
    assert archive.objects.requests == {"GetObject": 2}


class _WrongObjects(MemoryObjects):
    """Gives the reads of these numbers, from 1 on, a wrong byte: the one that comes after `at` by the number."""

    wrong: tuple[int, ...] = ()
    at = 0
    reads = 0

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        found = super().get_range(key, byte_range, if_match=if_match)
        self.reads += 1
        if self.reads not in self.wrong:
            return found
        data = bytearray(found.data)
        data[self.at + self.reads] ^= 1
        return replace(found, data=bytes(data))


def test_precise_believes_no_reading_alone() -> None:
    """A wrong byte of a timestamp, or of an id, would pass over chunks, and nothing in the index shows it."""
    objects = _WrongObjects()
    archive = ChunkArchive(sparse_bytes=10_000, objects=objects)
    entry = archive.add(0, steady(5, *range(20)))
    records = entry.chunks * FRAGMENT_INDEX_RECORD_BYTES
    for objects.at in range(records - READINGS):
        for objects.wrong in ((1,), (2,), (1, 2)):
            for lookup, wanted in ((at_offset, 43), (at_timestamp, 8)):
                objects.reads = 0
                assert lookup(archive, wanted, precise=True).ranges[0].first_offset == 40
    objects.wrong, objects.reads = (1, 2, 3, 4), 0
    with pytest.raises(CorruptionError, match="no two are the same") as caught:
        at_offset(archive, 43, precise=True)
    assert caught.value.source == entry.key


def test_precise_refuses_an_index_that_is_not_what_the_manifest_says() -> None:
    archive = ChunkArchive(sparse_bytes=10_000)
    entry = archive.add(0, steady(5, 1, 2, 3))
    body = archive.objects.objects[entry.key]
    at = 8 + entry.data_bytes + 8
    archive.objects.objects[entry.key] = body[:at] + bytes(60) + body[at + 60 :]
    with pytest.raises(BadSequenceError, match="index record"):
        at_offset(archive, 7, precise=True)
    archive.objects.objects[entry.key] = body[: at + 59]
    with pytest.raises(TruncatedError):
        at_offset(archive, 7, precise=True)
