"""`FragmentDraft`: a fragment under construction.

It is spooled to disk as the object that it becomes (`archive.spool`). The checksum of its identity encoding is combined
from those of its chunks, so that its bytes are not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self
from zlib import crc32

from coldstream.archive.spool import FrameSpool, PlainSpool
from coldstream.archive.spool_files import SpoolFiles
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.fragment import FragmentTrailer, build_footer, index_record_bytes
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import Encoding, FragmentEntry, LastUserChunk
from coldstream.manifest.sparse import STEP_BYTES, SparseIndex, SparsePoint
from coldstream.units import Epoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class CutFragment:
    """A complete fragment, its `body` at the first byte. Its entry exists only after its object has a key."""

    body: BinaryIO
    first_offset: Offset
    next_offset: Offset
    chunks: int
    object_bytes: int
    crc32: int
    entry_at: Callable[[str, int], FragmentEntry]
    """Makes the entry, of the key and the generation of the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.body.close()


class FragmentDraft:
    """A fragment that still takes chunks: `write` the bytes of each, then `add` the chunk once it is verified."""

    def __init__(
        self,
        source: str,
        segment_offset: Offset,
        *,
        sequence_number: int,
        chunks_before: int,
        data_position: int,
        spool_dir: Path | None,
        zstd_level: int | None = None,
        files: SpoolFiles | None = None,
    ) -> None:
        """Begin a fragment, of encoding `zstd-seekable` if there is a level. Raises UnavailableError without a disk.

        A plain one is spooled to one of `files`, if there are any.
        """
        self._source = source
        self._segment_offset = segment_offset
        self._sequence_number = sequence_number
        self._chunks_before = chunks_before
        self._data_position = data_position
        self._spool = PlainSpool(spool_dir, files) if zstd_level is None else FrameSpool(spool_dir, zstd_level)
        self._data_crc32 = 0
        self._position = SEGMENT_HEADER_BYTES
        self._index = bytearray()
        self._points: list[SparsePoint] = []
        self._first: ChunkHeader | None = None
        self._last: ChunkHeader | None = None
        self._first_epoch: Epoch | None = None
        self._last_user: tuple[ChunkHeader, int] | None = None  # with its position
        self._greatest = TimestampMs(0)
        self.chunks = 0
        self._messages = 0
        self._spool.write(SEGMENT_HEADER)
        self._is_between_chunks = True
        self._next_point = 0  # position from which on a chunk is one of the sparse index

    @property
    def data_bytes(self) -> int:
        """Size of the chunks added so far."""
        return self._position - SEGMENT_HEADER_BYTES

    def write(self, view: bytes | memoryview) -> None:
        """Take the next bytes of a chunk. A view has to stay as it is until the fragment is finished."""
        if self._is_between_chunks:
            self._is_between_chunks = False
            if self._position >= self._next_point:
                # Before the chunk's bytes come: a range may begin at any point, so a frame has to begin there.
                self._spool.cut()
        self._spool.write(view)

    def add(self, header: ChunkHeader, chunk_crc32: int) -> None:
        """Add the chunk whose bytes were just written; `chunk_crc32` is that of all of these bytes."""
        position, timestamp, total_bytes = self._position, header.timestamp, header.total_bytes
        if self._first is None:
            self._first = header
            self._greatest = timestamp
        if position >= self._next_point:
            self._points.append(SparsePoint(header.chunk_id, self.chunks, position, timestamp, self._greatest))
            self._next_point = position + STEP_BYTES
        if header.type is ChunkType.USER:
            self._first_epoch = header.epoch if self._first_epoch is None else self._first_epoch
            self._last_user = header, position
            self._messages += header.records
        self._index += index_record_bytes(header.chunk_id, timestamp, position)
        self._data_crc32 = combine_crc32(self._data_crc32, chunk_crc32, total_bytes)
        # After the point was made: a point has the greatest timestamp of the chunks before it.
        self._greatest = max(self._greatest, timestamp)
        self._position = position + total_bytes
        self._last = header
        self.chunks += 1
        self._is_between_chunks = True

    def finish(self, like: FragmentTrailer | None = None) -> CutFragment:
        """Complete the fragment, which must have at least one chunk.

        With `like` it stands in the place of another fragment: where it lies in its segment is what that trailer says.
        """
        assert self._first is not None
        assert self._last is not None
        if like is not None:
            self._sequence_number, self._chunks_before = like.sequence_number, like.chunks_before
            self._data_position = like.data_position
        footer = build_footer(
            self._index,
            source=self._source,
            next_offset=self._last.next_offset,
            sequence_number=self._sequence_number,
            data_bytes=self.data_bytes,
            chunks_before=self._chunks_before,
            data_position=self._data_position,
        )
        identity_bytes = self._position + len(footer)
        identity_crc32 = crc32(footer, combine_crc32(crc32(SEGMENT_HEADER), self._data_crc32, self.data_bytes))
        spooled = self._spool.finish(footer, identity_bytes, identity_crc32, points=len(self._points))

        entry = partial(
            FragmentEntry,
            first_offset=Offset(self._first.chunk_id),
            next_offset=self._last.next_offset,
            first_timestamp=self._first.timestamp,
            last_timestamp=self._last.timestamp,
            greatest_timestamp=self._greatest,
            epoch=self._last.epoch,
            chunks=self.chunks,
            records=self._last.next_offset - self._first.chunk_id,
            messages=self._messages,
            data_bytes=self.data_bytes,
            object_bytes=spooled.size_bytes,
            crc32=spooled.crc32,
            encoding=Encoding.IDENTITY if spooled.frames is None else Encoding.ZSTD_SEEKABLE,
            frames=spooled.frames,
            sparse=SparseIndex(tuple(self._points)),
            last_user_chunk=self._last_user_chunk,
            segment_offset=self._segment_offset,
            first_epoch=self._first_epoch,
            data_crc32=self._data_crc32,
        )
        return CutFragment(
            spooled.body,
            Offset(self._first.chunk_id),
            self._last.next_offset,
            self.chunks,
            spooled.size_bytes,
            spooled.crc32,
            lambda key, generation: entry(key=key, generation=generation),
        )

    def discard(self) -> None:
        """Discard the fragment and free its disk space."""
        self._spool.discard()

    @property
    def _last_user_chunk(self) -> LastUserChunk | None:
        if self._last_user is None:
            return None
        header, position = self._last_user
        return LastUserChunk(header.chunk_id, position, header.timestamp)
