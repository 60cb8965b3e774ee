"""What stands in a part of an object: whole chunks, each one verified. Only here do readers know of encodings."""

from __future__ import annotations

from typing import Protocol

from coldstream.errors import BadSequenceError
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.seekable import decompress_frames
from coldstream.manifest.entry import Encoding
from coldstream.units import ByteRange, ChunkId, Offset


class ChunkRange(Protocol):
    """Where whole chunks are, as an answer of the resolver or the plan of a scan says."""

    @property
    def key(self) -> str:
        """The object."""
        ...

    @property
    def byte_range(self) -> ByteRange:
        """Where in the object."""
        ...

    @property
    def encoding(self) -> Encoding:
        """How the bytes there hold the chunks."""
        ...

    @property
    def data_bytes(self) -> int:
        """Size of the chunks."""
        ...

    @property
    def first_offset(self) -> Offset:
        """Id of the first chunk."""
        ...

    @property
    def next_offset(self) -> Offset:
        """Offset after the last chunk."""
        ...


def chunks_in(part: ChunkRange, data: bytes) -> list[Chunk]:
    """Return the chunks that `data`, all of the part's bytes, holds. They share its memory, or what it unpacks to.

    Raises CorruptionError where it is not what the part says.
    """
    source, position, content = part.key, part.byte_range.start, memoryview(data)
    match part.encoding:
        case Encoding.IDENTITY:
            pass
        case Encoding.ZSTD_SEEKABLE:
            content = decompress_frames(content, part.data_bytes, source=source, position=position)
            source, position = f"{source}, decompressed from byte {position} on,", 0
    chunks = list(iter_chunks(content, source=source, position=position, expected=ChunkId(part.first_offset)))
    found = chunks[-1].header.next_offset if chunks else part.first_offset
    if found != part.next_offset:
        raise BadSequenceError(source, position, "next offset of a range", expected=part.next_offset, found=found)
    return chunks
