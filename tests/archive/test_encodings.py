"""Fragments that the upload compresses at once, and archives in which the setting was changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import pytest

from coldstream.archive.spool import FrameSpool
from coldstream.compact.options import CompactOptions
from coldstream.errors import UnavailableError
from coldstream.format.chunk import iter_chunks
from coldstream.format.seekable import decompress_frames
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.rebuild.run import Rebuilder
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MAX_TIMESTAMP_MS, Offset
from tests.support.archive import NOW
from tests.support.compacting import Inline, compact_stream
from tests.support.compaction import identity_of
from tests.support.segments import START, STREAM, MemoryArchive

LEVEL = 1


@pytest.fixture(autouse=True)
def _several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.archive.draft.STEP_BYTES", 3_000)
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 3_000)


@pytest.fixture
def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fragment is committed before the next is written."""
    monkeypatch.setattr("coldstream.archive.upload.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("coldstream.archive.upload.PUTS_AT_ONCE", 0)


@pytest.fixture
def plain(directory: Path) -> MemoryArchive:
    archive = MemoryArchive()
    archive.announce(directory)
    return archive


@pytest.fixture
def compressed(directory: Path) -> MemoryArchive:
    archive = MemoryArchive(zstd_level=LEVEL)
    archive.announce(directory)
    return archive


def without_object(entry: FragmentEntry) -> FragmentEntry:
    """An entry without what describes its object."""
    return replace(entry, encoding=Encoding.IDENTITY, object_bytes=0, crc32=0, frames=None, key="", generation=0)


def without_links(entry: FragmentEntry) -> FragmentEntry:
    return replace(entry, prior_offset=None, prior_timestamp=None)


def content(archive: MemoryArchive) -> list[bytes]:
    return [identity_of(archive.objects, entry) for entry in archive.log()]


def read_back(archive: MemoryArchive, start: int = 0) -> list[bytes]:
    """What a scan gives, by the ranges that a reader would be given."""
    steps = plan_scan(archive.table, STREAM, Offset(start), None)
    return [
        bytes(chunk.data)
        for step in steps
        if isinstance(step, ScanSlice)
        for chunk in read_slice(archive.objects, step)
    ]


def test_the_fragments_are_the_same_ones_compressed(plain: MemoryArchive, compressed: MemoryArchive) -> None:
    assert [without_object(entry) for entry in compressed.log()] == [without_object(entry) for entry in plain.log()]
    assert {entry.encoding for entry in compressed.log()} == {Encoding.ZSTD_SEEKABLE}
    assert content(compressed) == [plain.body(entry.key) for entry in plain.log()]
    assert max(len(entry.sparse.points) for entry in compressed.log()) > 3


def test_a_frame_begins_at_each_point_of_the_sparse_index(compressed: MemoryArchive) -> None:
    for entry in compressed.log():
        assert entry.frames is not None
        for number, point in enumerate(entry.sparse.points):
            frame = entry.frames.byte_range(number, number + 1)
            ends = [*(one.position for one in entry.sparse.points), 8 + entry.data_bytes]
            data = compressed.body(entry.key)[frame.start : frame.end]
            decompressed = decompress_frames(data, ends[number + 1] - point.position, source="", position=0)
            first = next(iter(iter_chunks(decompressed, source="")))
            assert first.header.chunk_id == point.chunk_id


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_readers_are_given_the_same_chunks(plain: MemoryArchive, compressed: MemoryArchive, share: float) -> None:
    start = int(plain.log()[-1].next_offset * share)
    assert read_back(compressed, start) == read_back(plain, start) != []


class Interrupted(MemoryObjects):
    """Objects at which a function dies when its `puts_left` fragments are written."""

    puts_left = -1

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
        if key.endswith(".fragment"):
            self.puts_left -= 1
            if self.puts_left == 0:
                raise Killed


class Killed(BaseException):
    """The function died."""


@pytest.mark.usefixtures("_one_at_a_time")
@pytest.mark.parametrize(("first", "second"), [(None, LEVEL), (LEVEL, None), (1, 9)])
@pytest.mark.parametrize("puts", [1, 3])
def test_an_event_that_comes_again_after_the_setting_was_changed_is_finished_by_the_new_one(
    plain: MemoryArchive, directory: Path, first: int | None, second: int | None, puts: int
) -> None:
    archive = MemoryArchive(zstd_level=first)
    objects = Interrupted()
    archive.use(objects=objects)
    segments = archive.stage(directory)
    objects.puts_left = puts
    with pytest.raises(Killed):
        archive.uploader.upload(segments[0])
    committed, written = archive.log(), {key: objects.objects[key] for key in objects.objects if "/data/" in key}
    assert (len(committed), len(written)) == (puts - 1, puts)
    archive.uploader = replace(archive.uploader, zstd_level=second)
    for segment in segments:
        archive.uploader.upload(segment)
        archive.uploader.upload(segment)  # and once more, now for nothing
    log = archive.log()
    assert [without_links(entry) for entry in log[: len(committed)]] == [without_links(entry) for entry in committed]
    wanted = Encoding.IDENTITY if second is None else Encoding.ZSTD_SEEKABLE
    assert {entry.encoding for entry in log[len(committed) :]} == {wanted}
    assert [without_object(entry) for entry in log] == [without_object(entry) for entry in plain.log()]
    assert content(archive) == content(plain)
    # What was written and not committed keeps its bytes, at a key that no entry names: garbage, and found as such.
    assert {key: objects.objects[key] for key in written} == written
    unnamed = written.keys() - {entry.key for entry in log}
    assert len(unnamed) == 1
    assert not [key for key in objects.objects if "/staging/" in key or "/quarantine/" in key]


@pytest.mark.usefixtures("_one_at_a_time")
@pytest.mark.parametrize(("one", "other"), [(None, LEVEL), (LEVEL, None)])
def test_of_two_functions_of_different_settings_the_first_one_counts_and_the_other_ones_objects_get_tombstones(
    plain: MemoryArchive, directory: Path, one: int | None, other: int | None
) -> None:
    archive = MemoryArchive(zstd_level=one)

    class Overtaken(MemoryObjects):
        overtake: Callable[[], object] | None = None

        def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
            if key.endswith(".fragment") and (overtake := self.overtake) is not None:
                self.overtake = None
                overtake()

    objects = Overtaken()
    archive.use(objects=objects)
    segments = archive.stage(directory)
    faster = replace(archive.uploader, zstd_level=other)
    objects.overtake = lambda: faster.upload(segments[0])
    for segment in segments:
        archive.uploader.upload(segment)
    assert [without_object(entry) for entry in archive.log()] == [without_object(entry) for entry in plain.log()]
    assert content(archive) == content(plain)
    buried = {tombstone.key for tombstone in archive.table.tombstones(STREAM.incarnation, MAX_TIMESTAMP_MS, 1000)}
    named = {entry.key for entry in archive.log()}
    assert buried
    assert not buried & named
    assert {key for key in objects.objects if "/data/" in key} == buried | named


@pytest.mark.parametrize("target", list(Encoding))
def test_compaction_takes_fragments_of_both_settings(plain: MemoryArchive, directory: Path, target: Encoding) -> None:
    archive = MemoryArchive()
    for number, segment in enumerate(archive.stage(directory)):
        replace(archive.uploader, zstd_level=LEVEL if number % 2 else None).upload(segment)
    before = read_back(archive)
    compact_stream(
        archive.table, archive.objects, STREAM, CompactOptions(0, 1 << 30, target, LEVEL), keys=archive.keys, now=NOW
    )
    assert read_back(archive) == before == read_back(plain)
    encodings = {entry.encoding for entry in archive.log()}
    assert encodings == ({Encoding.ZSTD_SEEKABLE} if target is Encoding.ZSTD_SEEKABLE else set(Encoding))


def test_the_manifest_is_rebuilt_from_what_the_upload_compressed(compressed: MemoryArchive) -> None:
    rebuilt = MemoryTable()
    rebuilder = Rebuilder(rebuilt, compressed.objects, compressed.keys, lambda: START, 1000)
    assert all(report.is_done for report in rebuilder.streams(iter([STREAM.incarnation]), at_once=1))
    entries = rebuilt.log_from_offset(STREAM.incarnation, Offset(0), 10_000).entries
    assert entries == compressed.log()


def test_a_copy_is_held_against_what_was_compressed(compressed: MemoryArchive, directory: Path) -> None:
    before = compressed.state()
    for segment in compressed.stage(directory):
        done = compressed.uploader.upload(segment)
        assert (done.fragments_committed, done.quarantined) == (0, None)
    assert compressed.state() == before


def test_frames_that_do_not_decompress_to_what_was_written_are_given_up(tmp_path: Path) -> None:
    spool = FrameSpool(tmp_path, LEVEL)
    spool.write(b"header")
    spool.cut()
    spool.write(b"chunks")
    with pytest.raises(UnavailableError, match="given up"):
        spool.finish(b"footer", 18, crc32(b"headerchunksfootex"), points=1)
    spool.discard()


def test_an_upload_that_dies_leaves_no_thread_that_compresses(directory: Path) -> None:
    archive = MemoryArchive(zstd_level=LEVEL)
    objects = Interrupted()
    archive.use(objects=objects)
    segment = archive.stage(directory)[0]
    objects.puts_left = 1
    with pytest.raises(Killed) as killed:
        archive.uploader.upload(segment)
    assert killed.tb is not None  # it still holds the generators, so it is not the collector that ended them
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("compress")]
