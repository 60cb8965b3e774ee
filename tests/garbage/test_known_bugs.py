"""Shapes of bugs that cost other archives their data, or kept their garbage: one test each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.errors import StaleGenerationError
from coldstream.garbage.kinds import ObjectState
from coldstream.garbage.run import GarbageCollector
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.change import Change
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.deletion import plan_delete
from coldstream.manifest.entry import FragmentEntry, Head, JournalKind
from coldstream.store.clock import AwsClock, HeardTime
from coldstream.store.keys import Keys
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MIB, Offset, TimestampMs
from tests.garbage.littered import DELETE, LitteredArchive
from tests.store.samples import ORDERS, entry
from tests.support.segments import STREAM, write_stream


class StallingTable(MemoryTable):
    """Calls `stall` once, between the moment at which a creator has put its object, and its commit."""

    def __init__(self) -> None:
        super().__init__()
        self.stall: Callable[[], object] | None = None

    def apply(self, change: Change) -> None:
        stall = self.stall
        if stall is not None and change.new_entry is not None:
            self.stall = None
            stall()
        super().apply(change)


class WakingTable(MemoryTable):
    """Wakes a creator just before a fence is written."""

    wake: Callable[[], None] | None = None

    def apply(self, change: Change) -> None:
        wake, is_fence = self.wake, change.event.kind is JournalKind.FENCE_RAISED
        if wake is not None and is_fence:
            self.wake = None
            wake()
        super().apply(change)


@pytest.fixture
def archive() -> LitteredArchive:
    archive = LitteredArchive()
    archive.table = StallingTable()
    return archive


@pytest.fixture
def segments(archive: LitteredArchive, tmp_path: Path) -> list[SegmentRolled]:
    """The rolled segments of a stream, staged."""
    write_stream(tmp_path, chunks=250)
    return [stage(segment, STREAM, archive.objects, archive.keys) for segment in find_rolled(tmp_path)]


def uploader(archive: LitteredArchive) -> Uploader:
    return Uploader(archive.table, archive.objects, archive.keys, fragment_bytes=MIB, now=archive.now)


def log(archive: LitteredArchive) -> list[FragmentEntry]:
    return list(archive.table.log_from_offset(STREAM.incarnation, Offset(0), 100).entries)


def test_a_stalled_creator_whose_key_was_collected_puts_its_bytes_again(
    archive: LitteredArchive, segments: list[SegmentRolled]
) -> None:
    uploader(archive).upload(segments[0])
    assert isinstance(archive.table, StallingTable)
    collected: list[str] = []

    def stall() -> None:
        before = archive.stored
        archive.pass_days(2)
        archive.collect()
        collected.extend(before - archive.stored)

    archive.table.stall = stall
    uploader(archive).upload(segments[1])
    (key,) = collected
    assert key == archive.keys.fragment(STREAM.incarnation, segments[1].first_offset)
    entries = log(archive)
    assert [one.next_offset for one in entries] == [segments[0].next_offset, segments[1].next_offset]
    assert {one.key for one in entries} <= archive.stored
    assert entries[1].generation == 1


def test_a_creator_that_commits_without_looking_is_refused(archive: LitteredArchive) -> None:
    archive.archive(0, 10)
    key = archive.fragment(10)
    stalled = Neighbourhood(archive.head())
    archive.pass_days(2)
    archive.collect()
    assert key not in archive.stored
    late = replace(entry(10, 20), key=key)
    with pytest.raises(StaleGenerationError):
        plan_commit(replace(stalled, head=archive.head()), late, archive.at)


def test_a_late_publish_out_of_order_keeps_its_object(archive: LitteredArchive, segments: list[SegmentRolled]) -> None:
    """The second segment comes first. The first is put and not committed while garbage runs, again and again."""
    uploader(archive).upload(segments[1])
    assert isinstance(archive.table, StallingTable)
    archive.table.stall = archive.collect
    uploader(archive).upload(segments[0])
    entries = log(archive)
    assert [one.first_offset for one in entries] == [segments[0].first_offset, segments[1].first_offset]
    archive.pass_days(30)
    report = archive.collect()
    assert {one.key for one in entries} <= archive.stored
    assert report.total(ObjectState.GARBAGE).objects == 0


def test_of_two_references_the_kept_one_counts(archive: LitteredArchive) -> None:
    """An entry and a tombstone name one object; and of two objects of the same offsets one has an entry."""
    live = archive.archive(0, 10)
    archive.bury(live.key, 0)
    other = archive.fragment(0, 1)
    archive.pass_days(2)
    archive.collect()
    assert live.key in archive.stored
    assert other not in archive.stored


ODD_NAMES = (
    "100%",
    "%2F",
    "a+b",
    "a b",
    "a%20b",
    "a%2Bb",
    "ü/€/𐍈",
    "".join(map(chr, range(256))),
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_of_any_characters_is_neither_taken_for_another_nor_deleted(name: str) -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    ours = archive.keys.fragment(ORDERS.incarnation, Offset(10))
    garbage = archive.put(ours)
    kept = {
        archive.put(f"some/prefix/{name}"),
        archive.put(f"some/prefix/{name}/data/{10:020}.fragment"),
        archive.put(ours.replace("/data/", "%2Fdata%2F")),
        archive.put(ours.replace("_", "%5F", 1)),
        archive.put(f"{ours}{name}"),
        archive.put(f"{ours} "),
    }
    archive.pass_days(40)
    report = archive.collect()
    assert kept <= archive.stored
    assert garbage not in archive.stored
    unknown = report.total(ObjectState.UNKNOWN)
    assert unknown.objects == len(kept)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_archive_below_a_prefix_of_any_characters_is_cleaned_like_any_other(name: str) -> None:
    archive = LitteredArchive(f"{name}/")
    live = archive.archive(0, 10).key
    archive.fragment(10)
    beside = archive.put(Keys(f"{name}x/").fragment(ORDERS.incarnation, Offset(10)))
    archive.pass_days(2)
    archive.collect()
    assert archive.stored == {live, beside}


def test_a_stream_deleted_five_seconds_after_its_last_publish_leaves_nothing_behind(
    archive: LitteredArchive, segments: list[SegmentRolled]
) -> None:
    """The last upload is under way when the stream is deleted: its object is put, its commit is refused."""
    uploader(archive).upload(segments[0])
    live = log(archive)[0].key
    assert isinstance(archive.table, StallingTable)

    def stall() -> None:
        archive.pass_days(5 / 86_400)
        purge_at = TimestampMs(archive.at + 10**10)
        archive.table.apply(
            plan_delete(archive.table.head(STREAM.incarnation) or Head(STREAM), archive.at, purge_at, "me")
        )

    archive.table.stall = stall
    result = uploader(archive).upload(segments[1])
    assert result.removed
    assert segments[1].staged_key not in archive.stored
    archive.pass_days(100)
    report = archive.collect()
    # Until it is purged, the stream may be undeleted; what the upload left has a tombstone, for the sweep.
    assert live in archive.stored
    assert report.total(ObjectState.REPLACED).objects == 1
    assert report.total(ObjectState.GARBAGE).objects == 0


@pytest.mark.parametrize("host_is_ahead_h", [-1, 0, 1, 10_000])
def test_a_host_clock_an_hour_off_changes_nothing(host_is_ahead_h: int) -> None:
    """An object that is a minute short of a day old stays, whatever the host takes for the time."""
    archive = LitteredArchive()
    archive.archive(0, 10)
    young = archive.fragment(10)
    archive.pass_days(1 - 1 / 1440)
    heard = HeardTime(monotonic_ns=lambda: host_is_ahead_h * 3600 * 10**9)
    aws = AwsClock(lambda: heard.hear(http_date(archive.at)), heard)
    collector = GarbageCollector(archive.table, archive.objects, archive.keys, aws)
    collector.run(DELETE)
    assert young in archive.stored
    archive.pass_days(2 / 1440)
    heard.hear(http_date(archive.at))
    collector.run(DELETE)
    assert young not in archive.stored


def http_date(at: TimestampMs) -> str:
    return formatdate(at / 1000, usegmt=True)


@pytest.mark.usefixtures("small_transactions")
def test_an_object_that_an_unfinished_compaction_names_is_in_use() -> None:
    """While its leftovers are there, the merged entry comes after them in the log, and before them in the listing."""
    archive = LitteredArchive()
    for first in range(0, 80, 10):
        archive.archive(first, first + 10)
    merged = archive.compact_half()
    garbage = archive.fragment(20, 7)
    archive.pass_days(2)
    report = archive.collect()
    assert merged in archive.stored
    assert garbage not in archive.stored
    assert report.deletions.objects == 1


def test_a_commit_between_the_look_and_the_fence_counts_however_many_follow_it() -> None:
    """The first look found nothing; then the creator woke up, and a hundred others committed after it."""
    archive = LitteredArchive()
    archive.table = waking = WakingTable()
    archive.archive(0, 10)
    slept = archive.fragment(10)
    archive.pass_days(2)

    def wake() -> None:
        archive.archive(10, 20)
        for first in range(20, 1020, 10):
            archive.archive(first, first + 10)

    waking.wake = wake
    archive.collect()
    assert waking.wake is None
    assert slept in archive.stored
