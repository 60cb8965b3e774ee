"""Copies of the same offsets from two histories: the first one archived stays, the other is quarantined."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import UploadResult
from coldstream.compact.options import CompactOptions
from coldstream.errors import CorruptionError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.change import EntryVersion, ReplaceEntry
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId, stream_from_directory
from coldstream.store.memory.table import MemoryTable
from tests.support.archive import NOW
from tests.support.changes import change_to
from tests.support.compacting import compact_stream
from tests.support.earlier_changes import without_later_fields
from tests.support.forked_streams import rebuild, write_history
from tests.support.golden import golden_logs
from tests.support.removing import head_of
from tests.support.segments import STREAM, MemoryArchive

INCARNATION = STREAM.incarnation
CRC_AT = 32
"""Where the CRC-32 of its data stands in a chunk's header."""

FORK = 20
"""In the middle of the first segment of 40,000 bytes, and of its second fragment."""


class EarlierRelease(MemoryTable):
    """Its entries have no CRC-32 of their chunks alone, and no first epoch."""

    def apply(self, change: Change) -> None:
        change = without_later_fields(change)
        super().apply(replace(change, head=replace(change.head, epoch=None)))


def compact(archive: MemoryArchive, encoding: Encoding) -> None:
    options = CompactOptions(older_than_ms=0, target_bytes=1 << 30, encoding=encoding, level=1)
    compact_stream(archive.table, archive.objects, archive.stream, options, keys=archive.keys, now=NOW)


BETWEEN: dict[str, Callable[[MemoryArchive], None]] = {
    "nothing": lambda _: None,
    "merged": lambda archive: compact(archive, Encoding.IDENTITY),
    "compressed": lambda archive: compact(archive, Encoding.ZSTD_SEEKABLE),
}


@pytest.fixture(params=[MemoryTable, EarlierRelease])
def archive(request: pytest.FixtureRequest) -> MemoryArchive:
    """An archive whose entries are of this release, or of an earlier one."""
    archive = MemoryArchive()
    archive.use(table=request.param())
    return archive


def chunks_of(archive: MemoryArchive) -> list[ChunkHeader]:
    found: list[ChunkHeader] = []
    for entry in archive.log():
        data = archive.body(entry.key)[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes]
        found += [chunk.header for chunk in iter_chunks(data, source=entry.key)]
    return found


def headers_of(directory: Path) -> list[ChunkHeader]:
    files = sorted(directory.glob("*.segment"))
    return [
        chunk.header
        for file in files
        if file.stat().st_size
        for chunk in iter_chunks(file.read_bytes()[SEGMENT_HEADER_BYTES:], source=file.name)
    ]


def is_put_aside(archive: MemoryArchive, event: SegmentRolled, bytes_of: Path, done: UploadResult) -> None:
    """Check that a segment that contradicts the archive was quarantined: nothing archived, nothing lost."""
    assert (done.fragments_committed, done.bytes_committed) == (0, 0)
    assert done.quarantined is not None
    assert done.reason is not None
    assert "contradicts what is archived" in done.reason
    assert archive.body(done.quarantined) == bytes_of.read_bytes()
    assert "contradicts what is archived" in json.loads(archive.body(f"{done.quarantined}.json"))["reason"]
    assert archive.objects.info(event.staged_key) is None
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    assert head.quarantined >= 1


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("sizes", [(40_000, 40_000), (40_000, 90_000), (90_000, 40_000)], ids=str)
@pytest.mark.parametrize(
    "other",
    [{}, {"epoch_behind": 2}, {"ms_behind": 1}],
    ids=["other messages of the same sizes", "another epoch", "another time"],
)
def test_a_second_history_is_quarantined_whole_whether_same_longer_or_shorter(
    tmp_path: Path, archive: MemoryArchive, between: str, sizes: tuple[int, int], other: dict[str, int]
) -> None:
    first = write_history(tmp_path / "first", max_segment_bytes=sizes[0])
    second = write_history(tmp_path / "second", max_segment_bytes=sizes[1], forks_at=FORK, **other)
    archive.uploader.upload(archive.stage(first)[0])
    BETWEEN[between](archive)
    before = archive.log()
    assert (len(before) == 1) == (between != "nothing")
    slice_ = find_rolled(second)[0]
    event = stage(slice_, archive.stream, archive.objects, archive.keys)
    done = archive.uploader.upload(event)
    is_put_aside(archive, event, slice_.path, done)
    assert archive.log() == before
    differing = next(
        one for one, two in zip(headers_of(first), headers_of(second), strict=False) if one != two and not one.type
    )
    assert done.reason is not None
    assert f"from offset {differing.chunk_id} on" in done.reason
    assert event.staged_key in done.reason
    assert before[-1].key.split("/data/")[0] in done.reason


