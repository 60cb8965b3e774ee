"""A rebuilt table lives on, and is rebuilt again: what it told the bucket counts, and not what the first one had."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.manifest.entry import Head
from coldstream.scrub.budget import Budget
from coldstream.scrub.damage import Damage
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.rebuild.world import DAY_MS, DONE, RandomArchive
from tests.support import removing


@pytest.fixture
def archive(tmp_path: Path) -> RandomArchive:
    """An archive whose table was rebuilt; the first one made some hundred changes, and told of floors late."""
    made = RandomArchive(3, tmp_path)
    for segment in made.segments[:2]:
        made.uploader.upload(segment)
    for _ in range(50):
        made.fence()
    return rebuilt(made)


def rebuilt(archive: RandomArchive) -> RandomArchive:
    """Rebuild the table, and go on with the new one."""
    table = MemoryTable()
    assert archive.rebuild(table).is_done
    archive.use(table=table)
    return archive


def delete(archive: RandomArchive) -> None:
    removing.delete(archive.table, archive.stream.incarnation)
    archive.control.write_floor(archive.head)


def undelete(archive: RandomArchive) -> None:
    removing.undelete(archive.table, archive.stream.incarnation)
    archive.control.write_floor(archive.head)


def of(head: Head) -> tuple[object, ...]:
    return head.floor, head.deleted_at, head.purge_at, head.purge_began_at, head.generation


def test_what_a_rebuilt_table_removed_stays_removed(archive: RandomArchive) -> None:
    archive.remove(1)
    before = archive.head
    assert before.floor
    assert of(rebuilt(archive).head) == of(before)


def test_what_was_deleted_in_a_rebuilt_table_stays_deleted(archive: RandomArchive) -> None:
    delete(archive)
    assert rebuilt(archive).head.is_deleted


def test_what_was_undeleted_in_a_rebuilt_table_is_not_purged(archive: RandomArchive) -> None:
    delete(archive)
    undelete(rebuilt(archive))
    assert not rebuilt(archive).head.is_deleted


def test_a_table_as_of_a_time_tells_of_its_floors_after_those_of_later_times(archive: RandomArchive) -> None:
    at = archive.now
    archive.now = TimestampMs(at + DAY_MS)
    delete(archive)
    table = MemoryTable()
    assert archive.rebuilder(table, at=at).stream(archive.stream.incarnation).is_done
    archive.use(table=table)
    assert not archive.head.is_deleted
    archive.fence()
    assert not rebuilt(archive).head.is_deleted


def test_the_bucket_is_not_ahead_of_a_rebuilt_table(archive: RandomArchive) -> None:
    removing.raise_fence(archive.table, archive.stream.incarnation, archive.head.generation + 1)
    scrubber = Scrubber(archive.table, archive.objects, archive.keys, lambda: TimestampMs(DONE + 30 * DAY_MS))
    found = scrubber.run(None, ScrubOptions(repair=True, resume=False), Budget())
    assert [one.damage for one in found.mended] == [Damage.FLOOR_NOTE]
    assert of(rebuilt(archive).head) == of(archive.head)
