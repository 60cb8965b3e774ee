from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import InvalidInputError, OutcomeUnknownError
from coldstream.manifest.change import Change
from coldstream.manifest.entry import FragmentEntry, Head, JournalEvent, JournalKind, Loss
from coldstream.manifest.rebuilt import RebuiltEntry, plan_entries
from coldstream.manifest.recorded import recorded
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.state import replay
from coldstream.rebuild.facts import Doubt, StreamFacts
from coldstream.rebuild.fragment import FoundFragment
from coldstream.rebuild.progress import Progress, cursor_of
from coldstream.rebuild.stream import StreamRebuild
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.rebuild.samples import entry_of, rows_of, small_points
from tests.rebuild.world import DONE, RandomArchive
from tests.support.segments import STREAM

SEEDS = int(os.environ.get("COLDSTREAM_REBUILDS", "24"))


@pytest.fixture(autouse=True)
def _small_points(monkeypatch: pytest.MonkeyPatch) -> None:
    small_points(monkeypatch, ("archive.draft", "manifest.groups", "rebuild.points"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_any_history_the_rebuilt_table_is_the_lost_one_row_for_row(seed: int, tmp_path: Path) -> None:
    archive = RandomArchive(seed, tmp_path)
    archive.live(ends=True)
    table = MemoryTable()
    report = archive.rebuild(table)
    assert report.is_done
    assert archive.differences(table) == []
    assert report.doubtful == report.unreadable == ()


class Killed(BaseException):
    """The process ended here."""


class DyingTable(MemoryTable):
    """Ends the process before or after its nth write."""

    countdown = -1
    after = False

    def apply(self, change: Change) -> None:
        self._write(lambda: super(DyingTable, self).apply(change))

    def put_cursor(self, name: str, data: bytes) -> None:
        self._write(lambda: super(DyingTable, self).put_cursor(name, data))

    def _write(self, write: Callable[[], None]) -> None:
        self.countdown -= 1
        if self.countdown == 0 and not self.after:
            raise Killed
        write()
        if self.countdown == 0:
            raise Killed


@pytest.fixture
def small_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.manifest.rebuilt._FREE_ITEMS", 7)
    monkeypatch.setattr("coldstream.rebuild.stream.MAX_RECORDS", 3)
    monkeypatch.setattr("coldstream.rebuild.stream.MAX_TOMBSTONES", 5)
    monkeypatch.setattr("coldstream.rebuild.stream._BATCH", 4)


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("seed", [0, 1, 4, 5])
def test_a_rebuild_that_is_killed_anywhere_is_continued_to_the_same_table(
    seed: int, dies: str, tmp_path: Path, small_changes: None
) -> None:
    archive = RandomArchive(seed, tmp_path)
    archive.live()
    number, is_done = 0, False
    while not is_done:
        number += 1
        table = DyingTable()
        table.after = dies == "after"
        table.countdown = number
        try:
            is_done = archive.rebuild(table).is_done
        except Killed:
            table.countdown = -1
            assert archive.rebuild(table).is_done
        assert archive.differences(table) == []
    assert number > 4


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_rebuild_that_is_stopped_again_and_again_ends_in_the_same_table(
    seed: int, tmp_path: Path, small_changes: None
) -> None:
    archive = RandomArchive(seed, tmp_path)
    archive.live()
    table = MemoryTable()
    stops = 0
    while not archive.rebuild(table, stop_after=1).is_done:
        stops += 1
    assert stops
    assert archive.differences(table) == []


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_never_come_change_nothing(seed: int, tmp_path: Path, small_changes: None) -> None:
    class SilentTable(MemoryTable):
        def apply(self, change: Change) -> None:
            if rng.random() < 0.3:
                raise OutcomeUnknownError("no answer came")
            super().apply(change)
            if rng.random() < 0.3:
                raise OutcomeUnknownError("no answer came")

    rng = random.Random(seed)
    archive = RandomArchive(seed, tmp_path)
    archive.live()
    table = SilentTable()
    assert archive.rebuild(table).is_done
    assert archive.differences(table) == []


def test_the_journal_of_a_rebuilt_table_replays_to_it(tmp_path: Path, small_changes: None) -> None:
    archive = RandomArchive(4, tmp_path)
    archive.live()
    table = MemoryTable()
    archive.rebuild(table)
    incarnation = archive.stream.incarnation
    changes = list(table.recorded_changes(incarnation))
    assert {event.kind for event, _ in changes} == {JournalKind.FRAGMENTS_REBUILT}
    assert sorted(rows_of(replay(changes)), key=repr) == sorted(table.rows(incarnation), key=repr)


def test_a_rebuilt_stream_takes_the_next_segment_as_the_lost_one_would(tmp_path: Path) -> None:
    archive = RandomArchive(3, tmp_path)
    archive.live()
    (segment, *_) = archive.segments
    table = MemoryTable()
    archive.rebuild(table)
    archive.use(table=table)
    archive.restage(segment)
    assert archive.uploader.upload(segment).fragments_committed == 0


def test_a_table_that_has_the_stream_already_is_refused(tmp_path: Path) -> None:
    archive = RandomArchive(1, tmp_path)
    archive.live()
    other = MemoryTable()
    archive.uploader = replace(archive.uploader, table=other)
    for segment in archive.segments[:1]:
        archive.restage(segment)
        archive.uploader.upload(segment)
    before = list(other.rows(archive.stream.incarnation))
    with pytest.raises(InvalidInputError, match="has stream 'orders' in vhost '/' already"):
        archive.rebuild(other)
    assert list(other.rows(archive.stream.incarnation)) == before


def test_a_rebuild_that_is_done_is_left_alone_until_the_stream_goes_on(tmp_path: Path) -> None:
    archive = RandomArchive(1, tmp_path)
    archive.live()
    table = MemoryTable()
    archive.rebuild(table)
    revision = len(list(table.journal(archive.stream.incarnation)))
    assert archive.rebuild(table).is_done
    assert len(list(table.journal(archive.stream.incarnation))) == revision
    record_missing(table, archive.stream, Loss(Offset(1 << 40), Offset(1 << 41), "gone", DONE))
    with pytest.raises(InvalidInputError, match="has changed since"):
        archive.rebuild(table)


def test_a_dry_run_tells_the_same_and_writes_nothing(tmp_path: Path) -> None:
    archive = RandomArchive(4, tmp_path)
    archive.live()
    table = MemoryTable()
    told = archive.rebuild(table, is_dry=True)
    assert table.head(archive.stream.incarnation) is None
    assert table.cursor(cursor_of(archive.stream.incarnation)) is None
    assert archive.rebuild(table) == told


def test_an_object_that_cannot_be_read_is_told_and_leaves_a_gap(tmp_path: Path) -> None:
    archive = RandomArchive(4, tmp_path)
    archive.live()
    entry = archive.log()[3]
    archive.objects.objects[entry.key] = b"damaged"
    table = MemoryTable()
    report = archive.rebuild(table)
    assert [doubt.key for doubt in report.unreadable] == [entry.key]
    gaps = table.gaps(archive.stream.incarnation, 100)
    assert any(gap.first_offset <= entry.first_offset and entry.next_offset <= gap.next_offset for gap in gaps)


def test_what_cannot_be_read_is_told_again_by_every_later_run(tmp_path: Path, small_changes: None) -> None:
    archive = RandomArchive(4, tmp_path)
    archive.live()
    damaged = {entry.key for entry in archive.log()[1:4:2]}
    for key in damaged:
        archive.objects.objects[key] = b"damaged"
    table = MemoryTable()
    stops = 0
    while not (report := archive.rebuild(table, stop_after=1)).is_done:
        stops += 1
    assert stops
    again = archive.rebuild(table)
    for one in (report, again):
        assert (one.unread, {doubt.key for doubt in one.unreadable}) == (2, damaged)


def test_a_cursor_names_as_many_unreadable_objects_as_fit_and_counts_all() -> None:
    progress = Progress(DONE, unread=5000, unreadable=tuple(Doubt("k" * 1000, "r" * 10_000) for _ in range(1000)))
    data = progress.to_bytes()
    assert len(data) < 390_000
    found = Progress.from_bytes(data, source="cursor")
    assert (found.unread, len(found.unreadable)) == (5000, 200)


def test_five_thousand_fragments_take_about_fifty_transactions() -> None:
    table = MemoryTable()
    facts = StreamFacts(Head(STREAM))
    rebuild = StreamRebuild(table, facts, now=lambda: DONE, grace_ms=1)
    rebuild.begin()
    rebuild.take(FoundFragment(entry_of(number * 10), 0, DONE, has_note=True) for number in range(5_000))
    rebuild.finish()
    head = table.head(STREAM.incarnation)
    assert head is not None
    assert head.fragments == 5_000
    assert head.revision < 60


def test_entries_with_large_indexes_fit_into_the_items_of_dynamodb() -> None:
    points = tuple(
        SparsePoint(ChunkId(n * 1000), n * 50, 8 + (n << 20), TimestampMs(n * 7919), TimestampMs(n)) for n in range(600)
    )
    entries = [RebuiltEntry(replace(entry_of(number * 10), sparse=SparseIndex(points))) for number in range(90)]
    change, count = plan_entries(Head(STREAM), entries, (), at=DONE)
    assert 1 < count < 90
    assert len(recorded(change)) < 390_000


def test_the_histories_have_everything_in_them(tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    for seed in range(16):
        archive = RandomArchive(seed, tmp_path / str(seed))
        archive.live(ends=True)
        done += archive.done
        kinds = [row for row in archive.table.rows(archive.stream.incarnation) if not isinstance(row, JournalEvent)]
        done.update(type(row).__name__ for row in kinds)
        done.update(f"{row.encoding}, erased {row.erased}" for row in kinds if isinstance(row, FragmentEntry))
        done["floors"] += archive.head.floor > 0
        done["purged"] += archive.head.purged_at is not None
        done["copies"] += archive.head.quarantined_again
    wanted = {"compact", "remove", "put_hold", "release", "erase", "move", "sweep", "fence", "delete", "lose", "copies"}
    wanted |= {"quarantine", "floors", "purged", "Gap", "Tombstone", "Hold", "Erasure", "Loss", "Quarantine"}
    wanted |= {
        "zstd-seekable, erased False",
        "zstd-seekable, erased True",
        "identity, erased False",
        "identity, erased True",
    }
    assert {what for what in wanted if not done[what]} == set()


@pytest.mark.parametrize("seed", range(10))
def test_objects_that_nobody_committed_take_no_offset_away(seed: int, tmp_path: Path) -> None:
    archive = RandomArchive(seed, tmp_path)
    archive.live()
    strays = archive.leave_strays()
    table = MemoryTable()
    report = archive.rebuild(table)
    assert report.is_done
    incarnation = archive.stream.incarnation
    rebuilt, lost = table.head(incarnation), archive.head
    assert rebuilt is not None
    totals = ("first_offset", "next_offset", "chunks", "records", "messages", "gaps", "losses", "holds", "floor")
    assert {name: getattr(rebuilt, name) for name in totals} == {name: getattr(lost, name) for name in totals}
    named = {entry.key for entry in table.log_from_offset(incarnation, Offset(0), 1000).entries}
    buried = {one.key for one in table.tombstones(incarnation, TimestampMs(1 << 60), 1000)}
    told = {doubt.key for doubt in report.doubtful}
    assert strays <= named | buried | told, "a stray object is neither named nor told"
    assert not named & buried
    # Whatever was left out without proof is told, and stays: nothing of the lost table's is buried but its copies.
    assert {entry.key for entry in archive.log()} <= named | buried | told
