"""A copy of a stream as it is on a node's disk: all chunks that there ever were, if it is copied often enough."""

from __future__ import annotations

from pathlib import Path

from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES


class DiskArchive:
    """The chunks of a stream."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def copy(self, directory: Path) -> None:
        """Add what is new in the directory that a node keeps the stream in."""
        for segment in sorted(directory.glob("*.segment")):
            for chunk in iter_chunks(segment.read_bytes()[SEGMENT_HEADER_BYTES:], source=segment.name):
                if not self.chunks or chunk.header.chunk_id == self.chunks[-1].header.next_offset:
                    self.chunks.append(chunk)

    def to_bytes(self, *, without: int = 0) -> bytes:
        """Return all but the last chunks, one after the other."""
        kept = self.chunks[: len(self.chunks) - without]
        return b"".join(each for one in kept for each in (one.header.to_bytes(), one.bloom, one.data, one.trailer))

    def delivered_at(self, offset: int) -> tuple[int, bytes]:
        """Return where the chunk ends that a client is to get at an offset, and its bytes."""
        chunk = next(
            one for one in self.chunks if one.header.next_offset > offset and one.header.type is ChunkType.USER
        )
        return chunk.header.next_offset, chunk.header.to_bytes() + bytes(chunk.data)

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return next(one.header.next_offset for one in reversed(self.chunks) if one.header.type is ChunkType.USER)
