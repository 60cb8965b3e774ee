"""`FragmentDraft`: a fragment under construction.

It is spooled to an unlinked temporary file, so that its size costs disk space and not memory. Its checksum is combined
from those of its chunks, so that its bytes are not read again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self, cast
from zlib import crc32

from coldstream.errors import UnavailableError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.fragment import FragmentIndexRecord, FragmentTrailer, build_footer
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry, LastUserChunk
from coldstream.manifest.sparse import STEP_BYTES, SparseIndex, SparsePoint
from coldstream.units import Epoch, Offset, TimestampMs

SPOOL_BUFFER_BYTES = 256 << 10


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
    ) -> None:
        self._source = source
        self._segment_offset = segment_offset
        self._sequence_number = sequence_number
        self._chunks_before = chunks_before
        self._data_position = data_position
        self._body = _open_spool(spool_dir)
        self._data_crc32 = 0
        self._position = SEGMENT_HEADER_BYTES
        self._index = bytearray()
        self._points: list[SparsePoint] = []
        self._first: ChunkHeader | None = None
        self._last: ChunkHeader | None = None
        self._first_epoch: Epoch | None = None
        self._last_user: LastUserChunk | None = None
        self._greatest = TimestampMs(0)
        self.chunks = 0
        self._messages = 0
        self.write(SEGMENT_HEADER)

    @property
    def data_bytes(self) -> int:
        """Size of the chunks added so far."""
        return self._position - SEGMENT_HEADER_BYTES

    def write(self, view: bytes | memoryview) -> None:
        """Take the next bytes of a chunk."""
        try:
            self._body.write(view)
        except OSError as err:
            raise UnavailableError(f"cannot spool a fragment to disk: {err}") from err

    def add(self, header: ChunkHeader, chunk_crc32: int) -> None:
        """Add the chunk whose bytes were just written; `chunk_crc32` is that of all of these bytes."""
        if self._first is None:
            self._first = header
            self._greatest = header.timestamp
            self._points.append(self._point(header))
        elif self._position - self._points[-1].position >= STEP_BYTES:
            self._points.append(self._point(header))
        if header.type is ChunkType.USER:
            self._first_epoch = header.epoch if self._first_epoch is None else self._first_epoch
            self._last_user = LastUserChunk(header.chunk_id, self._position, header.timestamp)
            self._messages += header.records
        self._index += FragmentIndexRecord(header.chunk_id, header.timestamp, self._position).to_bytes()
        self._data_crc32 = combine_crc32(self._data_crc32, chunk_crc32, header.total_bytes)
        # After the point was made: a point has the greatest timestamp of the chunks before it.
        self._greatest = max(self._greatest, header.timestamp)
        # Until here it is where the chunk begins: point, index record and last user chunk need that.
        self._position += header.total_bytes
        self._last = header
        self.chunks += 1

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
        self.write(footer)
        try:
            self._body.seek(0)
        except OSError as err:
            raise UnavailableError(f"cannot spool a fragment to disk: {err}") from err
        object_bytes = self._position + len(footer)
        object_crc32 = crc32(footer, combine_crc32(crc32(SEGMENT_HEADER), self._data_crc32, self.data_bytes))

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
            object_bytes=object_bytes,
            crc32=object_crc32,
            sparse=SparseIndex(tuple(self._points)),
            last_user_chunk=self._last_user,
            segment_offset=self._segment_offset,
            first_epoch=self._first_epoch,
            data_crc32=self._data_crc32,
        )
        return CutFragment(
            self._body,
            Offset(self._first.chunk_id),
            self._last.next_offset,
            self.chunks,
            object_bytes,
            object_crc32,
            lambda key, generation: entry(key=key, generation=generation),
        )

    def discard(self) -> None:
        """Discard the fragment and free its disk space."""
        with suppress(OSError):  # closing flushes the buffer, and the disk may be full
            self._body.close()

    def _point(self, header: ChunkHeader) -> SparsePoint:
        return SparsePoint(header.chunk_id, self.chunks, self._position, header.timestamp, self._greatest)


def _open_spool(spool_dir: Path | None) -> BinaryIO:
    try:
        return cast("BinaryIO", tempfile.TemporaryFile(dir=spool_dir, buffering=SPOOL_BUFFER_BYTES))
    except OSError as err:
        raise UnavailableError(f"cannot spool a fragment to disk: {err}") from err
