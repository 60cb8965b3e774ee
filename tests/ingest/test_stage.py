"""Rolled segments are found on disk, and staged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import pytest

from coldstream.errors import InvalidInputError, ObjectExistsError
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled, find_streams, stage
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import ByteRange, Offset
from tests.support.segments import STREAM, MemoryArchive, write_stream


def test_the_newest_segment_has_not_rolled(tmp_path: Path) -> None:
    write_stream(tmp_path)
    files = sorted(tmp_path.glob("*.segment"))
    assert [segment.path for segment in find_rolled(tmp_path)] == files[:-1]


def test_a_rolled_segment_ends_where_the_next_begins(tmp_path: Path) -> None:
    write_stream(tmp_path)
    names = [int(path.stem) for path in sorted(tmp_path.glob("*.segment"))]
    rolled = find_rolled(tmp_path)
    assert [(segment.first_offset, segment.next_offset) for segment in rolled] == list(pairwise(names))
    assert [segment.size_bytes for segment in rolled] == [segment.path.stat().st_size for segment in rolled]


def test_a_segment_without_a_chunk_is_left_out(tmp_path: Path) -> None:
    for name in (0, 10):
        (tmp_path / f"{name:020}.segment").write_bytes(SEGMENT_HEADER)
    assert find_rolled(tmp_path) == []


def test_a_segment_that_retention_deletes_while_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    write_stream(tmp_path)
    expected = find_rolled(tmp_path)[1:]
    first = expected[0].path.with_name(f"{0:020}.segment")
    first.unlink()
    first.symlink_to("gone")
    assert find_rolled(tmp_path) == expected


def test_files_of_other_names_are_left_out(tmp_path: Path) -> None:
    write_stream(tmp_path)
    expected = find_rolled(tmp_path)
    for name in ("notes.txt", "1.segment", f"{5:020}.segment.bak", f"{7:021}.segment"):
        (tmp_path / name).write_bytes(b"x" * 100)
    assert find_rolled(tmp_path) == expected


def test_streams_are_found_below_a_node_and_at_a_stream(tmp_path: Path) -> None:
    write_stream(tmp_path / "__b_1763700000000000000", chunks=20)
    write_stream(tmp_path / "__a_1763700000000000001", chunks=20)
    (tmp_path / "coordination").mkdir()
    (tmp_path / "notes.txt").touch()
    names = [path.name for path in find_streams(tmp_path)]
    assert names == ["__a_1763700000000000001", "__b_1763700000000000000"]
    assert find_streams(tmp_path / names[0]) == [tmp_path / names[0]]


def test_a_directory_without_streams_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="stream"):
        find_streams(tmp_path)
    with pytest.raises(InvalidInputError, match="not a directory"):
        find_streams(tmp_path / "missing")


def test_a_staged_copy_is_the_file_and_its_progress_is_told(tmp_path: Path) -> None:
    write_stream(tmp_path)
    archive = MemoryArchive()
    segment = find_rolled(tmp_path)[0]
    told: list[int] = []
    announced = stage(segment, STREAM, archive.objects, archive.keys, on_bytes=told.append)
    assert archive.objects.get_range(announced.staged_key, ByteRange(0, 1 << 32)).data == segment.path.read_bytes()
    assert (announced.first_offset, announced.next_offset) == (segment.first_offset, segment.next_offset)
    assert sum(told) == announced.size_bytes == segment.size_bytes


def test_staging_again_gives_the_same_announcement(tmp_path: Path) -> None:
    write_stream(tmp_path)
    archive = MemoryArchive()
    assert archive.stage(tmp_path) == archive.stage(tmp_path)


def test_a_segment_that_retention_deleted_is_said_to_be_gone(tmp_path: Path) -> None:
    archive = MemoryArchive()
    gone = SegmentSlice(tmp_path / "gone.segment", Offset(0), Offset(10), 8, 100)
    with pytest.raises(FileNotFoundError):
        stage(gone, STREAM, archive.objects, archive.keys)


def test_a_replica_whose_copy_is_damaged_announces_the_good_one_that_is_staged(tmp_path: Path) -> None:
    write_stream(tmp_path)
    archive = MemoryArchive()
    good = find_rolled(tmp_path)[0]
    first = stage(good, STREAM, archive.objects, archive.keys)
    good.path.write_bytes(good.path.read_bytes()[:-10])
    second = stage(find_rolled(tmp_path)[0], STREAM, archive.objects, archive.keys)
    assert archive.uploader.upload(second).quarantined is None
    assert second == first


class Archived(MemoryObjects):
    """Has an object at a key until it is looked for: it is archived meanwhile."""

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        raise ObjectExistsError(key)


def test_a_copy_that_was_archived_before_it_could_be_looked_at_is_announced_once_more(tmp_path: Path) -> None:
    write_stream(tmp_path)
    segment = find_rolled(tmp_path)[0]
    announced = stage(segment, STREAM, Archived(), Keys())
    assert (announced.next_offset, announced.size_bytes) == (segment.next_offset, segment.size_bytes)
