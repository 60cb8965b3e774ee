"""Fragments hold the segment byte for byte, are cut by the rule, and match their entries."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from zlib import crc32

from coldstream.format.chunk import iter_chunks
from coldstream.format.fragment import FragmentTrailer, iter_fragment_index
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry
from tests.support.segments import MemoryArchive


def test_the_fragments_hold_the_segments_chunks_byte_for_byte(directory: Path) -> None:
    archive = MemoryArchive()
    segments = archive.announce(directory)
    entries = archive.log()
    assert len(segments) >= 3
    assert len(entries) >= 2 * len(segments)
    archived = b"".join(archive.body(entry.key)[8 : 8 + entry.data_bytes] for entry in entries)
    files = sorted(directory.glob("*.segment"))[:-1]
    assert archived == b"".join(file.read_bytes()[SEGMENT_HEADER_BYTES:] for file in files)
    assert all(one.next_offset == other.first_offset for one, other in pairwise(entries))


def test_an_entry_describes_its_object(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    for entry in archive.log():
        data = archive.body(entry.key)
        trailer = FragmentTrailer.from_bytes(data, source=entry.key, object_bytes=len(data))
        chunks = list(iter_chunks(data[8 : 8 + entry.data_bytes], source=entry.key, position=8))
        index = list(
            iter_fragment_index(data[trailer.index_range.start : trailer.index_range.end], trailer, source="f")
        )
        assert [(c.header.chunk_id, c.header.timestamp, c.position) for c in chunks] == [
            (record.chunk_id, record.timestamp, record.position) for record in index
        ]
        assert (trailer.first_offset, trailer.next_offset) == (entry.first_offset, entry.next_offset)
        assert (len(data), crc32(data)) == (entry.object_bytes, entry.crc32)
        assert entry.chunks == len(chunks)
        assert entry.records == sum(chunk.header.records for chunk in chunks)
        users = [chunk for chunk in chunks if chunk.header.type == 0]
        assert entry.messages == sum(chunk.header.records for chunk in users)
        timestamps = [chunk.header.timestamp for chunk in chunks]
        assert (entry.first_timestamp, entry.last_timestamp) == (timestamps[0], timestamps[-1])
        assert entry.greatest_timestamp == max(timestamps)
        assert entry.last_user_chunk is not None
        assert (entry.last_user_chunk.chunk_id, entry.last_user_chunk.position) == (
            users[-1].header.chunk_id,
            users[-1].position,
        )
        for point in entry.sparse.points:
            assert index[point.ordinal].position == point.position
            assert index[point.ordinal].chunk_id == point.chunk_id


def test_a_cut_falls_after_the_chunk_that_takes_the_data_past_the_target(directory: Path) -> None:
    archive = MemoryArchive(fragment_bytes=20_000)
    archive.announce(directory)
    last_of_segment = {first.segment_offset: first for first in archive.log()}
    for entry in archive.log():
        data = archive.body(entry.key)
        chunks = list(iter_chunks(data[8 : 8 + entry.data_bytes], source=entry.key))
        assert entry.data_bytes - chunks[-1].header.total_bytes <= 20_000
        if entry != last_of_segment[entry.segment_offset]:
            assert entry.data_bytes > 20_000


def test_a_trailer_says_where_in_the_segment_its_fragment_was(directory: Path) -> None:
    archive = MemoryArchive()
    archive.announce(directory)
    by_segment: dict[int, list[FragmentEntry]] = {}
    for entry in archive.log():
        by_segment.setdefault(entry.segment_offset, []).append(entry)
    for entries in by_segment.values():
        chunks, position = 0, SEGMENT_HEADER_BYTES
        for number, entry in enumerate(entries):
            data = archive.body(entry.key)
            trailer = FragmentTrailer.from_bytes(data, source=entry.key, object_bytes=len(data))
            found = (trailer.sequence_number, trailer.chunks_before, trailer.data_position)
            assert found == (number, chunks, position)
            chunks += entry.chunks
            position += entry.data_bytes
