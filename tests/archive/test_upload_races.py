"""What becomes of an upload while whose work others archive, remove or replace the same offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.archive.missing import record_missing
from coldstream.archive.quarantine import quarantine
from coldstream.archive.segment_rolled import MAX_CUT_EVERY_MS, MAX_SEGMENT_BYTES, MIN_CUT_EVERY_MS, SegmentRolled
from coldstream.archive.upload import UploadResult
from coldstream.errors import BelowFloorError, InvalidEventError, ObjectNotFoundError
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import Quarantine
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ObjectInfo, RangeRead
from coldstream.units import ByteRange, Offset
from tests.support.archive import NOW
from tests.support.forked_streams import write_history
from tests.support.removing import remove_prefix
from tests.support.segments import STREAM, MemoryArchive

INCARNATION = STREAM.incarnation


class Overtaken(MemoryTable):
    """Right before its first entry is committed, others do something."""

    meanwhile: Callable[[], object] | None = None

    def apply(self, change: Change) -> None:
        if change.new_entry is not None and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().apply(change)


def staged_info(archive: MemoryArchive, event: SegmentRolled) -> object:
    return archive.objects.info(event.staged_key)


def test_an_upload_whose_fragments_others_commit_meanwhile_goes_on_without_reading_its_copy_again(
    directory: Path,
) -> None:
    class Watched(MemoryObjects):
        def info(self, key: str) -> ObjectInfo | None:
            asked.append(key)
            return super().info(key)

    asked: list[str] = []
    table, archive = Overtaken(), MemoryArchive()
    archive.use(table=table, objects=Watched())
    event = archive.stage(directory)[0]
    data = archive.body(event.staged_key)

    def others() -> None:
        archive.uploader.upload(event)
        archive.objects.put(event.staged_key, data)
        archive.objects.requests.clear()
        asked.clear()

    table.meanwhile = others
    done = archive.uploader.upload(event)
    assert (done.fragments_committed, done.fragments_present, done.quarantined) == (0, len(archive.log()), None)
    assert archive.objects.requests["GetObject"] == 0
    assert event.staged_key not in asked
    assert staged_info(archive, event) is None


def test_an_upload_while_whose_work_another_history_is_archived_is_quarantined(tmp_path: Path) -> None:
    first = write_history(tmp_path / "first", max_segment_bytes=40_000)
    second = write_history(tmp_path / "second", max_segment_bytes=40_000, forks_at=2)
    table, archive = Overtaken(), MemoryArchive()
    archive.use(table=table)
    event = archive.stage(first)[0]
    other = archive.body(event.staged_key)
    archive.objects.delete(event.staged_key)
    mine = stage(find_rolled(second)[0], archive.stream, archive.objects, archive.keys)
    assert mine.staged_key == event.staged_key
    data = archive.body(mine.staged_key)

    def others() -> None:
        archive.objects.put(event.staged_key, other)
        archive.uploader.upload(replace(event, etag=None))
        archive.objects.put(mine.staged_key, data)

    table.meanwhile = others
    done = archive.uploader.upload(replace(mine, etag=None))
    assert done.quarantined is not None
    assert "contradicts what is archived" in str(done.reason)
    assert archive.body(done.quarantined) == data


def test_another_copy_at_the_key_has_an_event_of_its_own_though_its_bytes_are_archived(directory: Path) -> None:
    archive = MemoryArchive()
    event = archive.announce(directory)[0]
    archive.stage(directory)
    assert archive.uploader.upload(replace(event, etag='"another"')) == UploadResult(is_stale=True)
    assert staged_info(archive, event) is not None


def test_a_fragment_that_the_archive_has_lost_is_no_missing_copy(tmp_path: Path) -> None:
    first = write_history(tmp_path / "first", max_segment_bytes=40_000)
    second = write_history(tmp_path / "second", max_segment_bytes=40_000, forks_at=2)
    archive = MemoryArchive()
    archive.uploader.upload(archive.stage(first)[0])
    lost = archive.log()[0].key
    archive.objects.delete(lost)
    event = archive.stage(second)[0]
    with pytest.raises(ObjectNotFoundError) as caught:
        archive.uploader.upload(event)
    assert caught.value.key == lost
    assert staged_info(archive, event) is not None


def test_a_copy_that_goes_while_all_of_it_is_removed_from_the_archive_is_no_loss(directory: Path) -> None:
    class Removing(MemoryObjects):
        """Before the copy is read for the first time, others archive it and retention removes it."""

        is_first = True

        def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
            if self.is_first:
                self.is_first = False
                archive.uploader.upload(event)
                remove_prefix(archive.table, INCARNATION, 100)
            return super().get_range(key, byte_range, if_match=if_match)

    archive = MemoryArchive()
    archive.use(objects=Removing())
    event = archive.stage(directory)[0]
    assert archive.uploader.upload(event) == UploadResult(removed=True)
    assert archive.log() == ()


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_copy_of_what_was_removed_is_kept_in_quarantine_only_if_an_earlier_record_names_it(
    directory: Path, *, is_recorded: bool
) -> None:
    archive = MemoryArchive()
    events = archive.stage(directory)
    for other in (events[0], events[2]):
        archive.uploader.upload(other)
    event = events[1]
    copy = archive.objects.info(event.staged_key)
    assert copy is not None
    key = archive.keys.quarantined(INCARNATION, event.first_offset, copy.etag)
    named = key if is_recorded else f"{key}-of-another-copy"
    record_missing(
        archive.table, STREAM, Quarantine(event.first_offset, event.next_offset, "bad", NOW, named, copy.etag)
    )
    remove_prefix(archive.table, INCARNATION, 100)
    with pytest.raises(BelowFloorError):
        quarantine(
            archive.table,
            archive.objects,
            archive.keys,
            event,
            etag=copy.etag,
            reason="bad",
            now=lambda: NOW,
        )
    assert (archive.objects.info(key) is not None) is is_recorded


@pytest.mark.parametrize("size_bytes", [1, MAX_SEGMENT_BYTES])
@pytest.mark.parametrize("cut_every_ms", [None, MIN_CUT_EVERY_MS, MAX_CUT_EVERY_MS])
def test_the_greatest_and_least_segments_are_announced(size_bytes: int, cut_every_ms: int | None) -> None:
    assert (MIN_CUT_EVERY_MS, MAX_CUT_EVERY_MS, MAX_SEGMENT_BYTES) == (1_000, 86_400_000, 2**32)
    SegmentRolled(STREAM, Offset(0), Offset(1), size_bytes, "bucket", "key", cut_every_ms)


@pytest.mark.parametrize(
    ("size_bytes", "cut_every_ms"),
    [
        (0, None),
        (MAX_SEGMENT_BYTES + 1, None),
        (1, MIN_CUT_EVERY_MS - 1),
        (1, MAX_CUT_EVERY_MS + 1),
    ],
)
def test_segments_outside_their_bounds_are_refused(size_bytes: int, cut_every_ms: int | None) -> None:
    with pytest.raises(InvalidEventError, match="segment"):
        SegmentRolled(STREAM, Offset(0), Offset(1), size_bytes, "bucket", "key", cut_every_ms)
