"""The fragments of a group as one source of chunks, each byte of them verified before the last word is said."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
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
    """Yield the events of all chunks, and behind the last one of each fragment its footer.

    Positions are those in the merged fragment, except in errors. What is yielded may be relied on once the footer
    behind it came: then the chunks are sound, index and manifest agree with them, and the bytes of the object, all of
    them read, are those of the CRC-32 that the manifest has.

    Raises CorruptionError of the kind that fits, ObjectNotFoundError, ConflictError where an object is replaced
    meanwhile, StoppedError.
    """
    shift = 0
    with closing(read_blocks(objects, group, should_stop)) as blocks:
        for _, of_one in groupby(blocks, key=lambda block: block.plan.entry.key):
            first = next(of_one)
            verifier = _Verifier(first.plan.entry, shift, first.etag)
            for block in chain((first,), of_one):
                for event in verifier.feed(block):
                    yield replace(event, position=event.position + shift) if isinstance(event, ChunkBegin) else event
            yield verifier.finish()
            shift += first.plan.entry.data_bytes


class _Verifier:
    """Holds one fragment to what its entry says."""

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
        if block.etag != self._etag:
            raise ConflictError(f"GET {self._entry.key}: the object there is another")
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
        said = entry.next_offset, entry.epoch, entry.messages, entry.last_user_chunk
        found = last and (last.next_offset, last.epoch, self._messages, self._last_user)
        if said != found:
            raise BadCountError(
                entry.key,
                FRAGMENT_HEADER_BYTES,
                "next offset, epoch, messages and last user chunk, as the manifest has them",
                expected=said,
                found=found,
            )
        self._check_crc32(footer)
        return footer

    def _check_crc32(self, footer: Footer) -> None:
        """Hold what was read to the manifest's CRC-32; of identity, also what the scanner saw."""
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
