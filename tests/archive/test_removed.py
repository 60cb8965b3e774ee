"""What was removed from the archive stays removed, whatever is uploaded late, or again, or meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from coldstream.archive.upload import MAX_PLANS
from coldstream.errors import LostRaceError
from coldstream.manifest.change import Change
from coldstream.manifest.entry import JournalKind, Tombstone
from coldstream.manifest.purging import plan_purge_begin
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MAX_TIMESTAMP_MS, TimestampMs
from tests.support.removing import delete, head_of, raise_fence, remove_prefix, undelete
from tests.support.segments import STREAM, MemoryArchive

INCARNATION = STREAM.incarnation


class Meanwhile(MemoryTable):
    """Has something happen before its nth change, not counting the changes that happen so."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: dict[int, Callable[[], None]] = {}
        self._count_of_changes = 0
        self._is_happening = False

    def apply(self, change: Change) -> None:
        if not self._is_happening:
            self._count_of_changes += 1
            if (happens := self.happens.get(self._count_of_changes)) is not None:
                self._is_happening = True
                happens()
                self._is_happening = False
        super().apply(change)


def meanwhile(archive: MemoryArchive, number: int, act: Callable[[], None]) -> None:
    """Have something happen before the archive's nth change from now."""
    table = Meanwhile()
    assert archive.table.head(INCARNATION) is None
    archive.use(table=table)
    table.happens[number] = act


def fragments(archive: MemoryArchive) -> set[str]:
    return {key for key in archive.objects.objects if key.endswith(".fragment")}


def tombstones(archive: MemoryArchive) -> tuple[Tombstone, ...]:
    return archive.table.tombstones(INCARNATION, TimestampMs(MAX_TIMESTAMP_MS), 1000)


def assert_nothing_left_behind(archive: MemoryArchive) -> None:
    """Each fragment's object is named by an entry, or has a tombstone and can never be committed."""
    named, buried = {entry.key for entry in archive.log()}, {one.key for one in tombstones(archive)}
    assert fragments(archive) == named | buried
    assert named.isdisjoint(buried)
    generation = head_of(archive.table, INCARNATION).generation
    assert all(_generation(key) < generation for key in buried)
    assert not [key for key in archive.objects.objects if "/staging/" in key]


def _generation(key: str) -> int:
    parts = key.rpartition("/")[2].split(".")
    return int(parts[1]) if len(parts) == 3 else 0


def test_an_event_of_a_deleted_stream_archives_nothing_and_leaves_nothing(directory: Path) -> None:
    archive = MemoryArchive()
    events = archive.stage(directory)
    archive.uploader.upload(events[0])
    delete(archive.table, INCARNATION)
    before = archive.log(), fragments(archive)
    for event in (*events[1:], *archive.stage(directory)):
        result = archive.uploader.upload(event)
        assert result.removed
        assert (result.fragments_committed, result.quarantined) == (0, None)
        assert archive.objects.info(event.staged_key) is None
    assert (archive.log(), fragments(archive)) == before


def test_an_event_that_comes_again_after_its_copy_is_gone_says_that_it_was_removed(directory: Path) -> None:
    archive = MemoryArchive()
    events = archive.announce(directory)
    delete(archive.table, INCARNATION)
    assert archive.uploader.upload(events[0]).removed


def test_another_copy_that_is_staged_by_then_is_left_to_its_own_event(directory: Path) -> None:
    archive = MemoryArchive()
    event = archive.announce(directory)[0]
    delete(archive.table, INCARNATION)
    (staged, *_) = archive.stage(directory)
    result = archive.uploader.upload(replace(event, etag='"another"'))
    assert result.is_stale
    assert archive.objects.info(staged.staged_key) is not None


@pytest.mark.parametrize("number", [2, 3, 4])
def test_an_upload_in_flight_while_its_stream_is_deleted_leaves_nothing_behind(directory: Path, number: int) -> None:
    archive = MemoryArchive(fragment_bytes=10_000)
    meanwhile(archive, number, lambda: delete(archive.table, INCARNATION))
    event = archive.stage(directory)[0]
    result = archive.uploader.upload(event)
    assert result.removed
    assert len(archive.log()) == number - 1
    assert len(fragments(archive)) > number - 1
    for staged in archive.stage(directory):
        archive.objects.delete(staged.staged_key)
    assert_nothing_left_behind(archive)


