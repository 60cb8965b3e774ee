"""Sweeping: what is due goes, and nothing that is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coldstream.compact.sweep import SweepResult, due_tombstones, sweep
from coldstream.errors import LostRaceError, OutcomeUnknownError
from coldstream.manifest.change import Change, DeleteTombstone, PutTombstone
from coldstream.manifest.compaction import GRACE_MS
from coldstream.manifest.entry import Tombstone
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.compacting import LONG_AFTER, assert_right, log_of, options_of, run

INCARNATION = STREAM.incarnation
DUE = TimestampMs(NOW + GRACE_MS)


def compacted(fragments: int, table: MemoryTable | None = None) -> ChunkArchive:
    archive = ChunkArchive()
    archive.table = table or archive.table
    for number in range(fragments):
        archive.add(number, steady(1, number))
    run(archive, options_of())
    return archive


def test_nothing_is_deleted_before_it_is_due() -> None:
    archive = compacted(20)
    assert sweep(archive.table, archive.objects, INCARNATION, TimestampMs(DUE - 1)) == SweepResult()
    assert len(archive.objects.objects) == 21


def test_what_is_due_is_deleted_in_batches_and_forgotten() -> None:
    archive = compacted(20)
    sizes = {key: len(data) for key, data in archive.objects.objects.items()}
    (entry,) = log_of(archive.table, INCARNATION)
    assert len(due_tombstones(archive.table, INCARNATION, DUE)) == 20
    archive.table.requests.clear()
    swept = sweep(archive.table, archive.objects, INCARNATION, DUE)
    assert swept == SweepResult(20, sum(sizes.values()) - sizes[entry.key])
    assert archive.table.requests["TransactWriteItems"] == 3
    assert archive.objects.objects.keys() == {entry.key}
    assert not due_tombstones(archive.table, INCARNATION, LONG_AFTER)
    assert_right(archive, archive.chunks)
    assert sweep(archive.table, archive.objects, INCARNATION, LONG_AFTER) == SweepResult()


def test_an_object_that_an_entry_names_is_kept_and_told() -> None:
    archive = compacted(3)
    entry = archive.add(3, steady(1, 3))
    head = archive.table.head(INCARNATION)
    assert head is not None
    wrong = Tombstone(entry.key, NOW, entry.first_offset, entry.next_offset, entry.object_bytes)
    archive.table.apply(Change(replace(head, revision=head.revision + 1), (PutTombstone(wrong),)))
    swept = sweep(archive.table, archive.objects, INCARNATION, DUE)
    assert (swept.objects, swept.kept) == (3, (entry.key,))
    assert entry.key in archive.objects.objects
    assert not due_tombstones(archive.table, INCARNATION, LONG_AFTER)
    assert_right(archive, archive.chunks)


def test_an_object_that_is_gone_already_is_no_trouble() -> None:
    archive = compacted(3)
    for tombstone in due_tombstones(archive.table, INCARNATION, DUE)[:2]:
        archive.objects.delete(tombstone.key)
    assert sweep(archive.table, archive.objects, INCARNATION, DUE).objects == 3
    assert not due_tombstones(archive.table, INCARNATION, LONG_AFTER)


class Troubled(MemoryTable):
    """A table that loses the first race of a sweep, and does not answer the second."""

    trouble = 0

    def apply(self, change: Change) -> None:
        if not change.of(DeleteTombstone):
            super().apply(change)
            return
        self.trouble += 1
        if self.trouble == 1:
            raise LostRaceError("an upload was first")
        super().apply(change)
        if self.trouble == 2:
            raise OutcomeUnknownError("no answer came")


def test_lost_races_and_answers_that_never_come_leave_nothing_behind() -> None:
    archive = compacted(20, Troubled())
    sweep(archive.table, archive.objects, INCARNATION, DUE)
    assert not due_tombstones(archive.table, INCARNATION, LONG_AFTER)
    assert_right(archive, archive.chunks)


class Another(MemoryTable):
    """A table on which another sweep runs when one has read the first tombstones."""

    def __init__(self) -> None:
        super().__init__()
        self.sweep_first: Callable[[], None] | None = None

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        found = super().tombstones(incarnation, due_by, limit)
        another, self.sweep_first = self.sweep_first, None
        if another is not None:
            another()
        return found


def test_of_two_sweeps_at_once_each_object_is_counted_by_one() -> None:
    table = Another()
    archive = compacted(20, table)
    counted: list[int] = []
    table.sweep_first = lambda: counted.append(sweep(table, archive.objects, INCARNATION, DUE).objects)
    swept = sweep(table, archive.objects, INCARNATION, DUE)
    assert (swept.objects, counted) == (0, [20])
    assert_right(archive, archive.chunks)
