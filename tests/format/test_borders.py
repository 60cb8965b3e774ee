"""Sizes at the borders of what formats allow, and what is told of the first that is not."""

from __future__ import annotations

import struct
from dataclasses import replace

import cramjam
import pytest

from coldstream.errors import BadLengthError, CorruptionError
from coldstream.format.checksum import combine_all_crc32
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, iter_chunks
from coldstream.format.entry import MAX_MESSAGE_BYTES
from coldstream.format.entry_run import EntryRun, iter_entry_runs
from coldstream.format.seekable import compress_frame, decompress_frames, seek_table_bytes
from coldstream.format.writer import MAX_SEGMENT_BYTES, make_chunk, make_sub_batch
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, TimestampMs


def test_a_chunk_past_the_last_offset_is_told_as_that() -> None:
    header, _ = make_chunk([b"x"] * 3, chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(1))
    last = replace(header, chunk_id=ChunkId(MAX_OFFSET - 3))
    assert ChunkHeader.from_bytes(last.to_bytes(), source="x", position=8) == last
    past = replace(header, chunk_id=ChunkId(MAX_OFFSET - 2), data_bytes=12)  # the least that three entries have
    with pytest.raises(BadLengthError, match="next offset of a chunk") as caught:
        ChunkHeader.from_bytes(past.to_bytes(), source="x", position=8)
    assert (caught.value.position, caught.value.found) == (8, MAX_OFFSET + 1)
    with pytest.raises(BadLengthError, match="data of a chunk of 3 entries: expected at least 12 bytes, found 11"):
        ChunkHeader.from_bytes(replace(header, data_bytes=11).to_bytes(), source="x", position=8)


def runs_until_error(entries: list[object], cut: int) -> list[EntryRun]:
    """Return the runs of a chunk's data whose last bytes are missing, as its header says."""
    header, data = make_chunk(entries, chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(1))  # type: ignore[arg-type]
    chunk = next(iter_chunks(data, source="x"))
    left = data[CHUNK_HEADER_BYTES : len(data) - cut]
    chunk = replace(chunk, data=memoryview(left), header=replace(header, data_bytes=len(left)))
    found: list[EntryRun] = []
    with pytest.raises(CorruptionError):
        found.extend(iter_entry_runs(chunk, max_bytes=40, max_records=100, source="x"))
    return found


def test_an_entry_that_is_cut_short_is_in_no_run() -> None:
    whole = [b"a" * 10, b"b" * 10]
    for cut in (1, 5, 60):
        for byte in (b"c", b"\0"):
            assert [(run.start, run.end) for run in runs_until_error([*whole, byte * 70], cut)] == [(0, 28)]
    batch = make_sub_batch([b"b" * 10] * 3)
    for cut in (1, 20, 45):
        assert [(run.start, run.end) for run in runs_until_error([*whole, batch], cut)] == [(0, 28)]


def test_messages_without_a_byte_are_a_run() -> None:
    _, data = make_chunk([b""] * 4, chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(1))
    chunk = next(iter_chunks(data, source="x"))
    (run,) = iter_entry_runs(chunk, max_bytes=40, max_records=100, source="x")
    assert (run.next_offset, run.end, run.is_sub_batch) == (4, 16, False)


def test_the_length_of_a_message_is_one_of_31_bits() -> None:
    assert MAX_MESSAGE_BYTES == 0x7FFF_FFFF


def test_a_segment_is_as_large_as_a_brokers_unless_somebody_says_otherwise() -> None:
    assert MAX_SEGMENT_BYTES == 500_000_000


@pytest.mark.parametrize("size", [1, 255, 256, 70_000])
def test_the_size_of_a_frame_counts_its_checksum_only_if_it_has_one(size: int) -> None:
    content = bytes(size)
    with_checksum, without = compress_frame(content), bytes(cramjam.zstd.compress(content))
    for frame in (with_checksum, without):
        assert bytes(decompress_frames(frame + without, 2 * size, source="x", position=0)) == bytes(2 * size)


def test_a_seek_table_may_be_all_of_an_object_and_no_more() -> None:
    footer = struct.pack("<IBI", 5, 0, 0x8F92EAB1)
    size = 8 + 5 * 8 + 9
    assert seek_table_bytes(footer, source="x", object_bytes=size) == size
    with pytest.raises(BadLengthError, match="frames in a seek table") as caught:
        seek_table_bytes(footer, source="x", object_bytes=size - 1)
    assert (caught.value.position, caught.value.found) == (size - 1 - 9, 5)


def test_the_checksum_of_parts_is_known_if_that_of_each_is() -> None:
    parts = [(0x7FFF, 5), (0x1234, 7)]
    assert combine_all_crc32([]) == 0
    assert combine_all_crc32([], start_crc32=9) == 9
    assert combine_all_crc32(parts) is not None
    assert combine_all_crc32([*parts, (None, 3)]) is None
