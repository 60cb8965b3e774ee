"""What the upload makes of rolled segments, whatever happens on the way."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import pytest

from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.upload import Upload
from coldstream.errors import (
    InvalidEventError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.format.chunk import iter_chunks
from coldstream.format.fragment import FragmentTrailer, iter_fragment_index
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import FragmentEntry, JournalKind
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory import MemoryObjects, MemoryTable
from coldstream.store.ports import RangeRead
from coldstream.units import MAX_OFFSET, ByteRange, Offset
from tests.support.segments import STREAM, MemoryArchive, write_stream


def log(archive: MemoryArchive) -> tuple[FragmentEntry, ...]:
    return archive.table.log_from_offset(STREAM.incarnation, Offset(0), 10_000).entries


def body(archive: MemoryArchive, key: str) -> bytes:
    return archive.objects.get_range(key, ByteRange(0, 1 << 32)).data


def state(archive: MemoryArchive) -> tuple[object, ...]:
    """Return what must not depend on how the archive came about: log, gaps, totals, and the objects."""
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    totals = (head.first_offset, head.next_offset, head.fragments, head.records, head.data_bytes, head.gaps)
    entries = log(archive)
    return entries, archive.table.gaps(STREAM.incarnation, 1000), totals, {e.key: body(archive, e.key) for e in entries}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_stream(tmp_path / "stream")
    return tmp_path / "stream"


@pytest.fixture
def expected(directory: Path) -> tuple[object, ...]:
    archive = MemoryArchive()
    archive.announce(directory)
    return state(archive)


def test_the_fragments_hold_the_segments_chunks_byte_for_byte(directory: Path) -> None:
    archive = MemoryArchive()
    segments = archive.announce(directory)
    entries = log(archive)
    assert len(segments) >= 3
    assert len(entries) >= 2 * len(segments)
    archived = b"".join(body(archive, entry.key)[8 : 8 + entry.data_bytes] for entry in entries)
    files = sorted(directory.glob("*.segment"))[:-1]
    assert archived == b"".join(file.read_bytes()[SEGMENT_HEADER_BYTES:] for file in files)
    assert all(one.next_offset == other.first_offset for one, other in pairwise(entries))


def test_an_entry_describes_its_object(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    for entry in log(archive):
        data = body(archive, entry.key)
        trailer = FragmentTrailer.from_bytes(data, source=entry.key, object_bytes=len(data))
        chunks = list(iter_chunks(data[8 : 8 + entry.data_bytes], source=entry.key, position=8))
        index = list(
            iter_fragment_index(data[trailer.index_range.start : trailer.index_range.end], trailer, source="f")
        )
        assert [(c.header.chunk_id, c.header.timestamp, c.position) for c in chunks] == [
            (record.chunk_id, record.timestamp, record.position) for record in index
        ]
        assert (trailer.first_offset, trailer.next_offset) == (entry.first_offset, entry.next_offset)
        assert (len(data), crc32(data)) == (entry.object_bytes, entry.crc32)
        assert entry.chunks == len(chunks)
        assert entry.records == sum(chunk.header.records for chunk in chunks)
        users = [chunk for chunk in chunks if chunk.header.type == 0]
        assert entry.messages == sum(chunk.header.records for chunk in users)
        timestamps = [chunk.header.timestamp for chunk in chunks]
        assert (entry.first_timestamp, entry.last_timestamp) == (timestamps[0], timestamps[-1])
        assert entry.greatest_timestamp == max(timestamps)
        assert entry.last_user_chunk is not None
        assert (entry.last_user_chunk.chunk_id, entry.last_user_chunk.position) == (
            users[-1].header.chunk_id,
            users[-1].position,
        )
        for point in entry.sparse.points:
            assert index[point.ordinal].position == point.position
            assert index[point.ordinal].chunk_id == point.chunk_id


def test_a_cut_falls_after_the_chunk_that_takes_the_data_past_the_target(directory: Path) -> None:
    archive = MemoryArchive(fragment_bytes=20_000)
    archive.announce(directory)
    last_of_segment = {first.segment_offset: first for first in log(archive)}
    for entry in log(archive):
        data = body(archive, entry.key)
        chunks = list(iter_chunks(data[8 : 8 + entry.data_bytes], source=entry.key))
        assert entry.data_bytes - chunks[-1].header.total_bytes <= 20_000
        if entry != last_of_segment[entry.segment_offset]:
            assert entry.data_bytes > 20_000


def test_a_trailer_says_where_in_the_segment_its_fragment_was(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    by_segment: dict[int, list[FragmentEntry]] = {}
    for entry in log(archive):
        by_segment.setdefault(entry.segment_offset, []).append(entry)
    for entries in by_segment.values():
        chunks, position = 0, SEGMENT_HEADER_BYTES
        for number, entry in enumerate(entries):
            data = body(archive, entry.key)
            trailer = FragmentTrailer.from_bytes(data, source=entry.key, object_bytes=len(data))
            found = (trailer.sequence_number, trailer.chunks_before, trailer.data_position)
            assert found == (number, chunks, position)
            chunks += entry.chunks
            position += entry.data_bytes


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
        assert state(archive) == expected


def test_concurrent_events_end_in_the_same_archive(directory: Path, expected: tuple[object, ...]) -> None:
    archive = MemoryArchive()
    events = archive.stage(directory) * 2
    random.Random(3).shuffle(events)
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(persist, archive, event) for event in events]:
            future.result()
    assert state(archive) == expected
    fragments = [key for key in archive.objects.objects if key.endswith(".fragment")]
    assert sorted(fragments) == sorted(entry.key for entry in log(archive))


def persist(archive: MemoryArchive, event: SegmentRolled) -> Upload:
    """Do what a queue does: give a retryable failure another try."""
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

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
        if key.endswith(".fragment"):
            self.countdown -= 1
            if self.countdown == 0 and not self.after:
                raise Killed
        super().put_new(key, body, size_bytes=size_bytes, crc32=crc32)
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
        assert state(archive) == expected


class FlakyTable(MemoryTable):
    """Loses answers: the write happened, and nobody was told."""

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
    assert state(archive) == expected


def test_a_duplicate_of_an_archived_segment_is_not_read_again(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    again = archive.stage(directory)
    archive.objects.requests.clear()
    done = archive.uploader.upload(again[0])
    assert done.fragments_committed == 0
    assert done.fragments_present > 0
    assert archive.objects.requests == {"DeleteObject": 1}


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
    entries = log(archive)
    assert all(one.next_offset == other.first_offset for one, other in pairwise(entries))
    archived = b"".join(body(archive, entry.key)[8 : 8 + entry.data_bytes] for entry in entries)
    files = sorted(directory.glob("*.segment"))[:-1]
    assert archived == b"".join(file.read_bytes()[SEGMENT_HEADER_BYTES:] for file in files)


def test_a_key_taken_by_other_bytes_is_left_alone(directory: Path, tmp_path: Path) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    taken = archive.keys.fragment(STREAM.incarnation, event.first_offset)
    with (tmp_path / "other").open("w+b") as other:
        other.write(b"other bytes")
        other.seek(0)
        archive.objects.put_new(taken, other, size_bytes=11, crc32=crc32(b"other bytes"))
    archive.uploader.upload(event)
    assert body(archive, taken) == b"other bytes"
    assert log(archive)[0].key == archive.keys.fragment(STREAM.incarnation, event.first_offset, 1)
    assert log(archive)[0].generation == 1


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
    assert body(archive, key) == damaged
    note = json.loads(body(archive, f"{key}.json"))
    assert (note["first_offset"], note["next_offset"]) == (events[1].first_offset, events[1].next_offset)
    assert "CRC" in note["reason"]
    assert archive.objects.info(events[1].staged_key) is None
    journal = [e for e in archive.table.journal(STREAM.incarnation) if e.kind is JournalKind.SEGMENT_QUARANTINED]
    assert [(e.first_offset, e.key, e.detail) for e in journal] == [(events[1].first_offset, key, uploads[1].reason)]
    assert [upload.quarantined for upload in uploads].count(None) == len(events) - 1
    gaps = archive.table.gaps(STREAM.incarnation, 10)
    assert len(gaps) == 1
    assert events[1].first_offset <= gaps[0].first_offset < gaps[0].next_offset == events[1].next_offset


def test_a_repeated_event_of_a_quarantined_segment_is_no_failure(directory: Path) -> None:
    corrupt(min(directory.glob("*.segment")), 5000)
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    key = archive.uploader.upload(event).quarantined
    assert archive.uploader.upload(event).quarantined == key
    head = archive.table.head(STREAM.incarnation)
    assert head is not None
    assert head.quarantined == 1


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
    assert state(archive) == expected


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


def test_a_staged_object_of_another_size_than_announced_goes_to_quarantine(directory: Path) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    lying = SegmentRolled(
        event.stream, event.first_offset, event.next_offset, event.size_bytes + 5, event.bucket, event.staged_key
    )
    done = archive.uploader.upload(lying)
    assert done.quarantined is not None
    assert log(archive) == ()


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
def test_offsets_that_cannot_be_are_refused(first: int, following: int) -> None:
    with pytest.raises(InvalidEventError, match="segment"):
        SegmentRolled(STREAM, Offset(first), Offset(following), 100, "bucket", "staging/x")


def test_a_full_disk_is_said_and_nothing_is_lost(directory: Path, tmp_path: Path) -> None:
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    uploader = replace(archive.uploader, spool_dir=tmp_path / "missing")
    with pytest.raises(UnavailableError, match="spool"):
        uploader.upload(event)
    assert archive.objects.info(event.staged_key) is not None


def test_a_bad_put_is_retried_and_is_not_taken_for_a_bad_segment(directory: Path) -> None:
    class LyingObjects(MemoryObjects):
        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32 ^ key.endswith(".fragment"))

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
        """While this function quarantines, another does, too, and the segment is announced again."""

        def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
            super().copy(source_key, target_key, if_match=if_match)
            self.objects[source_key] = good

    archive = MemoryArchive()
    archive.use(objects=Overtaken())
    for event in archive.stage(directory):
        archive.uploader.upload(event)
        archive.uploader.upload(event)
    assert state(archive) == expected


@pytest.mark.parametrize("read", [1, 2], ids=["before its first read", "between two reads"])
def test_a_function_that_another_overtakes_finds_the_segment_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    monkeypatch.setattr("coldstream.archive.staged.BLOCK_BYTES", 50_000)
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


def test_a_disk_that_fills_up_is_said_and_nothing_is_lost(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coldstream.archive.draft.tempfile.TemporaryFile",
        lambda buffering, **_: Path("/dev/full").open("w+b", buffering),  # noqa: SIM115  as TemporaryFile does
    )
    archive = MemoryArchive()
    event = archive.stage(directory)[0]
    for fragment_bytes in (20_000, 1_000_000):
        with pytest.raises(UnavailableError, match="spool"):
            replace(archive.uploader, fragment_bytes=fragment_bytes).upload(event)
    assert archive.objects.info(event.staged_key) is not None
