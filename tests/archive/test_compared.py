"""Which parts of a copy and of the archive are compared, by which rule, and what is said of the first difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from zlib import crc32

import pytest

from coldstream.archive.contradiction import check_history, is_same_chunk
from coldstream.archive.coverage import Coverage
from coldstream.archive.fragment_chunks import fragment_chunks
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.staged_segment import StagedSegment
from coldstream.errors import ContradictionError, TruncatedError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import FragmentEntry, LastUserChunk
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import RangeRead
from coldstream.units import ByteRange, ChunkId, Epoch, Offset, TimestampMs
from tests.store.samples import ORDERS, entry

STAGED = SegmentRolled(ORDERS, Offset(0), Offset(50), 1000, "bucket", "staging/copy")


def chunk(first: int, *, kind: ChunkType = ChunkType.USER, epoch: int = 1, text: bytes = b"x") -> bytes:
    return made(first, kind=kind, epoch=epoch, text=text, records=10 if kind is ChunkType.USER else 1)[1]


def made(
    first: int, *, kind: ChunkType = ChunkType.USER, epoch: int = 1, text: bytes = b"x", records: int = 10
) -> tuple[ChunkHeader, bytes]:
    return make_chunk(
        [text] * records, chunk_id=ChunkId(first), timestamp=TimestampMs(1000), epoch=Epoch(epoch), kind=kind
    )


class Copy:
    """A staged copy whose blocks are its chunks. It counts those that were taken."""

    def __init__(self, *chunks: bytes) -> None:
        self._blocks = (SEGMENT_HEADER, *chunks)
        self.taken: list[int] = []

    def blocks(self) -> Iterator[bytes]:
        self.taken.append(0)
        for block in self._blocks:
            self.taken[-1] += len(block) > SEGMENT_HEADER_BYTES
            yield block


class Archived(MemoryObjects):
    """Objects of fragments, which remember where each was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        self.read.append(byte_range.start)
        return super().get_range(key, byte_range, if_match=if_match)

    def holding(self, first: int, *chunks: bytes) -> FragmentEntry:
        """Keep chunks as the object of an entry of ten offsets each."""
        data = b"".join(chunks)
        new = entry(first, first + 10 * len(chunks))
        self.put(new.key, SEGMENT_HEADER + data)
        return replace(new, data_bytes=len(data), object_bytes=8 + len(data), data_crc32=crc32(data))


def check(objects: MemoryObjects, copy: Copy, *entries: FragmentEntry, after: FragmentEntry | None = None) -> None:
    check_history(objects, STAGED, cast("StagedSegment", cast("Any", copy)), Coverage(entries, after))


def test_chunks_that_have_the_checksum_of_an_entry_are_compared_without_reading_the_archive() -> None:
    objects, copy = Archived(), Copy(*(chunk(first) for first in range(0, 50, 10)))
    check(objects, copy, objects.holding(0, chunk(0), chunk(10)))
    assert objects.read == []
    assert copy.taken == [2], "no more of the copy is read than what the archive may contradict"


def test_a_copy_is_compared_with_every_chunk_of_an_entry_whose_checksum_differs() -> None:
    objects, copy = Archived(), Copy(*(chunk(first) for first in range(0, 50, 10)))
    check(
        objects, copy, replace(objects.holding(0, chunk(0), chunk(10)), data_crc32=None), objects.holding(20, chunk(20))
    )
    assert objects.read == [SEGMENT_HEADER_BYTES]
    assert copy.taken == [3, 3]


def test_a_difference_is_told_of_both_chunks() -> None:
    objects = Archived()
    archived = objects.holding(0, chunk(0), chunk(10, text=b"y"))
    words = r"it has a user chunk of offsets 10 to 19, epoch 1, .*; data/.* has a user chunk of offsets 10 to 19, epoch"
    with pytest.raises(ContradictionError, match=words) as caught:
        check(objects, Copy(chunk(0), chunk(10)), archived)
    assert caught.value.chunk_id == 10


def test_a_copy_with_a_chunk_that_the_archived_fragment_lacks_is_of_another_history() -> None:
    objects = Archived()
    archived = replace(objects.holding(0, chunk(0)), next_offset=Offset(20))
    with pytest.raises(ContradictionError, match=r"offsets 10 to 19, .* has no chunk") as caught:
        check(objects, Copy(chunk(0), chunk(10)), archived)
    assert caught.value.chunk_id == 10


def test_an_archived_fragment_that_ends_inside_a_chunk_is_corrupt() -> None:
    objects = Archived()
    archived = objects.holding(0, chunk(0), chunk(10))
    assert [one.chunk_id for one in fragment_chunks(objects, archived, Offset(0))] == [0, 10]
    with pytest.raises(TruncatedError):
        list(fragment_chunks(objects, replace(archived, data_bytes=archived.data_bytes - 1), Offset(0)))


def test_a_tracking_chunk_is_told_apart_from_a_user_chunk() -> None:
    objects = Archived()
    archived = objects.holding(0, chunk(0, text=b"y"))
    with pytest.raises(ContradictionError, match=r"it has a tracking chunk of .* has a user chunk of"):
        check(objects, Copy(chunk(0, kind=ChunkType.TRACKING_DELTA)), archived)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_copy_of_a_later_epoch_than_what_is_archived_after_it_is_of_another_history(epoch: int) -> None:
    user = LastUserChunk(ChunkId(100), 8, TimestampMs(1000))
    after = replace(entry(100, 110, last_user_chunk=user), first_epoch=Epoch(1))
    copy = Copy(chunk(0), chunk(10, epoch=epoch))
    if epoch == 1:
        check(Archived(), copy, after=after)
        assert copy.taken == [2]
    else:
        with pytest.raises(ContradictionError, match="epoch 2 before epoch 1") as caught:
            check(Archived(), copy, after=after)
        assert caught.value.chunk_id == 10


def test_a_tracking_chunk_may_have_a_later_epoch_than_what_is_archived_after_it() -> None:
    user = LastUserChunk(ChunkId(100), 8, TimestampMs(1000))
    after = replace(entry(100, 110, last_user_chunk=user), first_epoch=Epoch(1))
    check(Archived(), Copy(chunk(0), chunk(10, kind=ChunkType.TRACKING_DELTA, epoch=2)), after=after)


def test_tracking_chunks_need_the_same_id_and_user_chunks_the_same_everything() -> None:
    user, tracking = made(10)[0], made(10, kind=ChunkType.TRACKING_DELTA)[0]
    snapshot = made(10, kind=ChunkType.TRACKING_SNAPSHOT, text=b"other")[0]
    assert is_same_chunk(user, user)
    assert is_same_chunk(tracking, snapshot)
    assert not is_same_chunk(tracking, made(20, kind=ChunkType.TRACKING_DELTA)[0])
    assert not is_same_chunk(user, tracking)
    assert not is_same_chunk(tracking, user)
    assert not is_same_chunk(user, made(10, text=b"y")[0])
    assert is_same_chunk(user, made(10, text=b"y")[0], is_erased=True)
    assert not is_same_chunk(user, made(10, records=9)[0], is_erased=True)
    assert not is_same_chunk(user, made(10, epoch=2)[0], is_erased=True)
    assert not is_same_chunk(user, replace(user, timestamp=TimestampMs(1001)), is_erased=True)
