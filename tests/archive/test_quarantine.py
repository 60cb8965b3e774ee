"""A segment that fails verification is quarantined, whole and once, and others go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.archive.quarantine import quarantine, read_quarantine
from coldstream.errors import OutcomeUnknownError, RemovedError
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import JournalKind, Quarantine
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import RangeRead
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.support.removing import delete, remove_prefix, undelete
from tests.support.segments import STREAM, MemoryArchive, write_stream


def corrupt(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_a_corrupt_segment_goes_to_quarantine_and_others_go_on(directory: Path) -> None:
    original = sorted(directory.glob("*.segment"))[1]
    corrupt(original, original.stat().st_size // 2)
    damaged = original.read_bytes()
    archive = MemoryArchive()
    events = archive.stage(directory)
    uploads = [archive.uploader.upload(event) for event in events]
    key = uploads[1].quarantined
    assert key is not None
    assert archive.body(key) == damaged
    note = json.loads(archive.body(f"{key}.json"))
    assert (note["first_offset"], note["next_offset"]) == (events[1].first_offset, events[1].next_offset)
    assert "CRC" in note["reason"]
    assert archive.objects.info(events[1].staged_key) is None
    journal = [e for e in archive.table.journal(STREAM.incarnation) if e.kind is JournalKind.SEGMENT_QUARANTINED]
    assert [(e.first_offset, e.key, e.detail) for e in journal] == [(events[1].first_offset, key, uploads[1].reason)]
    assert [upload.quarantined for upload in uploads].count(None) == len(events) - 1
    gaps = archive.table.gaps(STREAM.incarnation, 10)
    assert len(gaps) == 1
    assert events[1].first_offset <= gaps[0].first_offset < gaps[0].next_offset == events[1].next_offset
    assert gaps[0].reason == f"in quarantine: {uploads[1].reason}"


class WrongReads(MemoryObjects):
    """A bucket whose first `wrong` reads of a staged copy bring a wrong byte, in the middle."""

    def __init__(self, wrong: int) -> None:
        super().__init__()
        self.wrong = wrong

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        found = super().get_range(key, byte_range, if_match=if_match)
        if not self.wrong or "/staging/" not in key:
            return found
        self.wrong -= 1
        data = bytearray(found.data)
        data[len(data) // 2] ^= 1
        return replace(found, data=bytes(data))


@pytest.mark.parametrize("wrong", [0, 1, 99])
def test_only_what_two_reads_find_goes_to_quarantine(directory: Path, wrong: int) -> None:
    objects, archive = WrongReads(wrong), MemoryArchive()
    archive.use(objects=objects)
    (event, *_) = archive.stage(directory)
    result = archive.uploader.upload(event)
    assert (result.quarantined is not None) is (wrong > 1)
    assert objects.info(event.staged_key) is None
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    assert (head.next_offset == event.next_offset) is (wrong <= 1)


def test_a_repeated_event_of_a_quarantined_segment_is_no_failure(directory: Path) -> None:
    corrupt(min(directory.glob("*.segment")), 5000)
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    key = archive.uploader.upload(event).quarantined
    assert archive.uploader.upload(event).quarantined == key
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    assert head.quarantined == 1


def test_a_gap_that_was_there_before_says_that_its_segment_is_in_quarantine(directory: Path) -> None:
    corrupt(sorted(directory.glob("*.segment"))[1], 100)
    archive = MemoryArchive()
    events = archive.stage(directory)
    for event in (events[0], events[2], *events[3:]):
        archive.uploader.upload(event)
    assert [gap.reason for gap in archive.table.gaps(STREAM.incarnation, 10)] == [None]
    done = archive.uploader.upload(events[1])
    assert [gap.reason for gap in archive.table.gaps(STREAM.incarnation, 10)] == [f"in quarantine: {done.reason}"]


def test_whether_a_segment_is_in_quarantine_costs_one_request_at_any_length_of_the_journal(directory: Path) -> None:
    corrupt(min(directory.glob("*.segment")), 5000)
    archive = MemoryArchive()
    events = archive.announce(directory)
    archive.table.requests.clear()
    aside = read_quarantine(archive.table, events[0])
    assert read_quarantine(archive.table, events[1]) is None
    assert archive.table.requests == {"GetItem": 2}
    assert aside is not None
    assert "CRC" in aside.reason
    assert archive.body(aside.key)


def test_a_quarantine_says_which_staged_copy_failed_last(directory: Path) -> None:
    damaged = min(directory.glob("*.segment"))
    archive = MemoryArchive()
    etags = []
    for position in (5000, 6000, 6000):  # undoes itself the third time
        corrupt(damaged, position)
        event = archive.stage(directory)[0]
        staged = archive.objects.info(event.staged_key)
        assert staged is not None
        etags.append(staged.etag)
        archive.uploader.upload(event)
        aside = read_quarantine(archive.table, event)
        assert aside is not None
        assert aside.etag == etags[-1]
    assert etags[0] == etags[2] != etags[1]
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    assert head.quarantined == 1
    kinds = [event.kind for event in archive.table.journal(STREAM.incarnation)]
    assert kinds.count(JournalKind.SEGMENT_QUARANTINED) == 3


def test_a_good_copy_after_a_corrupt_one_ends_in_the_same_archive(
    directory: Path, expected: tuple[object, ...]
) -> None:
    damaged = min(directory.glob("*.segment"))
    good = damaged.read_bytes()
    corrupt(damaged, len(good) - 10)
    archive = MemoryArchive()
    archive.announce(directory)
    damaged.write_bytes(good)
    archive.announce(directory)
    assert archive.state() == expected


def test_a_segment_cut_short_goes_to_quarantine_at_every_length(tmp_path: Path) -> None:
    write_stream(tmp_path / "stream", chunks=12, max_segment_bytes=1_500)
    path = min((tmp_path / "stream").glob("*.segment"))
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        archive = MemoryArchive(fragment_bytes=1000)
        path.write_bytes(whole[:length])
        segments = [s for s in archive.stage(tmp_path / "stream") if s.first_offset == 0]
        if length <= SEGMENT_HEADER_BYTES:
            assert segments == []
            continue
        assert archive.uploader.upload(segments[0]).quarantined is not None


@pytest.mark.parametrize("more", [-5, 5])
def test_a_good_copy_is_not_judged_by_the_size_that_was_announced(
    directory: Path, expected: tuple[object, ...], more: int
) -> None:
    archive = MemoryArchive()
    for event in archive.stage(directory):
        done = archive.uploader.upload(replace(event, size_bytes=event.size_bytes + more))
        assert done.quarantined is None
    assert archive.state() == expected


def test_a_quarantine_whose_answer_was_lost_is_counted_once(directory: Path) -> None:
    class Forgetful(MemoryTable):
        def apply(self, change: Change) -> None:
            super().apply(change)
            raise OutcomeUnknownError("no answer")

    corrupt(min(directory.glob("*.segment")), 100)
    archive = MemoryArchive()
    archive.use(table=Forgetful())
    event = archive.stage(directory)[0]
    assert archive.uploader.upload(event).quarantined is not None
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    assert head.quarantined == 1


def test_concurrent_events_of_a_corrupt_segment_are_one_quarantine(directory: Path) -> None:
    class Meeting(MemoryTable):
        """Lets two functions write at the same time."""

        def apply(self, change: Change) -> None:
            if change.head.revision == 1:
                both.wait(10)
            super().apply(change)

    both = threading.Barrier(2)
    corrupt(min(directory.glob("*.segment")), 100)
    archive = MemoryArchive()
    archive.use(table=Meeting())
    event = archive.stage(directory)[0]
    with ThreadPoolExecutor(2) as pool:
        done = [future.result() for future in [pool.submit(archive.uploader.upload, event) for _ in range(2)]]
    assert done[0] == done[1]
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    assert head.quarantined == 1


def test_a_good_copy_staged_while_a_corrupt_one_goes_to_quarantine_stays(
    directory: Path, expected: tuple[object, ...]
) -> None:
    damaged = min(directory.glob("*.segment"))
    good = damaged.read_bytes()
    corrupt(damaged, len(good) - 10)

    class Overtaken(MemoryObjects):
        """While this function quarantines the segment, another does too, and the segment is announced again."""

        def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
            super().copy(source_key, target_key, if_match=if_match)
            self.objects[source_key] = good

    archive = MemoryArchive()
    archive.use(objects=Overtaken())
    (first, *others) = archive.stage(directory)
    assert archive.uploader.upload(first).quarantined is not None
    assert archive.uploader.upload(first).is_stale  # its event comes again: it is not of the copy that is there now
    for event in (stage(find_rolled(directory)[0], STREAM, archive.objects, archive.keys), *others):
        archive.uploader.upload(event)
    assert archive.state() == expected


def test_the_note_beside_a_copy_says_all_that_the_manifest_records(directory: Path) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    for number, bit in enumerate((1, 2), start=1):
        data = bytearray(min(directory.glob("*.segment")).read_bytes())
        data[len(data) // 2] ^= bit
        archive.objects.objects[event.staged_key] = bytes(data)
        key = archive.uploader.upload(replace(event, etag=None, cut_every_ms=60_000)).quarantined
        record = archive.table.quarantine(STREAM.incarnation, event.first_offset, event.next_offset)
        assert record is not None
        assert (record.key, record.copies) == (key, number)
        note = json.loads(archive.body(f"{key}.json"))
        assert note == {
            "version": 1,
            "vhost": STREAM.vhost,
            "stream": STREAM.name,
            "incarnation": STREAM.incarnation,
            "cluster": "",
            "first_offset": record.first_offset,
            "next_offset": record.next_offset,
            "size_bytes": event.size_bytes,
            "cut_every_ms": 60_000,
            "quiet": None,
            "etag": record.etag,
            "at": record.at,
            "copies": record.copies,
            "reason": record.reason,
        }


class DeletedMeanwhile(MemoryTable):
    """Has the stream deleted once its copy is in quarantine, and what comes after the first look for its record."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__()
        self._after: Callable[[], None] | None = after

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        found = super().quarantine(incarnation, first_offset, next_offset)
        head = self.head(incarnation)
        if head is not None and head.is_deleted and self._after is not None:
            after, self._after = self._after, None
            after()
        return found


