"""The chunks in a range of an object, each one verified. No other module of the readers knows of encodings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from coldstream.format.chunk import Chunk
from coldstream.format.seekable import Fill, decompress_frames, fill_new_memory
from coldstream.format.stored import StoredChunks
from coldstream.manifest.entry import Encoding
from coldstream.units import ByteRange, Offset


class ChunkRange(Protocol):
    """A range of an object that holds whole chunks, out of the resolver's answer or out of the plan of a scan."""

    @property
    def key(self) -> str:
        """The object."""
        ...

    @property
    def byte_range(self) -> ByteRange:
        """The bytes of the object."""
        ...

    @property
    def encoding(self) -> Encoding:
        """How those bytes hold the chunks."""
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


def chunks_in(part: ChunkRange, data: bytes | memoryview, fill: Fill = fill_new_memory) -> list[Chunk]:
    """Return the chunks in `data`, which is all of the range's bytes. They share its memory, or what it unpacks to.

    What is unpacked lies in memory that `fill` gives. Raises CorruptionError if a chunk is damaged, or if they are not
    the ones that the range names.
    """
    return list(stored_chunks(part, data, fill))


def iter_chunks_in(part: ChunkRange, data: bytes | memoryview) -> Iterator[Chunk]:
    """Yield the chunks in `data` as `chunks_in` returns them, each verified when its turn comes.

    A chunk of a hundred bytes takes a thousand as a value: of small ones not all should exist at a time. What is
    compressed is unpacked with the first. Raises what `chunks_in` does, after the chunks before.
    """
    yield from stored_chunks(part, data)


def stored_chunks(part: ChunkRange, data: bytes | memoryview, fill: Fill = fill_new_memory) -> StoredChunks:
    """Return the range's chunks, unpacked and not verified. Raises CorruptionError for what cannot be unpacked."""
    source, position, content = part.key, part.byte_range.start, memoryview(data)
    match part.encoding:
        case Encoding.IDENTITY:
            pass
        case Encoding.ZSTD_SEEKABLE:
            content = decompress_frames(content, part.data_bytes, source=source, position=position, fill=fill)
            # Positions count decompressed bytes from here on, so errors must not give them as bytes of the object.
            source, position = f"{source}, decompressed from byte {position} on,", 0
    return StoredChunks(content, part.first_offset, part.next_offset, source, position)
