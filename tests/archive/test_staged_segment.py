"""The blocks of a staged copy, its ranges, and the requests and the disk that they take."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from coldstream.archive import staged_segment
from coldstream.archive.spool_files import SpoolFiles
from coldstream.archive.staged_segment import StagedSegment
from coldstream.errors import ReplacedError, UnavailableError
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import RangeRead, RangeStream
from coldstream.units import MIB, ByteRange

COPY = bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection is too slow, unless a test says otherwise."""
    monkeypatch.setattr(staged_segment, "RANGE_BYTES", 100)
    monkeypatch.setattr(staged_segment, "BLOCK_BYTES", 30)
    monkeypatch.setattr(staged_segment, "JUDGED_BLOCKS", 2)
    monkeypatch.setattr(staged_segment, "MOST_WAITING", -1.0)


@pytest.fixture
def objects() -> MemoryObjects:
    objects = MemoryObjects()
    objects.put("copy", COPY)
    return objects


def test_the_blocks_are_the_copy_as_often_as_they_are_asked_for(objects: MemoryObjects) -> None:
    with StagedSegment(objects, "copy", None) as staged:
        for _ in range(2):
            blocks = list(staged.blocks())
            assert b"".join(blocks) == COPY
            assert max(map(len, blocks)) == 30


def test_a_range_is_one_get_however_many_blocks_it_has(objects: MemoryObjects) -> None:
    with StagedSegment(objects, "copy", None) as staged:
        list(staged.blocks())
    assert objects.requests["GetObject"] == 11  # 1,024 bytes, 100 a range


def test_a_segment_of_500_mb_costs_eight_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[ByteRange] = []

    class Stream:
        etag, object_bytes = "etag", 500_000_000

        def read(self, _: int) -> bytes:
            return b""

        def close(self) -> None:
            pass

    class Streaming(MemoryObjects):
        def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
            asked.append(byte_range)
            return Stream()

    with StagedSegment(Streaming(), "copy", None) as staged:
        assert not list(staged.blocks())
    assert len(asked) == 8
    assert {len(one) for one in asked} == {64 * MIB, 500_000_000 - 7 * 64 * MIB}


def test_ranges_that_arrive_as_fast_as_they_are_used_are_not_written_to_the_disk(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_segment, "MOST_WAITING", 2.0)
    monkeypatch.delattr(SpoolFiles, "lend")
    with StagedSegment(objects, "copy", None) as staged:
        assert b"".join(staged.blocks()) == COPY
    assert objects.requests["GetObject"] == 11


def test_a_connection_turns_out_to_be_slow_after_some_blocks(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(10_000))  # as if all time went by in waiting: who uses a block asks no clock
    monkeypatch.setattr(staged_segment, "MOST_WAITING", 0.3)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    lent: list[int] = []
    lend = SpoolFiles.lend
    monkeypatch.setattr(SpoolFiles, "lend", lambda files: lent.append(1) or lend(files))
    with StagedSegment(objects, "copy", None) as staged:
        assert b"".join(staged.blocks()) == COPY
    assert len(lent) == 8  # of eleven ranges, the first one of each group of four is not on disk


def test_a_copy_of_one_range_is_not_written_to_the_disk(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_segment, "RANGE_BYTES", len(COPY))
    monkeypatch.delattr(SpoolFiles, "lend")
    with StagedSegment(objects, "copy", None) as staged:
        assert b"".join(staged.blocks()) == COPY


def test_no_more_ranges_are_asked_for_than_the_disk_has_room_for(objects: MemoryObjects) -> None:
    asked = threading.Semaphore(0)

    class Asked(MemoryObjects):
        def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
            asked.release()
            return super().open_range(key, byte_range, if_match=if_match)

    counted = Asked()
    counted.put("copy", COPY)
    with StagedSegment(counted, "copy", None) as staged, closing(staged.blocks()) as blocks:
        next(blocks)
        next(blocks)  # of the same range
        assert all(asked.acquire(timeout=60) for _ in range(4))
        next(blocks)
        assert not asked.acquire(blocking=False)
        for _ in range(3):  # the last one of the first range, and two of the second
            next(blocks)
        assert all(asked.acquire(timeout=60) for _ in range(4))
        for _ in range(3 * 4 - 2):  # the rest of this group, of which each range has four
            next(blocks)
        assert not asked.acquire(blocking=False)


def test_a_copy_that_is_replaced_between_two_ranges_is_refused(objects: MemoryObjects) -> None:
    with StagedSegment(objects, "copy", None) as staged:
        objects.put("copy", COPY[::-1])
        with pytest.raises(ReplacedError):
            list(staged.blocks())


def test_the_first_range_is_closed_though_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Stream:
        etag, object_bytes = "etag", 5

        def read(self, size_bytes: int) -> bytes:
            raise AssertionError(size_bytes)

        def close(self) -> None:
            closed.append(True)

    class Streaming(MemoryObjects):
        def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
            return Stream()

    with StagedSegment(Streaming(), "copy", None):
        pass
    assert closed == [True]


def test_a_reader_that_stops_waits_for_no_range_to_its_end(objects: MemoryObjects) -> None:
    is_stopped = threading.Event()
    taken = []

    class Endless:
        etag, object_bytes = "etag", 1000

        def read(self, size_bytes: int) -> bytes:
            assert is_stopped.wait(60)
            taken.append(size_bytes)
            return bytes(size_bytes)

        def close(self) -> None:
            pass

    class Slow(MemoryObjects):
        def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
            return super().open_range(key, byte_range, if_match=if_match) if byte_range.start == 0 else Endless()

    slow = Slow()
    slow.put("copy", COPY)
    with StagedSegment(slow, "copy", None) as staged:
        blocks = staged.blocks()
        next(blocks)
        next(blocks)
        threading.Timer(0.05, is_stopped.set).start()
        blocks.close()
    assert len(taken) <= 3  # a block of each, and never a second
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("staged")]


def test_a_full_disk_is_an_error_to_try_again_after(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tempfile.TemporaryFile",
        lambda buffering, **_: Path("/dev/full").open("w+b", buffering),  # noqa: SIM115  as TemporaryFile does
    )
    with StagedSegment(objects, "copy", None) as staged, pytest.raises(UnavailableError, match="cannot spool"):
        list(staged.blocks())


def test_a_disk_that_takes_a_part_of_a_block_is_full(objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    lend = SpoolFiles.lend

    def almost_full(self: SpoolFiles) -> BinaryIO:
        file = lend(self)
        monkeypatch.setattr(file, "write", lambda block: len(block) - 1)
        return file

    monkeypatch.setattr(SpoolFiles, "lend", almost_full)
    with StagedSegment(objects, "copy", None) as staged, pytest.raises(UnavailableError, match="No space left"):
        list(staged.blocks())


def test_what_fails_in_a_later_range_comes_out_in_its_turn() -> None:
    class Broken(MemoryObjects):
        def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
            if byte_range.start == 100:
                raise UnavailableError("broken")
            return super().get_range(key, byte_range, if_match=if_match)

    broken = Broken()
    broken.put("copy", COPY)
    found: list[bytes] = []
    with StagedSegment(broken, "copy", None) as staged, pytest.raises(UnavailableError, match="broken"):
        found.extend(staged.blocks())
    assert b"".join(found) == COPY[:100]
