"""A bucket that keeps versions: whatever others do beside an erasure, no version of the bytes is left in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from coldstream.compact.run import Compactor
from coldstream.compact.task import CompactionTask, GroupFailure, write_task
from coldstream.compact.write import MergedFragment
from coldstream.erase.run import Eraser
from coldstream.errors import NotRecordedError
from coldstream.lifecycle.sweep import sweep
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Erasure, JournalEvent
from coldstream.manifest.stream import Incarnation
from coldstream.rebuild.run import Rebuilder
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import BucketCapabilities
from coldstream.store.sortkeys import TOMBSTONES
from coldstream.units import TimestampMs
from tests.erase.archived import KEYS, MessageArchive
from tests.erase.samples import between
from tests.erase.stores import GRACE_MS, Erasing
from tests.support.archive import NOW
from tests.support.compacting import compact_stream, options_of
from tests.support.removing import remove_prefix

ALL = between(0, 48)


@pytest.fixture
def erasing() -> Erasing:
    """Two fragments in a bucket that keeps versions."""
    archive = MessageArchive(objects=MemoryObjects(versioned=True))
    for _ in range(2):
        archive.add(4)
    return Erasing(archive, bucket=BucketCapabilities(versioned=True))


def begin(erasing: Erasing, eraser: Eraser) -> Erasure:
    return eraser.begin(erasing.archive.stream, ALL, reason="ticket 17", by="alice")[0]


def sweep_all(erasing: Erasing, table: MemoryTable | None = None) -> None:
    """Let every grace pass, and sweep."""
    erasing.clock.at += LONGEST_GRACE_MS + GRACE_MS
    sweep(erasing.stores(table=table), erasing.archive.stream.incarnation)


def has_secrets(erasing: Erasing) -> bool:
    return any(b"secret" in data for data in erasing.archive.every_version())


def compact(erasing: Erasing, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Compact both fragments; `meanwhile` happens between the new object and its transaction."""
    archive = erasing.archive

    def write(task: CompactionTask) -> MergedFragment | GroupFailure:
        written = write_task(archive.objects, KEYS, task)
        meanwhile()
        return written

    compactor = Compactor(archive.table, archive.objects, write=write, at_once=1, now=lambda: NOW)
    list(compactor.run([archive.stream], options_of()))


def test_what_a_compaction_wrote_in_vain_goes_with_its_versions(erasing: Erasing) -> None:
    eraser = Eraser(erasing.stores())
    erasure = begin(erasing, eraser)
    compact(erasing, lambda: eraser.run(erasing.archive.stream, erasure, ALL))
    assert len(erasing.archive.log) == 2
    sweep_all(erasing)
    assert not has_secrets(erasing)


