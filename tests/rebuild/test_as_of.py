"""Rebuilds as of a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.manifest.entry import Head
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.rebuild.samples import small_points
from tests.rebuild.world import DONE, RandomArchive

CONTENT = ("first_offset", "next_offset", "records", "messages", "chunks", "gaps")
RECORDS = ("floor", "deleted_at", "purged_at", "holds", "erasures", "losses", "quarantined", "quarantined_again")


@pytest.fixture(autouse=True)
def _small_points(monkeypatch: pytest.MonkeyPatch) -> None:
    small_points(monkeypatch, ("archive.draft", "manifest.groups", "rebuild.points"))


def of(head: Head, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(head, name) for name in names}


@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_a_table_as_of_a_time_is_what_it_was_unless_the_report_tells(bucket: str, tmp_path: Path) -> None:
    exact = 0
    for seed in range(6):
        archive = RandomArchive(seed, tmp_path / str(seed), versioned=bucket == "versioned")
        archive.live(ends=True)
        moments = [(at, head) for at, head in archive.past if head.revision]
        for at, head in moments[:: 1 + len(moments) // 6]:
            table = MemoryTable()
            report = archive.rebuilder(table, at=at).stream(archive.stream.incarnation)
            rebuilt = table.head(archive.stream.incarnation)
            assert rebuilt is not None
            assert of(rebuilt, RECORDS) == of(head, RECORDS)
            # A bucket without versions does not tell what was deleted since.
            is_told = report.stand_ins or report.unread or (bucket == "plain" and archive.done["sweep"])
            if not is_told:
                assert of(rebuilt, CONTENT) == of(head, CONTENT)
                exact += 1
    assert exact > 1


def test_an_object_that_went_since_is_told_if_the_bucket_has_versions(tmp_path: Path) -> None:
    archive = RandomArchive(4, tmp_path, versioned=True)
    archive.live()
    at = archive.now
    entry = archive.log()[-1]
    archive.now = TimestampMs(at + 5000)
    archive.objects.delete(entry.key)
    report = archive.rebuilder(MemoryTable(), at=at).stream(archive.stream.incarnation)
    assert entry.key in [doubt.key for doubt in report.unreadable]
    assert "deleted since" in report.unreadable[-1].reason


def test_what_was_merged_since_stands_in_for_what_is_gone(tmp_path: Path) -> None:
    archive = RandomArchive(7, tmp_path)
    for segment in archive.segments[:2]:
        archive.uploader.upload(segment)
    at, head = archive.now, archive.head
    archive.now = TimestampMs(at + 5000)
    archive.compact()
    for tombstone in archive.table.tombstones(archive.stream.incarnation, TimestampMs(1 << 60), 1000):
        archive.objects.delete(tombstone.key)
    table = MemoryTable()
    report = archive.rebuilder(table, at=at).stream(archive.stream.incarnation)
    rebuilt = table.head(archive.stream.incarnation)
    assert rebuilt is not None
    assert report.stand_ins
    assert of(rebuilt, CONTENT) == of(head, CONTENT)


def test_a_rebuild_as_of_one_time_is_not_continued_as_of_another(tmp_path: Path) -> None:
    archive = RandomArchive(4, tmp_path)
    archive.live()
    table = MemoryTable()
    archive.rebuilder(table, at=archive.now).stream(archive.stream.incarnation)
    with pytest.raises(Exception, match="as of another time"):
        archive.rebuilder(table, at=DONE).stream(archive.stream.incarnation)
