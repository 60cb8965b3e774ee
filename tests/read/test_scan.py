"""Scans, held against a brute-force reading of all chunks."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from itertools import islice

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import BadCrcError, BadSequenceError, StreamNotFoundError, TruncatedError
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Encoding, Gap, Quarantine
from coldstream.manifest.groups import CompactionPolicy, plan_groups
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, offset_of, plan_scan, read_slice
from coldstream.resolve.attach import REMOVED
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import MAX_TIMESTAMP_MS, ByteRange, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, StoredChunk, holes, random_archive, steady
from tests.support.compaction import Compaction
from tests.support.removing import delete, remove_prefix


def plan(archive: ChunkArchive, start: int = 0, end: int | None = None, **options: object) -> list[ScanSlice | Gap]:
    limit = None if end is None else Offset(end)
    return list(plan_scan(archive.table, STREAM, Offset(start), limit, **options))  # type: ignore[arg-type]


def chunks_of(archive: ChunkArchive, steps: list[ScanSlice | Gap]) -> list[Chunk]:
    return [chunk for step in steps if isinstance(step, ScanSlice) for chunk in read_slice(archive.objects, step)]


def ids(chunks: list[Chunk] | list[StoredChunk]) -> list[int]:
    return [chunk.header.chunk_id for chunk in chunks]


def gaps_of(steps: list[ScanSlice | Gap]) -> list[tuple[int, int]]:
    return [(step.first_offset, step.next_offset) for step in steps if isinstance(step, Gap)]


def check(archive: ChunkArchive, start: int, end: int | None, steps: list[ScanSlice | Gap]) -> None:
    """Compare a plan with all chunks there are."""
    to = archive.chunks[-1].header.next_offset if end is None else end
    wanted = [chunk for chunk in archive.chunks if start < to and overlaps(chunk, start, to)]
    assert ids(chunks_of(archive, steps)) == ids(wanted)
    assert offsets_of(steps) == [
        offset
        for chunk in wanted
        for offset in range(max(start, chunk.header.chunk_id), min(to, chunk.header.next_offset))
    ]
    assert gaps_of(steps) == [hole for hole in holes(archive.chunks) if start < hole[1] and hole[0] < to and start < to]


def overlaps(chunk: StoredChunk, start: int, end: int) -> bool:
    return chunk.header.next_offset > start and chunk.header.chunk_id < end


def offsets_of(steps: list[ScanSlice | Gap]) -> list[int]:
    return [offset for step in steps if isinstance(step, ScanSlice) for offset in range(step.start, step.end)]


def mixed(sparse_bytes: int = 150) -> ChunkArchive:
    """Nine fragments of three chunks of two records."""
    archive = ChunkArchive(sparse_bytes=sparse_bytes)
    for number in range(9):
        archive.add(number * 6, steady(2, number * 30, number * 30 + 10, number * 30 + 20))
    return archive


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 150)


@pytest.mark.parametrize("seed", range(60))
def test_every_range_of_a_random_stream_is_what_reading_it_all_says(seed: int) -> None:
    rng = random.Random(seed)
    page_entries = rng.choice([1, 2, 200])
    archive = random_archive(rng)
    tail = archive.chunks[-1].header.next_offset
    for start in range(tail + 2):
        for end in (None, start, start + 1, rng.randrange(start, tail + 3)):
            slice_bytes = rng.choice([1, 300, 10_000])
            check(archive, start, end, plan(archive, start, end, slice_bytes=slice_bytes, page_entries=page_entries))


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_scan_is_whole_after_every_step_of_a_compaction(encoding: Encoding) -> None:
    archive = mixed()
    compaction = Compaction(archive)
    group = next(
        iter(plan_groups(compaction.log(), CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, encoding)))
    )
    merged = compaction.store(group, encoding)

    def transactions() -> Iterator[None]:
        yield
        yield from compaction.replace(group, merged)

    states = 0
    for _ in transactions():
        states += 1
        for start in range(0, 54, 5):
            for end in (None, start + 7):
                found = ids(chunks_of(archive, plan(archive, start, end, slice_bytes=400)))
                assert found == sorted(set(found))
                wanted = [chunk for chunk in ids(archive.chunks) if chunk + 2 > start and (end is None or chunk < end)]
                assert set(wanted) <= set(found)
    assert states > 2
    (entry,) = compaction.log()
    assert entry.encoding is encoding


def test_only_the_part_of_a_fragment_that_was_asked_for_is_read() -> None:
    archive = ChunkArchive(sparse_bytes=1, message_bytes=100)
    entry = archive.add(0, steady(1, *range(100)))
    (found,) = plan(archive, 40, 42)
    assert isinstance(found, ScanSlice)
    assert (found.first_offset, found.next_offset) == (40, 42)
    assert len(found.byte_range) == found.data_bytes
    assert found.data_bytes * 50 == entry.data_bytes


def test_slices_are_of_the_size_asked_for() -> None:
    archive = ChunkArchive(sparse_bytes=1)
    entry = archive.add(0, steady(1, *range(100)))
    steps = plan(archive, slice_bytes=entry.data_bytes // 10)
    assert len(steps) == 10
    assert sum(step.data_bytes for step in steps if isinstance(step, ScanSlice)) == entry.data_bytes


def test_a_slice_travels() -> None:
    steps = plan(mixed())
    assert pickle.loads(pickle.dumps(steps)) == steps


def test_a_gap_comes_with_its_reason() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(2, 1))
    archive.add(10, steady(2, 2))
    record_missing(archive.table, STREAM, Quarantine(Offset(2), Offset(10), "a bad disk", NOW, "key", "etag"))
    gap = Gap(Offset(2), Offset(10), "in quarantine: a bad disk")
    assert gap in plan(archive)
    assert plan(archive, 5, 7) == [gap]


def test_offsets_before_the_first_archived_one_are_a_gap_only_if_asked_for_exactly() -> None:
    archive = ChunkArchive()
    archive.add(20, steady(2, 1))
    assert gaps_of(plan(archive, 5)) == []
    assert ids(chunks_of(archive, plan(archive, 5))) == [20]
    assert gaps_of(plan(archive, 5, exactly=True)) == [(5, 20)]
    assert ids(chunks_of(archive, plan(archive, 5, exactly=True))) == [20]
    assert plan(archive, 5, 15) == []


def test_a_scan_from_the_tail_on_is_empty() -> None:
    assert plan(mixed(), 54) == []
    assert plan(mixed(), 100) == []


def test_chunks_that_are_too_old_are_left_out() -> None:
    archive = mixed(sparse_bytes=1)
    steps = plan(archive, not_before=TimestampMs(145))
    assert ids(chunks_of(archive, steps)) == [chunk for chunk in ids(archive.chunks) if chunk >= 30]


def test_a_late_chunk_before_older_ones_is_not_left_out() -> None:
    archive = ChunkArchive(sparse_bytes=1)
    archive.add(0, steady(1, 10, 99, 20, 30))
    assert ids(chunks_of(archive, plan(archive, not_before=TimestampMs(50))))[:2] == [1, 2]


def test_a_stream_that_is_not_archived_is_not_found() -> None:
    with pytest.raises(StreamNotFoundError):
        next(plan_scan(mixed().table, StreamId("/", "orders", Incarnation("other")), Offset(0)))


def test_planning_costs_one_query_a_page() -> None:
    archive = mixed()
    archive.table.requests.clear()
    plan(archive, 0, 54, page_entries=3)
    assert archive.table.requests == {"GetItem": 1, "Query": 3}
    assert not archive.objects.requests["GET"]


def test_planning_is_lazy() -> None:
    archive = mixed()
    archive.table.requests.clear()
    assert len(list(islice(plan_scan(archive.table, STREAM, Offset(0), slice_bytes=1), 2))) == 2
    assert archive.table.requests == {"GetItem": 1, "Query": 1}


class Changed(MemoryObjects):
    """Gives other bytes than it has."""

    data: bytes | None = None

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None):  # type: ignore[no-untyped-def]
        found = super().get_range(key, byte_range, if_match=if_match)
        return found if self.data is None else type(found)(self.data, found.object_bytes, found.etag)


def test_bytes_that_are_not_those_planned_are_refused() -> None:
    objects = Changed()
    archive = ChunkArchive(objects=objects)
    archive.add(0, steady(2, 1, 2, 3))
    (part,) = plan(archive)
    assert isinstance(part, ScanSlice)
    whole = objects.get_range(part.key, part.byte_range).data
    objects.data = whole[:-1]
    with pytest.raises(TruncatedError):
        read_slice(objects, part)
    objects.data = bytes(whole[:-1]) + bytes([whole[-1] ^ 1])
    with pytest.raises(BadCrcError):
        read_slice(objects, part)
    objects.data = None
    with pytest.raises(BadSequenceError):
        read_slice(
            objects, ScanSlice(**{name: getattr(part, name) for name in ScanSlice.__slots__} | {"first_offset": 1})
        )


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_timestamp_stands_for_the_first_chunk_at_or_after_it(encoding: Encoding) -> None:
    archive = mixed()
    compaction = Compaction(archive)
    group = next(
        iter(plan_groups(compaction.log(), CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, encoding)))
    )
    for _ in compaction.replace(group, compaction.store(group, encoding)):
        pass
    for timestamp in range(-1, 265):
        expected = next((c.header.chunk_id for c in archive.chunks if c.header.timestamp >= timestamp), 54)
        assert offset_of(archive.table, archive.objects, STREAM, AtTimestamp(TimestampMs(timestamp))) == expected


def test_a_timestamp_that_a_gap_may_hide_stands_for_the_gap() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(2, 1))
    archive.add(10, steady(2, 9))
    assert offset_of(archive.table, archive.objects, STREAM, AtTimestamp(TimestampMs(5))) == 2


def test_ends_and_offsets_stand_for_themselves() -> None:
    archive = mixed()
    specs = (FIRST, LAST, NEXT, AtOffset(Offset(7)))
    assert [offset_of(archive.table, archive.objects, STREAM, spec) for spec in specs] == [0, 52, 54, 7]


def test_a_plan_begins_with_what_is_left_and_exactly_tells_what_was_removed() -> None:
    archive = mixed()
    first = remove_prefix(archive.table, STREAM.incarnation, 1)[0]
    steps = list(plan_scan(archive.table, STREAM, Offset(0)))
    assert isinstance(steps[0], ScanSlice | Gap)
    assert steps[0].first_offset >= first.next_offset
    exact = next(iter(plan_scan(archive.table, STREAM, Offset(0), exactly=True)))
    assert isinstance(exact, Gap)
    assert (exact.first_offset, exact.reason) == (0, REMOVED)


def test_a_deleted_stream_cannot_be_scanned() -> None:
    archive = mixed()
    delete(archive.table, STREAM.incarnation)
    with pytest.raises(StreamNotFoundError):
        list(plan_scan(archive.table, STREAM, Offset(0)))
