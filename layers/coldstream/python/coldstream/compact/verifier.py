"""The fragments of a group as one stream of chunks, of which every byte is verified."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain, groupby
from zlib import crc32

from coldstream.compact.blocks import Block, read_blocks
from coldstream.compact.footer import Footer
from coldstream.errors import BadCountError, BadCrcError, BadSequenceError, ConflictError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES, FragmentIndexRecord
from coldstream.format.scanner import ChunkBegin, ChunkEnd, ScanEvent, SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import Encoding, FragmentEntry, LastUserChunk
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore


def read_verified(
    objects: ObjectStore, group: Group, should_stop: Callable[[], bool]
) -> Generator[ScanEvent | Footer, None, None]:
    """Yield the events of all chunks, and after the last chunk of each fragment its footer.

    Positions are those in the merged fragment, except in errors. Rely on a chunk only once the footer of its fragment
    has come: only then has the whole object been read, the CRC-32 of its bytes is the manifest's, and chunks, index and
    manifest agree.

    Raises CorruptionError of the kind that fits, ObjectNotFoundError, StoppedError, and ConflictError if an object is
    replaced while it is read.
    """
    shift = 0
    with closing(read_blocks(objects, group, should_stop)) as blocks:
        for _, blocks_of_one in groupby(blocks, key=lambda block: block.plan.entry.key):
            first = next(blocks_of_one)
            verifier = _FragmentVerifier(first.plan.entry, shift, first.etag)
            for block in chain((first,), blocks_of_one):
                for event in verifier.feed(block):
                    yield event._replace(position=event.position + shift) if isinstance(event, ChunkBegin) else event
            yield verifier.finish()
            shift += first.plan.entry.data_bytes


class _FragmentVerifier:
    """Compares one fragment, block by block, with what its entry in the manifest says."""

    def __init__(self, entry: FragmentEntry, shift: int, etag: str) -> None:
        self._entry = entry
        self._shift = shift
        self._etag = etag
        self._scanner = SegmentScanner(entry.key, first_offset=entry.first_offset)
        self._records = bytearray()
        self._data_left = FRAGMENT_HEADER_BYTES + entry.data_bytes
        self._footer = bytearray()
        self._object_crc32 = 0
        self._data_crc32 = crc32(SEGMENT_HEADER)
        self._messages = 0
        self._last: ChunkHeader | None = None
        self._last_user: LastUserChunk | None = None

    def feed(self, block: Block) -> Iterator[ScanEvent]:
        # Two versions of an object could each be sound, and their halves together still be no fragment.
        if block.etag != self._etag:
            raise ConflictError(f"{self._entry.key} was replaced while it was read")
        self._object_crc32 = combine_crc32(self._object_crc32, block.crc32, len(block.plan.byte_range))
        for event in self._scanner.feed(block.content[: self._data_left]):
            if isinstance(event, ChunkEnd):
                self._count(event)
            yield event
        self._footer += block.content[self._data_left :]
        self._data_left = max(0, self._data_left - len(block.content))

    def finish(self) -> Footer:
        entry = self._entry
        self._scanner.close()
        footer = Footer.from_bytes(bytes(self._footer), entry, self._shift)
        if footer.records != self._records:
            raise BadSequenceError(entry.key, footer.trailer.index_position, "the index has other chunks than the data")
        last = self._last
        expected = entry.next_offset, entry.epoch, entry.messages, entry.last_user_chunk
        found = last and (last.next_offset, last.epoch, self._messages, self._last_user)
        if found != expected:
            raise BadCountError(
                entry.key,
                FRAGMENT_HEADER_BYTES,
                "next offset, epoch, messages and last user chunk, as the manifest has them",
                expected=expected,
                found=found,
            )
        self._check_crc32(footer)
        return footer

    def _check_crc32(self, footer: Footer) -> None:
        """Compare the CRC-32 of what was read, and for identity also of what the scanner saw, with the manifest's."""
        entry = self._entry
        found = {self._object_crc32}
        if entry.encoding is Encoding.IDENTITY:
            found.add(combine_crc32(self._data_crc32, footer.crc32, footer.size_bytes))
        if found != {entry.crc32}:
            raise BadCrcError(entry.key, 0, "CRC-32 of the object", expected=entry.crc32, found=sorted(found))

    def _count(self, chunk: ChunkEnd) -> None:
        header = chunk.header
        position = chunk.position + self._shift
        self._records += FragmentIndexRecord(header.chunk_id, header.timestamp, position).to_bytes()
        self._data_crc32 = combine_crc32(self._data_crc32, chunk.crc32, header.total_bytes)
        if header.type is ChunkType.USER:
            self._messages += header.records
            self._last_user = LastUserChunk(header.chunk_id, chunk.position, header.timestamp)
        self._last = header
