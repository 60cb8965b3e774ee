"""The upload archives rolled segments, whatever happens on the way."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import pytest

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import UploadResult
from coldstream.errors import (
    InvalidEventError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.commit import Change
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import RangeRead
from coldstream.units import MAX_OFFSET, ByteRange, Offset
from tests.support.segments import STREAM, MemoryArchive, write_stream


def test_staged_copies_are_gone_when_their_segments_are_archived(directory: Path) -> None:
    archive = MemoryArchive()
    for segment in archive.announce(directory):
        assert archive.objects.info(segment.staged_key) is None


def test_repeated_and_shuffled_events_end_in_the_same_archive(directory: Path, expected: tuple[object, ...]) -> None:
    for seed in range(5):
        archive = MemoryArchive()
        events = archive.stage(directory) * 3
        random.Random(seed).shuffle(events)
        for event in events:
            archive.uploader.upload(event)
        assert archive.state() == expected


def test_concurrent_events_end_in_the_same_archive(directory: Path, expected: tuple[object, ...]) -> None:
    archive = MemoryArchive()
    events = archive.stage(directory) * 2
    random.Random(3).shuffle(events)
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(persist, archive, event) for event in events]:
            future.result()
    assert archive.state() == expected
    fragments = [key for key in archive.objects.objects if key.endswith(".fragment")]
    assert sorted(fragments) == sorted(entry.key for entry in archive.log())


def persist(archive: MemoryArchive, event: SegmentRolled) -> UploadResult:
    """Act as a queue: try again after a retryable failure."""
    for _ in range(20):
        try:
            return archive.uploader.upload(event)
        except ObjectNotFoundError:
            # Another function deleted the staged copy while this one read it.
            continue
    raise AssertionError("never succeeded")


class Killed(BaseException):
    """The function is stopped at once."""


class DyingObjects(MemoryObjects):
    """Kills the function before or after its nth write."""

    countdown = -1
    after = False

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        if key.endswith(".fragment"):
            self.countdown -= 1
            if self.countdown == 0 and not self.after:
                raise Killed
        super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
        if key.endswith(".fragment") and self.countdown == 0:
            raise Killed

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        if self.countdown > 0:
            self.countdown = 0
            raise Killed
        super().delete(key, if_match=if_match)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_upload_killed_at_any_put_is_finished_by_the_next(
    directory: Path, expected: tuple[object, ...], *, after: bool
) -> None:
    for countdown in range(1, 12):
        archive = MemoryArchive()
        dying = DyingObjects()
        archive.objects, archive.uploader = (
            dying,
            type(archive.uploader)(
                archive.table, dying, archive.keys, archive.uploader.fragment_bytes, now=archive.uploader.now
            ),
        )
        dying.after = after
        for event in archive.stage(directory):
            dying.countdown = countdown
            try:
                archive.uploader.upload(event)
            except Killed:
                assert dying.info(event.staged_key) is not None
                dying.countdown = -1
                archive.uploader.upload(event)
        assert archive.state() == expected


def test_an_upload_that_dies_leaves_no_thread_reading_ahead(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.archive.staged_segment.RANGE_BYTES", 500)
    archive = MemoryArchive()
    dying = DyingObjects()
    archive.objects, archive.uploader = dying, replace(archive.uploader, objects=dying)
    event = next(iter(archive.stage(directory)))
    dying.countdown = 1
    with pytest.raises(Killed) as killed:
        archive.uploader.upload(event)
    # Its traceback still holds the upload's generators, so it is not the garbage collector that ended them.
    assert killed.tb is not None
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("staged")]


class FlakyTable(MemoryTable):
    """Loses answers: the write happened, but its caller gets none."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = random.Random(5)

    def apply(self, change: Change) -> None:
        if self._rng.random() < 0.3:
            raise UnavailableError("throttled")
        super().apply(change)
        if self._rng.random() < 0.3:
            raise OutcomeUnknownError("no answer")


