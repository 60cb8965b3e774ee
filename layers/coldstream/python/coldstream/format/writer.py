"""Write segments and their indexes as osiris does, for tests and synthetic load without a broker.

One `write` is one round of a stream's leader (`osiris_writer.erl`, handle_batch; `osiris_log.erl`, write_chunk):

- The writer remembers the tracking of the round. If the segment is full and anything is tracked, it writes a snapshot
  first.
- Entries become a user chunk, whose trailer is the tracking since the chunk before. Without entries, that tracking
  becomes a delta chunk.
- A segment is full once its bytes or its chunks have reached the maximum. The next chunk of any type then opens a new
  segment, named by its chunk id. So a snapshot comes first in its segment.

Given the same input and clock, the bytes are those of the broker, with one difference: a snapshot has the timestamp of
the round, while the broker reads its clock twice. Nothing is ever deleted: the stream's first chunk stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from zlib import crc32

from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.compression import Compression, compress
from coldstream.format.entry import SubBatch, simple_entry
from coldstream.format.index import INDEX_HEADER, IndexRecord
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES, file_name
from coldstream.format.tracking import TrackingRecord, TrackingState
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

MAX_SEGMENT_BYTES = 500_000_000
MAX_SEGMENT_CHUNKS = 256_000


def make_sub_batch(messages: Sequence[bytes], compression: Compression = Compression.NONE) -> SubBatch:
    """Pack messages as a publisher does."""
    plain = b"".join(map(simple_entry, messages))
    return SubBatch(compression, len(messages), len(plain), memoryview(compress(compression, plain)), 0)


def make_chunk(
    entries: Iterable[bytes | SubBatch],
    *,
    chunk_id: ChunkId,
    timestamp: TimestampMs,
    epoch: Epoch,
    kind: ChunkType = ChunkType.USER,
    bloom: bytes = b"",
    trailer: bytes = b"",
) -> tuple[ChunkHeader, bytes]:
    """Make a chunk of messages and sub-batches; return its header, and all its bytes.

    Raises OverflowError for input that no chunk can hold, such as more than 65,535 entries.
    """
    parts: list[bytes] = []
    records = 0
    for entry in entries:
        if isinstance(entry, SubBatch):
            records += entry.records
            parts.append(entry.to_bytes())
        else:
            records += 1
            parts.append(simple_entry(entry))
    data = b"".join(parts)
    header = ChunkHeader(
        kind, len(parts), records, timestamp, epoch, chunk_id, crc32(data), len(data), len(trailer), len(bloom)
    )
    return header, b"".join((header.to_bytes(), bloom, data, trailer))


class SegmentWriter:
    """Writes a stream into a directory, from `first_offset` on. Use it as a context manager, or close it."""

    def __init__(
        self,
        directory: Path,
        *,
        first_offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
        max_segment_chunks: int = MAX_SEGMENT_CHUNKS,
    ) -> None:
        if max_segment_bytes <= SEGMENT_HEADER_BYTES or max_segment_chunks < 1:
            raise ValueError("a segment must have room for its header and at least one chunk")
        self.next_offset = first_offset
        self.tracking = TrackingState()
        self._directory = directory
        self._max_bytes = max_segment_bytes
        self._max_chunks = max_segment_chunks
        self._first: ChunkHeader | None = None
        self._segment, self._index = self._open()
        self._bytes, self._chunks = SEGMENT_HEADER_BYTES, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the last segment stays as it is."""
        self._segment.close()
        self._index.close()

    def write(
        self,
        entries: Sequence[bytes | SubBatch] = (),
        *,
        timestamp: TimestampMs,
        epoch: Epoch = Epoch(1),  # noqa: B008  a NewType is its value
        tracking: Iterable[TrackingRecord] = (),
        bloom: bytes = b"",
    ) -> None:
        """Write entries and tracking as the next chunks; `tracking` is of the delta kind, `bloom` of the user chunk."""
        for record in tracking:
            self.tracking.add(record, ChunkId(self.next_offset))
        if self._is_full and self._first is not None and not self.tracking.is_empty:
            snapshot = self.tracking.snapshot(Offset(self._first.chunk_id), self._first.timestamp)
            self._append([snapshot], ChunkType.TRACKING_SNAPSHOT, timestamp, epoch)
        delta = self.tracking.flush()
        if entries:
            self._append(entries, ChunkType.USER, timestamp, epoch, bloom=bloom, trailer=delta)
        elif delta:
            self._append([delta], ChunkType.TRACKING_DELTA, timestamp, epoch)

    @property
    def _is_full(self) -> bool:
        return self._bytes >= self._max_bytes or self._chunks >= self._max_chunks

    def _append(
        self,
        entries: Sequence[bytes | SubBatch],
        kind: ChunkType,
        timestamp: TimestampMs,
        epoch: Epoch,
        *,
        bloom: bytes = b"",
        trailer: bytes = b"",
    ) -> None:
        header, chunk = make_chunk(
            entries,
            chunk_id=ChunkId(self.next_offset),
            timestamp=timestamp,
            epoch=epoch,
            kind=kind,
            bloom=bloom,
            trailer=trailer,
        )
        # After the chunk was made: one that cannot be made must not leave a new segment without chunks.
        if self._is_full:
            self.close()
            self._segment, self._index = self._open()
            self._bytes, self._chunks = SEGMENT_HEADER_BYTES, 0
        self._segment.write(chunk)
        self._index.write(IndexRecord.of(header, self._bytes).to_bytes())
        self._first = self._first or header
        self._bytes += len(chunk)
        self._chunks += 1
        self.next_offset = header.next_offset

    def _open(self) -> tuple[BinaryIO, BinaryIO]:
        segment = (self._directory / file_name(self.next_offset, "segment")).open("xb")
        segment.write(SEGMENT_HEADER)
        index = (self._directory / file_name(self.next_offset, "index")).open("xb")
        index.write(INDEX_HEADER)
        return segment, index
