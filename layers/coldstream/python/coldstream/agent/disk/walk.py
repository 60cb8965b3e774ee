"""Walk the chunk headers of a segment file that the broker may still be writing to.

Only headers are read, 48 bytes a chunk; the data behind them is verified where it is archived. What cannot be a chunk,
or is not whole yet, ends the walk: the next one looks again. A replica whose leader was lost may truncate its newest
chunks and write others in their place (osiris_log:truncate_to/4), so each walk first looks whether its last chunk still
stands.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coldstream.archive.borders import Side, TimeBorders
from coldstream.errors import CorruptionError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.units import ChunkId, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class SegmentPosition:
    """A place between two chunks: the chunk behind it begins at byte `position`, and has the id `offset`."""

    offset: Offset
    position: int


@dataclass(frozen=True, slots=True)
class WalkedChunk:
    """A chunk, and the byte at which it begins."""

    header: ChunkHeader
    position: int

    @property
    def end(self) -> SegmentPosition:
        """The place behind the chunk."""
        return SegmentPosition(self.header.next_offset, self.position + self.header.total_bytes)


@dataclass(frozen=True, slots=True)
class Border:
    """A place where an upload begins anew. `behind` is the user chunk that ends there, None at a segment's start."""

    place: SegmentPosition
    behind: WalkedChunk | None = None


class SegmentWalk:
    """What is known of the segment at `path`, whose first chunk has the id `first_offset`.

    `end` is the place behind the last whole chunk. `borders` are the places where an upload of the segment begins anew,
    whoever does it and whenever: its start, and with `every_ms` the time borders. `first_user` and `last_user` are the
    outermost user chunks; all are None while there are none.
    """

    def __init__(self, path: Path, first_offset: Offset, every_ms: int | None = None) -> None:
        self.path = path
        self.first_offset = first_offset
        self._every_ms = every_ms
        self._restart()

    def _restart(self) -> None:
        self.end = self.start
        self.borders = [Border(self.end)]
        self.first: WalkedChunk | None = None
        self.last: WalkedChunk | None = None
        self.first_user: WalkedChunk | None = None
        self.last_user: WalkedChunk | None = None
        self.size_bytes = 0
        self._time_borders = TimeBorders(self._every_ms)

    @property
    def start(self) -> SegmentPosition:
        """The place before the first chunk."""
        return SegmentPosition(self.first_offset, SEGMENT_HEADER_BYTES)

    @property
    def is_at_end(self) -> bool:
        """Tell whether the file ends with the last whole chunk."""
        return self.end.position == self.size_bytes

    def advance(self) -> None:
        """Walk on to the end of the file. Raises FileNotFoundError."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            self.size_bytes = os.fstat(fd).st_size
            if self.last is not None and self._header_at(fd, self.last.position) != self.last.header:
                self._restart()
                self.size_bytes = os.fstat(fd).st_size
            while (header := self._header_at(fd, self.end.position)) is not None:
                if int(header.chunk_id) != self.end.offset or self.end.position + header.total_bytes > self.size_bytes:
                    return
                self._take(WalkedChunk(header, self.end.position))
        finally:
            os.close(fd)

    def border_at_or_before(self, offset: Offset) -> Border:
        """Return the last border that is not past `offset`, and forget those before it."""
        passed = bisect_right(self.borders, offset, key=lambda border: border.place.offset)
        del self.borders[: max(0, passed - 1)]
        return self.borders[0]

    def last_border(self, now: TimestampMs) -> Border:
        """Return the last border; the end of the last user chunk is one as well, a while after its span is over.

        The while is another span: a leader whose clock is behind ours by less adds nothing to a span that we closed.
        """
        if self._every_ms is not None and self.last_user is not None:
            window = self._time_borders.window(self.last_user.header.timestamp)
            if (window + 2) * self._every_ms <= now:
                return Border(self.last_user.end, self.last_user)
        return self.borders[-1]

    def header_at(self, position: int) -> ChunkHeader | None:
        """Read the chunk header at a byte, None where there is none. Raises FileNotFoundError."""
        with self.path.open("rb") as file:
            return self._header_at(file.fileno(), position)

    def find(self, chunk_id: ChunkId) -> WalkedChunk | None:
        """Find a chunk by its id, by a walk from the start. Raises FileNotFoundError."""
        found = next((chunk for chunk in self._chunks() if chunk.header.chunk_id >= chunk_id), None)
        return found if found is not None and found.header.chunk_id == chunk_id else None

    def user_chunk_at(self, offset: Offset) -> WalkedChunk | None:
        """Return the first user chunk that reaches past an offset, by a walk. Raises FileNotFoundError."""
        chunks = (chunk for chunk in self._chunks() if chunk.header.type is ChunkType.USER)
        return next((chunk for chunk in chunks if chunk.end.offset > offset), None)

    def last_user_before(self, offset: Offset) -> WalkedChunk | None:
        """Return the last user chunk that does not reach past `offset`, by a walk. Raises FileNotFoundError."""
        found = None
        for chunk in self._chunks():
            if chunk.end.offset > offset:
                break
            if chunk.header.type is ChunkType.USER:
                found = chunk
        return found

    def _chunks(self) -> Iterator[WalkedChunk]:
        """Read the headers of the chunks that were walked."""
        with self.path.open("rb") as file:
            place = self.start
            while place.position < self.end.position:
                header = self._header_at(file.fileno(), place.position)
                if header is None or int(header.chunk_id) != place.offset:
                    return
                chunk = WalkedChunk(header, place.position)
                yield chunk
                place = chunk.end

    def _take(self, chunk: WalkedChunk) -> None:
        if self._time_borders.take(chunk.header) is Side.PART:
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
