"""The whole of an object, read block by block: chunks, frames and checksum, and the entry that its bytes give.

Memory: a block, or a frame and what it expands to, and the index, 20 bytes a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream.errors import BadLengthError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES, FragmentIndexRecord
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.manifest.entry import FragmentEntry, LastUserChunk
from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import STEP_BYTES, SparseIndex, SparsePoint
from coldstream.units import Epoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """What the chunks of an object say: everything of an entry that its object knows."""

    first: ChunkHeader
    last: ChunkHeader
    greatest_timestamp: TimestampMs
    first_epoch: Epoch | None
    chunks: int
    messages: int
    data_bytes: int
    data_crc32: int
    object_bytes: int
    object_crc32: int
    points: tuple[SparsePoint, ...]
    last_user_chunk: LastUserChunk | None
    records: bytes
    """The index that the object must have."""

    @property
    def span(self) -> tuple[Offset, Offset]:
        """The offsets, half-open."""
        return Offset(self.first.chunk_id), self.last.next_offset

    def entry(self, before: FragmentEntry, frames: Frames | None) -> FragmentEntry:
        """Return the entry as its object has it. What no object tells stays as in the entry `before`."""
        return replace(
            before,
            first_offset=Offset(self.first.chunk_id),
            next_offset=self.last.next_offset,
            first_timestamp=self.first.timestamp,
            last_timestamp=self.last.timestamp,
            greatest_timestamp=self.greatest_timestamp,
            epoch=self.last.epoch,
            first_epoch=self.first_epoch,
            chunks=self.chunks,
            records=self.last.next_offset - self.first.chunk_id,
            messages=self.messages,
            data_bytes=self.data_bytes,
            data_crc32=self.data_crc32,
            object_bytes=self.object_bytes,
            crc32=self.object_crc32,
            sparse=SparseIndex(self.points),
            frames=frames,
            last_user_chunk=self.last_user_chunk,
        )


class ContentReader:
    """Takes the data of an object in the identity encoding, and collects its content.

    `cuts` are the positions at which a point of the sparse index must be: those of the frames of a compressed object.
    Without them, chunks get points as the upload gives them.
    """

    def __init__(self, key: str, cuts: Sequence[int] | None = None) -> None:
        self._key = key
        self._scanner = SegmentScanner(key)
        self._cuts = None if cuts is None else set(cuts)
        self._first: ChunkHeader | None = None
        self._last: ChunkHeader | None = None
        self._greatest = TimestampMs(0)
        self._first_epoch: Epoch | None = None
        self._chunks = self._messages = self._data_bytes = self._data_crc32 = 0
        self._points: list[SparsePoint] = []
        self._last_user: LastUserChunk | None = None
        self._records = bytearray()

    def feed(self, block: bytes | memoryview) -> None:
        """Take the next bytes: the fragment's header, then chunks. Raises CorruptionError."""
        for event in self._scanner.feed(block):
            if isinstance(event, ChunkEnd):
                self._add(event)

    def finish(self, *, object_bytes: int, object_crc32: int) -> ObjectContent:
        """Return the content, once all chunks were taken. Raises CorruptionError if the last is cut short."""
        self._scanner.close()
        if self._first is None or self._last is None:
            raise BadLengthError(self._key, FRAGMENT_HEADER_BYTES, "chunks of a fragment", expected="one", found=0)
        return ObjectContent(
            self._first,
            self._last,
            self._greatest,
            self._first_epoch,
            self._chunks,
            self._messages,
            self._data_bytes,
            self._data_crc32,
            object_bytes,
            object_crc32,
            tuple(self._points),
            self._last_user,
            bytes(self._records),
        )

    def _add(self, chunk: ChunkEnd) -> None:
        header, position = chunk.header, chunk.position
        if self._first is None:
            self._first, self._greatest = header, header.timestamp
        is_due = not self._points or position - self._points[-1].position >= STEP_BYTES
        if is_due if self._cuts is None else position in self._cuts:
            self._points.append(SparsePoint(header.chunk_id, self._chunks, position, header.timestamp, self._greatest))
        self._greatest = max(self._greatest, header.timestamp)
        if header.type is ChunkType.USER:
            self._first_epoch = header.epoch if self._first_epoch is None else self._first_epoch
            self._last_user = LastUserChunk(header.chunk_id, position, header.timestamp)
            self._messages += header.records
        self._records += FragmentIndexRecord(header.chunk_id, header.timestamp, position).to_bytes()
        self._data_crc32 = combine_crc32(self._data_crc32, chunk.crc32, header.total_bytes)
        self._data_bytes += header.total_bytes
        self._chunks += 1
        self._last = header
