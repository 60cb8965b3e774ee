"""A direct stream is appended to again after a rebuild: who may, and where what is not in the manifest yet is."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.errors import CorruptionError, ExpiredEpochError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.appending import appender_in, plan_close, plan_open, plan_recovered
from coldstream.manifest.stream import Incarnation
from coldstream.store.direct_names import DirectName, add_name, find_name
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.rebuild.direct_world import RandomDirectArchive
from tests.rebuild.samples import small_points

SEEDS = int(os.environ.get("COLDSTREAM_REBUILDS", "24"))


@pytest.fixture(autouse=True)
def _small_points(monkeypatch: pytest.MonkeyPatch) -> None:
    small_points(monkeypatch, ("archive.draft", "manifest.groups", "rebuild.points"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_any_history_the_rebuilt_table_is_the_lost_one_row_for_row(seed: int, tmp_path: Path) -> None:
    archive = RandomDirectArchive(seed, tmp_path)
    archive.live(ends=True)
    table = MemoryTable()
    report = archive.rebuild(table)
    assert report.is_done
    assert archive.differences(table) == []
    assert report.notes == ()
    assert find_name(table, archive.stream.vhost, archive.stream.name) == archive.name


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whoever_dies_before_a_note_leaves_more_open_and_never_less(seed: int, tmp_path: Path) -> None:
    archive = RandomDirectArchive(seed, tmp_path, dies=0.4)
    archive.live()
    table = MemoryTable()
    assert archive.rebuild(table).is_done
    head = table.head(archive.stream.incarnation)
    assert head is not None
    lost, found = archive.appender, appender_in(head)
    noted = set(archive.control.openings(archive.stream.incarnation))
    # Nothing was appended by an opening before its note.
    assert noted & set(lost.openings) <= set(found.openings)
    assert found.epoch >= archive.control.last_epoch(archive.stream.incarnation)
    assert found.epoch <= lost.epoch
    assert found.start <= lost.start
    assert found.is_sealed <= lost.is_sealed
    assert (found.first, found.properties) == (lost.first, lost.properties)


def test_the_histories_have_everything_in_them(tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    for seed in range(16):
        archive = RandomDirectArchive(seed, tmp_path / str(seed))
        archive.live(ends=True)
        done += archive.done
        done.update(what for what in ("is_sealed", "is_open", "start", "epoch") if getattr(archive.appender, what))
        done["unrecovered"] += len(archive.appender.openings) > 1
        done["deleted"] += archive.head.is_deleted
        done["named"] += archive.name is not None
        done["empty"] += archive.head.first_offset is None
    wanted = {"open", "recover", "close", "trim", "is_sealed", "is_open", "start", "unrecovered", "deleted", "named"}
    assert {what for what in wanted if not done[what]} == set()


@pytest.fixture
def archive(tmp_path: Path) -> RandomDirectArchive:
    """An archive of one fragment, open to write."""
    archive = RandomDirectArchive(3, tmp_path)
    archive.open()
    archive.uploader.upload(archive.segments[0])
    return archive


def rebuilt(archive: RandomDirectArchive, *, at: TimestampMs | None = None) -> MemoryTable:
    table = MemoryTable()
    assert archive.rebuild(table, at=at).is_done
    return table


def test_an_epoch_that_was_taken_in_the_lost_table_is_not_taken_again(archive: RandomDirectArchive) -> None:
    stalled = plan_open(archive.head, WalPlace(WalKind.S3, "zombie", 1), archive.now)
    archive.table.apply(stalled)  # and its note comes late
    archive.use(table=rebuilt(archive))
    archive.open()
    assert archive.appender.epoch == appender_in(stalled.head).epoch
    with pytest.raises(ExpiredEpochError):
        archive.control.write_opening(archive.stream, appender_in(stalled.head).openings[-1])


def test_a_rebuilt_stream_is_closed_opened_and_rebuilt_again(archive: RandomDirectArchive) -> None:
    before = archive.appender
    archive.use(table=rebuilt(archive))
    assert archive.appender == before
    archive.recover()
    archive.close()
    assert archive.head.revision < archive.head.note_revision
    archive.open()
    archive.use(table=rebuilt(archive))
    assert archive.appender.epoch == 2
    assert [one.epoch for one in archive.appender.openings] == [2]


def test_a_late_note_of_an_earlier_change_does_not_count(archive: RandomDirectArchive) -> None:
    archive.open()
    recovered = plan_recovered(archive.head, archive.appender.epoch, archive.now)
    archive.table.apply(recovered)
    closed = plan_close(archive.head, archive.appender.epoch, archive.now)
    archive.table.apply(closed)
    archive.control.write_direct(closed.head)
    archive.control.write_direct(recovered.head)
    table = rebuilt(archive)
    assert archive.differences(table) == []


def test_as_of_a_time_the_epoch_is_past_all_that_were_taken(archive: RandomDirectArchive) -> None:
    archive.now = TimestampMs(archive.now + 10_000)
    then = archive.now
    archive.now = TimestampMs(archive.now + 10_000)
    archive.open()
    archive.recover()
    archive.trim()
    head = rebuilt(archive, at=then).head(archive.stream.incarnation)
    assert head is not None
    found = appender_in(head)
    assert (found.epoch, [one.epoch for one in found.openings], found.start) == (2, [1], 0)
    assert head.note_revision > archive.head.revision - 2


def test_openings_without_the_note_of_a_creation_stop_the_stream(archive: RandomDirectArchive) -> None:
    for key in list(archive.objects.keys(archive.keys.direct_notes(archive.stream.incarnation))):
        archive.objects.delete(key)
    with pytest.raises(CorruptionError):
        rebuilt(archive)
    (report,) = archive.rebuilder(MemoryTable()).streams([archive.stream.incarnation], at_once=1)
    assert report.unread == 1
    assert not report.is_done


def test_a_brokers_stream_stays_one(archive: RandomDirectArchive) -> None:
    incarnation = archive.stream.incarnation
    for prefix in (archive.keys.direct_notes(incarnation), archive.keys.openings(incarnation)):
        for key in list(archive.objects.keys(prefix)):
            archive.objects.delete(key)
    table = rebuilt(archive)
    head = table.head(incarnation)
    assert head is not None
    assert head.appender is None
    assert find_name(table, archive.stream.vhost, archive.stream.name) is None


@pytest.mark.parametrize("later", [True, False])
def test_the_later_stream_of_a_name_has_it(archive: RandomDirectArchive, later: bool) -> None:  # noqa: FBT001
    named = DirectName.of(archive.head)
    incarnation = archive.stream.incarnation
    names, _, created = incarnation.rpartition("_")
    table = MemoryTable()
    moved = int(created) + (1 if later else -1)
    other = DirectName(replace(named.stream, incarnation=Incarnation(f"{names}_{moved}")))
    add_name(table, other)
    report = archive.rebuild(table)
    assert report.is_done
    assert find_name(table, named.stream.vhost, named.stream.name) == (other if later else named)
    assert len(report.notes) == later


def test_a_dry_run_writes_no_name(archive: RandomDirectArchive) -> None:
    table = MemoryTable()
    archive.rebuild(table, is_dry=True)
    assert find_name(table, archive.stream.vhost, archive.stream.name) is None
