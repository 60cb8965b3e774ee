"""A direct stream in memory, and chunks that are to be flushed into it."""

from __future__ import annotations

import random
from collections.abc import Iterable

from coldstream.format.chunk import iter_chunks
from coldstream.format.fragment import FragmentTrailer
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.format.writer import make_chunk
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.appending import plan_create, plan_open, plan_recovered
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.races import retry_lost_races
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

STREAM = StreamId("/", "direct", Incarnation("__direct_1763700000000000000"))
NOW = TimestampMs(1_763_700_000_000)
FIRST = Offset(100)
"""The offset at which the stream begins."""


def direct_archive(table: MemoryTable | None = None, objects: MemoryObjects | None = None) -> DirectArchive:
    """Return an archive in memory."""
    return DirectArchive(table or MemoryTable(), objects or MemoryObjects(), Keys("archive/"), lambda: NOW)


def create(archive: DirectArchive, stream: StreamId = STREAM) -> None:
    """Create a stream, and open it for the first time."""
    archive.control.write_stream(stream)
    archive.table.apply(plan_create(stream, NOW, first=FIRST, properties={}))
    open_stream(archive, stream)


def open_stream(archive: DirectArchive, stream: StreamId = STREAM, *, writer: str = "writer") -> Epoch:
    """Open a stream once more, in the next write-ahead log of a writer; return its epoch."""

    def attempt() -> Epoch:
        head = archive.table.head(stream.incarnation)
        assert head is not None
        assert head.appender is not None
        epoch = Epoch(head.appender.epoch + 1)
        archive.table.apply(plan_open(head, WalPlace(WalKind.S3, writer, epoch), NOW))
        return epoch

    return retry_lost_races(attempt)


def forget_openings(archive: DirectArchive, stream: StreamId = STREAM) -> None:
    """Say that all but the last opening are recovered."""

    def attempt() -> None:
        head = archive.table.head(stream.incarnation)
        assert head is not None
        assert head.appender is not None
        archive.table.apply(plan_recovered(head, head.appender.epoch, NOW))

    retry_lost_races(attempt)


def batches(
    count: int, *, first: int = FIRST, epoch: int = 1, seed: int = 1, message_bytes: int = 50
) -> tuple[CachedChunk, ...]:
    """Return chunks of one to four messages, one after the other."""
    rng = random.Random(seed)
    made: list[CachedChunk] = []
    at = first
    for number in range(count):
        messages = [rng.randbytes(message_bytes) for _ in range(rng.randrange(1, 5))]
        timestamp = TimestampMs(NOW + number)
        header, data = make_chunk(messages, chunk_id=ChunkId(at), timestamp=timestamp, epoch=Epoch(epoch))
        made.append(CachedChunk(Offset(at), header.next_offset, timestamp, Epoch(epoch), data))
        at = header.next_offset
    return tuple(made)


def entries(archive: DirectArchive, stream: StreamId = STREAM) -> tuple[FragmentEntry, ...]:
    """Return the log of a stream."""
    return archive.table.log_from_offset(stream.incarnation, Offset(0), 10_000).entries


def archived(archive: DirectArchive, stream: StreamId = STREAM) -> list[bytes]:
    """Return the bytes of each chunk in the archive, in the order of the log; each object is verified on the way."""
    return [data for entry in entries(archive, stream) for data in _chunks(archive, entry)]


def _chunks(archive: DirectArchive, entry: FragmentEntry) -> Iterable[bytes]:
    assert isinstance(archive.objects, MemoryObjects)
    body = archive.objects.objects[entry.key]
    trailer = FragmentTrailer.from_bytes(body[-46:], source=entry.key, object_bytes=len(body))
    assert (trailer.first_offset, trailer.next_offset) == (entry.first_offset, entry.next_offset)
    data = body[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes]
    for chunk in iter_chunks(data, source=entry.key, expected=ChunkId(entry.first_offset)):
        yield data[chunk.position : chunk.position + chunk.header.total_bytes]