def test_an_upload_in_flight_while_its_stream_is_deleted_and_undeleted_archives_all_of_it_at_new_keys(
    directory: Path, expected: tuple[object, ...]
) -> None:
    archive = MemoryArchive()

    def twice() -> None:
        delete(archive.table, INCARNATION)
        undelete(archive.table, INCARNATION)

    meanwhile(archive, 3, twice)
    archive.announce(directory)
    assert {_generation(entry.key) for entry in archive.log()[2:]} == {2}
    spans = [(entry.first_offset, entry.next_offset) for entry in archive.log()]
    assert spans == [(entry.first_offset, entry.next_offset) for entry in expected[0]]  # type: ignore[attr-defined]
    assert_nothing_left_behind(archive)


def test_a_key_that_was_fenced_off_is_never_committed_the_bytes_are_put_at_another(directory: Path) -> None:
    archive = MemoryArchive()
    meanwhile(archive, 2, lambda: raise_fence(archive.table, INCARNATION, 7))
    archive.announce(directory)
    assert {_generation(entry.key) for entry in archive.log()[1:]} == {7}
    assert all(entry.generation == _generation(entry.key) for entry in archive.log())
    assert_nothing_left_behind(archive)


def test_a_stalled_creator_whose_key_was_collected_cannot_bring_it_back(directory: Path) -> None:
    """Its object was found to be garbage, and deleted after a fence, between its PUT and its commit."""
    archive = MemoryArchive()

    def collected() -> None:
        named = {entry.key for entry in archive.log()}
        raise_fence(archive.table, INCARNATION, 1)
        for key in fragments(archive) - named:
            archive.objects.delete(key)

    meanwhile(archive, 2, collected)
    archive.announce(directory)
    for entry in archive.log():
        assert archive.objects.info(entry.key) is not None


def test_an_upload_that_is_fenced_off_for_ever_gives_up(directory: Path) -> None:
    archive = MemoryArchive()
    table = Meanwhile()
    archive.use(table=table)
    generations = iter(range(1, 1000))
    event = archive.stage(directory)[0]
    table.happens = {number: lambda: raise_fence(table, INCARNATION, next(generations)) for number in range(2, 100)}
    with pytest.raises(LostRaceError, match="kept changing"):
        archive.uploader.upload(event)
    assert next(generations) == MAX_PLANS + 1
    assert archive.objects.info(event.staged_key) is not None


@pytest.mark.parametrize("removed", [1, 2, 5])
def test_a_late_event_does_not_bring_back_what_is_below_the_floor(directory: Path, removed: int) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    gone = remove_prefix(archive.table, INCARNATION, removed)
    before = archive.log()
    for event in archive.stage(directory):
        result = archive.uploader.upload(event)
        assert result.quarantined is None
        assert result.removed == (event.next_offset <= gone[-1].next_offset)
        assert result.fragments_committed == 0
    assert archive.log() == before
    assert head_of(archive.table, INCARNATION).floor == gone[-1].next_offset


def test_a_segment_that_straddles_the_floor_is_archived_from_there_on(directory: Path) -> None:
    archive = MemoryArchive(fragment_bytes=10_000)
    events = archive.stage(directory)
    archive.uploader.upload(events[0])
    whole = archive.log()
    keep = whole[0].next_offset
    # Another archive, in which only the first part of the segment was archived, and removed.
    other = MemoryArchive(fragment_bytes=10_000)
    meanwhile(other, 2, lambda: _remove_all(other))
    event = other.stage(directory)[0]
    result = other.uploader.upload(event)
    assert not result.removed
    assert head_of(other.table, INCARNATION).floor == keep
    assert [(entry.first_offset, entry.next_offset) for entry in other.log()] == [
        (entry.first_offset, entry.next_offset) for entry in whole[1:]
    ]
    assert other.log()[0].prior_offset is None
    assert head_of(other.table, INCARNATION).gaps == 0


