"""The archive's objects: fragments, and their compressed form with its frames and seek table."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.format.chunk import Chunk
from coldstream.format.fragment import (
    FRAGMENT_TRAILER_BYTES,
    FragmentIndexRecord,
    FragmentTrailer,
    build_footer,
    iter_fragment_index,
)
from coldstream.format.index import INDEX_HEADER_BYTES
from coldstream.format.seekable import FrameSize, SeekTable, compress_frame, decompress_frames, seek_table_bytes
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.units import ChunkId
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, same
from tests.fuzz.golden_bytes import golden_chunks, parsed_chunks

_CONTENT_BYTES = 1 << 16


def _fragment(data: bytes) -> None:
    trailer = FragmentTrailer.from_bytes(data, source=SOURCE, object_bytes=len(data))
    same(trailer.to_bytes(), data[-FRAGMENT_TRAILER_BYTES:])
    part = trailer.index_range
    records = list(iter_fragment_index(data[part.start : part.end], trailer, source=SOURCE))
    same(len(records), trailer.chunks)
    encoded = b"".join(record.to_bytes() for record in records)
    same(encoded, data[part.start + INDEX_HEADER_BYTES : part.end])


def _seek_table(data: bytes) -> None:
    size = seek_table_bytes(data, source=SOURCE, object_bytes=len(data))
    table = SeekTable.from_bytes(data, source=SOURCE, object_bytes=len(data))
    same(sum(frame.compressed_bytes for frame in table.frames), len(data) - size)
    written = table.to_bytes()
    again = SeekTable.from_bytes(written, source=SOURCE, object_bytes=len(data) - size + len(written))
    same(again, table)


def _frames(data: bytes) -> None:
    # Whoever reads frames knows from the manifest how much they hold: here, the first two bytes say it.
    content_bytes = int.from_bytes(data[:2]) % _CONTENT_BYTES
    content = decompress_frames(data[2:], content_bytes, source=SOURCE, position=0)
    same(len(content), content_bytes)


def fragment_of(chunk: Chunk, data: bytes) -> bytes:
    """Return a fragment of one chunk."""
    header = chunk.header
    record = FragmentIndexRecord(ChunkId(header.chunk_id), header.timestamp, len(SEGMENT_HEADER))
    footer = build_footer(
        record.to_bytes(),
        source=SOURCE,
        next_offset=header.next_offset,
        sequence_number=0,
        data_bytes=len(data),
        chunks_before=0,
        data_position=len(SEGMENT_HEADER),
    )
    return SEGMENT_HEADER + data + footer


def _fragment_seeds() -> Iterator[bytes]:
    for chunk, data in zip(parsed_chunks(), golden_chunks(), strict=True):
        yield fragment_of(chunk, data)


def _seek_table_seeds() -> Iterator[bytes]:
    for chunk, data in zip(parsed_chunks(), golden_chunks(), strict=True):
        identity = fragment_of(chunk, data)
        parts = (identity[:8], identity[8 : 8 + len(data)], identity[8 + len(data) :])
        frames = [compress_frame(part) for part in parts]
        sizes = tuple(FrameSize(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True))
        yield b"".join(frames) + SeekTable(sizes).to_bytes()


def _frame_seeds() -> Iterator[bytes]:
    for data in (*golden_chunks(), b"a", bytes(300), bytes(60_000)):
        yield len(data).to_bytes(2) + compress_frame(data)
        yield (
            len(data).to_bytes(2)
            + compress_frame(data[: len(data) // 2 or 1])
            + compress_frame(data[len(data) // 2 :] or b"b")
        )


TARGETS = (
    FuzzTarget("fragment", _fragment, _fragment_seeds, CORRUPT, runs=30_000),
    FuzzTarget("seek-table", _seek_table, _seek_table_seeds, CORRUPT),
    FuzzTarget("zstd-frames", _frames, _frame_seeds, CORRUPT),
)
