"""A stream as it was at one moment: nothing is written to open it, and whoever appends to it is not disturbed.

It ends where, at that moment, the manifest ended, and what followed without a hole in the WALs of the stream's
openings. What was in a WAL is read from there until it was trimmed, and from the archive after that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream.errors import GapError, ObjectNotFoundError, StreamClosedError, StreamNotFoundError
from coldstream.manifest.appender import WalPlace
from coldstream.manifest.appending import tail_of
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import check_name
from coldstream.store.direct_names import find_name
from coldstream.store.wal_object import WalEntry
from coldstream.streams.append_queue import AppendQueue
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.engine import StreamEngine
from coldstream.streams.handle import DirectStream
from coldstream.streams.open_stream import OpenStream
from coldstream.streams.opening import head_of
from coldstream.streams.recovery import continuing, state_of
from coldstream.streams.wals import WalEntries, Wals
from coldstream.units import Epoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class WalChunkPlace:
    """Where a chunk of a snapshot was when it was opened."""

    wal: WalPlace
    sequence: int
    entry: WalEntry


class SnapshotStream(DirectStream):
    """A handle that only reads, and whose `confirmed` never moves."""

    __slots__ = ("_in_wal",)

    def __init__(self, engine: StreamEngine, state: OpenStream, in_wal: Sequence[WalChunkPlace]) -> None:
        super().__init__(engine, state, None)
        self._in_wal = in_wal

    async def _read(self, at: Offset, stop: Offset, max_bytes: int) -> Sequence[CachedChunk]:
        first = self._in_wal[0].entry.first_offset if self._in_wal else stop
        if at < first:
            return await self._engine.caches.blocks.read(self.stream, at, min(stop, first), max_bytes)
        try:
            return await self._engine.call(self._read_wal, at, stop, max_bytes)
        except ObjectNotFoundError:
            # Trimmed since: so it is in the archive, and all of it before what was trimmed later.
            found = await self._engine.caches.blocks.read(self.stream, at, stop, max_bytes)
            if not found:
                raise GapError(str(self.stream), at, stop, "neither in its log nor archived") from None
            return found

    def _read_wal(self, at: Offset, stop: Offset, max_bytes: int) -> list[CachedChunk]:
        begin = bisect_right(self._in_wal, at, key=lambda one: one.entry.next_offset)
        going: list[WalChunkPlace] = []
        size_bytes = 0
        for one in self._in_wal[begin:]:
            size_bytes += len(one.entry.byte_range)
            is_other = bool(going) and one.wal != going[0].wal
            if one.entry.first_offset >= stop or is_other or (going and size_bytes > max_bytes):
                break
            going.append(one)
        entries = [(one.sequence, one.entry) for one in going]
        return list(self._engine.wals.chunks(going[0].wal, entries))

    def _check_writable(self) -> AppendQueue:
        self._check_readable()
        raise StreamClosedError(str(self.stream), "is open as a snapshot, to read it")

    def _check_destructible(self) -> None:
        self._check_writable()

    @property
    def _is_fixed(self) -> bool:
        return True


async def open_snapshot(engine: StreamEngine, vhost: str, name: str) -> SnapshotStream:
    """Open a stream as it is now. Cost: two or three GetItems, and for each opening a LIST and some GETs.

    Raises StreamNotFoundError, UnavailableError.
    """
    state, in_wal = await engine.call(_look, engine.archive, engine.wals, vhost, name)
    return SnapshotStream(engine, state, in_wal)


def _look(archive: DirectArchive, wals: Wals, vhost: str, name: str) -> tuple[OpenStream, list[WalChunkPlace]]:
    head = _find(archive, vhost, name)
    if head.appender is None:
        return _of_a_broker(head), []
    found: list[tuple[WalPlace, WalEntries]] = [
        (one.wal, wals.durable_entries(one.wal, head.stream.incarnation, one.epoch))
        for one in head.appender.openings
        if wals.can_read(one.wal)
    ]
    if found:
        # After the WALs: what was trimmed from them is in the manifest by now.
        head = head_of(archive, head.stream)
    state, tail = state_of(head), tail_of(head)
    in_wal = [
        WalChunkPlace(place, sequence, entry)
        for place, some in continuing(found, tail, may_lack=True)
        for sequence, entry in some
    ]
    if in_wal:
        tail = in_wal[-1].entry.next_offset
    # Trimmed since the WALs were read, past all that they had: as of then, nothing was there to be read.
    return replace(state, start=min(state.start, tail), tail=tail), in_wal


def _find(archive: DirectArchive, vhost: str, name: str) -> Head:
    """Return the head of the direct stream, or of the broker's, that has a name. Raises StreamNotFoundError."""
    check_name("vhost", vhost)
    check_name("stream name", name)
    known = find_name(archive.table, vhost, name)
    incarnation = archive.table.incarnation_of(vhost, name) if known is None else known.stream.incarnation
    head = None if incarnation is None else archive.table.head(incarnation)
    if head is None or head.is_deleted:
        raise StreamNotFoundError(f"there is no stream {name!r} in vhost {vhost!r}")
    return head


def _of_a_broker(head: Head) -> OpenStream:
    tail = Offset(0) if head.next_offset is None else head.next_offset
    start = tail if head.first_offset is None else head.first_offset
    timestamp = TimestampMs(0) if head.greatest_timestamp is None else head.greatest_timestamp
    return OpenStream(head.stream, head.epoch or Epoch(0), {}, start, tail, timestamp, is_brokers=True)