@pytest.mark.parametrize("winner", [0, 1])
def test_the_history_that_is_archived_first_wins_and_repetition_changes_nothing(tmp_path: Path, winner: int) -> None:
    directories = [write_history(tmp_path / "a"), write_history(tmp_path / "b", forks_at=FORK)]
    archive = MemoryArchive()
    archive.announce(directories[winner])
    state = archive.log()
    for _ in range(2):
        for slice_ in find_rolled(directories[1 - winner]):
            event = stage(slice_, archive.stream, archive.objects, archive.keys)
            done = archive.uploader.upload(event)
            is_put_aside(archive, event, slice_.path, done)
            again = archive.uploader.upload(event)  # its event comes once more
            assert (again.quarantined, again.reason) == (done.quarantined, done.reason)
            assert (again.fragments_committed, again.fragments_present) == (0, 0)
            assert archive.log() == state
    archive.announce(directories[winner])
    assert archive.log() == state


def test_segments_of_two_histories_in_any_order_never_meet_within_one_segment(tmp_path: Path) -> None:
    ours = write_history(tmp_path / "ours")
    theirs = write_history(tmp_path / "theirs", forks_at=FORK, max_segment_bytes=60_000)
    sets = {name: {header.crc for header in headers_of(path)} for name, path in (("ours", ours), ("theirs", theirs))}
    for seed in range(12):
        rng = random.Random(seed)
        archive = MemoryArchive()
        slices = [(name, one) for name, path in (("ours", ours), ("theirs", theirs)) for one in find_rolled(path)] * 2
        rng.shuffle(slices)
        aside = []
        for name, slice_ in slices:
            event = stage(slice_, archive.stream, archive.objects, archive.keys)
            done = archive.uploader.upload(event)
            if done.quarantined is not None:
                is_put_aside(archive, event, slice_.path, done)
                aside.append(done)
            else:
                held = [h for h in chunks_of(archive) if slice_.first_offset <= h.chunk_id < slice_.next_offset]
                assert {header.crc for header in held} <= sets[name], seed
                assert held[0].chunk_id == slice_.first_offset
                assert held[-1].next_offset == slice_.next_offset
        assert aside


def test_a_copy_is_also_compared_with_what_is_committed_meanwhile(tmp_path: Path) -> None:
    ours, theirs = write_history(tmp_path / "ours"), write_history(tmp_path / "theirs", forks_at=FORK)

    class Overtaken(MemoryTable):
        """Another function commits the other history right before the first commit."""

        def apply(self, change: Change) -> None:
            if change.new_entry is not None and waiting:
                rival.upload(waiting.pop())
            super().apply(change)

    archive = MemoryArchive()
    archive.use(table=Overtaken())
    their_slice = find_rolled(theirs)[0]
    waiting = [stage(their_slice, archive.stream, archive.objects, replace(archive.keys, prefix="rival/"))]
    rival = replace(archive.uploader, keys=replace(archive.keys, prefix="rival/"))
    slice_ = find_rolled(ours)[0]
    event = stage(slice_, archive.stream, archive.objects, archive.keys)
    done = archive.uploader.upload(event)
    is_put_aside(archive, event, slice_.path, done)
    assert {entry.key.partition("/")[0] for entry in archive.log()} == {"rival"}


@pytest.mark.parametrize("copies", ["as they are", "of an earlier release"])
def test_epochs_fall_neither_after_a_gap_nor_before_one(tmp_path: Path, copies: str) -> None:
    late = write_history(tmp_path / "late", forks_at=0, epoch_behind=3)
    early = write_history(tmp_path / "early")
    number = len(find_rolled(late))
    assert number == len(find_rolled(early)) >= 3
    for archived, came in ((0, number - 1), (number - 1, 0)):
        archive = MemoryArchive()
        if copies == "of an earlier release":
            archive.use(table=EarlierRelease())
        one, other = (late, early) if archived < came else (early, late)
        archived_slice, slice_ = find_rolled(one)[archived], find_rolled(other)[came]
        archive.uploader.upload(stage(archived_slice, archive.stream, archive.objects, archive.keys))
        before = archive.log()
        event = stage(slice_, archive.stream, archive.objects, archive.keys)
        if copies == "of an earlier release" and archived < came:
            # Appended: only the head is read, and those of earlier releases do not say which epoch is at the tail.
            assert archive.uploader.upload(event).quarantined is None
            continue
        done = archive.uploader.upload(event)
        is_put_aside(archive, event, slice_.path, done)
        assert archive.log() == before
        assert done.reason is not None
        assert "epoch" in done.reason


