"""Sweeping: what is due goes, and nothing that is named or held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from coldstream.errors import LostRaceError, OutcomeUnknownError
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.sweep import SweepReport, due_tombstones, foretell_sweep, sweep
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.manifest.change import Change, DeleteTombstone, PutTombstone
from coldstream.manifest.entry import JournalEvent, JournalKind, Row, Tombstone
from coldstream.manifest.fence import plan_discard
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import BucketCapabilities, DeleteFailure, DeleteReport
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW
from tests.support.compacting import assert_right, options_of, run
from tests.support.lifecycle import GRACE_MS, INCARNATION, Scene

FOR_EVER = TimestampMs(MAX_TIMESTAMP_MS)


def removed(fragments: int, of: int = 10, **options: bool) -> Scene:
    """Remove the first fragments of a stream."""
    scene = Scene(fragments=of, **options)
    remove_prefix(scene.stores, INCARNATION, up_to_offset(scene.offset(fragments)), why="", by="")
    return scene


def left(scene: Scene) -> list[str]:
    return [one.key for one in due_tombstones(scene.archive.table, INCARNATION, FOR_EVER)]


def test_nothing_is_deleted_before_it_is_due() -> None:
    scene = removed(4)
    scene.clock.pass_ms(GRACE_MS - 1)
    assert sweep(scene.stores, INCARNATION) == SweepReport()
    assert len(scene.live) == 10
    scene.clock.pass_ms(1)
    assert sweep(scene.stores, INCARNATION).objects == 4
    assert scene.live == {entry.key for entry in scene.log}


def test_what_is_due_is_deleted_by_one_request_and_forgotten() -> None:
    scene = removed(150, of=152)
    sizes = {key: len(data) for key, data in scene.archive.objects.objects.items()}
    scene.wait_for_sweep()
    foretold = foretell_sweep(scene.stores, INCARNATION)
    scene.archive.table.requests.clear()
    scene.archive.objects.requests.clear()
    swept = sweep(scene.stores, INCARNATION)
    gone = sizes.keys() - scene.archive.objects.objects.keys()
    assert swept == foretold == SweepReport(objects=150, object_bytes=sum(sizes[key] for key in gone))
    assert scene.archive.objects.requests["DeleteObjects"] == 1
    assert scene.archive.table.requests["TransactWriteItems"] == 4  # two of them its claim, and its end
    assert scene.archive.table.requests["Query"] <= 4
    assert not left(scene)
    assert sweep(scene.stores, INCARNATION) == SweepReport()


def test_what_every_entry_has_left_behind_takes_no_query_for_each() -> None:
    scene = Scene(fragments=100)
    for entry in scene.log:
        old = Tombstone(f"{entry.key}.old", NOW, entry.first_offset, entry.next_offset, 100)
        assert scene.head is not None
        scene.archive.table.apply(plan_discard(scene.head, [old], 1, NOW))
    scene.wait_for_sweep()
    scene.archive.table.requests.clear()
    assert sweep(scene.stores, INCARNATION).objects == 100
    assert scene.archive.table.requests["Query"] <= 6
    assert len(scene.log) == 100


def test_what_compaction_replaced_goes_and_the_merged_object_stays() -> None:
    scene = Scene(fragments=20)
    run(scene.archive, options_of())
    scene.clock.pass_ms(30 * 24 * 3600 * 1000)
    assert sweep(scene.stores, INCARNATION).objects == 20
    (entry,) = scene.log
    assert scene.live == {entry.key}
    assert_right(scene.archive, scene.archive.chunks)


def test_an_object_that_an_entry_names_is_kept_and_told() -> None:
    scene = removed(3)
    entry, head = scene.log[2], scene.head
    assert head is not None
    wrong = Tombstone(entry.key, NOW, entry.first_offset, entry.next_offset, entry.object_bytes)
    head = replace(head, revision=head.revision + 1)
    event = JournalEvent(head.revision, JournalKind.FENCE_RAISED, NOW, None, None)
    scene.archive.table.apply(Change(head, event, (PutTombstone(wrong),)))
    scene.wait_for_sweep()
    swept = sweep(scene.stores, INCARNATION)
    assert (swept.objects, swept.named, swept.kept) == (3, 1, (entry.key,))
    assert entry.key in scene.live
    assert not left(scene)


def test_an_object_that_is_gone_already_is_no_trouble() -> None:
    scene = removed(3)
    for tombstone in due_tombstones(scene.archive.table, INCARNATION, FOR_EVER)[:2]:
        scene.archive.objects.delete(tombstone.key)
    scene.wait_for_sweep()
    assert sweep(scene.stores, INCARNATION).objects == 3
    assert not left(scene)


def test_what_is_held_is_skipped_until_the_release() -> None:
    scene = removed(4)
    hold = put_hold(
        scene.stores, INCARNATION, first_offset=Offset(3), next_offset=Offset(5), reason="case 17", by="counsel"
    )
    scene.wait_for_sweep()
    swept = sweep(scene.stores, INCARNATION)
    assert (swept.objects, swept.held) == (2, 2)
    assert len(left(scene)) == 2
    assert set(left(scene)) <= scene.live
    release_hold(scene.stores, INCARNATION, hold.id, by="counsel")
    assert sweep(scene.stores, INCARNATION).objects == 2
    assert not left(scene)


def test_held_ones_do_not_hide_those_behind_them() -> None:
    scene = removed(4)
    put_hold(scene.stores, INCARNATION, first_offset=Offset(0), next_offset=Offset(8), reason="case 17", by="counsel")
    scene.clock.pass_ms(1000)
    run(scene.archive, options_of())
    scene.clock.pass_ms(30 * 24 * 3600 * 1000)
    swept = sweep(scene.stores, INCARNATION)
    assert (swept.objects, swept.held) == (6, 4)


def test_the_bucket_says_the_floor_before_the_first_object_goes() -> None:
    class Watching(MemoryObjects):
        notes: Sequence[str] = ()

        def delete_many(self, keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
            self.notes = [key for key in self.objects if "/control/floor." in key]
            return super().delete_many(keys, signed_at=signed_at)

    scene = removed(4)
    notes = [key for key in scene.archive.objects.objects if "/control/floor." in key]
    assert notes
    scene.archive.objects.delete_many(notes)  # as if the removal had been killed before it wrote them
    objects = Watching(clock=scene.clock)
    objects.objects = scene.archive.objects.objects
    scene.archive.objects = objects
    scene.wait_for_sweep()
    assert sweep(scene.stores, INCARNATION).objects == 4
    assert objects.notes
    (note,) = scene.stores.control.floors(INCARNATION)
    assert note.floor == 8


class Refusing(MemoryObjects):
    """A bucket that refuses to delete some objects, as under Object Lock."""

    refused: frozenset[str] = frozenset()

    def delete_many(self, keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
        free = [key for key in keys if key not in self.refused]
        failed = tuple(DeleteFailure(key, "AccessDenied") for key in keys if key in self.refused)
        return super().delete_many(free, signed_at=signed_at) + DeleteReport((), failed)


def test_only_what_the_answer_says_is_deleted_is_forgotten() -> None:
    scene = removed(4)
    keys = left(scene)
    objects = Refusing(clock=scene.clock)
    objects.objects = scene.archive.objects.objects
    objects.refused = frozenset(keys[1:3])
    scene.archive.objects = objects
    scene.wait_for_sweep()
    swept = sweep(scene.stores, INCARNATION)
    assert (swept.objects, swept.refused) == (2, 2)
    assert swept.failures == tuple(DeleteFailure(key, "AccessDenied") for key in keys[1:3])
    assert left(scene) == keys[1:3]
    objects.refused = frozenset()
    assert sweep(scene.stores, INCARNATION).objects == 2


def take_versions_too(scene: Scene, key: str) -> None:
    """Have a tombstone say what that of an erased object says."""
    (one,) = (one for one in due_tombstones(scene.archive.table, INCARNATION, FOR_EVER) if one.key == key)
    assert scene.head is not None
    scene.archive.table.apply(plan_discard(scene.head, [replace(one, all_versions=True)], 0, NOW))


@pytest.mark.parametrize("told", [True, None])
def test_on_a_bucket_with_versions_only_what_was_erased_loses_them(
    monkeypatch: pytest.MonkeyPatch, *, told: bool | None
) -> None:
    """The same if nobody may ask whether it has any."""
    scene = removed(4, versioned=True)
    monkeypatch.setattr(scene.archive.objects, "capabilities", lambda: BucketCapabilities(versioned=told))
    erased, *others = left(scene)
    take_versions_too(scene, erased)
    scene.archive.objects.put(erased, scene.archive.objects.objects[erased])
    scene.archive.objects.delete(erased)
    scene.wait_for_sweep()
    assert sweep(scene.stores, INCARNATION).objects == 4
    assert scene.live == {entry.key for entry in scene.log}
    there = {version.key for version in scene.archive.objects.versions("") if "/control/" not in version.key}
    assert there == scene.live | set(others)


def test_an_object_that_two_uploads_gave_up_goes_with_its_versions_once() -> None:
    scene = removed(1, versioned=True)
    (key,) = left(scene)
    take_versions_too(scene, key)
    (one,) = due_tombstones(scene.archive.table, INCARNATION, FOR_EVER)
    assert scene.head is not None
    scene.archive.table.apply(plan_discard(scene.head, [replace(one, due_at=TimestampMs(one.due_at + 1))], 0, NOW))
    scene.clock.pass_ms(GRACE_MS + 1)
    swept = sweep(scene.stores, INCARNATION)
    assert (swept.refused, left(scene)) == (0, [])
    assert key not in {version.key for version in scene.archive.objects.versions("")}


def test_what_object_lock_protects_stays_with_its_reason() -> None:
    scene = removed(4, object_lock=True)
    key = left(scene)[1]
    take_versions_too(scene, key)
    scene.archive.objects.put_legal_hold(key, True)
    scene.wait_for_sweep()
    swept = sweep(scene.stores, INCARNATION)
    assert (swept.objects, swept.refused) == (3, 1)
    assert [failure.key for failure in swept.failures] == left(scene) == [key]
    assert swept.failures[0].reason
    assert key in scene.live


def test_it_stops_between_two_batches() -> None:
    scene = removed(4)
    scene.wait_for_sweep()
    assert sweep(scene.stores, INCARNATION, should_stop=lambda: True) == SweepReport(is_stopped=True)
    assert len(left(scene)) == 4


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
    scene = Scene(fragments=0)
    scene.archive.table = Troubled()
    for _ in range(5):
        scene.add()
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(8)), why="", by="")
    scene.wait_for_sweep()
    assert sweep(scene.stores, INCARNATION).objects == 4
    assert not left(scene)


class Another(MemoryTable):
    """A table on which another sweep runs when one has read the first tombstones."""

    sweep_first: Callable[[], None] | None = None

    def rows(
        self, incarnation: Incarnation, kind: str = "", *, after: str = "", page_items: int | None = None
    ) -> Iterator[Row]:
        found = list(super().rows(incarnation, kind, after=after))
        another, self.sweep_first = self.sweep_first, None
        if another is not None:
            another()
        return iter(found)


def test_of_two_sweeps_at_once_each_object_is_counted_by_one() -> None:
    scene = Scene(fragments=0)
    table = scene.archive.table = Another()
    for _ in range(5):
        scene.add()
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(8)), why="", by="")
    scene.wait_for_sweep()
    counted: list[int] = []
    table.sweep_first = lambda: counted.append(sweep(scene.stores, INCARNATION).objects)
    assert (sweep(scene.stores, INCARNATION).objects, counted) == (0, [4])
    assert scene.live == {entry.key for entry in scene.log}


@pytest.mark.parametrize("hour", [-1, 1])
def test_a_host_whose_clock_is_an_hour_off_deletes_nothing_early(hour: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = removed(4)
    monkeypatch.setattr("time.time_ns", lambda: (NOW + GRACE_MS + hour * 3_600_000) * 1_000_000)
    assert sweep(scene.stores, INCARNATION) == SweepReport()
    scene.wait_for_sweep()
    assert sweep(scene.stores, INCARNATION).objects == 4