def _remove_all(archive: MemoryArchive) -> None:
    remove_prefix(archive.table, INCARNATION, 30)


def test_a_broken_segment_of_removed_offsets_is_not_put_in_quarantine(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    remove_prefix(archive.table, INCARNATION, 30)
    event = archive.stage(directory)[0]
    data = bytearray(archive.objects.objects[event.staged_key])
    data[len(data) // 2] ^= 1
    archive.objects.objects[event.staged_key] = bytes(data)
    result = archive.uploader.upload(replace(event, etag=None))
    assert result.removed
    assert head_of(archive.table, INCARNATION).quarantined == 0
    assert not [key for key in archive.objects.objects if "/quarantine/" in key]


class RemovedAtCopy(MemoryObjects):
    """Has the stream deleted, and maybe its purge begun, right after a copy to quarantine."""

    def __init__(self, table: MemoryTable, *, is_purged: bool) -> None:
        super().__init__()
        self._table, self._is_purged = table, is_purged

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        super().copy(source_key, target_key, if_match=if_match)
        if self._is_purged:
            remove_prefix(self._table, INCARNATION, 100)
        delete(self._table, INCARNATION)
        if self._is_purged:
            self._table.apply(plan_purge_begin(head_of(self._table, INCARNATION), TimestampMs(2)))


@pytest.mark.parametrize("is_purged", [False, True])
def test_a_copy_that_was_put_aside_while_its_stream_is_deleted_stays_no_longer_than_that_can_be_undone(
    directory: Path, *, is_purged: bool
) -> None:
    archive = MemoryArchive()
    objects = RemovedAtCopy(archive.table, is_purged=is_purged)
    archive.use(objects=objects)
    events = archive.stage(directory)
    archive.uploader.upload(events[0])
    data = bytearray(objects.objects[events[1].staged_key])
    data[len(data) // 2] ^= 1
    objects.objects[events[1].staged_key] = bytes(data)
    assert archive.uploader.upload(replace(events[1], etag=None)).removed
    assert any("/quarantine/" in key for key in objects.objects) is not is_purged
    assert objects.info(events[1].staged_key) is None


class Rival(MemoryObjects):
    """Has another upload of the same segment end, in fragments of another size, before the nth PUT of a fragment."""

    countdown = 0
    other: Callable[[], object]

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
        if key.endswith(".fragment") and self.countdown:
            self.countdown -= 1
            if not self.countdown:
                self.other()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_is_written_in_vain_because_another_upload_was_first_gets_tombstones(directory: Path, number: int) -> None:
    archive = MemoryArchive(fragment_bytes=10_000)
    objects = Rival()
    archive.use(objects=objects)
    event = archive.stage(directory)[0]
    staged = objects.objects[event.staged_key]

    def other() -> None:
        replace(archive.uploader, fragment_bytes=15_000).upload(event)
        objects.objects[event.staged_key] = staged  # its own copy, as the ETag is the same

    objects.countdown, objects.other = number, other
    archive.uploader.upload(event)
    for one in archive.stage(directory):
        objects.delete(one.staged_key)
    assert tombstones(archive)
    assert_nothing_left_behind(archive)


def test_an_undisturbed_upload_fences_nothing_off(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    archive.announce(directory)
    assert not tombstones(archive)
    assert head_of(archive.table, INCARNATION).generation == 0
    assert {one.kind for one in archive.table.journal(INCARNATION)} == {JournalKind.FRAGMENT_COMMITTED}


def test_the_names_of_a_stream_are_in_the_bucket_before_its_first_change(directory: Path) -> None:
    archive = MemoryArchive()
    seen: list[bool] = []

    def look() -> None:
        seen.append(archive.objects.info(archive.keys.stream_note(INCARNATION)) is not None)

    meanwhile(archive, 1, look)
    event = archive.stage(directory)[0]
    archive.uploader.upload(event)
    assert seen == [True]
    assert archive.uploader.control.stream(INCARNATION) == STREAM