def test_the_same_history_by_a_later_leader_goes_on_and_gaps_of_it_are_filled(tmp_path: Path) -> None:
    directory = write_history(tmp_path / "stream", forks_at=30, epoch_behind=2)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)):
        archive = MemoryArchive()
        events = archive.stage(directory)
        for number in order:
            assert archive.uploader.upload(events[number]).quarantined is None
        assert chunks_of(archive) == headers_of(directory)[: len(chunks_of(archive))]


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("first", ["the broker's", "rebuilt"])
def test_a_copy_rebuilt_from_deliveries_belongs_to_the_history_of_the_brokers_own(between: str, first: str) -> None:
    compared = 0
    for log in golden_logs():
        for path in log.segments[:-1]:
            whole = path.read_bytes()
            made = rebuild(whole)
            chunks = list(iter_chunks(whole[SEGMENT_HEADER_BYTES:], source=path.name))
            if chunks[-1].header.type:
                continue  # what ends in a tracking chunk waits for the next message, in another segment
            stream = StreamId(log.vhost, log.stream, Incarnation(log.incarnation))
            archive = MemoryArchive(stream=stream)
            copies = [whole, made] if first == "the broker's" else [made, whole]
            offsets = chunks[0].header.chunk_id, chunks[-1].header.next_offset
            staged = archive.keys.staged(stream.incarnation, *offsets)
            uploads = []
            for copy in copies:
                archive.objects.objects[staged] = copy
                event = SegmentRolled(stream, *offsets, len(copy), archive.objects.bucket, staged)
                uploads.append(archive.uploader.upload(event))
                if len(uploads) == 1 and len(archive.log()) > 1:
                    BETWEEN[between](archive)
            assert [done.quarantined for done in uploads] == [None, None]
            assert uploads[1].fragments_committed == 0
            compared += whole != made
    assert compared >= 3


def test_a_brokers_message_that_was_changed_with_its_crc_is_another_history() -> None:
    log = next(log for log in golden_logs() if log.stream == "plain")
    whole = log.segments[0].read_bytes()
    chunks = list(iter_chunks(whole[SEGMENT_HEADER_BYTES:], source="plain"))
    chunk = next(chunk for chunk in chunks[3:] if chunk.data[3] > 0)  # whose first message is not empty
    data = bytearray(chunk.data)
    data[4] ^= 1
    forged = chunk_with(chunk.header, bytes(data), whole, SEGMENT_HEADER_BYTES + chunk.position)
    assert len(forged) == len(whole)
    archive = MemoryArchive()
    offsets = [int(path.stem) for path in log.segments[:2]]
    key = archive.keys.staged(STREAM.incarnation, *offsets)  # type: ignore[arg-type]
    for copy, is_aside in ((whole, False), (forged, True), (whole, False)):
        archive.objects.objects[key] = copy
        event = SegmentRolled(STREAM, *offsets, len(copy), archive.objects.bucket, key)  # type: ignore[arg-type]
        done = archive.uploader.upload(event)
        assert (done.quarantined is not None) == is_aside
        if is_aside:
            assert f"from offset {chunk.header.chunk_id} on" in str(done.reason)


def chunk_with(header: ChunkHeader, data: bytes, segment: bytes, position: int) -> bytes:
    changed = replace(header, crc=crc32(data)).to_bytes()
    start = position + len(changed) + header.bloom_bytes
    return segment[:position] + changed + segment[position + len(changed) : start] + data + segment[start + len(data) :]


def test_the_quarantined_history_can_be_archived_under_a_name_of_its_own(tmp_path: Path) -> None:
    archive = MemoryArchive()
    archive.announce(write_history(tmp_path / "ours"))
    slice_ = find_rolled(write_history(tmp_path / "theirs", forks_at=FORK))[0]
    aside = archive.uploader.upload(stage(slice_, archive.stream, archive.objects, archive.keys)).quarantined
    assert aside is not None
    note = json.loads(archive.body(f"{aside}.json"))
    directory = tmp_path / "__orders-put-aside_1763700000000000000"
    directory.mkdir()
    (directory / f"{note['first_offset']:020}.segment").write_bytes(archive.body(aside))
    (directory / f"{note['next_offset']:020}.segment").touch()
    archive.stream = stream_from_directory(directory.name)
    archive.announce(directory)
    assert chunks_of(archive) == headers_of(directory)


def test_an_archived_fragment_that_is_damaged_is_not_taken_for_another_history(tmp_path: Path) -> None:
    archive = MemoryArchive()
    archive.use(table=EarlierRelease())
    slice_ = find_rolled(write_history(tmp_path / "stream"))[0]
    archive.uploader.upload(stage(slice_, archive.stream, archive.objects, archive.keys))
    key = archive.log()[0].key
    damaged = bytearray(archive.objects.objects[key])
    damaged[5000] ^= 1
    archive.objects.objects[key] = bytes(damaged)
    event = stage(slice_, archive.stream, archive.objects, archive.keys)
    with pytest.raises(CorruptionError, match=key):
        archive.uploader.upload(event)
    assert archive.objects.info(event.staged_key) is not None


