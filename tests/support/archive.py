"""An archive in memory, built fragment by fragment from chunks of any shape: what `resolve` and `read` are tried on.

Fragments have a point of their sparse index every `sparse_bytes`, so that small ones have several.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from coldstream.archive.commit import commit_fragment
from coldstream.errors import StaleGenerationError
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.entry import SubBatch
from coldstream.format.fragment import FragmentIndexRecord, build_footer
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import FragmentEntry, LastUserChunk
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NOW = TimestampMs(1_763_800_000_000)


@dataclass(frozen=True)
class Spec:
    """A chunk to be: so many records, of a kind, at a time."""

    records: int
    timestamp: int
    kind: ChunkType = ChunkType.USER


@dataclass(frozen=True)
class StoredChunk:
    """A chunk in the archive."""

    header: ChunkHeader
    key: str
    position: int
    data: bytes


class ChunkArchive:
    """One stream in memory doubles. `chunks` are those archived, in the order of their offsets."""

    def __init__(
        self,
        stream: StreamId = STREAM,
        *,
        objects: MemoryObjects | None = None,
        message_bytes: int = 20,
        sparse_bytes: int = 250,
    ) -> None:
        self.stream = stream
        self.table = MemoryTable()
        self.objects = objects or MemoryObjects()
        self.stored: dict[int, StoredChunk] = {}
        self._message_bytes = message_bytes
        self._sparse_bytes = sparse_bytes

    @property
    def chunks(self) -> list[StoredChunk]:
        return [self.stored[chunk_id] for chunk_id in sorted(self.stored)]

    def put(self, first_offset: int, specs: Sequence[Spec], *, generation: int = 0) -> FragmentEntry:
        """Store a fragment's object, and return its entry; `commit` makes it part of the archive."""
        key = Keys().fragment(self.stream.incarnation, Offset(first_offset), generation)
        body = bytearray(SEGMENT_HEADER)
        index = bytearray()
        points: list[SparsePoint] = []
        headers: list[ChunkHeader] = []
        last_user = None
        for ordinal, spec in enumerate(specs):
            chunk_id = headers[-1].next_offset if headers else Offset(first_offset)
            header, data = make_chunk(
                self.entries(chunk_id, spec.records),
                chunk_id=ChunkId(chunk_id),
                timestamp=TimestampMs(spec.timestamp),
                epoch=Epoch(1),
                kind=spec.kind,
            )
            position = len(body)
            before = max((earlier.timestamp for earlier in headers), default=header.timestamp)
            if not points or position - points[-1].position >= self._sparse_bytes:
                points.append(SparsePoint(header.chunk_id, ordinal, position, header.timestamp, before))
            if spec.kind is ChunkType.USER:
                last_user = LastUserChunk(header.chunk_id, position, header.timestamp)
            index += FragmentIndexRecord(header.chunk_id, header.timestamp, position).to_bytes()
            self.stored[header.chunk_id] = StoredChunk(header, key, position, data)
            headers.append(header)
            body += data
        data_bytes = len(body) - SEGMENT_HEADER_BYTES
        body += build_footer(
            index,
            source=key,
            next_offset=headers[-1].next_offset,
            sequence_number=0,
            data_bytes=data_bytes,
            chunks_before=0,
            data_position=SEGMENT_HEADER_BYTES,
        )
        self.objects.put_new(key, io.BytesIO(body), size_bytes=len(body), crc32=crc32(body))
        return FragmentEntry(
            first_offset=Offset(first_offset),
            next_offset=headers[-1].next_offset,
            first_timestamp=headers[0].timestamp,
            last_timestamp=headers[-1].timestamp,
            greatest_timestamp=max(header.timestamp for header in headers),
            epoch=Epoch(1),
            chunks=len(headers),
            records=headers[-1].next_offset - first_offset,
            messages=sum(header.records for header in headers if header.type is ChunkType.USER),
            data_bytes=data_bytes,
            object_bytes=len(body),
            key=key,
            crc32=crc32(body),
            sparse=SparseIndex(tuple(points)),
            last_user_chunk=last_user,
            segment_offset=Offset(first_offset),
            generation=generation,
        )

    def commit(self, entry: FragmentEntry) -> FragmentEntry:
        """Commit an entry, and return it. If its key was fenced off, put the bytes at another, as an upload does."""
        try:
            assert commit_fragment(self.table, self.stream, entry, lambda: NOW)
        except StaleGenerationError as err:
            key = Keys().fragment(self.stream.incarnation, entry.first_offset, err.generation)
            self.objects.put(key, self.objects.objects[entry.key])
            for chunk_id, chunk in self.stored.items():
                if chunk.key == entry.key:
                    self.stored[chunk_id] = replace(chunk, key=key)
            return self.commit(replace(entry, key=key, generation=err.generation))
        return entry

    def add(self, first_offset: int, specs: Sequence[Spec]) -> FragmentEntry:
        """Store a fragment and commit it."""
        return self.commit(self.put(first_offset, specs))

    def entries(self, chunk_id: int, records: int) -> list[bytes | SubBatch]:
        """Make the entries of a chunk: a message each."""
        return [self.message(chunk_id + number) for number in range(records)]

    def message(self, offset: int) -> bytes:
        """Make the message at an offset: its own, then filling."""
        return offset.to_bytes(8) + bytes(max(0, self._message_bytes - 8))


def steady(records: int, *timestamps: int) -> list[Spec]:
    """Make user chunks of so many records each, one at each time."""
    return [Spec(records, timestamp) for timestamp in timestamps]


def random_archive(rng: random.Random, *, gaps: float = 0.2, disorder: float = 0.3) -> ChunkArchive:
    """Make a stream of a few fragments: times that repeat and run backwards, tracking chunks, holes, late commits."""
    archive = ChunkArchive(sparse_bytes=rng.choice([60, 200, 10_000]))
    offset = rng.choice([0, 0, rng.randrange(1, 100)])
    now = rng.randrange(0, 50)
    entries: list[FragmentEntry] = []
    for number in range(rng.randrange(1, 9)):
        specs = []
        for _ in range(rng.randrange(1, 9)):
            kind = rng.choice([ChunkType.USER] * 4 + [ChunkType.TRACKING_DELTA, ChunkType.TRACKING_SNAPSHOT])
            specs.append(Spec(1 if kind is not ChunkType.USER else rng.randrange(1, 5), now, kind))
            now += rng.choice([0, 0, 1, 1, 2, 5])
            if rng.random() < disorder / 3:
                now -= rng.randrange(0, 12)
        if number > 0 and rng.random() < gaps:
            offset += sum(spec.records for spec in specs)
            continue
        entries.append(archive.put(offset, specs))
        offset = entries[-1].next_offset
    if not entries:
        return archive
    if rng.random() < disorder:
        rng.shuffle(entries)
    for entry in entries:
        archive.commit(entry)
    return archive


def holes(chunks: Iterable[StoredChunk]) -> list[tuple[int, int]]:
    """List what lies between chunks that are not neighbours: first and next offset."""
    found = []
    before = None
    for chunk in chunks:
        if before is not None and before.header.next_offset < chunk.header.chunk_id:
            found.append((int(before.header.next_offset), int(chunk.header.chunk_id)))
        before = chunk
    return found