class CopyThenDeletion(MemoryObjects):
    """Has something happen after the first copy."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__()
        self._after: Callable[[], None] | None = after

    def copy(self, source: str, target: str, *, if_match: str) -> None:
        super().copy(source, target, if_match=if_match)
        if self._after is not None:
            after, self._after = self._after, None
            after()


def refused(directory: Path, meanwhile: Callable[[MemoryTable], object]) -> tuple[MemoryArchive, str]:
    """Have a record refused by what happens after the copy; return the archive, and the copy's key.

    After the look for another record the deletion, if it was one, is undone, and another upload writes that record.
    """
    archive = MemoryArchive()

    def again() -> None:
        undelete(archive.table, STREAM.incarnation)
        put_aside()

    archive.use(table=DeletedMeanwhile(again), objects=CopyThenDeletion(lambda: meanwhile(archive.table)))
    event, *others = archive.stage(directory)
    for other in others:
        archive.uploader.upload(other)
    etag = archive.objects.info(event.staged_key).etag

    def put_aside() -> str:
        return quarantine(
            archive.table, archive.objects, archive.keys, event, etag=etag, reason="CRC", now=lambda: TimestampMs(1)
        )

    with pytest.raises(RemovedError):
        put_aside()
    return archive, archive.keys.quarantined(STREAM.incarnation, event.first_offset, etag)


def test_a_copy_whose_record_is_refused_stays_for_another_upload_that_records_it_after_an_undeletion(
    directory: Path,
) -> None:
    archive, key = refused(directory, lambda table: delete(table, STREAM.incarnation))
    assert archive.objects.info(key) is not None
    for one in archive.table.missing(STREAM.incarnation):
        assert archive.objects.info(one.key) is not None


def test_a_copy_whose_record_can_never_be_written_goes(directory: Path) -> None:
    archive, key = refused(directory, lambda table: remove_prefix(table, STREAM.incarnation, 1))
    assert archive.objects.info(key) is None


def test_a_copy_whose_offsets_end_at_the_floor_goes(directory: Path) -> None:
    archive = MemoryArchive(fragment_bytes=10_000_000)
    event, other = archive.stage(directory)[:2]
    etag = archive.objects.info(event.staged_key).etag
    for one in (event, other):
        archive.uploader.upload(one)
    remove_prefix(archive.table, STREAM.incarnation, 1)
    assert archive.table.head(STREAM.incarnation).floor == event.next_offset
    archive.stage(directory)
    with pytest.raises(RemovedError):
        quarantine(
            archive.table, archive.objects, archive.keys, event, etag=etag, reason="CRC", now=lambda: TimestampMs(1)
        )
    assert not [key for key in archive.objects.objects if "/quarantine/" in key]


def test_the_note_of_a_copy_whose_record_lost_a_race_with_a_removal_goes_with_the_copy(directory: Path) -> None:
    class RemovedAtNote(MemoryObjects):
        def put(self, key: str, data: bytes, **named: Any) -> None:
            super().put(key, data, **named)
            if key.endswith(".segment.json"):
                remove_prefix(archive.table, STREAM.incarnation, 1)

    archive = MemoryArchive()
    archive.use(objects=RemovedAtNote())
    event, *others = archive.stage(directory)
    for other in others:
        archive.uploader.upload(other)
    etag = archive.objects.info(event.staged_key).etag
    with pytest.raises(RemovedError):
        quarantine(
            archive.table, archive.objects, archive.keys, event, etag=etag, reason="CRC", now=lambda: TimestampMs(1)
        )
    assert not [key for key in archive.objects.objects if "/quarantine/" in key]