@pytest.mark.parametrize("near", ["behind it", "at its end"])
def test_as_much_of_a_broken_copy_is_archived_whether_its_neighbours_come_before_or_after_it(
    tmp_path: Path, near: str
) -> None:
    broken, *others = find_rolled(write_history(tmp_path / "stream"))
    whole = broken.path.read_bytes()
    chunks = list(iter_chunks(whole[SEGMENT_HEADER_BYTES:], source="whole"))
    last = SEGMENT_HEADER_BYTES + chunks[-1].position
    if near == "at its end":
        # A slice of its last chunk, which is sound.
        other = replace(broken, first_offset=chunks[-1].header.chunk_id, position=last)
        damaged_at = SEGMENT_HEADER_BYTES + chunks[-2].position + 60
    else:
        other = others[0]
        damaged_at = last + 60
    states = []
    for order in ((0, 1), (1, 0)):
        archive = MemoryArchive()
        events = [stage(one, archive.stream, archive.objects, archive.keys) for one in (broken, other)]
        damaged = bytearray(whole)
        damaged[damaged_at] ^= 1
        archive.objects.objects[events[0].staged_key] = bytes(damaged)
        events[0] = replace(events[0], etag=None)
        done = [archive.uploader.upload(events[number]) for number in order]
        assert [one.quarantined is not None for one in done] == [number == 0 for number in order]
        states.append(archive.state())
    assert states[0] == states[1]
    assert len(states[0][0]) >= 2  # type: ignore[arg-type]


def _without_messages(data: bytes) -> bytes:
    erased, at = bytearray(data), 0
    while at < len(data):
        if data[at] & 0x80:
            at += 11 + int.from_bytes(data[at + 7 : at + 11], "big")
        else:
            size = int.from_bytes(data[at : at + 4], "big")
            erased[at + 4 : at + 4 + size] = bytes(size)
            at += 4 + size
    return bytes(erased)


def erase(archive: MemoryArchive, number: int) -> FragmentEntry:
    """Erase the messages of a fragment that are in no sub-batch: their bytes become zeros."""
    entry = archive.log()[number]
    body = bytearray(archive.body(entry.key))
    position = SEGMENT_HEADER_BYTES
    for chunk in iter_chunks(bytes(body[position : position + entry.data_bytes]), source=entry.key):
        header = chunk.header
        if header.type is ChunkType.USER:
            data_at = position + CHUNK_HEADER_BYTES + header.bloom_bytes
            data = _without_messages(bytes(body[data_at : data_at + header.data_bytes]))
            body[data_at : data_at + header.data_bytes] = data
            body[position + CRC_AT : position + CRC_AT + 4] = crc32(data).to_bytes(4, "big")
        position += header.total_bytes
    data = bytes(body[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes])
    key = archive.keys.fragment(INCARNATION, entry.first_offset, entry.generation + 1)
    archive.objects.put(key, bytes(body))
    erased = replace(
        entry, key=key, generation=entry.generation + 1, crc32=crc32(body), data_crc32=crc32(data), erased=True
    )
    head = head_of(archive.table, INCARNATION)
    change = change_to(replace(head, revision=head.revision + 1), [ReplaceEntry(EntryVersion.of(entry), erased)])
    archive.table.apply(change)
    return erased


@pytest.mark.parametrize("between", BETWEEN)
def test_a_copy_of_what_was_erased_is_of_the_same_history_and_brings_nothing_back(
    directory: Path, between: str
) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    for number in (0, 2):
        erase(archive, number)
    BETWEEN[between](archive)
    before = archive.log()
    assert any(entry.erased for entry in before)
    for event in archive.stage(directory):
        done = archive.uploader.upload(event)
        assert (done.quarantined, done.fragments_committed) == (None, 0)
        assert archive.objects.info(event.staged_key) is None
    assert archive.log() == before


def test_a_second_history_is_quarantined_though_what_it_contradicts_was_erased(tmp_path: Path) -> None:
    first = write_history(tmp_path / "first", max_segment_bytes=40_000)
    second = write_history(tmp_path / "second", max_segment_bytes=40_000, forks_at=FORK, ms_behind=1)
    archive = MemoryArchive(stream=STREAM)
    archive.uploader.upload(archive.stage(first)[0])
    for number in range(len(archive.log())):
        erase(archive, number)
    slice_ = find_rolled(second)[0]
    event = stage(slice_, archive.stream, archive.objects, archive.keys)
    is_put_aside(archive, event, slice_.path, archive.uploader.upload(event))
