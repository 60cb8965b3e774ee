"""Writers that meet: agents at a staged key, uploaders at a segment, and one that goes on with another's upload."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zlib import crc32

import pytest

from coldstream.archive.upload import Uploader
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.ingest import multipart
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled, stage
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.table import DynamoTable
from coldstream.units import MIB, Offset
from tests.support.segments import STREAM, write_stream

WRITERS = 4
FRAGMENT_BYTES = 65_536
KEYS = Keys()


def log_of(table: DynamoTable | MemoryTable) -> list[tuple[int, int, str, int]]:
    page = table.log_from_offset(STREAM.incarnation, Offset(0), 100)
    return [(entry.first_offset, entry.next_offset, entry.key, entry.crc32) for entry in page.entries]


def test_uploaders_of_one_segment_leave_what_one_alone_does(dynamo_table, s3_objects, tmp_path):
    write_stream(tmp_path, chunks=250)
    rolled = find_rolled(tmp_path)
    alone = MemoryObjects(), MemoryTable()
    for slice_ in rolled:
        Uploader(alone[1], alone[0], KEYS, FRAGMENT_BYTES).upload(stage(slice_, STREAM, alone[0], KEYS))
    segments = [stage(slice_, STREAM, s3_objects, KEYS) for slice_ in rolled]
    uploader = Uploader(dynamo_table, s3_objects, KEYS, FRAGMENT_BYTES)
    with ThreadPoolExecutor(WRITERS) as pool:
        done = list(pool.map(uploader.upload, segments * WRITERS))
    assert log_of(dynamo_table) == log_of(alone[1])
    assert sum(each.fragments_committed for each in done) == len(log_of(dynamo_table)) > len(rolled)
    assert not any(each.quarantined for each in done)


def test_uploaders_that_cut_elsewhere_leave_every_offset_once(dynamo_table, s3_objects, tmp_path):
    write_stream(tmp_path, chunks=250)
    segments = [stage(slice_, STREAM, s3_objects, KEYS) for slice_ in find_rolled(tmp_path)]
    sizes = [FRAGMENT_BYTES, FRAGMENT_BYTES * 3 // 2, FRAGMENT_BYTES * 2]
    work = [(Uploader(dynamo_table, s3_objects, KEYS, size), segment) for segment in segments for size in sizes]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda each: each[0].upload(each[1]), work))
    borders = [(first, after) for first, after, *_ in log_of(dynamo_table)]
    assert [after for _, after in borders[:-1]] == [first for first, _ in borders[1:]]
    assert (borders[0][0], borders[-1][1]) == (segments[0].first_offset, segments[-1].next_offset)
    for _, _, key, checksum in log_of(dynamo_table):
        info = s3_objects.info(key)
        assert info is not None
        assert info.crc32 == checksum


def test_agents_that_stage_other_bytes_at_a_key_leave_those_of_one(s3_objects, tmp_path):
    slices = [slice_of(tmp_path / f"{number}", random.Random(number).randbytes(100_000)) for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        staged = list(pool.map(lambda each: stage(each, STREAM, s3_objects, KEYS), slices))
    assert len({segment.staged_key for segment in staged}) == 1
    info = s3_objects.info(staged[0].staged_key)
    assert info is not None
    assert info.crc32 in {crc32(each.path.read_bytes()) for each in slices}


def test_staging_that_was_cut_off_goes_on_with_the_parts_that_are_there(s3_objects, tmp_path):
    whole = slice_of(tmp_path / "segment", random.Random(1).randbytes(2 * multipart.PART_BYTES + MIB))
    sent: list[int] = []

    def break_off(size_bytes: int) -> None:
        if len(sent) == 2:
            raise KeyboardInterrupt
        sent.append(size_bytes)

    with pytest.raises(KeyboardInterrupt):
        stage(whole, STREAM, s3_objects, KEYS, on_bytes=break_off)
    key = KEYS.staged(STREAM.incarnation, whole.first_offset, whole.next_offset)
    assert s3_objects.info(key) is None
    (upload,) = s3_objects.uploads(key)
    there = sum(part.crc32 is not None for part in s3_objects.parts(key, upload))
    again: list[int] = []
    stage(whole, STREAM, s3_objects, KEYS, on_bytes=again.append)
    assert len(again) == 3 - there
    assert there > 0
    info = s3_objects.info(key)
    assert info is not None
    assert (info.size_bytes, info.crc32) == (whole.size_bytes, crc32(whole.path.read_bytes()))
    assert s3_objects.uploads(key) == ()


def slice_of(path: Path, data: bytes) -> SegmentSlice:
    path.write_bytes(SEGMENT_HEADER + data)
    return SegmentSlice(path, Offset(0), Offset(1000), SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + len(data))
