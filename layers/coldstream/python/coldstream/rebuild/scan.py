"""Read a whole object for what only its chunks say, if its metadata has no note: objects of earlier releases.

Chunk types and epochs are in the headers of the chunks alone, and the CRC-32 of what a compressed object decompresses
to is nowhere. Every chunk is verified on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from coldstream.errors import BadCountError, TruncatedError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.format.seekable import decompress_frames
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import LastUserChunk
from coldstream.manifest.note import EntryNote
from coldstream.rebuild.footer import ObjectFooter
from coldstream.store.ports import ListedObject, ObjectReads
from coldstream.units import MIB, ByteRange, Epoch, Offset

BLOCK_BYTES = 8 * MIB
"""Bytes of one GET; of a compressed object as many whole frames as fit, one at least."""


def scan_note(objects: ObjectReads, listed: ListedObject, footer: ObjectFooter, segment_offset: Offset) -> EntryNote:
    """Make the note that the object should have had. Cost: a GET each 8 MiB. Memory: one block, decompressed.

    Raises CorruptionError, naming key and position, for the first fault in any chunk.
    """
    scanner = SegmentScanner(listed.key, first_offset=footer.trailer.first_offset)
    data_crc32 = chunks = messages = 0
    first_epoch: Epoch | None = None
    last_user: LastUserChunk | None = None
    last: ChunkHeader | None = None
    for block in _blocks(objects, listed, footer):
        for event in scanner.feed(block):
            if not isinstance(event, ChunkEnd):
                continue
            last = event.header
            chunks += 1
            data_crc32 = combine_crc32(data_crc32, event.crc32, last.total_bytes)
            if last.type is ChunkType.USER:
                first_epoch = last.epoch if first_epoch is None else first_epoch
                last_user = LastUserChunk(last.chunk_id, event.position, last.timestamp)
                messages += last.records
    scanner.close()
    expected = footer.trailer.chunks, footer.trailer.next_offset
    if last is None or (chunks, last.next_offset) != expected:
        found = chunks, last and last.next_offset
        what = "chunks and next offset, as the trailer has them"
        raise BadCountError(listed.key, FRAGMENT_HEADER_BYTES, what, expected=expected, found=found)
    return EntryNote(segment_offset, last.epoch, first_epoch, messages, last_user, data_crc32)


def scan_crc32(objects: ObjectReads, listed: ListedObject) -> int:
    """Return the CRC-32 of a whole object, of which the store keeps none. Cost: a GET each 8 MiB."""
    found = 0
    for start in range(0, listed.size_bytes, BLOCK_BYTES):
        found = crc32(_read(objects, listed, start, min(start + BLOCK_BYTES, listed.size_bytes)), found)
    return found


def _blocks(objects: ObjectReads, listed: ListedObject, footer: ObjectFooter) -> Iterator[bytes | memoryview]:
    """Yield header and chunks in the identity encoding."""
    if footer.frame_positions is None or footer.content_positions is None:
        end = footer.trailer.data_range.end
        for start in range(0, end, BLOCK_BYTES):
            yield _read(objects, listed, start, min(start + BLOCK_BYTES, end))
        return
    yield SEGMENT_HEADER
    positions = footer.frame_positions
    contents = (*footer.content_positions, footer.trailer.data_range.end)
    first = 0
    for following in range(1, len(positions)):
        is_last = following == len(positions) - 1
        # A compressed block may be much larger once decompressed: so that size counts, too.
        if is_last or contents[following + 1] - contents[first] > BLOCK_BYTES:
            start, end = positions[first], positions[following]
            frames = _read(objects, listed, start, end)
            yield decompress_frames(frames, contents[following] - contents[first], source=listed.key, position=start)
            first = following


def _read(objects: ObjectReads, listed: ListedObject, start: int, end: int) -> bytes:
    found = objects.get_range(listed.key, ByteRange(start, end), if_match=listed.etag).data
    if len(found) != end - start:
        raise TruncatedError(listed.key, start, "fragment is cut short", expected=end - start, found=len(found))
    return found
