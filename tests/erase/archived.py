"""An archive in memory of messages with properties, some in sub-batches, as fragments of either encoding."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from zlib import crc32

from coldstream.archive.commit import commit_fragment
from coldstream.archive.draft import FragmentDraft
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.erase.samples import BLOOM, TRAILER, amqp
from tests.support.archive import NOW, STREAM
from tests.support.compaction import seekable

KEYS = Keys()


def body_of(offset: int) -> bytes:
    """Return bytes that no other message has, and that no compression hides."""
    return b"<secret of %08d>" % offset


def user_of(offset: int) -> str:
    return f"user-{offset % 7}"


def message_at(offset: int) -> bytes:
    return amqp(body_of(offset), user=user_of(offset))


class MessageArchive:
    """One stream in memory; each fragment has chunks of plain messages, sub-batches and tracking in turn."""

    def __init__(
        self,
        stream: StreamId = STREAM,
        message: Callable[[int], bytes] = message_at,
        objects: MemoryObjects | None = None,
        keys: Keys = KEYS,
        table: MemoryTable | None = None,
    ) -> None:
        self.stream = stream
        self.keys = keys
        self.table = table or MemoryTable()
        self.objects = objects or MemoryObjects()
        self.published: dict[int, bytes] = {}
        self._message = message
        self._next_offset = 0

    @property
    def log(self) -> tuple[FragmentEntry, ...]:
        return self.table.log_from_offset(self.stream.incarnation, Offset(0), 10_000).entries

    def add(self, chunks: int, *, records: int = 6, encoding: Encoding = Encoding.IDENTITY) -> FragmentEntry:
        """Archive a fragment of so many chunks of so many records."""
        draft = FragmentDraft(
            "test",
            Offset(self._next_offset),
            sequence_number=3,
            chunks_before=11,
            data_position=4711,
            spool_dir=None,
        )
        for number in range(chunks):
            kind = ChunkType.TRACKING_DELTA if number % 5 == 4 else ChunkType.USER
            self._add_chunk(draft, kind, 1 if kind else records, number)
        with draft.finish() as cut:
            key = self.keys.fragment(self.stream.incarnation, cut.first_offset)
            entry, data = cut.entry_at(key, 0), cut.body.read()
        if encoding is Encoding.ZSTD_SEEKABLE:
            data, frames = seekable(data, entry.sparse, entry.data_bytes)
            entry = replace(entry, encoding=encoding, frames=frames, object_bytes=len(data), crc32=crc32(data))
        self.objects.put_new(key, io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))
        assert commit_fragment(self.table, self.stream, entry, lambda: NOW)
        return next(one for one in self.log if one.key == key)

    def _add_chunk(self, draft: FragmentDraft, kind: ChunkType, records: int, number: int) -> None:
        first = self._next_offset
        if kind is ChunkType.USER:
            own = {offset: self._message(offset) for offset in range(first, first + records)}
            self.published |= own
            entries = _entries(list(own.values()), number)
        else:
            entries = [TRAILER]
        header, data = make_chunk(
            entries,
            chunk_id=ChunkId(first),
            timestamp=TimestampMs(1_763_700_000_000 + first),
            epoch=Epoch(1),
            kind=kind,
            bloom=BLOOM if kind is ChunkType.USER else b"",
            trailer=TRAILER if kind is ChunkType.USER else b"",
        )
        draft.write(data)
        draft.add(header, crc32(data))
        self._next_offset = header.next_offset

    def read(self) -> dict[int, bytes]:
        """Read all messages as Spark's rows and scans do."""
        return self.read_from(0)

    def read_from(self, offset: int) -> dict[int, bytes]:
        """Read the messages of an offset and all after it."""
        found: dict[int, bytes] = {}
        for step in plan_scan(self.table, self.stream, Offset(offset)):
            assert isinstance(step, ScanSlice)
            for chunk in read_slice(self.objects, step):
                found |= {message.offset: message.raw for message in messages(chunk, source="test")}
        return found

    def holding(self, needle: bytes) -> set[str]:
        """Name the objects in whose bytes something is, as they are stored."""
        return {key for key, data in self.objects.objects.items() if needle in data}

    def every_version(self) -> Iterator[bytes]:
        """Yield the bytes of every version of every object."""
        for key in {version.key for version in self.objects.versions("")}:
            for version in self.objects._all(key):
                yield version.data or b""


def _entries(published: Sequence[bytes], number: int) -> list[bytes | SubBatch]:
    """Pack half of the messages of every other chunk; compressed or not, in turn."""
    if number % 2 == 0 or len(published) < 2:
        return list(published)
    half = len(published) // 2
    compression = list(Compression)[number // 2 % len(Compression)]
    return [*published[:half], make_sub_batch(published[half:], compression)]
