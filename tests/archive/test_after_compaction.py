"""Segments that are announced again after compaction has merged them into larger fragments."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.compact.options import CompactOptions
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.entry import Encoding
from tests.support.archive import NOW
from tests.support.compacting import compact_stream
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
def test_repeated_events_change_nothing_and_their_copies_are_compared_and_deleted(
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
        assert archive.objects.requests.keys() <= {"HeadObject", "GetObject", "DeleteObject"}
        assert archive.table.requests == {"Query": 1, "GetItem": 2}  # two for the claim
        assert archive.objects.info(segment.staged_key) is None
    assert archive.state() == state
    assert archive.table.head(archive.stream.incarnation).revision == revision  # type: ignore[union-attr]


def test_a_fragment_that_was_only_compressed_is_recognised_by_the_checksum_of_its_chunks(directory: Path) -> None:
    archive = MemoryArchive(fragment_bytes=1 << 20)
    segment = archive.stage(directory)[0]
    archive.uploader.upload(segment)
    compact_stream(
        archive.table,
        archive.objects,
        archive.stream,
        CompactOptions(older_than_ms=0, target_bytes=1 << 30, encoding=Encoding.ZSTD_SEEKABLE, level=1),
        keys=archive.keys,
        now=NOW,
    )
    again = staged_again(archive, directory)[0]
    archive.objects.requests.clear()
    assert archive.uploader.upload(again).fragments_committed == 0
    assert archive.objects.requests == {"HeadObject": 1, "DeleteObject": 1}


def test_a_merged_fragment_has_the_checksum_of_all_its_chunks(directory: Path, encoding: Encoding) -> None:
    archive = compacted(directory, encoding)
    files = sorted(directory.glob("*.segment"))[:-1]
    data = b"".join(file.read_bytes()[SEGMENT_HEADER_BYTES:] for file in files)
    merged = archive.log()
    assert [entry.data_crc32 for entry in merged] == [crc32(data[: merged[0].data_bytes])]
    assert merged[0].first_epoch == 1
