"""A fragment under construction: its entry's numbers at the borders of their rules, and its size at the cutter's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from coldstream.archive.coverage import Coverage
from coldstream.archive.cutter import SegmentCutter
from coldstream.archive.draft import CutFragment, FragmentDraft
from coldstream.archive.fragment_chunks import fragment_chunks
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import BadSequenceError, UnavailableError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import RangeRead
from coldstream.units import ByteRange, ChunkId, Epoch, Offset, TimestampMs
from tests.store.samples import ORDERS

SIZE = 48 + 10 * (4 + 20)
"""Of a chunk of ten messages of twenty bytes."""


def chunk(number: int, epoch: int = 1) -> tuple[ChunkHeader, bytes]:
    messages = [b"x" * 20] * 10
    at = TimestampMs(1000 + number)
    return make_chunk(messages, chunk_id=ChunkId(10 * number), timestamp=at, epoch=Epoch(epoch))


def tracking(offset: int, epoch: int) -> tuple[ChunkHeader, bytes]:
    return make_chunk(
        [b"x"],
        chunk_id=ChunkId(offset),
        timestamp=TimestampMs(1000),
        epoch=Epoch(epoch),
        kind=ChunkType.TRACKING_DELTA,
    )


def drafted(chunks: Sequence[tuple[ChunkHeader, bytes]]) -> tuple[FragmentEntry, bytes]:
    draft = FragmentDraft("copy", Offset(0), sequence_number=0, chunks_before=0, data_position=8, spool_dir=None)
    for header, data in chunks:
        draft.write(data)
        draft.add(header, 0)
    with draft.finish() as fragment:
        return fragment.entry_at("data/x.fragment", 0), fragment.body.read()


def cut(chunks: int, fragment_bytes: int, next_offset: int) -> list[int]:
    """Return how many chunks each fragment of a segment gets."""
    segment = SegmentRolled(ORDERS, Offset(0), Offset(next_offset), 1000, "bucket", "staging/copy")
    found = []
    with closing(SegmentCutter(segment, Coverage(()), fragment_bytes, None)) as cutter:
        for block in (SEGMENT_HEADER, *(chunk(number)[1] for number in range(chunks))):
            found += [_chunks_of(fragment) for fragment in cutter.feed(block)]
        return found + [_chunks_of(fragment) for fragment in cutter.finish()]


def _chunks_of(fragment: CutFragment) -> int:
    with fragment:
        return fragment.chunks


@pytest.mark.parametrize(("step", "every"), [(3 * SIZE, 3), (3 * SIZE + 1, 4), (2 * SIZE + 1, 3), (1, 1)])
def test_a_point_of_the_sparse_index_comes_as_soon_as_the_step_is_reached(
    monkeypatch: pytest.MonkeyPatch, step: int, every: int
) -> None:
    monkeypatch.setattr("coldstream.archive.draft.STEP_BYTES", step)
    entry, _ = drafted([chunk(number) for number in range(10)])
    assert [point.ordinal for point in entry.sparse.points] == list(range(0, 10, every))
    for point in entry.sparse.points:
        assert (point.chunk_id, point.position) == (10 * point.ordinal, 8 + SIZE * point.ordinal)


def test_a_point_says_what_the_greatest_time_before_its_chunk_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.archive.draft.STEP_BYTES", 1)
    entry, _ = drafted([chunk(number) for number in range(3)])
    assert [point.timestamp for point in entry.sparse.points] == [1000, 1001, 1002]
    assert [point.greatest_before for point in entry.sparse.points] == [1000, 1000, 1001]


def test_the_first_epoch_is_that_of_the_first_user_chunk_and_the_epoch_that_of_the_last_chunk() -> None:
    chunks = [tracking(9, 3), chunk(1, 4), chunk(2, 5), tracking(30, 6)]
    entry, _ = drafted(chunks)
    assert (entry.first_epoch, entry.epoch) == (4, 6)
    assert (entry.messages, entry.records) == (20, 22)


def test_the_fragments_of_equal_chunks_are_equal_at_a_target_of_exactly_some_of_them() -> None:
    assert cut(9, 2 * SIZE, 90) == [3, 3, 3]
    assert cut(9, 2 * SIZE - 1, 90) == [2, 2, 2, 2, 1]


@pytest.mark.parametrize("next_offset", [80, 91])
def test_a_copy_that_ends_elsewhere_than_was_announced_is_told_by_both_ends(next_offset: int) -> None:
    with pytest.raises(BadSequenceError) as caught:
        cut(9, 1 << 20, next_offset)
    assert (caught.value.expected, caught.value.found) == (next_offset, 90)
    assert "next offset of the segment:" in str(caught.value)


def test_a_disk_that_fills_up_within_a_chunk_is_told_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "coldstream.archive.spool.tempfile.TemporaryFile",
        lambda buffering, **_: Path("/dev/full").open("w+b", buffering),  # noqa: SIM115  as TemporaryFile does
    )
    draft = FragmentDraft("copy", Offset(0), sequence_number=0, chunks_before=0, data_position=8, spool_dir=None)
    with pytest.raises(UnavailableError, match=r"cannot spool a fragment to disk: .*No space left"):
        draft.write(bytes(1 << 20))
    draft.discard()


def test_the_chunks_of_a_fragment_are_read_from_the_point_before_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.archive.draft.STEP_BYTES", 3 * SIZE)
    entry, data = drafted([chunk(number) for number in range(10)])

    class Watched(MemoryObjects):
        def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
            starts.append(byte_range.start)
            return super().get_range(key, byte_range, if_match=if_match)

    starts: list[int] = []
    objects = Watched()
    objects.put(entry.key, data)
    found = [header.chunk_id for header in fragment_chunks(objects, entry, Offset(45))]
    assert starts == [8 + 3 * SIZE]
    assert found == [40, 50, 60, 70, 80, 90]
    assert all(following - first == 10 for first, following in pairwise(found))
