"""Archives for views of messages: of messages that a test chooses, packed as it says, and of a million fragments."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from coldstream.format.chunk import ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.manifest.entry import FragmentEntry, Head, LastUserChunk
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import RangeRead
from coldstream.store.ports import LogPage
from coldstream.units import ByteRange, ChunkId, Epoch, Offset, TimestampMs
from tests.support.archive import STREAM, ChunkArchive


def data_message(body: bytes) -> bytes:
    """Encode a message that is one data section."""
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body


class MessageArchive(ChunkArchive):
    """An archive of the messages that `make` makes by their offsets, those of a chunk packed as `packing` says.

    `packing` is called with the chunk's id; None leaves the messages on their own.
    """

    def __init__(
        self,
        make: Callable[[int], bytes] = lambda offset: data_message(b"message %d" % offset),
        packing: Callable[[int], Compression | None] = lambda _: None,
        *,
        stream: StreamId = STREAM,
        sparse_bytes: int = 250,
    ) -> None:
        super().__init__(stream, sparse_bytes=sparse_bytes)
        self._make = make
        self._packing = packing

    def message(self, offset: int) -> bytes:
        return self._make(offset)

    def entries(self, chunk_id: int, records: int) -> list[bytes | SubBatch]:
        compression = self._packing(chunk_id)
        messages = [self.message(chunk_id + number) for number in range(records)]
        if compression is None or records == 1:  # a tracking chunk is of one entry
            return list(messages)
        # One on its own, an empty sub-batch as brokers accept it, and the rest in two.
        first, *rest = messages
        half = len(rest) // 2
        return [
            first,
            make_sub_batch([], compression),
            *(make_sub_batch(part, compression) for part in (rest[:half], rest[half:]) if part),
        ]

    def user_offsets(self) -> list[int]:
        """List the offsets of all messages."""
        return [
            offset
            for chunk in self.chunks
            if chunk.header.type is ChunkType.USER
            for offset in range(chunk.header.chunk_id, chunk.header.next_offset)
        ]


FRAGMENTS = 1_000_000
CHUNKS = 4
CHUNK_RECORDS = 100
A_FRAGMENT = CHUNKS * CHUNK_RECORDS
FIRST_TIME = 1_763_700_000_000
MS_A_CHUNK = 10
BODY_BYTES = 11_000


class MillionTable(MemoryTable):
    """The log of a stream of a million fragments, computed; it knows no other read but those that lookups need."""

    stream = StreamId("/", "million", Incarnation("__million_1763700000000000000"))

    def __init__(self, objects: MillionObjects) -> None:
        super().__init__()
        self._chunk_bytes = objects.chunk_bytes

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        self._count("Query")
        assert incarnation == self.stream.incarnation
        return self._page(offset // A_FRAGMENT, limit)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        self._count("Query")
        assert incarnation == self.stream.incarnation
        return self._page(max(0, timestamp - FIRST_TIME + MS_A_CHUNK - 1) // (CHUNKS * MS_A_CHUNK), limit)

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        self._count("Query")
        assert incarnation == self.stream.incarnation
        last = min(FRAGMENTS, offset // A_FRAGMENT)
        return tuple(self._entry(number) for number in range(last - 1, max(-1, last - 1 - limit), -1))

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        self._count("Query")
        assert incarnation == self.stream.incarnation
        return self._page(FRAGMENTS - limit, limit)

    def _page(self, first: int, limit: int) -> LogPage:
        end = min(FRAGMENTS, first + limit)
        return LogPage(tuple(map(self._entry, range(first, end))), self._head() if first + limit >= FRAGMENTS else None)

    def _head(self) -> Head:
        return Head(
            self.stream,
            revision=FRAGMENTS,
            first_offset=Offset(0),
            next_offset=Offset(FRAGMENTS * A_FRAGMENT),
            first_timestamp=TimestampMs(FIRST_TIME),
            greatest_timestamp=TimestampMs(FIRST_TIME + MS_A_CHUNK * (FRAGMENTS * CHUNKS - 1)),
            fragments=FRAGMENTS,
            records=FRAGMENTS * A_FRAGMENT,
            messages=FRAGMENTS * A_FRAGMENT,
            data_bytes=FRAGMENTS * CHUNKS * self._chunk_bytes,
            object_bytes=FRAGMENTS * CHUNKS * self._chunk_bytes,
        )

    def _entry(self, number: int) -> FragmentEntry:
        first, first_time = number * A_FRAGMENT, FIRST_TIME + number * CHUNKS * MS_A_CHUNK
        points = tuple(
            SparsePoint(
                ChunkId(first + chunk * CHUNK_RECORDS),
                chunk,
                FRAGMENT_HEADER_BYTES + chunk * self._chunk_bytes,
                TimestampMs(first_time + chunk * MS_A_CHUNK),
                TimestampMs(first_time + max(0, chunk - 1) * MS_A_CHUNK),
            )
            for chunk in range(CHUNKS)
        )
        last = points[-1]
        return FragmentEntry(
            first_offset=Offset(first),
            next_offset=Offset(first + A_FRAGMENT),
            first_timestamp=points[0].timestamp,
            last_timestamp=last.timestamp,
            greatest_timestamp=last.timestamp,
            epoch=Epoch(1),
            chunks=CHUNKS,
            records=A_FRAGMENT,
            messages=A_FRAGMENT,
            data_bytes=CHUNKS * self._chunk_bytes,
            object_bytes=CHUNKS * self._chunk_bytes,
            key=f"million/{number}",
            crc32=0,
            sparse=SparseIndex(points),
            last_user_chunk=LastUserChunk(last.chunk_id, last.position, last.timestamp),
            segment_offset=Offset(first),
            prior_offset=Offset(first) if number else None,
            prior_timestamp=TimestampMs(first_time - MS_A_CHUNK) if number else None,
        )


class MillionObjects(MemoryObjects):
    """The objects of these fragments, each made when a range of it is read: chunks of about a MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0
        self.chunk_bytes = len(self._chunk(0, 0))

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        self._count("GetObject")
        number = int(key.removeprefix("million/"))
        data = bytes(FRAGMENT_HEADER_BYTES) + b"".join(self._chunk(number, chunk) for chunk in range(CHUNKS))
        found = data[byte_range.start : byte_range.end]
        self.read_bytes += len(found)
        return RangeRead(found, len(data), f'"{crc32(data)}"')

    def _chunk(self, number: int, chunk: int) -> bytes:
        first = number * A_FRAGMENT + chunk * CHUNK_RECORDS
        _, data = make_chunk(
            [data_message(b"%020d" % (first + record) + bytes(BODY_BYTES)) for record in range(CHUNK_RECORDS)],
            chunk_id=ChunkId(first),
            timestamp=TimestampMs(FIRST_TIME + (number * CHUNKS + chunk) * MS_A_CHUNK),
            epoch=Epoch(1),
        )
        return data
