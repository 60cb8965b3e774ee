"""Walk the chunk headers of a segment file that the broker may still be writing to.

A walk reads headers only, 48 bytes a chunk; whoever archives a chunk verifies its data. Bytes that are no chunk, or not
a whole one yet, end the walk, and the next one looks again. When a leader is lost, its replica may truncate the newest
chunks and write others in their place (osiris_log:truncate_to/4). So each walk first checks that the last chunk it saw
is still there, and starts again if it is not.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coldstream.archive.borders import QuietSpans, Side, TimeBorders
from coldstream.errors import CorruptionError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.units import ChunkId, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class SegmentPosition:
    """A position between two chunks: the chunk after it begins at byte `position`, and has the id `offset`."""

    offset: Offset
    position: int


@dataclass(frozen=True, slots=True)
class WalkedChunk:
    """The header of a chunk, and the byte at which the chunk begins."""

    header: ChunkHeader
    position: int

    @property
    def end(self) -> SegmentPosition:
        """The position after the chunk."""
        return SegmentPosition(self.header.next_offset, self.position + self.header.total_bytes)


@dataclass(frozen=True, slots=True)
class Border:
    """A position at which a slice may begin or end.

    `user_chunk` is the user chunk that ends there, None at the start of a segment.
    """

    at: SegmentPosition
    user_chunk: WalkedChunk | None = None


class SegmentWalk:
    """What is known of the segment at `path`, whose first chunk has the id `first_offset`.

    `end` is the position after the last whole chunk. `borders` depend on the data alone, so that every agent cuts
    slices at the same ones: the segment's start, and with `every_ms` the time borders. `first` and `last` are the
    outermost chunks, `first_user` and `last_user` the outermost user chunks; each is None until there is one.
    """

    def __init__(
        self, path: Path, first_offset: Offset, every_ms: int | None = None, quiet: QuietSpans | None = None
    ) -> None:
        self.path = path
        self.first_offset = first_offset
        self._every_ms = every_ms
        self._quiet = quiet
        self._restart()

    def _restart(self) -> None:
        self.end = self.start
        self.borders = [Border(self.end)]
        self.first: WalkedChunk | None = None
        self.last: WalkedChunk | None = None
        self.first_user: WalkedChunk | None = None
        self.last_user: WalkedChunk | None = None
        self.size_bytes = 0
        self._time_borders = TimeBorders(self._every_ms, self._quiet)

    @property
    def start(self) -> SegmentPosition:
        """The position before the first chunk."""
        return SegmentPosition(self.first_offset, SEGMENT_HEADER_BYTES)

    @property
    def has_time_borders(self) -> bool:
        """Whether the time may end a slice, too."""
        return self._every_ms is not None

    @property
    def is_at_end(self) -> bool:
        """Whether the file ends with the last whole chunk."""
        return self.end.position == self.size_bytes

    def advance(self) -> None:
        """Walk on to the end of the file. Raises FileNotFoundError."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            self.size_bytes = os.fstat(fd).st_size
            if self.last is not None and self._header_at(fd, self.last.position) != self.last.header:
                self._restart()
                # The first size may be from before the truncation: by it, a chunk that is half written could pass for
                # whole.
                self.size_bytes = os.fstat(fd).st_size
            while (header := self._header_at(fd, self.end.position)) is not None:
                # The size is older than the header. A chunk that reaches past it may still be half written.
                if int(header.chunk_id) != self.end.offset or self.end.position + header.total_bytes > self.size_bytes:
                    return
                self._take(WalkedChunk(header, self.end.position))
        finally:
            os.close(fd)

    def border_at_or_before(self, offset: Offset) -> Border:
        """Return the last border that is not past `offset`, and forget those before it."""
        passed = bisect_right(self.borders, offset, key=lambda border: border.at.offset)
        # Archiving never goes back, and without this the list would grow as long as the file does.
        del self.borders[: max(0, passed - 1)]
        return self.borders[0]

    def last_border(self, now: TimestampMs) -> Border:
        """Return the last border. The end of the last user chunk counts as one when its time span is over."""
        if self.last_user is not None and self._time_borders.is_over(now):
            return Border(self.last_user.end, self.last_user)
        return self.borders[-1]

    def header_at(self, position: int) -> ChunkHeader | None:
        """Read the chunk header at a byte; return None if there is none. Raises FileNotFoundError."""
        with self.path.open("rb") as file:
            return self._header_at(file.fileno(), position)

    def find(self, chunk_id: ChunkId) -> WalkedChunk | None:
        """Find a chunk by its id. Reads all headers before it. Raises FileNotFoundError."""
        found = next((chunk for chunk in self._chunks() if chunk.header.chunk_id >= chunk_id), None)
        return found if found is not None and found.header.chunk_id == chunk_id else None

    def user_chunk_at(self, offset: Offset) -> WalkedChunk | None:
        """Return the first user chunk that reaches past an offset. Reads all headers before it.

        Raises FileNotFoundError.
        """
        chunks = (chunk for chunk in self._chunks() if chunk.header.type is ChunkType.USER)
        return next((chunk for chunk in chunks if chunk.end.offset > offset), None)

    def last_user_before(self, offset: Offset) -> WalkedChunk | None:
        """Return the last user chunk that does not reach past `offset`. Reads all headers before it.

        Raises FileNotFoundError.
        """
        found = None
        for chunk in self._chunks():
            if chunk.end.offset > offset:
                break
            if chunk.header.type is ChunkType.USER:
                found = chunk
        return found

    def _chunks(self) -> Iterator[WalkedChunk]:
        """Read the headers of the chunks that were walked, and stop where the broker has written others since."""
        with self.path.open("rb") as file:
            at = self.start
            while at.position < self.end.position:
                header = self._header_at(file.fileno(), at.position)
                if header is None or int(header.chunk_id) != at.offset:
                    return
                chunk = WalkedChunk(header, at.position)
                yield chunk
                at = chunk.end

    def _take(self, chunk: WalkedChunk) -> None:
        if self._time_borders.take(chunk.header) is Side.PART:
            # The border is before the tracking chunks that follow the last user chunk: they belong to the next slice.
            assert self.last_user is not None
            self.borders.append(Border(self.last_user.end, self.last_user))
        if chunk.header.type is ChunkType.USER:
            self.first_user = self.first_user or chunk
            self.last_user = chunk
        self.first = self.first or chunk
        self.last = chunk
        self.end = chunk.end

    def _header_at(self, fd: int, position: int) -> ChunkHeader | None:
        raw = os.pread(fd, CHUNK_HEADER_BYTES, position)
        if len(raw) < CHUNK_HEADER_BYTES:
            return None
        try:
            return ChunkHeader.from_bytes(raw, source=str(self.path), position=position)
        except CorruptionError:
            return None
