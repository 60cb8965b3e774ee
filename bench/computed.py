"""An archive of one stream with any number of fragments, of which table and bucket compute what they are asked for.

So a measurement has the memory and, almost, the processor to itself. Everything that is asked of the stores is
counted, page by page, as the real ones would send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import merge
from operator import attrgetter
from zlib import crc32

import numpy as np

from bench.load import FIRST_TIMESTAMP, stream
from coldstream.errors import ObjectNotFoundError
from coldstream.format.checksum import combine_crc32
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES, FragmentTrailer
from coldstream.format.index import INDEX_HEADER
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.change import Change, DeleteTombstone
from coldstream.manifest.entry import (
    FragmentEntry,
    Head,
    JournalEvent,
    JournalKind,
    LastUserChunk,
    Row,
    Tombstone,
)
from coldstream.manifest.note import EntryNote
from coldstream.manifest.recorded import recorded
from coldstream.manifest.sparse import STEP_BYTES, SparseIndex, SparsePoint
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.memory.bucket import PAGE
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import DeleteReport, ListedObject, LogPage, ObjectInfo, RangeRead
from coldstream.store.sortkeys import TOMBSTONES, tombstone_key
from coldstream.units import ByteRange, ChunkId, Epoch, Offset, TimestampMs

CHUNKS = 100
CHUNK_RECORDS = 100
CHUNK_BYTES = 26_000
MS_A_CHUNK = 50
OFFSETS = CHUNKS * CHUNK_RECORDS
DATA_BYTES = CHUNKS * CHUNK_BYTES
DATA_CRC32 = 305_419_896
"""Nothing reads the chunks themselves, so they need no bytes: a checksum will do."""

DAY_MS = 24 * 3600 * 1000
TOMBSTONES_A_PAGE = 4000
"""Of about 250 bytes: a Query ends at a megabyte."""

KEPT_CHANGES = 100

_INDEX = np.zeros(CHUNKS, [("chunk_id", ">u8"), ("timestamp", ">i8"), ("position", ">u4")])
_INDEX["chunk_id"] = np.arange(CHUNKS) * CHUNK_RECORDS
_INDEX["timestamp"] = np.arange(CHUNKS) * MS_A_CHUNK
_INDEX["position"] = FRAGMENT_HEADER_BYTES + np.arange(CHUNKS) * CHUNK_BYTES


@dataclass(frozen=True)
class ComputedArchive:
    """What table and bucket have in common."""

    fragments: int

    stream = stream(0)
    keys = Keys()

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the stream."""
        return self.stream.incarnation

    @property
    def now(self) -> TimestampMs:
        """A month after the last chunk."""
        return TimestampMs(FIRST_TIMESTAMP + self.fragments * CHUNKS * MS_A_CHUNK + 30 * DAY_MS)

    @cached_property
    def directory(self) -> str:
        """How the keys of the fragments begin."""
        return self.keys.fragments(self.incarnation)

    def key(self, number: int) -> str:
        """Return the key of a fragment."""
        return f"{self.directory}{number * OFFSETS:020}.fragment"

    def number(self, key: str) -> int | None:
        """Return the number of the fragment at a key, None if that is another object's."""
        if not key.startswith(self.directory):
            return None
        return int(key[len(self.directory) : len(self.directory) + 20]) // OFFSETS

    def footer(self, number: int) -> bytes:
        """Return what follows the chunks in the object of a fragment."""
        first_offset, first_timestamp = number * OFFSETS, FIRST_TIMESTAMP + number * CHUNKS * MS_A_CHUNK
        index = _INDEX.copy()
        index["chunk_id"] += first_offset
        index["timestamp"] += first_timestamp
        trailer = FragmentTrailer(
            Offset(first_offset),
            TimestampMs(first_timestamp),
            Offset(first_offset + OFFSETS),
            sequence_number=0,
            data_bytes=DATA_BYTES,
            chunks_before=0,
            data_position=FRAGMENT_HEADER_BYTES,
            index_position=FRAGMENT_HEADER_BYTES + DATA_BYTES + len(INDEX_HEADER),
            index_bytes=index.nbytes,
        )
        return INDEX_HEADER + index.tobytes() + trailer.to_bytes()

    def crc32(self, footer: bytes) -> int:
        """Return the CRC-32 of the object that ends so."""
        before = combine_crc32(crc32(SEGMENT_HEADER), DATA_CRC32, DATA_BYTES)
        return combine_crc32(before, crc32(footer), len(footer))

    @cached_property
    def object_bytes(self) -> int:
        """The size of each object."""
        return FRAGMENT_HEADER_BYTES + DATA_BYTES + len(self.footer(0))

    def entry(self, number: int) -> FragmentEntry:
        """Return the entry of a fragment, as its object gives it, with its links."""
        first_offset = Offset(number * OFFSETS)
        first_timestamp = TimestampMs(FIRST_TIMESTAMP + number * CHUNKS * MS_A_CHUNK)
        last = self.last_user_chunk(number)
        return FragmentEntry(
            first_offset=first_offset,
            next_offset=Offset(first_offset + OFFSETS),
            first_timestamp=first_timestamp,
            last_timestamp=last.timestamp,
            greatest_timestamp=last.timestamp,
            epoch=Epoch(1),
            chunks=CHUNKS,
            records=OFFSETS,
            messages=OFFSETS,
            data_bytes=DATA_BYTES,
            object_bytes=self.object_bytes,
            key=self.key(number),
            crc32=self.crc32(self.footer(number)),
            sparse=self._sparse(first_offset, first_timestamp),
            last_user_chunk=last,
            segment_offset=first_offset,
            first_epoch=Epoch(1),
            data_crc32=DATA_CRC32,
            prior_offset=first_offset if number else None,
            prior_timestamp=TimestampMs(first_timestamp - MS_A_CHUNK) if number else None,
        )

    def last_user_chunk(self, number: int) -> LastUserChunk:
        """Return the last chunk of a fragment."""
        return LastUserChunk(
            ChunkId((number + 1) * OFFSETS - CHUNK_RECORDS),
            FRAGMENT_HEADER_BYTES + (CHUNKS - 1) * CHUNK_BYTES,
            TimestampMs(FIRST_TIMESTAMP + ((number + 1) * CHUNKS - 1) * MS_A_CHUNK),
        )

    def note(self, number: int) -> str:
        """Return the metadata of an object."""
        note = EntryNote(
            Offset(number * OFFSETS), Epoch(1), Epoch(1), OFFSETS, self.last_user_chunk(number), DATA_CRC32
        )
        return note.to_text()

    def head(self, fragments: int) -> Head:
        """Return the head of a log of so many fragments, at revision 1."""
        last = self.entry(fragments - 1) if fragments else None
        return Head(
            self.stream,
            revision=1,
            first_offset=Offset(0) if fragments else None,
            next_offset=Offset(fragments * OFFSETS),
            first_timestamp=TimestampMs(FIRST_TIMESTAMP) if fragments else None,
            greatest_timestamp=None if last is None else last.greatest_timestamp,
            epoch=Epoch(1),
            fragments=fragments,
            chunks=fragments * CHUNKS,
            records=fragments * OFFSETS,
            messages=fragments * OFFSETS,
            data_bytes=fragments * DATA_BYTES,
            object_bytes=fragments * self.object_bytes,
        )

    def tombstone(self, number: int, due_at: TimestampMs) -> Tombstone:
        """Return the tombstone of a fragment that was removed."""
        first = Offset(number * OFFSETS)
        return Tombstone(self.key(number), due_at, first, Offset(first + OFFSETS), self.object_bytes)

    def _sparse(self, first_offset: Offset, first_timestamp: TimestampMs) -> SparseIndex:
        """Return the points that the upload chooses: the first chunk, and then one a MiB."""
        return SparseIndex(
            tuple(
                SparsePoint(
                    ChunkId(first_offset + chunk * CHUNK_RECORDS),
                    chunk,
                    FRAGMENT_HEADER_BYTES + chunk * CHUNK_BYTES,
                    TimestampMs(first_timestamp + chunk * MS_A_CHUNK),
                    TimestampMs(first_timestamp + max(0, chunk - 1) * MS_A_CHUNK),
                )
                for chunk in range(0, CHUNKS, -(-STEP_BYTES // CHUNK_BYTES))
            )
        )


class ComputedObjects(MemoryObjects):
    """The bucket: the objects of all fragments, and what is put beside them."""

    def __init__(self, archive: ComputedArchive) -> None:
        super().__init__(clock=lambda: archive.now)
        self._archive = archive

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        """Yield the objects under a prefix."""
        others = sorted(key for key in self.objects if key.startswith(prefix) and (after is None or key > after))
        small = (ListedObject(key, len(self.objects[key]), '"0"', self._archive.now) for key in others)
        count = 0
        for one in merge(small, self._fragments(prefix, after), key=attrgetter("key")):
            if count % PAGE == 0:
                self._count("ListObjectsV2")
            count += 1
            yield one
        if not count:
            self._count("ListObjectsV2")

    def _fragments(self, prefix: str, after: str | None) -> Iterator[ListedObject]:
        archive = self._archive
        first = 0
        if not archive.directory.startswith(prefix):
            return
        if after is not None and after > archive.directory:
            first = archive.number(after) or 0 if after.startswith(archive.directory) else archive.fragments
            first += first < archive.fragments and archive.key(first) <= after
        size_bytes = archive.object_bytes
        for number in range(first, archive.fragments):
            yield ListedObject(archive.key(number), size_bytes, '"0"', TimestampMs(FIRST_TIMESTAMP))

    def info(self, key: str) -> ObjectInfo | None:
        """Return what a HEAD says of the object at a key."""
        archive = self._archive
        number = archive.number(key)
        if number is None:
            return super().info(key)
        self._count("HeadObject")
        found = archive.crc32(archive.footer(number))
        return ObjectInfo(archive.object_bytes, '"0"', found, TimestampMs(FIRST_TIMESTAMP), note=archive.note(number))

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range after the chunks; what lies before it is zeros."""
        archive = self._archive
        number = archive.number(key)
        if number is None:
            return super().get_range(key, byte_range, if_match=if_match)
        if number >= archive.fragments:
            raise ObjectNotFoundError(key)
        self._count("GetObject")
        chunks_end = FRAGMENT_HEADER_BYTES + DATA_BYTES
        zeros = bytes(max(0, chunks_end - byte_range.start))
        start = max(0, byte_range.start - chunks_end)
        return RangeRead(zeros + archive.footer(number)[start:], archive.object_bytes, '"0"')

    def delete_many(
        self,
        keys: Sequence[str],
        *,
        signed_at: TimestampMs | None = None,  # noqa: ARG002  as the port has it
    ) -> DeleteReport:
        """Say that these objects are deleted."""
        self._count("DeleteObjects", -(-len(keys) // PAGE))
        return DeleteReport(tuple(keys))


class ComputedTable(MemoryTable):
    """The table: the entries of a stream's first fragments, and tombstones of some. It forgets what is written.

    Of changes it keeps the head, and the newest in the journal. Tombstones that are deleted are gone, the first first.
    It knows one stream only, and does not look at the incarnation.
    """

    def __init__(
        self, archive: ComputedArchive, *, entries: int = 0, tombstones: int = 0, due_at: TimestampMs | None = None
    ) -> None:
        """`due_at` is when the tombstones are due, by default now."""
        super().__init__()
        self.written: int = 0
        """Bytes of the journal."""
        self._archive = archive
        self._entries = entries
        self._tombstones = range(tombstones)
        self._due_at = archive.now if due_at is None else due_at
        if entries or tombstones:
            self.begin()

    def begin(self) -> None:
        """Know the stream, even if nothing of it is archived."""
        span = Offset(0), Offset(self._entries * OFFSETS)
        first = JournalEvent(1, JournalKind.FRAGMENTS_REBUILT, TimestampMs(FIRST_TIMESTAMP), *span)
        super().apply(Change(self._archive.head(self._entries), first, ()))
        self.requests.clear()

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:  # noqa: ARG002
        """Return the log from the entry that holds `offset`."""
        self._count("Query")
        return self._page(offset // OFFSETS, limit)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:  # noqa: ARG002
        """Return the log from the entry whose last chunk is at or after `timestamp`."""
        self._count("Query")
        return self._page(max(0, timestamp - FIRST_TIMESTAMP) // (CHUNKS * MS_A_CHUNK), limit)

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:  # noqa: ARG002
        """Return the log backwards from the entry that ends at or before `offset`."""
        self._count("Query")
        last = min(offset // OFFSETS, self._entries) - 1
        return tuple(self._archive.entry(number) for number in range(last, max(-1, last - limit), -1))

    def items_at_once(self, incarnation: Incarnation, keys: Sequence[str]) -> Mapping[str, Row] | None:
        """Return the items of these keys."""
        found = dict(super().items_at_once(incarnation, keys) or {})
        for key in keys:
            kind, _, digits = key.partition("#")
            if kind == "log" and digits.isdigit() and 0 < int(digits) <= self._entries * OFFSETS:
                found[key] = self._archive.entry(int(digits) // OFFSETS - 1)
        return found

    def rows(
        self, incarnation: Incarnation, kind: str = "", *, after: str = "", page_items: int | None = None
    ) -> Iterator[Row]:
        """Yield the items whose sort keys begin with `kind`."""
        if kind != TOMBSTONES or not self._tombstones:
            yield from super().rows(incarnation, kind, after=after, page_items=page_items)
            return
        count = 0
        for number in self._tombstones:
            one = self._archive.tombstone(number, self._due_at)
            if after and tombstone_key(one) <= after:
                continue
            if count % TOMBSTONES_A_PAGE == 0:
                self._count("Query")
            count += 1
            yield one

    def apply(self, change: Change) -> None:
        """Write a change: its head, and its event without what it wrote."""
        self.written += len(recorded(change))
        self._tombstones = self._tombstones[sum(1 for _ in change.of(DeleteTombstone)) :]
        super().apply(replace(change, writes=()))
        incarnation = change.head.stream.incarnation
        if change.head.revision % KEPT_CHANGES == 0:
            state, kept = self._partitions[incarnation], change.head.revision - KEPT_CHANGES
            events = {revision: event for revision, event in state.events.items() if revision > kept}
            self._partitions[incarnation] = ManifestState(state.head, events=events)
            self._recorded[incarnation] = {
                revision: data for revision, data in self._recorded[incarnation].items() if revision > kept
            }

    def _page(self, first: int, limit: int) -> LogPage:
        end = min(first + limit, self._entries)
        entries = tuple(map(self._archive.entry, range(first, end)))
        state = self._partitions.get(self._archive.incarnation, ManifestState())
        return LogPage(entries, state.head if end >= self._entries else None)
