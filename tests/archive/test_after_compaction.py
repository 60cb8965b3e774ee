"""Segments that are announced again when compaction has put them into larger fragments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.archive.coverage import Coverage, read_coverage
from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.stage import find_rolled, stage
from coldstream.compact.options import CompactOptions
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.units import Offset
from tests.support.archive import NOW, ChunkArchive, steady
from tests.support.compacting import compact_stream, log_of
from tests.support.compaction import Compaction
from tests.support.segments import MemoryArchive


@pytest.fixture(params=list(Encoding))
def encoding(request: pytest.FixtureRequest) -> Encoding:
    """Either encoding."""
    return Encoding(request.param)


def compacted(directory: Path, encoding: Encoding, target_bytes: int = 1 << 30) -> MemoryArchive:
    archive = MemoryArchive()
    archive.announce(directory)
    before = archive.log()
    compact_stream(
        archive.table,
        archive.objects,
        archive.stream,
        CompactOptions(older_than_ms=0, target_bytes=target_bytes, encoding=encoding, level=1),
        keys=archive.keys,
        now=NOW,
    )
    assert len(archive.log()) < len(before)
    return archive


def staged_again(archive: MemoryArchive, directory: Path) -> list[SegmentRolled]:
    return [stage(segment, archive.stream, archive.objects, archive.keys) for segment in find_rolled(directory)]


@pytest.mark.parametrize("target_bytes", [1 << 30, 150_000])
def test_they_change_nothing_and_their_copies_are_deleted_unread(
    directory: Path, encoding: Encoding, target_bytes: int
) -> None:
    archive = compacted(directory, encoding, target_bytes)
    state, revision = archive.state(), archive.table.head(archive.stream.incarnation).revision  # type: ignore[union-attr]
    segments = staged_again(archive, directory)
    assert segments
    for segment in segments:
        archive.table.requests.clear()
        archive.objects.requests.clear()
        done = archive.uploader.upload(segment)
        assert (done.fragments_committed, done.bytes_committed, done.quarantined) == (0, 0, None)
        assert archive.objects.requests == {"DeleteObject": 1}
        assert archive.table.requests == {"Query": 1}
        assert archive.objects.info(segment.staged_key) is None
    assert archive.state() == state
    assert archive.table.head(archive.stream.incarnation).revision == revision  # type: ignore[union-attr]


def test_they_are_not_taken_for_what_they_cannot_be(directory: Path) -> None:
    archive = compacted(directory, Encoding.IDENTITY)
    segment = staged_again(archive, directory)[1]
    coverage = read_coverage(archive.table, archive.stream.incarnation, segment.first_offset, segment.next_offset)
    least, most = coverage.data_bytes(segment.first_offset, segment.next_offset)
    assert least <= segment.size_bytes - SEGMENT_HEADER_BYTES <= most
    archive.objects.requests.clear()
    other = replace(segment, size_bytes=most + SEGMENT_HEADER_BYTES + 1)
    done = archive.uploader.upload(other)
    assert archive.objects.requests["GetObject"] > 0
    assert done.quarantined is not None


def test_the_bytes_of_offsets_are_bounded_by_what_is_known_of_borders() -> None:
    archive = ChunkArchive(sparse_bytes=200)
    for number in range(9):
        archive.add(number * 6, steady(2, 1, 2, 3))
    life = archive.stream.incarnation
    sizes = {chunk.header.chunk_id: len(chunk.data) for chunk in archive.chunks}

    def bounds(first: int, following: int) -> tuple[int, int]:
        return read_coverage(archive.table, life, Offset(first), Offset(following)).data_bytes(
            Offset(first), Offset(following)
        )

    def exact(first: int, following: int) -> int:
        return sum(size for chunk_id, size in sizes.items() if first <= chunk_id < following)

    spans = [(first, following) for first in range(0, 54, 2) for following in range(first + 2, 56, 2)]
    for first, following in spans:
        if first % 6 == 0 and following % 6 == 0:
            assert bounds(first, following) == (exact(first, following),) * 2
    compaction = Compaction(archive)
    group = Group(log_of(archive.table, life))
    for _ in compaction.replace(group, compaction.store(group, Encoding.IDENTITY)):
        for first, following in spans:
            least, most = bounds(first, following)
            assert least <= exact(first, following) <= most
    assert bounds(0, 54) == (exact(0, 54),) * 2
    assert Coverage(()).data_bytes(Offset(0), Offset(5)) == (0, 0)
