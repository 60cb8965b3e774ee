"""Compaction in memory, one transaction at a time: what may stop anywhere, and what the archive must be right on."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from zlib import crc32

from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.fragment import (
    FRAGMENT_HEADER_BYTES,
    FragmentIndexRecord,
    FragmentTrailer,
    build_footer,
    iter_fragment_index,
)
from coldstream.format.seekable import FrameSize, SeekTable, compress_frame, decompress_frames, frame_positions
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.compaction import (
    Unfinished,
    after_replacement,
    plan_removal,
    plan_replacement,
)
from coldstream.manifest.entry import Encoding, FragmentEntry, Head
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import Group
from coldstream.manifest.sparse import SparseIndex
from coldstream.resolve.answer import Range
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.support.archive import NOW, ChunkArchive

DUE = TimestampMs(NOW + 1000)


def identity_of(objects: MemoryObjects, entry: FragmentEntry) -> bytes:
    """Return the fragment in the identity encoding."""
    data = objects.objects[entry.key]
    assert len(data) == entry.object_bytes
    assert crc32(data) == entry.crc32
    if entry.encoding is Encoding.IDENTITY:
        return data
    table = SeekTable.from_bytes(data, source=entry.key, object_bytes=len(data))
    frames = data[: -len(table.to_bytes())]
    return bytes(decompress_frames(frames, table.content_bytes, source=entry.key, position=0))


def joined(fragments: list[bytes], source: str = "joined") -> bytes:
    """Put identity fragments together into one."""
    data, index = bytearray(), bytearray()
    trailers = [FragmentTrailer.from_bytes(one, source=source, object_bytes=len(one)) for one in fragments]
    for one, trailer in zip(fragments, trailers, strict=True):
        records = one[trailer.index_range.start : trailer.index_range.end]
        for record in iter_fragment_index(records, trailer, source=source):
            index += FragmentIndexRecord(record.chunk_id, record.timestamp, record.position + len(data)).to_bytes()
        data += one[trailer.data_range.start : trailer.data_range.end]
    footer = build_footer(
        index,
        source=source,
        next_offset=trailers[-1].next_offset,
        sequence_number=trailers[0].sequence_number,
        data_bytes=len(data),
        chunks_before=trailers[0].chunks_before,
        data_position=trailers[0].data_position,
    )
    return b"".join((SEGMENT_HEADER, data, footer))


def seekable(identity: bytes, sparse: SparseIndex, data_bytes: int) -> tuple[bytes, Frames]:
    """Encode an identity fragment, and say where its frames are."""
    end = FRAGMENT_HEADER_BYTES + data_bytes
    cuts = [0, *(point.position for point in sparse.points), end, len(identity)]
    contents = [identity[start:following] for start, following in pairwise(cuts)]
    frames = [compress_frame(content) for content in contents]
    sizes = tuple(FrameSize(len(one), len(content)) for one, content in zip(frames, contents, strict=True))
    positions = frame_positions(sizes)
    return b"".join((*frames, SeekTable(sizes).to_bytes())), Frames(positions[1:-1])


def decoded(objects: MemoryObjects, part: Range) -> list[Chunk]:
    """Return the chunks of a range, having checked that it is what it says."""
    data = memoryview(objects.objects[part.key])[part.byte_range.start : part.byte_range.end]
    if part.encoding is Encoding.ZSTD_SEEKABLE:
        data = decompress_frames(data, part.data_bytes, source=part.key, position=part.byte_range.start)
    assert len(data) == part.data_bytes
    chunks = list(iter_chunks(data, source=part.key, expected=ChunkId(part.first_offset)))
    assert chunks[0].header.timestamp == part.first_timestamp
    assert chunks[-1].header.next_offset == part.next_offset
    return chunks


class Compaction:
    """Compacts groups of an archive in memory; each of `steps` is one transaction."""

    def __init__(self, archive: ChunkArchive) -> None:
        self._archive = archive

    @property
    def table(self) -> MemoryTable:
        return self._archive.table

    def log(self, first_offset: Offset = Offset(0)) -> tuple[FragmentEntry, ...]:  # noqa: B008  a NewType is its value
        return self.table.log_from_offset(self._archive.stream.incarnation, first_offset, 10_000).entries

    def between(self, first_offset: Offset, next_offset: Offset) -> tuple[FragmentEntry, ...]:
        return tuple(entry for entry in self.log(first_offset) if entry.next_offset <= next_offset)

    def store(self, group: Group, encoding: Encoding) -> FragmentEntry:
        """Write the merged object of a group at a key of its own, which may be committed; return its entry."""
        objects = self._archive.objects
        content = joined([identity_of(objects, entry) for entry in group.entries])
        assert len(content) == group.identity_bytes
        frames = None
        if encoding is Encoding.ZSTD_SEEKABLE:
            content, frames = seekable(content, group.sparse(), group.data_bytes)
        head = self.table.head(self._archive.stream.incarnation)
        generation = max(0 if head is None else head.generation, group.entries[0].generation + 1)
        while (key := self._key(group.first_offset, generation)) in objects.objects:
            generation += 1
        checksum = crc32(content)
        objects.put_new(key, io.BytesIO(content), size_bytes=len(content), crc32=checksum)
        return group.merged(key=key, generation=generation, object_bytes=len(content), crc32=checksum, frames=frames)

    def replace(self, group: Group, merged: FragmentEntry) -> Iterator[None]:
        """Put a merged entry in the place of its group. Raises LostRaceError where that is not there any more."""
        head = self.table.head(self._archive.stream.incarnation)
        assert head is not None
        log = self.between(group.first_offset, group.next_offset)
        change = plan_replacement(head, log, group, merged, at=NOW, due_at=DUE)
        self.table.apply(change)
        yield
        yield from self._remove(change.head, after_replacement(change, log))

    def finish(self) -> Iterator[None]:
        """Remove what an interrupted compaction has left behind."""
        head = self.table.head(self._archive.stream.incarnation)
        if head is None or head.compacting is None:
            return
        merged = self.log(Offset(head.compacting - 1))[0]
        yield from self._remove(head, Unfinished.of(head, self.log(merged.first_offset)))

    def _remove(self, head: Head, unfinished: Unfinished | None) -> Iterator[None]:
        while unfinished is not None:
            change = plan_removal(head, unfinished, at=NOW, due_at=DUE)
            self.table.apply(change)
            yield
            head, unfinished = change.head, unfinished.after(change)

    def _key(self, first_offset: Offset, generation: int) -> str:
        return Keys().fragment(self._archive.stream.incarnation, first_offset, generation)
