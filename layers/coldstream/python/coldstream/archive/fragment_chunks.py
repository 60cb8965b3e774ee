"""The chunks of an archived fragment, read again to compare another copy with them, in whichever encoding it has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from coldstream.errors import BadLengthError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.ports import ObjectReads
from coldstream.units import MIB, ByteRange, Offset

BLOCK_BYTES = 4 * MIB
"""Bytes of one read of an identity fragment. A compressed one is read frame by frame."""


def fragment_chunks(objects: ObjectReads, entry: FragmentEntry, offset: Offset) -> Iterator[ChunkHeader]:
    """Yield the verified headers of a fragment's chunks, from the chunk that holds `offset` on.

    Cost: a GET for each 4 MiB that is taken, or for each frame. Memory: a block, or a frame and what it expands to.
    Raises CorruptionError, ObjectNotFoundError.
    """
    number = entry.sparse.at_offset(offset)
    scanner = SegmentScanner(entry.key, position=entry.sparse.points[number].position)
    for block in _blocks(objects, entry, number):
        for event in scanner.feed(block):
            if isinstance(event, ChunkEnd) and event.header.next_offset > offset:
                yield event.header
    scanner.close()


def _blocks(objects: ObjectReads, entry: FragmentEntry, number: int) -> Iterator[bytes | memoryview]:
    """Yield the chunks' bytes in the identity encoding, from point `number` of the sparse index on."""
    end = FRAGMENT_HEADER_BYTES + entry.data_bytes
    points = [point.position for point in entry.sparse.points[number:]]
    if entry.frames is None:
        for start in range(points[0], end, BLOCK_BYTES):
            yield _read(objects, entry, ByteRange(start, min(start + BLOCK_BYTES, end)))
        return
    # Imported here because it loads zstandard, which functions need for nothing else.
    from coldstream.format.seekable import decompress_frames  # noqa: PLC0415

    frames = entry.frames.positions[number:]
    for (position, following), (start, stop) in zip(pairwise((*points, end)), pairwise(frames), strict=True):
        data = _read(objects, entry, ByteRange(start, stop))
        yield decompress_frames(data, following - position, source=entry.key, position=start)


def _read(objects: ObjectReads, entry: FragmentEntry, byte_range: ByteRange) -> bytes:
    block = objects.get_range(entry.key, byte_range)
    if block.object_bytes != entry.object_bytes:
        raise BadLengthError(entry.key, 0, "size of the object", expected=entry.object_bytes, found=block.object_bytes)
    return block.data