def test_lost_answers_and_throttling_end_in_the_same_archive(directory: Path, expected: tuple[object, ...]) -> None:
    archive = MemoryArchive()
    archive.use(table=FlakyTable())
    for event in archive.stage(directory):
        for _ in range(100):
            try:
                archive.uploader.upload(event)
                break
            except UnavailableError:
                continue
        else:
            pytest.fail("never archived")
    assert archive.state() == expected


def test_a_duplicate_of_an_archived_segment_is_not_read_again(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    again = archive.stage(directory)
    archive.objects.requests.clear()
    done = archive.uploader.upload(again[0])
    assert done.fragments_committed == 0
    assert done.fragments_present > 0
    assert archive.objects.requests == {"HeadObject": 1, "DeleteObject": 1}


def test_a_change_of_the_target_size_half_way_leaves_every_chunk_in_one_fragment(directory: Path) -> None:
    archive = MemoryArchive(fragment_bytes=20_000)
    events = archive.stage(directory)
    dying = threading.Event()

    class Stopping(MemoryTable):
        commits = 0

        def apply(self, change: Change) -> None:
            self.commits += 1
            if self.commits == 3 and not dying.is_set():
                raise Killed
            super().apply(change)

    table = Stopping()
    archive.use(table=table)
    with pytest.raises(Killed):
        archive.uploader.upload(events[0])
    dying.set()
    archive.uploader = replace(archive.uploader, fragment_bytes=33_000)
    for event in events:
        archive.uploader.upload(event)
    entries = archive.log()
    assert all(one.next_offset == other.first_offset for one, other in pairwise(entries))
    archived = b"".join(archive.body(entry.key)[8 : 8 + entry.data_bytes] for entry in entries)
    files = sorted(directory.glob("*.segment"))[:-1]
    assert archived == b"".join(file.read_bytes()[SEGMENT_HEADER_BYTES:] for file in files)


def test_a_fragment_that_others_commit_in_part_meanwhile_is_cut_around_that_part(directory: Path) -> None:
    class Overtaken(MemoryTable):
        """Right before the first commit, a function with a smaller target size has committed its first fragments."""

        def apply(self, change: Change) -> None:
            if change.new_entry is not None and not self.is_overtaken:
                self.is_overtaken = True
                with pytest.raises(Killed):
                    smaller.upload(event)
            if (
                change.new_entry is not None
                and change.new_entry.segment_offset == 0
                and self.dies_at == len(archive.log())
            ):
                self.dies_at = None
                raise Killed
            super().apply(change)

        is_overtaken = False
        dies_at: int | None = 2

    archive = MemoryArchive(fragment_bytes=33_000)
    event = archive.stage(directory)[0]
    archive.use(table=Overtaken())
    smaller = replace(archive.uploader, fragment_bytes=20_000)
    done = archive.uploader.upload(event)
    assert done.quarantined is None
    entries = archive.log()
    assert all(one.next_offset == other.first_offset for one, other in pairwise(entries))
    archived = b"".join(archive.body(entry.key)[8 : 8 + entry.data_bytes] for entry in entries)
    assert archived == min(directory.glob("*.segment")).read_bytes()[SEGMENT_HEADER_BYTES:]


def test_a_key_taken_by_other_bytes_is_left_alone(directory: Path, tmp_path: Path) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    taken = archive.keys.fragment(STREAM.incarnation, event.first_offset)
    with (tmp_path / "other").open("w+b") as other:
        other.write(b"other bytes")
        other.seek(0)
        archive.objects.put_new(taken, other, size_bytes=11, crc32=crc32(b"other bytes"))
    archive.uploader.upload(event)
    assert archive.body(taken) == b"other bytes"
    assert archive.log()[0].key == archive.keys.fragment(STREAM.incarnation, event.first_offset, 1)
    assert archive.log()[0].generation == 1


def test_a_missing_staged_object_is_an_error_unless_the_segment_is_archived(directory: Path) -> None:
    archive = MemoryArchive()
    events = archive.stage(directory)
    archive.uploader.upload(events[0])
    archive.objects.delete(events[1].staged_key)
    assert archive.uploader.upload(events[0]).fragments_committed == 0
    with pytest.raises(ObjectNotFoundError):
        archive.uploader.upload(events[1])


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        ("elsewhere", None),
        (None, "archive/other/object"),
        (None, "staging/../fragment"),
        (None, "archive/staging/../x"),
    ],
)
def test_an_event_that_points_outside_the_staging_area_touches_nothing(
    directory: Path, bucket: str | None, key: str | None
) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    hostile = SegmentRolled(
        event.stream,
        event.first_offset,
        event.next_offset,
        event.size_bytes,
        bucket or event.bucket,
        key or event.staged_key,
    )
    archive.objects.requests.clear()
    with pytest.raises(InvalidEventError):
        archive.uploader.upload(hostile)
    assert not archive.objects.requests


