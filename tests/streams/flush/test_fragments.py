"""Chunks become fragments in the manifest: each offset once, whoever else flushes, and wherever a flush was cut off."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import BinaryIO

import pytest

from coldstream.errors import (
    BadCrcError,
    BadSequenceError,
    ContradictionError,
    ExpiredEpochError,
    StreamDeletedError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.manifest.change import Change
from coldstream.manifest.commit import MAX_APPENDS
from coldstream.manifest.fence import plan_fence
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams.archive import DirectArchive
from coldstream.streams.flush.fragments import even_fragment_bytes, flush_chunks
from tests.support.flushing import (
    FIRST,
    NOW,
    STREAM,
    archived,
    batches,
    create,
    direct_archive,
    entries,
    forget_openings,
    open_stream,
)
from tests.support.removing import delete


@pytest.fixture(autouse=True)
def _without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def archive() -> DirectArchive:
    made = direct_archive()
    create(made)
    return made


def test_chunks_are_archived_byte_for_byte_in_fragments_of_the_size(archive: DirectArchive) -> None:
    chunks = batches(60)
    assert flush_chunks(archive, STREAM, chunks, 1000) == chunks[-1].next_offset
    assert archived(archive) == [one.data for one in chunks]
    *full, last = entries(archive)
    assert len(full) > 3
    # Each passes the size by its last chunk.
    assert all(1000 < one.data_bytes <= 1000 + 300 for one in full)
    assert last.data_bytes <= 1000 + 300
    assert full[0].first_offset == FIRST


def test_each_fragment_is_a_segment_of_its_own(archive: DirectArchive) -> None:
    flush_chunks(archive, STREAM, batches(30), 1000)
    assert [one.segment_offset for one in entries(archive)] == [one.first_offset for one in entries(archive)]


def test_a_flush_takes_a_put_a_get_and_a_transaction(archive: DirectArchive) -> None:
    table, objects = archive.table, archive.objects
    assert isinstance(table, MemoryTable)
    assert isinstance(objects, MemoryObjects)
    before = Counter(table.requests), Counter(objects.requests)
    flush_chunks(archive, STREAM, batches(5), 1 << 20)
    assert Counter(table.requests) - before[0] == {"GetItem": 1, "TransactWriteItems": 1}
    assert Counter(objects.requests) - before[1] == {"PutObject": 1}


def test_all_fragments_of_a_flush_take_one_get_and_one_transaction(archive: DirectArchive) -> None:
    table = archive.table
    assert isinstance(table, MemoryTable)
    before = Counter(table.requests)
    flush_chunks(archive, STREAM, batches(60), 1000)
    assert Counter(table.requests) - before == {"GetItem": 1, "TransactWriteItems": 1}
    assert len(entries(archive)) > 3


def test_the_log_never_ends_within_a_flush(archive: DirectArchive) -> None:
    ends: set[int | None] = set()

    class Watched(MemoryTable):
        def apply(self, change: Change) -> None:
            super().apply(change)
            ends.add(change.head.next_offset)

    archive = direct_archive(Watched())
    create(archive)
    chunks = batches(60)
    flush_chunks(archive, STREAM, chunks, 1000)
    assert ends == {None, chunks[-1].next_offset}


def test_more_fragments_than_one_change_takes_end_in_a_larger_one(archive: DirectArchive) -> None:
    chunks = batches(300)
    flush_chunks(archive, STREAM, chunks, 1)
    assert len(entries(archive)) == MAX_APPENDS
    assert archived(archive) == [one.data for one in chunks]


def test_sizes_are_chosen_so_that_one_change_takes_all() -> None:
    assert even_fragment_bytes(0, 64) == 64
    assert even_fragment_bytes(127, 64) == 127
    assert even_fragment_bytes(128, 64) == 64
    assert even_fragment_bytes(64 * MAX_APPENDS * 3, 64) == 64 * 3


def test_what_is_below_the_tail_is_skipped(archive: DirectArchive) -> None:
    chunks = batches(40)
    flush_chunks(archive, STREAM, chunks[:15], 1000)
    assert flush_chunks(archive, STREAM, chunks, 700) == chunks[-1].next_offset
    assert archived(archive) == [one.data for one in chunks]


def test_nothing_to_archive_costs_one_read(archive: DirectArchive) -> None:
    table = archive.table
    assert isinstance(table, MemoryTable)
    chunks = batches(4)
    tail = flush_chunks(archive, STREAM, chunks, 1000)
    before = Counter(table.requests)
    assert flush_chunks(archive, STREAM, chunks, 1000) == tail
    assert flush_chunks(archive, STREAM, (), 1000) == tail
    assert Counter(table.requests) - before == {"GetItem": 2}


def test_a_hole_before_the_first_chunk_or_between_two_is_loud(archive: DirectArchive) -> None:
    chunks = batches(10)
    with pytest.raises(BadSequenceError):
        flush_chunks(archive, STREAM, chunks[1:], 1000)
    with pytest.raises(BadSequenceError):
        flush_chunks(archive, STREAM, (*chunks[:3], *chunks[4:]), 1 << 20)
    assert archived(archive) == []


def test_a_chunk_that_straddles_the_tail_is_of_another_history(archive: DirectArchive) -> None:
    chunks = batches(3)
    flush_chunks(archive, STREAM, chunks, 1000)
    last = chunks[-1]
    (other,) = batches(1, first=last.next_offset - 1, seed=3)
    assert other.next_offset > last.next_offset
    with pytest.raises(ContradictionError):
        flush_chunks(archive, STREAM, [other], 1000)


def test_a_damaged_chunk_is_not_archived(archive: DirectArchive) -> None:
    one = batches(1)[0]
    damaged = replace(one, data=one.data[:-1] + bytes((one.data[-1] ^ 1,)))
    with pytest.raises(BadCrcError):
        flush_chunks(archive, STREAM, [damaged], 1000)
    assert entries(archive) == ()


def test_chunks_of_an_opening_that_was_given_up_are_refused(archive: DirectArchive) -> None:
    chunks = batches(6)
    flush_chunks(archive, STREAM, chunks[:3], 1000)
    epoch = open_stream(archive)
    # Until the opening is recovered, its chunks are still welcome.
    flush_chunks(archive, STREAM, chunks[3:5], 1000)
    forget_openings(archive)
    with pytest.raises(ExpiredEpochError):
        flush_chunks(archive, STREAM, chunks, 1000)
    following = batches(2, first=chunks[4].next_offset, epoch=epoch)
    flush_chunks(archive, STREAM, following, 1000)
    assert archived(archive) == [one.data for one in (*chunks[:5], *following)]


def test_of_a_deleted_stream_nothing_is_archived_and_what_was_put_is_discarded(archive: DirectArchive) -> None:
    class Deleting(MemoryObjects):
        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
            delete(archive.table, STREAM.incarnation)

    archive = replace(archive, objects=Deleting())
    with pytest.raises(StreamDeletedError):
        flush_chunks(archive, STREAM, batches(3), 1 << 20)
    assert entries(archive) == ()
    (tombstone,) = archive.table.tombstones(STREAM.incarnation, NOW + 10**12, 10)  # type: ignore[arg-type]
    assert tombstone.key in archive.objects.objects  # type: ignore[attr-defined]


def test_a_fence_between_the_put_and_the_commit_makes_another_key(archive: DirectArchive) -> None:
    class Fencing(MemoryObjects):
        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
            head = archive.table.head(STREAM.incarnation)
            assert head is not None
            if head.generation < 3:
                archive.table.apply(plan_fence(head, 3, NOW))

    archive = replace(archive, objects=Fencing())
    chunks = batches(3)
    flush_chunks(archive, STREAM, chunks, 1 << 20)
    assert [one.generation for one in entries(archive)] == [3]
    assert archived(archive) == [one.data for one in chunks]


def test_an_opener_with_other_borders_in_between_leaves_each_offset_once(archive: DirectArchive) -> None:
    chunks = batches(40)
    rivals = iter([7, 19, 33])

    class Rivalled(MemoryObjects):
        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
            if (to := next(rivals, None)) is not None:
                flush_chunks(replace(archive, objects=self), STREAM, chunks[:to], 400)

    archive = replace(archive, objects=Rivalled())
    assert flush_chunks(archive, STREAM, chunks, 1500) == chunks[-1].next_offset
    assert archived(archive) == [one.data for one in chunks]
    assert next(rivals, None) is None
    # What was put in vain has tombstones.
    named = {one.key for one in entries(archive)}
    buried = {one.key for one in archive.table.tombstones(STREAM.incarnation, NOW + 10**12, 100)}  # type: ignore[arg-type]
    assert set(archive.objects.objects) - named - buried <= {  # type: ignore[attr-defined]
        archive.keys.stream_note(STREAM.incarnation)
    }


def test_what_is_no_direct_stream_is_refused() -> None:
    with pytest.raises(StreamNotFoundError):
        flush_chunks(direct_archive(), STREAM, batches(1), 1000)


def test_wherever_a_flush_is_cut_off_the_next_one_ends_in_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = batches(20)

    class CutOffError(UnavailableError):
        """The process ends here."""

    left = [1 << 30]

    def pass_one() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise CutOffError("the process was killed")

    class DyingTable(MemoryTable):
        def _count(self, call: str) -> None:
            pass_one()
            super()._count(call)

        def apply(self, change: Change) -> None:
            super().apply(change)
            pass_one()

    class DyingObjects(MemoryObjects):
        def _count(self, call: str, times: int = 1) -> None:
            pass_one()
            super()._count(call, times)

        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
            pass_one()

    calls = 0
    while True:
        left[0] = 1 << 30
        archive = direct_archive(DyingTable(), DyingObjects())
        create(archive)
        left[0] = calls
        try:
            flush_chunks(archive, STREAM, chunks, 900)
        except CutOffError:
            left[0] = 1 << 30
            # With other borders: a process that comes next may have other options.
            flush_chunks(archive, STREAM, chunks, 900 if calls % 2 else 1300)
            assert archived(archive) == [one.data for one in chunks], calls
        else:
            break
        calls += 1
    assert calls > 10
