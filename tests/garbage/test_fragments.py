"""Fragments: what nothing names, and nothing ever will, is garbage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from coldstream.errors import InvalidInputError
from coldstream.garbage.deleter import Deleter
from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.garbage.options import GarbageOptions
from coldstream.manifest.entry import Hold, Row
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.stream import Incarnation
from coldstream.store.control import ControlObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.recent_changes import RECENT_CHANGES
from coldstream.store.sortkeys import TOMBSTONES
from coldstream.units import Offset
from tests.garbage.littered import LitteredArchive, another
from tests.store.samples import ORDERS

LIFE = ORDERS.incarnation


def test_what_nothing_names_is_deleted_and_what_the_log_names_stays() -> None:
    archive = LitteredArchive()
    live = {archive.archive(first, first + 10).key for first in range(0, 100, 10)}
    for first, generation in [(0, 1), (5, 0), (40, 12), (90, 2), (200, 0)]:
        archive.fragment(first, generation)
    archive.pass_days(2)
    report = archive.collect()
    assert archive.stored == live
    assert report.is_complete
    assert (report.deletions.objects, report.deletions.size_bytes, report.deletions.failed) == (5, 500, 0)
    found = {(one.kind, one.state): one.objects for one in report.findings}
    assert found == {
        (ObjectKind.FRAGMENT, ObjectState.IN_USE): 10,
        (ObjectKind.FRAGMENT, ObjectState.GARBAGE): 2,
        (ObjectKind.LATER_FRAGMENT, ObjectState.GARBAGE): 3,
    }


@pytest.mark.parametrize(("hours", "gone"), [(23.9, False), (24, False), (24.1, True)])
def test_an_object_younger_than_the_longest_upload_stays(hours: float, *, gone: bool) -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    garbage = archive.fragment(10)
    archive.pass_days(hours / 24)
    archive.collect()
    assert (garbage not in archive.stored) == gone


def test_what_has_a_tombstone_is_left_to_the_sweep() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    archive.bury(archive.fragment(10), 10)
    archive.pass_days(2)
    report = archive.collect()
    assert report.total(ObjectState.REPLACED).objects == 1
    assert report.deletions.objects == 0


def test_a_fence_is_raised_above_garbage_and_not_without_any() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    archive.pass_days(2)
    archive.collect()
    assert archive.table.head(LIFE).generation == 0  # type: ignore[union-attr]
    archive.fragment(0, 3)
    archive.pass_days(2)
    archive.collect()
    assert archive.table.head(LIFE).generation == 4  # type: ignore[union-attr]


def test_an_unknown_stream_stays_unless_it_is_said_and_nothing_knows_it() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    unknown = archive.fragment(0, of=another(1).incarnation)
    archive.put(archive.keys.stream_note(another(2).incarnation))
    noted = archive.fragment(0, of=another(2).incarnation)
    archive.pass_days(20)
    report = archive.collect()
    assert report.total(ObjectState.UNKNOWN).objects == 2
    assert {unknown, noted} <= archive.stored
    archive.collect(GarbageOptions(delete=True, unknown_streams=True))
    assert unknown not in archive.stored
    assert noted in archive.stored


def test_a_table_that_knows_no_stream_is_taken_for_lost() -> None:
    archive = LitteredArchive()
    archive.fragment(0)
    archive.pass_days(20)
    with pytest.raises(InvalidInputError, match="rebuild"):
        archive.collect(GarbageOptions(delete=True, unknown_streams=True))
    assert len(archive.stored) == 1


def test_a_hold_keeps_what_lies_at_or_before_its_offsets() -> None:
    archive = LitteredArchive()
    archive.archive(0, 100)
    before, within, after = (archive.fragment(first, 1) for first in (0, 50, 80))
    archive.hold(Hold("case-1", Offset(40), Offset(60), "a lawsuit", "me", archive.at))
    archive.pass_days(2)
    report = archive.collect()
    assert {before, within} <= archive.stored
    assert after not in archive.stored
    assert report.total(ObjectState.HELD).objects == 2


def test_the_bucket_knows_a_fence_before_anything_goes_even_if_the_run_that_raised_it_died() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    garbage = archive.fragment(0, 3)
    archive.pass_days(2)
    archive.table.apply(plan_fence(archive.head(), 4, archive.at))  # and it died before its note
    archive.collect()
    assert garbage not in archive.stored
    note = ControlObjects(archive.objects, archive.keys).latest_floor(LIFE)
    assert note is not None
    assert note.generation == 4


@pytest.mark.parametrize(("changes", "readings"), [(0, 1), (RECENT_CHANGES, 2)])
def test_tombstones_are_read_once_for_a_stream_and_what_is_buried_meanwhile_counts(
    monkeypatch: pytest.MonkeyPatch, changes: int, readings: int
) -> None:
    monkeypatch.setattr("coldstream.garbage.run.WINDOW", 10)
    archive = LitteredArchive()
    archive.table = table = TableWithAnotherProcess()
    archive.archive(0, 10)
    keys = [archive.fragment(first) for first in range(10, 1000, 10)]
    for number, key in enumerate(keys[:50]):
        archive.bury(key, 10 * number + 10)
    archive.pass_days(2)

    def bury_the_last() -> None:
        archive.bury(keys[-1], 990)
        for _ in range(changes):
            table.apply(plan_fence(archive.head(), 1, archive.at))

    table.after_first_reading = bury_the_last
    report = archive.collect()
    assert table.readings == readings
    assert report.total(ObjectState.REPLACED).objects == 51
    assert set(keys) & archive.stored == {*keys[:50], keys[-1]}


class TableWithAnotherProcess(MemoryTable):
    """Calls `after_first_reading` once all tombstones of a stream were read for the first time."""

    readings = 0
    after_first_reading: Callable[[], None] = staticmethod(lambda: None)

    def rows(
        self, incarnation: Incarnation, kind: str = "", *, after: str = "", page_items: int | None = None
    ) -> Iterator[Row]:
        yield from super().rows(incarnation, kind, after=after, page_items=page_items)
        if kind == TOMBSTONES:
            self.readings += 1
            if self.readings == 1:
                self.after_first_reading()


def test_a_hold_that_is_put_after_the_proof_keeps_its_objects_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    kept, gone = archive.fragment(40), archive.fragment(60)
    archive.pass_days(2)
    flush = Deleter.flush

    def held_before(deleter: Deleter) -> None:
        archive.hold(Hold("case-1", Offset(40), Offset(60), "a lawsuit", "me", archive.at))
        flush(deleter)

    monkeypatch.setattr(Deleter, "flush", held_before)
    assert archive.collect().deletions.objects == 1
    assert kept in archive.stored
    assert gone not in archive.stored
    assert not archive.head().claims