@pytest.mark.parametrize(("first", "following"), [(5, 5), (9, 3), (-1, 4), (0, MAX_OFFSET + 1)])
def test_impossible_offsets_are_refused(first: int, following: int) -> None:
    with pytest.raises(InvalidEventError, match="segment"):
        SegmentRolled(STREAM, Offset(first), Offset(following), 100, "bucket", "staging/x")


def test_a_full_disk_is_reported_and_nothing_is_lost(directory: Path, tmp_path: Path) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    uploader = replace(archive.uploader, spool_dir=tmp_path / "missing")
    with pytest.raises(UnavailableError, match="spool"):
        uploader.upload(event)
    assert archive.objects.info(event.staged_key) is not None


def test_a_bad_put_is_retried_and_is_not_taken_for_a_bad_segment(directory: Path) -> None:
    class LyingObjects(MemoryObjects):
        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32 ^ key.endswith(".fragment"), note=note)

    archive = MemoryArchive()
    archive.use(objects=LyingObjects())
    event = archive.stage(directory)[0]
    with pytest.raises(UnavailableError):
        archive.uploader.upload(event)
    assert archive.objects.info(event.staged_key) is not None
    assert archive.table.head(STREAM.incarnation) is None


def test_an_event_that_names_the_staged_copy_of_another_segment_touches_nothing(directory: Path) -> None:
    archive = MemoryArchive()
    one, other, *_ = archive.stage(directory)
    archive.uploader.upload(one)
    # All of it is archived, by what the event says; at that key is the only copy of what is not.
    with pytest.raises(InvalidEventError, match=r"staged\.key"):
        archive.uploader.upload(replace(one, staged_key=other.staged_key))
    stranger = replace(other.stream, incarnation=Incarnation("__orders_1763700000000000009"))
    with pytest.raises(InvalidEventError, match=r"staged\.key"):
        archive.uploader.upload(replace(other, stream=stranger))
    assert archive.objects.info(other.staged_key) is not None


@pytest.mark.parametrize("read", [1, 2], ids=["before its first read", "between two reads"])
def test_a_function_that_another_overtakes_finds_the_segment_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    monkeypatch.setattr("coldstream.archive.staged_segment.RANGE_BYTES", 50_000)
    write_stream(tmp_path)

    class Overtaken(MemoryObjects):
        reads = 0

        def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
            with lock:
                self.reads += 1
                if self.reads == read:
                    archive.uploader.upload(event)
            return super().get_range(key, byte_range, if_match=if_match)

    lock = threading.RLock()
    archive = MemoryArchive()
    event = archive.stage(tmp_path)[0]
    overtaken = Overtaken()
    overtaken.objects = archive.objects.objects
    done = replace(archive.uploader, objects=overtaken).upload(event)
    assert done.quarantined is None
    assert archive.objects.info(event.staged_key) is None


def test_a_disk_that_fills_up_is_reported_and_nothing_is_lost(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coldstream.archive.spool.tempfile.TemporaryFile",
        lambda buffering, **_: Path("/dev/full").open("w+b", buffering),  # noqa: SIM115  as TemporaryFile does
    )
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    for fragment_bytes in (20_000, 1_000_000):
        with pytest.raises(UnavailableError, match="spool"):
            replace(archive.uploader, fragment_bytes=fragment_bytes).upload(event)
    assert archive.objects.info(event.staged_key) is not None
