"""Parts of a write-ahead log's objects: alone for one stream, by whole objects for many."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.errors import ObjectNotFoundError, UnavailableError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.shared_reads import SharedReads
from coldstream.units import ByteRange

PLACE = WalPlace(WalKind.MEMORY, "writer", 1)
OBJECT_BYTES = 1000
LARGEST_BYTES = 10_000


class _RecordingStore(MemoryWalStore):
    """Remembers what was read of which object; `before_read` may fail, or wait."""

    def __init__(self, objects: int) -> None:
        super().__init__()
        for sequence in range(objects):
            self.create(PLACE, sequence, bytes(sequence + at & 0xFF for at in range(OBJECT_BYTES)))
        self.parts: list[tuple[int, ByteRange | None]] = []
        self.before_read: Callable[[], None] = lambda: None

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
        self.parts.append((sequence, byte_range))
        self.before_read()
        return super().read(place, sequence, byte_range)


def _expected(sequence: int, part: ByteRange) -> bytes:
    return bytes(sequence + at & 0xFF for at in range(part.start, min(part.end, OBJECT_BYTES)))


def _reads(store: MemoryWalStore, *, held_bytes: int = 10 * OBJECT_BYTES) -> SharedReads:
    return SharedReads(store, held_bytes=held_bytes, largest_bytes=LARGEST_BYTES)


def test_the_first_part_of_an_object_is_read_alone() -> None:
    store = _RecordingStore(1)
    assert _reads(store).read(PLACE, 0, ByteRange(10, 20)) == _expected(0, ByteRange(10, 20))
    assert store.parts == [(0, ByteRange(10, 20))]


def test_the_second_part_reads_the_whole_object_and_further_ones_cost_nothing() -> None:
    store = _RecordingStore(1)
    reads = _reads(store)
    for start in range(0, OBJECT_BYTES, 100):
        part = ByteRange(start, start + 100)
        assert reads.read(PLACE, 0, part) == _expected(0, part)
    assert store.parts == [(0, ByteRange(0, 100)), (0, ByteRange(0, LARGEST_BYTES))]


def test_many_who_want_parts_of_an_object_at_a_time_wait_for_one_read() -> None:
    store = _RecordingStore(1)
    reads = _reads(store)
    reads.read(PLACE, 0, ByteRange(0, 1))
    go = threading.Event()
    store.before_read = lambda: (go.wait(10), None)[1]
    parts = [ByteRange(start, start + 10) for start in range(0, 160, 10)]
    with ThreadPoolExecutor(len(parts)) as executor:
        found = [executor.submit(reads.read, PLACE, 0, part) for part in parts]
        go.set()
        assert [one.result(10) for one in found] == [_expected(0, part) for part in parts]
    assert len(store.parts) == 2


def test_what_was_used_longest_ago_is_read_again_once_the_memory_is_full() -> None:
    store = _RecordingStore(3)
    reads = _reads(store, held_bytes=2 * OBJECT_BYTES)
    for sequence in (0, 0, 1, 1, 0, 2, 2):  # 1 goes for 2, since 0 was read after it
        reads.read(PLACE, sequence, ByteRange(0, 5))
    store.parts.clear()
    assert reads.read(PLACE, 0, ByteRange(0, 5)) == _expected(0, ByteRange(0, 5))
    assert store.parts == []
    assert reads.read(PLACE, 1, ByteRange(0, 5)) == _expected(1, ByteRange(0, 5))
    assert store.parts == [(1, ByteRange(0, LARGEST_BYTES))]


def test_a_part_that_lies_far_back_is_read_by_itself_each_time() -> None:
    store = _RecordingStore(1)
    reads = _reads(store)
    part = ByteRange(LARGEST_BYTES - 1, LARGEST_BYTES + 1)
    for _ in range(3):
        assert reads.read(PLACE, 0, part) == b""
    assert store.parts == [(0, part)] * 3


def test_a_read_that_failed_is_tried_again_by_the_next_who_wants_it() -> None:
    store = _RecordingStore(1)
    reads = _reads(store)
    reads.read(PLACE, 0, ByteRange(0, 5))

    def fail() -> None:
        raise UnavailableError("not now")

    store.before_read = fail
    with pytest.raises(UnavailableError):
        reads.read(PLACE, 0, ByteRange(0, 5))
    store.before_read = lambda: None
    assert reads.read(PLACE, 0, ByteRange(0, 5)) == _expected(0, ByteRange(0, 5))


def test_an_object_that_is_gone_is_said_to_be() -> None:
    reads = _reads(_RecordingStore(0))
    for _ in range(2):
        with pytest.raises(ObjectNotFoundError):
            reads.read(PLACE, 0, ByteRange(0, 5))