def test_what_was_swept_just_before_it_began_goes_with_its_versions(
    erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    eraser = Eraser(erasing.stores())
    write = Eraser._write

    def after_a_sweep(self: Eraser, *arguments: object) -> None:
        compact_stream(erasing.archive.table, erasing.archive.objects, erasing.archive.stream, options_of())
        sweep_all(erasing)
        monkeypatch.setattr(Eraser, "_write", write)
        write(self, *arguments)

    monkeypatch.setattr(Eraser, "_write", after_a_sweep)
    erasure = begin(erasing, eraser)
    eraser.run(erasing.archive.stream, erasure, ALL)
    sweep_all(erasing)
    assert not has_secrets(erasing)


def test_a_sweep_that_did_not_know_of_it_does_not_forget_what_has_versions(
    erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_stream(erasing.archive.table, erasing.archive.objects, erasing.archive.stream, options_of())
    eraser = Eraser(erasing.stores())
    delete_many = erasing.archive.objects.delete_many

    def and_one_begins(keys: list[str], *, signed_at: TimestampMs | None = None) -> object:
        report = delete_many(keys, signed_at=signed_at)
        if keys:
            begin(erasing, eraser)
        return report

    with monkeypatch.context() as patch:
        patch.setattr(erasing.archive.objects, "delete_many", and_one_begins)
        sweep_all(erasing)
    (erasure,) = erasing.archive.table.erasures(erasing.archive.stream.incarnation)
    eraser.run(erasing.archive.stream, erasure, ALL)
    sweep_all(erasing)
    assert not has_secrets(erasing)


class LateTombstones:
    """Shows each tombstone, when it is first read while its change is being written, as it was before."""

    def __init__(self) -> None:
        self._read: set[str] = set()

    def pick(self, key: str, states: int) -> int:
        if states == 1 or not key.startswith(TOMBSTONES) or key in self._read:
            return states - 1
        self._read.add(key)
        return 0


@pytest.fixture
def late() -> Erasing:
    """Two fragments as above, with a table that shows tombstones later than the rest of their change."""
    archive = MessageArchive(objects=MemoryObjects(versioned=True), table=MemoryTable(LateTombstones()))
    for _ in range(2):
        archive.add(4)
    archive.table.settle()
    return Erasing(archive, bucket=BucketCapabilities(versioned=True))


def test_what_still_shows_as_awaiting_deletion_after_its_sweep_goes_with_its_versions(late: Erasing) -> None:
    compact(late)
    late.archive.table.settle()
    sweep_all(late)
    late.erase(ALL)
    sweep_all(late)
    assert not has_secrets(late)


def test_what_is_removed_by_a_change_that_shows_by_half_goes_with_its_versions(late: Erasing) -> None:
    eraser = Eraser(late.stores())
    erasure = begin(late, eraser)
    remove_prefix(late.archive.table, late.archive.stream.incarnation, 2)
    assert eraser.run(late.archive.stream, erasure, ALL).is_done
    sweep_all(late)
    assert not has_secrets(late)


def test_what_is_removed_by_half_goes_with_its_versions_after_changes_of_an_earlier_release(
    late: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    eraser = Eraser(late.stores())
    erasure = begin(late, eraser)
    incarnation = late.archive.stream.incarnation
    recorded_from = len(tuple(late.archive.table.journal(incarnation))) + 1
    recorded_changes = late.archive.table.recorded_changes

    def recorded(of: Incarnation, after_revision: int = 0) -> Iterator[tuple[JournalEvent, Change]]:
        if after_revision + 1 < recorded_from:
            raise NotRecordedError(of, after_revision + 1, recorded_from)
        yield from recorded_changes(of, after_revision)

    monkeypatch.setattr(late.archive.table, "recorded_changes", recorded)
    remove_prefix(late.archive.table, incarnation, 2)
    eraser.run(late.archive.stream, erasure, ALL)
    sweep_all(late)
    assert not has_secrets(late)


def test_what_is_replaced_and_swept_while_it_runs_goes_with_its_versions(erasing: Erasing) -> None:
    eraser = Eraser(erasing.stores())
    erasure = begin(erasing, eraser)
    compact(erasing)
    sweep_all(erasing)
    eraser.run(erasing.archive.stream, erasure, ALL)
    sweep_all(erasing)
    assert not has_secrets(erasing)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_was_replaced_goes_with_its_versions_by_a_rebuilt_table_too(
    erasing: Erasing, *, is_compacted: bool
) -> None:
    archive = erasing.archive
    erasing.stores().control.write_stream(archive.stream)
    if is_compacted:
        compact(erasing)
    erasing.erase(ALL)
    table = MemoryTable()
    rebuilder = Rebuilder(table, archive.objects, KEYS, erasing.clock, GRACE_MS, reads_at_once=1)
    assert rebuilder.stream(archive.stream.incarnation).is_done
    sweep_all(erasing, table)
    assert not has_secrets(erasing)


def test_what_was_removed_before_it_began_goes_with_its_versions(erasing: Erasing) -> None:
    remove_prefix(erasing.archive.table, erasing.archive.stream.incarnation, 1)
    erasing.erase(ALL)
    sweep_all(erasing)
    assert not has_secrets(erasing)
